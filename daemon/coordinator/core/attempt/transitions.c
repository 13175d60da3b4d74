// See the header.

#include "daemon/coordinator/core/attempt/transitions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/expiry.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/job_list.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "daemon/coordinator/core/model/specs.h"

enum { DISK_PAUSE_MAX_S = 60 };

static const int64_t hold_ns = 60 * TD_NS_PER_S;

void td_core_hold(struct td_core *core, struct td_job *j) {
    j->hold_until = td_mono_add(core->now.mono, hold_ns);
}

static void deactivate(struct td_core *core, struct td_job *j) {
    td_jobs_remove(core->active, &core->n_active,
                   td_jobs_find(core->active, core->n_active, j, td_job_key_seq));
}

// Storage comes back by itself or by somebody's hand, and nobody knows when: at once, or never. So
// these pauses double whatever restart.backoff says, which is about crashes.
static int64_t pause_s(const struct td_job *j) {
    const struct td_spec_restart *r = &j->knobs.restart;
    if (j->failure.cls == TD_CLASS_DISK && j->disk_restarts) {
        return TD_MIN(INT64_C(1) << TD_MIN(j->disk_restarts - 1, 30u), DISK_PAUSE_MAX_S);
    }
    int32_t i = TD_MAX((int32_t)j->restarts - 1, 0);
    return r->n_backoff > 0 ? r->backoff_s[TD_MIN(i, r->n_backoff - 1)] : 1;
}

static void on_recovering(struct td_core *core, struct td_job *j) {
    const int64_t wait_s = pause_s(j), wait_ns = wait_s * TD_NS_PER_S;
    char until[32];
    j->retry_at = td_mono_add(core->now.mono, wait_ns);
    td_real_format((struct td_real){core->now.real.ns + wait_ns}, until, sizeof until);
    td_reason_set(&j->reason, "BACKING_OFF",
                  "restart %u of %d in %" PRId64 " s, at %s, after %s: %s", j->restarts,
                  j->knobs.restart.max, wait_s, until, td_class_name(j->failure.cls),
                  j->failure.message ? j->failure.message : "");
}

static void on_entry(struct td_core *core, struct td_job *j, enum td_job_event event) {
    const char *why = j->cancel_why ? j->cancel_why : "";
    switch (j->state) {
    case TD_JOB_RUNNING:
        if (!j->start_ns) j->start_ns = core->now.real.ns;
        memset(&j->reason, 0, sizeof j->reason);
        break;
    case TD_JOB_RECOVERING:
        on_recovering(core, j);
        break;
    case TD_JOB_QUEUED:
        if (event == TD_JOB_ON_RESUME) j->queue_seq = core->next_seq++;
        memset(&j->reason, 0, sizeof j->reason);
        break;
    case TD_JOB_STARTING:
        td_reason_set(&j->reason, "STARTING", "attempt %u starts", j->n_attempts);
        break;
    case TD_JOB_PAUSING:
        td_reason_set(&j->reason, "PAUSING", "its ranks save a checkpoint and stop");
        break;
    case TD_JOB_PAUSED:
        td_reason_set(&j->reason, "PAUSED", "paused; `resume` queues it");
        break;
    case TD_JOB_STOPPING:
        td_reason_set(&j->reason, "CANCELLING", "its ranks stop%s%s", why[0] ? "; " : "", why);
        break;
    case TD_JOB_FAILED:
        td_reason_set(&j->reason, "FAILED", "%s: %s", td_class_name(j->failure.cls),
                      j->failure.message ? j->failure.message : "");
        break;
    case TD_JOB_EXPIRED:
        td_reason_set(&j->reason, "EXPIRED", "waited 30 days without an attempt");
        break;
    case TD_JOB_CANCELLED:
        td_reason_set(&j->reason, "CANCELLED", "cancelled%s%s", why[0] ? ": " : "", why);
        break;
    case TD_JOB_SUCCEEDED:
    case TD_JOB_STATE_COUNT:
        memset(&j->reason, 0, sizeof j->reason);
        break;
    }
}

static void report_move(struct td_core *core, const struct td_job *j, enum td_job_state from) {
    char text[600];
    snprintf(text, sizeof text, "from=%s to=%s attempt=%u%s%s", td_job_state_name(from),
             td_job_state_name(j->state), j->n_attempts, j->reason.text[0] ? " why=" : "",
             j->reason.text);
    struct td_action *a = td_core_act(core, TD_ACTION_MOVED);
    memcpy(a->job, j->id, sizeof a->job);
    a->text = td_core_dup(text);
}

enum td_job_step td_core_apply(struct td_core *core, struct td_job *j, enum td_job_event event) {
    enum td_job_state from = j->state, to;
    enum td_job_step step = td_job_next(from, event, &to);
    if (step == TD_JOB_REFUSED) return step;
    // A failure of a RECOVERING job's next attempt is a new back-off though the state keeps.
    bool again = step == TD_JOB_KEPT && event == TD_JOB_ON_RETRY;
    if (step == TD_JOB_KEPT && !again) return step;
    j->state = to;
    on_entry(core, j, event);
    if (td_job_state_waits(to) || to == TD_JOB_PAUSED) {
        j->wait_ns = core->now.real.ns;
        j->waits_since = core->now.mono;
        td_core_hold(core, j);
    }
    if (td_job_state_ended(to)) {
        j->end_ns = core->now.real.ns;
        deactivate(core, j);
        td_plan_asks_unused(core, td_job_plan_digest(j));
        td_specs_ended(core, j);
        td_retain_released(core, j);
        td_expiry_ended(core, j);
    }
    td_core_touch(core, j);
    report_move(core, j, from);
    return TD_JOB_MOVED;
}

void td_core_fail_job(struct td_core *core, struct td_job *j, enum td_class cls, enum td_code code,
                      const char *message) {
    struct td_failure f = {.cls = cls,
                           .code = code,
                           .attempt = j->n_attempts,
                           .rank = -1,
                           .step = j->progress.step,
                           .message = td_unconst(message)};
    TD_CHECK(!td_failure_set(&j->failure, &f));
    TD_CHECK(td_core_apply(core, j, TD_JOB_ON_FAIL) != TD_JOB_REFUSED);
}

td_status td_core_add_job(struct td_core *core, struct td_job *take_job) {
    TD_AUTO(td_job) *j = take_job;
    bool active = !td_job_state_ended(j->state);
    TD_TRY(td_map_put(core->jobs, j->id, j, NULL));
    (void)td_jobs_insert(&core->order, &core->n_jobs, &core->cap_jobs, j, td_job_key_seq);
    if (active) {
        (void)td_jobs_insert(&core->active, &core->n_active, &core->cap_active, j, td_job_key_seq);
    } else {
        td_expiry_ended(core, j);
    }
    (void)td_steal(j);
    return TD_OK;
}
