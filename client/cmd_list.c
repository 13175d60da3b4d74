// list: jobs, newest first, page by page until there are no more (at most 100 pages of 1000). The
// table waits for the last page, because its columns are as wide as their widest cell; json prints
// each page as it comes.

#include <stdio.h>
#include <string.h>

#include "client/progress.h"
#include "client/session.h"
#include "client/table.h"

enum { PAGE_SIZE = 1000, MAX_PAGES = 100 };

static td_status parse_state(const char *text, Traind__V1__Job__State *out_state) {
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value_by_name(&traind__v1__job__state__descriptor, text);
    if (!v) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--state '%s' is no job state; there are QUEUED STARTING RUNNING RECOVERING "
                       "PAUSING PAUSED STOPPING CANCELLED SUCCEEDED FAILED EXPIRED",
                       text);
    }
    *out_state = (Traind__V1__Job__State)v->value;
    return TD_OK;
}

static td_status add_row(struct td_table *t, const Traind__V1__Job *job) {
    double loss = 0;
    bool have = td_job_metric(job, "train_loss", &loss);
    TD_TRY(td_table_add(t, "%s", job->id));
    TD_TRY(td_table_add(t, "%s", job->name));
    TD_TRY(td_table_add(t, "%s", td_job_state_name(job->state)));
    if (job->total_steps) {
        TD_TRY(td_table_add(t, "%u/%u", job->global_step, job->total_steps));
    } else {
        TD_TRY(td_table_add(t, "%u", job->global_step));
    }
    TD_TRY(have ? td_table_add(t, "%.4f", loss) : td_table_add(t, "-"));
    TD_TRY(td_table_add(t, "%u", job->attempt));
    TD_TRY(td_table_add(t, "%s", job->create_time));
    return td_table_add(t, "%s", job->reason ? job->reason->text : "");
}

static td_status show_page(struct td_session *s, const struct td_flags *f, struct td_table *t,
                           const Traind__V1__ListJobsResponse *page) {
    if (f->output == TD_OUTPUT_JSON) return td_session_print_json(s, &page->base);
    for (size_t i = 0; i < page->n_jobs; i++) {
        if (f->output == TD_OUTPUT_JSONL) {
            TD_TRY(td_session_print_json(s, &page->jobs[i]->base));
        } else if (f->output == TD_OUTPUT_NAME) {
            puts(page->jobs[i]->id);
        } else {
            TD_TRY(add_row(t, page->jobs[i]));
        }
    }
    return TD_OK;
}

td_status td_cmd_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)256 << 20, &arena));
    static const char *const heading[] = {"ID",   "NAME",    "STATE",   "STEP",
                                          "LOSS", "ATTEMPT", "CREATED", "REASON"};
    struct td_table table;
    td_table_init(&table, arena, TD_COUNTOF(heading), heading);
    char token[256] = "";
    for (int page = 0; page < MAX_PAGES; page++) {
        Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
        Traind__V1__Job__State state;
        request.page_size = PAGE_SIZE;
        request.page_token = token;
        if (f->state) {
            TD_TRY(parse_state(f->state, &state));
            request.n_states = 1;
            request.states = &state;
        }
        TD_AUTO(td_rpc_message) *answer = NULL;
        TD_TRY(td_session_call(s, "/traind.v1.JobService/ListJobs", &request.base,
                               &traind__v1__list_jobs_response__descriptor, &answer));
        const Traind__V1__ListJobsResponse *r =
            (const Traind__V1__ListJobsResponse *)td_rpc_message_get(answer);
        TD_TRY(show_page(s, f, &table, r));
        snprintf(token, sizeof token, "%s", r->next_page_token);
        if (!token[0]) break;
    }
    return f->output == TD_OUTPUT_TABLE ? td_table_print(&table) : TD_OK;
}
