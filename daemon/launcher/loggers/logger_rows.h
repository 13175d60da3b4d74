#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_ROWS_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_ROWS_H

// Rows of a logger: the points of several ranks, put together by step.
//
// A cell is a metric at a step. Its value is what the coordinator shows, to the last digit. That is
// sum / count over what the ranks reported of it, or the last value of a metric that does not
// merge.
//
// A row is closed when every rank has gone on to a later step. Until then a cell is shown only
// when all ranks have reported it. A point that comes after its row was closed makes another row of
// that step, a late one. It is closed when all ranks have reported what is in it, or have reported
// something else 2 s later.
//
// What a device of a rank does (TD_METRIC_DEVICE) does not keep a row open, and is not waited for.
// It is shown when its row is closed. It says nothing about how far its rank is.
//
// Bounds: TD_LOG_ROWS open rows, of which the oldest is closed for another; TD_LOG_CELLS cells in
// a row, further metrics are dropped and counted. Devices have TD_LOG_DEVICE_CELLS beside them, and
// what has no room there is left out. Thread: the logger's.

#include "lib/attempt/metric_names.h"
#include "traind/status.h"

enum {
    TD_LOG_ROWS = 2048,
    TD_LOG_CELLS = 128,
    TD_LOG_DEVICE_CELLS = 40, // 8 devices
    TD_LOG_VALUES = TD_LOG_CELLS + TD_LOG_DEVICE_CELLS,
};

struct td_log_value {
    char name[TD_METRIC_NAME_BYTES];
    double value;
};
struct td_log_row {
    int64_t step, epoch;
    int64_t real_ns; // of its newest point
    size_t n;
    struct td_log_value value[TD_LOG_VALUES];
};

struct td_log_open_row;
struct td_log_rows {
    int32_t n_ranks;
    int64_t *newest; // (n_ranks) the latest step of each; INT64_MIN: it said nothing
    struct td_log_open_row *first, *last;
    size_t n;
    uint64_t dropped;  // points past TD_LOG_CELLS
    int64_t latest_ns; // when the newest point was made, real time
};

TD_MUST_USE td_status td_log_rows_init(struct td_log_rows *t, int32_t n_ranks);
void td_log_rows_finish(struct td_log_rows *t); // what is open is gone
// rank_idx below n_ranks. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_log_rows_add(struct td_log_rows *t, int32_t rank_idx,
                                      const struct td_metric_point *p);

enum td_log_rows_take_flags {
    TD_LOG_TAKE_ALL = 1,     // no rank says anything more: all rows are closed
    TD_LOG_TAKE_PRESENT = 2, // ranks that said nothing yet are not waited for
};
// The next row to be written: each that is closed, then once after a change the oldest open one.
// False: there is none.
bool td_log_rows_take(struct td_log_rows *t, int flags, struct td_log_row *out_row);

#endif
