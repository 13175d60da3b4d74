#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_BUCKETS_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_BUCKETS_H

// Buckets: gradients that ranks average, wherever accelerators keep them (traind/bucket.h). Thread:
// the training thread. But begin and end are called on the thread that runs the accelerator's
// queue, while the training thread makes no call of the group. Of several nodes a bucket is reduced
// on a third (comm_thread.h), until end returns.

#include "engine/train/rank/rank.h"

// FAILED_PRECONDITION (class user_code) when the group's facts name no memory at all.
TD_MUST_USE td_status td_rank_check_group(const struct td_rank *r);

// Lists the rank's buckets, when its memory is placed. They are in the GRAD region where the group
// takes that memory. Else they are staged in host memory: in the group's mapping if that has room.
// FAILED_PRECONDITION when the group takes a device's memory alone, and gradients are the host's.
TD_MUST_USE td_status td_rank_lay_buckets(struct td_rank *r);

// Does a program sum gradients by bucket?
bool td_rank_sums_buckets(const struct td_rank *r);
// Does the group take gradients where the accelerator's device has them?
bool td_rank_group_takes_device(const struct td_rank *r);
// Are they reduced by a thread beside the program?
bool td_rank_reduces_beside(const struct td_rank *r);

// A bucket's sum. Between the two calls the memory of the bucket is the group's. Errors of a bucket
// come out of begin of a later one, or of its own end.
TD_MUST_USE td_status td_rank_begin_bucket(struct td_rank *r, const struct td_sum *sum);
TD_MUST_USE td_status td_rank_end_bucket(struct td_rank *r, const struct td_sum *sum);
// On the communication thread: it is done when this returns.
TD_MUST_USE td_status td_rank_make_bucket(struct td_rank *r, const struct td_sum *sum);

#endif
