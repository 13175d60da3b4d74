// See the header.

#include "daemon/coordinator/shell/databases/metrics_db.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/metrics_sum.h"
#include "lib/attempt/rank_page.h"

static const char *const metrics_migrations[] = {
    "CREATE TABLE series (id INTEGER PRIMARY KEY, job TEXT NOT NULL, name TEXT NOT NULL,"
    " UNIQUE (job, name));"
    "CREATE TABLE points (series INTEGER, step INTEGER, attempt INTEGER, epoch INTEGER, sum REAL,"
    " count REAL, n_ranks INTEGER, real_ns INTEGER, PRIMARY KEY (series, step, attempt))"
    " WITHOUT ROWID;"
    "CREATE TABLE cursors (job TEXT, attempt INTEGER, rank INTEGER, offset INTEGER,"
    " PRIMARY KEY (job, attempt, rank)) WITHOUT ROWID;",
    "ALTER TABLE points ADD COLUMN sum_rest BLOB;"
    "ALTER TABLE points ADD COLUMN count_rest BLOB;"
    "CREATE TABLE names (job TEXT, attempt INTEGER, rank INTEGER, number INTEGER, name TEXT,"
    " PRIMARY KEY (job, attempt, rank, number)) WITHOUT ROWID;"
    // Definitions before these cursors were not kept, so that later ones have no known number.
    "INSERT INTO names SELECT job, attempt, rank, -1, '' FROM cursors WHERE offset > 0;",
    // 1: its first point was of a device.
    "ALTER TABLE series ADD COLUMN device INTEGER NOT NULL DEFAULT 0;",
};

static td_status prepare(struct td_metrics_db *m, const char *text, sqlite3_stmt **out) {
    return td_db_prepare(m->db, m->name, text, out);
}

td_status td_metrics_db_open(const char *dir, const char *name, struct td_metrics_db *m) {
    m->name = name;
    TD_TRY(td_db_open(dir, name, &m->db));
    TD_TRY(td_db_migrate(m->db, name, metrics_migrations, (int)TD_COUNTOF(metrics_migrations)));
    if (td_metrics_sum_register(m->db) != SQLITE_OK) return td_db_fail(m->db, name, "functions");
    TD_TRY(prepare(m, "SELECT id FROM series WHERE job = ?1 AND name = ?2", &m->find_series));
    TD_TRY(
        prepare(m, "INSERT INTO series (job, name, device) VALUES (?1, ?2, ?3)", &m->add_series));
    TD_TRY(prepare(m,
                   "INSERT INTO points (series, step, attempt, epoch, sum, count, n_ranks, real_ns)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7)"
                   " ON CONFLICT (series, step, attempt) DO UPDATE SET"
                   " sum = CASE WHEN ?8 THEN exact_sum(sum, sum_rest, ?5) ELSE ?5 END,"
                   " sum_rest = CASE WHEN ?8 THEN exact_rest(sum, sum_rest, ?5) END,"
                   " count = CASE WHEN ?8 THEN exact_sum(count, count_rest, ?6) ELSE ?6 END,"
                   " count_rest = CASE WHEN ?8 THEN exact_rest(count, count_rest, ?6) END,"
                   " n_ranks = n_ranks + ?9, real_ns = max(real_ns, ?7)",
                   &m->add_point));
    TD_TRY(prepare(m, "INSERT OR REPLACE INTO names VALUES (?1, ?2, ?3, ?4, ?5)", &m->put_name));
    return prepare(m, "INSERT OR REPLACE INTO cursors VALUES (?1, ?2, ?3, ?4)", &m->put_cursor);
}

void td_metrics_db_finish(struct td_metrics_db *m) {
    sqlite3_stmt **all[] = {&m->add_series, &m->find_series, &m->add_point, &m->put_cursor,
                            &m->put_name};
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        sqlite3_finalize(*all[i]);
        *all[i] = NULL;
    }
}

// ---- points -------------------------------------------------------------------------------------
static int find_series(struct td_metrics_db *m, const char *job, const struct td_metric_point *p,
                       int64_t *out_id) {
    sqlite3_stmt *q = m->find_series;
    sqlite3_bind_text(q, 1, job, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, p->name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) *out_id = sqlite3_column_int64(q, 0);
    sqlite3_reset(q);
    if (rc == SQLITE_ROW) return SQLITE_OK;
    if (rc != SQLITE_DONE) return rc;
    sqlite3_bind_text(m->add_series, 1, job, -1, SQLITE_STATIC);
    sqlite3_bind_text(m->add_series, 2, p->name, -1, SQLITE_STATIC);
    sqlite3_bind_int(m->add_series, 3, (p->flags & TD_METRIC_DEVICE) != 0);
    rc = td_db_step(m->add_series);
    *out_id = sqlite3_last_insert_rowid(sqlite3_db_handle(m->add_series));
    return rc;
}

static int put_names(struct td_metrics_db *m, const struct td_points *p) {
    int rc = SQLITE_OK;
    for (uint32_t i = 0; i < p->n_names && rc == SQLITE_OK; i++) {
        sqlite3_bind_text(m->put_name, 1, p->job, -1, SQLITE_STATIC);
        sqlite3_bind_int64(m->put_name, 2, p->attempt);
        sqlite3_bind_int64(m->put_name, 3, p->rank);
        sqlite3_bind_int64(m->put_name, 4, p->first_name + i);
        sqlite3_bind_text(m->put_name, 5, p->names[i], -1, SQLITE_STATIC);
        rc = td_db_step(m->put_name);
    }
    return rc;
}

static int put_cursor(struct td_metrics_db *m, const struct td_points *p) {
    sqlite3_bind_text(m->put_cursor, 1, p->job, -1, SQLITE_STATIC);
    sqlite3_bind_int64(m->put_cursor, 2, p->attempt);
    sqlite3_bind_int64(m->put_cursor, 3, p->rank);
    sqlite3_bind_int64(m->put_cursor, 4, (int64_t)p->offset);
    return td_db_step(m->put_cursor);
}

int td_metrics_db_put(struct td_metrics_db *m, const struct td_points *p) {
    char last[TD_METRIC_NAME_BYTES] = "";
    int64_t series = 0;
    for (size_t i = 0; i < p->n_points; i++) {
        const struct td_metric_point *r = &p->points[i];
        if (strcmp(last, r->name) != 0) {
            int rc = find_series(m, p->job, r, &series);
            if (rc != SQLITE_OK) return rc;
            snprintf(last, sizeof last, "%s", r->name);
        }
        sqlite3_stmt *q = m->add_point;
        sqlite3_bind_int64(q, 1, series);
        sqlite3_bind_int64(q, 2, r->step);
        sqlite3_bind_int64(q, 3, p->attempt);
        sqlite3_bind_int64(q, 4, r->epoch);
        sqlite3_bind_double(q, 5, r->sum);
        sqlite3_bind_double(q, 6, r->count);
        sqlite3_bind_int64(q, 7, r->real_ns);
        sqlite3_bind_int(q, 8, (r->flags & TD_METRIC_SUM_COUNT) != 0);
        sqlite3_bind_int(q, 9,
                         (r->flags & TD_METRIC_DEVICE) == 0); // one rank has it, and says it again
        int rc = td_db_step(q);
        if (rc != SQLITE_OK) return rc;
    }
    int rc = put_names(m, p);
    return rc == SQLITE_OK ? put_cursor(m, p) : rc;
}

int td_metrics_db_forget(struct td_metrics_db *m, const char *job) {
    static const char *const texts[] = {
        "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE job = ?1)",
        "DELETE FROM series WHERE job = ?1", "DELETE FROM cursors WHERE job = ?1",
        "DELETE FROM names WHERE job = ?1"};
    for (size_t i = 0; i < TD_COUNTOF(texts); i++) {
        sqlite3_stmt *q = NULL;
        int rc = sqlite3_prepare_v2(m->db, texts[i], -1, &q, NULL);
        if (rc == SQLITE_OK) sqlite3_bind_text(q, 1, job, -1, SQLITE_STATIC);
        if (rc == SQLITE_OK) rc = td_db_step(q);
        sqlite3_finalize(q);
        if (rc != SQLITE_OK) return rc;
    }
    return SQLITE_OK;
}

// ---- loading ------------------------------------------------------------------------------------
td_status td_metrics_db_load_cursors(struct td_metrics_db *m, const struct td_cursor_loader *to) {
    sqlite3_stmt *q = NULL;
    TD_TRY(prepare(m, "SELECT job, attempt, rank, offset FROM cursors", &q));
    int rc;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        to->offset((const char *)sqlite3_column_text(q, 0), (uint32_t)sqlite3_column_int64(q, 1),
                   (uint32_t)sqlite3_column_int64(q, 2), (uint64_t)sqlite3_column_int64(q, 3),
                   to->arg);
    }
    TD_TRY(td_db_end(m->db, m->name, q, rc, "cursors", TD_OK));
    TD_TRY(prepare(m,
                   "SELECT job, attempt, rank, number, name FROM names"
                   " ORDER BY job, attempt, rank, number",
                   &q));
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        to->name((const char *)sqlite3_column_text(q, 0), (uint32_t)sqlite3_column_int64(q, 1),
                 (uint32_t)sqlite3_column_int64(q, 2), (uint32_t)sqlite3_column_int64(q, 3),
                 (const char *)sqlite3_column_text(q, 4), to->arg);
    }
    return td_db_end(m->db, m->name, q, rc, "names", TD_OK);
}

static td_status read_last(struct td_metrics_db *db, int64_t id, struct td_metric_last *m) {
    sqlite3_stmt *q = NULL;
    TD_TRY(prepare(db,
                   "SELECT step, attempt, n_ranks, sum, sum_rest, count, count_rest FROM points"
                   " WHERE series = ?1 ORDER BY attempt DESC, step DESC LIMIT 1",
                   &q));
    sqlite3_bind_int64(q, 1, id);
    td_status failed = TD_OK;
    int rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        m->step = (uint32_t)sqlite3_column_int64(q, 0);
        m->attempt = (uint32_t)sqlite3_column_int64(q, 1);
        m->n_ranks = (uint32_t)sqlite3_column_int64(q, 2);
        if (!td_metrics_sum_mean(q, 3, &m->mean)) failed = td_fail_oom();
        m->shown = td_exact_mean_value(&m->mean);
        m->shown_set = true;
    }
    return td_db_end(db->db, db->name, q, rc, "points", failed);
}

td_status td_metrics_db_load_last(struct td_metrics_db *m, const char *job,
                                  void (*last)(struct td_metric_last *m, void *arg), void *arg) {
    sqlite3_stmt *q = NULL;
    TD_TRY(prepare(m, "SELECT id, name FROM series WHERE job = ?1 AND NOT device ORDER BY id", &q));
    sqlite3_bind_text(q, 1, job, -1, SQLITE_STATIC);
    td_status failed = TD_OK;
    int rc = SQLITE_DONE;
    while (!failed && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct td_metric_last l = {0};
        snprintf(l.name, sizeof l.name, "%s", (const char *)sqlite3_column_text(q, 1));
        failed = read_last(m, sqlite3_column_int64(q, 0), &l);
        if (!failed) last(&l, arg);
        td_exact_mean_finish(&l.mean);
    }
    return td_db_end(m->db, m->name, q, rc, "series", failed);
}
