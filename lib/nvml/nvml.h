#ifndef TRAIND_LIB_NVML_NVML_H
#define TRAIND_LIB_NVML_NVML_H

// NVML: the library of NVIDIA's driver that lists GPUs and says how they are. This folder is its
// only home. The library is loaded at run time, so that a build needs nothing of NVIDIA's and a
// machine without a GPU needs no driver.
//
//   list.c      open and close; the list of devices
//   samples.c   what a device does now, and the driver's events; state.h: what both share
//   calls.h     the library's functions, and its codes in words; calls.def: their names
//
// Any call may hang for good, or take a minute: that is the driver's way. So no daemon calls this:
// a process of its own does (`traind-worker devices`). What the driver does not say is absent. One
// thread owns a struct td_nvml. Bounds: TD_DEVICES_MAX devices, further ones are noted.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"

struct td_nvml;

enum { TD_NVML_TEXT = 96, TD_NVML_PROCESSES = 64, TD_NVML_NOTES = 1024 };

// A GPU, or an instance of one that is cut by MIG.
struct td_nvml_device {
    void *handle;                // the library's
    unsigned number;             // the library's, of the whole GPU
    uint32_t index;              // place in PCI order, of the whole GPU
    char uuid[TD_DEVICE_UUID];   // "GPU-..." or "MIG-..."
    char parent[TD_DEVICE_UUID]; // of an instance: its GPU; else ""
    char name[TD_NVML_TEXT];
    char bus_id[24];       // "00000000:3B:00.0"; "": unknown
    char capability[16];   // "9.0"; "": unknown
    char health[256];      // what is wrong with it; "": nothing
    uint64_t memory_bytes; // 0: unknown
    uint64_t numa_nodes;   // bit set: whose memory is near; 0: unknown
    uint64_t peers;        // bit set of indexes: over NVLink
};

struct td_nvml_list {
    char driver[TD_NVML_TEXT]; // its version; "": unknown
    char notes[TD_NVML_NOTES]; // what is not in the list, and why, with "; " between; "": all is
    uint32_t n;
    struct td_nvml_device device[TD_DEVICES_MAX]; // by index, instances in their GPU's place
};

// path: another file than the driver's library; "": that. Errors: NOT_FOUND, UNIMPLEMENTED: no
// driver, or another kind of one, so that nothing is to be expected. Any other is the driver's own,
// as is each of td_nvml_read: it may be well again later.
TD_MUST_USE td_status td_nvml_open(const char *path, struct td_nvml **out_nvml);
void td_nvml_close(struct td_nvml *n); // accepts NULL
TD_DEFINE_AUTO(td_nvml, td_nvml_close);

// All devices that this process may open. One that is lost stays in the list as it was, with what
// is wrong. The list dies with the next call.
TD_MUST_USE td_status td_nvml_read(struct td_nvml *n, const struct td_nvml_list **out_list);

// Bits of throttle that mean that work is slower than the device could do it. They are the power
// cap, a slowdown by hardware, heat (by software and by hardware), and the power brake. Not among
// them: it is idle, and clocks that somebody has set or that follow another device.
enum { TD_NVML_THROTTLED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 };

struct td_nvml_process {
    uint32_t pid;
    uint64_t used_bytes; // 0: unknown
};
// What a device does now. has_...: the driver says it.
struct td_nvml_sample {
    bool has_memory, has_utilization, has_power, has_temperature, has_throttle, has_processes;
    uint64_t used_bytes;
    uint32_t utilization; // percent
    double power_w;
    uint32_t temperature_c;
    uint64_t throttle;            // NVML's bits: why clocks are lower than they could be
    bool throttled;               // one of them is power or heat (TD_NVML_THROTTLED)
    uint32_t n_processes, n_more; // more: that have no room
    struct td_nvml_process process[TD_NVML_PROCESSES];
};
void td_nvml_sample(const struct td_nvml *n, const struct td_nvml_device *d,
                    struct td_nvml_sample *out_sample);

// Waits for an error event (XID) of the driver, at most so long. False: none came. uuid "": of a
// device that is not in the list.
bool td_nvml_await_xid(struct td_nvml *n, int64_t timeout_ns, char out_uuid[TD_DEVICE_UUID],
                       uint64_t *out_xid);

#endif
