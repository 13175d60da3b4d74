// The coordinator makes pictures of as many points as there are dots, so that a job of a million
// steps is as cheap to draw as a short one.

#include "client/metrics/metrics_plot.h"

#include <stdio.h>
#include <string.h>

#include "client/screen/print.h"
#include "client/screen/screen.h"
#include "lib/base/arena.h"
#include "lib/base/files/files.h"

static const char *const losses[] = {"train_loss_step", "train_loss_epoch", "val_loss"};

void td_metrics_plot_init(struct td_plot *p, struct td_session *s) {
    int rows;
    *p = (struct td_plot){.utf8 = td_screen_is_utf8(), .color = s->config.color_out};
    td_screen_size(STDOUT_FILENO, &p->columns, &rows);
}

static td_status read_pictures(struct td_session *s, const struct td_plot *p, const char *job,
                               size_t n_names, const char *const *names,
                               struct td_series **out_series) {
    Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
    request.job = td_unconst(job);
    request.n_names = n_names;
    request.names = td_unconst(names);
    request.from_step = s->flags->from_step;
    request.to_step = s->flags->to_step;
    request.picture_points = (uint32_t)td_plot_dots(p);
    return td_series_read(s, &request, out_series);
}

static bool has_points(const struct td_series *series) {
    const Traind__V1__QueryMetricsResponse *r = td_series_get(series);
    for (size_t i = 0; i < r->n_series; i++) {
        if (r->series[i]->n_points) return true;
    }
    return false;
}

td_status td_metrics_plot_read(struct td_session *s, const struct td_plot *p, const char *job,
                               size_t n_names, const char *const *names,
                               struct td_series **out_series) {
    TD_AUTO(td_series) *found = NULL;
    if (n_names) return read_pictures(s, p, job, n_names, names, out_series);
    TD_TRY(read_pictures(s, p, job, TD_COUNTOF(losses), losses, &found));
    if (!has_points(found)) {
        td_series_destroy(td_steal(found));
        TD_TRY(read_pictures(s, p, job, 0, NULL, &found));
    }
    *out_series = td_steal(found);
    return TD_OK;
}

td_status td_metrics_plot_curve(const Traind__V1__Series *series, const char *label,
                                struct td_arena *arena, struct td_plot_series *out_curve) {
    double *x = td_arena_array(arena, series->n_points + 1, sizeof *x);
    double *y = td_arena_array(arena, series->n_points + 1, sizeof *y);
    if (!x || !y) return td_fail_oom();
    for (size_t i = 0; i < series->n_points; i++) {
        x[i] = series->points[i]->step;
        y[i] = series->points[i]->value;
    }
    *out_curve = (struct td_plot_series){.label = label, .x = x, .y = y, .n = series->n_points};
    return TD_OK;
}

// Several series share the axes.
td_status td_metrics_plot(struct td_session *s, const struct td_flags *f) {
    struct td_plot plot;
    struct td_plot_series curve[TD_PLOT_SERIES];
    size_t n = 0, n_more = 0;
    TD_AUTO(td_series) *series = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)1 << 20);
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    TD_TRY(td_session_open(s));
    td_metrics_plot_init(&plot, s);
    TD_TRY(td_metrics_plot_read(s, &plot, f->args[0], (size_t)f->n_args - 1, &f->args[1], &series));
    const Traind__V1__QueryMetricsResponse *r = td_series_get(series);
    TD_TRY(td_series_check_names(s, f, r));
    for (size_t i = 0; i < r->n_series; i++) {
        if (!r->series[i]->n_points) continue;
        n_more += n == TD_PLOT_SERIES;
        if (n == TD_PLOT_SERIES) continue;
        TD_TRY(td_metrics_plot_curve(r->series[i], r->series[i]->name, arena, &curve[n]));
        td_plot_widen(&plot, &curve[n++]);
    }
    if (n_more) {
        td_print(stderr, "trainctl: %zu series more than the %d that a plot shows; name some\n",
                 n_more, TD_PLOT_SERIES);
    }
    if (!n) {
        td_print(stderr, "trainctl: there are no points of %s to draw\n", f->args[0]);
        return TD_OK;
    }
    TD_TRY(td_plot_draw(&plot, curve, n, &text));
    return td_fs_write_stdout(text.data, text.len);
}
