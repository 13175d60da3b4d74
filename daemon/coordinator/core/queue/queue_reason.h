#ifndef TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_QUEUE_REASON_H
#define TRAIND_DAEMON_COORDINATOR_CORE_QUEUE_QUEUE_REASON_H

// Why a waiting job waits, in words and numbers, written when the job is read. A pass of the
// queue leaves on the nodes what jobs before it keep, so the answer is what that pass saw. A job
// that it did not come to finds no free slot either.
//
// Reasons that an end of its last attempt left (left_by_an_end) say more than that no node is
// there.

#include "daemon/coordinator/core/model/job.h"
#include "lib/base/clock.h"

struct td_core;

// With its position.
void td_queue_reason(const struct td_core *core, const struct td_job *j, struct td_mono now,
                     struct td_reason *out_reason);
// The jobs that have what it waits for, on the node that is nearest to taking it; how many.
uint32_t td_queue_blockers(const struct td_core *core, const struct td_job *j, struct td_mono now,
                           const struct td_job **out_jobs, uint32_t most);
// Differs when that would say something else; of a position above 10 two digits count.
uint64_t td_queue_reason_mark(const struct td_core *core, const struct td_job *j,
                              struct td_mono now);

#endif
