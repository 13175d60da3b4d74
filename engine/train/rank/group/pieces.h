#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_PIECES_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_PIECES_H

// Pieces: sums of tensors that are split among the ranks (reduce_scatter, all_gather), through
// groups of the host. The pieces of one rank are brought together, so that each sum is one call of
// the group, and put back where they belong. Where tensors are in host memory one place for that
// serves all sums, and it is filled when a sum is made. What is on a device is copied when the sum
// begins, and back at its await, as the accelerator copies on the thread of its queue alone. So
// there each sum has a place. Bounds: all is allocated when memory is laid. Thread: lay, the
// training thread; begin and end, that of the queue; make, whichever reduces buckets.

#include "engine/train/rank/rank.h"

// Host memory that the programs of the rank need for it. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_rank_pieces_bytes(const struct td_rank *r, size_t *out_bytes);
// Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_rank_lay_pieces(struct td_rank *r);

TD_MUST_USE td_status td_rank_begin_pieces(struct td_rank *r, const struct td_sum *sum);
TD_MUST_USE td_status td_rank_make_pieces(struct td_rank *r, const struct td_sum *sum);
TD_MUST_USE td_status td_rank_end_pieces(struct td_rank *r, const struct td_sum *sum);

#endif
