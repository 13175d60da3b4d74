#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_BUCKET_LIST_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_BUCKET_LIST_H

// Bucket list: which buckets a rank has. A bucket is what the state table says of it: a range of
// the GRAD region, with the tensors in it and, after the last one, the control flags. Plans list
// them before there is memory. Pure; any thread.

#include "engine/train/rank/rank.h"

// The buckets of a state that is laid out: (td_state_n_buckets) of them. They have the memory that
// the rank has by now; their tensors are in the arena.
TD_MUST_USE td_status td_rank_list_buckets(const struct td_rank *r, struct td_arena *arena,
                                           struct td_bucket *out_buckets);

#endif
