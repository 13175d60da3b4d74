#ifndef TRAIND_DAEMON_NODE_CORE_GPU_PARTS_H
#define TRAIND_DAEMON_NODE_CORE_GPU_PARTS_H

// What ranks need to know of the GPUs that were assigned to them: how CUDA names them, and whose
// memory they are near. It is in the node's list of now. Other devices than GPUs are passed over.
// Pure.

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

// devices: as in lib/attempt/devices.h. out: their names for CUDA_VISIBLE_DEVICES, with ',' between
// and in the same order; of an instance of MIG always its uuid; "": there are no GPUs among them.
// list NULL: it is not known yet.
// Errors: UNAVAILABLE, class device: one is not in the list; or an index is asked for, and there is
//         no list. RESOURCE_EXHAUSTED: out has no room.
TD_MUST_USE td_status td_gpu_parts_name(const Traind__V1__GpuList *list, const char *devices,
                                        bool indexes, char *out, size_t bytes);
// NUMA nodes that are near all GPUs of rank i of n_ranks, as a bit set; 0: unknown, or none is.
uint64_t td_gpu_parts_near(const Traind__V1__GpuList *list, const char *devices, uint32_t n_ranks,
                           uint32_t i);

#endif
