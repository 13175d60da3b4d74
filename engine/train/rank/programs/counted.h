#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_COUNTED_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_COUNTED_H

// Counted: gradients of `trainer.accumulate: tokens`.
//
// By default a micro-batch's gradient is of the mean of its losses, and a window's is the mean of
// these over its micro-batches and ranks, as in torch. Where labels are ignored, each of them may
// count another number, and the result depends on how samples are divided. With `tokens` a
// micro-batch adds the gradient of its *sum*: the seed of its backward pass is what its mean is
// over (engine/graph/passes/count.c). A window's sums are divided once, at its end, by what all of
// its micro-batches counted on all ranks. That is the gradient of one batch that has them all.
//
// The seed is multiplied by a power of two, near one over what a window may count at most. So
// gradients are as large as those of a mean, which matters in 16 bits. The divisor is known when
// the last backward pass of a window is done: its segments run apart from finish, which divides.
// Thread: the training thread.

#include "engine/train/rank/rank.h"

// Are gradients sums that are divided? Not where that is the same: of one rank that does not
// accumulate.
bool td_rank_divides(const struct td_rank *r);
// Of a job that trains, after it was recorded. Class bad_spec: its gradients are not sums that a
// number at the end makes right, because the module, the strategy or a comm hook does more.
TD_MUST_USE td_status td_rank_check_counted(const struct td_rank *r);
// What the seeds of a window of so many micro-batches are multiplied by. All ranks have the same.
double td_rank_count_scale(const struct td_rank *r, int64_t window);
// TD_SCALAR_DIVISOR of a window in which this rank counted so much, with seeds of that scale.
// Collective. 1 where nobody counted anything: the gradients are 0.
TD_MUST_USE td_status td_rank_divisor(struct td_rank *r, double counted, double scale,
                                      double *out_divisor);

#endif
