#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SCHEMA_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_SCHEMA_H

// state.db: a table for each kind of record (core.h), of key, body and the digest of both, and how
// older databases become that.

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/shell/databases/db.h"

// By kind.
extern const char *const td_schema_tables[TD_RECORD_KIND_COUNT];
// Makes what a database lacks. FAILED_PRECONDITION SCHEMA_NEWER: it has more of it.
TD_MUST_USE td_status td_schema_apply(sqlite3 *db, const char *name);

#endif
