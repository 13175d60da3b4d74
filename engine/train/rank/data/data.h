#ifndef TRAIND_ENGINE_TRAIN_RANK_DATA_DATA_H
#define TRAIND_ENGINE_TRAIN_RANK_DATA_DATA_H

// Data: batches for a rank, from a dataset and one sampler for each loader of a split. The splits
// val and test may have several loaders, which divide the samples of the split; others have one.
//
// It holds no position: a batch is asked for by the global sample offset where its step starts, so
// a resumed run asks for what comes next and gets it. Samples are gathered on the training thread
// into one of two staging buffers per field: a run may still read the other. They are page-locked
// where the accelerator has such memory. Rejected: gathering ahead in the background. On the cores
// that train it takes time from the step that it would hide (0.03 of 2.2 ms for the mlp). An
// accelerator that runs ahead is busy with the run before while a batch is gathered.
// Thread: the training thread.
//
// The room, in reading order:
//
//   shares.h       which samples each rank has
//   keyed_order.h  the order of very large sets
//   sampler.h      of a split
//   holdout.h      samples that are kept to validate on

#include "engine/train/config/config.h"
#include "engine/train/rank/data/holdout.h"
#include "engine/train/rank/data/sampler.h"
#include "traind/accelerator.h"
#include "traind/dataset.h"
#include "traind/strategy.h"

enum { TD_DATA_FIELDS = 8 };

struct td_data;
// The accelerator is open until the data is closed.
TD_MUST_USE td_status td_data_open(const struct td_accelerator_ops *accel_ops,
                                   struct td_accelerator *accel, const struct td_dataset_ops *ops,
                                   const struct td_dataset_config *config, int64_t batch_size,
                                   struct td_data **out_data);
void td_data_close(struct td_data *d); // accepts NULL
TD_DEFINE_AUTO(td_data, td_data_close);

const struct td_field *td_data_fields(const struct td_data *d, size_t *out_n);
// The same as a module records them: f32 for f64 that the dataset was asked for.
const struct td_field *td_data_recorded(const struct td_data *d, size_t *out_n);
size_t td_data_batch_bytes(const struct td_data *d); // of the buffers of batches, and of zeros
// Of the orders of samples, as this rank will have them.
size_t td_data_order_bytes(const struct td_data *d);
// Keeps a part of the training samples to validate on, in place of the dataset's own (holdout.h).
// Where the dataset has none of its own to test on or to predict, those are this part, too. Once,
// before anything is divided. Class bad_spec: no such part.
TD_MUST_USE td_status td_data_hold_out(struct td_data *d, const struct td_holdout_config *config);
int64_t td_data_length(const struct td_data *d, enum td_split split); // 0: no such split
// How a split is divided and ordered; before its first batch. n_samples is that of the split. Done
// again it takes the place of what was, a wrapper included. Nothing to do for an absent split.
// Errors: class user_code for loaders that do not make the split.
TD_MUST_USE td_status td_data_divide(struct td_data *d, enum td_split split, int32_t rank,
                                     const struct td_sampler_config *sampler);
int td_data_n_loaders(const struct td_data *d, enum td_split split); // 0: no such split
// Of one of its loaders; and of the first, which is the only one where the split is not evaluated.
// NULL: no such split.
struct td_sampler *td_data_loader(const struct td_data *d, enum td_split split, int loader);
struct td_sampler *td_data_sampler(const struct td_data *d, enum td_split split);
// Samples that this rank has left of a loader from `offset` on.
int64_t td_data_left(const struct td_data *d, enum td_split split, int loader, int64_t offset);

// The loader of a split that is there, for a strategy to put its own around (traind/strategy.h):
// lives with the data. And that of the strategy, by which td_data_batch gets its batches then.
const struct td_loader *td_data_inner_loader(const struct td_data *d, enum td_split split);
void td_data_wrap(struct td_data *d, enum td_split split, const struct td_loader *wrapper);

// The rank's batch of the step that starts at `offset` of a loader. inputs[field]: its samples, in
// host memory, with at least their bytes; n: how many (0 at the end, or when this rank has none
// while others do).
TD_MUST_USE td_status td_data_batch(struct td_data *d, enum td_split split, int loader,
                                    int64_t offset, struct td_buffer out_inputs[TD_DATA_FIELDS],
                                    int64_t *out_n);
// Where a field of such a batch is; NULL where there are no samples.
const void *td_data_host(struct td_buffer field);
// Buffers of n samples that the caller has in host memory, fields[field] each.
void td_data_buffers(const struct td_data *d, const void *const *fields, int64_t n,
                     struct td_buffer out_inputs[TD_DATA_FIELDS]);
// Samples of zeros, at most a batch, of all fields in the same memory. The first call takes that,
// as large as the largest field needs; it lives as long as the data, and is only read.
TD_MUST_USE td_status td_data_zeros(struct td_data *d, int64_t n,
                                    struct td_buffer out_inputs[TD_DATA_FIELDS]);

#endif
