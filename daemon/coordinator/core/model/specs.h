#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_SPECS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_SPECS_H

// The specs of jobs in memory. Those of jobs that wait or run are there as they are. Those of jobs
// that have ended are deflated, unless they are small. state.db has the text of all.
//
// Bounds, of what is kept in memory: TD_SPECS_MAX_BYTES in all; of jobs of one owner, where a
// submitter asks for another one, an eighth. A job more is refused, LIMIT_SPECS. What a start finds
// in state.db is kept however much it is.

#include "daemon/coordinator/core/model/exchange.h"

struct td_core;

enum { TD_SPECS_MAX_BYTES = 256 << 20, TD_SPECS_SHARE_BYTES = TD_SPECS_MAX_BYTES / 8 };

// Is there room for the job? RESOURCE_EXHAUSTED LIMIT_SPECS.
TD_MUST_USE td_status td_specs_check(const struct td_core *core,
                                     const struct td_core_create_job *request);
// The job has its spec and its owner, and is one of the core's.
void td_specs_add(struct td_core *core, struct td_job *j);
// All that state.db has was added: what that freed goes back to the system.
void td_specs_start(struct td_core *core);
// It has ended: its spec is deflated.
void td_specs_ended(struct td_core *core, struct td_job *j);
// It is forgotten.
void td_specs_remove(struct td_core *core, const struct td_job *j);
void td_specs_finish(struct td_core *core);

#endif
