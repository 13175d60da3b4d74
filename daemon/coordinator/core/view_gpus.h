#ifndef TRAIND_DAEMON_COORDINATOR_CORE_VIEW_GPUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_VIEW_GPUS_H

// The GPUs of a node as clients see them: as it reported them last, each with the job that has it.
// Who that is follows from the parts of live attempts alone. So it is right also for a GPU whose
// driver lists no process, or none of the job's, as in a container.

#include "traind/v1/gpu.pb-c.h"

struct td_arena;
struct td_core;
struct td_host;

// NULL: the arena is full.
Traind__V1__GpuList *td_view_gpus(struct td_arena *a, const struct td_core *core,
                                  const struct td_host *n);

#endif
