#ifndef TRAIND_LIB_PATTERN_LINE_PATTERN_CHECK_H
#define TRAIND_LIB_PATTERN_LINE_PATTERN_CHECK_H

// Check of `metrics_from.stdout` where a spec is handed in, by who links RE2: lib/spec does not, as
// ranks read plans with it. A command has no plan of a node's that could refuse it later.
// Thread: any.

#include "lib/base/json.h"

// v: the knob of a canonical spec; NULL or null: nothing to check. INVALID_ARGUMENT (SPEC_INVALID,
// class bad_spec) with its line, as of td_spec_parse.
TD_MUST_USE td_status td_line_pattern_check(const struct td_json *v);

#endif
