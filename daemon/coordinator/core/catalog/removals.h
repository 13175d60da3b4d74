#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_REMOVALS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_REMOVALS_H

// What is left on nodes of jobs that were forgotten (forget.c). Each node that an attempt of the
// job was on has a durable row, until it has confirmed that nothing of the job is there
// (reconcile.h).

#include "daemon/coordinator/core/model/job.h"

struct td_core;
struct td_removal;

// What goes with a job that is forgotten.
enum td_forget {
    TD_FORGET_OLD,              // by retention: checkpoints and logs; what ranks left for people,
                                // and what its program wrote, stays
    TD_FORGET_DELETED,          // a person deleted it: these, too
    TD_FORGET_KEEP_CHECKPOINTS, // a person deleted it, but for the files of its checkpoints
};

// RESOURCE_EXHAUSTED LIMIT_REMOVALS: no more can be remembered.
TD_MUST_USE td_status td_removals_check(const struct td_core *core, const struct td_job *j);
void td_removals_plan(struct td_core *core, struct td_job *j, enum td_forget how);
// Its nodes get it; the job is in no list any more.
void td_removals_pump(struct td_core *core, const char *job);
void td_core_drop_removal(struct td_core *core, struct td_removal *r);
TD_MUST_USE td_status td_core_load_removal(struct td_core *core, const char *key,
                                           const struct td_json *v);
void td_removal_destroy(struct td_removal *r);
TD_DEFINE_AUTO(td_removal, td_removal_destroy);
// The places that still have something of a deleted job, one a call; cursor from 0. False: no more.
bool td_core_is_leaving(const struct td_core *core, const char *job, size_t *inout_cursor,
                        const struct td_removal **out_part);
// One of them. NULL: nothing is left there.
struct td_removal *td_core_removal(const struct td_core *core, const char *job, const char *node);

#endif
