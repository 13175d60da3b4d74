// A migration is never changed once it was released: databases that had it are read for ever.

#include "daemon/coordinator/shell/databases/schema.h"

const char *const td_schema_tables[] = {
    "meta",     "nodes",   "plans",    "specs",  "jobs",    "attempts", "checkpoints", "shards",
    "requests", "leaving", "removals", "tokens", "members", "audit",    "node_admin"};

#define TABLE(name)                                                                                \
    "CREATE TABLE " name " (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;"
// td_db_row_digest; NULL: of a build before it.
#define DIGEST(name) "ALTER TABLE " name " ADD COLUMN digest INTEGER;"
// Rows in the order in which they are written, and an index of their keys. Without a rowid a row
// has its place by its key, which is random, and of a body above 1 KB the most is on pages of its
// own. A job that is created wrote 7 pages instead of 3 (docs/measurements.md).
#define BY_ROWID(name)                                                                             \
    "CREATE TABLE new_" name " (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL,"                \
    " digest INTEGER);"                                                                            \
    "INSERT INTO new_" name " SELECT key, body, digest FROM " name ";"                             \
    "DROP TABLE " name "; ALTER TABLE new_" name " RENAME TO " name ";"
static const char *const migrations[] = {
    TABLE("meta") TABLE("nodes") TABLE("plans") TABLE("specs") TABLE("jobs") TABLE("attempts")
        TABLE("checkpoints") TABLE("shards") TABLE("requests"),
    TABLE("leaving"),
    DIGEST("meta") DIGEST("nodes") DIGEST("plans") DIGEST("specs") DIGEST("jobs") DIGEST("attempts")
        DIGEST("checkpoints") DIGEST("shards") DIGEST("requests") DIGEST("leaving"),
    TABLE("removals") DIGEST("removals"),
    BY_ROWID("meta") BY_ROWID("nodes") BY_ROWID("plans") BY_ROWID("specs") BY_ROWID("jobs")
        BY_ROWID("attempts") BY_ROWID("checkpoints") BY_ROWID("shards") BY_ROWID("requests")
            BY_ROWID("leaving") BY_ROWID("removals"),
    "CREATE TABLE tokens (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, digest INTEGER)",
    "CREATE TABLE members (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, digest INTEGER)",
    // Keys that ascend and rows that go soon: one page, and no second one for an index.
    ("CREATE TABLE audit (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, digest INTEGER) "
     "WITHOUT ROWID"),
    "CREATE TABLE node_admin (key TEXT NOT NULL PRIMARY KEY, body TEXT NOT NULL, digest INTEGER)",
};

td_status td_schema_apply(sqlite3 *db, const char *name) {
    return td_db_migrate(db, name, migrations, (int)TD_COUNTOF(migrations));
}
