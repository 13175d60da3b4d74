#ifndef TRAIND_ENGINE_TRAIN_MONITOR_H
#define TRAIND_ENGINE_TRAIN_MONITOR_H

// Monitor: what checkpoints that keep the best, and a schedule that listens to a metric, need from
// the job. Known once the programs are recorded, so a job that asks for a metric that its model
// does not give, or that would never lower its rate, is refused while it is planned, before any
// memory is taken. Thread: the training thread.

#include "engine/train/rank.h"

// INVALID_ARGUMENT, class bad_spec: there is no such metric, or fit would never validate.
TD_MUST_USE td_status td_monitor_check(const struct td_rank *r);

#endif
