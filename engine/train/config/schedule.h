#ifndef TRAIND_ENGINE_TRAIN_CONFIG_SCHEDULE_H
#define TRAIND_ENGINE_TRAIN_CONFIG_SCHEDULE_H

// Learning-rate schedules: pure functions of the optimizer step, so nothing has to be saved, and a
// resumed run has the same rates. `step` counts completed optimizer steps: the first one has 0.
//
// warmup_cosine is traind's own: linear from 0 to base_lr over warmup_steps, then a half cosine
// down to min_lr at total_steps. Step 0 gets base_lr / warmup_steps, so that it moves at all. The
// others are, rate for rate, what torch.optim.lr_scheduler and transformers give under the same
// names and numbers (tests/golden/schedules.json). They are computed in closed form where those
// multiply step by step. Torch has linear, cosine, step, multistep, exponential, polynomial and
// one_cycle. From transformers are inverse_sqrt and warmup_stable_decay, whose warm-up starts at a
// rate of 0. Past its end a schedule stays where it is, but for cosine, which rises again, as
// torch's does. one_cycle's peak is base_lr, and it leaves the momentum alone.
//
// reduce_on_plateau alone depends on more than the step: here it is constant, and the loop scales
// it by what plateau.h remembers.

#include "engine/train/config/config.h"

double td_schedule_lr(const struct td_schedule_config *s, double base_lr, int64_t step);

const char *td_schedule_name(enum td_schedule_kind kind);
// False: no schedule has this name.
bool td_schedule_find(const char *name, enum td_schedule_kind *out_kind);
// The knob that becomes total_steps and may be `auto`; NULL: the schedule has no end.
const char *td_schedule_end_knob(enum td_schedule_kind kind);

#endif
