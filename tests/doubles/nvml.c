// A double of the NVIDIA driver's library, libnvidia-ml.so.1. A file scripts it, which the variable
// NVML_DOUBLE names. It is read again at each call, so that a test changes it under a process. The
// functions, their codes and the layout of what they write are those of NVIDIA's NVML API
// reference. They are written down here once more, and not taken from lib/nvml, so that a slip
// there is seen. With NVML_DOUBLE_OLD it has the names and layouts that drivers had before _v2.
//
// A line of the file each, words apart by blanks, '_' in a name for a blank:
//   driver VERSION
//   gpu UUID NAME BYTES BUS NUMA MAJOR MINOR   in the library's order; BUS: hexadecimal
//   mig GPU UUID NAME BYTES                    an instance; its GPU is in MIG mode
//   migmode GPU                                in MIG mode, also without an instance
//   link UUID UUID                             these two have NVLink
//   lost UUID | denied UUID
//   use UUID BYTES PERCENT MILLIWATTS DEGREES
//   throttle UUID BITS                         why its clocks are low
//   process UUID PID BYTES
//   xid UUID NUMBER                            each line is an event, once
//   hang FUNCTION [SECONDS]                    it does not return, or so late; its name without _vN
//   fail FUNCTION CODE

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name, ...)                                                                          \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)
#ifdef NVML_DOUBLE_OLD
#define VERSIONED(name, version) name
#else
#define VERSIONED(name, version) name##version
#endif

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    UNKNOWN = 999,
    MANY = 80,
    MAX_MIG = 7,
    EVENT_XID = 8
};

struct gpu {
    char uuid[80], name[96];
    unsigned long long bytes, used;
    unsigned bus, numa, percent, milliwatts, degrees;
    unsigned long long throttle;
    int major, minor, parent; // parent: -1: it is a whole GPU
    bool lost, denied, cut, is_used, is_throttled;
};
struct pair {
    char a[80], b[80];
    unsigned long long n, bytes;
};
static struct {
    char driver[80];
    struct gpu gpu[MANY];
    struct pair link[MANY], process[MANY], xid[MANY];
    int n_gpus, n_links, n_processes, n_xids;
} now;
static bool is_up;
static int n_xids_given;

// ---- the script ---------------------------------------------------------------------------------
static struct gpu *find(const char *uuid) {
    for (int i = 0; i < now.n_gpus; i++) {
        if (strcmp(now.gpu[i].uuid, uuid) == 0) return &now.gpu[i];
    }
    return NULL;
}

static void add_gpu(const char *line) {
    struct gpu g = {.parent = -1};
    if (now.n_gpus == MANY) return;
    if (sscanf(line, "gpu %79s %95s %llu %x %u %d %d", g.uuid, g.name, &g.bytes, &g.bus, &g.numa,
               &g.major, &g.minor) != 7) {
        return;
    }
    now.gpu[now.n_gpus++] = g;
}

static void add_mig(const char *line) {
    struct gpu g = {.parent = -1};
    char parent[80];
    if (now.n_gpus == MANY) return;
    if (sscanf(line, "mig %79s %79s %95s %llu", parent, g.uuid, g.name, &g.bytes) != 4) return;
    struct gpu *of = find(parent);
    if (!of) return;
    of->cut = true;
    g.parent = (int)(of - now.gpu);
    g.major = of->major;
    g.minor = of->minor;
    now.gpu[now.n_gpus++] = g;
}

static void add_fact(const char *line) {
    struct pair p = {.n = 0};
    struct gpu *g;
    unsigned long long used;
    unsigned percent, milliwatts, degrees;
    (void)sscanf(line, "driver %79s", now.driver);
    if (sscanf(line, "migmode %79s", p.a) == 1 && (g = find(p.a))) g->cut = true;
    if (sscanf(line, "lost %79s", p.a) == 1 && (g = find(p.a))) g->lost = true;
    if (sscanf(line, "denied %79s", p.a) == 1 && (g = find(p.a))) g->denied = true;
    if (sscanf(line, "throttle %79s %llu", p.a, &p.n) == 2 && (g = find(p.a))) {
        g->throttle = p.n;
        g->is_throttled = true;
    }
    if (sscanf(line, "link %79s %79s", p.a, p.b) == 2 && now.n_links < MANY) {
        now.link[now.n_links++] = p;
    }
    if (sscanf(line, "process %79s %llu %llu", p.a, &p.n, &p.bytes) == 3 &&
        now.n_processes < MANY) {
        now.process[now.n_processes++] = p;
    }
    if (sscanf(line, "xid %79s %llu", p.a, &p.n) == 2 && now.n_xids < MANY) {
        now.xid[now.n_xids++] = p;
    }
    if (sscanf(line, "use %79s %llu %u %u %u", p.a, &used, &percent, &milliwatts, &degrees) == 5 &&
        (g = find(p.a))) {
        g->used = used;
        g->percent = percent;
        g->milliwatts = milliwatts;
        g->degrees = degrees;
        g->is_used = true;
    }
}

static void wait_s(const char *text) {
    (void)poll(NULL, 0, *text ? (int)strtol(text, NULL, 10) * 1000 : -1);
}

// Reads the script, and does what it says of this call. SUCCESS: the call goes on.
static int enter(const char *call) {
    const char *path = getenv("NVML_DOUBLE");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[512], name[80], rest[80];
    int code = SUCCESS;
    if (!f) return DRIVER_NOT_LOADED;
    memset(&now, 0, sizeof now);
    while (fgets(line, sizeof line, f)) {
        add_gpu(line);
        add_mig(line);
        add_fact(line);
        rest[0] = '\0';
        if (sscanf(line, "hang %79s %79s", name, rest) >= 1 && strcmp(name, call) == 0) {
            wait_s(rest);
        }
        if (sscanf(line, "fail %79s %79s", name, rest) == 2 && strcmp(name, call) == 0) {
            code = (int)strtol(rest, NULL, 10);
        }
    }
    fclose(f);
    if (code != SUCCESS) return code;
    return is_up || strcmp(call, "nvmlInit") == 0 ? SUCCESS : UNINITIALIZED;
}
#define ENTER(call)                                                                                \
    do {                                                                                           \
        int entered = enter(call);                                                                 \
        if (entered != SUCCESS) return entered;                                                    \
    } while (0)

// ---- handles ------------------------------------------------------------------------------------
// One each uuid, the same for as long as the process lives.
static struct handle { char uuid[80]; } handles[4 * MANY];

static void *handle_of(const char *uuid) {
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        if (!handles[i].uuid[0]) snprintf(handles[i].uuid, sizeof handles[i].uuid, "%s", uuid);
        if (strcmp(handles[i].uuid, uuid) == 0) return &handles[i];
    }
    abort();
}

static int device(const char *call, const void *handle, struct gpu **out) {
    ENTER(call);
    if (!handle) return INVALID_ARGUMENT;
    *out = find(((const struct handle *)handle)->uuid);
    if (!*out) return GPU_IS_LOST;
    const struct gpu *whole = (*out)->parent < 0 ? *out : &now.gpu[(*out)->parent];
    return whole->lost ? GPU_IS_LOST : SUCCESS;
}
#define DEVICE(call, handle)                                                                       \
    struct gpu *g = NULL;                                                                          \
    do {                                                                                           \
        int entered = device(call, handle, &g);                                                    \
        if (entered != SUCCESS) return entered;                                                    \
    } while (0)

static int text(char *out, unsigned bytes, const char *from) {
    if (bytes <= strlen(from)) return INSUFFICIENT_SIZE;
    memcpy(out, from, strlen(from) + 1);
    return SUCCESS;
}

// ---- system -------------------------------------------------------------------------------------
EXPORT(VERSIONED(nvmlInit, _v2), void) {
    ENTER("nvmlInit");
    is_up = true;
    return SUCCESS;
}
#ifndef NVML_DOUBLE_OLD
EXPORT(nvmlInit, void) { // the name that torch calls
    return nvmlInit_v2();
}
#endif

EXPORT(nvmlShutdown, void) {
    ENTER("nvmlShutdown");
    is_up = false;
    return SUCCESS;
}

EXPORT(nvmlSystemGetDriverVersion, char *out, unsigned bytes) {
    ENTER("nvmlSystemGetDriverVersion");
    return text(out, bytes, now.driver);
}

EXPORT(VERSIONED(nvmlDeviceGetCount, _v2), unsigned *out) {
    ENTER("nvmlDeviceGetCount");
    unsigned n = 0;
    for (int i = 0; i < now.n_gpus; i++) {
        n += now.gpu[i].parent < 0;
    }
    *out = n;
    return SUCCESS;
}

EXPORT(VERSIONED(nvmlDeviceGetHandleByIndex, _v2), unsigned number, void **out) {
    ENTER("nvmlDeviceGetHandleByIndex");
    for (int i = 0; i < now.n_gpus; i++) {
        if (now.gpu[i].parent >= 0 || number-- > 0) continue;
        if (now.gpu[i].denied) return NO_PERMISSION;
        if (now.gpu[i].lost) return GPU_IS_LOST;
        *out = handle_of(now.gpu[i].uuid);
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

// ---- a device -----------------------------------------------------------------------------------
EXPORT(nvmlDeviceGetUUID, void *handle, char *out, unsigned bytes) {
    DEVICE("nvmlDeviceGetUUID", handle);
    return text(out, bytes, g->uuid);
}

EXPORT(nvmlDeviceGetName, void *handle, char *out, unsigned bytes) {
    DEVICE("nvmlDeviceGetName", handle);
    char name[96];
    snprintf(name, sizeof name, "%s", g->name);
    for (char *c = name; *c; c++) {
        if (*c == '_') *c = ' ';
    }
    return text(out, bytes, name);
}

EXPORT(nvmlDeviceGetMemoryInfo, void *handle, unsigned long long *out_total_free_used) {
    DEVICE("nvmlDeviceGetMemoryInfo", handle);
    out_total_free_used[0] = g->bytes;
    out_total_free_used[1] = g->bytes - g->used;
    out_total_free_used[2] = g->used;
    return SUCCESS;
}

#ifdef NVML_DOUBLE_OLD
struct pci_info {
    char bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id, reserved[4];
};
#else
struct pci_info {
    char short_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
#endif

EXPORT(VERSIONED(nvmlDeviceGetPciInfo, _v3), void *handle, struct pci_info *out) {
    DEVICE("nvmlDeviceGetPciInfo", handle);
    memset(out, 0, sizeof *out);
    out->bus = g->bus;
    snprintf(out->bus_id, sizeof out->bus_id, "0000:%02X:00.0", g->bus & 0xff);
    return SUCCESS;
}

EXPORT(nvmlDeviceGetCudaComputeCapability, void *handle, int *out_major, int *out_minor) {
    DEVICE("nvmlDeviceGetCudaComputeCapability", handle);
    *out_major = g->major;
    *out_minor = g->minor;
    return SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryAffinity, void *handle, unsigned n_words, unsigned long *out, int scope) {
    DEVICE("nvmlDeviceGetMemoryAffinity", handle);
    if (!n_words || scope != 0) return INVALID_ARGUMENT;
    if (g->parent >= 0) return NOT_SUPPORTED;
    memset(out, 0, n_words * sizeof *out);
    out[0] = 1UL << g->numa;
    return SUCCESS;
}

// READ, WRITE, NVLINK, ATOMICS, PCI; status 0: OK, 5: not supported.
EXPORT(nvmlDeviceGetP2PStatus, void *handle, void *other, int capability, int *out) {
    DEVICE("nvmlDeviceGetP2PStatus", handle);
    struct gpu *o = NULL;
    int code = device("nvmlDeviceGetP2PStatus", other, &o);
    if (code != SUCCESS) return code;
    if (g->parent >= 0 || o->parent >= 0) return INVALID_ARGUMENT;
    *out = 5;
    for (int i = 0; i < now.n_links && capability == 2; i++) {
        const struct pair *l = &now.link[i];
        if ((strcmp(l->a, g->uuid) == 0 && strcmp(l->b, o->uuid) == 0) ||
            (strcmp(l->b, g->uuid) == 0 && strcmp(l->a, o->uuid) == 0)) {
            *out = 0;
        }
    }
    return SUCCESS;
}

// ---- MIG ----------------------------------------------------------------------------------------
#ifndef NVML_DOUBLE_OLD
EXPORT(nvmlDeviceGetMigMode, void *handle, unsigned *out_now, unsigned *out_pending) {
    DEVICE("nvmlDeviceGetMigMode", handle);
    if (g->parent >= 0 || g->major < 8) return NOT_SUPPORTED;
    *out_now = *out_pending = g->cut;
    return SUCCESS;
}

EXPORT(nvmlDeviceGetMaxMigDeviceCount, void *handle, unsigned *out) {
    DEVICE("nvmlDeviceGetMaxMigDeviceCount", handle);
    *out = g->major < 8 ? 0 : MAX_MIG;
    return SUCCESS;
}

EXPORT(nvmlDeviceGetMigDeviceHandleByIndex, void *handle, unsigned number, void **out) {
    DEVICE("nvmlDeviceGetMigDeviceHandleByIndex", handle);
    if (!g->cut) return NOT_SUPPORTED;
    if (number >= MAX_MIG) return INVALID_ARGUMENT;
    for (int i = 0; i < now.n_gpus; i++) {
        if (now.gpu[i].parent != (int)(g - now.gpu) || number-- > 0) continue;
        *out = handle_of(now.gpu[i].uuid);
        return SUCCESS;
    }
    return NOT_FOUND;
}
#endif

// ---- what it does now ---------------------------------------------------------------------------
struct process_info {
    unsigned pid;
    unsigned long long used;
#ifndef NVML_DOUBLE_OLD
    unsigned gpu_instance, compute_instance;
#endif
};

EXPORT(VERSIONED(nvmlDeviceGetComputeRunningProcesses, _v3), void *handle, unsigned *io_n,
       struct process_info *out) {
    DEVICE("nvmlDeviceGetComputeRunningProcesses", handle);
    unsigned n = 0;
    const unsigned room = *io_n;
    for (int i = 0; i < now.n_processes; i++) {
        const struct pair *p = &now.process[i];
        if (strcmp(p->a, g->uuid) != 0) continue;
        if (n++ >= room) continue;
        memset(&out[n - 1], 0, sizeof *out);
        out[n - 1].pid = (unsigned)p->n;
        out[n - 1].used = p->bytes ? p->bytes : ~0ULL;
    }
    *io_n = n;
    return n > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT(nvmlDeviceGetUtilizationRates, void *handle, unsigned *out_gpu_memory) {
    DEVICE("nvmlDeviceGetUtilizationRates", handle);
    if (g->parent >= 0 || !g->is_used) return NOT_SUPPORTED;
    out_gpu_memory[0] = g->percent;
    out_gpu_memory[1] = 0;
    return SUCCESS;
}

EXPORT(nvmlDeviceGetPowerUsage, void *handle, unsigned *out) {
    DEVICE("nvmlDeviceGetPowerUsage", handle);
    if (g->parent >= 0 || !g->is_used) return NOT_SUPPORTED;
    *out = g->milliwatts;
    return SUCCESS;
}

EXPORT(nvmlDeviceGetTemperature, void *handle, int sensor, unsigned *out) {
    DEVICE("nvmlDeviceGetTemperature", handle);
    if (sensor != 0) return INVALID_ARGUMENT;
    if (g->parent >= 0 || !g->is_used) return NOT_SUPPORTED;
    *out = g->degrees;
    return SUCCESS;
}

#ifdef NVML_DOUBLE_OLD
#define THROTTLE nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define THROTTLE nvmlDeviceGetCurrentClocksEventReasons
#endif

EXPORT(THROTTLE, void *handle, unsigned long long *out) {
    DEVICE("nvmlDeviceGetCurrentClocksEventReasons", handle);
    if (g->parent >= 0 || !g->is_throttled) return NOT_SUPPORTED;
    *out = g->throttle;
    return SUCCESS;
}

// ---- events -------------------------------------------------------------------------------------
struct event_data {
    void *device;
    unsigned long long type, data;
#ifndef NVML_DOUBLE_OLD
    unsigned gpu_instance, compute_instance;
#endif
};

EXPORT(nvmlEventSetCreate, void **out) {
    static int set;
    ENTER("nvmlEventSetCreate");
    *out = &set;
    return SUCCESS;
}

EXPORT(nvmlEventSetFree, void *set) {
    (void)set;
    ENTER("nvmlEventSetFree");
    return SUCCESS;
}

EXPORT(nvmlDeviceGetSupportedEventTypes, void *handle, unsigned long long *out) {
    DEVICE("nvmlDeviceGetSupportedEventTypes", handle);
    if (g->parent >= 0) return NOT_SUPPORTED;
    *out = EVENT_XID;
    return SUCCESS;
}

EXPORT(nvmlDeviceRegisterEvents, void *handle, unsigned long long types, void *set) {
    (void)set;
    DEVICE("nvmlDeviceRegisterEvents", handle);
    return types & ~(unsigned long long)EVENT_XID ? NOT_SUPPORTED : SUCCESS;
}

EXPORT(VERSIONED(nvmlEventSetWait, _v2), void *set, struct event_data *out, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited = 0;; waited += 10) {
        ENTER("nvmlEventSetWait");
        if (n_xids_given < now.n_xids) {
            const struct pair *x = &now.xid[n_xids_given++];
            memset(out, 0, sizeof *out);
            out->device = handle_of(x->a);
            out->type = EVENT_XID;
            out->data = x->n;
            return SUCCESS;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        (void)poll(NULL, 0, 10);
    }
}
