#ifndef TRAIND_FABRIC_CONFIGURE_BROUGHT_H
#define TRAIND_FABRIC_CONFIGURE_BROUGHT_H

// Sizes that a model's weights bring along (lib/spec/brought.h). They are read from the first
// directory with a config.json among those that a rank may begin from: the checkpoint that it
// resumes, ckpt_path, init_from, the weights that it evaluates.

#include "lib/spec/plan.h"

// *io_knobs: of the model. They stay where no directory has the file, and for a plugin.
// INVALID_ARGUMENT, DATA_LOSS: the file is damaged, or has a size that the model does not take.
TD_MUST_USE td_status td_bring_sizes(struct td_arena *a, const struct td_plan *plan,
                                     const struct td_json **io_knobs);

#endif
