#ifndef TRAIND_LIB_ATTEMPT_DEVICES_H
#define TRAIND_LIB_ATTEMPT_DEVICES_H

// Names of devices, and lists of them as they travel. A list has the accelerator's uuids with ','
// between them: equally many for each rank of an attempt on a node, in the order of its ranks. "":
// there are none but the host. GPUs have the uuids of NVML. Pure, any thread.

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

// Asks `traind-worker devices` for what devices do now. A process that does not take it ignores it.
#define TD_DEVICES_LOOK_SIGNAL SIGURG

enum {
    TD_DEVICE_UUID = 64, // with its end
    TD_DEVICES_MAX = 64, // of an accelerator on one machine
};

// 1 to 63 letters, digits, '-', '_', '.' and ':'.
bool td_device_uuid_ok(const char *uuid);
// What NVML lists: a GPU, or an instance of one that MIG has cut.
bool td_device_is_gpu(const char *uuid);
bool td_device_is_instance(const char *uuid);
// Item i of a list; false: it has no such item, or that is no name of a device.
bool td_device_list_at(const char *list, uint32_t i, char out_uuid[TD_DEVICE_UUID]);
bool td_device_list_has(const char *list, const char *uuid);
uint32_t td_device_list_count(const char *list);

#endif
