// See the header.

#include "daemon/coordinator/actions.h"

#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/shell/disk/sweep.h"
#include "daemon/coordinator/shell/disk/verify.h"
#include "daemon/coordinator/shell/watch.h"
#include "lib/base/log.h"

struct deferred {
    struct td_coordinator *c;
    struct td_action *action;
    uint64_t event;
    char *job_packed; // EVENT: the job as it was
    size_t job_bytes;
    struct td_mono by; // SEND: when it must be on its way, once it may be
};

static void carry_out(void *take_arg, enum td_gate_pass pass) {
    struct deferred *d = take_arg;
    struct td_action *a = d->action;
    struct td_coordinator *c = d->c;
    if (pass) {
        switch (a->kind) {
        case TD_ACTION_SEND:
            td_sessions_send(c, a->session, a->message, d->by);
            break;
        case TD_ACTION_CLOSE:
            td_sessions_close(c, a->session, a->text, a->token == 1, td_steal(a->failure));
            break;
        case TD_ACTION_EVENT:
            td_watchers_event(c->watchers, d->event, a->job, d->job_packed, d->job_bytes);
            td_readers_wake(c, a->job);
            break;
        case TD_ACTION_PROGRESS:
            td_watchers_progress(c->watchers, a->job);
            break;
        case TD_ACTION_QUEUE:
            td_watchers_queue(c->watchers);
            break;
        case TD_ACTION_PLANNED:
            td_planners_on_plan(c, a->token, a->text, td_steal(a->failure));
            break;
        case TD_ACTION_MOVED:
            td_log_info("job moved job=%s %s", a->job, a->text);
            break;
        case TD_ACTION_REMOVE:
            td_sweep_checkpoint(c, a->job, a->text);
            break;
        case TD_ACTION_FORGET:
            td_watchers_forget(c->watchers, a->job);
            td_readers_wake(c, a->job); // they find nothing, and end
            td_sweep_job(c, a->job, a->text);
            break;
        case TD_ACTION_SAY:
            td_log_info("%s", a->text);
            break;
        case TD_ACTION_VERIFY:
            td_verify_checkpoint(c, a->job, a->text);
            break;
        case TD_ACTION_HURRY:
            td_databases_hurry(c->store);
            break;
        case TD_ACTION_SWEEP:
            td_sweep_attempt(c, a->job, (uint32_t)a->token);
            break;
        }
    }
    td_action_destroy(a);
    free(d->job_packed);
    free(d);
}

// An event shows the job as it is now, not as it is when the gate opens.
static void snapshot(struct td_coordinator *c, struct deferred *d) {
    const struct td_job *j = NULL;
    TD_AUTO(td_arena) *arena = NULL;
    d->event = ++c->event;
    td_status s = td_core_find_job(c->core, d->action->job, &j);
    if (!s) s = td_shell_arena(&arena);
    Traind__V1__Job *m = s ? NULL : td_view_job(arena, c->core, j, td_shell_now(), 0);
    td_status_free(s);
    if (!m) return;
    d->job_bytes = traind__v1__job__get_packed_size(m);
    d->job_packed = malloc(d->job_bytes + 1);
    if (d->job_packed) traind__v1__job__pack(m, (uint8_t *)d->job_packed);
}

// Its node goes on without it for a while: its window is far larger than what events bring.
static bool is_slow_ack(const Traind__V1__CoordinatorMessage *m) {
    return m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_SEGMENT_ACK &&
           (m->segment_ack->kind == TRAIND__V1__SEGMENT__KIND__EVENTS ||
            m->segment_ack->kind == TRAIND__V1__SEGMENT__KIND__METRICS);
}

static bool is_watched(const struct td_coordinator *c, const char *job) {
    return td_watchers_have(c->watchers, job) || td_readers_have(c, job);
}

// Nobody waits for it: what it needs on disk goes there with the next records.
static bool is_patient(const struct td_coordinator *c, const struct td_action *a) {
    switch (a->kind) {
    case TD_ACTION_SEND:
        return is_slow_ack(a->message);
    case TD_ACTION_EVENT:
    case TD_ACTION_PROGRESS:
        return !is_watched(c, a->job);
    case TD_ACTION_QUEUE:
    case TD_ACTION_MOVED:
    case TD_ACTION_SAY:
    case TD_ACTION_SWEEP:
        return true;
    case TD_ACTION_CLOSE:
    case TD_ACTION_PLANNED:
    case TD_ACTION_REMOVE:
    case TD_ACTION_FORGET:
    case TD_ACTION_HURRY:
    case TD_ACTION_VERIFY:
        return false;
    }
    return false;
}

void td_coordinator_act(struct td_coordinator *c, struct td_action *take_action) {
    struct td_action *a = take_action;
    struct deferred *d = td_calloc(1, sizeof *d);
    TD_CHECK(d && "out of memory: start again from the disk");
    d->c = c;
    d->action = a;
    if (a->kind == TD_ACTION_EVENT) snapshot(c, d);
    if (is_patient(c, a)) {
        d->by = td_mono_add(td_mono_now(), TD_SHELL_GATHER_NS);
        td_gate_put_patient(c->gate, carry_out, d);
    } else {
        td_gate_put(c->gate, carry_out, d);
    }
}
