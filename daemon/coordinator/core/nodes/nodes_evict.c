// See the header.

#include "daemon/coordinator/core/nodes/nodes_evict.h"

#include <inttypes.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/node_admin.h"
#include "daemon/coordinator/core/plans/offers.h"
#include "daemon/coordinator/core/plans/plans.h"

static void hold(struct td_core *core, const char *id) {
    struct td_host *n = td_nodes_find(core, id);
    if (n) n->holds = true;
}

static void mark_job(struct td_core *core, const struct td_job *j) {
    for (uint32_t i = 1; i <= j->n_attempts; i++) {
        const struct td_attempt *a = td_job_attempt(j, i);
        for (uint32_t k = 0; k < a->n_parts; k++) {
            if (!td_attempt_part_over(&a->parts[k])) hold(core, a->parts[k].node);
        }
    }
    for (uint32_t i = 0; !td_job_state_ended(j->state) && i < j->n_checkpoints; i++) {
        const struct td_checkpoint *c = j->checkpoints[i];
        if (!c->streamed && !c->damage) hold(core, c->node);
    }
}

// One that is shown for its refusal alone first.
static bool goes_before(const struct td_host *a, const struct td_host *b) {
    return a->shown_only != b->shown_only ? a->shown_only : a->seen_ns < b->seen_ns;
}

static struct td_host *find_idle(struct td_core *core) {
    struct td_host *n;
    struct td_host *found = NULL;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (n->session || n->holds) continue;
        if (!found || goes_before(n, found)) found = n;
    }
    return found;
}

td_status td_nodes_evict(struct td_core *core) {
    if (td_map_count(core->nodes) < TD_CORE_MAX_NODES) return TD_OK;
    struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        n->holds = td_node_admin_holds(n);
    }
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        mark_job(core, core->order[i]);
    }
    n = find_idle(core);
    if (!n) {
        return td_status_with_reason(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "LIMIT_NODES: %d nodes are known, and each is connected, is cordoned or "
                    "labelled, or holds something of a job; one that will not come back is "
                    "forgotten once it is uncordoned (trainctl node uncordon NODE) and has no "
                    "labels (trainctl node label NODE KEY-)",
                    TD_CORE_MAX_NODES),
            "LIMIT_NODES");
    }
    td_core_log(core,
                "node forgotten, a new one takes its place node=%s id=%s "
                "last_seen_s=%" PRId64,
                n->name, n->id, (core->now.real.ns - n->seen_ns) / TD_NS_PER_S);
    td_core_record(core, TD_RECORD_NODE, n->id, NULL);
    if (td_node_admin_is_set(n)) td_core_record(core, TD_RECORD_NODE_ADMIN, n->id, NULL);
    td_map_remove(core->nodes, n->id);
    td_offers_forget(core, n->id);
    td_host_destroy(n);
    td_plans_drop_stale(core);
    core->queue_dirty = true;
    return TD_OK;
}
