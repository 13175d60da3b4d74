// NVML open and close, and the list of devices (nvml.h).
//
// The list is made again at each reading, since devices are lost and MIG instances come and go.
// What never changes of a device is taken from the reading before, where its uuid is the same.
//
// A device whose call fails keeps its place: the others' indexes do not move because one has died.
// One that is lost before it was ever read has no uuid, so it is noted and not listed.

#include "lib/nvml/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clip.h"
#include "lib/base/utf8.h"
#include "lib/nvml/state.h"

enum { NUMA_WORDS = 1, MIG_ON = 1, MIG_MAX = 16 };

// ---- life ---------------------------------------------------------------------------------------
td_status td_nvml_open(const char *path, struct td_nvml **out_nvml) {
    TD_AUTO(td_nvml) *n = td_calloc(1, sizeof *n);
    if (!n) return td_fail_oom();
    TD_TRY(td_nvml_calls_open(path, &n->calls));
    int code = n->calls.init();
    if (code != TD_NVML_OK) return td_nvml_fail("the NVIDIA driver does not start NVML", code);
    n->is_up = true;
    if (TD_NVML_TRY_CALL(&n->calls, event_set, &n->events) != TD_NVML_OK) n->events = NULL;
    *out_nvml = td_steal(n);
    return TD_OK;
}

void td_nvml_close(struct td_nvml *n) {
    if (!n) return;
    if (n->events) (void)TD_NVML_TRY_CALL(&n->calls, event_set_free, n->events);
    if (n->is_up) (void)n->calls.shutdown();
    td_nvml_calls_close(&n->calls);
    free(n);
}

// ---- one device ---------------------------------------------------------------------------------
// As it was read last; NULL: it never was.
static const struct td_nvml_device *find_gpu(const struct td_nvml *n, const char *uuid) {
    for (uint32_t i = 0; i < n->n_gpus; i++) {
        if (strcmp(n->gpu[i].uuid, uuid) == 0) return &n->gpu[i];
    }
    return NULL;
}

static const struct td_nvml_device *find_instance(const struct td_nvml *n, const char *uuid) {
    for (uint32_t i = 0; i < n->list.n; i++) {
        const struct td_nvml_device *d = &n->list.device[i];
        if (d->parent[0] && strcmp(d->uuid, uuid) == 0) return d;
    }
    return NULL;
}

static void read_near_memory(const struct td_nvml_calls *c, struct td_nvml_device *d) {
    unsigned long nodes[NUMA_WORDS] = {0};
    int code =
        TD_NVML_TRY_CALL(c, near_memory, d->handle, NUMA_WORDS, nodes, TD_NVML_AFFINITY_NODE);
    if (code == TD_NVML_OK) d->numa_nodes = nodes[0];
}

// What never changes. Of a device that was read before it is a copy.
static int read_facts(const struct td_nvml *n, struct td_nvml_device *d,
                      const struct td_nvml_device *known) {
    const struct td_nvml_calls *c = &n->calls;
    struct td_nvml_memory memory = {0};
    int major = 0, minor = 0;
    if (known) {
        memcpy(d->name, known->name, sizeof d->name);
        memcpy(d->capability, known->capability, sizeof d->capability);
        d->memory_bytes = known->memory_bytes;
        d->numa_nodes = known->numa_nodes;
        int code = c->memory(d->handle, &memory); // does it answer still?
        return code == TD_NVML_NOT_SUPPORTED ? TD_NVML_OK : code;
    }
    int code = c->name(d->handle, d->name, sizeof d->name);
    if (code != TD_NVML_OK) return code;
    td_utf8_scrub(d->name);
    code = c->memory(d->handle, &memory);
    if (code == TD_NVML_OK) d->memory_bytes = memory.total;
    if (code != TD_NVML_OK && code != TD_NVML_NOT_SUPPORTED) return code;
    if (TD_NVML_TRY_CALL(c, capability, d->handle, &major, &minor) == TD_NVML_OK) {
        snprintf(d->capability, sizeof d->capability, "%d.%d", major, minor);
    }
    read_near_memory(c, d);
    return TD_NVML_OK;
}

static int read_uuid(const struct td_nvml_calls *c, struct td_nvml_device *d) {
    char text[TD_NVML_TEXT] = "";
    int code = c->uuid(d->handle, text, sizeof text);
    if (code != TD_NVML_OK) return code;
    text[sizeof text - 1] = '\0';
    if (!td_device_uuid_ok(text)) return TD_NVML_NOT_SUPPORTED;
    snprintf(d->uuid, sizeof d->uuid, "%s", text);
    return TD_NVML_OK;
}

static int read_pci(const struct td_nvml_calls *c, struct td_nvml_device *d) {
    struct td_nvml_pci pci = {0};
    int code = c->pci(d->handle, &pci);
    if (code != TD_NVML_OK) return code;
    snprintf(d->bus_id, sizeof d->bus_id, "%08X:%02X:%02X.0", pci.domain, pci.bus & 0xff,
             pci.device & 0xff);
    return TD_NVML_OK;
}

static int read_gpu(const struct td_nvml *n, struct td_nvml_device *d) {
    int code = n->calls.by_number(d->number, &d->handle);
    if (code == TD_NVML_OK) code = read_uuid(&n->calls, d);
    if (code == TD_NVML_OK) code = read_pci(&n->calls, d);
    return code == TD_NVML_OK ? read_facts(n, d, find_gpu(n, d->uuid)) : code;
}

// ---- all whole GPUs -----------------------------------------------------------------------------
// As it was read last, with what is wrong now. False: it never was.
static bool keep_lost(const struct td_nvml *n, struct td_nvml_device *d, int code) {
    for (uint32_t i = 0; i < n->n_gpus; i++) {
        const struct td_nvml_device *was = &n->gpu[i];
        const bool is_it = d->uuid[0] ? strcmp(was->uuid, d->uuid) == 0 : was->number == d->number;
        if (!is_it || !was->uuid[0]) continue;
        const unsigned number = d->number;
        *d = *was;
        d->number = number;
        (void)td_clip(d->health, sizeof d->health, "%s (NVML error %d)", td_nvml_words(code), code);
        return true;
    }
    return false;
}

// In PCI order; the library's is mostly the same. One without a bus id stays where it was.
static void sort(struct td_nvml_device *gpu, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        struct td_nvml_device moved = gpu[i];
        uint32_t k = i;
        for (; k > 0 && moved.bus_id[0] && strcmp(gpu[k - 1].bus_id, moved.bus_id) > 0; k--) {
            gpu[k] = gpu[k - 1];
        }
        gpu[k] = moved;
    }
}

// Those that this process may open, with their indexes; without a uuid: it cannot be listed.
static td_status read_gpus(struct td_nvml *n, struct td_nvml_device *gpu, uint32_t *out_n) {
    unsigned count = 0, n_denied = 0;
    uint32_t n_gpus = 0;
    int code = n->calls.count(&count);
    if (code != TD_NVML_OK) return td_nvml_fail("the NVIDIA driver does not count its GPUs", code);
    for (unsigned i = 0; i < count && n_gpus < TD_DEVICES_MAX; i++) {
        struct td_nvml_device *d = &gpu[n_gpus];
        *d = (struct td_nvml_device){.number = i};
        code = read_gpu(n, d);
        if (code == TD_NVML_NO_PERMISSION) {
            n_denied++;
            continue;
        }
        n_gpus++;
        if (code == TD_NVML_OK || keep_lost(n, d, code)) continue;
        d->uuid[0] = '\0';
        td_clip_list_add(&n->notes, "GPU %u cannot be listed: %s (NVML error %d)", i,
                         td_nvml_words(code), code);
    }
    if (n_denied) {
        td_clip_list_add(&n->notes, "%u more that this user, or its cgroup, may not open",
                         n_denied);
    }
    if (count > TD_DEVICES_MAX) {
        td_clip_list_add(&n->notes, "%u more: only %d are listed", count - TD_DEVICES_MAX,
                         TD_DEVICES_MAX);
    }
    sort(gpu, n_gpus);
    for (uint32_t i = 0; i < n_gpus; i++) {
        gpu[i].index = i;
    }
    *out_n = n_gpus;
    return TD_OK;
}

// Bits of the indexes that it reaches over NVLink, directly or by a switch.
static void read_peers(const struct td_nvml_calls *c, struct td_nvml_device *gpu, uint32_t n_gpus,
                       uint32_t i) {
    gpu[i].peers = 0;
    for (uint32_t k = 0; k < n_gpus; k++) {
        int status = -1;
        if (k == i || !gpu[k].uuid[0] || gpu[k].health[0]) continue;
        if (TD_NVML_TRY_CALL(c, link_status, gpu[i].handle, gpu[k].handle, TD_NVML_LINK_NVLINK,
                             &status) == TD_NVML_OK &&
            status == TD_NVML_LINK_OK) {
            gpu[i].peers |= UINT64_C(1) << k;
        }
    }
}

// Are these the GPUs of the last reading, all well? Then no peers have changed.
static bool is_same(const struct td_nvml *n, const struct td_nvml_device *gpu, uint32_t n_gpus) {
    for (uint32_t i = 0; i < n_gpus; i++) {
        const struct td_nvml_device *was = find_gpu(n, gpu[i].uuid);
        if (!was || was->index != gpu[i].index || strcmp(was->health, gpu[i].health) != 0) {
            return false;
        }
    }
    return true;
}

static void link_gpus(const struct td_nvml *n, struct td_nvml_device *gpu, uint32_t n_gpus) {
    const bool same = is_same(n, gpu, n_gpus);
    for (uint32_t i = 0; i < n_gpus; i++) {
        if (!gpu[i].uuid[0] || gpu[i].health[0]) continue;
        if (same) {
            gpu[i].peers = find_gpu(n, gpu[i].uuid)->peers;
        } else {
            read_peers(&n->calls, gpu, n_gpus, i);
        }
    }
}

// ---- MIG, and the list --------------------------------------------------------------------------
static void put(struct td_nvml *n, const struct td_nvml_device *d) {
    if (n->next.n == TD_DEVICES_MAX) {
        td_clip_list_add(&n->notes, "%s has no room: only %d are listed", d->uuid, TD_DEVICES_MAX);
        return;
    }
    n->next.device[n->next.n++] = *d;
}

static bool is_cut(const struct td_nvml_calls *c, const struct td_nvml_device *gpu) {
    unsigned now = 0, pending = 0;
    return TD_NVML_TRY_CALL(c, mig_mode, gpu->handle, &now, &pending) == TD_NVML_OK &&
           now == MIG_ON;
}

static void put_instances(struct td_nvml *n, const struct td_nvml_device *gpu) {
    const struct td_nvml_calls *c = &n->calls;
    unsigned most = 0, n_found = 0;
    if (TD_NVML_TRY_CALL(c, mig_count, gpu->handle, &most) != TD_NVML_OK) most = MIG_MAX;
    for (unsigned i = 0; i < TD_MIN(most, MIG_MAX); i++) {
        struct td_nvml_device d = {.number = gpu->number, .index = gpu->index};
        int code = TD_NVML_TRY_CALL(c, mig_by_number, gpu->handle, i, &d.handle);
        if (code == TD_NVML_NOT_FOUND) continue; // no instance has that number
        if (code == TD_NVML_OK) code = read_uuid(c, &d);
        if (code == TD_NVML_OK) code = read_facts(n, &d, find_instance(n, d.uuid));
        if (code != TD_NVML_OK) {
            td_clip_list_add(&n->notes, "instance %u of %s cannot be listed: %s (NVML error %d)", i,
                             gpu->uuid, td_nvml_words(code), code);
            continue;
        }
        memcpy(d.parent, gpu->uuid, sizeof d.parent);
        memcpy(d.bus_id, gpu->bus_id, sizeof d.bus_id);
        if (!d.capability[0]) memcpy(d.capability, gpu->capability, sizeof d.capability);
        if (!d.numa_nodes) d.numa_nodes = gpu->numa_nodes;
        n_found++;
        put(n, &d);
    }
    if (!n_found) {
        td_clip_list_add(&n->notes, "%s is in MIG mode and has no instances", gpu->uuid);
    }
}

// Instances of a GPU that is lost are lost with it.
static void put_lost(struct td_nvml *n, const struct td_nvml_device *gpu) {
    bool had_instances = false;
    for (uint32_t i = 0; i < n->list.n; i++) {
        struct td_nvml_device d = n->list.device[i];
        if (strcmp(d.parent, gpu->uuid) != 0) continue;
        memcpy(d.health, gpu->health, sizeof d.health);
        d.index = gpu->index; // which may be another by now
        had_instances = true;
        put(n, &d);
    }
    if (!had_instances) put(n, gpu);
}

td_status td_nvml_read(struct td_nvml *n, const struct td_nvml_list **out_list) {
    TD_AUTO_FREE struct td_nvml_device *gpu = td_calloc(TD_DEVICES_MAX, sizeof *gpu);
    uint32_t n_gpus = 0;
    if (!gpu) return td_fail_oom();
    n->next = (struct td_nvml_list){.n = 0};
    td_clip_list_init(&n->notes, n->next.notes, sizeof n->next.notes, "; ");
    if (TD_NVML_TRY_CALL(&n->calls, driver_version, n->next.driver, sizeof n->next.driver) !=
        TD_NVML_OK) {
        n->next.driver[0] = '\0';
    }
    td_utf8_scrub(n->next.driver);
    TD_TRY(read_gpus(n, gpu, &n_gpus));
    link_gpus(n, gpu, n_gpus);
    for (uint32_t i = 0; i < n_gpus; i++) {
        if (!gpu[i].uuid[0]) continue;
        if (gpu[i].health[0]) {
            put_lost(n, &gpu[i]);
            continue;
        }
        td_nvml_register_events(n, &gpu[i]);
        if (is_cut(&n->calls, &gpu[i])) {
            put_instances(n, &gpu[i]);
        } else {
            put(n, &gpu[i]);
        }
    }
    n->list = n->next;
    memcpy(n->gpu, gpu, sizeof n->gpu);
    n->n_gpus = n_gpus;
    *out_list = &n->list;
    return TD_OK;
}
