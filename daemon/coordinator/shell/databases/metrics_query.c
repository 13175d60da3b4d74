// A page is worked out before it is read. First, how many points each series has from the page's
// first step on, counted no further than an answer holds. Then which share of the room each gets,
// and at which step the page ends so that no series exceeds its share. Then each is read up to
// there, in one pass over its rows. A picture is one pass, too: rows go into ranges of equal width
// between the first and the last step. Rejected: pages by rows of the table, which end each series
// at another step, so that two curves of one page cannot be compared.

#include "daemon/coordinator/shell/databases/metrics_query.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/db.h"

static const char *const db_name = "metrics.db";

// A series while a page is worked out.
struct source {
    int64_t id;
    struct td_databases_series *to;
    uint32_t begin; // first step to read
    size_t count;   // steps from there on, no further than TD_DB_STORE_MAX_POINTS + 1
    bool whole;     // all of it has room,
    size_t share;   // or only so many
};

struct reading {
    sqlite3 *db;
    struct td_databases_query *q;
    struct source source[TD_DB_STORE_MAX_SERIES];
    uint32_t end; // last step to read
};

void td_databases_query_destroy(struct td_databases_query *q) {
    if (!q) return;
    for (size_t i = 0; i < q->n_series; i++) {
        free(q->series[i].points);
    }
    free(q->more_names);
    td_status_free(q->failure);
    free(q);
}

// One number about the steps of a series; `fallback` where there is none. The text's parameters are
// series, from, to and a number of its own.
static td_status ask(struct reading *r, const char *text, int64_t id, uint32_t from, uint32_t to,
                     uint32_t number, int64_t fallback, int64_t *out) {
    sqlite3_stmt *s = NULL;
    TD_TRY(td_db_prepare(r->db, db_name, text, &s));
    sqlite3_bind_int64(s, 1, id);
    sqlite3_bind_int64(s, 2, from);
    sqlite3_bind_int64(s, 3, to);
    sqlite3_bind_int64(s, 4, number);
    int rc = sqlite3_step(s);
    bool none = rc != SQLITE_ROW || sqlite3_column_type(s, 0) == SQLITE_NULL;
    *out = none ? fallback : sqlite3_column_int64(s, 0);
    return td_db_end(r->db, db_name, s, rc, "steps", TD_OK);
}

#define STEPS "SELECT DISTINCT step FROM points WHERE series = ?1 AND step BETWEEN ?2 AND ?3"
static const char count_steps[] = "SELECT count(*) FROM (" STEPS " LIMIT ?4)";
static const char nth_step[] = STEPS " ORDER BY step LIMIT 1 OFFSET ?4 - 1";
static const char nth_newest_step[] = STEPS " ORDER BY step DESC LIMIT 1 OFFSET ?4 - 1";

// ---- which series -------------------------------------------------------------------------------
static bool wanted(const struct td_databases_query *q, const char *name) {
    for (size_t i = 0; i < q->n_names; i++) {
        if (strcmp(q->names[i], name) == 0) return true;
    }
    return q->n_names == 0;
}

static td_status note_name(struct td_databases_query *q, const char *name) {
    void *grown = td_realloc(q->more_names, (q->n_more_names + 1) * sizeof *q->more_names);
    if (!grown) return td_fail_oom();
    q->more_names = grown;
    snprintf(q->more_names[q->n_more_names++], sizeof *q->more_names, "%s", name);
    return TD_OK;
}

static td_status find_sources(struct reading *r) {
    struct td_databases_query *q = r->q;
    sqlite3_stmt *list = NULL;
    TD_TRY(td_db_prepare(r->db, db_name,
                         "SELECT id, name FROM series WHERE job = ?1 AND (?2 OR NOT device)"
                         " ORDER BY device, name",
                         &list));
    sqlite3_bind_text(list, 1, q->job, -1, SQLITE_STATIC);
    sqlite3_bind_int(list, 2, q->n_names || !q->picture_points);
    td_status s = TD_OK;
    int rc = SQLITE_DONE;
    while (!s && (rc = sqlite3_step(list)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(list, 1);
        if (!name || !wanted(q, name)) continue;
        if (q->n_series == TD_DB_STORE_MAX_SERIES) {
            s = note_name(q, name);
            continue;
        }
        struct td_databases_series *to = &q->series[q->n_series];
        snprintf(to->name, sizeof to->name, "%s", name);
        r->source[q->n_series++] =
            (struct source){.id = sqlite3_column_int64(list, 0), .to = to, .begin = q->from_step};
    }
    return td_db_end(r->db, db_name, list, rc, "series", s);
}

// ---- where the page begins and ends -------------------------------------------------------------
static td_status find_begin(struct reading *r, struct source *x) {
    const struct td_databases_query *q = r->q;
    if (q->newest) {
        int64_t floor, left_out = 0;
        TD_TRY(ask(r, nth_newest_step, x->id, q->from_step, r->end, q->newest, -1, &floor));
        if (floor > (int64_t)q->from_step) {
            TD_TRY(ask(r, count_steps, x->id, q->from_step, (uint32_t)floor - 1, UINT32_MAX, 0,
                       &left_out));
            x->begin = (uint32_t)floor;
        }
        x->to->left_out = (uint64_t)left_out;
    }
    x->begin = TD_MAX(x->begin, q->cursor);
    int64_t count;
    TD_TRY(ask(r, count_steps, x->id, x->begin, r->end, TD_DB_STORE_MAX_POINTS + 1, 0, &count));
    x->count = (size_t)count;
    return TD_OK;
}

// Each gets the same share of the room; what a short one does not need goes to the others. At least
// one for each, as there is more room than series.
static void share_room(struct reading *r) {
    size_t room = TD_DB_STORE_MAX_POINTS, n_open = r->q->n_series;
    for (bool changed = true; n_open && changed;) {
        size_t each = room / n_open;
        changed = false;
        for (size_t i = 0; i < r->q->n_series; i++) {
            struct source *x = &r->source[i];
            if (x->whole || x->count > each) continue;
            x->whole = changed = true;
            room -= x->count;
            n_open--;
        }
    }
    for (size_t i = 0; n_open && i < r->q->n_series; i++) {
        r->source[i].share = room / n_open;
    }
}

static td_status find_end(struct reading *r) {
    struct td_databases_query *q = r->q;
    int64_t end = r->end;
    for (size_t i = 0; i < q->n_series; i++) {
        const struct source *x = &r->source[i];
        if (x->whole) continue;
        int64_t step;
        TD_TRY(ask(r, nth_step, x->id, x->begin, r->end, (uint32_t)x->share, end, &step));
        end = TD_MIN(end, step);
        q->more = true;
    }
    r->end = (uint32_t)end;
    if (q->more) q->next_cursor = r->end + 1;
    return TD_OK;
}

// ---- points -------------------------------------------------------------------------------------
static td_status append(struct td_databases_series *to, const struct td_databases_point *p) {
    if (to->n_points % 256 == 0) {
        void *grown = td_realloc(to->points, (to->n_points + 256) * sizeof *to->points);
        if (!grown) return td_fail_oom();
        to->points = grown;
    }
    to->points[to->n_points++] = *p;
    return TD_OK;
}

static struct td_databases_point point_at(sqlite3_stmt *s) {
    double sum = td_db_real(s, 3), count = sqlite3_column_double(s, 4);
    return (struct td_databases_point){.step = (uint32_t)sqlite3_column_int64(s, 0),
                                       .epoch = (uint32_t)sqlite3_column_int64(s, 1),
                                       .attempt = (uint32_t)sqlite3_column_int64(s, 2),
                                       .n_ranks = (uint32_t)sqlite3_column_int64(s, 5),
                                       .value = count > 0 ? sum / count : (double)NAN,
                                       .real_ns = sqlite3_column_int64(s, 6)};
}

// Ranges of `width` steps from `first` on.
struct picture {
    uint32_t first;
    uint64_t width; // 0: no picture, every point is its own
};

static uint64_t range_of(const struct picture *c, uint32_t step) {
    return (step - c->first) / c->width;
}

// Adds a point to a range. A mean with a NaN is none; the least and the largest are of the numbers.
static void add_to_range(struct td_databases_point *range, const struct td_databases_point *p) {
    struct td_databases_point sum = *p;
    sum.value += range->value;
    sum.n_points = range->n_points + 1;
    sum.min = fmin(range->min, p->value);
    sum.max = fmax(range->max, p->value);
    *range = sum;
}

static td_status take_point(struct td_databases_series *to, const struct picture *c,
                            const struct td_databases_point *p) {
    if (!c->width) return append(to, p);
    struct td_databases_point *last = to->n_points ? &to->points[to->n_points - 1] : NULL;
    if (last && range_of(c, last->step) == range_of(c, p->step)) {
        add_to_range(last, p);
        return TD_OK;
    }
    struct td_databases_point range = *p;
    range.min = range.max = p->value;
    range.n_points = 1;
    return append(to, &range);
}

static td_status read_points(struct reading *r, const struct source *x, const struct picture *c) {
    sqlite3_stmt *s = NULL;
    TD_TRY(td_db_prepare(r->db, db_name,
                         "SELECT step, epoch, attempt, sum, count, n_ranks, real_ns FROM points"
                         " WHERE series = ?1 AND step BETWEEN ?2 AND ?3"
                         " ORDER BY step, attempt DESC",
                         &s));
    sqlite3_bind_int64(s, 1, x->id);
    sqlite3_bind_int64(s, 2, x->begin);
    sqlite3_bind_int64(s, 3, r->end);
    td_status failed = TD_OK;
    int rc = SQLITE_DONE;
    int64_t last = -1;
    while (!failed && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct td_databases_point p = point_at(s);
        if (p.step == last) continue; // of an older attempt
        last = p.step;
        failed = take_point(x->to, c, &p);
    }
    TD_TRY(td_db_end(r->db, db_name, s, rc, "points", failed));
    for (size_t i = 0; c->width && i < x->to->n_points; i++) {
        x->to->points[i].value /= x->to->points[i].n_points;
    }
    return TD_OK;
}

static td_status read_picture(struct reading *r, const struct source *x) {
    int64_t first, last;
    TD_TRY(ask(r, nth_step, x->id, x->begin, r->end, 1, -1, &first));
    TD_TRY(ask(r, nth_newest_step, x->id, x->begin, r->end, 1, -1, &last));
    if (first < 0) return TD_OK;
    uint64_t n = r->q->picture_points, steps = (uint64_t)(last - first) + 1;
    struct picture c = {.first = (uint32_t)first, .width = (steps + n - 1) / n};
    return read_points(r, x, &c);
}

static td_status read_page(struct reading *r) {
    static const struct picture none = {0};
    share_room(r);
    TD_TRY(find_end(r));
    for (size_t i = 0; i < r->q->n_series; i++) {
        if (r->source[i].begin <= r->end) TD_TRY(read_points(r, &r->source[i], &none));
    }
    return TD_OK;
}

static td_status read_all(struct reading *r) {
    struct td_databases_query *q = r->q;
    TD_TRY(find_sources(r));
    if ((uint64_t)q->picture_points * q->n_series > TD_DB_STORE_MAX_POINTS) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "a picture of %" PRIu32 " points of each of %zu series is more than the %d "
                       "points of an answer: ask for fewer points, or for fewer series by name",
                       q->picture_points, q->n_series, TD_DB_STORE_MAX_POINTS);
    }
    for (size_t i = 0; i < q->n_series; i++) {
        TD_TRY(find_begin(r, &r->source[i]));
        if (q->picture_points) TD_TRY(read_picture(r, &r->source[i]));
    }
    return q->picture_points ? TD_OK : read_page(r);
}

td_status td_metrics_query_read(sqlite3 *db, struct td_databases_query *q) {
    struct reading r = {.db = db, .q = q, .end = q->to_step ? q->to_step : UINT32_MAX};
    TD_TRY(td_db_sql(db, db_name, "BEGIN"));
    td_status s = read_all(&r);
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); // some failures have done it already
    return s;
}
