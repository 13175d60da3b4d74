#ifndef TRAIND_ENGINE_TRAIN_PLAN_AMOUNTS_H
#define TRAIND_ENGINE_TRAIN_PLAN_AMOUNTS_H

// Amounts of batches against the data that there is. A fraction may come to no batch at all, and an
// interval may be past the end of an epoch. The job would then leave out what it was asked for. So
// it is refused when it is planned, with the numbers, as Lightning refuses it. A limit of 0 is a
// wish, except of training, which has no batch then. All ranks find the same. Thread: training.

#include "engine/train/rank/rank.h"

// Errors: INVALID_ARGUMENT, class bad_spec.
TD_MUST_USE td_status td_amounts_check(const struct td_rank *r);

#endif
