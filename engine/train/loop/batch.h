#ifndef TRAIND_ENGINE_TRAIN_LOOP_BATCH_H
#define TRAIND_ENGINE_TRAIN_LOOP_BATCH_H

// Batch: one micro-batch of fit. It is queued from the position after all that is queued, and read
// into the position after all that is done. Thread: the training thread.

#include "engine/train/loop/loop.h"

// The learning rate that a training step will have when it is queued next.
double td_batch_rate(const struct td_train_loop *l, int step);
// The step scalars that the next run queued reads, rounded as the precision wants them. The first:
// of an update of a training step. The other: of a micro-batch whose loss counts `share` in the
// gradient.
void td_batch_set_update(struct td_train_loop *l, int step, double rate);
TD_MUST_USE td_status td_batch_set_share(struct td_train_loop *l, double share);
// The gradient norm that a run put out; NaN: it puts out none.
double td_batch_norm(const struct td_graph *g, const double *outputs);
// All that was queued is done, and the epoch goes on from l->at.
void td_batch_begin(struct td_train_loop *l);
// Queues micro-batch `batch` of the epoch. There is room: TD_RUNS_AHEAD are queued at most.
TD_MUST_USE td_status td_batch_queue(struct td_train_loop *l, int64_t batch);
// Waits for the oldest, counts it, and moves l->at after it.
TD_MUST_USE td_status td_batch_read(struct td_train_loop *l, struct td_batch_run *out_run);
// Of a failure of batch `batch` (from 0) of an evaluation: adds where it was. So does a failure of
// a queued batch by itself. Others than those of data, numbers or the device are left. Takes s.
TD_MUST_USE td_status td_batch_name(td_status s, const struct td_train_loop *l, const char *stage,
                                    int64_t batch);

#endif
