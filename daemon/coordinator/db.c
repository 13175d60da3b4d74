// Extended result codes are read at the failure, before another call on the connection changes
// them. A full disk is told from a damaged file, because one is waited out and the other is not.

#include "daemon/coordinator/db.h"

#include <math.h>

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
