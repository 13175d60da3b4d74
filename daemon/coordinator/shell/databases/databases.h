#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_DATABASES_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_DATABASES_H

// The two databases: state.db (rows of core.h, WAL, synchronous=FULL) and metrics.db (points merged
// over ranks, cursors of what was merged). Each has one writer thread; the loop hands batches over
// and is woken when they are on disk. Queries have a thread and a read-only connection of their
// own: metrics.db is in WAL mode, where a reader sees what is committed, whatever the writer waits
// for. SQLite stays in databases.c, metrics_db.c, metrics_query.c, salvage_copy.c, check.c and
// db.c.
//
// Group commit: a writer takes everything that was handed over since its last commit and commits it
// as one transaction. So a busy coordinator pays one fsync for many jobs, and a serial client pays
// one fsync for his. metrics.db gathers for up to a second. A query ends that: it is read when what
// was handed over before it is committed, so that it shows the newest points. It waits two seconds
// at most, and not at all while the disk refuses or such a commit is late: then it is read from
// what is committed.
//
// Failure: a commit that fails (disk full) is rolled back, tried again every second and logged
// once; meanwhile nothing is acknowledged. td_databases_failing says so, for health. Bounds:
// batches waiting are bounded by their makers, which wait for acknowledgements; queries by
// TD_DISK_MAX_JOBS.
//
// The files are looked at after each commit, and twice a second while there is none. One that was
// deleted, moved or unmounted takes what is written and keeps nothing of it. That is a failure as a
// full disk is, until the file is back.
//
// Schema: the table `schema` holds one row per migration applied; a database of a newer build is
// refused (FAILED_PRECONDITION), never touched.
//
// Damage: SQLite notices a broken page when it reads one, not a changed byte in a value. So each
// row of state.db has a digest, held against it when it is loaded and by check.h. Rejected:
// SQLite's checksums of pages (cksumvfs), which no distribution's build has.
//
// The room, in reading order:
//
//   databases.h      over the calls of SQLite that all share (db.h)
//   schema.h         the tables of state.db, and how older ones become them
//   rows.h           what changed of credentials, until it is stored
//   metrics_db.h     what metrics.db holds
//   metrics_query.h  questions to it
//   metrics_sum.h    its sums over ranks
//   check.h          looks for damage
//   salvage.h        a start with what is readable of state.db
//   salvage_copy.h   its reader
//   salvage_pages.h  rows that SQLite finds no way to

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/shell/databases/metrics_query.h"

struct td_loop;
struct td_databases;

struct td_databases_options {
    const char *dir;
    bool salvage; // state.db is read as far as it can be: salvage.h
    // From the loop: every batch up to and including ticket is on disk. Also when only
    // td_databases_failing has changed.
    void (*on_committed)(uint64_t ticket, void *arg);
    // From the loop: these points are on disk; they die when it returns.
    void (*on_points)(const struct td_points *points, void *arg);
    // From the loop: the points of this job are gone from the disk.
    void (*on_forgotten)(const char *job, void *arg);
    void *arg;
};

// Opens or makes both, migrates, counts the incarnation up, starts the threads. A metrics.db that
// is damaged is moved aside and said; a damaged state.db is DATA_LOSS, unless it is salvaged.
TD_MUST_USE td_status td_databases_open(struct td_loop *loop,
                                        const struct td_databases_options *options,
                                        struct td_databases **out_store);
// Commits what was handed over (at most one try if the disk is full), answers the queries that are
// left, joins the threads. No callback comes after it.
void td_databases_close(struct td_databases *s);
TD_DEFINE_AUTO(td_databases, td_databases_close);

uint64_t td_databases_incarnation(const struct td_databases *s);
// The last commit of one of the two failed.
bool td_databases_failing(const struct td_databases *s);
// state.db is the one.
bool td_databases_state_failing(const struct td_databases *s);
// Why, "state.db: database or disk is full"; "": none fails.
enum { TD_DB_STORE_WHY = 256 };
void td_databases_why(struct td_databases *s, char out[TD_DB_STORE_WHY]);
// Last commit of state.db took this long; for the curious.
int64_t td_databases_commit_ns(const struct td_databases *s);

// ---- loading, before the first commit -----------------------------------------------------------
typedef td_status td_databases_row_fn(enum td_record_kind kind, const char *key, const char *body,
                                      void *arg);
// Every row that the core has: all kinds but tokens, members and lines of the audit log.
TD_MUST_USE td_status td_databases_load(struct td_databases *s, td_databases_row_fn *row,
                                        void *arg);
// The rows of one kind; before the first commit, too.
TD_MUST_USE td_status td_databases_load_table(struct td_databases *s, enum td_record_kind kind,
                                              td_databases_row_fn *row, void *arg);
struct td_cursor_loader; // metrics_db.h
TD_MUST_USE td_status td_databases_load_cursors(struct td_databases *s,
                                                const struct td_cursor_loader *to);
// Before the first commit: what was loaded of metrics.db showed damage. Moves it aside, logs that,
// begins an empty one.
TD_MUST_USE td_status td_databases_renew_metrics(struct td_databases *s, td_status take_why);
// The last value of each series of a job.
TD_MUST_USE td_status td_databases_load_last(struct td_databases *s, const char *job,
                                             void (*last)(struct td_metric_last *m, void *arg),
                                             void *arg);

// ---- commits ------------------------------------------------------------------------------------
// Tickets count up. Takes the list.
void td_databases_commit(struct td_databases *s, struct td_record *take_records, uint64_t ticket);
void td_databases_points(struct td_databases *s, struct td_points *take_points);
// The points that were given are committed soon, without more being gathered.
void td_databases_hurry(struct td_databases *s);
// All points of a job go; on_forgotten says when.
void td_databases_forget(struct td_databases *s, const char *job);

// ---- queries ------------------------------------------------------------------------------------
// The query is the caller's until it is given here, and again from done on; then
// td_databases_query_destroy. If too many wait, done has RESOURCE_EXHAUSTED.
void td_databases_query(struct td_databases *s, struct td_databases_query *take_query);

#endif
