// Points in, lines out. The consumer side is only used when nobody else drains the ring.

#include "engine/train/events/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"

// A launcher drains fifty times a second; one that was stopped is waited for so long.
#define DRAIN_PATIENCE_NS (5 * TD_NS_PER_S)

static void push(struct td_metrics *m, const char *name, int64_t step, int64_t epoch, double sum,
                 double count, uint32_t flags) {
    struct td_metric_point p = {
        .step = (int32_t)step,
        .epoch = (int32_t)epoch,
        .sum = isnan(sum) ? (double)NAN : sum, // without the sign that arithmetic left
        .count = count,
        .real_ns = td_real_now().ns,
        .flags = flags,
    };
    memcpy(p.name, name, strnlen(name, sizeof p.name - 1));
    (void)td_metric_names_push(&m->names, &m->ring, &p); // full: dropped and counted by the ring
}

void td_metrics_finish(struct td_metrics *m) {
    td_metric_names_finish(&m->names);
    td_metric_names_finish(&m->printed);
}

void td_metrics_mean(struct td_metrics *m, const char *name, int64_t step, int64_t epoch,
                     double sum, double count) {
    push(m, name, step, epoch, sum, count, TD_METRIC_SUM_COUNT);
}

void td_metrics_value(struct td_metrics *m, const char *name, int64_t step, int64_t epoch,
                      double value) {
    push(m, name, step, epoch, value, 1, 0);
}

uint64_t td_metrics_drops(const struct td_metrics *m) {
    return td_ring_drops(&m->ring);
}

uint32_t td_metrics_pass(struct td_metrics *m) {
    return m->launcher ? td_rank_page_pass(m->launcher) : 0;
}

uint32_t td_metrics_ask_drain(struct td_metrics *m) {
    return m->launcher ? td_rank_page_ask_drain(m->launcher) : 0;
}

td_status td_metrics_await_drain(struct td_metrics *m, uint32_t asked) {
    if (m->launcher) return td_rank_page_await_drain(m->launcher, asked, DRAIN_PATIENCE_NS);
    (void)td_metrics_print(m);
    return TD_OK;
}

static td_status append_line(struct td_buf *b, const struct td_metric_point *r) {
    TD_TRY(td_buf_str(b, "{\"name\":"));
    TD_TRY(td_json_print_string(r->name, strlen(r->name), b));
    TD_TRY(td_buf_printf(b, ",\"step\":%d,\"epoch\":%d,\"value\":", r->step, r->epoch));
    TD_TRY(td_json_print_value(r->count > 0 ? r->sum / r->count : (double)NAN, b));
    if (r->flags & TD_METRIC_SUM_COUNT) {
        TD_TRY(td_buf_str(b, ",\"sum\":"));
        TD_TRY(td_json_print_value(r->sum, b));
        TD_TRY(td_buf_str(b, ",\"count\":"));
        TD_TRY(td_json_print_double(r->count, b));
    }
    TD_TRY(td_buf_printf(b, ",\"time_ns\":%lld}\n", (long long)r->real_ns));
    return TD_OK;
}

enum { PRINT_BATCH_BYTES = 64 << 10, LINE_BYTES_MAX = 1 << 10 };

size_t td_metrics_print(struct td_metrics *m) {
    TD_AUTO_BUF b;
    td_buf_init(&b, PRINT_BATCH_BYTES);
    struct td_metric_record r;
    struct td_metric_point p;
    size_t n = 0;
    for (bool more = true; more;) {
        td_status s = TD_OK;
        td_buf_clear(&b);
        while (!s && b.len + LINE_BYTES_MAX < PRINT_BATCH_BYTES) {
            more = td_ring_pop(&m->ring, &r);
            if (!more) break;
            if (td_metric_names_take(&m->printed, &r, &p) != TD_METRIC_IS_POINT) continue;
            s = append_line(&b, &p);
            n++;
        }
        if (!s && b.len) s = td_fd_write_all(STDOUT_FILENO, b.data, b.len, "stdout");
        if (s) more = false; // a closed stdout must not stop the training
        td_status_free(s);
    }
    return n;
}
