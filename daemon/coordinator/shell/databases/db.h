#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_DB_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_DB_H

// What the files that speak SQL share: a statement's failure as a status, and the columns that
// SQLite keeps in a way of its own. A connection belongs to one thread (databases.h says which).

#include <sqlite3.h>

#include "lib/base/files/held_path.h"

// Opens or makes dir/name for one thread: WAL, synchronous=FULL.
TD_MUST_USE td_status td_db_open(const char *dir, const char *name, sqlite3 **out_db);
// A connection that reads beside the writer's, which has made the file. out_db is the caller's to
// close after a failure, too.
TD_MUST_USE td_status td_db_open_reader(const char *dir, const char *name, sqlite3 **out_db);
// An open database by its files: what is committed to one that was deleted is lost with the
// process. Its -wal is there from its first change on.
struct td_db_held {
    struct td_held_path file, wal;
};
TD_MUST_USE td_status td_db_held_take(const char *dir, const char *name,
                                      struct td_db_held *out_held);
// As td_held_path_check.
TD_MUST_USE td_status td_db_held_check(struct td_db_held *h);
// Applies the steps that it lacks. FAILED_PRECONDITION SCHEMA_NEWER: it knows more of them.
TD_MUST_USE td_status td_db_migrate(sqlite3 *db, const char *name, const char *const *steps,
                                    int n_steps);
TD_MUST_USE td_status td_db_sql(sqlite3 *db, const char *name, const char *text);
// First column of the first row; 0: there is none, or it is NULL.
TD_MUST_USE td_status td_db_number(sqlite3 *db, const char *name, const char *text, int64_t *out_n);
// Renames the database, its -wal and -shm to "<name>.damaged-<seconds>...", durably; removes the
// mark. out_path: where it is now, "" if there was none.
TD_MUST_USE td_status td_db_move_aside(const char *dir, const char *name,
                                       char out_path[TD_FS_PATH_BYTES]);
// The mark "<name>.is-damaged" that a check leaves for the next start; DATA_LOSS: it is there.
TD_MUST_USE td_status td_db_mark(const char *dir, const char *name, const char *why);
TD_MUST_USE td_status td_db_marked(const char *dir, const char *name);

// Of a row of state.db.
int64_t td_db_row_digest(const char *key, const char *body);
// Columns 0 to 2 of q are key, body and digest. DATA_LOSS names the row.
TD_MUST_USE td_status td_db_row_check(sqlite3_stmt *q, const char *name, const char *table);

// DATA_LOSS for a damaged file, else UNAVAILABLE; class disk when it is full. name: "state.db".
TD_MUST_USE td_status td_db_fail(sqlite3 *db, const char *name, const char *what);
TD_MUST_USE td_status td_db_prepare(sqlite3 *db, const char *name, const char *text,
                                    sqlite3_stmt **out);
// After the last step, rc: an answer that broke off is a failure, unless there is one already.
// Finalizes q.
TD_MUST_USE td_status td_db_end(sqlite3 *db, const char *name, sqlite3_stmt *q, int rc,
                                const char *what, td_status take_failed);
// One step of a statement without rows that matter, ready for the next. SQLITE_OK, or what failed.
int td_db_step(sqlite3_stmt *q);
// SQLite keeps NaN as NULL, and NULL plus anything is NULL.
double td_db_real(sqlite3_stmt *q, int column);

#endif
