#ifndef TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_ATTEMPT_OVER_H
#define TRAIND_DAEMON_COORDINATOR_CORE_CATALOG_ATTEMPT_OVER_H

// An attempt is over: nothing more comes of it. What it left in the catalog unfinished goes, what
// is kept of the job is judged again (retain.h), and its nodes are sent what stays (reconcile.h).

#include "daemon/coordinator/core/model/job.h"

struct td_core;

// Nothing more comes of a part, while others of its attempt go on, or are still to send: what was
// on its way from its node is dropped.
void td_catalog_part_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          const struct td_attempt_part *part);
// Nothing more comes of an attempt: what was on its way is dropped, files without a row go.
void td_catalog_attempt_over(struct td_core *core, struct td_job *j, const struct td_attempt *a);

// Its node says that a checkpoint of an attempt that ended is gone: what had not arrived is
// dropped.
void td_catalog_on_gone(struct td_core *core, struct td_job *j, const struct td_attempt *a,
                        const char *path);

#endif
