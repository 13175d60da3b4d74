#ifndef TRAIND_ENGINE_TRAIN_LOOP_FIT_H
#define TRAIND_ENGINE_TRAIN_LOOP_FIT_H

// Fit: the training loop, readable from top to bottom. Thread: the training thread.

#include "engine/train/loop/loop.h"

TD_MUST_USE td_status td_train_loop_fit(struct td_train_loop *l, enum td_train_loop_end *out_end);

#endif
