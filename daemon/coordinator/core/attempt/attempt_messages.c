// See the header.

#include "daemon/coordinator/core/attempt/attempt_messages.h"

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/rank_page.h"

enum { CANCEL_GRACE_MS = 15000 };

void td_attempt_ack(struct td_core *core, const struct td_host *node, const struct td_job *j,
                    const struct td_attempt *a, Traind__V1__Segment__Kind kind, uint32_t rank,
                    uint64_t offset) {
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    Traind__V1__SegmentAck ack = TRAIND__V1__SEGMENT_ACK__INIT;
    ack.id = &id;
    ack.kind = kind;
    ack.rank = rank;
    ack.offset = offset;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_SEGMENT_ACK;
    m.segment_ack = &ack;
    td_core_send(core, node, &m);
}

static void fill_stop(const struct td_core *core, const struct td_attempt *a,
                      Traind__V1__Stop *stop) {
    if (td_attempt_aborts(a)) {
        stop->mode = TRAIND__V1__STOP__MODE__ABORT;
        stop->grace_ms = TD_ABORT_GRACE_MS;
    } else if (a->stop == TD_STOP_CAUSE_CANCEL) {
        stop->mode = TRAIND__V1__STOP__MODE__NOW;
        stop->grace_ms = CANCEL_GRACE_MS;
    } else {
        stop->mode = TRAIND__V1__STOP__MODE__CHECKPOINT;
        stop->grace_ms = (uint32_t)(core->options.stop_grace_ns / TD_NS_PER_MS);
    }
}

static void send_stop(struct td_core *core, struct td_job *j, struct td_attempt *a,
                      struct td_attempt_part *p) {
    struct td_host *node = td_nodes_find(core, p->node);
    const bool aborts = td_attempt_aborts(a);
    bool *sent = aborts ? &p->abort_sent : &p->stop_sent;
    if (*sent || !td_attempt_part_live(p) || !node || !node->session) return;
    if (aborts && p->failing) return; // its launcher began with it
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    Traind__V1__Stop stop = TRAIND__V1__STOP__INIT;
    stop.id = &id;
    fill_stop(core, a, &stop);
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP;
    m.stop = &stop;
    td_core_send(core, node, &m);
    *sent = true;
}

void td_attempt_send_stop(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    if (a->closing || (!a->stop && !td_attempt_aborts(a))) return;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        send_stop(core, j, a, &a->parts[i]);
    }
}

// Ranks of a training, or of a program, agree on it among all: one node is enough, and several
// might have it at different steps. Ranks of a command are asked each. A part that is over has
// nothing to save, and its node may be gone.
static uint32_t parts_to_ask(const struct td_job *j, const struct td_attempt *a,
                             const struct td_attempt_part *out_parts[TD_SPEC_MAX_RANKS]) {
    const uint32_t most = j->knobs.kind == TD_KIND_COMMAND ? a->n_parts : 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_parts && n < most; i++) {
        if (td_attempt_part_live(&a->parts[i])) out_parts[n++] = &a->parts[i];
    }
    return n;
}

td_status td_attempt_send_save(struct td_core *core, const struct td_job *j,
                               const struct td_attempt *a) {
    const struct td_attempt_part *parts[TD_SPEC_MAX_RANKS];
    const uint32_t n = parts_to_ask(j, a, parts);
    for (uint32_t i = 0; i < n; i++) {
        const struct td_host *node = td_nodes_find(core, parts[i]->node);
        if (node && node->session) continue;
        return td_status_with_reason(td_fail(TD_UNAVAILABLE,
                                             "node %s, which has ranks of job %s, is away; they "
                                             "train on, and can be asked when it is back",
                                             node ? node->name : parts[i]->node, j->id),
                                     "NODE_AWAY");
    }
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    Traind__V1__CheckpointNow save = TRAIND__V1__CHECKPOINT_NOW__INIT;
    save.id = &id;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_CHECKPOINT_NOW;
    m.checkpoint_now = &save;
    for (uint32_t i = 0; i < n; i++) {
        td_core_send(core, td_nodes_find(core, parts[i]->node), &m);
    }
    return TD_OK;
}

void td_attempt_send_forget(struct td_core *core, const struct td_job *j,
                            const struct td_attempt *a, const struct td_attempt_part *p) {
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    Traind__V1__Forget forget = TRAIND__V1__FORGET__INIT;
    forget.id = &id;
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_FORGET;
    m.forget = &forget;
    td_core_send(core, td_nodes_find(core, p->node), &m);
}
