#ifndef TRAIND_ENGINE_TRAIN_PLAN_MONITOR_H
#define TRAIND_ENGINE_TRAIN_PLAN_MONITOR_H

// Monitor: what checkpoints that keep the best, a schedule that follows a metric, and early
// stopping need from the job. Known once the programs are recorded, so a job whose monitor names a
// metric that it will never give is refused while it is planned, before any memory is taken. So is
// a module whose metrics could not be distinguished. Thread: the training thread.

#include "engine/train/rank/rank.h"

// Of a job that fits. INVALID_ARGUMENT, class bad_spec: there is no such metric, or fit would never
// validate; the message lists the metrics that there are.
TD_MUST_USE td_status td_monitor_check(const struct td_rank *r);

#endif
