#ifndef TRAIND_DAEMON_COORDINATOR_API_JOB_PLACE_H
#define TRAIND_DAEMON_COORDINATOR_API_JOB_PLACE_H

// Relative paths of a spec that a client hands in, and the checkpoints of other jobs that it names.
//
// Relative paths begin where the client is (ClientPlace). They mean nothing on another machine, so
// they are refused where a node is known whose kernel is not the client's (boot id); the refusal
// names that node. `ckpt_path` and `init_from` also take JOB, JOB/last, JOB/best and JOB/a1/step-N.
// JOB is an id, the unique beginning of one, or a name: the newest job of that name that has such a
// checkpoint. What names no job is a path. The caller must be one who may read checkpoints
// of the job. So the job is settled here, once; which checkpoint of it that is, when an attempt
// starts (core/attempt/source.h).

#include "daemon/coordinator/shell/shell.h"
#include "lib/spec/spec.h"
#include "traind/v1/job.pb-c.h"

struct td_job_place {
    struct td_spec_place place;
    const struct td_coordinator *c;
    const struct td_rpc_call *call;
    char refusal[320];
};

// client: NULL takes no relative paths. The place borrows it, and the call.
void td_job_place_init(struct td_job_place *p, const struct td_coordinator *c,
                       const struct td_rpc_call *call, const Traind__V1__ClientPlace *client);
// What was relative, into the answer.
TD_MUST_USE td_status td_view_resolved(struct td_arena *a, const struct td_job_place *p,
                                       Traind__V1__ValidateJobResponse *m);

#endif
