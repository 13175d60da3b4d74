#ifndef TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_GPUS_H
#define TRAIND_DAEMON_COORDINATOR_CORE_NODES_NODE_GPUS_H

// GPUs of a node: its list and the errors in it, and which of them operators take out of use. Each
// error of the list is looked at once (gpu_marks.h). What it means for the jobs on the device is in
// device_errors.h. An error of a GPU that the node does not give to jobs means nothing here.

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

struct td_core;
struct td_host;

void td_node_gpus_take(struct td_core *core, struct td_host *n, const Traind__V1__GpuList *m);
// device: a uuid, or the beginning of one. Idempotent. NOT_FOUND DEVICE_NOT_FOUND,
// FAILED_PRECONDITION DEVICE_AMBIGUOUS, of td_node_gpus_enable also DEVICE_IS_PART.
TD_MUST_USE td_status td_node_gpus_disable(struct td_core *core, struct td_host *n,
                                           const char *device, const char *by, const char *reason);
TD_MUST_USE td_status td_node_gpus_enable(struct td_core *core, struct td_host *n,
                                          const char *device);

#endif
