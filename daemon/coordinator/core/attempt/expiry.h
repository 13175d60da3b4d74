#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_EXPIRY_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_EXPIRY_H

// Which ended jobs are kept: the retention_jobs that ended last, and of them those that ended in
// the last retention_ns. The others are forgotten with what they own here (forget.c), those that
// ended longest ago first. One that a job which has not ended begins from is passed over until that
// one has ended, and does not push another one out.
//
// By count soon after a job ended, by age once an hour, and at the start. A few at a time, so that
// a store of a hundred thousand jobs is made small beside the daemon's work, not instead of it.

#include "daemon/coordinator/core/model/job.h"

struct td_core;

void td_expiry_ended(struct td_core *core, struct td_job *j); // it has ended, or is loaded so
void td_expiry_start(struct td_core *core);
void td_expiry_due(struct td_core *core); // the next tick looks
void td_expiry_tick(struct td_core *core);

#endif
