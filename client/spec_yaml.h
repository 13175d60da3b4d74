#ifndef TRAIND_CLIENT_SPEC_YAML_H
#define TRAIND_CLIENT_SPEC_YAML_H

// The spec of a job as people read it: YAML, by default without what would be the same anyway. The
// coordinator, which knows the defaults, says what that is.

#include "client/session.h"
#include "lib/base/buf.h"
#include "traind/v1/job.pb-c.h"

// The job that the first argument names, with what td_spec_yaml_add needs.
TD_MUST_USE td_status td_spec_yaml_get(struct td_session *s, struct td_rpc_message **out_job);
// Appends it. wide: every key, resolved.
TD_MUST_USE td_status td_spec_yaml_add(const Traind__V1__Job *job, bool wide, struct td_buf *out);
// As a part of describe: under a line of its own, indented.
TD_MUST_USE td_status td_spec_yaml_show(const Traind__V1__Job *job, bool wide);

#endif
