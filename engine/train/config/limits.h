#ifndef TRAIND_ENGINE_TRAIN_CONFIG_LIMITS_H
#define TRAIND_ENGINE_TRAIN_CONFIG_LIMITS_H

// How often things happen: batches of an epoch, windows of batches, validations, the last step.
// Pure arithmetic over the limits, so that the loop reads like its description and a table can test
// every rule. A *batch* is a micro-batch of one rank. A *window* is the batches of one optimizer
// step. Windows restart with each epoch, and the last one of an epoch may be short. A run that
// resumes inside an epoch begins with a window. Where it left, one had ended, though with another
// world, batch or accumulation the place may not be a multiple of the window that it has now.

#include "engine/train/config/config.h"

// floor(fraction * total), or min(batches, total).
int64_t td_amount_of(struct td_amount amount, int64_t total);

// Batches of an epoch of n_samples per rank. With drop_last the partial batch is left out.
int64_t td_limits_batches(int64_t n_samples, int64_t batch_size, bool drop_last,
                          struct td_amount limit);

// An epoch as one run plays it.
struct td_epoch {
    int64_t index;
    int64_t first;     // batch that it begins with: 0, unless the run resumes inside
    int64_t n_batches; // its end
};
// Batches of a whole window in an epoch.
int64_t td_limits_accumulate(const struct td_limits *l, int64_t epoch);
// Has any window more than one batch?
bool td_limits_ever_accumulates(const struct td_limits *l);
// Is `batch` the first of its window, whose gradients overwrite?
bool td_limits_begins(const struct td_limits *l, const struct td_epoch *e, int64_t batch);
// Real length of the window that holds `batch` (the loss is divided by it).
int64_t td_limits_window(const struct td_limits *l, const struct td_epoch *e, int64_t batch);
// Is `batch` the last of its window, so that an optimizer step follows?
bool td_limits_steps_after(const struct td_limits *l, const struct td_epoch *e, int64_t batch);
// Of epoch `epoch`, played whole.
int64_t td_limits_steps_per_epoch(const struct td_limits *l, int64_t epoch, int64_t n_batches);
// Is a validation due after `batch`? An interval that does not divide the epoch gives none at its
// end (as in Lightning).
bool td_limits_validates_after(const struct td_limits *l, const struct td_epoch *e, int64_t batch);
// Does a validation fall into the run at all?
bool td_limits_ever_validates(const struct td_limits *l, int64_t n_batches);
// Optimizer steps of the whole run: those that are done, and those of the rest of epoch e and of
// the epochs after it, which have n_batches each. 0: no limit known in advance.
int64_t td_limits_total_steps(const struct td_limits *l, int64_t done, const struct td_epoch *e,
                              int64_t n_batches);
// Does fit end here? Asked at optimizer-step boundaries and between epochs.
bool td_limits_reached(const struct td_limits *l, int64_t epochs_done, int64_t steps_done);
// May an early end (timer, early stop) be honoured already?
bool td_limits_may_stop_early(const struct td_limits *l, int64_t epochs_done, int64_t steps_done);

#endif
