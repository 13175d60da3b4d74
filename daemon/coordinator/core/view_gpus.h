#ifndef TRAIND_DAEMON_COORDINATOR_CORE_VIEW_GPUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_VIEW_GPUS_H

// GPUs as clients see them, in the arena: those of a node, each with the job that has it, and those
// of a job, with what they do now. Who has one follows from the parts of live attempts alone. So it
// is right also for a GPU whose driver lists no process, or none of the job's, as in a container.
// Those that are excluded are named, also where the node does not list them now.

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"
#include "traind/v1/job.pb-c.h"

struct td_arena;
struct td_attempt;
struct td_core;
struct td_host;

// As the node reported them last. NULL: the arena is full.
Traind__V1__GpuList *td_view_gpus(struct td_arena *a, const struct td_core *core,
                                  const struct td_host *n);
// Of which the nodes know it now: not of those that the driver does not list, as another
// accelerator's, nor of a node that is away. False: the arena is full.
bool td_view_job_gpus(struct td_arena *a, const struct td_core *core, const struct td_attempt *live,
                      Traind__V1__Job *m);

#endif
