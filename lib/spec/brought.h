#ifndef TRAIND_LIB_SPEC_BROUGHT_H
#define TRAIND_LIB_SPEC_BROUGHT_H

// Sizes of a model that come with its weights, and what else shapes do not show. A network of
// Hugging Face's form has a config.json whose keys are those of `model.gpt` and `model.llama`. A
// key that the spec leaves open (null) is what that file says, held against the key's own row. What
// the spec gives stays, and is compared with tensors and file as ever. A preset is sizes that were
// given. Pure.

#include "lib/base/json.h"

// knobs: a canonical section `model` with `name`. *out_knobs: the same, or a copy with what was
// brought. from: what messages call the file. INVALID_ARGUMENT, class bad_spec: it has a size that
// the model does not take.
TD_MUST_USE td_status td_spec_bring_sizes(struct td_arena *a, const struct td_json *knobs,
                                          const struct td_json *config, const char *from,
                                          const struct td_json **out_knobs);

#endif
