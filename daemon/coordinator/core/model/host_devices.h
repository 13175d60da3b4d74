#ifndef TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_DEVICES_H
#define TRAIND_DAEMON_COORDINATOR_CORE_MODEL_HOST_DEVICES_H

// Devices of a node, by accelerator. The probe reports those of installed accelerators, plans those
// of a job's accelerator. Two jobs may each bring a plugin of the same name. So a key has the name
// and, of a spec with files of its own, a digest of their paths. An accelerator that is not listed
// is one that nobody has asked the node about. Once the probe's list is there, an accelerator that
// is neither in it nor a plugin of the spec has no devices. One whose device is the host is listed
// as such. All is stored with the node, and forgotten when its machine was started again or its
// plugins changed.
//
// A spec that lists files may still mean the installed accelerator, and mostly does. So its key
// stands for the installed one, until a plan of such a spec names other devices.
//
// GPUs that jobs of kinds command and program ask for are one more list, under the key
// TD_ACCEL_GPU. It is what NVML said last (host_gpus.h), is not stored, and has for each GPU why no
// job gets it now. A job says which of them will do (struct td_device_want). The list cuts those of
// accelerators: a GPU that is in theirs and not in it does not count, and what bars it there bars
// it here.
//
// `held` says who has a device: an attempt, or a job that waits and keeps it, until the next pass
// of the queue. A device is one thing by its uuid, also where several accelerators list it.
// Bounds: TD_HOST_ACCELERATORS, of which the one that was longest not listed or used goes;
// TD_DEVICES_MAX of each. A worker refuses an accelerator with more, so no list is longer; if one
// is, the rest is left out. Pure; the core's thread.

#include "lib/attempt/devices.h"
#include "lib/base/base.h"
#include "traind/v1/plugin.pb-c.h"

struct td_buf;
struct td_json;
struct td_spec;

enum { TD_HOST_ACCELERATORS = 64, TD_ACCEL_KEY = 56, TD_DEVICE_NAME = 96 };

// Keys of accelerators have no large letters, so none is this one.
#define TD_ACCEL_GPU "GPU"

#define TD_DEVICE_FREE     UINT64_C(0)
#define TD_DEVICE_ATTEMPT  UINT64_MAX       // anything else: turn of the waiting job that keeps it
#define TD_DEVICE_EXCLUDED (UINT64_MAX - 1) // no job has it, and none gets it (gpu_marks.h)

struct td_host_device {
    char uuid[TD_DEVICE_UUID];
    char name[TD_DEVICE_NAME];
    uint64_t memory_bytes;
    uint64_t held;
    uint64_t peers;   // of a GPU: bit set of the places in this list that it reaches over NVLink
    char barred[128]; // of a GPU: why no job gets it now; "": one may
    bool is_cut;      // a GPU that the node does not give to jobs
};
// Which devices will do for a job, and how many it needs on one node.
struct td_device_want {
    uint32_t n;
    const char *model;     // pattern of the name; "": any
    uint64_t memory_bytes; // at least
    bool whole;            // an instance of MIG will not do: CUDA takes one of them at most
};
struct td_host_accel {
    char key[TD_ACCEL_KEY];
    char name[32];
    bool is_host; // it has no devices but the host
    bool refused; // the node gave no plan for it, another did: none, and not stored
    uint64_t used;
    uint32_t n;
    struct td_host_device device[];
};
struct td_host_devices {
    struct td_host_accel *accel[TD_HOST_ACCELERATORS];
    uint32_t n;
    bool listed;   // the probe's list came: installed accelerators are those in it
    bool withheld; // the node's build gives ranks no devices: it counts as having none
    uint64_t next_use;
    struct td_host_accel *gpus; // NULL: the node has not said yet
    bool no_gpus;               // its build gives no GPUs to jobs: it counts as having none
};

// Of a job's accelerator: "far", or "far@1f2e..." with plugins of its own.
void td_accel_key(const struct td_spec *spec, char out_key[TD_ACCEL_KEY]);
// True: no node has devices for it but the host, and none needs to be asked.
bool td_accel_is_host(const char *key);
bool td_accel_is_gpu(const char *key);
int td_accel_name_len(const char *key); // without the digest

// NULL: nobody has asked. One without devices that is not is_host: the node has none.
const struct td_host_accel *td_host_accel_find(const struct td_host_devices *d,
                                               const char *accelerator);
// The node's build gives ranks none of these.
bool td_host_devices_withheld(const struct td_host_devices *d, const char *accelerator);
// It was asked about, or needs not to be.
bool td_host_devices_known(const struct td_host_devices *d, const char *accelerator);
void td_host_devices_use(struct td_host_devices *d, const char *key); // the last to be left out
// Those that will do, also those that another job has or that are barred.
uint32_t td_host_devices_fitting(const struct td_host_accel *a, const struct td_device_want *want);
// Those of them that the job of that turn may have now, up to want->n.
uint32_t td_host_devices_free(const struct td_host_accel *a, const struct td_device_want *want,
                              uint64_t turn);

// All are free; then those of a list of an attempt are not.
void td_host_devices_release(struct td_host_devices *d);
void td_host_devices_hold(struct td_host_devices *d, const char *list);
void td_host_devices_exclude(struct td_host_devices *d, const char *uuid);
// Keeps up to want->n of them for the job of that turn.
void td_host_devices_keep(struct td_host_devices *d, const char *key,
                          const struct td_device_want *want, uint64_t turn);
// A list of want->n of those that it may have, in their order; the caller frees. NULL: there are
// not so many. Of GPUs those that reach each other over NVLink go together.
char *td_host_devices_pick(const struct td_host_accel *a, const struct td_device_want *want,
                           uint64_t turn);

// True: something is new. From a plan's answer, from the probe, and none any more. Of a plan whose
// accelerator is the host's nothing is kept. What the probe's list lacks is not installed any more.
bool td_host_devices_take_plan(struct td_host_devices *d, const char *key, const char *plan_json);
bool td_host_devices_take_probe(struct td_host_devices *d,
                                Traind__V1__AcceleratorDevices *const *list, size_t n_list);
bool td_host_devices_forget(struct td_host_devices *d);
// It gave no plan for that accelerator, and another node did. Until it registers again.
void td_host_devices_refuse(struct td_host_devices *d, const char *key);
void td_host_devices_forget_refused(struct td_host_devices *d);

// The node's GPUs are these now; NULL: it is not known. True: something is new.
struct td_host_gpus;
bool td_host_devices_take_gpus(struct td_host_devices *d, const struct td_host_gpus *gpus);
void td_host_devices_finish(struct td_host_devices *d);

// As a member's value of the node's record.
TD_MUST_USE td_status td_host_devices_encode(const struct td_host_devices *d, struct td_buf *out);
void td_host_devices_decode(struct td_host_devices *d, const struct td_json *list);

#endif
