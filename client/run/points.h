#ifndef TRAIND_CLIENT_RUN_POINTS_H
#define TRAIND_CLIENT_RUN_POINTS_H

// Points: what the ranks measured, from their segment files into metrics.jsonl, and a line an
// epoch.
//
// A point of a step is complete when every rank has one of a later step, or when the attempt is
// over. metrics.jsonl has a line for each:
// {"step":7,"epoch":0,"name":"train_loss_step","value":0.31}. A value that is no finite number is
// one of the texts "nan", "inf" and "-inf". At most PENDING_MAX points wait; past that the oldest
// are taken as they are.

#include "client/screen/progress.h"
#include "lib/attempt/metric_names.h"
#include "lib/base/buf.h"

enum { TD_POINTS_NAMES = 128, TD_POINTS_SHOWN = 4 };

struct td_run_points {
    const char *log_dir;
    int fd; // metrics.jsonl, appending
    int32_t n_ranks;
    struct td_run_points_rank *ranks;
    struct td_run_points_pending *pending;
    size_t n_pending;
    struct td_buf out;
    struct td_progress_line *progress;
    int32_t epoch; // that the shown values are of; -1: none yet
    bool has[TD_POINTS_SHOWN];
    double shown[TD_POINTS_SHOWN];
    struct {
        char name[TD_METRIC_NAME_BYTES];
        double value;
    } last[TD_POINTS_NAMES];
    size_t n_last;
};

TD_MUST_USE td_status td_run_points_open(struct td_run_points *p, const char *dir,
                                         const char *log_dir, int32_t n_ranks,
                                         struct td_progress_line *progress);
void td_run_points_close(struct td_run_points *p);
// Drops lines of later steps than `step`: the attempt trains them again.
TD_MUST_USE td_status td_run_points_cut(struct td_run_points *p, const char *dir, int64_t step);
// Reads what is new. over: nothing more will come.
TD_MUST_USE td_status td_run_points_read(struct td_run_points *p, bool over);

#endif
