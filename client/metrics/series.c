// See the header. The pages are kept as they came; what is joined is the arrays of their points.

#include "client/metrics/series.h"

#include <stdlib.h>
#include <string.h>

#include "client/session/pages.h"
#include "lib/base/arena.h"

enum { LISTED = 40, LIST_BYTES = 8192 }; // names in a refusal
static const char method[] = "/traind.v1.MetricService/QueryMetrics";

struct td_series {
    struct td_rpc_message *page[TD_MAX_PAGES];
    size_t n_pages;
    struct td_arena *arena; // the arrays of `all`
    Traind__V1__QueryMetricsResponse all;
};

static const Traind__V1__QueryMetricsResponse *page_at(const struct td_series *g, size_t i) {
    return (const Traind__V1__QueryMetricsResponse *)td_rpc_message_get(g->page[i]);
}

void td_series_destroy(struct td_series *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_pages; i++) {
        td_rpc_message_destroy(g->page[i]);
    }
    td_arena_destroy(g->arena);
    free(g);
}

const Traind__V1__QueryMetricsResponse *td_series_get(const struct td_series *series) {
    return &series->all;
}

const Traind__V1__Series *td_series_find(const Traind__V1__QueryMetricsResponse *r,
                                         const char *name) {
    for (size_t i = 0; i < r->n_series; i++) {
        if (strcmp(r->series[i]->name, name) == 0) return r->series[i];
    }
    return NULL;
}

// The series of all pages under the heading of the newest page that has it.
static td_status join_series(struct td_series *g, const Traind__V1__Series *heading) {
    Traind__V1__Series *to = td_arena_alloc(g->arena, sizeof *to);
    if (!to) return td_fail_oom();
    *to = *heading;
    size_t n = 0;
    for (size_t i = 0; i < g->n_pages; i++) {
        const Traind__V1__Series *part = td_series_find(page_at(g, i), heading->name);
        n += part ? part->n_points : 0;
    }
    to->points = td_arena_array(g->arena, n + 1, sizeof *to->points);
    if (!to->points) return td_fail_oom();
    to->n_points = 0;
    for (size_t i = 0; i < g->n_pages; i++) {
        const Traind__V1__Series *part = td_series_find(page_at(g, i), heading->name);
        if (!part || !part->n_points) continue;
        memcpy(to->points + to->n_points, part->points, part->n_points * sizeof *to->points);
        to->n_points += part->n_points;
    }
    g->all.series[g->all.n_series++] = to;
    return TD_OK;
}

static td_status join(struct td_series *g) {
    const Traind__V1__QueryMetricsResponse *last = page_at(g, g->n_pages - 1);
    TD_TRY(td_arena_create((size_t)256 << 20, &g->arena));
    traind__v1__query_metrics_response__init(&g->all);
    g->all.next_page_token = last->next_page_token;
    g->all.more_names = last->more_names;
    g->all.n_more_names = last->n_more_names;
    g->all.dropped_points = last->dropped_points;
    g->all.awaited = last->awaited;
    g->all.n_awaited = last->n_awaited;
    g->all.series = td_arena_array(g->arena, last->n_series + 1, sizeof(Traind__V1__Series *));
    if (!g->all.series) return td_fail_oom();
    for (size_t i = 0; i < last->n_series; i++) {
        TD_TRY(join_series(g, last->series[i]));
    }
    return TD_OK;
}

void td_series_request_init(const struct td_flags *f,
                            Traind__V1__QueryMetricsRequest *out_request) {
    traind__v1__query_metrics_request__init(out_request);
    out_request->job = td_unconst(f->args[0]);
    out_request->n_names = (size_t)f->n_args - 1;
    out_request->names = td_unconst(&f->args[1]);
    out_request->from_step = f->from_step;
    out_request->to_step = f->to_step;
}

td_status td_series_read(struct td_session *s, Traind__V1__QueryMetricsRequest *request,
                         struct td_series **out_series) {
    TD_AUTO(td_series) *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    const char *next = "";
    do {
        request->page_token = td_unconst(next);
        TD_TRY(td_session_call(s, method, &request->base,
                               &traind__v1__query_metrics_response__descriptor,
                               &g->page[g->n_pages]));
        next = page_at(g, g->n_pages++)->next_page_token;
    } while (next[0] && g->n_pages < TD_MAX_PAGES);
    TD_TRY(join(g));
    *out_series = td_steal(g);
    return TD_OK;
}

// ---- names --------------------------------------------------------------------------------------
static bool has_points(const Traind__V1__QueryMetricsResponse *r, const char *name) {
    const Traind__V1__Series *found = td_series_find(r, name);
    return found && found->n_points;
}

static bool is_listed(const Traind__V1__QueryMetricsResponse *all, const char *name) {
    for (size_t i = 0; i < all->n_more_names; i++) {
        if (strcmp(all->more_names[i], name) == 0) return true;
    }
    return has_points(all, name);
}

static td_status refuse(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *all,
                        const char *name) {
    TD_AUTO_BUF list;
    td_buf_init(&list, LIST_BYTES);
    size_t n = 0;
    for (; n < all->n_series && n < LISTED; n++) {
        TD_TRY(td_buf_printf(&list, "%s%s", n ? ", " : "", all->series[n]->name));
    }
    const size_t more = all->n_series + all->n_more_names - n;
    if (more) TD_TRY(td_buf_printf(&list, " and %zu more", more));
    return td_fail(TD_NOT_FOUND, "job %s has no metric '%s'; it has %s", f->args[0], name,
                   td_buf_cstr(&list));
}

td_status td_series_check_names(struct td_session *s, const struct td_flags *f,
                                const Traind__V1__QueryMetricsResponse *answer) {
    bool lacks = false;
    for (int a = 1; a < f->n_args; a++) {
        lacks |= !has_points(answer, f->args[a]);
    }
    if (!lacks || answer->n_awaited) return TD_OK;
    TD_AUTO(td_series) *series = NULL;
    Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
    request.job = td_unconst(f->args[0]);
    request.max_points = 1;
    TD_TRY(td_series_read(s, &request, &series));
    const Traind__V1__QueryMetricsResponse *all = td_series_get(series);
    for (int a = 1; a < f->n_args && all->n_series; a++) {
        if (!is_listed(all, f->args[a])) return refuse(f, all, f->args[a]);
    }
    return TD_OK;
}
