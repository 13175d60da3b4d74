// What people ask of the core about jobs: create, cancel, pause, resume, save, delete, plan. Each
// is one input as core.c has it. A request that is refused leaves no trace. One that is accepted is
// remembered under its request_id for a day, so that a client that asks again because the answer
// was lost gets the same job.

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/attempt/attempt_messages.h"
#include "daemon/coordinator/core/attempt/forget.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/core/frame.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/jobs.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "daemon/coordinator/core/model/specs.h"
#include "daemon/coordinator/core/plans/capacity.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "daemon/coordinator/core/requests.h"
#include "lib/attempt/rank_page.h"
#include "lib/base/digest.h"
#include "lib/base/utf8.h"
#include "lib/job/labels.h"

// ---- creating -----------------------------------------------------------------------------------
static td_status check_room(const struct td_core *core) {
    if (core->n_active < TD_CORE_MAX_ACTIVE) return TD_OK;
    return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                         "%u jobs wait or run already; cancel some, or try again "
                                         "when some have ended",
                                         core->n_active),
                                 "LIMIT_JOBS");
}

static td_status check_capacity(const struct td_core *core, const struct td_job *j) {
    const struct td_job_knobs *k = &j->knobs;
    const uint32_t ranks = td_job_node_ranks(j);
    TD_TRY(td_capacity_labels(core, k->node_labels));
    TD_TRY(td_capacity_slots(core, k->node_labels, ranks, &k->resources));
    TD_TRY(td_capacity_kind(core, k->node_labels, k->kind, ranks, &k->resources));
    TD_TRY(td_capacity_memory(core, k->node_labels, ranks, td_plans_find_held(core, j)));
    TD_TRY(td_gpu_capacity(core, k->node_labels, ranks, &k->resources));
    return td_capacity_devices(core, k->node_labels, ranks, k->accelerator);
}

static td_status build_job(struct td_core *core, const struct td_core_create_job *request,
                           struct td_job **out_job) {
    TD_AUTO(td_job) *j = NULL;
    TD_TRY(td_job_create(request->id, &j));
    j->trusted = request->trusted;
    TD_TRY(td_job_set_spec(j, request->spec_json, request->spec));
    if (request->owner) j->owner = td_core_dup(request->owner);
    if (request->owner_token) j->owner_token = td_core_dup(request->owner_token);
    j->seq = j->queue_seq = core->next_seq;
    j->create_ns = j->wait_ns = core->now.real.ns;
    j->waits_since = core->now.mono;
    TD_TRY(check_capacity(core, j));
    *out_job = td_steal(j);
    return TD_OK;
}

static td_status create_job(struct td_core *core, const struct td_core_create_job *request,
                            const struct td_job **out_job, bool *out_again) {
    TD_TRY(td_requests_find(core, request, out_job));
    *out_again = *out_job != NULL;
    if (*out_again) return TD_OK;
    if (core->draining) {
        return td_status_with_reason(
            td_fail(TD_UNAVAILABLE, "the coordinator is stopping; try again when it is back"),
            "DRAINING");
    }
    TD_TRY(check_room(core));
    TD_TRY(td_specs_check(core, request));
    TD_AUTO(td_job) *j = NULL;
    TD_TRY(build_job(core, request, &j));
    struct td_job *kept = j;
    TD_TRY(td_core_add_job(core, td_steal(j)));
    td_specs_add(core, kept);
    core->next_seq++;
    td_forget_note_pins(core, kept);
    td_requests_keep(core, request);
    td_core_record(core, TD_RECORD_SPEC, kept->id, kept->spec.text);
    td_core_touch(core, kept);
    *out_job = kept;
    return TD_OK;
}

td_status td_core_create_job(struct td_core *core, struct td_now now,
                             const struct td_core_create_job *request,
                             const struct td_job **out_job, bool *out_again) {
    td_core_enter(core, now);
    td_status s = create_job(core, request, out_job, out_again);
    td_core_leave(core);
    return s;
}

// ---- steering -----------------------------------------------------------------------------------
static td_status refuse(const struct td_job *j, enum td_job_event event, const char *verb) {
    char reason[48];
    snprintf(reason, sizeof reason, "STATE_%s_%s", td_job_state_name(j->state),
             td_job_event_name(event));
    td_status s = td_fail(TD_FAILED_PRECONDITION, "job %s is %s, it cannot be %s", j->id,
                          td_job_state_name(j->state), verb);
    return td_status_with_meta(td_status_with_reason(s, reason), "job", "%s", j->id);
}

// Of the first to cancel it. Bounded, because a record is.
static void keep_cancel_reason(struct td_job *j, const char *reason) {
    enum td_job_state to;
    char text[201];
    if (!reason || !reason[0] || td_job_next(j->state, TD_JOB_ON_CANCEL, &to) != TD_JOB_MOVED) {
        return;
    }
    snprintf(text, sizeof text, "%s", reason);
    td_utf8_scrub(text);
    free(j->cancel_why);
    j->cancel_why = td_core_dup(text);
}

// Cancel and pause: what both do to a job, and the words in which they differ.
struct halt {
    enum td_job_event event;
    enum td_job_state meanwhile; // until its attempt has stopped
    enum td_stop_cause cause;
    const char *verb;
};

static td_status halt(struct td_core *core, struct td_job *j, const struct halt *h) {
    enum td_job_step step = td_core_apply(core, j, h->event);
    if (step == TD_JOB_REFUSED) return refuse(j, h->event, h->verb);
    struct td_attempt *a = td_job_live(j);
    if (step == TD_JOB_MOVED && a) {
        td_attempt_stop(core, j, a, h->cause);
    } else if (step == TD_JOB_MOVED && j->state == h->meanwhile) {
        td_core_apply(core, j, TD_JOB_ON_STOPPED);
    }
    td_core_leave(core);
    return TD_OK;
}

td_status td_core_cancel(struct td_core *core, struct td_now now, const char *id,
                         const char *reason, const struct td_job **out_job) {
    static const struct halt to_cancel = {TD_JOB_ON_CANCEL, TD_JOB_STOPPING, TD_STOP_CAUSE_CANCEL,
                                          "cancelled"};
    TD_TRY(td_core_find_job(core, id, out_job));
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, (*out_job)->id);
    keep_cancel_reason(j, reason);
    return halt(core, j, &to_cancel);
}

td_status td_core_pause(struct td_core *core, struct td_now now, const char *id,
                        const struct td_job **out_job) {
    static const struct halt to_pause = {TD_JOB_ON_PAUSE, TD_JOB_PAUSING, TD_STOP_CAUSE_PAUSE,
                                         "paused"};
    TD_TRY(td_core_find_job(core, id, out_job));
    td_core_enter(core, now);
    return halt(core, td_core_job(core, (*out_job)->id), &to_pause);
}

td_status td_core_resume(struct td_core *core, struct td_now now, const char *id,
                         const struct td_job **out_job) {
    TD_TRY(td_core_find_job(core, id, out_job));
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, (*out_job)->id);
    if (td_core_apply(core, j, TD_JOB_ON_RESUME) == TD_JOB_REFUSED) {
        return refuse(j, TD_JOB_ON_RESUME, "resumed");
    }
    td_core_leave(core);
    return TD_OK;
}

// ---- saving -------------------------------------------------------------------------------------
// Only an optimizer step has a boundary at which ranks save.
static bool has_steps_to_come(const struct td_job *j) {
    if (j->knobs.kind != TD_KIND_TRAIN) return true; // it says itself when
    const uint32_t phase = j->progress.phase;
    return (j->knobs.stages & TD_STAGE_FIT) && phase != TD_PHASE_TESTING &&
           phase != TD_PHASE_PREDICTING;
}

static td_status refuse_save(const struct td_job *j, td_status take_why, const char *reason) {
    return td_status_with_meta(td_status_with_reason(take_why, reason), "job", "%s", j->id);
}

static td_status check_save(struct td_job *j) {
    char reason[48];
    if (j->state != TD_JOB_RUNNING || !td_job_live(j)) {
        const bool stops = j->state == TD_JOB_PAUSING;
        snprintf(reason, sizeof reason, "STATE_%s_SAVE", td_job_state_name(j->state));
        return refuse_save(j,
                           td_fail(TD_FAILED_PRECONDITION, "job %s is %s: %s", j->id,
                                   td_job_state_name(j->state),
                                   stops ? "it saves as it stops"
                                         : "it has no ranks that train, and nothing to save"),
                           reason);
    }
    TD_TRY(td_job_read_knobs(j));
    if (has_steps_to_come(j)) return TD_OK;
    const char *phase = td_rank_phase_name(j->progress.phase);
    snprintf(reason, sizeof reason, "PHASE_%s_SAVE", phase);
    return refuse_save(j,
                       td_fail(TD_FAILED_PRECONDITION,
                               "job %s is %s: no training step follows, so a checkpoint would hold "
                               "nothing new",
                               j->id, phase),
                       reason);
}

td_status td_core_save(struct td_core *core, struct td_now now, const char *id,
                       const struct td_job **out_job) {
    TD_TRY(td_core_find_job(core, id, out_job));
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, (*out_job)->id);
    td_status s = check_save(j);
    if (!s) s = td_attempt_send_save(core, j, td_job_live(j));
    if (!s) td_core_log(core, "job asked to save job=%s", j->id);
    td_core_leave(core);
    return s;
}

// ---- deleting -----------------------------------------------------------------------------------
static bool may_be_deleted(const struct td_job *j) {
    return td_job_state_ended(j->state) ||
           (!td_job_live(j) && (td_job_state_waits(j->state) || j->state == TD_JOB_PAUSED));
}

td_status td_core_check_delete(const struct td_core *core, const char *id, bool keep_checkpoints,
                               const struct td_job **out_job) {
    size_t cursor = 0;
    const struct td_removal *part;
    td_status s = td_core_find_job(core, id, out_job);
    bool leaving = td_core_is_leaving(core, id, &cursor, &part) || td_map_get(core->leaving, id);
    if (s && leaving) {
        td_status_free(s);
        *out_job = NULL;
        return TD_OK;
    }
    TD_TRY(s);
    const struct td_job *j = *out_job;
    if (!may_be_deleted(j)) {
        char reason[48];
        snprintf(reason, sizeof reason, "STATE_%s_DELETE", td_job_state_name(j->state));
        s = td_fail(TD_FAILED_PRECONDITION,
                    "job %s is %s; cancel it first, or delete it with --force", j->id,
                    td_job_state_name(j->state));
        return td_status_with_meta(td_status_with_reason(s, reason), "job", "%s", j->id);
    }
    const struct td_job *user = keep_checkpoints ? NULL : td_retain_user(core, j, NULL);
    if (!user) return TD_OK;
    s = td_fail(TD_FAILED_PRECONDITION,
                "job %s (%s) is %s and begins with a checkpoint of job %s; wait for its end, "
                "keep the checkpoints, or delete with --force, which cancels it",
                user->id, user->name, td_job_state_name(user->state), j->id);
    return td_status_with_meta(td_status_with_reason(s, "CHECKPOINT_IN_USE"), "job", "%s",
                               user->id);
}

td_status td_core_delete(struct td_core *core, struct td_now now, const char *id,
                         bool keep_checkpoints) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, id);
    TD_CHECK(j);
    td_status s = td_removals_check(core, j);
    if (!s) {
        td_core_log(core, "job deleted job=%s name=\"%s\"%s", j->id, j->name,
                    keep_checkpoints ? ", its checkpoints stay" : "");
        td_forget_job(core, j, keep_checkpoints ? TD_FORGET_KEEP_CHECKPOINTS : TD_FORGET_DELETED);
    }
    td_core_leave(core);
    return s;
}

// ---- planning -----------------------------------------------------------------------------------
// Ranks on each node of a canonical spec that has slots and devices somewhere.
// *out_facts: what is to be said of a kind that nobody works out a plan for; NULL: it has one.
// *out_labels: that it asks of its nodes. Both are the caller's to free, also after a failure.
static td_status look_at_spec(const struct td_core *core, const char *spec_json,
                              uint32_t *out_ranks, char **out_labels, char **out_facts) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *tree = NULL;
    TD_TRY(td_json_parse(arena, spec_json, strlen(spec_json), &tree));
    struct td_spec spec;
    td_spec_read(tree, &spec);
    *out_ranks = (uint32_t)td_spec_node_ranks(&spec);
    TD_TRY(td_labels_of_map(spec.node_labels, out_labels));
    const char *labels = *out_labels ? *out_labels : "";
    TD_TRY(td_capacity_labels(core, labels));
    TD_TRY(td_capacity_slots(core, labels, *out_ranks, &spec.resources));
    if (spec.kind != TD_KIND_TRAIN) {
        TD_AUTO_BUF text;
        td_buf_init(&text, 256);
        TD_TRY(td_capacity_kind(core, labels, spec.kind, *out_ranks, &spec.resources));
        TD_TRY(td_gpu_capacity(core, labels, *out_ranks, &spec.resources));
        TD_TRY(td_buf_printf(&text, "{\"kind\":\"%s\",\"world_size\":%d",
                             td_job_kind_name(spec.kind), td_spec_ranks(&spec)));
        if (spec.resources.memory_bytes > 0) {
            TD_TRY(td_buf_printf(&text, ",\"memory_bytes\":%lld",
                                 (long long)spec.resources.memory_bytes));
        }
        TD_TRY(td_buf_str(&text, "}"));
        *out_facts = td_core_dup(td_buf_cstr(&text));
        return TD_OK;
    }
    char accelerator[TD_ACCEL_KEY];
    td_accel_key(&spec, accelerator);
    return td_capacity_devices(core, labels, *out_ranks, accelerator);
}

td_status td_core_plan(struct td_core *core, struct td_now now, const char *spec_json, bool trusted,
                       const char *dump, uint64_t token) {
    td_core_enter(core, now);
    if (core->n_waiters == TD_CORE_MAX_PLAN_WAITERS) {
        return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                             "%d plans are asked for already; try again",
                                             TD_CORE_MAX_PLAN_WAITERS),
                                     "LIMIT_PLANS");
    }
    struct td_plan_waiter w = {.token = token};
    if (strlen(dump) >= sizeof w.dump) {
        return td_fail(TD_INVALID_ARGUMENT, "there is no pass '%.40s...'", dump);
    }
    snprintf(w.dump, sizeof w.dump, "%s", dump);
    TD_AUTO_FREE char *labels = NULL;
    char *facts = NULL;
    TD_TRY(look_at_spec(core, spec_json, &w.n_ranks, &labels, &facts));
    if (facts && dump[0]) {
        free(facts);
        return td_fail(TD_INVALID_ARGUMENT, "a job of this kind has no graph to show");
    }
    if (facts) {
        struct td_action *a = td_core_act(core, TD_ACTION_PLANNED);
        a->token = token;
        a->text = facts;
        return TD_OK;
    }
    td_plan_digest(spec_json, trusted, w.digest);
    const struct td_plan_entry *e = dump[0] ? NULL : td_plans_find(core, w.digest, NULL);
    if (e && !e->guesses && td_plans_is_settled(e)) { // else the node may know more by now
        TD_TRY(td_capacity_memory(core, labels ? labels : "", w.n_ranks, e));
        struct td_action *a = td_core_act(core, TD_ACTION_PLANNED);
        a->token = token;
        a->text = td_core_dup(e->json);
        return TD_OK;
    }
    TD_TRY(td_plans_want(core, w.digest, NULL, w.dump, spec_json));
    core->waiters[core->n_waiters++] = w;
    td_plans_tick(core);
    td_core_leave(core);
    return TD_OK;
}

void td_core_plan_abandon(struct td_core *core, uint64_t token) {
    for (uint32_t i = 0; i < core->n_waiters; i++) {
        if (core->waiters[i].token != token) continue;
        td_plan_asks_unused(core, core->waiters[i].digest);
        core->waiters[i] = core->waiters[--core->n_waiters];
    }
}
