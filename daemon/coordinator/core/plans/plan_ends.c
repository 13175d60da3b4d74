// See the header.

#include "daemon/coordinator/core/plans/plan_ends.h"

#include <string.h>

#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "daemon/coordinator/core/plans/capacity.h"

void td_plan_ask_drop(struct td_core *core, uint32_t i) {
    td_plan_ask_destroy(core->asks[i]);
    core->asks[i] = core->asks[--core->n_asks];
}

static td_status plan_failed(td_status borrow_failure) {
    td_status s = td_fail(td_status_code(borrow_failure), "%s", td_status_message(borrow_failure));
    const char *reason = td_status_reason(borrow_failure);
    return td_status_with_reason(td_status_with_class(s, td_status_class(borrow_failure)),
                                 reason[0] ? reason : "PLAN_FAILED");
}

void td_plan_ask_answer(struct td_core *core, const struct td_plan_ask *ask, const char *json,
                        const struct td_plan_entry *e, td_status borrow_failure) {
    for (uint32_t i = core->n_waiters; i-- > 0;) {
        const struct td_plan_waiter *w = &core->waiters[i];
        if (strcmp(w->digest, ask->digest) != 0 || strcmp(w->dump, ask->dump) != 0) continue;
        struct td_action *a = td_core_act(core, TD_ACTION_PLANNED);
        a->token = core->waiters[i].token;
        a->failure = json ? td_capacity_memory(core, ask->labels, w->n_ranks, e)
                          : plan_failed(borrow_failure);
        if (!a->failure) {
            a->failure = td_capacity_devices(core, ask->labels, w->n_ranks, ask->accelerator);
        }
        if (!a->failure) a->text = td_core_dup(json);
        core->waiters[i] = core->waiters[--core->n_waiters];
    }
}

// No attempt of it can start: it has had none, or where it would run the plan is missing. One that
// has run fails with an answer that is final and was asked for such jobs.
static bool fails_with(const struct td_core *core, const struct td_job *j, bool is_final) {
    if (!j->n_attempts) return j->state == TD_JOB_QUEUED;
    if (!is_final || !td_job_state_waits(j->state) || td_job_live(j)) return false;
    return core->lacks_plan(core, j);
}

// A node that has no device of the accelerator may be asked for want of another. What it refuses
// fails no job.
static bool says_nothing(const struct td_core *core, const struct td_plan_ask *ask) {
    const struct td_host *n = td_nodes_find(core, ask->node);
    const struct td_host_accel *a = n && !td_accel_is_host(ask->accelerator)
                                        ? td_host_accel_find(&n->devices, ask->accelerator)
                                        : NULL;
    return a && !a->n && !a->is_host;
}

bool td_plan_ask_is_final(enum td_class cls, uint32_t code) {
    return cls == TD_CLASS_BAD_SPEC || cls == TD_CLASS_DATA || cls == TD_CLASS_USER_CODE ||
           code == TD_INVALID_ARGUMENT;
}

void td_plan_ask_fail(struct td_core *core, uint32_t at, enum td_class cls, enum td_code code,
                      const char *message) {
    struct td_plan_ask *ask = core->asks[at];
    bool fails_jobs = !ask->dump[0] && !says_nothing(core, ask);
    td_status s = td_status_with_class(td_fail(code ? code : TD_INTERNAL, "%s", message), cls);
    td_plan_ask_answer(core, ask, NULL, NULL, s);
    for (uint32_t i = core->n_active; i-- > 0 && fails_jobs;) {
        struct td_job *j = core->active[i];
        if (strcmp(td_job_plan_digest(j), ask->digest) == 0 &&
            fails_with(core, j, ask->later && td_plan_ask_is_final(cls, code))) {
            td_core_fail_job(core, j, cls, td_status_code(s), td_status_message(s));
        }
    }
    td_status_free(s);
    // A job that has run is asked for in its own way; one whose plan went may do without.
    if (!ask->later || ask->was_stale) core->queue_dirty = true;
    td_plan_ask_drop(core, at);
}

bool td_plan_ask_is_waited_for(const struct td_core *core, const struct td_plan_ask *ask) {
    for (uint32_t i = 0; i < core->n_waiters; i++) {
        const struct td_plan_waiter *w = &core->waiters[i];
        if (strcmp(w->digest, ask->digest) == 0 && strcmp(w->dump, ask->dump) == 0) return true;
    }
    return false;
}
