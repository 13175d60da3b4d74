// See the header.

#include "daemon/coordinator/shell/databases/metrics_sum.h"

#include <math.h>
#include <string.h>

#include "lib/base/base.h"

static double real_of(sqlite3_value *v) {
    return sqlite3_value_type(v) == SQLITE_NULL ? (double)NAN : sqlite3_value_double(v);
}

static void read_sum(sqlite3_value *value, sqlite3_value *rest, struct td_exact_sum *io_sum) {
    td_exact_sum_add(io_sum, real_of(value));
    const char *bytes = sqlite3_value_blob(rest);
    size_t n = (size_t)sqlite3_value_bytes(rest) / sizeof(double);
    for (size_t i = 0; bytes && i < n; i++) {
        double part;
        memcpy(&part, bytes + i * sizeof part, sizeof part);
        td_exact_sum_add(io_sum, part);
    }
}

bool td_metrics_sum_mean(sqlite3_stmt *row, int first, struct td_exact_mean *out_mean) {
    sqlite3_value *v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = sqlite3_column_value(row, first + i);
    }
    *out_mean = (struct td_exact_mean){.sum = real_of(v[0]), .count = real_of(v[2]), .any = true};
    if (sqlite3_value_type(v[1]) == SQLITE_NULL && sqlite3_value_type(v[3]) == SQLITE_NULL) {
        return true;
    }
    out_mean->exact = td_calloc(2, sizeof *out_mean->exact);
    if (!out_mean->exact) return false;
    read_sum(v[0], v[1], &out_mean->exact[0]);
    read_sum(v[2], v[3], &out_mean->exact[1]);
    return true;
}

static struct td_exact_sum sum_of(sqlite3_value **arg) {
    struct td_exact_sum sum = {0};
    read_sum(arg[0], arg[1], &sum);
    td_exact_sum_add(&sum, real_of(arg[2]));
    return sum;
}

static void exact_sum(sqlite3_context *c, int n, sqlite3_value **arg) {
    (void)n;
    const struct td_exact_sum sum = sum_of(arg);
    sqlite3_result_double(c, td_exact_sum_value(&sum));
}

static void exact_rest(sqlite3_context *c, int n, sqlite3_value **arg) {
    (void)n;
    double part[TD_EXACT_PARTS];
    const struct td_exact_sum sum = sum_of(arg);
    size_t parts = td_exact_sum_parts(&sum, part);
    if (parts < 2) return; // NULL
    sqlite3_result_blob(c, part + 1, (int)((parts - 1) * sizeof *part), SQLITE_TRANSIENT);
}

int td_metrics_sum_register(sqlite3 *db) {
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    int rc = sqlite3_create_function(db, "exact_sum", 3, flags, NULL, exact_sum, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    return sqlite3_create_function(db, "exact_rest", 3, flags, NULL, exact_rest, NULL, NULL);
}
