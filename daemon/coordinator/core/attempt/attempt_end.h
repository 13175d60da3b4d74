#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_END_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_END_H

// The end. launcher_end (or launcher_lost, the node's line for a launcher that was killed) closes
// the attempt: at once if all metrics are in, else when they are, at most close_ns later. Where no
// other attempt follows it waits for its checkpoints, too. The error shown is the first that was
// not a mere consequence: a collective error of a peer gives way to the cause. Then the restart
// policy. Classes that a second try cannot help (bad spec, user code, data, numeric) fail the job.
// The others are tried again up to restart.max times; transitions.c says after which pause.

#include "daemon/coordinator/core/model/job.h"

struct td_core;

// Gives the part up, which lives: it is fenced. Others that live are aborted, and the attempt ends
// when they have. Then, or at once where none does, its job is retried (counted or not) or ended.
void td_attempt_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                     struct td_attempt_part *p, bool counted, const char *why);
// The part has ended, and its node has lost what was still to come of it. Its outcome stays, and
// what is to come of other parts is waited for.
void td_attempt_rest_lost(struct td_core *core, struct td_job *j, struct td_attempt *a,
                          struct td_attempt_part *p, const char *why);
// Asks its node to stop it; again after each registration.
void td_attempt_stop(struct td_core *core, struct td_job *j, struct td_attempt *a,
                     enum td_stop_cause cause);
void td_attempt_tick(struct td_core *core, struct td_job *j);
// Reports to the node when everything of an ended attempt is here.
void td_attempt_maybe_forget(struct td_core *core, struct td_job *j, struct td_attempt *a);
// A part's launcher has ended with this outcome. Where that is a bad one the other parts are ended,
// too. With the last part the attempt closes, when what is on its way has come.
void td_attempt_part_ended(struct td_core *core, struct td_job *j, struct td_attempt *a,
                           struct td_attempt_part *p, enum td_outcome outcome);
// A rank of it has failed, and its launcher ends the others there: those of other parts end, too.
void td_attempt_part_fails(struct td_core *core, struct td_job *j, struct td_attempt *a,
                           struct td_attempt_part *p);
// Where it aborts: says so to the parts that live.
void td_attempt_abort(struct td_core *core, struct td_job *j, struct td_attempt *a);
void td_attempt_maybe_close(struct td_core *core, struct td_job *j, struct td_attempt *a);
// The outcome, or FAILED where a part of its record is lost.
enum td_outcome td_attempt_unless_lost(struct td_attempt *a, enum td_outcome outcome);

#endif
