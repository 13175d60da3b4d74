// metrics: points of the named series by step; without names the last value of each. --points gives
// a picture of each, --plot its curve (metrics_plot.c). --follow shows what comes until the job has
// ended (metrics_follow.c). Values are global: the coordinator has merged the ranks' sums and
// counts, and RANKS says how many have reported so far.
//
// All pages are read before anything is printed (series.c), because the table's columns are as wide
// as their widest cell and json is one value. What is missing is said on stderr.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/metrics/metrics.h"
#include "client/metrics/metrics_follow.h"
#include "client/metrics/metrics_plot.h"
#include "client/metrics/metrics_rows.h"
#include "client/metrics/series.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "lib/base/files/files.h"

// ---- what is missing, on stderr -----------------------------------------------------------------
// A name without a point may come yet, or have points of other steps.
static void say_absent(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    for (int a = 1; a < f->n_args; a++) {
        const Traind__V1__Series *found = td_series_find(r, f->args[a]);
        if (found && found->n_points) continue;
        td_print(stderr,
                 "trainctl: no points of '%s' here; `trainctl metrics %s` lists what there is\n",
                 f->args[a], f->args[0]);
    }
}

static uint32_t last_step(const Traind__V1__QueryMetricsResponse *r) {
    uint32_t step = 0;
    for (size_t i = 0; i < r->n_series; i++) {
        const Traind__V1__Series *x = r->series[i];
        if (x->n_points) step = TD_MAX(step, x->points[x->n_points - 1]->step);
    }
    return step;
}

static void say_missing(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    uint64_t dropped = r->dropped_points;
    for (size_t i = 0; i < r->n_series; i++) { // an older daemon says it of each, and means all
        dropped = TD_MAX(dropped, (uint64_t)r->series[i]->dropped);
    }
    if (dropped) {
        td_print(stderr,
                 "trainctl: %" PRIu64 " values of this job's metrics, all names together, were not "
                 "kept; `trainctl describe` has notes on them\n",
                 dropped);
    }
    if (r->next_page_token[0]) {
        td_print(stderr,
                 "trainctl: only the points up to step %" PRIu32
                 " are shown; go on with --from, or "
                 "ask for a picture with --points\n",
                 last_step(r));
    }
    for (size_t i = 0; i < r->n_more_names; i++) {
        td_print(stderr, "trainctl: series %s is not shown; ask for it by name\n",
                 r->more_names[i]);
    }
    for (size_t i = 0; i < r->n_awaited; i++) {
        const Traind__V1__MetricsAwaited *x = r->awaited[i];
        td_print(stderr, "trainctl: node %s has yet to send %" PRIu64 " point%s%s\n", x->node,
                 x->points, x->points == 1 ? "" : "s", x->away ? "; it is not connected" : "");
    }
    say_absent(f, r);
}

// ---- showing ------------------------------------------------------------------------------------
static td_status add_point(struct td_table *t, const char *name, const Traind__V1__MetricPoint *p) {
    char text[TD_FORMAT_VALUE_BYTES];
    TD_TRY(td_table_add(t, "%s", name));
    TD_TRY(td_table_add(t, "%" PRIu32, p->step));
    TD_TRY(td_table_add(t, "%" PRIu32, p->epoch));
    TD_TRY(td_table_add(t, "%" PRIu32, p->attempt));
    TD_TRY(td_table_add(t, "%s", td_format_value(p->value, text)));
    if (p->n_points) {
        TD_TRY(td_table_add(t, "%s", td_format_value(p->min, text)));
        TD_TRY(td_table_add(t, "%s", td_format_value(p->max, text)));
        TD_TRY(td_table_add(t, "%" PRIu32, p->n_points));
    }
    TD_TRY(td_table_add(t, "%" PRIu32, p->n_ranks));
    return td_table_add(t, "%s", p->time);
}

static td_status show_table(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)1 << 30, &arena));
    static const struct td_column points[] = {
        {"NAME", TD_COLUMN_TEXT},     {"STEP", 0},  {"EPOCH", TD_COLUMN_SPARE},
        {"ATTEMPT", TD_COLUMN_MINOR}, {"VALUE", 0}, {"RANKS", TD_COLUMN_MINOR},
        {"TIME", TD_COLUMN_MINOR}};
    static const struct td_column picture[] = {{"NAME", TD_COLUMN_TEXT},
                                               {"STEP", 0},
                                               {"EPOCH", TD_COLUMN_SPARE},
                                               {"ATTEMPT", TD_COLUMN_MINOR},
                                               {"MEAN", 0},
                                               {"MIN", TD_COLUMN_SPARE},
                                               {"MAX", TD_COLUMN_SPARE},
                                               {"POINTS", TD_COLUMN_MINOR},
                                               {"RANKS", TD_COLUMN_MINOR},
                                               {"TIME", TD_COLUMN_MINOR}};
    struct td_table t;
    td_table_init(&t, arena, f->points ? TD_COUNTOF(picture) : TD_COUNTOF(points),
                  f->points ? picture : points);
    for (size_t i = 0; i < r->n_series; i++) {
        const Traind__V1__Series *series = r->series[i];
        for (size_t k = 0; k < series->n_points; k++) {
            TD_TRY(add_point(&t, series->name, series->points[k]));
        }
    }
    return td_table_print(&t, f->wide);
}

static td_status show_csv(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)1 << 30);
    TD_TRY(td_csv_head(f->points, &text));
    for (size_t i = 0; i < r->n_series; i++) {
        const Traind__V1__Series *series = r->series[i];
        for (size_t k = 0; k < series->n_points; k++) {
            TD_TRY(td_csv_row(series->name, series->points[k], f->points, &text));
        }
    }
    return td_fs_write_stdout(text.data, text.len);
}

static td_status show(struct td_session *s, const struct td_flags *f,
                      const Traind__V1__QueryMetricsResponse *r) {
    if (f->output == TD_OUTPUT_TABLE) return show_table(f, r);
    if (f->output == TD_OUTPUT_CSV) return show_csv(f, r);
    if (f->output == TD_OUTPUT_JSON) return td_session_print_json(s, &r->base);
    for (size_t i = 0; i < r->n_series; i++) {
        if (f->output == TD_OUTPUT_NAME) {
            td_print(stdout, "%s\n", r->series[i]->name);
        } else {
            TD_TRY(td_session_print_json(s, &r->series[i]->base));
        }
    }
    return TD_OK;
}

static td_status check(const struct td_flags *f) {
    if (f->plot && (f->follow || f->points || f->output != TD_OUTPUT_TABLE)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--plot draws what there is now; --follow, --points and -o exclude it");
    }
    if (f->follow && (f->points || f->output == TD_OUTPUT_JSON || f->output == TD_OUTPUT_NAME)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--follow prints points as they come: -o table, csv or jsonl, and no "
                       "--points");
    }
    return TD_OK;
}

td_status td_cmd_metrics(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    const bool everything = td_output_is_json(f->output) || f->output == TD_OUTPUT_CSV;
    const bool last_only = f->n_args == 1 && !f->points && !everything;
    TD_TRY(check(f));
    if (f->plot) return td_metrics_plot(s, f);
    if (f->follow) return td_metrics_follow(s, f, last_only);
    Traind__V1__QueryMetricsRequest request;
    td_series_request_init(f, &request);
    request.picture_points = f->points;
    request.max_points = last_only;
    TD_AUTO(td_series) *series = NULL;
    TD_TRY(td_series_read(s, &request, &series));
    TD_TRY(td_series_check_names(s, f, td_series_get(series)));
    say_missing(f, td_series_get(series));
    return show(s, f, td_series_get(series));
}
