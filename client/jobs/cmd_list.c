// list: jobs, newest first, all or of some states, an owner, a name or labels. On a terminal a
// table has the newest 100, where no other limit is given. Each form waits for the last page: the
// table because its columns are as wide as their widest cell, json because it is one value. Jobs
// that come or go between two pages may be missing or be there twice, as with any listing by pages.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/jobs/jobs.h"
#include "client/screen/format.h"
#include "client/screen/progress.h"
#include "client/screen/table.h"
#include "client/session/pages.h"
#include "client/session/states.h"

enum { ON_A_TERMINAL = 100 };

// Its loss is that of the last whole epoch, in the first one that of the last step, and says so.
static td_status add_row(struct td_table *t, const Traind__V1__Job *job, bool wide) {
    char age[32], text[TD_FORMAT_VALUE_BYTES], labels[TD_LABELS_BYTES];
    double loss = 0;
    const bool of_epoch = td_job_metric(job, "train_loss_epoch", &loss);
    const bool have = of_epoch || td_job_metric(job, "train_loss_step", &loss);
    TD_TRY(td_table_add(t, "%s", job->id));
    TD_TRY(td_table_add(t, "%s", job->name));
    TD_TRY(td_table_add(t, "%s", job->owner[0] ? job->owner : "-"));
    TD_TRY(td_table_add(t, "%s", td_job_state_word(job->state)));
    if (job->total_steps) {
        TD_TRY(td_table_add(t, "%u/%u", job->global_step, job->total_steps));
    } else {
        TD_TRY(td_table_add(t, "%u", job->global_step));
    }
    TD_TRY(have ? td_table_add(t, "%s %s", td_format_value(loss, text), of_epoch ? "epoch" : "step")
                : td_table_add(t, "-"));
    TD_TRY(td_table_add(t, "%u", job->attempt));
    TD_TRY(td_table_add(t, "%s", wide ? job->create_time : td_format_age(job->create_time, age)));
    TD_TRY(td_table_add(t, "%s", job->reason ? job->reason->text : ""));
    return wide ? td_table_add(t, "%s", td_job_labels_text(job, labels)) : TD_OK;
}

static td_status show_table(const struct td_pages *p, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)256 << 20, &arena));
    const struct td_column columns[] = {{"ID", TD_COLUMN_WHOLE},
                                        {"NAME", TD_COLUMN_WHOLE},
                                        {"OWNER", TD_COLUMN_TEXT | TD_COLUMN_SPARE},
                                        {"STATE", TD_COLUMN_WHOLE},
                                        {"STEP", TD_COLUMN_SPARE},
                                        {"LOSS", TD_COLUMN_MINOR},
                                        {"ATTEMPT", TD_COLUMN_MINOR},
                                        {wide ? "CREATED" : "AGE", TD_COLUMN_SPARE},
                                        {"REASON", TD_COLUMN_TEXT | TD_COLUMN_LATE},
                                        {"LABELS", TD_COLUMN_TEXT}}; // wide alone
    struct td_table table;
    td_table_init(&table, arena, TD_COUNTOF(columns) - !wide, columns);
    for (size_t i = 0; i < p->n_items; i++) {
        TD_TRY(add_row(&table, p->item[i], wide));
    }
    return td_table_print(&table, wide);
}

// An older coordinator knows nothing of owner, name and labels, and sends all.
static void keep_wanted(const struct td_flags *f, struct td_pages *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Job *job = p->item[i];
        const bool other = (f->owner && strcmp(job->owner, f->owner) != 0) ||
                           (f->name && strcmp(job->name, f->name) != 0) ||
                           !td_job_has_labels(job, f->labels, f->n_labels);
        if (!other) p->item[n++] = p->item[i];
    }
    p->n_items = n;
}

static td_status show(struct td_session *s, enum td_output output, struct td_pages *p) {
    if (output == TD_OUTPUT_TABLE) return show_table(p, s->flags->wide);
    Traind__V1__ListJobsResponse all = TRAIND__V1__LIST_JOBS_RESPONSE__INIT;
    return td_pages_print(s, p, output, &all.base, "jobs", "id");
}

td_status td_cmd_list(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    Traind__V1__Job__State states[TD_STATES_MAX];
    if (f->state) {
        TD_TRY(td_states_parse("state", f->state, states, &request.n_states));
        request.states = states;
    }
    if (f->owner) request.owner = td_unconst(f->owner);
    if (f->name) request.name = td_unconst(f->name);
    request.labels = td_unconst(f->labels);
    request.n_labels = f->n_labels;
    const bool is_for_people = f->output == TD_OUTPUT_TABLE && isatty(STDOUT_FILENO);
    struct td_pages pages = {.limit = f->limit >= 0   ? (size_t)f->limit
                                      : is_for_people ? ON_A_TERMINAL
                                                      : 0};
    td_status failed = td_pages_read(s, "/traind.v1.JobService/ListJobs", &request.base,
                                     &traind__v1__list_jobs_response__descriptor, "jobs", &pages);
    keep_wanted(f, &pages);
    if (!failed) failed = show(s, f->output, &pages);
    td_pages_finish(&pages);
    return failed;
}
