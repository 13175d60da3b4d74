#ifndef TRAIND_ENGINE_TRAIN_LOOP_EVALUATE_H
#define TRAIND_ENGINE_TRAIN_LOOP_EVALUATE_H

// Evaluation: one pass over a split, unpadded, so that each sample counts once.
//
// A split of several loaders is evaluated loader by loader. `val_loss` is the mean over all its
// samples, and `val_loss/1` that over the samples of loader 1.
//
// Ranks may differ by one sample, so the last batch may be empty on some. They still come to every
// batch boundary, because there the control flags are summed in a reduction of their own (training
// has them after its gradients). Each rank pushes its own (sum, count), the coordinator merges; a
// copy summed here serves the checkpoint's metrics. Weights, gradients and the sampler's position
// are left alone. A batch that fails is named. Thread: the training thread.

#include "engine/train/loop/loop.h"

// prefix: "val", "validate" or "test"; "" logs nothing. most: batches of each loader, at most; the
// job's limits hold, too. interrupted: a stop was agreed and the pass was left.
TD_MUST_USE td_status td_train_loop_evaluate(struct td_train_loop *l, enum td_split split,
                                             const char *prefix, int64_t most,
                                             bool *out_interrupted);

// The hooks around a pass over split val or test, also of a loop of somebody's own. done: batches.
TD_MUST_USE td_status td_evaluate_enter(struct td_rank *r, enum td_split split);
TD_MUST_USE td_status td_evaluate_leave(struct td_rank *r, enum td_split split, int64_t done);
// Where the split has several loaders: one of them begins.
TD_MUST_USE td_status td_evaluate_loader(struct td_rank *r, enum td_split split, int loader);

#endif
