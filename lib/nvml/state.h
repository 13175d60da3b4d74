#ifndef TRAIND_LIB_NVML_STATE_H
#define TRAIND_LIB_NVML_STATE_H

// The library as it is open; what nvml.c and samples.c share. Private to this folder.

#include "lib/base/clip.h"
#include "lib/nvml/calls.h"
#include "lib/nvml/nvml.h"

struct td_nvml {
    struct td_nvml_calls calls;
    bool is_up;                                // initialised
    struct td_nvml_list list;                  // the newest
    struct td_nvml_list next;                  // it while it is made
    struct td_clip_list notes;                 // next's
    struct td_nvml_device gpu[TD_DEVICES_MAX]; // whole GPUs of the newest, also those that are cut
    uint32_t n_gpus;
    void *events;    // NULL: the driver has none
    bool has_events; // of one device at least
    struct {
        void *handle;
        char uuid[TD_DEVICE_UUID];
    } registered[TD_DEVICES_MAX]; // whole GPUs that were asked for their events
    uint32_t n_registered;
};

// Errors (XIDs) of that GPU come from td_nvml_await_xid from now on, where the driver has them.
void td_nvml_register_events(struct td_nvml *n, const struct td_nvml_device *gpu);

#endif
