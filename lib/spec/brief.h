#ifndef TRAIND_LIB_SPEC_BRIEF_H
#define TRAIND_LIB_SPEC_BRIEF_H

// A canonical spec without what it would have anyway: what people want to see of a job, and what
// they start a spec of their own from. Made canonical again it is the same, which is looked at here
// before it is given out; what a later release has other defaults for may differ there. A spec that
// an older build stored lacks the keys that are new: they count as their defaults. Pure.

#include "lib/base/json.h"

// stored: a canonical spec, perhaps of an older build, which had fewer keys. What it lacks gets its
// default of today. *out_spec is in a; NULL: these tables refuse it (a newer build's, a plan).
TD_MUST_USE td_status td_spec_fill(struct td_arena *a, const struct td_json *stored,
                                   const struct td_json **out_spec);

// canonical: of td_spec_parse or stored text of one. *out_brief is in a. A spec that is large, or
// that these tables refuse or do not reproduce, is given whole.
TD_MUST_USE td_status td_spec_brief(struct td_arena *a, const struct td_json *canonical,
                                    const struct td_json **out_brief);

#endif
