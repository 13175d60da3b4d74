// See the header.

#include "daemon/coordinator/core/nodes/leases.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

// Longer than any that a node makes before it dials again.
static const int64_t node_pause_ns = 10 * TD_NS_PER_S;

void td_leases_stay_awake(struct td_core *core) {
    if (!td_map_count(core->nodes)) return;
    td_core_wake_at(core, td_mono_add(core->now.mono, core->options.lease_ns / 4));
}

static void show_silence(struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        const struct td_attempt *a = td_job_live(j);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || !td_attempt_part_live(p) || j->state != TD_JOB_RUNNING) continue;
        td_reason_set(&j->reason, "NODE_SILENT",
                      "node %s is silent; its ranks are taken to run on, and given up after "
                      "%" PRId64 " s",
                      n->name, core->options.lost_after_ns / TD_NS_PER_S);
        td_core_progress(core, j);
    }
}

// The parts that live there. What is still to come of one that has ended comes when the node is
// back; its attempt waits no longer for it than it does for any (td_attempt_maybe_close).
// witnessed: those alone that another part has lost, by its own account. Its silence alone is none.
static void give_up(struct td_core *core, struct td_host *n, int64_t silent_ns, bool witnessed) {
    for (uint32_t i = core->n_active; i-- > 0;) {
        struct td_job *j = core->active[i];
        struct td_attempt *a = td_job_live(j);
        struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || !td_attempt_part_live(p) || (witnessed && !td_attempt_aborts(a))) continue;
        char why[160];
        snprintf(why, sizeof why, "node %s was silent for %" PRId64 " s%s", n->name,
                 silent_ns / TD_NS_PER_S, witnessed ? ", and other ranks of the job lost it" : "");
        td_attempt_lost(core, j, a, p, true, why);
    }
}

static void tick_node(struct td_core *core, struct td_host *n) {
    if (n->session && n->embedded) return; // it lives and dies with us
    int64_t silent_ns = core->now.mono.ns - n->last_message.ns;
    int64_t lease_ns = core->options.lease_ns;
    int64_t lost_ns = lease_ns + core->options.lost_after_ns;
    if (silent_ns < lease_ns) {
        td_core_wake_at(core, td_mono_add(n->last_message, lease_ns));
        return;
    }
    if (!n->lost) {
        n->lost = true;
        if (n->session) td_core_close_session(core, n->session, "nothing received for the lease");
        show_silence(core, n);
        core->queue_dirty = true;
    }
    if (silent_ns < lost_ns) {
        give_up(core, n, silent_ns, true);
        td_core_wake_at(core, td_mono_add(n->last_message, lost_ns));
    } else {
        give_up(core, n, silent_ns, false);
    }
}

void td_leases_after_stall(struct td_core *core, struct td_mono before) {
    int64_t gap_ns = core->now.mono.ns - before.ns;
    if (gap_ns < core->options.lease_ns / 2 || !td_map_count(core->nodes)) return;
    struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        // Of one that was lost before, the time that passed without us does not count.
        n->refused_at.ns += gap_ns;
        n->last_message.ns = n->lost ? n->last_message.ns + gap_ns : core->now.mono.ns;
    }
    for (uint32_t i = 0; i < core->n_active; i++) { // metrics, too, may wait unread
        struct td_attempt *a = td_job_live(core->active[i]);
        if (a && a->closing && a->close_at.ns) a->close_at.ns += gap_ns;
    }
    for (uint32_t i = 0; i < core->n_asks; i++) { // and plans
        if (core->asks[i]->node[0]) core->asks[i]->deadline.ns += gap_ns;
    }
    core->counters[TD_COUNT_STALLS]++;
    td_core_wake_at(core, core->now.mono);
}

// It tries no more. One that never registered was known for its refusal alone.
static bool is_forgotten(struct td_core *core, struct td_host *n) {
    if (!n->refused) return false;
    const struct td_mono until = td_mono_add(n->refused_at, core->options.lease_ns + node_pause_ns);
    if (core->now.mono.ns < until.ns) {
        td_core_wake_at(core, until);
        return false;
    }
    n->refused = false;
    n->unfit[0] = '\0';
    core->queue_dirty = true;
    if (!n->shown_only) return false;
    td_map_remove(core->nodes, n->id);
    td_host_destroy(n);
    return true;
}

void td_leases_tick(struct td_core *core) {
    td_leases_stay_awake(core);
    struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!is_forgotten(core, n)) tick_node(core, n);
    }
}
