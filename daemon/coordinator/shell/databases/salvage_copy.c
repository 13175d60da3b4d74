// A broken page ends a walk over a table, so each table is walked from both ends. What is between
// them is looked for on each page (salvage_pages.h). The walk follows the rows as they are stored
// and needs no index. Tables of older builds have no rowid, and are stored by their key. Rejected:
// SQLite's recovery extension, which no distribution builds.

#include "daemon/coordinator/shell/databases/salvage_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/shell/databases/db.h"
#include "daemon/coordinator/shell/databases/salvage_pages.h"
#include "lib/base/log.h"

enum { KEY_MAX = 256 };

struct walk {
    sqlite3 *from, *to;
    const char *table;
    bool backward, fill; // fill: what is there is newer
    char last[KEY_MAX];  // key of the last row that was read; "": none was
};

static td_status put_row(struct walk *w, sqlite3_stmt *row) {
    char text[128];
    sqlite3_stmt *q = NULL;
    // A broken index may let a key in twice: the row that was written last is the one that counts.
    snprintf(text, sizeof text, "INSERT OR %s INTO %s (key, body, digest) VALUES (?1, ?2, ?3)",
             w->backward || w->fill ? "IGNORE" : "REPLACE", w->table);
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
    // This build's; of builds before rowids; of builds before digests.
    static const struct {
        const char *digest, *order;
    } forms[] = {{"digest", "rowid"}, {"digest", "key"}, {"NULL", "key"}};
    sqlite3_stmt *q = NULL;
    *out_whole = false;
    for (size_t i = 0; i < TD_COUNTOF(forms) && !q; i++) {
        char text[128];
        snprintf(text, sizeof text, "SELECT key, body, %s FROM %s ORDER BY %s%s", forms[i].digest,
                 w->table, forms[i].order, w->backward ? " DESC" : "");
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

// Between the last rows that were read from both ends, in the order of the table; "": that end gave
// none.
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

static td_status copy_table(sqlite3 *from, sqlite3 *to, const char *table, bool fill,
                            bool *inout_whole) {
    struct walk up = {.from = from, .to = to, .table = table, .fill = fill}, down = up;
    down.backward = true;
    bool whole;
    TD_TRY(walk(&up, &whole));
    if (whole) return TD_OK;
    char why[256];
    *inout_whole = false;
    snprintf(why, sizeof why, "%s", sqlite3_errmsg(from));
    TD_TRY(walk(&down, &whole));
    say_lost(table, up.last, down.last, why);
    return TD_OK;
}

// Keys are in an index, too, which says how many rows there were where that can be read.
static td_status say_counts(sqlite3 *from, sqlite3 *to, const char *table) {
    char text[96];
    sqlite3_stmt *key = NULL, *find = NULL;
    int64_t n_saved, n_lost = 0;
    snprintf(text, sizeof text, "SELECT count(*) FROM %s", table);
    TD_TRY(td_db_number(to, "state.db", text, &n_saved));
    snprintf(text, sizeof text, "SELECT 1 FROM %s WHERE key = ?1", table);
    TD_TRY(td_db_prepare(to, "state.db", text, &find));
    snprintf(text, sizeof text, "SELECT key FROM %s ORDER BY key", table);
    int rc = sqlite3_prepare_v2(from, text, -1, &key, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(key);
        if (rc != SQLITE_ROW) break;
        sqlite3_bind_text(find, 1, (const char *)sqlite3_column_text(key, 0), -1, SQLITE_TRANSIENT);
        n_lost += sqlite3_step(find) != SQLITE_ROW;
        sqlite3_reset(find);
    }
    sqlite3_finalize(key);
    sqlite3_finalize(find);
    if (rc == SQLITE_DONE) {
        td_log_warn("salvage: table %s: %" PRId64 " rows saved, %" PRId64 " lost", table, n_saved,
                    n_lost);
    } else {
        td_log_warn("salvage: table %s: %" PRId64 " rows saved; how many there were cannot be read",
                    table, n_saved);
    }
    return TD_OK;
}

td_status td_salvage_copy(const char *source, const char *const *tables, size_t n_tables,
                          sqlite3 *db) {
    td_log_warn("salvage: the old state.db was moved aside and is kept path=%s", source);
    sqlite3 *from = NULL;
    int rc = sqlite3_open_v2(source, &from, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    const bool wal_is_bad = td_salvage_wal_is_bad(source);
    bool whole = !wal_is_bad;
    td_status failed = rc == SQLITE_OK ? TD_OK : td_db_fail(from, source, "open");
    // It is kept as it was found.
    (void)sqlite3_db_config(from, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    if (!failed) failed = td_db_sql(db, "state.db", "BEGIN IMMEDIATE");
    // A walk does not see what is in a bad -wal, so that the pages, which do, come before it.
    if (!failed && wal_is_bad) failed = td_salvage_pages(source, db);
    for (size_t i = 0; i < n_tables && !failed; i++) {
        failed = copy_table(from, db, tables[i], wal_is_bad, &whole);
    }
    if (!failed && !whole && !wal_is_bad) failed = td_salvage_pages(source, db);
    for (size_t i = 0; i < n_tables && !failed && !whole; i++) {
        failed = say_counts(from, db, tables[i]);
    }
    if (!failed) failed = td_db_sql(db, "state.db", "COMMIT");
    sqlite3_close(from);
    return failed;
}
