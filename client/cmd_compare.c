// compare: two jobs side by side: what their specs say differently, how far they came, and the last
// value of each metric. --plot draws a metric of both, one above the other on the same axes, so
// that heights can be compared without colours. Names choose the metrics of both parts.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/find_job.h"
#include "client/metrics_plot.h"
#include "client/print.h"
#include "client/progress.h"
#include "client/spec_diff.h"
#include "client/table.h"
#include "lib/base/fsio.h"

enum { LEFT, RIGHT, SIDES, CELL_BYTES = 4096 };

struct compared {
    struct td_session *session;
    const struct td_flags *flags;
    struct td_arena *arena;
    struct td_rpc_message *answer[SIDES];
    const Traind__V1__Job *job[SIDES];
    struct td_spec_difference *first;
};

static td_status ask_for_job(struct compared *c, int side) {
    static struct td_found_jobs found;
    Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
    found.n = 0;
    TD_TRY(td_find_jobs(c->session, c->flags->args[side], false, &found));
    request.id = found.id[0];
    TD_TRY(td_session_call(c->session, "/traind.v1.JobService/GetJob", &request.base,
                           &traind__v1__job__descriptor, &c->answer[side]));
    c->job[side] = (const Traind__V1__Job *)td_rpc_message_get(c->answer[side]);
    return TD_OK;
}

static td_status compare_specs(struct compared *c) {
    struct td_json *spec[SIDES];
    for (int i = 0; i < SIDES; i++) {
        const char *text = c->job[i]->spec_json;
        TD_TRY_CTX(td_json_parse(c->arena, text, strlen(text), &spec[i]), "the spec of job %s",
                   c->job[i]->id);
    }
    return td_spec_diff(c->arena, spec[LEFT], spec[RIGHT], &c->first);
}

// ---- metrics ------------------------------------------------------------------------------------
static bool is_wanted(const struct td_flags *f, const char *name) {
    for (int i = SIDES; i < f->n_args; i++) {
        if (strcmp(f->args[i], name) == 0) return true;
    }
    return f->n_args == SIDES;
}

// Calls fn for each metric that either job has, once.
typedef td_status each_metric(struct compared *c, const char *name, const bool has[SIDES],
                              const double value[SIDES], void *arg);

static td_status for_each_metric(struct compared *c, each_metric *fn, void *arg) {
    for (int side = 0; side < SIDES; side++) {
        const Traind__V1__Job *job = c->job[side];
        for (size_t i = 0; i < job->n_metrics; i++) {
            const char *name = job->metrics[i]->key;
            double value[SIDES] = {0};
            bool has[SIDES];
            has[LEFT] = td_job_metric(c->job[LEFT], name, &value[LEFT]);
            has[RIGHT] = td_job_metric(c->job[RIGHT], name, &value[RIGHT]);
            if ((side == RIGHT && has[LEFT]) || !is_wanted(c->flags, name)) continue;
            TD_TRY(fn(c, name, has, value, arg));
        }
    }
    return TD_OK;
}

// ---- as tables ----------------------------------------------------------------------------------
static void init_table(const struct compared *c, struct td_table *t, const char *first) {
    const struct td_column columns[] = {{first, TD_COLUMN_TEXT},
                                        {c->job[LEFT]->id, TD_COLUMN_TEXT},
                                        {c->job[RIGHT]->id, TD_COLUMN_TEXT}};
    td_table_init(t, c->arena, TD_COUNTOF(columns), columns);
}

static td_status add_value(struct td_table *t, const struct td_json *v) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)8 << 20);
    if (!v) return td_table_add(t, "-");
    if (v->kind == TD_JSON_STRING) return td_table_add(t, "%s", td_json_string(v, ""));
    TD_TRY(td_json_print(v, false, &text));
    return td_table_add(t, "%.*s", CELL_BYTES, td_buf_cstr(&text));
}

static td_status add_metric(struct compared *c, const char *name, const bool has[SIDES],
                            const double value[SIDES], void *arg) {
    struct td_table *t = arg;
    (void)c;
    TD_TRY(td_table_add(t, "%s", name));
    for (int i = 0; i < SIDES; i++) {
        TD_TRY(has[i] ? td_table_add(t, "%.6g", value[i]) : td_table_add(t, "-"));
    }
    return TD_OK;
}

static td_status show_tables(struct compared *c) {
    struct td_table specs, results;
    init_table(c, &specs, "SPEC");
    for (const struct td_spec_difference *d = c->first; d; d = d->next) {
        TD_TRY(td_table_add(&specs, "%s", d->key));
        TD_TRY(add_value(&specs, d->left));
        TD_TRY(add_value(&specs, d->right));
    }
    init_table(c, &results, "RESULT");
    TD_TRY(td_table_add(&results, "state"));
    TD_TRY(td_table_add(&results, "%s", td_job_state_word(c->job[LEFT]->state)));
    TD_TRY(td_table_add(&results, "%s", td_job_state_word(c->job[RIGHT]->state)));
    TD_TRY(td_table_add(&results, "step"));
    TD_TRY(td_table_add(&results, "%" PRIu32, c->job[LEFT]->global_step));
    TD_TRY(td_table_add(&results, "%" PRIu32, c->job[RIGHT]->global_step));
    TD_TRY(for_each_metric(c, add_metric, &results));
    if (c->first) {
        TD_TRY(td_table_print(&specs, c->flags->wide));
    } else {
        td_print(stdout, "the specs are equal\n");
    }
    td_print(stdout, "\n");
    TD_TRY(td_fs_flush_stdout()); // a table does not go through stdio
    return td_table_print(&results, c->flags->wide);
}

// ---- as JSON ------------------------------------------------------------------------------------
static bool set_sides(struct td_arena *a, struct td_json *to, struct td_json *left,
                      struct td_json *right) {
    return (!left || td_json_set(a, to, "left", left)) &&
           (!right || td_json_set(a, to, "right", right));
}

static td_status add_json_metric(struct compared *c, const char *name, const bool has[SIDES],
                                 const double value[SIDES], void *arg) {
    struct td_json *pair = td_json_new(c->arena, TD_JSON_OBJECT), *one[SIDES] = {NULL, NULL};
    for (int i = 0; i < SIDES; i++) {
        if (has[i]) one[i] = td_json_new_real(c->arena, value[i]);
        if (has[i] && !one[i]) return td_fail_oom();
    }
    const bool ok = pair && set_sides(c->arena, pair, one[LEFT], one[RIGHT]) &&
                    td_json_set(c->arena, arg, name, pair);
    return ok ? TD_OK : td_fail_oom();
}

static td_status add_json_specs(struct compared *c, struct td_json *list) {
    for (const struct td_spec_difference *d = c->first; d; d = d->next) {
        struct td_json *row = td_json_new(c->arena, TD_JSON_OBJECT), *one[SIDES] = {NULL, NULL};
        if (d->left && !(one[LEFT] = td_json_copy(c->arena, d->left))) return td_fail_oom();
        if (d->right && !(one[RIGHT] = td_json_copy(c->arena, d->right))) return td_fail_oom();
        const bool ok = row &&
                        td_json_set(c->arena, row, "key", td_json_new_string(c->arena, d->key)) &&
                        set_sides(c->arena, row, one[LEFT], one[RIGHT]) && td_json_push(list, row);
        if (!ok) return td_fail_oom();
    }
    return TD_OK;
}

static td_status show_json(struct compared *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    struct td_json *root = td_json_new(c->arena, TD_JSON_OBJECT);
    struct td_json *list = td_json_new(c->arena, TD_JSON_ARRAY);
    struct td_json *metrics = td_json_new(c->arena, TD_JSON_OBJECT);
    if (!root || !list || !metrics) return td_fail_oom();
    TD_TRY(add_json_specs(c, list));
    TD_TRY(for_each_metric(c, add_json_metric, metrics));
    const bool ok = set_sides(c->arena, root, td_json_new_string(c->arena, c->job[LEFT]->id),
                              td_json_new_string(c->arena, c->job[RIGHT]->id)) &&
                    td_json_set(c->arena, root, "spec", list) &&
                    td_json_set(c->arena, root, "metrics", metrics);
    if (!ok) return td_fail_oom();
    TD_TRY(td_json_print(root, c->flags->output == TD_OUTPUT_JSON, &text));
    TD_TRY(td_buf_str(&text, "\n"));
    return td_fd_write_all(STDOUT_FILENO, text.data, text.len, "stdout");
}

// ---- as curves ----------------------------------------------------------------------------------
static td_status draw_one(const struct td_plot *window, const char *name,
                          struct td_series *const series[SIDES], struct compared *c,
                          struct td_buf *out) {
    struct td_plot plot = *window;
    struct td_plot_series curve[SIDES];
    for (int i = 0; i < SIDES; i++) {
        static const Traind__V1__Series none;
        const Traind__V1__Series *found = td_series_find(td_series_get(series[i]), name);
        const char *label = td_arena_printf(c->arena, "%s of %s", name, c->job[i]->id);
        if (!label) return td_fail_oom();
        TD_TRY(td_metrics_plot_curve(found ? found : &none, label, c->arena, &curve[i]));
        td_plot_widen(&plot, &curve[i]);
    }
    for (int i = 0; i < SIDES; i++) {
        TD_TRY(td_buf_str(out, "\n"));
        if (curve[i].n) {
            TD_TRY(td_plot_draw(&plot, &curve[i], 1, out));
        } else {
            TD_TRY(td_buf_printf(out, "%s has no points\n", curve[i].label));
        }
    }
    return TD_OK;
}

static td_status draw_all(const struct td_plot *plot, struct td_series *const series[SIDES],
                          struct compared *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)16 << 20);
    int drawn = 0;
    for (int side = 0; side < SIDES; side++) {
        const Traind__V1__QueryMetricsResponse *r = td_series_get(series[side]);
        for (size_t i = 0; i < r->n_series && drawn < TD_PLOT_SERIES; i++) {
            const Traind__V1__Series *x = r->series[i], *other;
            other = side == RIGHT ? td_series_find(td_series_get(series[LEFT]), x->name) : NULL;
            if (!x->n_points || (other && other->n_points)) continue;
            TD_TRY(draw_one(plot, x->name, series, c, &text));
            drawn++;
        }
    }
    if (!drawn) td_print(stderr, "trainctl: there are no points to draw\n");
    return td_fd_write_all(STDOUT_FILENO, text.data, text.len, "stdout");
}

static td_status show_plots(struct compared *c) {
    struct td_plot plot;
    struct td_series *series[SIDES] = {NULL, NULL};
    td_status s = TD_OK;
    td_metrics_plot_init(&plot, c->session);
    for (int i = 0; i < SIDES && !s; i++) {
        s = td_metrics_plot_read(c->session, &plot, c->job[i]->id,
                                 (size_t)(c->flags->n_args - SIDES), &c->flags->args[SIDES],
                                 &series[i]);
    }
    if (!s) s = draw_all(&plot, series, c);
    for (int i = 0; i < SIDES; i++) {
        td_series_destroy(series[i]);
    }
    return s;
}

// ---- the verb -----------------------------------------------------------------------------------
static td_status show(struct compared *c) {
    const struct td_flags *f = c->flags;
    for (int i = 0; i < SIDES; i++) {
        TD_TRY(ask_for_job(c, i));
    }
    TD_TRY(compare_specs(c));
    if (td_output_is_json(f->output)) return show_json(c);
    if (f->output == TD_OUTPUT_NAME) {
        for (const struct td_spec_difference *d = c->first; d; d = d->next) {
            td_print(stdout, "%s\n", d->key);
        }
        return TD_OK;
    }
    TD_TRY(show_tables(c));
    return f->plot ? show_plots(c) : TD_OK;
}

td_status td_cmd_compare(struct td_session *s, const struct td_flags *f, int *out_exit) {
    struct compared c = {.session = s, .flags = f};
    (void)out_exit;
    if (f->plot && f->output != TD_OUTPUT_TABLE) {
        return td_fail(TD_INVALID_ARGUMENT, "--plot draws on a page of text; leave out -o");
    }
    TD_TRY(td_arena_create((size_t)256 << 20, &c.arena));
    td_status failed = show(&c);
    for (int i = 0; i < SIDES; i++) {
        td_rpc_message_destroy(c.answer[i]);
    }
    td_arena_destroy(c.arena);
    return failed;
}
