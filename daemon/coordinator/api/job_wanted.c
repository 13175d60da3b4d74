// See the header. A page of a list looks at jobs until it is full. What few jobs have is looked for
// among all of them, with a few comparisons each.

#include "daemon/coordinator/api/job_wanted.h"

#include <string.h>

#include "daemon/coordinator/core/model/job.h"
#include "lib/job/labels.h"

td_status td_jobs_wanted_check(const Traind__V1__ListJobsRequest *r) {
    if (r->n_labels > TD_LABELS_MAX) {
        td_status s = td_fail(TD_INVALID_ARGUMENT, "labels: %zu of them, at most %d are taken",
                              r->n_labels, TD_LABELS_MAX);
        return td_status_with_reason(s, "LABEL_INVALID");
    }
    for (size_t i = 0; i < r->n_labels; i++) {
        TD_TRY(td_label_check_wish("labels", r->labels[i]));
    }
    return TD_OK;
}

static bool state_wanted(const Traind__V1__ListJobsRequest *r, const struct td_job *j) {
    for (size_t i = 0; i < r->n_states; i++) {
        if ((int)r->states[i] == (int)j->state + 1) return true;
    }
    return r->n_states == 0;
}

static bool is_or_all(const char *wanted, const char *text) {
    return !wanted[0] || strcmp(wanted, text ? text : "") == 0;
}

static bool labels_wanted(const Traind__V1__ListJobsRequest *r, const struct td_job *j) {
    for (size_t i = 0; i < r->n_labels; i++) {
        if (!td_labels_has(j->labels, r->labels[i])) return false;
    }
    return true;
}

bool td_job_is_wanted(const struct td_job *j, const Traind__V1__ListJobsRequest *r) {
    const bool matches =
        strncmp(j->id, r->matching, strlen(r->matching)) == 0 || strcmp(j->name, r->matching) == 0;
    return matches && state_wanted(r, j) && is_or_all(r->owner, j->owner) &&
           is_or_all(r->name, j->name) && labels_wanted(r, j);
}
