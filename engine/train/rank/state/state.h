#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_STATE_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_STATE_H

// State: where a rank starts, and the memory, the first values and the agreement of what it trains.
// The first functions are steps of building (build.h). Thread: the training thread.
//
// The room, in reading order:
//
//   init.h init_loops.h  first values
//   own_state.h          what plugins keep of themselves in a checkpoint
//   writers.h            which rank writes it
//   apart.h              what no rank has whole
//   resume.h             what a resumed run does not share
//   tensor.h             what host code reads of the state

#include "engine/train/rank/rank.h"

// The checkpoint that ranks resume from, if any: those that read choose one together, all learn it.
TD_MUST_USE td_status td_rank_choose_start(struct td_rank *r);
// Ranks learn each other's shares of the data and roles of checkpoints. FAILED_PRECONDITION where
// they would train different things; class user_code where the strategy divides what cannot be.
TD_MUST_USE td_status td_rank_compare(struct td_rank *r);
// Memory for all state and the arena; initial values; what a checkpoint or other weights put in
// their place. Then the strategy's own setup, after which all ranks hold the same state. Optimizer
// state of a strategy that says late_optimizers waits for that: create_late does all of it then.
TD_MUST_USE td_status td_rank_lay_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_initialize_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_restore_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_create_late(struct td_rank *r);

// Where restore.h puts tensors of this rank; valid while its state is placed.
struct td_restore_target td_rank_restore_target(struct td_rank *r);
// Weights of somebody else's making, for the model of this rank (weights.h).
enum td_rank_weights {
    TD_RANK_WEIGHTS_INITIAL,   // init_from
    TD_RANK_WEIGHTS_EVALUATED, // evaluate_from, where that is a path
};
TD_MUST_USE td_status td_rank_load_weights(struct td_rank *r, enum td_rank_weights which);
// Would they fit? Without notes; a rank that was only planned is enough.
TD_MUST_USE td_status td_rank_check_weights(const struct td_rank *r, enum td_rank_weights which);
// The same of a checkpoint to resume from: its weights have the model's names, shapes and types.
TD_MUST_USE td_status td_rank_check_resume(const struct td_rank *r, const struct td_restored *from);

#endif
