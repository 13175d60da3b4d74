#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_PAGES_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_PAGES_H

// Rows of a damaged state.db that SQLite finds no way to: the page above them is broken, as the
// header, the schema or the root of their table may be. Every page is looked at by itself.

#include "daemon/coordinator/shell/databases/db.h"

// Puts into db what it does not have yet. UNAVAILABLE: a file cannot be read.
TD_MUST_USE td_status td_salvage_pages(const char *source, sqlite3 *db);
// The same of bytes: of a state.db, and of its -wal; empty: there is none.
TD_MUST_USE td_status td_salvage_pages_take(struct td_str file, struct td_str wal, sqlite3 *db);
// SQLite passes over the -wal of source, or over its end, without a word: a checksum is wrong.
bool td_salvage_wal_is_bad(const char *source);

#endif
