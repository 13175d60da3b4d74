#ifndef TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_ERRORS_H
#define TRAIND_DAEMON_NODE_SHELL_GPUS_GPU_ERRORS_H

// Errors of GPUs that the driver reported since this daemon began (XIDs). They travel with the list
// of GPUs, all of them each time, so that a session that breaks loses none. Their numbers say which
// the coordinator has seen. One that comes again of the same GPU takes the place of the earlier
// one. Bounds: TD_GPU_ERRORS; a full list drops the oldest of those that exclude no device, else
// the oldest. Pure.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"
#include "lib/base/clock.h"
#include "traind/v1/gpu.pb-c.h"

enum { TD_GPU_ERRORS = 64 };

struct td_gpu_errors { // all zero: none
    uint64_t n_ever;
    size_t n;
    struct td_gpu_error {
        uint64_t number;
        uint32_t xid;
        char uuid[TD_DEVICE_UUID];
        char time[32];
    } error[TD_GPU_ERRORS];
    Traind__V1__GpuError message[TD_GPU_ERRORS], *at[TD_GPU_ERRORS];
};

void td_gpu_errors_add(struct td_gpu_errors *e, const char *uuid, uint32_t xid, struct td_real now);
// As a part of the list, which borrows them until the next one is added.
void td_gpu_errors_put(struct td_gpu_errors *e, Traind__V1__GpuList *io_list);

#endif
