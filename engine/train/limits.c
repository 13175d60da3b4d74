// The arithmetic of limits.h. No state.

#include "engine/train/limits.h"

int64_t td_amount_of(struct td_amount amount, int64_t total) {
    if (!amount.is_fraction) return TD_MIN(amount.batches, total);
    return (int64_t)(amount.fraction * (double)total);
}

int64_t td_limits_batches(int64_t n_samples, int64_t batch_size, bool drop_last,
                          struct td_amount limit) {
    int64_t all = n_samples / batch_size;
    if (!drop_last && n_samples % batch_size) all++;
    return td_amount_of(limit, all);
}

int64_t td_limits_window(const struct td_limits *l, int64_t n_batches, int64_t batch) {
    int64_t first = batch - batch % l->accumulate;
    return TD_MIN(l->accumulate, n_batches - first);
}

bool td_limits_steps_after(const struct td_limits *l, int64_t n_batches, int64_t batch) {
    return (batch + 1) % l->accumulate == 0 || batch + 1 == n_batches;
}

int64_t td_limits_steps_per_epoch(const struct td_limits *l, int64_t n_batches) {
    return (n_batches + l->accumulate - 1) / l->accumulate;
}

bool td_limits_validates_after(const struct td_limits *l, int64_t n_batches, int64_t epoch,
                               int64_t batch) {
    if ((epoch + 1) % l->check_val_every_n_epoch != 0) return false;
    struct td_amount a = l->val_check_interval;
    int64_t every = a.is_fraction ? TD_MAX(td_amount_of(a, n_batches), 1) : a.batches;
    return every > 0 && (batch + 1) % every == 0;
}

bool td_limits_ever_validates(const struct td_limits *l, int64_t n_batches) {
    int64_t epoch = l->check_val_every_n_epoch - 1;
    if (l->max_epochs >= 0 && epoch >= l->max_epochs) return false;
    for (int64_t b = 0; b < n_batches; b++) {
        if (!td_limits_validates_after(l, n_batches, epoch, b)) continue;
        int64_t before = epoch * td_limits_steps_per_epoch(l, n_batches) + b / l->accumulate;
        return l->max_steps < 0 || before < l->max_steps;
    }
    return false;
}

int64_t td_limits_total_steps(const struct td_limits *l, int64_t n_batches) {
    int64_t by_epochs =
        l->max_epochs >= 0 ? l->max_epochs * td_limits_steps_per_epoch(l, n_batches) : -1;
    if (l->max_steps < 0) return by_epochs < 0 ? 0 : by_epochs;
    return by_epochs < 0 ? l->max_steps : TD_MIN(by_epochs, (int64_t)l->max_steps);
}

bool td_limits_reached(const struct td_limits *l, int64_t epochs_done, int64_t steps_done) {
    return (l->max_steps >= 0 && steps_done >= l->max_steps) ||
           (l->max_epochs >= 0 && epochs_done >= l->max_epochs);
}

bool td_limits_may_stop_early(const struct td_limits *l, int64_t epochs_done, int64_t steps_done) {
    return epochs_done >= l->min_epochs && steps_done >= l->min_steps;
}
