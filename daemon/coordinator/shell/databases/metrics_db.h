#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_DB_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_DB_H

// What metrics.db holds: series by job and name, their points merged over ranks, and how far each
// rank's points were merged (cursors). The long names that a rank's points up to there defined are
// stored with its cursor: what comes next refers to them (lib/attempt/metric_names.h). Sums over
// ranks are exact (metrics_sum.h). Questions about it: metrics_query.h. Thread: the one that owns
// the connection (databases.h). The caller begins and commits.

#include <sqlite3.h>

#include "daemon/coordinator/core/model/exchange.h"

struct td_metrics_db {
    const char *name; // "metrics.db"
    sqlite3 *db;      // the caller closes it, also after a failure
    sqlite3_stmt *add_series, *find_series, *add_point, *put_cursor, *put_name;
};

// Opens, migrates, prepares. DATA_LOSS: it is damaged.
TD_MUST_USE td_status td_metrics_db_open(const char *dir, const char *name,
                                         struct td_metrics_db *m);
// The statements go.
void td_metrics_db_finish(struct td_metrics_db *m);
// Both answer SQLITE_OK, or what SQLite says.
int td_metrics_db_put(struct td_metrics_db *m, const struct td_points *p);
int td_metrics_db_forget(struct td_metrics_db *m, const char *job);
// Who takes up the cursors: all of them, then all names in the order of their numbers. A name with
// the number UINT32_MAX is none: earlier names of that rank were not kept.
struct td_cursor_loader {
    void (*offset)(const char *job, uint32_t attempt, uint32_t rank, uint64_t offset, void *arg);
    void (*name)(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                 const char *name, void *arg);
    void *arg;
};
TD_MUST_USE td_status td_metrics_db_load_cursors(struct td_metrics_db *m,
                                                 const struct td_cursor_loader *to);
// The last value of each series of a job but for those of its devices.
TD_MUST_USE td_status td_metrics_db_load_last(struct td_metrics_db *m, const char *job,
                                              void (*last)(struct td_metric_last *m, void *arg),
                                              void *arg);

#endif
