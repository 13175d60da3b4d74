#ifndef TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_SINK_H
#define TRAIND_DAEMON_LAUNCHER_LOGGERS_LOGGER_SINK_H

// Sink: a kind of file that a logger writes rows into. csv and tensorboard are the two.
//
// A row may be put again with more values while it is open, and once more after its file was opened
// again. A sink keeps what it has of that step, and nothing is in its file twice. What is in the
// file is whole at any time that somebody looks: a write that fails half way is cut back.
// Thread: the logger's. Errors name the path.

#include "daemon/launcher/loggers/logger_rows.h"
#include "daemon/launcher/loggers/step_set.h"
#include "lib/base/buf.h"

// What each begins with, so that one is not taken for another.
struct td_log_sink {
    uint32_t magic;
};

// How a file of an earlier attempt, or of an earlier open, is taken up.
struct td_log_open {
    const char *dir; // is there
    uint32_t attempt;
    bool fresh;   // the job begins: files that are there are replaced
    int64_t last; // what is there of later steps goes
};

struct td_log_sink_ops {
    const char *name; // as the spec has it
    td_status (*open)(const struct td_log_open *how, struct td_log_sink **out_sink);
    // Into memory, or further. Rows come in the order of their steps but for late ones. Values that
    // the file has at that step are passed over.
    td_status (*put)(struct td_log_sink *s, const struct td_log_row *row);
    td_status (*flush)(struct td_log_sink *s);
    void (*close)(struct td_log_sink *s); // accepts NULL; what was not flushed is gone
};

// What a metric is called in the files. `step` and `epoch` are columns of ours: a metric of one of
// these names is metric_step or metric_epoch, and one that is called so gets one more metric_.
enum { TD_LOG_COLUMN_BYTES = TD_METRIC_NAME_BYTES + 8 };
void td_log_column(const char *metric, char out[TD_LOG_COLUMN_BYTES]);

// For a sink's flush: the bytes at `at` of its file. What fails half way is cut back to there.
TD_MUST_USE td_status td_log_sink_write(int fd, const char *path, const struct td_buf *bytes,
                                        uint64_t at);

extern const struct td_log_sink_ops td_log_csv, td_log_tensorboard;

#endif
