#ifndef TRAIND_DAEMON_LAUNCHER_GPUS_H
#define TRAIND_DAEMON_LAUNCHER_GPUS_H

// GPUs: what the driver says of the devices of this launcher's ranks, as metrics of the job, and a
// note of those that do nothing.
//
// The node's daemon asks the driver (daemon/node/shell/gpus) and sends what it said every ten
// seconds, with the list of the devices: a command may find them by other names. While no daemon is
// there, there is no point. Points go into the segment of the rank that has the device, after those
// that the rank has made, and from there the way of all points. They carry TD_METRIC_DEVICE, so
// that they are not taken for what the rank has said. Their names are "gpu<i>.utilization"
// (percent), ".memory" (bytes in use), ".power" (W), ".temperature" (degrees C) and ".throttled"
// (1: power or heat hold it back). <i> is the device's place among all of the attempt, in the order
// of the ranks. What the driver does not say has no point.
//
// The step of a point is the rank's newest one. Several samples at a step are one point, which is
// written again: their mean so far. A rank of a command that has named no step yet counts samples,
// from 0, so that there is a curve of a script that reports nothing.
//
// A device is idle when the driver says 0 percent, sample after sample, none of them a minute after
// the one before. When that is so for --gpu-idle-ms, a note names it, once until it does something
// again. Devices that are due at one time share a note. Bounds: TD_GPU_NOTES notes. Thread: the
// launcher's.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"
#include "lib/base/clock.h"

struct td_launcher;

enum {
    TD_GPU_NOTES = 64,
    TD_GPU_VALUES = 5,
    TD_GPU_GAP_S = 60, // between two samples of an idle device; a longer one is no proof
};

struct td_launch_gpu {
    int32_t rank_idx; // on this node
    uint32_t number;  // the <i> of its names
    char uuid[TD_DEVICE_UUID];
    int32_t n_counted; // samples while its rank named no step
    int32_t step;      // of what follows
    double sum[TD_GPU_VALUES], count[TD_GPU_VALUES];
    bool idle, noted;
    struct td_mono idle_since, seen;
    struct td_real idle_from; // the same, for people
};
struct td_launch_gpus {
    uint32_t n_notes;
    uint32_t n;
    struct td_launch_gpu gpu[]; // (n)
};
void td_launch_gpus_destroy(struct td_launch_gpus *g); // accepts NULL
// A frame of the daemon. Any bytes: what is no message, or of another device, is passed over.
void td_launch_gpus_take(struct td_launcher *l, const uint8_t *body, size_t bytes);

#endif
