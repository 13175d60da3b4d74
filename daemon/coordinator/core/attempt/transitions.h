#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_TRANSITIONS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_TRANSITIONS_H

// A job moves: the table of states (job.h), carried out. Above what an end brings about (what may
// be removed, what is forgotten); below whatever moves jobs: attempts, the queue, nodes, people.

#include "daemon/coordinator/core/model/job.h"

struct td_core;

// Takes its place by age and, if it has not ended, among the active. RESOURCE_EXHAUSTED LIMIT_JOBS.
TD_MUST_USE td_status td_core_add_job(struct td_core *core, struct td_job *take_job);
// The table's answer, carried out. REFUSED changes nothing.
enum td_job_step td_core_apply(struct td_core *core, struct td_job *j, enum td_job_event event);
// For jobs that end without an attempt's failure.
void td_core_fail_job(struct td_core *core, struct td_job *j, enum td_class cls, enum td_code code,
                      const char *message);
// The job is not placed for a moment from now on (td_job.hold_until).
void td_core_hold(struct td_core *core, struct td_job *j);

#endif
