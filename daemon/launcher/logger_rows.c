// See the header. Rows are few: a list, searched from its end, where points of ranks in step are.

#include "daemon/launcher/logger_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/base.h"

struct part { // of one rank
    double sum, count;
    bool has;
};
struct cell {
    char name[TD_LOG_NAME];
    bool merges;
    int32_t n_has;
    double last;
    struct part *part; // (n_ranks)
};
struct td_log_open_row {
    struct td_log_open_row *next, *before;
    int64_t step, epoch, real_ns;
    bool changed;
    size_t n;
    struct cell cell[TD_LOG_CELLS];
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

static void drop_first(struct td_log_rows *t) {
    struct td_log_open_row *row = t->first;
    t->first = row->next;
    if (t->first) t->first->before = NULL;
    if (!t->first) t->last = NULL;
    t->n--;
    for (size_t i = 0; i < row->n; i++) {
        free(row->cell[i].part);
    }
    free(row);
}

void td_log_rows_finish(struct td_log_rows *t) {
    while (t->first) {
        drop_first(t);
    }
    free(t->newest);
    t->newest = NULL;
}

static struct td_log_open_row *row_of(struct td_log_rows *t, int64_t step) {
    for (struct td_log_open_row *row = t->last; row; row = row->before) {
        if (row->step == step) return row;
    }
    struct td_log_open_row *row = td_calloc(1, sizeof *row);
    if (!row) return NULL;
    row->step = step;
    row->before = t->last;
    *(t->last ? &t->last->next : &t->first) = row;
    t->last = row;
    t->n++;
    return row;
}

// NULL: the row is full, or there is no memory.
static struct cell *cell_of(struct td_log_rows *t, struct td_log_open_row *row, const char *name) {
    for (size_t i = 0; i < row->n; i++) {
        if (strcmp(row->cell[i].name, name) == 0) return &row->cell[i];
    }
    if (row->n == TD_LOG_CELLS) return NULL;
    struct cell *c = &row->cell[row->n];
    *c = (struct cell){.part = td_calloc((size_t)t->n_ranks, sizeof *c->part)};
    if (!c->part) return NULL;
    snprintf(c->name, sizeof c->name, "%s", name);
    row->n++;
    return c;
}

td_status td_log_rows_add(struct td_log_rows *t, int32_t rank_idx,
                          const struct td_metric_record *r) {
    char name[TD_LOG_NAME];
    snprintf(name, sizeof name, "%.*s", (int)sizeof r->name, r->name);
    TD_CHECK(rank_idx >= 0 && rank_idx < t->n_ranks);
    struct td_log_open_row *row = row_of(t, r->step);
    if (!row) return td_fail_oom();
    t->newest[rank_idx] = TD_MAX(t->newest[rank_idx], r->step);
    struct cell *c = cell_of(t, row, name);
    if (!c && row->n == TD_LOG_CELLS) {
        t->dropped++;
        return TD_OK;
    }
    if (!c) return td_fail_oom();
    struct part *p = &c->part[rank_idx];
    if (!p->has) c->n_has++;
    *p = (struct part){r->sum, r->count, true};
    c->merges = (r->flags & TD_METRIC_SUM_COUNT) != 0;
    c->last = r->count > 0 ? r->sum / r->count : (double)NAN;
    row->epoch = r->epoch;
    row->real_ns = TD_MAX(row->real_ns, r->real_ns);
    row->changed = true;
    return TD_OK;
}

static double value_of(const struct td_log_rows *t, const struct cell *c) {
    double sum = 0, count = 0;
    if (!c->merges) return c->last;
    for (int32_t i = 0; i < t->n_ranks; i++) {
        sum += c->part[i].sum;
        count += c->part[i].count;
    }
    return count > 0 ? sum / count : (double)NAN;
}

static void show(const struct td_log_rows *t, const struct td_log_open_row *row, bool closed,
                 struct td_log_row *out) {
    *out = (struct td_log_row){.step = row->step, .epoch = row->epoch, .real_ns = row->real_ns};
    for (size_t i = 0; i < row->n; i++) {
        const struct cell *c = &row->cell[i];
        if (!closed && c->n_has < t->n_ranks) continue;
        struct td_log_value *v = &out->value[out->n++];
        memcpy(v->name, c->name, sizeof v->name);
        v->value = value_of(t, c);
    }
}

static bool is_closed(const struct td_log_rows *t, const struct td_log_open_row *row, int flags) {
    if (flags & TD_LOG_TAKE_ALL || t->n > TD_LOG_ROWS) return true;
    for (int32_t i = 0; i < t->n_ranks; i++) {
        if (t->newest[i] == INT64_MIN && flags & TD_LOG_TAKE_PRESENT) continue;
        if (t->newest[i] <= row->step) return false;
    }
    return true;
}

bool td_log_rows_take(struct td_log_rows *t, int flags, struct td_log_row *out_row) {
    struct td_log_open_row *row = t->first;
    if (!row) return false;
    if (is_closed(t, row, flags)) {
        show(t, row, true, out_row);
        drop_first(t);
        return true;
    }
    if (!row->changed) return false;
    row->changed = false;
    show(t, row, false, out_row);
    return out_row->n > 0;
}
