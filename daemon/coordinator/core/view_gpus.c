// See the header.

#include "daemon/coordinator/core/view_gpus.h"

#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

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
    return m;
}
