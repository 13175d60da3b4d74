#ifndef TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_RECORD_H
#define TRAIND_ENGINE_TRAIN_RANK_PROGRAMS_RECORD_H

// Record: all programs of the job, from what its module records, at one level of recompute. Thread:
// the training thread.

#include "engine/train/rank/rank.h"

// Into r->programs. A second call, with another level, takes the place of the first: names and
// buckets of the state are there already and stay.
TD_MUST_USE td_status td_rank_record(struct td_rank *r, enum td_recompute level);

#endif
