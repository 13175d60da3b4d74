// See the header.

#include "daemon/coordinator/core/plans/plan_pick.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/job/labels.h"

bool td_plan_ask_has_failed(const struct td_plan_ask *ask, const struct td_host *n) {
    for (uint32_t i = 0; i < ask->n_failed; i++) {
        if (strcmp(ask->failed[i], n->id) == 0) return true;
    }
    return false;
}

// 4: the node is known to have enough devices. 3: nobody has asked it. 2: it has some.
static int rank_devices(const struct td_plan_ask *ask, const struct td_host *n) {
    if (td_accel_is_host(ask->accelerator)) return 0;
    const struct td_host_accel *a = td_host_accel_find(&n->devices, ask->accelerator);
    if (!a) return td_plan_ask_has_failed(ask, n) ? 1 : 3;
    if (a->is_host || a->n >= ask->n_ranks) return 4;
    return a->n ? 2 : 0;
}

// How well a node suits. It has what the spec asks for; the answer is of the level that is wanted;
// a job would run there; its devices; it was not asked last.
static int suits(const struct td_plan_ask *ask, const struct td_host *n) {
    bool has = td_host_has_level(n, ask->minimum);
    bool holds = !ask->level[0] || strcmp(ask->level, n->cpu_level_held) == 0;
    bool is_preferred = strcmp(ask->prefer, n->id) == 0 && !td_plan_ask_has_failed(ask, n);
    return has * 64 + holds * 32 + is_preferred * 16 + rank_devices(ask, n) * 2 +
           (strcmp(ask->last, n->id) != 0);
}

// A planner that did not end in time says as much about the job as about its node. So a node is
// asked once then, and none whose answer is of another level than the one that is wanted.
static bool may_ask(const struct td_plan_ask *ask, const struct td_host *n) {
    if (!td_host_ready(n) || !td_labels_have(n->labels, ask->labels)) return false;
    if ((ask->unread && td_plan_ask_has_failed(ask, n))) return false;
    bool holds = !ask->level[0] || strcmp(ask->level, n->cpu_level_held) == 0;
    return !ask->late || (holds && !td_plan_ask_has_failed(ask, n));
}

// Of two that suit as well: one where jobs may start, the larger one.
static bool comes_first(const struct td_host *a, const struct td_host *b) {
    return a->cordon.on != b->cordon.on ? b->cordon.on : a->slots > b->slots;
}

struct td_host *td_plan_ask_pick(struct td_core *core, const struct td_plan_ask *ask) {
    struct td_host *best = NULL;
    struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (!may_ask(ask, n)) continue;
        int more = best ? suits(ask, n) - suits(ask, best) : 1;
        if (more > 0 || (more == 0 && comes_first(n, best))) best = n;
    }
    return best;
}

bool td_plan_ask_other_may_know(struct td_core *core, const struct td_plan_ask *ask,
                                const struct td_host *node) {
    if (td_accel_is_host(ask->accelerator)) return false;
    const struct td_host_accel *has = td_host_accel_find(&node->devices, ask->accelerator);
    const struct td_host *n;
    if (has && (has->is_host || has->n)) return false;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        const bool may_run = td_host_ready(n) && td_labels_have(n->labels, ask->labels);
        if (n != node && may_run && rank_devices(ask, n) > 1) return true;
    }
    return false;
}

void td_plan_ask_note_failed(struct td_plan_ask *ask, const char *node) {
    if (ask->n_failed == TD_COUNTOF(ask->failed)) return;
    snprintf(ask->failed[ask->n_failed++], sizeof ask->failed[0], "%s", node);
}
