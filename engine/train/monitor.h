#ifndef TRAIND_ENGINE_TRAIN_MONITOR_H
#define TRAIND_ENGINE_TRAIN_MONITOR_H

// Monitor: what a schedule that listens to a metric needs from the job. Known once the programs are
// recorded, so a job that would never lower its rate is refused while it is planned, before any
// memory is taken. Thread: the training thread.

#include "engine/train/rank.h"

// INVALID_ARGUMENT, class bad_spec: fit would never validate, or its validation has no such metric.
TD_MUST_USE td_status td_monitor_check(const struct td_rank *r);

#endif
