// compare: jobs side by side: what their specs say differently, how far they came, and the last
// value of each metric. The first two words are jobs. Each further one is a metric, if a job has
// one of that name, else another job. Metrics choose what is shown of both parts. --plot draws a
// metric of all jobs on one pair of axes.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/jobs/jobs.h"
#include "client/jobs/spec_diff.h"
#include "client/metrics/metrics_plot.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/progress.h"
#include "client/screen/table.h"
#include "client/session/find_job.h"
#include "lib/base/files/files.h"
#include "lib/spec/brief.h"

enum { LEAST_JOBS = 2, CELL_BYTES = 4096, LIST_BYTES = 4096 };

struct compared {
    struct td_session *session;
    const struct td_flags *flags;
    struct td_arena *arena;
    struct td_rpc_message *answer[TD_MAX_ARGS];
    const Traind__V1__Job *job[TD_MAX_ARGS];
    size_t n_jobs;
    const char *name[TD_MAX_ARGS]; // of metrics
    size_t n_names;
    struct td_spec_difference *first;
};

// ---- what the words mean ------------------------------------------------------------------------
static td_status ask_for_job(struct compared *c, const char *word) {
    static struct td_found_jobs found;
    Traind__V1__GetJobRequest request = TRAIND__V1__GET_JOB_REQUEST__INIT;
    struct td_rpc_message **answer = &c->answer[c->n_jobs];
    found.n = 0;
    TD_TRY(td_find_jobs(c->session, word, false, &found));
    request.id = found.id[0];
    TD_TRY(td_session_call(c->session, "/traind.v1.JobService/GetJob", &request.base,
                           &traind__v1__job__descriptor, answer));
    c->job[c->n_jobs++] = (const Traind__V1__Job *)td_rpc_message_get(*answer);
    return TD_OK;
}

static bool has_metric(const struct compared *c, const char *name) {
    double value;
    for (size_t i = 0; i < c->n_jobs; i++) {
        if (td_job_metric(c->job[i], name, &value)) return true;
    }
    return false;
}

// Of what a job's answer has no room for, the points say whether there is such a metric.
static td_status has_points(struct compared *c, const char *name, bool *out_has) {
    *out_has = false;
    for (size_t i = 0; i < c->n_jobs && !*out_has; i++) {
        TD_AUTO(td_series) *series = NULL;
        Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
        request.job = c->job[i]->id;
        request.n_names = 1;
        request.names = td_unconst(&name);
        request.max_points = 1;
        TD_TRY(td_series_read(c->session, &request, &series));
        const Traind__V1__Series *found = td_series_find(td_series_get(series), name);
        *out_has = found && found->n_points;
    }
    return TD_OK;
}

static td_status refuse(const struct compared *c, const char *word) {
    TD_AUTO_BUF list;
    td_buf_init(&list, LIST_BYTES);
    for (size_t i = 0; i < c->job[0]->n_metrics; i++) {
        td_status full = td_buf_printf(&list, "%s%s", i ? ", " : "", c->job[0]->metrics[i]->key);
        if (full) td_status_free(full);
    }
    return td_fail(TD_NOT_FOUND, "'%s' is neither a job nor a metric of these jobs; %s has %s",
                   word, c->job[0]->id, list.len ? td_buf_cstr(&list) : "no metric yet");
}

static td_status take_word(struct compared *c, const char *word) {
    if (c->n_jobs < LEAST_JOBS) return ask_for_job(c, word);
    bool is_metric = has_metric(c, word);
    td_status failed = is_metric ? TD_OK : ask_for_job(c, word);
    if (!failed && !is_metric) return TD_OK;
    if (failed && td_status_code(failed) != TD_NOT_FOUND) return failed;
    td_status_free(failed);
    if (!is_metric) TD_TRY(has_points(c, word, &is_metric));
    if (!is_metric) return refuse(c, word);
    c->name[c->n_names++] = word;
    return TD_OK;
}

// A key that a job's build did not have counts as its default, else each of them would differ from
// a newer job's. Where one of the specs is of a build with keys that this one does not know, all
// are compared as they are.
static td_status compare_specs(struct compared *c) {
    const struct td_json *spec[TD_MAX_ARGS], *filled[TD_MAX_ARGS];
    bool are_known = true;
    for (size_t i = 0; i < c->n_jobs; i++) {
        const char *text = c->job[i]->spec_json;
        struct td_json *tree;
        TD_TRY_CTX(td_json_parse(c->arena, text, strlen(text), &tree), "the spec of job %s",
                   c->job[i]->id);
        spec[i] = tree;
        TD_TRY(td_spec_fill(c->arena, tree, &filled[i]));
        are_known &= filled[i] != NULL;
    }
    return td_spec_diff(c->arena, are_known ? filled : spec, c->n_jobs, &c->first);
}

// ---- metrics ------------------------------------------------------------------------------------
static bool is_wanted(const struct compared *c, const char *name) {
    for (size_t i = 0; i < c->n_names; i++) {
        if (strcmp(c->name[i], name) == 0) return true;
    }
    return !c->n_names;
}

// Calls fn for each metric that any of the jobs has, once. has, value: of each job.
typedef td_status each_metric(struct compared *c, const char *name, const bool *has,
                              const double *value, void *arg);

static td_status for_each_metric(struct compared *c, each_metric *fn, void *arg) {
    double value[TD_MAX_ARGS] = {0};
    bool has[TD_MAX_ARGS];
    for (size_t k = 0; k < c->n_jobs; k++) {
        for (size_t i = 0; i < c->job[k]->n_metrics; i++) {
            const char *name = c->job[k]->metrics[i]->key;
            bool seen = false;
            for (size_t j = 0; j < c->n_jobs; j++) {
                has[j] = td_job_metric(c->job[j], name, &value[j]);
                seen |= has[j] && j < k;
            }
            if (!seen && is_wanted(c, name)) TD_TRY(fn(c, name, has, value, arg));
        }
    }
    return TD_OK;
}

// ---- as tables ----------------------------------------------------------------------------------
static void init_table(const struct compared *c, struct td_table *t, const char *first) {
    struct td_column columns[TD_MAX_ARGS + 1] = {{first, TD_COLUMN_TEXT}};
    for (size_t i = 0; i < c->n_jobs; i++) {
        columns[i + 1] = (struct td_column){c->job[i]->id, TD_COLUMN_TEXT};
    }
    td_table_init(t, c->arena, c->n_jobs + 1, columns);
}

static td_status add_value(struct td_table *t, const struct td_json *v) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)8 << 20);
    if (!v) return td_table_add(t, "-");
    if (v->kind == TD_JSON_STRING) return td_table_add(t, "%s", td_json_string(v, ""));
    TD_TRY(td_json_print(v, false, &text));
    return td_table_add(t, "%.*s", CELL_BYTES, td_buf_cstr(&text));
}

static td_status add_metric(struct compared *c, const char *name, const bool *has,
                            const double *value, void *arg) {
    char text[TD_FORMAT_VALUE_BYTES];
    TD_TRY(td_table_add(arg, "%s", name));
    for (size_t i = 0; i < c->n_jobs; i++) {
        TD_TRY(td_table_add(arg, "%s", has[i] ? td_format_value(value[i], text) : "-"));
    }
    return TD_OK;
}

static td_status add_results(struct compared *c, struct td_table *t) {
    TD_TRY(td_table_add(t, "state"));
    for (size_t i = 0; i < c->n_jobs; i++) {
        TD_TRY(td_table_add(t, "%s", td_job_state_word(c->job[i]->state)));
    }
    TD_TRY(td_table_add(t, "step"));
    for (size_t i = 0; i < c->n_jobs; i++) {
        TD_TRY(td_table_add(t, "%" PRIu32, c->job[i]->global_step));
    }
    return for_each_metric(c, add_metric, t);
}

static td_status show_tables(struct compared *c) {
    struct td_table specs, results;
    init_table(c, &specs, "SPEC");
    for (const struct td_spec_difference *d = c->first; d; d = d->next) {
        TD_TRY(td_table_add(&specs, "%s", d->key));
        for (size_t i = 0; i < c->n_jobs; i++) {
            TD_TRY(add_value(&specs, d->value[i]));
        }
    }
    init_table(c, &results, "RESULT");
    TD_TRY(add_results(c, &results));
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
// Adds what each job has of something. Of two jobs they have names of their own, too; what one does
// not have is absent there, and null in the list.
static td_status set_values(struct compared *c, struct td_json *to, const char *key,
                            struct td_json *const *value) {
    static const char *const side[LEAST_JOBS] = {"left", "right"};
    struct td_json *list = td_json_new(c->arena, TD_JSON_ARRAY);
    bool ok = to && list;
    for (size_t i = 0; ok && i < c->n_jobs; i++) {
        struct td_json *one = value[i] ? value[i] : td_json_new(c->arena, TD_JSON_NULL);
        ok = td_json_push(list, one);
        if (!ok || c->n_jobs != LEAST_JOBS || !value[i]) continue;
        ok = td_json_set(c->arena, to, side[i], td_json_copy(c->arena, value[i]));
    }
    return ok && td_json_set(c->arena, to, key, list) ? TD_OK : td_fail_oom();
}

static td_status add_json_metric(struct compared *c, const char *name, const bool *has,
                                 const double *value, void *arg) {
    struct td_json *row = td_json_new(c->arena, TD_JSON_OBJECT), *one[TD_MAX_ARGS] = {NULL};
    for (size_t i = 0; i < c->n_jobs; i++) {
        if (has[i]) one[i] = td_json_new_real(c->arena, value[i]);
        if (has[i] && !one[i]) return td_fail_oom();
    }
    TD_TRY(set_values(c, row, "values", one));
    return td_json_set(c->arena, arg, name, row) ? TD_OK : td_fail_oom();
}

static td_status add_json_specs(struct compared *c, struct td_json *list) {
    for (const struct td_spec_difference *d = c->first; d; d = d->next) {
        struct td_json *row = td_json_new(c->arena, TD_JSON_OBJECT), *one[TD_MAX_ARGS] = {NULL};
        for (size_t i = 0; i < c->n_jobs; i++) {
            if (d->value[i] && !(one[i] = td_json_copy(c->arena, d->value[i]))) {
                return td_fail_oom();
            }
        }
        if (!row || !td_json_set(c->arena, row, "key", td_json_new_string(c->arena, d->key))) {
            return td_fail_oom();
        }
        TD_TRY(set_values(c, row, "values", one));
        if (!td_json_push(list, row)) return td_fail_oom();
    }
    return TD_OK;
}

static td_status show_json(struct compared *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    struct td_json *root = td_json_new(c->arena, TD_JSON_OBJECT), *id[TD_MAX_ARGS] = {NULL};
    struct td_json *list = td_json_new(c->arena, TD_JSON_ARRAY);
    struct td_json *metrics = td_json_new(c->arena, TD_JSON_OBJECT);
    if (!root || !list || !metrics) return td_fail_oom();
    for (size_t i = 0; i < c->n_jobs; i++) {
        if (!(id[i] = td_json_new_string(c->arena, c->job[i]->id))) return td_fail_oom();
    }
    TD_TRY(set_values(c, root, "jobs", id));
    TD_TRY(add_json_specs(c, list));
    TD_TRY(for_each_metric(c, add_json_metric, metrics));
    const bool ok = td_json_set(c->arena, root, "spec", list) &&
                    td_json_set(c->arena, root, "metrics", metrics);
    if (!ok) return td_fail_oom();
    TD_TRY(td_json_print(root, c->flags->output == TD_OUTPUT_JSON, &text));
    TD_TRY(td_buf_str(&text, "\n"));
    return td_fs_write_stdout(text.data, text.len);
}

// ---- as curves ----------------------------------------------------------------------------------
// On the same axes, as many at a time as a plot has characters for.
static td_status draw_metric(const struct td_plot *window, const char *name,
                             struct td_series *const *series, struct compared *c,
                             struct td_buf *out) {
    struct td_plot plot = *window;
    struct td_plot_series curve[TD_MAX_ARGS];
    size_t n = 0;
    for (size_t i = 0; i < c->n_jobs; i++) {
        const Traind__V1__Series *found = td_series_find(td_series_get(series[i]), name);
        const char *label =
            td_arena_printf(c->arena, "%s of %s (%s)", name, c->job[i]->id, c->job[i]->name);
        if (!label) return td_fail_oom();
        if (!found || !found->n_points) {
            td_print(stderr, "trainctl: %s has no points\n", label);
            continue;
        }
        TD_TRY(td_metrics_plot_curve(found, label, c->arena, &curve[n]));
        td_plot_widen(&plot, &curve[n++]);
    }
    for (size_t i = 0; i < n; i += TD_PLOT_SERIES) {
        TD_TRY(td_buf_str(out, "\n"));
        TD_TRY(td_plot_draw(&plot, curve + i, TD_MIN(n - i, (size_t)TD_PLOT_SERIES), out));
    }
    return TD_OK;
}

static bool was_drawn(struct td_series *const *series, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        const Traind__V1__Series *x = td_series_find(td_series_get(series[i]), name);
        if (x && x->n_points) return true;
    }
    return false;
}

static td_status draw_all(const struct td_plot *plot, struct td_series *const *series,
                          struct compared *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)64 << 20);
    int drawn = 0;
    for (size_t k = 0; k < c->n_jobs; k++) {
        const Traind__V1__QueryMetricsResponse *r = td_series_get(series[k]);
        for (size_t i = 0; i < r->n_series && drawn < TD_PLOT_SERIES; i++) {
            const Traind__V1__Series *x = r->series[i];
            if (!x->n_points || was_drawn(series, k, x->name)) continue;
            TD_TRY(draw_metric(plot, x->name, series, c, &text));
            drawn++;
        }
    }
    if (!drawn) td_print(stderr, "trainctl: there are no points to draw\n");
    return td_fs_write_stdout(text.data, text.len);
}

static td_status show_plots(struct compared *c) {
    struct td_plot plot;
    struct td_series *series[TD_MAX_ARGS] = {NULL};
    td_status s = TD_OK;
    td_metrics_plot_init(&plot, c->session);
    for (size_t i = 0; i < c->n_jobs && !s; i++) {
        s = td_metrics_plot_read(c->session, &plot, c->job[i]->id, c->n_names, c->name, &series[i]);
    }
    if (!s) s = draw_all(&plot, series, c);
    for (size_t i = 0; i < c->n_jobs; i++) {
        td_series_destroy(series[i]);
    }
    return s;
}

// ---- the verb -----------------------------------------------------------------------------------
static td_status show(struct compared *c) {
    const struct td_flags *f = c->flags;
    for (int i = 0; i < f->n_args; i++) {
        TD_TRY(take_word(c, f->args[i]));
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
    for (size_t i = 0; i < TD_MAX_ARGS; i++) {
        td_rpc_message_destroy(c.answer[i]);
    }
    td_arena_destroy(c.arena);
    return failed;
}
