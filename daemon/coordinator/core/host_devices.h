#ifndef TRAIND_DAEMON_COORDINATOR_CORE_HOST_DEVICES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_HOST_DEVICES_H

// Devices of a node, by accelerator. Its probe reports those of installed accelerators, its plans
// those of a job's accelerator, which may be the user's own plugin. An accelerator that is not
// listed is one that nobody has asked the node about. One whose device is the host is listed as
// such. All is stored with the node, and forgotten when its machine was started again or its
// plugins changed.
//
// `held` says who has a device: an attempt, or a job that waits and keeps it, until the next pass
// of the queue. A device is one thing by its uuid, also where several accelerators list it.
// Bounds: TD_HOST_ACCELERATORS, of which the one listed longest ago goes; TD_HOST_DEVICES of each,
// the rest is left out. Pure; the core's thread.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"
#include "traind/v1/plugin.pb-c.h"

struct td_buf;
struct td_json;

enum { TD_HOST_ACCELERATORS = 16, TD_HOST_DEVICES = 64 };

#define TD_DEVICE_FREE    UINT64_C(0)
#define TD_DEVICE_ATTEMPT UINT64_MAX // anything else: turn of the waiting job that keeps it

struct td_host_device {
    char uuid[TD_DEVICE_UUID];
    char name[64];
    uint64_t memory_bytes;
    uint64_t held;
};
struct td_host_accel {
    char name[32];
    bool is_host; // it has no devices but the host
    uint32_t n;
    struct td_host_device device[];
};
struct td_host_devices {
    struct td_host_accel *accel[TD_HOST_ACCELERATORS];
    uint32_t n;
};

// NULL: nobody has asked.
const struct td_host_accel *td_host_accel_find(const struct td_host_devices *d,
                                               const char *accelerator);
// Those that the job of that turn may have, up to `most`.
uint32_t td_host_devices_free(const struct td_host_accel *a, uint64_t turn, uint32_t most);

// True: something is new. From a plan's answer, from the probe, and none any more.
bool td_host_devices_take_plan(struct td_host_devices *d, const char *plan_json);
bool td_host_devices_take_probe(struct td_host_devices *d,
                                Traind__V1__AcceleratorDevices *const *list, size_t n_list);
bool td_host_devices_forget(struct td_host_devices *d);

// As a member's value of the node's record.
TD_MUST_USE td_status td_host_devices_encode(const struct td_host_devices *d, struct td_buf *out);
void td_host_devices_decode(struct td_host_devices *d, const struct td_json *list);

#endif
