// Extended result codes are read at the failure, before another call on the connection changes
// them. A full disk and a damaged file differ: one is waited out, the other is not.

#include "daemon/coordinator/shell/databases/db.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/digest.h"
#include "lib/version/version.h"

// ---- opening ------------------------------------------------------------------------------------
td_status td_db_sql(sqlite3 *db, const char *name, const char *text) {
    if (sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK) return TD_OK;
    return td_db_fail(db, name, "SQL");
}

td_status td_db_number(sqlite3 *db, const char *name, const char *text, int64_t *out_n) {
    sqlite3_stmt *q = NULL;
    TD_TRY(td_db_prepare(db, name, text, &q));
    int rc = sqlite3_step(q);
    int64_t n = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    TD_TRY(td_db_end(db, name, q, rc, text, TD_OK));
    *out_n = n;
    return TD_OK;
}

td_status td_db_open(const char *dir, const char *name, sqlite3 **out_db) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, name));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, out_db, flags, NULL) != SQLITE_OK) {
        return td_db_fail(*out_db, path, "open");
    }
    sqlite3_busy_timeout(*out_db, 2000);
    TD_TRY(td_db_sql(*out_db, name, "PRAGMA journal_mode=WAL"));
    TD_TRY(td_db_sql(*out_db, name, "PRAGMA synchronous=FULL"));
    // A salvage must find no bytes of deleted rows.
    TD_TRY(td_db_sql(*out_db, name, "PRAGMA secure_delete=ON"));
    return td_db_sql(*out_db, name,
                     "PRAGMA cache_size=-1024; PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=OFF");
}

td_status td_db_open_reader(const char *dir, const char *name, sqlite3 **out_db) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, name));
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(path, out_db, flags, NULL) != SQLITE_OK) {
        return td_db_fail(*out_db, name, "open");
    }
    sqlite3_busy_timeout(*out_db, 2000);
    return TD_OK;
}

// It knows more steps than this build: who wrote it is who can read it.
static td_status is_newer(sqlite3 *db, const char *name, int64_t have, int n_steps) {
    sqlite3_stmt *q;
    TD_TRY(td_db_prepare(db, name, "SELECT build FROM schema ORDER BY version DESC LIMIT 1", &q));
    const int rc = sqlite3_step(q);
    const char *build = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : NULL;
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "%s was written by traind %.40s and has schema version %" PRId64
                          "; this is traind %s, which reads up to %d: install that version or a "
                          "newer one",
                          name, build ? build : "of a newer version", have, td_version, n_steps);
    sqlite3_finalize(q);
    return td_status_with_reason(s, "SCHEMA_NEWER");
}

td_status td_db_held_take(const char *dir, const char *name, struct td_db_held *out_held) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, name));
    out_held->wal.path[0] = '\0';
    return td_held_path_take(path, &out_held->file);
}

static void hold_wal(struct td_db_held *h) {
    char path[TD_FS_PATH_BYTES];
    td_status s = td_fs_path(path, "%s-wal", h->file.path);
    if (!s) s = td_held_path_take(path, &h->wal);
    td_status_free(s); // it is looked for again
}

td_status td_db_held_check(struct td_db_held *h) {
    TD_TRY(td_held_path_check(&h->file));
    if (!h->wal.path[0]) hold_wal(h);
    return td_held_path_check(&h->wal);
}

td_status td_db_migrate(sqlite3 *db, const char *name, const char *const *steps, int n_steps) {
    TD_TRY(td_db_sql(db, name,
                     "CREATE TABLE IF NOT EXISTS schema (version INTEGER PRIMARY KEY,"
                     " time TEXT NOT NULL, build TEXT NOT NULL)"));
    int64_t have;
    TD_TRY(td_db_number(db, name, "SELECT max(version) FROM schema", &have));
    if (have > n_steps) return is_newer(db, name, have, n_steps);
    for (int i = (int)have; i < n_steps; i++) {
        char note[128];
        snprintf(note, sizeof note, "INSERT INTO schema VALUES (%d, datetime('now'), '%s')", i + 1,
                 td_version);
        TD_TRY(td_db_sql(db, name, "BEGIN IMMEDIATE"));
        td_status s = td_db_sql(db, name, steps[i]);
        if (!s) s = td_db_sql(db, name, note);
        if (!s) s = td_db_sql(db, name, "COMMIT");
        if (s) {
            td_status_free(td_db_sql(db, name, "ROLLBACK"));
            return s;
        }
    }
    return TD_OK;
}

// ---- damage -------------------------------------------------------------------------------------
td_status td_db_move_aside(const char *dir, const char *name, char out_path[TD_FS_PATH_BYTES]) {
    static const char *const parts[] = {"-wal", "-shm", ""};
    char from[TD_FS_PATH_BYTES], to[TD_FS_PATH_BYTES], base[TD_FS_PATH_BYTES];
    out_path[0] = '\0';
    TD_TRY(td_fs_path(base, "%s/%s.damaged-%lld", dir, name,
                      (long long)(td_real_now().ns / TD_NS_PER_S)));
    for (int i = 2; td_fs_exists(base) && i < 1000; i++) { // twice in one second
        TD_TRY(td_fs_path(base, "%s/%s.damaged-%lld-%d", dir, name,
                          (long long)(td_real_now().ns / TD_NS_PER_S), i));
    }
    for (size_t i = 0; i < TD_COUNTOF(parts); i++) {
        TD_TRY(td_fs_path(from, "%s/%s%s", dir, name, parts[i]));
        TD_TRY(td_fs_path(to, "%s%s", base, parts[i]));
        if (!td_fs_exists(from)) continue;
        TD_TRY(td_fs_rename(from, to));
        if (!parts[i][0]) memcpy(out_path, base, sizeof base);
    }
    TD_TRY(td_fs_path(from, "%s/%s.is-damaged", dir, name));
    if (unlink(from) != 0 && errno != ENOENT) return td_fs_fail("remove", from);
    return TD_OK;
}

td_status td_db_mark(const char *dir, const char *name, const char *why) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s.is-damaged", dir, name));
    return td_fs_write(path, why, strlen(why), 0600, TD_FS_WRITE_DURABLE);
}

td_status td_db_marked(const char *dir, const char *name) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF why;
    td_buf_init(&why, 4096);
    TD_TRY(td_fs_path(path, "%s/%s.is-damaged", dir, name));
    if (!td_fs_exists(path)) return TD_OK;
    TD_TRY(td_fs_read(path, 4095, &why));
    return td_fail(TD_DATA_LOSS, "found by a check: %s", td_buf_cstr(&why));
}

int64_t td_db_row_digest(const char *key, const char *body) {
    return (int64_t)(td_xxh3_64(body, strlen(body)) ^ 31 * td_xxh3_64(key, strlen(key)));
}

td_status td_db_row_check(sqlite3_stmt *q, const char *name, const char *table) {
    const char *key = (const char *)sqlite3_column_text(q, 0);
    const char *body = (const char *)sqlite3_column_text(q, 1);
    bool none = sqlite3_column_type(q, 2) == SQLITE_NULL;
    if (key && body && (none || td_db_row_digest(key, body) == sqlite3_column_int64(q, 2))) {
        return TD_OK;
    }
    return td_fail(TD_DATA_LOSS, "%s: row '%s' of %s is damaged: its digest differs", name,
                   key ? key : "", table);
}

// ---- statements ---------------------------------------------------------------------------------

td_status td_db_fail(sqlite3 *db, const char *name, const char *what) {
    int code = sqlite3_extended_errcode(db) & 0xff;
    bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    td_status s = td_fail(damaged ? TD_DATA_LOSS : TD_UNAVAILABLE, "%s: %s: %s", name, what,
                          sqlite3_errmsg(db));
    return code == SQLITE_FULL ? td_status_with_class(s, TD_CLASS_DISK) : s;
}

td_status td_db_prepare(sqlite3 *db, const char *name, const char *text, sqlite3_stmt **out) {
    if (sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK) {
        return TD_OK;
    }
    return td_db_fail(db, name, text);
}

td_status td_db_end(sqlite3 *db, const char *name, sqlite3_stmt *q, int rc, const char *what,
                    td_status take_failed) {
    if (!take_failed && rc != SQLITE_DONE && rc != SQLITE_ROW) {
        take_failed = td_db_fail(db, name, what);
    }
    sqlite3_finalize(q);
    return take_failed;
}

double td_db_real(sqlite3_stmt *q, int column) {
    bool none = sqlite3_column_type(q, column) == SQLITE_NULL;
    return none ? (double)NAN : sqlite3_column_double(q, column);
}

int td_db_step(sqlite3_stmt *q) {
    int rc = sqlite3_step(q);
    sqlite3_reset(q);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}
