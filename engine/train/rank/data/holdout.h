#ifndef TRAIND_ENGINE_TRAIN_RANK_DATA_HOLDOUT_H
#define TRAIND_ENGINE_TRAIN_RANK_DATA_HOLDOUT_H

// Holdout: samples of the training split that are kept to validate on (data.val_split).
//
// The split is torch's random_split with a generator of the job's seed, index for index: of a
// permutation of all samples the first train, the others validate. So no sample does both. It knows
// neither ranks nor batches, and is the same in each attempt and for each number of ranks. Bound: 8
// bytes a sample, as many as the sampler's own permutation; with `keyed`, as of the sampler, none.
// Thread: the training thread.

#include "engine/train/rank/data/keyed_order.h"
#include "lib/job/limits.h"

struct td_holdout_config {
    struct td_amount part;
    uint64_t seed;
    bool keyed, plans; // plans: sizes alone are asked for
};

struct td_holdout {
    int64_t n_train, n_val; // n_val 0: nothing is held out
    int64_t *order;         // (n_train + n_val); NULL: it is keyed, or for a plan
    struct td_keyed_order keyed;
};

// Of n samples. Class bad_spec: the part comes to no sample, or leaves none to train on.
TD_MUST_USE td_status td_holdout_init(struct td_holdout *h, int64_t n,
                                      const struct td_holdout_config *config);
void td_holdout_finish(struct td_holdout *h);
// Samples of the part that trains, or of the other, as the dataset numbers them; in place.
void td_holdout_map(const struct td_holdout *h, bool held_out, int64_t *index, int64_t n);

#endif
