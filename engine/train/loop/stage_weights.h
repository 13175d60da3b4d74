#ifndef TRAIND_ENGINE_TRAIN_LOOP_STAGE_WEIGHTS_H
#define TRAIND_ENGINE_TRAIN_LOOP_STAGE_WEIGHTS_H

// Stage weights: which weights validate, test and predict use (`evaluate_from`), and that the
// result names them.
//
// After fit a rank holds the last weights. The best are read back from the checkpoint that best.h
// knows, verified like one that is resumed from; a path is read as init_from is. The ranks that
// read are the strategy's, whose setup makes the others equal. Rank 0 decides and says so in a
// "weights" event. A best that was asked for by name and is not there fails the job (class data).
// By default the last ones are used then, and event and note say why. Collective. Thread: the
// training thread.

#include "engine/train/loop/loop.h"

// Before the first step, or of a plan: are weights at the path that will be needed, and do they
// fit? Class bad_spec, or data where they are damaged.
TD_MUST_USE td_status td_stage_weights_check(const struct td_rank *r);
// Once, after fit and before the first other stage.
TD_MUST_USE td_status td_stage_weights_load(struct td_train_loop *l);

#endif
