// metrics: points of the named series by step; without names the last value of each; with --points
// a picture of each. Values are global: the coordinator has merged the ranks' sums and counts, and
// RANKS says how many have reported so far.
//
// An answer of the coordinator is a page. All pages are read before anything is printed, because
// the table's columns are as wide as their widest cell and json is one value. They are put together
// in messages that borrow the pages' points. Bound: TD_MAX_PAGES pages; what is missing is said on
// stderr.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/print.h"
#include "client/pages.h"
#include "client/table.h"
#include "traind/v1/metric.pb-c.h"

static const char method[] = "/traind.v1.MetricService/QueryMetrics";

struct gathered {
    struct td_rpc_message *page[TD_MAX_PAGES];
    size_t n_pages;
    struct td_arena *arena; // the arrays of `all`
    Traind__V1__QueryMetricsResponse all;
};

static const Traind__V1__QueryMetricsResponse *page_at(const struct gathered *g, size_t i) {
    return (const Traind__V1__QueryMetricsResponse *)td_rpc_message_get(g->page[i]);
}

static void gathered_finish(struct gathered *g) {
    for (size_t i = 0; i < g->n_pages; i++) {
        td_rpc_message_destroy(g->page[i]);
    }
    td_arena_destroy(g->arena);
}

static const Traind__V1__Series *find_series(const Traind__V1__QueryMetricsResponse *r,
                                             const char *name) {
    for (size_t i = 0; i < r->n_series; i++) {
        if (strcmp(r->series[i]->name, name) == 0) return r->series[i];
    }
    return NULL;
}

// The series of all pages under the heading of the newest page that has it.
static td_status join_series(struct gathered *g, const Traind__V1__Series *heading) {
    Traind__V1__Series *to = td_arena_alloc(g->arena, sizeof *to);
    if (!to) return td_fail_oom();
    *to = *heading;
    size_t n = 0;
    for (size_t i = 0; i < g->n_pages; i++) {
        const Traind__V1__Series *part = find_series(page_at(g, i), heading->name);
        n += part ? part->n_points : 0;
    }
    to->points = td_arena_array(g->arena, n + 1, sizeof *to->points);
    if (!to->points) return td_fail_oom();
    to->n_points = 0;
    for (size_t i = 0; i < g->n_pages; i++) {
        const Traind__V1__Series *part = find_series(page_at(g, i), heading->name);
        if (!part || !part->n_points) continue;
        memcpy(to->points + to->n_points, part->points, part->n_points * sizeof *to->points);
        to->n_points += part->n_points;
    }
    g->all.series[g->all.n_series++] = to;
    return TD_OK;
}

static td_status join(struct gathered *g) {
    const Traind__V1__QueryMetricsResponse *last = page_at(g, g->n_pages - 1);
    TD_TRY(td_arena_create((size_t)256 << 20, &g->arena));
    traind__v1__query_metrics_response__init(&g->all);
    g->all.next_page_token = last->next_page_token;
    g->all.more_names = last->more_names;
    g->all.n_more_names = last->n_more_names;
    g->all.awaited = last->awaited;
    g->all.n_awaited = last->n_awaited;
    g->all.series = td_arena_array(g->arena, last->n_series + 1, sizeof(Traind__V1__Series *));
    if (!g->all.series) return td_fail_oom();
    for (size_t i = 0; i < last->n_series; i++) {
        TD_TRY(join_series(g, last->series[i]));
    }
    return TD_OK;
}

static td_status gather(struct td_session *s, Traind__V1__QueryMetricsRequest *request,
                        struct gathered *g) {
    const char *next = "";
    do {
        request->page_token = td_unconst(next);
        TD_TRY(td_session_call(s, method, &request->base,
                               &traind__v1__query_metrics_response__descriptor,
                               &g->page[g->n_pages]));
        next = page_at(g, g->n_pages++)->next_page_token;
    } while (next[0] && g->n_pages < TD_MAX_PAGES);
    return join(g);
}

// ---- what is missing, on stderr -----------------------------------------------------------------
// A name without a point may come yet, or be misspelt.
static void say_absent(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    for (int a = 1; a < f->n_args; a++) {
        const Traind__V1__Series *found = find_series(r, f->args[a]);
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
    for (size_t i = 0; i < r->n_series; i++) {
        if (!r->series[i]->dropped) continue;
        td_print(stderr, "trainctl: %" PRIu32 " points of %s were dropped at a full ring\n",
                 r->series[i]->dropped, r->series[i]->name);
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
    TD_TRY(td_table_add(t, "%s", name));
    TD_TRY(td_table_add(t, "%" PRIu32, p->step));
    TD_TRY(td_table_add(t, "%" PRIu32, p->epoch));
    TD_TRY(td_table_add(t, "%" PRIu32, p->attempt));
    TD_TRY(td_table_add(t, "%.9g", p->value));
    if (p->n_points) {
        TD_TRY(td_table_add(t, "%.9g", p->min));
        TD_TRY(td_table_add(t, "%.9g", p->max));
        TD_TRY(td_table_add(t, "%" PRIu32, p->n_points));
    }
    TD_TRY(td_table_add(t, "%" PRIu32, p->n_ranks));
    return td_table_add(t, "%s", p->time);
}

static td_status show_table(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)1 << 30, &arena));
    static const char *const points[] = {"NAME",  "STEP",  "EPOCH", "ATTEMPT",
                                         "VALUE", "RANKS", "TIME"};
    static const char *const picture[] = {"NAME", "STEP", "EPOCH",  "ATTEMPT", "MEAN",
                                          "MIN",  "MAX",  "POINTS", "RANKS",   "TIME"};
    struct td_table t;
    td_table_init(&t, arena, f->points ? TD_COUNTOF(picture) : TD_COUNTOF(points),
                  f->points ? picture : points);
    for (size_t i = 0; i < r->n_series; i++) {
        const Traind__V1__Series *series = r->series[i];
        for (size_t k = 0; k < series->n_points; k++) {
            TD_TRY(add_point(&t, series->name, series->points[k]));
        }
    }
    return td_table_print(&t);
}

static td_status show(struct td_session *s, const struct td_flags *f,
                      const Traind__V1__QueryMetricsResponse *r) {
    if (f->output == TD_OUTPUT_TABLE) return show_table(f, r);
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

td_status td_cmd_metrics(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    bool last_only = f->n_args == 1 && !f->points && !td_output_is_json(f->output);
    Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
    request.job = td_unconst(f->args[0]);
    request.n_names = (size_t)f->n_args - 1;
    request.names = td_unconst(&f->args[1]);
    request.from_step = f->from_step;
    request.to_step = f->to_step;
    request.picture_points = f->points;
    request.max_points = last_only;
    struct gathered g = {0};
    td_status failed = gather(s, &request, &g);
    if (!failed) say_missing(f, &g.all);
    if (!failed) failed = show(s, f, &g.all);
    gathered_finish(&g);
    return failed;
}
