// See the header. A device's number counts those of all parts before it, whether or not the driver
// knows these: it is the one in the names of its metrics (daemon/launcher/gpus.h).

#include "daemon/coordinator/core/view_gpus.h"

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/devices.h"
#include "lib/base/arena.h"
#include "lib/base/clock.h"

// ---- which are excluded -------------------------------------------------------------------------
static Traind__V1__GpuExclusion *view_mark(struct td_arena *a, const struct td_gpu_mark *from) {
    char time[32];
    Traind__V1__GpuExclusion *m = td_arena_alloc(a, sizeof *m);
    if (!m) return NULL;
    td_real_format((struct td_real){from->time_ns}, time, sizeof time);
    traind__v1__gpu_exclusion__init(m);
    m->uuid = td_arena_strdup(a, from->uuid);
    m->reason = td_arena_strdup(a, from->reason);
    m->by = td_arena_strdup(a, from->by);
    m->time = td_arena_strdup(a, time);
    m->xid = from->xid;
    return m->uuid && m->reason && m->by && m->time ? m : NULL;
}

static bool view_exclusions(struct td_arena *a, const struct td_host_gpus *g,
                            Traind__V1__GpuList *io_list) {
    io_list->exclusions = td_arena_array(a, g->marks.n + 1, sizeof *io_list->exclusions);
    for (uint32_t i = 0; io_list->exclusions && i < g->marks.n; i++) {
        if (!g->marks.mark[i].excludes) continue;
        Traind__V1__GpuExclusion *m = view_mark(a, &g->marks.mark[i]);
        if (!m) return false;
        io_list->exclusions[io_list->n_exclusions++] = m;
    }
    return io_list->exclusions != NULL;
}

// ---- of a node ----------------------------------------------------------------------------------
Traind__V1__GpuList *td_view_gpus(struct td_arena *a, const struct td_core *core,
                                  const struct td_host *n) {
    Traind__V1__GpuList *m = td_host_gpus_view(a, &n->gpus);
    for (uint32_t i = 0; m && m->n_gpus && i < core->n_live; i++) {
        const struct td_attempt *live = td_job_live(core->live[i]);
        const struct td_attempt_part *p = live ? td_attempt_part_on(live, n->id) : NULL;
        for (size_t k = 0; p && p->devices && k < m->n_gpus; k++) {
            if (!td_device_list_has(p->devices, m->gpus[k]->uuid)) continue;
            m->gpus[k]->job = td_arena_strdup(a, core->live[i]->id);
            if (!m->gpus[k]->job) return NULL;
        }
    }
    return m && view_exclusions(a, &n->gpus, m) ? m : NULL;
}

// ---- of a job -----------------------------------------------------------------------------------
// NULL: nothing is known of it now.
static const Traind__V1__Gpu *find_gpu(const struct td_host *n, const char *uuid) {
    const Traind__V1__GpuList *l = n && n->session ? n->gpus.list : NULL;
    const Traind__V1__Gpu *g = l && !l->stale ? td_host_gpus_find(&n->gpus, uuid) : NULL;
    return g && g->n_measured ? g : NULL;
}

static bool copy_measured(struct td_arena *a, const Traind__V1__Gpu *from, Traind__V1__JobGpu *to) {
    to->measured = td_arena_array(a, from->n_measured, sizeof *to->measured);
    for (size_t i = 0; to->measured && i < from->n_measured; i++) {
        Traind__V1__JobGpu__MeasuredEntry *e = td_arena_alloc(a, sizeof *e);
        if (!e) return false;
        traind__v1__job_gpu__measured_entry__init(e);
        e->key = td_arena_strdup(a, from->measured[i]->key);
        e->value = from->measured[i]->value;
        if (!e->key) return false;
        to->measured[to->n_measured++] = e;
    }
    return to->measured != NULL;
}

static bool add_gpu(struct td_arena *a, const struct td_host *n, const Traind__V1__Gpu *from,
                    uint32_t number, Traind__V1__Job *m) {
    Traind__V1__JobGpu *to = td_arena_alloc(a, sizeof *to);
    if (!to) return false;
    traind__v1__job_gpu__init(to);
    to->number = number;
    to->uuid = td_arena_strdup(a, from->uuid);
    to->node = td_arena_strdup(a, n->name);
    m->gpus[m->n_gpus++] = to;
    return to->uuid && to->node && copy_measured(a, from, to);
}

bool td_view_job_gpus(struct td_arena *a, const struct td_core *core, const struct td_attempt *live,
                      Traind__V1__Job *m) {
    const uint32_t n = td_attempt_n_devices(live);
    uint32_t number = 0;
    char uuid[TD_DEVICE_UUID];
    if (!n) return true;
    m->gpus = td_arena_array(a, n, sizeof *m->gpus);
    if (!m->gpus) return false;
    for (uint32_t k = 0; k < live->n_parts; k++) {
        const struct td_attempt_part *part = &live->parts[k];
        const struct td_host *host = part->devices ? td_nodes_find(core, part->node) : NULL;
        const uint32_t n_here = part->devices ? td_device_list_count(part->devices) : 0;
        for (uint32_t i = 0; i < n_here; i++, number++) {
            if (!td_device_list_at(part->devices, i, uuid)) continue;
            const Traind__V1__Gpu *g = find_gpu(host, uuid);
            if (g && !add_gpu(a, host, g, number, m)) return false;
        }
    }
    return true;
}
