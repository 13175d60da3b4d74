// A broken page ends a walk over a table, so each table is walked from both ends; what is between
// them is lost. Rows are judged by loading them into a core that is thrown away. A job whose spec
// or attempt is gone is left out whole, because half a job would be run or shown wrongly. Rejected:
// SQLite's recovery extension, which no distribution builds.

#include "daemon/coordinator/shell/salvage.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/core_state.h"
#include "daemon/coordinator/shell/db.h"
#include "daemon/coordinator/shell/store.h"
#include "lib/base/log.h"

enum { KEY_MAX = 256 };

// ---- rows, from file to file --------------------------------------------------------------------
struct walk {
    sqlite3 *from, *to;
    const char *table;
    bool backward;
    char last[KEY_MAX]; // key of the last row that was read; "": none was
};

static td_status put_row(struct walk *w, sqlite3_stmt *row) {
    char text[128];
    sqlite3_stmt *q = NULL;
    snprintf(text, sizeof text, "INSERT OR IGNORE INTO %s (key, body, digest) VALUES (?1, ?2, ?3)",
             w->table);
    TD_TRY(td_db_prepare(w->to, "state.db", text, &q));
    const char *key = (const char *)sqlite3_column_text(row, 0);
    const char *body = (const char *)sqlite3_column_text(row, 1);
    sqlite3_bind_text(q, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, body, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 3, td_db_row_digest(key, body));
    int rc = sqlite3_step(q);
    return td_db_end(w->to, "state.db", q, rc, w->table, TD_OK);
}

// True: to the end of the table.
static td_status walk(struct walk *w, bool *out_whole) {
    static const char *const columns[] = {"digest", "NULL"}; // of a build before it
    sqlite3_stmt *q = NULL;
    *out_whole = false;
    for (size_t i = 0; i < TD_COUNTOF(columns) && !q; i++) {
        char text[128];
        snprintf(text, sizeof text, "SELECT key, body, %s FROM %s ORDER BY key%s", columns[i],
                 w->table, w->backward ? " DESC" : "");
        (void)sqlite3_prepare_v2(w->from, text, -1, &q, NULL);
    }
    if (!q) {
        *out_whole = sqlite3_errcode(w->from) == SQLITE_ERROR; // else the file is damaged
        if (*out_whole) td_log_info("salvage: there was no table %s yet", w->table);
        return TD_OK;
    }
    td_status failed = TD_OK;
    int rc = SQLITE_DONE;
    while (!failed && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        td_status bad = td_db_row_check(q, "state.db", w->table);
        const char *key = (const char *)sqlite3_column_text(q, 0);
        snprintf(w->last, sizeof w->last, "%s", key ? key : "");
        if (!bad) {
            failed = put_row(w, q);
        } else {
            td_log_warn("salvage: left out: %s", td_status_message(bad));
        }
        td_status_free(bad);
    }
    *out_whole = rc == SQLITE_DONE;
    sqlite3_finalize(q);
    return failed;
}

// Between the last keys that were read from both ends; "": that end gave none.
static void say_lost(const char *table, const char *after, const char *before, const char *why) {
    char where[2 * KEY_MAX + 32] = "";
    if (!after[0] && !before[0]) {
        td_log_warn("salvage: left out: no row of %s can be read: %s", table, why);
        return;
    }
    size_t n = 0;
    if (after[0]) n = (size_t)snprintf(where, sizeof where, " after '%s'", after);
    if (before[0]) {
        snprintf(where + n, sizeof where - n, "%s before '%s'", after[0] ? " and" : "", before);
    }
    td_log_warn("salvage: left out: rows of %s%s cannot be read: %s", table, where, why);
}

static td_status copy_table(sqlite3 *from, sqlite3 *to, const char *table) {
    struct walk up = {.from = from, .to = to, .table = table}, down = up;
    down.backward = true;
    bool whole;
    TD_TRY(walk(&up, &whole));
    if (whole) return TD_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", sqlite3_errmsg(from));
    TD_TRY(walk(&down, &whole));
    say_lost(table, up.last, down.last, why);
    return TD_OK;
}

td_status td_salvage_copy(const char *source, const char *const *tables, size_t n_tables,
                          sqlite3 *db) {
    td_log_warn("salvage: the old state.db was moved aside and is kept path=%s", source);
    sqlite3 *from = NULL;
    int rc = sqlite3_open_v2(source, &from, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    td_status failed = rc == SQLITE_OK ? TD_OK : td_db_fail(from, source, "open");
    if (!failed) failed = td_db_sql(db, "state.db", "BEGIN IMMEDIATE");
    for (size_t i = 0; i < n_tables && !failed; i++) {
        failed = copy_table(from, db, tables[i]);
    }
    if (!failed) failed = td_db_sql(db, "state.db", "COMMIT");
    sqlite3_close(from);
    return failed;
}

// ---- rows, into the core ------------------------------------------------------------------------
struct salvage {
    struct td_core *judge, *core;
    struct td_map *bad; // "<kind>/<key>" of rows, "<job>" of jobs
    struct td_record *drops;
};

static td_status mark_bad(struct salvage *v, const char *key) {
    return td_map_put(v->bad, key, v, NULL);
}

static void row_name(enum td_record_kind kind, const char *key, char out[KEY_MAX + 16]) {
    snprintf(out, KEY_MAX + 16, "%d/%.*s", (int)kind, KEY_MAX, key);
}

static bool of_a_job(enum td_record_kind kind) {
    return kind == TD_RECORD_JOB || kind == TD_RECORD_SPEC || kind == TD_RECORD_ATTEMPT ||
           kind == TD_RECORD_CHECKPOINT || kind == TD_RECORD_SHARD;
}

static void job_of(const char *key, char out[TD_JOB_ID_MAX]) {
    snprintf(out, TD_JOB_ID_MAX, "%.*s", (int)strcspn(key, "/"), key);
}

static td_status judge_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct salvage *v = arg;
    td_status bad = td_core_load(v->judge, kind, key, body);
    if (!bad) return TD_OK;
    char name[KEY_MAX + 16], job[TD_JOB_ID_MAX];
    td_log_warn("salvage: left out: row '%s': %s", key, td_status_message(bad));
    td_status_free(bad);
    row_name(kind, key, name);
    job_of(key, job);
    TD_TRY(mark_bad(v, name));
    if (kind != TD_RECORD_SPEC && kind != TD_RECORD_ATTEMPT) return TD_OK;
    td_log_warn("salvage: left out: job %s, of which that was a part; its checkpoints stay on disk",
                job);
    return mark_bad(v, job);
}

static const char *what_lacks(const struct td_job *j) {
    bool has_ranks =
        !td_job_state_ended(j->state) && !td_job_state_waits(j->state) && j->state != TD_JOB_PAUSED;
    if (!j->spec_json) return "its spec";
    return has_ranks && !td_job_live(j) ? "its newest attempt" : NULL;
}

static td_status judge_jobs(struct salvage *v) {
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(v->judge, before))) {
        before = j->seq;
        const char *lacks = what_lacks(j);
        if (!lacks || td_map_get(v->bad, j->id)) continue;
        td_log_warn("salvage: left out: job %s: %s cannot be read; its checkpoints stay on disk",
                    j->id, lacks);
        TD_TRY(mark_bad(v, j->id));
    }
    return TD_OK;
}

static td_status load_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct salvage *v = arg;
    char name[KEY_MAX + 16], job[TD_JOB_ID_MAX];
    row_name(kind, key, name);
    job_of(key, job);
    if (!td_map_get(v->bad, name) && !(of_a_job(kind) && td_map_get(v->bad, job))) {
        return td_core_load(v->core, kind, key, body);
    }
    struct td_record *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->kind = kind;
    r->key = td_strdup(key);
    r->next = v->drops;
    v->drops = r;
    return r->key ? TD_OK : td_fail_oom();
}

static td_status load(struct salvage *v, struct td_store *store,
                      const struct td_core_options *options) {
    TD_TRY(td_core_create(options, &v->judge));
    TD_TRY(td_map_create(1 << 20, &v->bad));
    TD_TRY(td_store_load(store, judge_row, v));
    TD_TRY(judge_jobs(v));
    return td_store_load(store, load_row, v);
}

td_status td_salvage_load(struct td_store *store, const struct td_core_options *options,
                          struct td_core *core, uint64_t *out_ticket) {
    struct salvage v = {.core = core};
    td_status failed = load(&v, store, options);
    td_core_destroy(v.judge);
    td_map_destroy(v.bad);
    if (!failed && v.drops) {
        *out_ticket = 1;
        td_store_commit(store, v.drops, 1);
        return TD_OK;
    }
    while (v.drops) {
        struct td_record *r = v.drops;
        v.drops = r->next;
        td_record_destroy(r);
    }
    return failed;
}
