#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_SUMS_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_SUMS_H

// Sums: what a program's sums over ranks call (traind/sum.h). Buckets and pieces begin in one call
// and end in the other; a rank_sum is over when it has begun. A value that is on a device goes
// through host memory, as all groups sum values there. Thread: the training thread; what it binds
// is called on that of the accelerator's queue.

#include "engine/train/rank/rank.h"

// Once programs are recorded: whether accelerator, collective and strategy have what they need.
// Errors: class bad_spec, naming both; class user_code.
TD_MUST_USE td_status td_rank_check_sums(struct td_rank *r);
// When memory is placed: the buckets, the places of pieces, and the thread that reduces both.
TD_MUST_USE td_status td_rank_lay_sums(struct td_rank *r);
// Fills in the callbacks, and what is said of each kind. The buckets are listed.
void td_rank_bind_sums(struct td_rank *r, struct td_bindings *b);

#endif
