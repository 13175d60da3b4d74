#ifndef TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_MESSAGES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_ATTEMPT_ATTEMPT_MESSAGES_H

// Messages to the node of an attempt: what was taken of its segments, that it is to stop, that the
// node may drop it. They go out by the session that the node has now; without one they are lost,
// and what they said is said again at its registration.
// The word to save is not: whoever asked for it learns that the node is away.

#include "daemon/coordinator/core/model/job.h"
#include "traind/v1/node.pb-c.h"

struct td_core;
struct td_host;

void td_attempt_send_stop(struct td_core *core, struct td_job *j, struct td_attempt *a);
// Its ranks save and go on. UNAVAILABLE NODE_AWAY: nothing was sent.
TD_MUST_USE td_status td_attempt_send_save(struct td_core *core, const struct td_job *j,
                                           const struct td_attempt *a);
// The node may drop what it has of an ended attempt.
void td_attempt_send_forget(struct td_core *core, const struct td_job *j,
                            const struct td_attempt *a, const struct td_attempt_part *p);
void td_attempt_ack(struct td_core *core, const struct td_host *node, const struct td_job *j,
                    const struct td_attempt *a, Traind__V1__Segment__Kind kind, uint32_t rank,
                    uint64_t offset);

#endif
