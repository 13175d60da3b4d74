// See the header.

#include "client/run/points.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "lib/attempt/segments.h"
#include "lib/base/floats/exact_sum.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named_output.h"
#include "lib/base/json.h"

enum { PENDING_MAX = 1 << 16, RECORDS = 512, OUT_MAX = 1 << 20, FILE_MAX = 1 << 30 };

static const char *const shown[] = {"train_loss_epoch", "train_accuracy_epoch", "val_loss",
                                    "val_accuracy"};
_Static_assert(TD_COUNTOF(shown) == TD_POINTS_SHOWN, "a value for each");

struct td_run_points_rank {
    int fd;
    int64_t step; // of its newest point; -1: none
    struct td_metric_names names;
};

struct td_run_points_pending {
    char name[TD_METRIC_NAME_BYTES];
    int32_t step, epoch;
    struct td_exact_mean mean;
};

static td_status open_metrics(struct td_run_points *p, const char *dir) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/metrics.jsonl", dir));
    td_auto_close(&p->fd);
    p->fd = -1;
    return td_named_output_update(path, O_WRONLY | O_APPEND, 0644, &p->fd);
}

td_status td_run_points_open(struct td_run_points *p, const char *dir, const char *log_dir,
                             int32_t n_ranks, struct td_progress_line *progress) {
    *p = (struct td_run_points){
        .log_dir = log_dir, .fd = -1, .n_ranks = n_ranks, .progress = progress, .epoch = -1};
    td_buf_init(&p->out, OUT_MAX);
    p->ranks = td_calloc((size_t)n_ranks, sizeof *p->ranks);
    p->pending = td_calloc(PENDING_MAX, sizeof *p->pending);
    if (!p->ranks || !p->pending) return td_fail_oom();
    for (int32_t i = 0; i < n_ranks; i++) {
        p->ranks[i] = (struct td_run_points_rank){.fd = -1, .step = -1};
    }
    return open_metrics(p, dir);
}

void td_run_points_close(struct td_run_points *p) {
    for (int32_t i = 0; p->ranks && i < p->n_ranks; i++) {
        td_auto_close(&p->ranks[i].fd);
        td_metric_names_finish(&p->ranks[i].names);
    }
    for (size_t i = 0; i < p->n_pending; i++) {
        td_exact_mean_finish(&p->pending[i].mean);
    }
    p->n_pending = 0;
    free(p->ranks);
    free(p->pending);
    td_buf_finish(&p->out);
    td_auto_close(&p->fd);
    p->fd = -1;
}

// Of {"step":7,...}; -1: it is no whole line of ours. Not by sscanf, which measures all the text
// after a line for each line.
static int64_t step_of(const char *line, const char *end) {
    static const char head[] = "{\"step\":";
    const size_t n = sizeof head - 1;
    if ((size_t)(end - line) <= n || memcmp(line, head, n) != 0 || end[-1] != '}') return -1;
    char *after;
    long long step = strtoll(line + n, &after, 10);
    return after > line + n && *after == ',' ? step : -1;
}

td_status td_run_points_cut(struct td_run_points *p, const char *dir, int64_t step) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text, kept;
    td_buf_init(&text, FILE_MAX);
    td_buf_init(&kept, FILE_MAX);
    TD_TRY(td_fs_path(path, "%s/metrics.jsonl", dir));
    TD_TRY(td_fs_read(path, FILE_MAX, &text));
    for (const char *at = td_buf_cstr(&text), *end; (end = strchr(at, '\n')); at = end + 1) {
        int64_t of = step_of(at, end);
        if (of >= 0 && of <= step) TD_TRY(td_buf_append(&kept, at, (size_t)(end + 1 - at)));
    }
    TD_TRY(td_fs_write(path, kept.data ? kept.data : "", kept.len, 0644, TD_FS_WRITE_DURABLE));
    return open_metrics(p, dir);
}

// ---- epochs -------------------------------------------------------------------------------------
// What it measured of its training is the last that an epoch logs: without it, it is not over.
static void say_epoch(struct td_run_points *p) {
    const char *before = ": ";
    char text[TD_FORMAT_VALUE_BYTES];
    if (!p->has[0]) return;
    td_progress_line_end(p->progress);
    td_print(stderr, "epoch %d", p->epoch);
    for (size_t i = 0; i < TD_POINTS_SHOWN; i++) {
        if (!p->has[i]) continue;
        td_print(stderr, "%s%s %s", before, shown[i], td_format_value(p->shown[i], text));
        before = ", ";
    }
    td_print(stderr, "\n");
}

static void show(struct td_run_points *p, const struct td_run_points_pending *x, double value) {
    if (x->epoch > p->epoch) {
        say_epoch(p);
        memset(p->has, 0, sizeof p->has);
        p->epoch = x->epoch;
    }
    for (size_t i = 0; i < TD_POINTS_SHOWN && x->epoch == p->epoch; i++) {
        if (strcmp(x->name, shown[i]) != 0) continue;
        p->has[i] = true;
        p->shown[i] = value;
    }
}

static void remember(struct td_run_points *p, const char *name, double value) {
    size_t i = 0;
    while (i < p->n_last && strcmp(p->last[i].name, name) != 0) {
        i++;
    }
    if (i == TD_POINTS_NAMES) return;
    if (i == p->n_last) snprintf(p->last[p->n_last++].name, sizeof p->last[i].name, "%s", name);
    p->last[i].value = value;
}

// ---- points -------------------------------------------------------------------------------------
static td_status flush(struct td_run_points *p) {
    TD_TRY(td_fd_write_all(p->fd, p->out.data, p->out.len, "metrics.jsonl"));
    td_buf_clear(&p->out);
    return TD_OK;
}

static td_status give(struct td_run_points *p, struct td_run_points_pending *x) {
    const double value = td_exact_mean_value(&x->mean);
    td_exact_mean_finish(&x->mean);
    if (p->out.len > OUT_MAX / 2) TD_TRY(flush(p));
    TD_TRY(td_buf_printf(&p->out, "{\"step\":%d,\"epoch\":%d,\"name\":", x->step, x->epoch));
    TD_TRY(td_json_print_string(x->name, strlen(x->name), &p->out));
    TD_TRY(td_buf_str(&p->out, ",\"value\":"));
    TD_TRY(td_json_print_value(value, &p->out));
    TD_TRY(td_buf_str(&p->out, "}\n"));
    show(p, x, value);
    remember(p, x->name, value);
    return TD_OK;
}

// Those of steps before `step`, in the order in which they came.
static td_status give_before(struct td_run_points *p, int64_t step) {
    size_t kept = 0;
    for (size_t i = 0; i < p->n_pending; i++) {
        struct td_run_points_pending x = p->pending[i];
        p->pending[i].mean = (struct td_exact_mean){0}; // it is in one place only
        if (x.step < step) {
            TD_TRY(give(p, &x));
        } else {
            p->pending[kept++] = x;
        }
    }
    p->n_pending = kept;
    return TD_OK;
}

static td_status add(struct td_run_points *p, struct td_run_points_rank *rank,
                     const struct td_metric_point *m) {
    if (m->step > rank->step) rank->step = m->step;
    for (size_t i = p->n_pending; i-- > 0;) {
        struct td_run_points_pending *x = &p->pending[i];
        if (x->step != m->step || strcmp(x->name, m->name) != 0) continue;
        if (!(m->flags & TD_METRIC_SUM_COUNT)) td_exact_mean_finish(&x->mean);
        return td_exact_mean_add(&x->mean, m->sum, m->count) ? TD_OK : td_fail_oom();
    }
    if (p->n_pending == PENDING_MAX) TD_TRY(give_before(p, p->pending[PENDING_MAX / 2].step + 1));
    struct td_run_points_pending *x = &p->pending[p->n_pending++];
    *x = (struct td_run_points_pending){.step = m->step, .epoch = m->epoch};
    memcpy(x->name, m->name, sizeof x->name);
    return td_exact_mean_add(&x->mean, m->sum, m->count) ? TD_OK : td_fail_oom();
}

static td_status read_rank(struct td_run_points *p, int32_t idx) {
    struct td_run_points_rank *rank = &p->ranks[idx];
    struct td_metric_record records[RECORDS];
    if (rank->fd < 0) {
        char path[TD_FS_PATH_BYTES];
        snprintf(path, sizeof path, "%.4000s/" TD_SEGMENT_METRICS, p->log_dir, (unsigned)idx);
        rank->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (rank->fd < 0) return td_fs_fail("open", path);
    }
    for (;;) {
        ssize_t n = read(rank->fd, records, sizeof records);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fail_errno(TD_DATA_LOSS, "read the points of rank %d", idx);
        size_t whole = (size_t)n / sizeof *records;
        off_t rest = (off_t)((size_t)n % sizeof *records);
        if (rest) (void)lseek(rank->fd, -rest, SEEK_CUR);
        for (size_t i = 0; i < whole; i++) {
            struct td_metric_point m;
            if (td_metric_names_take(&rank->names, &records[i], &m) != TD_METRIC_IS_POINT) continue;
            TD_TRY(add(p, rank, &m));
        }
        if (whole < RECORDS) return TD_OK;
    }
}

td_status td_run_points_read(struct td_run_points *p, bool over) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < p->n_ranks; i++) {
        TD_TRY(read_rank(p, i));
        least = TD_MIN(least, p->ranks[i].step);
    }
    TD_TRY(give_before(p, over ? INT64_MAX : least));
    if (over) say_epoch(p);
    return flush(p);
}
