// list: jobs, newest first, of some states or of all. On a terminal a table has the newest 100,
// where no other limit is given. Each form waits for the last page: the table because its columns
// are as wide as their widest cell, json because it is one value. Jobs that come or go between two
// pages may be missing or be there twice, as with any listing by pages.

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "client/format.h"
#include "client/pages.h"
#include "client/progress.h"
#include "client/table.h"

enum { STATES_MAX = 16, ON_A_TERMINAL = 100 };

static const ProtobufCEnumValue *state_of(const char *word, size_t len) {
    const ProtobufCEnumDescriptor *d = &traind__v1__job__state__descriptor;
    for (unsigned i = 0; i < d->n_values; i++) {
        const char *name = d->values[i].name;
        if (d->values[i].value && strlen(name) == len && strncasecmp(name, word, len) == 0) {
            return &d->values[i];
        }
    }
    return NULL;
}

// "running,QUEUED": in any case, as often as somebody likes.
static td_status parse_states(const char *text, Traind__V1__Job__State *out_states, size_t *out_n) {
    *out_n = 0;
    for (const char *word = text;; word++) {
        const size_t len = strcspn(word, ",");
        const ProtobufCEnumValue *v = state_of(word, len);
        if (!v || *out_n == STATES_MAX) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "--state '%.*s' is no job state; there are queued starting running "
                           "recovering pausing paused stopping cancelled succeeded failed expired, "
                           "several with ',' between",
                           (int)len, word);
        }
        out_states[(*out_n)++] = (Traind__V1__Job__State)v->value;
        word += len;
        if (!*word) return TD_OK;
    }
}

// Its loss is that of the last whole epoch, in the first one that of the last step, and says so.
static td_status add_row(struct td_table *t, const Traind__V1__Job *job, bool wide) {
    char age[32];
    double loss = 0;
    const bool of_epoch = td_job_metric(job, "train_loss_epoch", &loss);
    const bool have = of_epoch || td_job_metric(job, "train_loss_step", &loss);
    TD_TRY(td_table_add(t, "%s", job->id));
    TD_TRY(td_table_add(t, "%s", job->name));
    TD_TRY(td_table_add(t, "%s", td_job_state_word(job->state)));
    if (job->total_steps) {
        TD_TRY(td_table_add(t, "%u/%u", job->global_step, job->total_steps));
    } else {
        TD_TRY(td_table_add(t, "%u", job->global_step));
    }
    TD_TRY(have ? td_table_add(t, "%.4f %s", loss, of_epoch ? "epoch" : "step")
                : td_table_add(t, "-"));
    TD_TRY(td_table_add(t, "%u", job->attempt));
    TD_TRY(td_table_add(t, "%s", wide ? job->create_time : td_format_age(job->create_time, age)));
    return td_table_add(t, "%s", job->reason ? job->reason->text : "");
}

static td_status show_table(const struct td_pages *p, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)256 << 20, &arena));
    const struct td_column columns[] = {{"ID", 0},
                                        {"NAME", TD_COLUMN_TEXT},
                                        {"STATE", 0},
                                        {"STEP", TD_COLUMN_SPARE},
                                        {"LOSS", TD_COLUMN_MINOR},
                                        {"ATTEMPT", TD_COLUMN_MINOR},
                                        {wide ? "CREATED" : "AGE", TD_COLUMN_SPARE},
                                        {"REASON", TD_COLUMN_TEXT | TD_COLUMN_SPARE}};
    struct td_table table;
    td_table_init(&table, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < p->n_items; i++) {
        TD_TRY(add_row(&table, p->item[i], wide));
    }
    return td_table_print(&table, wide);
}

static td_status show(struct td_session *s, enum td_output output, struct td_pages *p) {
    if (output == TD_OUTPUT_TABLE) return show_table(p, s->flags->wide);
    Traind__V1__ListJobsResponse all = TRAIND__V1__LIST_JOBS_RESPONSE__INIT;
    return td_pages_print(s, p, output, &all.base, "jobs", "id");
}

td_status td_cmd_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    Traind__V1__Job__State states[STATES_MAX];
    if (f->state) {
        TD_TRY(parse_states(f->state, states, &request.n_states));
        request.states = states;
    }
    const bool is_for_people = f->output == TD_OUTPUT_TABLE && isatty(STDOUT_FILENO);
    struct td_pages pages = {.limit = f->limit >= 0   ? (size_t)f->limit
                                      : is_for_people ? ON_A_TERMINAL
                                                      : 0};
    td_status failed = td_pages_read(s, "/traind.v1.JobService/ListJobs", &request.base,
                                     &traind__v1__list_jobs_response__descriptor, "jobs", &pages);
    if (!failed) failed = show(s, f->output, &pages);
    td_pages_finish(&pages);
    return failed;
}
