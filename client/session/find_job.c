// The coordinator finds: ListJobs with `name`, and if there is none with `matching`, newest first.

#include "client/session/find_job.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/screen/progress.h"
#include "client/session/pages.h"
#include "lib/base/buf.h"

enum { ID_LEN = 14, SHOWN_MAX = 10 };

static bool is_whole_id(const char *word) {
    return strlen(word) == ID_LEN && strncmp(word, "j-", 2) == 0 &&
           strspn(word + 2, "0123456789abcdef") == ID_LEN - 2;
}

static td_status add(struct td_found_jobs *found, const char *id) {
    for (size_t i = 0; i < found->n; i++) {
        if (strcmp(found->id[i], id) == 0) return TD_OK;
    }
    if (found->n == TD_FOUND_JOBS_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "more than %d jobs at once; name fewer",
                       TD_FOUND_JOBS_MAX);
    }
    snprintf(found->id[found->n++], TD_FOUND_ID_BYTES, "%s", id);
    return TD_OK;
}

// Those that have the name, else those whose id begins so, in front; how many. A coordinator that
// knows nothing of `matching` sends others, too.
static size_t keep(const struct td_flags *f, Traind__V1__Job **jobs, size_t n, const char *word,
                   bool *out_named) {
    size_t kept = 0;
    for (int by_id = 0; by_id < 2 && !kept; by_id++) {
        for (size_t i = 0; i < n; i++) {
            const bool fits = by_id ? strncmp(jobs[i]->id, word, strlen(word)) == 0
                                    : strcmp(jobs[i]->name, word) == 0;
            if (!fits || !td_job_has_labels(jobs[i], f->labels, f->n_labels)) continue;
            Traind__V1__Job *one = jobs[i];
            jobs[i] = jobs[kept]; // the answer owns all of them
            jobs[kept++] = one;
        }
        *out_named = !by_id;
    }
    return kept;
}

static td_status refuse(const char *word, const char *what, Traind__V1__Job *const *jobs, size_t n,
                        bool is_name) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 64 << 10);
    for (size_t i = 0; i < TD_MIN(n, (size_t)SHOWN_MAX); i++) {
        char age[32];
        TD_TRY(td_buf_printf(&text, "\n  %s  %s  %s  %s old", jobs[i]->id, jobs[i]->name,
                             td_job_state_word(jobs[i]->state),
                             td_format_age(jobs[i]->create_time, age)));
    }
    if (n > SHOWN_MAX) TD_TRY(td_buf_printf(&text, "\n  and %zu more", n - SHOWN_MAX));
    return td_fail(TD_INVALID_ARGUMENT, "%zu jobs have %s '%s'; give the id of one%s:%s", n, what,
                   word, is_name ? ", or --all for all of them" : "", td_buf_cstr(&text));
}

static td_status choose(struct td_session *s, const char *word, bool changes,
                        const struct td_pages *p, struct td_found_jobs *found) {
    Traind__V1__Job **const jobs = (Traind__V1__Job **)(void *)p->item;
    bool named = false;
    const size_t n = keep(s->flags, jobs, p->n_items, word, &named);
    if (n == 0 && s->flags->n_labels) {
        return td_fail(TD_NOT_FOUND, "no job '%s' has what --label says", word);
    }
    if (n == 0) return add(found, word);
    if (n > 1 && !named) return refuse(word, "an id that begins with", jobs, n, false);
    if (n > 1 && changes && !s->flags->all) return refuse(word, "the name", jobs, n, true);
    if (n > 1 && !changes) {
        td_print(stderr, "trainctl: %s%zu jobs are called '%s'; this is the newest, %s\n",
                 p->next[0] ? "more than " : "", n, word, jobs[0]->id);
    }
    if (p->next[0] && changes && n > 1) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "more than %zu jobs are called '%s'; name them by id",
                       n, word);
    }
    for (size_t i = 0; i < (changes ? n : 1); i++) {
        TD_TRY(add(found, jobs[i]->id));
    }
    return TD_OK;
}

// Of that name, or by_id: whose id begins so. A verb that only reads needs the newest.
static td_status ask(struct td_session *s, const char *word, bool changes, bool by_id,
                     struct td_pages *p) {
    Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    request.matching = td_unconst(word);
    if (!by_id) request.name = td_unconst(word);
    request.labels = td_unconst(s->flags->labels);
    request.n_labels = s->flags->n_labels;
    *p = (struct td_pages){.limit = changes || by_id ? TD_FOUND_JOBS_MAX : SHOWN_MAX + 1,
                           .quiet = true};
    return td_pages_read(s, "/traind.v1.JobService/ListJobs", &request.base,
                         &traind__v1__list_jobs_response__descriptor, "jobs", p);
}

td_status td_find_jobs(struct td_session *s, const char *word, bool changes,
                       struct td_found_jobs *found) {
    if (is_whole_id(word) && !s->flags->n_labels) return add(found, word);
    struct td_pages p;
    td_status failed = ask(s, word, changes, false, &p);
    if (!failed && !p.n_items && strncmp(word, "j", 1) == 0) {
        td_pages_finish(&p);
        failed = ask(s, word, changes, true, &p);
    }
    if (!failed) failed = choose(s, word, changes, &p, found);
    td_pages_finish(&p);
    return failed;
}

static td_status add_labelled(struct td_session *s, const struct td_pages *p,
                              struct td_found_jobs *found) {
    const struct td_flags *f = s->flags;
    if (p->next[0]) {
        return td_fail(TD_RESOURCE_EXHAUSTED,
                       "more than %d jobs have what --label says; name fewer", TD_FOUND_JOBS_MAX);
    }
    for (size_t i = 0; i < p->n_items; i++) {
        const Traind__V1__Job *job = p->item[i]; // an older coordinator sends all
        if (td_job_has_labels(job, f->labels, f->n_labels)) TD_TRY(add(found, job->id));
    }
    return found->n ? TD_OK : td_fail(TD_NOT_FOUND, "no job has what --label says");
}

td_status td_find_labelled(struct td_session *s, struct td_found_jobs *found) {
    Traind__V1__ListJobsRequest request = TRAIND__V1__LIST_JOBS_REQUEST__INIT;
    struct td_pages p = {.limit = TD_FOUND_JOBS_MAX, .quiet = true};
    request.labels = td_unconst(s->flags->labels);
    request.n_labels = s->flags->n_labels;
    td_status failed = td_pages_read(s, "/traind.v1.JobService/ListJobs", &request.base,
                                     &traind__v1__list_jobs_response__descriptor, "jobs", &p);
    if (!failed) failed = add_labelled(s, &p, found);
    td_pages_finish(&p);
    return failed;
}
