#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_GROUP_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_GROUP_H

// Group: what ranks do together, and how long they wait for each other. Each function calls the
// slot of the strategy; where the strategy left it NULL, it does what traind/strategy.h says of an
// absent slot, most often by the collective. Contracts are those of the slots. Nobody else in the
// engine calls these slots. Thread: the training thread; td_rank_reduce_gradients and
// td_rank_sum_tensor: that of the accelerator's queue.
//
// The room, in reading order:
//
//   join.h                   the groups that a rank is in
//   replicas.h               state that becomes the same on all ranks
//   sums.h                   what a program's sums over ranks call
//   bucket_list.h buckets.h  gradients that they average
//   pieces.h                 tensors of which each rank has a piece
//   comm_hook.h              what they send of them instead
//   comm_thread.h            the thread that does so, where ranks are on several nodes
//   control.h                how ranks agree to stop

#include "engine/train/rank/rank.h"

// From now on. All ranks say it at the same place: TD_RANK_SAVES before one of them may come late,
// TD_RANK_TRAINS when all have met since. A rank begins with the first. A decorator without the
// slot keeps it.
void td_rank_expect(struct td_rank *r, enum td_rank_deadline deadline);

// group: TD_GROUP_WORLD. Errors: INVALID_ARGUMENT for another one, which no strategy has so far.
TD_MUST_USE td_status td_rank_reduce(struct td_rank *r, int32_t group, void *data, int64_t n,
                                     enum td_dtype dtype, enum td_reduce_op op);
TD_MUST_USE td_status td_rank_all_gather(struct td_rank *r, int32_t group, const void *in,
                                         size_t bytes, void *out);
TD_MUST_USE td_status td_rank_broadcast(struct td_rank *r, void *data, size_t bytes, int32_t src);
// Who comes last may have loaded or saved something: TD_RANK_SAVES, for this call.
TD_MUST_USE td_status td_rank_barrier(struct td_rank *r, const char *tag);
// all: true when every rank says true; else when any does.
TD_MUST_USE td_status td_rank_decide(struct td_rank *r, bool decision, bool all,
                                     bool *out_decision);
// Averages a bucket and sums its control flags, or begins to.
TD_MUST_USE td_status td_rank_reduce_gradients(struct td_rank *r, const struct td_bucket *bucket);

// Sums n elements in place, in the middle of a program. Thread: as above. While buckets are reduced
// beside the program it has a group of its own. Where the backend joins once, it waits for these
// buckets.
TD_MUST_USE td_status td_rank_sum_tensor(struct td_rank *r, void *data, int64_t n,
                                         enum td_dtype dtype);
// A bucket failed: a sum beside it ends, and those that follow. Thread: any.
void td_rank_bucket_failed(struct td_rank *r);

// The samples of a split that are this rank's.
TD_MUST_USE td_status td_rank_shard(const struct td_rank *r, enum td_split split,
                                    struct td_strategy_shard *out_shard);
// Roles (bits 1 << td_role) that this rank writes into a checkpoint, and reads from one.
TD_MUST_USE td_status td_rank_written_roles(const struct td_rank *r, uint32_t *out_roles);
TD_MUST_USE td_status td_rank_read_roles(const struct td_rank *r, uint32_t *out_roles);
// State of these roles (bits 1 << td_role) is whole where this rank writes it, until a run changes
// it.
TD_MUST_USE td_status td_rank_optimizer_state(struct td_rank *r, uint32_t roles);
// A clean end: the strategy's teardown, else a bounded barrier.
TD_MUST_USE td_status td_rank_finish(struct td_rank *r);
// The end of a rank that failed: it says so, so that the first cause is reported first, and wakes
// its peers. Borrows why, which is classified.
void td_rank_fail(struct td_rank *r, td_status why);

#endif
