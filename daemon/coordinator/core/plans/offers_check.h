#ifndef TRAIND_DAEMON_COORDINATOR_CORE_PLANS_OFFERS_CHECK_H
#define TRAIND_DAEMON_COORDINATOR_CORE_PLANS_OFFERS_CHECK_H

// Knobs of a spec's plugins against what nodes declare (offers.h), when it is submitted: a mistake
// is answered at once, with its line. The job's plan has the last word, on the node. So nothing is
// said here of a plugin that no node has, that nodes have in different builds, or that may be one
// of the spec's own files (`plugins`).

#include "lib/base/json.h"

struct td_core;

// tree: canonical. INVALID_ARGUMENT (SPEC_INVALID, class bad_spec) as of td_spec_parse.
TD_MUST_USE td_status td_offers_check(const struct td_core *core, const struct td_json *tree);

#endif
