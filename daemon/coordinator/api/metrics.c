// MetricService: points by name and step, read from metrics.db by a thread for queries
// (databases.h). A long one delays other queries, neither points nor calls. What an answer has no
// room for is in the pages after it: the token is the step where the next page begins, "m<step>",
// and needs no memory here.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/core/attempt/awaited.h"
#include "daemon/coordinator/shell/access/access.h"
#include "traind/v1/metric.pb-c.h"

enum { AWAITED_MAX = 64 }; // nodes that are named

// What nodes had yet to send is that of when it was asked: what came before is in the answer.
struct query {
    struct td_coordinator *c;
    struct td_rpc_call *call;
    struct td_arena *arena; // of the answer
    Traind__V1__QueryMetricsResponse *answer;
};

static void free_query(struct query *of) {
    if (!of) return;
    td_arena_destroy(of->arena);
    free(of);
}

// Of a picture alone: a plain point covers no range.
static void fill_range(const struct td_databases_point *from, Traind__V1__MetricPoint *to) {
    to->least_case = TRAIND__V1__METRIC_POINT__LEAST_MIN;
    to->min = from->min;
    to->largest_case = TRAIND__V1__METRIC_POINT__LARGEST_MAX;
    to->max = from->max;
    to->range_case = TRAIND__V1__METRIC_POINT__RANGE_N_POINTS;
    to->n_points = from->n_points;
}

static bool fill_series(struct td_arena *a, const struct td_databases_series *from,
                        Traind__V1__Series *to) {
    to->name = td_arena_strdup(a, from->name);
    to->points = td_arena_array(a, from->n_points + 1, sizeof *to->points);
    Traind__V1__MetricPoint *points =
        td_arena_array(a, from->n_points + 1, sizeof(Traind__V1__MetricPoint));
    if (!to->name || !to->points || !points) return false;
    for (size_t i = 0; i < from->n_points; i++) {
        Traind__V1__MetricPoint *p = &points[i];
        traind__v1__metric_point__init(p);
        p->step = from->points[i].step;
        p->epoch = from->points[i].epoch;
        p->attempt = from->points[i].attempt;
        p->value = from->points[i].value;
        p->n_ranks = from->points[i].n_ranks;
        if (from->points[i].n_points) fill_range(&from->points[i], p);
        p->time = td_view_time(a, from->points[i].real_ns);
        if (!p->time) return false;
        to->points[to->n_points++] = p;
    }
    return true;
}

// Values that are not kept are counted by rank, not by name.
static uint64_t dropped(const struct td_job *j) {
    uint64_t n = 0;
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt *a = td_job_attempt(j, i);
        for (uint32_t r = 0; r < a->n_ranks; r++) {
            n += a->ranks[r].dropped_points;
        }
    }
    return n;
}

// Where several attempts of a job wait for a node, it is named once.
static bool add_awaited(struct td_arena *a, const struct td_awaited *rest,
                        Traind__V1__QueryMetricsResponse *m) {
    for (size_t i = 0; i < m->n_awaited; i++) {
        if (strcmp(m->awaited[i]->node, rest->node) != 0) continue;
        m->awaited[i]->points += rest->points;
        return true;
    }
    if (m->n_awaited == AWAITED_MAX) return true;
    Traind__V1__MetricsAwaited *one = td_arena_alloc(a, sizeof *one);
    if (!one) return false;
    traind__v1__metrics_awaited__init(one);
    one->node = td_arena_strdup(a, rest->node);
    one->away = rest->away;
    one->points = rest->points;
    m->awaited[m->n_awaited++] = one;
    return one->node != NULL;
}

static bool fill_awaited(struct td_arena *a, const struct td_core *core, const struct td_job *j,
                         Traind__V1__QueryMetricsResponse *m) {
    static const struct td_log_choice none = {.rank = -1};
    m->awaited = td_arena_array(a, AWAITED_MAX, sizeof *m->awaited);
    if (!m->awaited) return false;
    for (uint32_t n = 1; n <= j->n_attempts; n++) {
        const struct td_attempt *of = td_job_attempt(j, n);
        for (uint32_t i = 0; i < of->n_parts; i++) {
            struct td_awaited rest;
            if (!td_awaited_of(core, of, i, &none, &rest)) continue;
            if (!add_awaited(a, &rest, m)) return false;
        }
    }
    return true;
}

// m->dropped_points is set.
static bool build(struct td_arena *a, const struct td_databases_query *q,
                  Traind__V1__QueryMetricsResponse *m) {
    m->series = td_arena_array(a, q->n_series + 1, sizeof *m->series);
    for (size_t i = 0; m->series && i < q->n_series; i++) {
        Traind__V1__Series *s = td_arena_alloc(a, sizeof *s);
        if (!s) return false;
        traind__v1__series__init(s);
        if (!fill_series(a, &q->series[i], s)) return false;
        if (!m->dropped_points) s->lost_case = TRAIND__V1__SERIES__LOST_DROPPED; // 0
        s->left_out = q->series[i].left_out;
        m->series[m->n_series++] = s;
    }
    if (q->more) m->next_page_token = td_arena_printf(a, "m%" PRIu32, q->next_cursor);
    m->more_names = td_arena_array(a, q->n_more_names + 1, sizeof *m->more_names);
    for (size_t i = 0; m->more_names && i < q->n_more_names; i++) {
        m->more_names[i] = td_arena_strdup(a, q->more_names[i]);
        if (!m->more_names[i]) return false;
        m->n_more_names++;
    }
    return m->series && m->next_page_token && m->more_names;
}

static void on_answer(struct td_databases_query *q, void *arg) {
    struct query *of = arg;
    const struct td_job *j = NULL;
    td_status s = td_steal(q->failure);
    if (!s) s = td_core_find_job(of->c->core, q->job, &j);
    if (s) {
        td_shell_fail(of->c, of->call, s);
    } else {
        of->answer->dropped_points = dropped(j);
        const bool is_whole = build(of->arena, q, of->answer);
        td_shell_reply(of->c, of->call, td_steal(of->arena), is_whole ? &of->answer->base : NULL);
    }
    td_rpc_call_unref(of->call);
    free_query(of);
    td_databases_query_destroy(q);
}

// "": the first page.
static td_status read_token(const char *token, uint32_t *out_cursor) {
    *out_cursor = 0;
    if (!token[0]) return TD_OK;
    char *end = NULL;
    unsigned long long step = token[0] == 'm' ? strtoull(token + 1, &end, 10) : 0;
    if (!end || token[1] < '0' || token[1] > '9' || *end || !step || step > UINT32_MAX) {
        return td_status_with_reason(
            td_fail(TD_INVALID_ARGUMENT,
                    "page_token: this list has no such place to go on from; begin again"),
            "TOKEN_INVALID");
    }
    *out_cursor = (uint32_t)step;
    return TD_OK;
}

static td_status check(const Traind__V1__QueryMetricsRequest *r) {
    if (r->n_names > TD_DB_STORE_MAX_SERIES) {
        return td_shell_bad_field("names", "at most %d", TD_DB_STORE_MAX_SERIES);
    }
    for (size_t i = 0; i < r->n_names; i++) {
        if (strlen(r->names[i]) < TD_METRIC_NAME_BYTES) continue;
        return td_shell_bad_field("names",
                                  "'%.80s' is longer than a metric's name, at most %d bytes",
                                  r->names[i], TD_METRIC_NAME_BYTES - 1);
    }
    if (r->to_step && r->from_step > r->to_step) {
        return td_shell_bad_field("from_step", "%" PRIu32 " is after to_step, %" PRIu32,
                                  r->from_step, r->to_step);
    }
    if (r->picture_points > TD_DB_STORE_MAX_POINTS) {
        return td_shell_bad_field("picture_points", "at most %d", TD_DB_STORE_MAX_POINTS);
    }
    if (r->picture_points && r->page_token[0]) {
        return td_shell_bad_field("page_token", "a picture has no pages");
    }
    return TD_OK;
}

static td_status begin_answer(const struct td_coordinator *c, const struct td_job *j,
                              struct query *of) {
    TD_TRY(td_shell_arena(&of->arena));
    of->answer = td_arena_alloc(of->arena, sizeof *of->answer);
    if (!of->answer) return td_fail_oom();
    traind__v1__query_metrics_response__init(of->answer);
    return fill_awaited(of->arena, c->core, j, of->answer) ? TD_OK : td_fail_oom();
}

static td_status start(struct td_coordinator *c, struct td_rpc_call *call,
                       const Traind__V1__QueryMetricsRequest *r) {
    const struct td_job *j = NULL;
    uint32_t cursor;
    TD_TRY(td_core_find_job(c->core, r->job, &j));
    TD_TRY(check(r));
    TD_TRY(read_token(r->page_token, &cursor));
    struct td_databases_query *q = td_calloc(1, sizeof *q);
    struct query *of = td_calloc(1, sizeof *of);
    td_status s = q && of ? begin_answer(c, j, of) : td_fail_oom();
    if (s) {
        free(q);
        free_query(of);
        return s;
    }
    memcpy(q->job, j->id, sizeof q->job);
    for (size_t i = 0; i < r->n_names; i++) {
        snprintf(q->names[q->n_names++], sizeof q->names[0], "%s", r->names[i]);
    }
    q->from_step = r->from_step;
    q->to_step = r->to_step;
    q->newest = r->max_points;
    q->cursor = cursor;
    q->picture_points = r->picture_points;
    q->done = on_answer;
    q->arg = of;
    of->c = c;
    of->call = call;
    td_rpc_call_ref(call);
    td_databases_query(c->store, q);
    return TD_OK;
}

static void query_metrics(struct td_rpc_call *call, const ProtobufCMessage *request, void *ctx) {
    struct td_coordinator *c = TD_CAST(td_coordinator, ctx);
    td_status s = start(c, call, (const Traind__V1__QueryMetricsRequest *)request);
    if (s) td_shell_fail(c, call, s);
}

static const struct td_rpc_method rows[] = {
    {.service = "traind.v1.MetricService",
     .method = "QueryMetrics",
     .role = TD_ROLE_VIEWER,
     .kind = TD_RPC_UNARY,
     .request = &traind__v1__query_metrics_request__descriptor,
     .response = &traind__v1__query_metrics_response__descriptor,
     .on_call = query_metrics},
};

td_status td_api_metrics_add(struct td_coordinator *c) {
    return td_access_add_rows(c, rows, TD_COUNTOF(rows));
}
