// The list is kept unpacked, as placement reads it. protobuf-c copies a message by way of
// its bytes.

#include "daemon/coordinator/core/model/host_gpus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/attempt/devices.h"
#include "lib/attempt/xids.h"
#include "lib/base/arena.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

static void *arena_alloc(void *arena, size_t bytes) {
    return td_arena_alloc(arena, bytes ? bytes : 1);
}
static void arena_free(void *arena, void *p) {
    (void)arena, (void)p; // goes with the arena
}

// allocator NULL: the heap. NULL: no memory.
static Traind__V1__GpuList *dup_list(const Traind__V1__GpuList *m, ProtobufCAllocator *allocator) {
    const size_t bytes = traind__v1__gpu_list__get_packed_size(m);
    TD_AUTO_FREE uint8_t *packed = td_calloc(1, bytes + 1);
    if (!packed) return NULL;
    traind__v1__gpu_list__pack(m, packed);
    return traind__v1__gpu_list__unpack(allocator, bytes, packed);
}

// What is wrong with it; NULL: nothing.
static const char *find_wrong(const Traind__V1__GpuList *m) {
    if (m->n_gpus > TD_DEVICES_MAX) return "more than 64 GPUs";
    if (m->n_errors > TD_HOST_GPU_ERRORS) return "more than 64 errors";
    if (m->n_exclusions) return "GPUs that are excluded, which only the coordinator says";
    if (traind__v1__gpu_list__get_packed_size(m) > TD_HOST_GPUS_BYTES) return "more than 256 KiB";
    for (size_t i = 0; i < m->n_gpus; i++) {
        if (!td_device_uuid_ok(m->gpus[i]->uuid)) return "a GPU without a uuid";
        for (size_t k = 0; k < i; k++) {
            if (strcmp(m->gpus[i]->uuid, m->gpus[k]->uuid) == 0) return "a GPU twice";
        }
    }
    return NULL;
}

static void forget_list(struct td_host_gpus *g) {
    if (g->list) traind__v1__gpu_list__free_unpacked(td_steal(g->list), NULL);
}

void td_host_gpus_finish(struct td_host_gpus *g) {
    forget_list(g);
    td_gpu_marks_finish(&g->marks);
}

void td_host_gpus_register(struct td_host_gpus *g, bool lists, bool is_other_boot) {
    g->is_registered = true;
    g->lists = lists;
    if (!lists || is_other_boot) forget_list(g);
}

static bool are_same(const Traind__V1__GpuList *a, const Traind__V1__GpuList *b) {
    bool same = a && a->n_gpus == b->n_gpus;
    for (size_t i = 0; same && i < a->n_gpus; i++) {
        same = strcmp(a->gpus[i]->uuid, b->gpus[i]->uuid) == 0 &&
               strcmp(a->gpus[i]->parent, b->gpus[i]->parent) == 0;
    }
    return same;
}

bool td_host_gpus_take(struct td_host_gpus *g, const Traind__V1__GpuList *m) {
    Traind__V1__GpuList none = TRAIND__V1__GPU_LIST__INIT;
    char why[96];
    const char *wrong = find_wrong(m);
    if (wrong) {
        snprintf(why, sizeof why, "its list of GPUs is refused: it has %s", wrong);
        none.why = why;
        m = &none;
    }
    const bool same = are_same(g->list, m);
    forget_list(g);
    g->list = dup_list(m, NULL);
    TD_CHECK(g->list && "out of memory: start again from the disk");
    return !same;
}

static void say_processes(const Traind__V1__Gpu *gpu, char *out, size_t bytes) {
    struct td_clip_list pids;
    const size_t all = gpu->n_processes + gpu->more_processes;
    size_t len = (size_t)snprintf(out, bytes, "held by pid%s ", all == 1 ? "" : "s");
    td_clip_list_init(&pids, out + len, bytes - len, ", ");
    for (size_t i = 0; i < gpu->n_processes; i++) {
        td_clip_list_add(&pids, "%u", gpu->processes[i]->pid);
    }
    if (gpu->more_processes) td_clip_list_add(&pids, "and %u more", gpu->more_processes);
}

void td_host_gpus_bar(const struct td_host_gpus *g, const Traind__V1__Gpu *gpu, char *out,
                      size_t bytes) {
    const bool is_used = gpu->n_processes || gpu->more_processes;
    const struct td_gpu_mark *mark = td_host_gpus_mark(g, gpu->uuid);
    out[0] = '\0';
    if (mark) {
        (void)td_clip(out, bytes, "excluded: %s", mark->reason);
    } else if (gpu->health[0]) {
        (void)td_clip(out, bytes, "%s", gpu->health);
    } else if (g->list->stale) {
        (void)td_clip(out, bytes, "its driver does not answer");
    } else if (is_used && !g->list->shares_busy) {
        say_processes(gpu, out, bytes);
    }
    td_utf8_scrub(out);
}

static const char *say_unlisted(const struct td_host_gpus *g) {
    if (!g->is_registered) return "not known: the node is away since the coordinator started";
    if (!g->lists) return "not known: the node's build does not list GPUs";
    return "not known yet: the node waits for what the NVIDIA driver answers";
}

Traind__V1__GpuList *td_host_gpus_view(struct td_arena *a, const struct td_host_gpus *g) {
    ProtobufCAllocator allocator = {arena_alloc, arena_free, a};
    if (g->list) return dup_list(g->list, &allocator);
    Traind__V1__GpuList *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    traind__v1__gpu_list__init(m);
    m->why = td_unconst(say_unlisted(g));
    return m;
}

// ---- one of them --------------------------------------------------------------------------------
const Traind__V1__Gpu *td_host_gpus_find(const struct td_host_gpus *g, const char *uuid) {
    for (size_t i = 0; g->list && i < g->list->n_gpus; i++) {
        if (strcmp(g->list->gpus[i]->uuid, uuid) == 0) return g->list->gpus[i];
    }
    return NULL;
}

bool td_host_gpus_has(const struct td_host_gpus *g, const char *uuid) {
    for (size_t i = 0; uuid[0] && g->list && i < g->list->n_gpus; i++) {
        const Traind__V1__Gpu *d = g->list->gpus[i];
        if (strcmp(d->uuid, uuid) == 0 || strcmp(d->parent, uuid) == 0) return true;
    }
    return false;
}

const struct td_gpu_mark *td_host_gpus_mark(const struct td_host_gpus *g, const char *uuid) {
    const struct td_gpu_mark *own = td_gpu_marks_excluded(&g->marks, uuid);
    const Traind__V1__Gpu *d = own ? NULL : td_host_gpus_find(g, uuid);
    return d && d->parent[0] ? td_gpu_marks_excluded(&g->marks, d->parent) : own;
}

const char *td_host_gpus_excluded(const struct td_host_gpus *g, const char *uuid) {
    const struct td_gpu_mark *m = td_host_gpus_mark(g, uuid);
    return m ? m->reason : NULL;
}

char *td_host_gpus_say_xid(uint32_t xid, char *out, size_t bytes) {
    (void)td_clip(out, bytes, "XID %" PRIu32 " (%s)", xid, td_xid_get(xid).meaning);
    return out;
}
