#ifndef TRAIND_ENGINE_TRAIN_RANK_STEP_H
#define TRAIND_ENGINE_TRAIN_RANK_STEP_H

// Step: what the loop calls for every micro-batch. Thread: the training thread.

#include "engine/train/rank/rank.h"

// Runs a program, with the strategy's hooks around its segments. Outputs are in r->outputs, named
// by the graph; they are there when it returns.
TD_MUST_USE td_status td_rank_step(struct td_rank *r, enum td_strategy_step kind,
                                   const struct td_program_key *key, const void *const *inputs,
                                   const struct td_graph **out_graph);
// Waits until the last run is done. ABORTED (class collective): a peer is gone.
TD_MUST_USE td_status td_rank_wait(struct td_rank *r);
TD_MUST_USE td_status td_rank_hook(struct td_rank *r, enum td_strategy_hook hook, int64_t batch);
// Sums n values over the ranks, in place.
TD_MUST_USE td_status td_rank_sum(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype);

#endif
