#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_SUMS_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_SUMS_H

// Sums: what a program's sums over ranks call (traind/sum.h). Buckets begin in one call and end in
// the other; a rank_sum is over when it has begun. A value that is on a device goes through host
// memory, as all groups sum values there. Thread: that of the accelerator's queue, but bind, which
// is the training thread's.

#include "engine/train/rank/rank.h"

// Fills in the callbacks, and what is said of each kind. The buckets are listed.
void td_rank_bind_sums(struct td_rank *r, struct td_bindings *b);

#endif
