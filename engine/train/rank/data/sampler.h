#ifndef TRAIND_ENGINE_TRAIN_RANK_DATA_SAMPLER_H
#define TRAIND_ENGINE_TRAIN_RANK_DATA_SAMPLER_H

// Sampler: which sample comes when, for each rank.
//
// Everything is a pure function of (seed, epoch, n, world, rank) and one number that a checkpoint
// keeps. This is the *global sample offset*: how many positions of the epoch all ranks together
// have used. Index for index it is torch's DistributedSampler: one permutation of n by
// torch.randperm seeded with seed + epoch (equal on all ranks), then
//   pad       (default) repeated from its own start up to a multiple of world;
//   drop_last cut down to a multiple of world;
//   unpadded  neither: for evaluation, where each sample counts once; ranks differ by at most one;
// and rank r takes positions r, r + world, r + 2 world and so on. From an offset that is no
// multiple of world (a resume with another world size) the same holds for the rest of the epoch.
//
// Batches: a rank's batch takes the next `batch` of its positions. So a full step moves the offset
// by batch * world and the last step by what is left: td_sampler_next says. Without shuffle nothing
// is stored; with it 8 bytes a sample, one permutation at a time, made again by set_epoch only when
// the epoch changes. With `keyed` too nothing is stored (keyed_order.h); the order is another one
// than torch's. A sampler that `plans` knows all but the samples, and stores none. Bound:
// TD_SAMPLER_MAX_SAMPLES. One thread. Rejected: an iterator with hidden state (it cannot be
// resumed, nor asked about another rank).

#include "lib/base/base.h"

#define TD_SAMPLER_MAX_SAMPLES (INT64_C(1) << 31)

enum td_sampler_ends { TD_SAMPLER_PAD, TD_SAMPLER_DROP_LAST, TD_SAMPLER_UNPADDED };

struct td_sampler_config {
    int64_t n_samples;
    int32_t world_size;
    uint64_t seed;
    bool shuffle;
    enum td_sampler_ends ends;
    bool keyed, plans;
};

struct td_sampler;
// INVALID_ARGUMENT naming the field that is out of range. Starts at epoch 0.
TD_MUST_USE td_status td_sampler_create(const struct td_sampler_config *config,
                                        struct td_sampler **out_sampler);
void td_sampler_destroy(struct td_sampler *s);
TD_DEFINE_AUTO(td_sampler, td_sampler_destroy);
TD_MUST_USE td_status td_sampler_set_epoch(struct td_sampler *s, int64_t epoch);

// Bytes of the order of an epoch, as a sampler of that config keeps it.
size_t td_sampler_order_bytes(const struct td_sampler_config *config);

// Positions of the epoch when it is played from `offset` on: n padded, cut or left alone.
int64_t td_sampler_total(const struct td_sampler *s, int64_t offset);
// Positions that rank r has left from `offset` on.
int64_t td_sampler_left(const struct td_sampler *s, int64_t offset, int32_t rank);
// Batches left from `offset` on (the partial one counts), the same for all ranks: with UNPADDED the
// last one may be empty on some of them.
int64_t td_sampler_batches(const struct td_sampler *s, int64_t offset, int64_t batch);
// Sample indices of rank r's batch at `offset`, into out[batch]; returns how many (0: no more).
int64_t td_sampler_indices(struct td_sampler *s, int64_t offset, int32_t rank, int64_t batch,
                           int64_t *out);
// Offset after the step that starts at `offset`.
int64_t td_sampler_next(const struct td_sampler *s, int64_t offset, int64_t batch);

#endif
