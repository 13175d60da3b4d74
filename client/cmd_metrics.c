// metrics: points of the named series by step; without names the last value of each series. Values
// are global: the coordinator has merged the ranks' sums and counts, and RANKS says how many have
// reported so far.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/session.h"
#include "client/table.h"
#include "traind/v1/metric.pb-c.h"

static td_status add_point(struct td_table *t, const char *name, const Traind__V1__MetricPoint *p) {
    TD_TRY(td_table_add(t, "%s", name));
    TD_TRY(td_table_add(t, "%" PRIu32, p->step));
    TD_TRY(td_table_add(t, "%" PRIu32, p->epoch));
    TD_TRY(td_table_add(t, "%" PRIu32, p->attempt));
    TD_TRY(td_table_add(t, "%.9g", p->value));
    TD_TRY(td_table_add(t, "%" PRIu32, p->n_ranks));
    return td_table_add(t, "%s", p->time);
}

// A name without a point may come yet, or be misspelt.
static void say_absent(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    for (int a = 1; a < f->n_args; a++) {
        bool found = false;
        for (size_t i = 0; i < r->n_series; i++) {
            found |= r->series[i]->n_points && strcmp(r->series[i]->name, f->args[a]) == 0;
        }
        if (found) continue;
        fprintf(stderr,
                "trainctl: no points of '%s' here; `trainctl metrics %s` lists what there is\n",
                f->args[a], f->args[0]);
    }
}

static td_status show_table(const struct td_flags *f, const Traind__V1__QueryMetricsResponse *r) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)256 << 20, &arena));
    static const char *const heading[] = {"NAME",  "STEP",  "EPOCH", "ATTEMPT",
                                          "VALUE", "RANKS", "TIME"};
    struct td_table t;
    td_table_init(&t, arena, TD_COUNTOF(heading), heading);
    for (size_t i = 0; i < r->n_series; i++) {
        const Traind__V1__Series *series = r->series[i];
        size_t first = f->n_args > 1 || !series->n_points ? 0 : series->n_points - 1;
        for (size_t k = first; k < series->n_points; k++) {
            TD_TRY(add_point(&t, series->name, series->points[k]));
        }
        if (series->dropped) {
            fprintf(stderr, "trainctl: %" PRIu32 " points of %s were dropped at a full ring\n",
                    series->dropped, series->name);
        }
    }
    say_absent(f, r);
    return td_table_print(&t);
}

td_status td_cmd_metrics(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__QueryMetricsRequest request = TRAIND__V1__QUERY_METRICS_REQUEST__INIT;
    request.job = (char *)(uintptr_t)f->args[0];
    request.n_names = (size_t)f->n_args - 1;
    request.names = (char **)(uintptr_t)&f->args[1];
    request.from_step = f->from_step;
    request.to_step = f->to_step;
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_call(s, "/traind.v1.MetricService/QueryMetrics", &request.base,
                           &traind__v1__query_metrics_response__descriptor, &answer));
    const Traind__V1__QueryMetricsResponse *r =
        (const Traind__V1__QueryMetricsResponse *)td_rpc_message_get(answer);
    if (f->output == TD_OUTPUT_TABLE) return show_table(f, r);
    if (f->output == TD_OUTPUT_JSON) return td_session_print_json(s, &r->base);
    for (size_t i = 0; i < r->n_series; i++) {
        if (f->output == TD_OUTPUT_NAME) {
            puts(r->series[i]->name);
        } else {
            TD_TRY(td_session_print_json(s, &r->series[i]->base));
        }
    }
    return TD_OK;
}
