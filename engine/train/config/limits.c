// The arithmetic of limits.h. No state.

#include "engine/train/config/limits.h"

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

int64_t td_limits_accumulate(const struct td_limits *l, int64_t epoch) {
    int64_t batches = l->accumulate[0].batches;
    for (size_t i = 1; i < l->n_accumulate && l->accumulate[i].epoch <= epoch; i++) {
        batches = l->accumulate[i].batches;
    }
    return batches;
}

bool td_limits_ever_accumulates(const struct td_limits *l) {
    bool any = false;
    for (size_t i = 0; i < l->n_accumulate; i++) {
        any |= l->accumulate[i].batches > 1;
    }
    return any;
}

bool td_limits_begins(const struct td_limits *l, const struct td_epoch *e, int64_t batch) {
    return (batch - e->first) % td_limits_accumulate(l, e->index) == 0;
}

int64_t td_limits_window(const struct td_limits *l, const struct td_epoch *e, int64_t batch) {
    int64_t whole = td_limits_accumulate(l, e->index);
    int64_t begin = batch - (batch - e->first) % whole;
    return TD_MIN(whole, e->n_batches - begin);
}

bool td_limits_steps_after(const struct td_limits *l, const struct td_epoch *e, int64_t batch) {
    return batch + 1 == e->n_batches || td_limits_begins(l, e, batch + 1);
}

static int64_t steps_of(int64_t n_batches, int64_t window) {
    return (n_batches + window - 1) / window;
}

int64_t td_limits_steps_per_epoch(const struct td_limits *l, int64_t epoch, int64_t n_batches) {
    return steps_of(n_batches, td_limits_accumulate(l, epoch));
}

// Of all epochs before that one.
static int64_t steps_before(const struct td_limits *l, int64_t epoch, int64_t n_batches) {
    int64_t steps = 0, from = 0, window = l->accumulate[0].batches;
    for (size_t i = 1; i < l->n_accumulate && l->accumulate[i].epoch < epoch; i++) {
        steps += (l->accumulate[i].epoch - from) * steps_of(n_batches, window);
        from = l->accumulate[i].epoch;
        window = l->accumulate[i].batches;
    }
    return steps + (epoch - from) * steps_of(n_batches, window);
}

// Batches from one validation to the next; 0: there is none.
static int64_t validates_every(const struct td_limits *l, const struct td_epoch *e) {
    if ((e->index + 1) % l->check_val_every_n_epoch != 0) return 0;
    const struct td_amount a = l->val_check_interval;
    return a.is_fraction ? TD_MAX(td_amount_of(a, e->n_batches), 1) : a.batches;
}

bool td_limits_validates_after(const struct td_limits *l, const struct td_epoch *e, int64_t batch) {
    const int64_t every = validates_every(l, e);
    return every > 0 && (batch + 1) % every == 0;
}

bool td_limits_ever_validates(const struct td_limits *l, int64_t n_batches) {
    struct td_epoch e = {.index = l->check_val_every_n_epoch - 1, .n_batches = n_batches};
    if (l->max_epochs >= 0 && e.index >= l->max_epochs) return false;
    const int64_t every = validates_every(l, &e), first = every - 1; // the first one's batch
    if (every <= 0 || first >= n_batches) return false;
    const int64_t before =
        steps_before(l, e.index, n_batches) + first / td_limits_accumulate(l, e.index);
    return l->max_steps < 0 || before < l->max_steps;
}

// The rest of epoch e, and all of those after it.
static int64_t steps_left(const struct td_limits *l, const struct td_epoch *e, int64_t n_batches) {
    if (e->index >= l->max_epochs) return 0;
    const int64_t rest = TD_MAX(e->n_batches - e->first, 0);
    return steps_of(rest, td_limits_accumulate(l, e->index)) +
           steps_before(l, l->max_epochs, n_batches) - steps_before(l, e->index + 1, n_batches);
}

int64_t td_limits_total_steps(const struct td_limits *l, int64_t done, const struct td_epoch *e,
                              int64_t n_batches) {
    if (l->max_epochs < 0) return TD_MAX(l->max_steps, 0);
    const int64_t by_epochs = done + steps_left(l, e, n_batches);
    return l->max_steps < 0 ? by_epochs : TD_MIN(by_epochs, (int64_t)l->max_steps);
}

bool td_limits_reached(const struct td_limits *l, int64_t epochs_done, int64_t steps_done) {
    return (l->max_steps >= 0 && steps_done >= l->max_steps) ||
           (l->max_epochs >= 0 && epochs_done >= l->max_epochs);
}

bool td_limits_may_stop_early(const struct td_limits *l, int64_t epochs_done, int64_t steps_done) {
    return epochs_done >= l->min_epochs && steps_done >= l->min_steps;
}
