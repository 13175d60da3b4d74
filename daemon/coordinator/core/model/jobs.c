// See the header.

#include "daemon/coordinator/core/model/jobs.h"

#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/model.h"

td_status td_core_find_job(const struct td_core *core, const char *id_or_name,
                           const struct td_job **out_job) {
    const struct td_job *found = td_core_job(core, id_or_name);
    uint32_t n = found ? 1 : 0;
    for (uint32_t i = 0; !found && i < core->n_jobs; i++) { // a name that is an id is an id
        if (strcmp(core->order[i]->name, id_or_name) == 0) n++;
    }
    if (n > 1) {
        return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                             "%u jobs are named '%.100s'; use the id", n,
                                             id_or_name),
                                     "NAME_AMBIGUOUS");
    }
    for (uint32_t i = 0; !found && n == 1 && i < core->n_jobs; i++) {
        if (strcmp(core->order[i]->name, id_or_name) == 0) found = core->order[i];
    }
    if (!found) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "no job '%.100s'; `trainctl list` shows them", id_or_name),
            "JOB_NOT_FOUND");
    }
    *out_job = found;
    return TD_OK;
}

const struct td_job *td_core_job_before(const struct td_core *core, uint64_t before_seq) {
    uint32_t low = 0, high = core->n_jobs; // the last with seq < before_seq
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (core->order[mid]->seq < before_seq) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low ? core->order[low - 1] : NULL;
}
