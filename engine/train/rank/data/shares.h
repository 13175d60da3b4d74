#ifndef TRAIND_ENGINE_TRAIN_RANK_DATA_SHARES_H
#define TRAIND_ENGINE_TRAIN_RANK_DATA_SHARES_H

// Shares: which samples of a split each rank has.
//
// A strategy may divide a split in another way than among all ranks (process_dataloader): then
// several ranks may have one share. Whatever follows from a sample's place asks here: the sampler,
// keys of random numbers, the rows of predictions, the samples that an evaluation counts, and
// positions of a checkpoint. Ranks know each other's shares once they are compared (state.h).
// Thread: the training thread.

#include "engine/train/rank/rank.h"

// Asks for this rank's share of a split, and checks it. Errors, class user_code: there is none.
TD_MUST_USE td_status td_rank_take_share(struct td_rank *r, enum td_split split);
// Those of all ranks, (world, TD_SPLIT_COUNT), in the rank's arena. Errors, class user_code: ranks
// differ in the number of shares.
TD_MUST_USE td_status td_rank_keep_shares(struct td_rank *r,
                                          const struct td_strategy_shard *take_all);

// Of rank `rank`.
struct td_strategy_shard td_rank_share_of(const struct td_rank *r, enum td_split split,
                                          int32_t rank);
// Is this rank the first that has its share? Others of the same share would count it twice.
// Always, where the job does not divide its samples: whoever gathers them does.
bool td_rank_counts(const struct td_rank *r, enum td_split split);
// The least share that no rank has; -1: each sample of the split is some rank's.
int32_t td_rank_missing_share(const struct td_rank *r, enum td_split split);
// Ranks that train on other samples than each other.
int32_t td_rank_n_trained_shares(const struct td_rank *r);
// The step's random words, for the batch of the training split at `offset`.
void td_rank_set_random(struct td_rank *r, int64_t step, int64_t offset);

#endif
