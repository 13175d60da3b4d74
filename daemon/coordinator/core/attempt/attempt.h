#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_H

// An attempt as its launcher reports it: what each line of the event log means, how an attempt
// ends, and what then becomes of the job.
//
// The state of a running job moves only here, by lines that were written to disk before anyone
// received them (lib/attempt/segments.h), never by the answer to a message. Bytes already committed
// are skipped, a gap is answered with the offset that is wanted: so each line counts exactly once.
//
// The room, in reading order:
//
//   forget.h            a job and what it owns go
//   expiry.h            when they do
//   transitions.h       a job moves from state to state
//   source.h            which checkpoint of another it begins from
//   awaited.h           what nodes have yet to send
//   attempt_messages.h  what a node is sent about an attempt
//   attempt_end.h       how one ends, and restarts
//   device_errors.h     what errors of its devices mean for it
//   rendezvous.h        what its ranks leave for each other

#include "daemon/coordinator/core/model/job.h"
#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;

// The attempt that id names, if it may still speak; else counted as stale, NULL.
struct td_attempt *td_attempt_find(struct td_core *core, const Traind__V1__AttemptId *id,
                                   struct td_job **out_job);
void td_attempt_on_segment(struct td_core *core, struct td_host *node,
                           const Traind__V1__Segment *s);
void td_attempt_on_progress(struct td_core *core, struct td_host *node,
                            const Traind__V1__AttemptProgress *p);
void td_attempt_on_log_state(struct td_core *core, struct td_host *node,
                             const Traind__V1__LogState *m);
void td_attempt_on_refused(struct td_core *core, struct td_host *node,
                           const Traind__V1__AttemptRefused *m);
// The reason of its job, once its node is not silent: none, or the rank that is silent.
void td_attempt_node_speaks(struct td_job *j, const struct td_attempt *a);

#endif
