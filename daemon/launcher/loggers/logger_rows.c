// See the header. Rows are few: a list, searched from its end, where points of ranks in step are.

#include "daemon/launcher/loggers/logger_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/base.h"
#include "lib/base/floats/exact_sum.h"

#define LATE_NS (2 * TD_NS_PER_S)

struct cell {
    char name[TD_METRIC_NAME_BYTES];
    bool merges, device;
    int32_t n_has;
    double last;
    struct td_exact_mean mean;
    bool *has; // (n_ranks)
};
struct td_log_open_row {
    struct td_log_open_row *next, *before;
    int64_t step, epoch, real_ns;
    bool changed, late;
    size_t n, n_devices; // of them
    struct cell cell[TD_LOG_VALUES];
};

td_status td_log_rows_init(struct td_log_rows *t, int32_t n_ranks) {
    *t = (struct td_log_rows){.n_ranks = n_ranks};
    t->newest = td_calloc((size_t)n_ranks, sizeof *t->newest);
    if (!t->newest) return td_fail_oom();
    for (int32_t i = 0; i < n_ranks; i++) {
        t->newest[i] = INT64_MIN;
    }
    return TD_OK;
}

static void drop(struct td_log_rows *t, struct td_log_open_row *row) {
    *(row->before ? &row->before->next : &t->first) = row->next;
    *(row->next ? &row->next->before : &t->last) = row->before;
    t->n--;
    for (size_t i = 0; i < row->n; i++) {
        td_exact_mean_finish(&row->cell[i].mean);
        free(row->cell[i].has);
    }
    free(row);
}

void td_log_rows_finish(struct td_log_rows *t) {
    while (t->first) {
        drop(t, t->first);
    }
    free(t->newest);
    t->newest = NULL;
}

// Every rank has gone on to a later step.
static bool all_passed(const struct td_log_rows *t, int64_t step, int flags) {
    for (int32_t i = 0; i < t->n_ranks; i++) {
        if (t->newest[i] == INT64_MIN && flags & TD_LOG_TAKE_PRESENT) continue;
        if (t->newest[i] <= step) return false;
    }
    return true;
}

static struct td_log_open_row *row_of(struct td_log_rows *t, int64_t step) {
    for (struct td_log_open_row *row = t->last; row; row = row->before) {
        if (row->step == step) return row;
    }
    struct td_log_open_row *row = td_calloc(1, sizeof *row);
    if (!row) return NULL;
    row->step = step;
    row->late = all_passed(t, step, 0);
    row->before = t->last;
    *(t->last ? &t->last->next : &t->first) = row;
    t->last = row;
    t->n++;
    return row;
}

static bool is_full(const struct td_log_open_row *row, bool device) {
    return device ? row->n_devices == TD_LOG_DEVICE_CELLS : row->n - row->n_devices == TD_LOG_CELLS;
}

// NULL: the row is full, or there is no memory.
static struct cell *cell_of(struct td_log_rows *t, struct td_log_open_row *row, const char *name,
                            bool device) {
    for (size_t i = 0; i < row->n; i++) {
        if (strcmp(row->cell[i].name, name) == 0) return &row->cell[i];
    }
    if (is_full(row, device)) return NULL;
    struct cell *c = &row->cell[row->n];
    *c = (struct cell){.device = device, .has = td_calloc((size_t)t->n_ranks, sizeof *c->has)};
    if (!c->has) return NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    row->n++;
    row->n_devices += device;
    return c;
}

td_status td_log_rows_add(struct td_log_rows *t, int32_t rank_idx,
                          const struct td_metric_point *p) {
    TD_CHECK(rank_idx >= 0 && rank_idx < t->n_ranks);
    struct td_log_open_row *row = row_of(t, p->step);
    if (!row) return td_fail_oom();
    const bool device = (p->flags & TD_METRIC_DEVICE) != 0;
    if (!device) {
        t->newest[rank_idx] = TD_MAX(t->newest[rank_idx], p->step);
        t->latest_ns = TD_MAX(t->latest_ns, p->real_ns);
    }
    struct cell *c = cell_of(t, row, p->name, device);
    if (!c && is_full(row, device)) {
        t->dropped += !device;
        return TD_OK;
    }
    if (!c) return td_fail_oom();
    if (!c->has[rank_idx]) c->n_has++;
    c->has[rank_idx] = true;
    c->merges = (p->flags & TD_METRIC_SUM_COUNT) != 0;
    c->last = p->count > 0 ? p->sum / p->count : (double)NAN;
    if (!device || row->n == row->n_devices) { // the row is what ranks say of the step
        row->epoch = p->epoch;
        row->real_ns = TD_MAX(row->real_ns, p->real_ns);
    }
    row->changed = true;
    if (!c->merges) return TD_OK;
    return td_exact_mean_add(&c->mean, p->sum, p->count) ? TD_OK : td_fail_oom();
}

static void show(const struct td_log_rows *t, const struct td_log_open_row *row, bool closed,
                 struct td_log_row *out) {
    *out = (struct td_log_row){.step = row->step, .epoch = row->epoch, .real_ns = row->real_ns};
    for (size_t i = 0; i < row->n; i++) {
        const struct cell *c = &row->cell[i];
        if (!closed && (c->device || c->n_has < t->n_ranks)) continue;
        struct td_log_value *v = &out->value[out->n++];
        memcpy(v->name, c->name, sizeof v->name);
        v->value = c->merges ? td_exact_mean_value(&c->mean) : c->last;
    }
}

static bool is_complete(const struct td_log_rows *t, const struct td_log_open_row *row) {
    for (size_t i = 0; i < row->n; i++) {
        if (!row->cell[i].device && row->cell[i].n_has < t->n_ranks) return false;
    }
    return true;
}

static bool is_closed(const struct td_log_rows *t, const struct td_log_open_row *row, int flags) {
    if (flags & TD_LOG_TAKE_ALL || t->n > TD_LOG_ROWS) return true;
    if (row->late) return is_complete(t, row) || t->latest_ns - row->real_ns > LATE_NS;
    return all_passed(t, row->step, flags);
}

// The first of all, or a late one: that is of a step before those that are open.
static struct td_log_open_row *find_closed(const struct td_log_rows *t, int flags) {
    for (struct td_log_open_row *row = t->first; row; row = row->next) {
        if ((row == t->first || row->late) && is_closed(t, row, flags)) return row;
    }
    return NULL;
}

bool td_log_rows_take(struct td_log_rows *t, int flags, struct td_log_row *out_row) {
    struct td_log_open_row *row = find_closed(t, flags);
    if (row) {
        show(t, row, true, out_row);
        drop(t, row);
        return true;
    }
    row = t->first;
    if (!row || !row->changed) return false;
    row->changed = false;
    show(t, row, false, out_row);
    return out_row->n > 0;
}
