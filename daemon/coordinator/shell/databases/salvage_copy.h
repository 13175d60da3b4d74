#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_COPY_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SALVAGE_COPY_H

// What can be read of a damaged state.db, into a new one: the first half of salvage.h.

#include <sqlite3.h>

#include "lib/base/base.h"

// Copies the rows of the tables from the database `source` into db. What is not readable is logged.
TD_MUST_USE td_status td_salvage_copy(const char *source, const char *const *tables,
                                      size_t n_tables, sqlite3 *db);

#endif
