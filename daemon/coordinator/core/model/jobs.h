#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOBS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_JOBS_H

// Reads of the jobs that the core knows, for its own files and for the shell. By id or
// name, and from the newest to the oldest.

#include "daemon/coordinator/core/model/job.h"

struct td_core;

// By id, or by a name that only one job bears. NOT_FOUND JOB_NOT_FOUND, or FAILED_PRECONDITION
// NAME_AMBIGUOUS.
TD_MUST_USE td_status td_core_find_job(const struct td_core *core, const char *id_or_name,
                                       const struct td_job **out_job);
// Newest first; before_seq UINT64_MAX: from the newest. NULL at the end.
const struct td_job *td_core_job_before(const struct td_core *core, uint64_t before_seq);

#endif
