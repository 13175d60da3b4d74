#ifndef TRAIND_ENGINE_TRAIN_LOOP_HOST_STEP_H
#define TRAIND_ENGINE_TRAIN_LOOP_HOST_STEP_H

// Host step: a batch of fit that a module plays itself (training_step of traind/module.h), with the
// calls of traind/steps.h. They are those of manual.h, with steps by name. All that it queued is
// done when it returns. Thread: the training thread.

#include "engine/train/loop/manual.h"

struct td_steps {
    uint32_t magic;
    struct td_manual manual;
    int32_t divisor;
    int64_t batch_idx;
    int64_t boundary_step; // optimizer steps completed at the last boundary
};

void td_host_step_init(struct td_steps *s, struct td_train_loop *l);
// Plays micro-batch `batch` of the epoch, and moves l->at after it. *out_boundary: no gradients
// wait for an update. l->window_steps are the updates since the last boundary.
TD_MUST_USE td_status td_host_step(struct td_steps *s, int64_t batch, bool *out_boundary);

#endif
