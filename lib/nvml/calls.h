#ifndef TRAIND_LIB_NVML_CALLS_H
#define TRAIND_LIB_NVML_CALLS_H

// NVML as it is called: our own declarations, so that no header of NVIDIA's is needed to build.
// What the library's functions take and write has the same layout in all of its versions from 418
// on, where nothing else is said. A function has several names where a newer version takes or gives
// more; the newest that the library has is called. Private to this folder.

#include "lib/base/base.h"

// Codes that decide something here; calls.c has the others, in words.
enum td_nvml_code {
    TD_NVML_OK = 0,
    TD_NVML_NOT_SUPPORTED = 3,
    TD_NVML_NO_PERMISSION = 4,
    TD_NVML_NOT_FOUND = 6,
    TD_NVML_TOO_SMALL = 7,
    TD_NVML_DRIVER_NOT_LOADED = 9,
    TD_NVML_TIMEOUT = 10,
    TD_NVML_NO_FUNCTION = 13,
    TD_NVML_GPU_IS_LOST = 15,
    TD_NVML_RESET_REQUIRED = 16,
    TD_NVML_VERSION_MISMATCH = 18,
};

struct td_nvml_memory {
    unsigned long long total, free, used; // bytes
};
// Before _v3 the library writes the first five fields, and 16 reserved bytes.
struct td_nvml_pci {
    char short_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
struct td_nvml_utilization {
    unsigned gpu, memory; // percent
};
// Of the first version, which has no suffix: the first two fields alone.
struct td_nvml_process_info {
    unsigned pid;
    unsigned long long used_bytes; // all bits set: not known
    unsigned gpu_instance, compute_instance;
};
struct td_nvml_old_process_info {
    unsigned pid;
    unsigned long long used_bytes;
};
// Before _v2: the first three fields.
struct td_nvml_event_data {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

enum {
    TD_NVML_AFFINITY_NODE = 0,
    TD_NVML_LINK_NVLINK = 2, // a capability between two devices
    TD_NVML_LINK_OK = 0,
    TD_NVML_SENSOR_GPU = 0,
    TD_NVML_EVENT_XID = 8,
};

enum td_nvml_call {
#define TD_NVML_CALL(field, ...) TD_NVML_CALL_##field,
#include "lib/nvml/calls.def"
#undef TD_NVML_CALL
    TD_NVML_N_CALLS
};

struct td_nvml_calls {
#define TD_NVML_CALL(field, is_needed, parameters, ...) int(*field) parameters;
#include "lib/nvml/calls.def"
#undef TD_NVML_CALL
    void *object;
    unsigned char version[TD_NVML_N_CALLS]; // which of its names a call has: 0: the newest
};

// path: the library, "": where drivers put it. Errors: NOT_FOUND (there is none), UNIMPLEMENTED (it
// lacks a function that is needed).
TD_MUST_USE td_status td_nvml_calls_open(const char *path, struct td_nvml_calls *out_calls);
void td_nvml_calls_close(struct td_nvml_calls *calls);

// What went wrong with a device or the driver, in words and with NVML's number. code: not OK. The
// status is none of td_nvml_calls_open's.
const char *td_nvml_words(int code);
TD_MUST_USE td_status td_nvml_fail(const char *what, int code);

// The answer of a call that the library may lack.
#define TD_NVML_TRY_CALL(calls, field, ...)                                                        \
    ((calls)->field ? (calls)->field(__VA_ARGS__) : TD_NVML_NO_FUNCTION)

#endif
