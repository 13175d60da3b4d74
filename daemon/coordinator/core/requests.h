#ifndef TRAIND_DAEMON_COORDINATOR_CORE_REQUESTS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_REQUESTS_H

// Requests that created a job are remembered under their request_id for a day, so that whoever asks
// again because the answer was lost gets the same job.

#include "daemon/coordinator/core/model/exchange.h"

struct td_core;

// *out_job NULL: it is a fresh one. INVALID_ARGUMENT REQUEST_ID_REUSED.
TD_MUST_USE td_status td_requests_find(struct td_core *core,
                                       const struct td_core_create_job *request,
                                       const struct td_job **out_job);
void td_requests_keep(struct td_core *core, const struct td_core_create_job *request);
void td_requests_forget(struct td_core *core); // those of a day ago

#endif
