#ifndef TRAIND_DAEMON_COORDINATOR_DB_H
#define TRAIND_DAEMON_COORDINATOR_DB_H

// What the files that speak SQL share: a statement's failure as a status, and the columns that
// SQLite keeps in a way of its own. A connection belongs to one thread (store.h says which).

#include <sqlite3.h>

#include "lib/base/base.h"

// DATA_LOSS for a damaged file, else UNAVAILABLE; class disk when it is full. name: "state.db".
TD_MUST_USE td_status td_db_fail(sqlite3 *db, const char *name, const char *what);
TD_MUST_USE td_status td_db_prepare(sqlite3 *db, const char *name, const char *text,
                                    sqlite3_stmt **out);
// After the last step, rc: an answer that broke off is a failure, unless there is one already.
// Finalizes q.
TD_MUST_USE td_status td_db_end(sqlite3 *db, const char *name, sqlite3_stmt *q, int rc,
                                const char *what, td_status take_failed);
// SQLite keeps NaN as NULL, and NULL plus anything is NULL.
double td_db_real(sqlite3_stmt *q, int column);

#endif
