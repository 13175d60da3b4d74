#ifndef TRAIND_ENGINE_TRAIN_BUILD_H
#define TRAIND_ENGINE_TRAIN_BUILD_H

// Build: a rank comes to be, in one visible order (the tables in build.c). Its steps are plugins
// (rank/), programs and their sizes (plan/), state, choices, and what carries metrics and
// checkpoints away. td_rank_create takes all of them. By themselves they are the calls that
// Lightning 1.3 knew, each of them once, in this order:
//
//   td_rank_begin
//   td_rank_setup_environment   the accelerator, the group, the precision, the strategy
//   td_rank_connect             data and module; programs are recorded, and their sizes checked
//   td_rank_setup               memory of state, its first or restored values, the strategy's setup
//   td_rank_pre_dispatch        late optimizers, what plugins kept; programs are compiled
//   td_rank_hook                TD_HOOK_TRAIN_START: dispatch
//   td_rank_move_batch, td_rank_queue_segments, td_rank_read: a step, whole or by segment
//   td_rank_hook                TD_HOOK_TRAIN_END: post_dispatch
//   td_rank_finish              teardown
//   td_rank_destroy
//
// td_rank_destroy takes the rank down in reverse, from any point that building reached. A call out
// of turn is FAILED_PRECONDITION and changes nothing. After another failure peers were woken, and
// destroy is all that may follow. Thread: the training thread.

#include "engine/train/rank/rank.h"

// Nothing is opened yet. The arguments outlive the rank.
TD_MUST_USE td_status td_rank_begin(const struct td_train_config *config, struct td_train_io *io,
                                    struct td_events *events, struct td_rank **out_rank);
TD_MUST_USE td_status td_rank_setup_environment(struct td_rank *r);
TD_MUST_USE td_status td_rank_connect(struct td_rank *r);
TD_MUST_USE td_status td_rank_setup(struct td_rank *r);
TD_MUST_USE td_status td_rank_pre_dispatch(struct td_rank *r);
// All of that.
TD_MUST_USE td_status td_rank_create(const struct td_train_config *config, struct td_train_io *io,
                                     struct td_events *events, struct td_rank **out_rank);
// Builds only what sizes need: plugins, data, recorded programs, laid-out state; no group, no
// memory. Good for td_sizes_measure and destroy.
TD_MUST_USE td_status td_rank_create_plan(const struct td_train_config *config,
                                          struct td_train_io *io, struct td_events *events,
                                          struct td_rank **out_rank);
// Records the same plan under another precision, for which strategy and comm hook are opened again;
// data and module stay open. What fails leaves it good for destroy, and for another call.
TD_MUST_USE td_status td_rank_replan(struct td_rank *r, const char *precision);

#endif
