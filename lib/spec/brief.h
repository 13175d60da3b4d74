#ifndef TRAIND_LIB_SPEC_BRIEF_H
#define TRAIND_LIB_SPEC_BRIEF_H

// A canonical spec without what it would have anyway: what people want to see of a job, and what
// they start a spec of their own from. Made canonical again it is the same, which is looked at here
// before it is given out; what a later release has other defaults for may differ there. Pure.

#include "lib/base/json.h"

// canonical: of td_spec_parse or stored text of one. *out_brief is in a. A spec that is large, or
// that these tables do not reproduce (a plan, one of another build), is given whole.
TD_MUST_USE td_status td_spec_brief(struct td_arena *a, const struct td_json *canonical,
                                    const struct td_json **out_brief);

#endif
