#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_FORGET_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_FORGET_H

// Forgetting a job and what it owns: the one way, for whoever decides it (expiry.c, people).
//
// In one transaction all rows of the job go and a row LEAVING comes, which names what is still to
// be removed. Once that is committed the shell removes it (TD_ACTION_FORGET: log files, checkpoints
// that were streamed to here, points of metrics.db) and says so; then the row LEAVING goes. So a
// crash in between leaves nothing: the next start asks again for every row LEAVING. From the first
// transaction on nobody finds the job any more. What it owns on nodes goes by rows of their own
// (removals.c).
//
// A job that has not ended is not forgotten, nor one whose checkpoints a job that has not ended
// names in ckpt_path or init_from.

#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/model/job.h"

struct td_core;

// OK: an ended job that no other one begins from. FAILED_PRECONDITION JOB_NOT_ENDED or
// JOB_RESUMED_FROM.
TD_MUST_USE td_status td_forget_check(const struct td_core *core, const struct td_job *j);
// Ends the job's life: its rows and what it owns go. It was checked, and is not of this event.
void td_forget_job(struct td_core *core, struct td_job *take_job, enum td_forget how);
void td_forget_ended(struct td_core *core, struct td_job *j);
void td_forget_note_pins(struct td_core *core, struct td_job *j);              // its spec was read
void td_forget_answered(struct td_core *core, const char *job, bool all_gone); // td_core_forgotten
void td_forget_tick(struct td_core *core);
TD_MUST_USE td_status td_forget_load(struct td_core *core, const char *key, const char *body);
void td_forget_destroy(void *p); // a td_leaving

#endif
