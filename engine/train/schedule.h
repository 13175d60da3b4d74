#ifndef TRAIND_ENGINE_TRAIN_SCHEDULE_H
#define TRAIND_ENGINE_TRAIN_SCHEDULE_H

// Learning-rate schedules: pure functions of the optimizer step, so nothing has to be saved, and a
// resumed run has the same rates. `step` counts completed optimizer steps: the first one has 0.

#include "engine/train/config.h"

// constant: base_lr. warmup_cosine: linear from 0 to base_lr over warmup_steps (step 0 gets
// base_lr / warmup_steps, so that it moves at all), then a half cosine down to min_lr at
// total_steps, and min_lr from there on.
double td_schedule_lr(const struct td_schedule_config *s, double base_lr, int64_t step);
const char *td_schedule_name(enum td_schedule_kind kind);

#endif
