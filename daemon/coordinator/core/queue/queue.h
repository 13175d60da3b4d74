#ifndef TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_QUEUE_H
#define TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_QUEUE_H

// The queue: which waiting job gets which node.
//
// Gangs: all ranks of a job start together, on one node (num_nodes above 1 is refused by the spec).
// Order: RECOVERING jobs, then QUEUED ones, each by the time they began to wait. One that is still
// being planned, or whose last checkpoint is on its way (a minute at most), keeps the slots it
// would take. The first job that does not fit reserves the node that is nearest to fitting it.
// Later, smaller jobs may run elsewhere, but not there, so that it drains and nobody starves. One
// that lacks devices alone keeps the free ones of that node instead, and no slots.
//
// Cost. core->waiting is kept in order, so that a pass sorts nothing. Changes only mark what is
// due; one pass a tick does it (td_core_tick). A pass begins at the head when places may have
// become free (queue_dirty). Otherwise it goes on where the last one ended (n_looked), because the
// nodes still show what the jobs before keep. It ends when no node has a free slot that nobody
// keeps: nothing after that can start. Until then it looks at MAX_LOOKS jobs, and goes on in the
// next tick. Plans are asked for jobs that could start now and for the first PLAN_AHEAD. That is
// less than the cache of plans holds, so jobs that wait do not drive out each other's plans. Why a
// job waits is not written down here: queue_reason.h says it when the job is read.
//
// The room, in reading order:
//
//   match.h     where a job could run now
//   queue.h         who runs next
//   queue_reason.h  why the others wait

#include "daemon/coordinator/core/model/job.h"

struct td_core;

void td_queue_pass(struct td_core *core);
// A pass has something to do.
bool td_queue_due(const struct td_core *core);
void td_queue_tick(struct td_core *core);
// Its state or its attempt changed: it takes its place among those that wait, or leaves them.
void td_queue_insert(struct td_core *core, struct td_job *j);
uint32_t td_queue_position(const struct td_core *core, const struct td_job *j); // 0: it waits not
// Where it would run, now or later, no plan that is there is its own, nor will another do.
bool td_queue_lacks_plan(const struct td_core *core, const struct td_job *j);
// Near enough to the head that its plan is asked for before it can start.
bool td_queue_ahead(const struct td_core *core, const struct td_job *j);

#endif
