#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_CHANGES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_CHANGES_H

// Small changes that every file of the core makes: what is saved when the input is over, when the
// core wants to be woken, a job by its id. The cellar: it calls nothing but effects.h.

#include "daemon/coordinator/core/model/exchange.h"

struct td_core;
struct td_host;

struct td_job *td_core_job(const struct td_core *core, const char *id); // NULL: none
void td_core_wake_at(struct td_core *core, struct td_mono t);
// A new version of it is saved and reported at the end of the input, once.
void td_core_touch(struct td_core *core, struct td_job *j);
// Its record is made at the end of the input, once, whatever else happens to it until then.
void td_core_save_attempt(struct td_core *core, struct td_job *j, struct td_attempt *a);
// Only progress, or the numbers of its reason, changed.
void td_core_progress(struct td_core *core, const struct td_job *j);

#endif
