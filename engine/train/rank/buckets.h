#ifndef TRAIND_ENGINE_TRAIN_RANK_BUCKETS_H
#define TRAIND_ENGINE_TRAIN_RANK_BUCKETS_H

// Buckets: gradients that ranks average, wherever accelerators keep them (traind/bucket.h). Thread:
// the training thread. But td_rank_reduce_bucket is called on the thread that runs the
// accelerator's queue, while the training thread waits for it.

#include "engine/train/rank/rank.h"

// Lists the rank's buckets, when its memory is placed. They are in the GRAD region where that is
// host memory. Else they are staged: in the group's mapping if that has room.
TD_MUST_USE td_status td_rank_place_buckets(struct td_rank *r);

// Reduces a bucket: the binding of all_reduce nodes (traind/accelerator.h); arg is the rank.
TD_MUST_USE td_status td_rank_reduce_bucket(void *arg, uint32_t index);

#endif
