#ifndef TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_CUT_H
#define TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_CUT_H

// Which of the machine's GPUs the node has for jobs: --gpus says it. For `auto` it is what the
// daemon's own CUDA_VISIBLE_DEVICES leaves, as CUDA takes that: indexes, uuids, or beginnings of
// uuids that fit one device. What comes after the first that is not here does not count. An index
// is the place in PCI order. A GPU that is cut by MIG means its instances. Pure.

#include "lib/base/base.h"
#include "traind/v1/gpu.pb-c.h"

struct td_gpu_cut {
    const char *gpus;    // "auto", "none", or uuids or their beginnings, with ',' between
    const char *visible; // CUDA_VISIBLE_DEVICES; NULL: not set
};

// INVALID_ARGUMENT with the rule.
TD_MUST_USE td_status td_gpu_cut_check(const char *gpus);
bool td_gpu_cut_is_none(const char *gpus);
// Takes the others out of the list. why: what was asked for and is not here; "": nothing.
void td_gpu_cut_apply(const struct td_gpu_cut *cut, Traind__V1__GpuList *io_list, char *why,
                      size_t why_bytes);

#endif
