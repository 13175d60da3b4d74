#ifndef TRAIND_ENGINE_TRAIN_RANK_GROUP_JOIN_H
#define TRAIND_ENGINE_TRAIN_RANK_GROUP_JOIN_H

// Join: the groups of a rank. r->group is that of all calls. r->sums is the second, of ranks on
// several nodes whose buckets are reduced beside programs that sum over ranks (comm_thread.h).
//
// The mapping of the second is the end of the mapping that the ranks of a node share. It is there
// whether they join or not: their programs, which decide that, are known after the first is joined.
// It is small, as it holds no gradients.
//
// All ranks have compared their programs in the first when they join the second. So nobody is late
// there with good reason. They meet in it at once, and who does not come is named after the
// deadline of data. In the middle of a first step it would be that of saving.
// Errors: those of the collective's join. Thread: the training thread.

#include "engine/train/rank/rank.h"

TD_MUST_USE td_status td_rank_join_group(struct td_rank *r);
// Of the mapping of the second, in whole pages; 0: it needs none.
size_t td_rank_second_group_bytes(const struct td_rank *r);
// Once the programs are there: whether they call for it. Buckets have to be reduced beside them.
bool td_rank_sums_apart(const struct td_rank *r);
TD_MUST_USE td_status td_rank_join_second_group(struct td_rank *r);

#endif
