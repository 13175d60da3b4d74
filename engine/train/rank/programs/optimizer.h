#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_OPTIMIZER_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_OPTIMIZER_H

// Optimizer: from what a job asks for to what each parameter gets.
//
// A parameter's weight decay and learning rate are those of the first group whose pattern matches
// its name; what no group says is the optimizer's. Weight decay leaves out what the module has
// marked (TD_PARAM_NO_DECAY), unless a group gives it some. With Muon, matrices are Muon's unless
// they are marked TD_PARAM_NOT_HIDDEN, and all the rest is AdamW's, at a rate of its own. A pattern
// that matches nothing, and a group whose parameters all belong to earlier ones, are mistakes of
// the job and end it before it starts. Pure functions, any thread; config and options are borrowed
// by what they fill. Of several optimizers each has its parameters, by name, and groups of its own.

#include "engine/graph/compile.h"
#include "engine/train/config/config.h"

// out_options borrows config.
void td_optimizer_options(const struct td_optimizer_config *config,
                          struct td_optimizer_options *out_options);
// Of a job: of its only optimizer, or of whichever of several a parameter belongs to.
void td_optimizers_options(const struct td_train_config *config,
                           struct td_optimizer_options *out_options);
// The optimizer that a parameter belongs to, and of several the second that names it: places in
// config->optimizers, -1 for none. With one optimizer: 0 and -1.
void td_optimizers_of(const struct td_train_config *config, const char *param, int *out_first,
                      int *out_second);
// Of all optimizers, as td_optimizer_check; and a parameter of two, or of none, by name.
TD_MUST_USE td_status td_optimizers_check(const struct td_train_config *config,
                                          const struct td_state_table *state);
// INVALID_ARGUMENT (class bad_spec) naming the pattern or group, once the parameters are known.
TD_MUST_USE td_status td_optimizer_check(const struct td_optimizer_config *config,
                                         const struct td_state_table *state);

#endif
