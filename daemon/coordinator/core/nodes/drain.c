// See the header.

#include "daemon/coordinator/core/nodes/drain.h"

#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"

// Its next checkpoint is where no other node reads it. What a command registers is a path of its
// node.
static bool saves_here_alone(const struct td_job *j, const struct td_attempt *a) {
    if (j->knobs.kind == TD_KIND_COMMAND) return true;
    return !a->stream && !j->knobs.checkpoint.dir[0];
}

// No end of it is near, for whatever reason.
static bool runs_on(const struct td_attempt *a) {
    return !a->stop && !a->closing && !td_attempt_aborts(a);
}

bool td_drain_leaves(const struct td_job *j, const struct td_attempt *a, const char **out_why) {
    *out_why = "it ends, or is stopped for another reason";
    if (a->stop != TD_STOP_CAUSE_DRAIN && !runs_on(a)) return true;
    *out_why = "";
    if (j->knobs.kind != TD_KIND_TRAIN && !td_catalog_find(j, NULL)) {
        *out_why = j->knobs.kind == TD_KIND_COMMAND
                       ? "it is a command that has registered no checkpoint"
                       : "it is a program that has saved no checkpoint";
        return false;
    }
    if (!saves_here_alone(j, a)) return true;
    *out_why = "its checkpoints are on one node alone, and it spans several";
    if (a->n_parts > 1) return false;
    *out_why =
        "it saves and stops; its checkpoints are on this node alone, so it goes on here after the "
        "drain";
    return true;
}

static void ask_to_leave(struct td_core *core, const struct td_host *n) {
    const char *why;
    for (uint32_t i = 0; i < core->n_live; i++) {
        struct td_job *j = core->live[i];
        struct td_attempt *a = td_job_live(j);
        const struct td_attempt_part *p = a ? td_attempt_part_on(a, n->id) : NULL;
        if (!p || !td_attempt_part_live(p) || !runs_on(a) || !td_drain_leaves(j, a, &why)) continue;
        td_core_log(core, "job leaves a node that is drained job=%s attempt=%u node=%s", j->id,
                    a->number, n->name);
        td_reason_set(&j->reason, "LEAVING_NODE",
                      "node %s is drained: its ranks save and stop, and attempt %u goes on",
                      n->name, a->number + 1);
        td_core_touch(core, j);
        td_attempt_stop(core, j, a, TD_STOP_CAUSE_DRAIN);
    }
}

bool td_drain_is_empty(const struct td_core *core, const struct td_host *n) {
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct td_job *j = core->order[i];
        for (uint32_t k = j->n_attempts; k > 0; k--) {
            const struct td_attempt_part *p = td_attempt_part_on(td_job_attempt(j, k), n->id);
            if (p && !td_attempt_part_over(p)) return false;
        }
    }
    return true;
}

void td_drain_look(struct td_core *core) {
    struct td_host *n;
    if (!core->n_draining) return;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!n->cordon.drains || n->cordon.is_empty) continue;
        ask_to_leave(core, n);
        n->cordon.is_empty = td_drain_is_empty(core, n);
        if (n->cordon.is_empty) td_core_log(core, "node is drained and empty node=%s", n->name);
    }
}
