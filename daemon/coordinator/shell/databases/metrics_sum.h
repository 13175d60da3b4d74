#ifndef TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_SUM_H
#define TRAIND_DAEMON_COORDINATOR_SHELL_DATABASES_METRICS_SUM_H

// Sums over ranks in metrics.db, exact (lib/base/floats/exact_sum.h): points of ranks come in any
// order, and the same job shall show the same digits each time.
//
// A sum is two columns: its value, which queries read, and the doubles that make it exact, as a
// blob of them, the largest first. NULL where the value is exact, as that of one rank is, and in
// rows of before. NaN is NULL, as everywhere in SQLite. Thread: the connection's.

#include "daemon/coordinator/shell/databases/db.h"
#include "lib/base/floats/exact_sum.h"

// For the connection: exact_sum(value, rest, x) is the new value, exact_rest(value, rest, x) the
// new rest. SQLITE_OK, or what SQLite says.
int td_metrics_sum_register(sqlite3 *db);
// Of a row that has sum, sum_rest, count and count_rest from column `first` on. False: no memory.
bool td_metrics_sum_mean(sqlite3_stmt *row, int first, struct td_exact_mean *out_mean);

#endif
