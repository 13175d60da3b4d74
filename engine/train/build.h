#ifndef TRAIND_ENGINE_TRAIN_BUILD_H
#define TRAIND_ENGINE_TRAIN_BUILD_H

// Build: a rank comes to be, in one visible order (the table `building` in build.c). Its steps are
// plugins (rank/), programs and their sizes (plan/), state, choices, and what carries metrics and
// checkpoints away. td_rank_destroy takes the rank down in reverse, from any point that building
// reached. Thread: the training thread.

#include "engine/train/rank/rank.h"

TD_MUST_USE td_status td_rank_create(const struct td_train_config *config, struct td_train_io *io,
                                     struct td_events *events, struct td_rank **out_rank);
// Builds only what sizes need: plugins, data, recorded programs, laid-out state; no group, no
// memory. Good for td_sizes_measure and destroy.
TD_MUST_USE td_status td_rank_create_plan(const struct td_train_config *config,
                                          struct td_train_io *io, struct td_events *events,
                                          struct td_rank **out_rank);
// Records the same plan under another precision. What fails leaves it good for destroy, and for
// another call.
TD_MUST_USE td_status td_rank_replan(struct td_rank *r, const char *precision);

#endif
