// The core's frame: its life, the inputs of core.h but for people's (core_verbs.c), the carrying
// out of the job table. Every input has the same shape: enter(now), change state through the other
// files, leave: one record per changed job. A pass of the queue is due
// when something could have moved; the next tick, which is then at once, makes it.

#include "daemon/coordinator/core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/core_state.h"
#include "daemon/coordinator/core/reconcile.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/buf.h"

enum { RECORD_MAX = 4 << 20 };
static const int64_t expire_ns = INT64_C(30) * 24 * 3600 * TD_NS_PER_S;
static const int64_t house_ns = INT64_C(3600) * TD_NS_PER_S; // what only days bring about
static const int64_t hold_ns = 60 * TD_NS_PER_S;

// ---- life ---------------------------------------------------------------------------------------
static void forget_values(struct td_map *m, void (*destroy)(void *)) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (m && td_map_next(m, &cursor, &key, &value)) {
        destroy(value);
    }
    td_map_destroy(m);
}

static void destroy_job(void *p) {
    td_job_destroy(p);
}

static void destroy_removal(void *p) {
    td_removal_destroy(p);
}

static void destroy_plan(void *p) {
    td_plan_entry_destroy(p);
}

static void destroy_shard(void *p) {
    struct td_checkpoint_file *f = p;
    free(f->name);
    free(f);
}

td_status td_core_create(const struct td_core_options *options, struct td_core **out_core) {
    TD_AUTO(td_core) *core = td_calloc(1, sizeof *core);
    if (!core) return td_fail_oom();
    core->options = *options;
    if (!core->options.heartbeat_ns) core->options.heartbeat_ns = 3 * TD_NS_PER_S;
    if (!core->options.lease_ns) core->options.lease_ns = 10 * TD_NS_PER_S;
    if (!core->options.lost_after_ns) core->options.lost_after_ns = 60 * TD_NS_PER_S;
    if (!core->options.retention_jobs) core->options.retention_jobs = 10000;
    if (!core->options.stop_grace_ns) core->options.stop_grace_ns = 60 * TD_NS_PER_S;
    core->checkpoint_dir = td_strdup(options->checkpoint_dir ? options->checkpoint_dir : "");
    core->next_seq = core->next_epoch = core->next_session = core->next_plan = 1;
    core->next_reconcile = 1;
    core->wake.ns = INT64_MAX;
    core->queue_wake.ns = INT64_MAX;
    if (!core->checkpoint_dir) return td_fail_oom();
    TD_TRY(td_map_create(TD_CORE_MAX_JOBS, &core->jobs));
    TD_TRY(td_map_create(TD_CORE_MAX_JOBS, &core->leaving));
    TD_TRY(td_map_create(TD_CORE_MAX_NODES, &core->nodes));
    TD_TRY(td_map_create(TD_CORE_MAX_PLANS, &core->plans));
    TD_TRY(td_map_create(TD_CORE_MAX_REQUESTS, &core->requests));
    TD_TRY(td_map_create(TD_CORE_MAX_REMOVALS, &core->removals));
    TD_TRY(td_map_create(TD_CORE_MAX_CHECKPOINTS * (TD_CHECKPOINT_MAX_FILES + 1), &core->shards));
    (void)td_core_take(core); // sets the tails
    *out_core = td_steal(core);
    return TD_OK;
}

void td_core_destroy(struct td_core *core) {
    if (!core) return;
    td_core_out_finish(&core->out);
    forget_values(core->jobs, destroy_job);
    forget_values(core->leaving, td_forget_destroy);
    forget_values(core->nodes, free);
    forget_values(core->plans, destroy_plan);
    forget_values(core->requests, free);
    forget_values(core->shards, destroy_shard);
    forget_values(core->removals, destroy_removal);
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        free(core->sessions[i]);
    }
    for (uint32_t i = 0; i < core->n_asks; i++) {
        free(core->asks[i]->spec_json);
        free(core->asks[i]);
    }
    free(core->listed);
    free(core->order);
    free(core->active);
    free(core->live);
    free(core->waiting);
    free(core->ended);
    free(core->pinning);
    free(core->checkpoint_dir);
    free(core);
}

void td_core_wake_at(struct td_core *core, struct td_mono t) {
    if (t.ns < core->wake.ns) core->wake = t;
}

struct td_mono td_core_wake(const struct td_core *core) {
    return td_queue_due(core) ? (struct td_mono){0} : core->wake;
}

// ---- one event ----------------------------------------------------------------------------------
void td_core_enter(struct td_core *core, struct td_now now) {
    struct td_mono before = core->now.mono;
    core->now = now;
    if (core->started) td_nodes_after_stall(core, before);
}

static void list(struct td_core *core, struct td_job *j) {
    if (j->listed) return;
    if (core->n_listed == core->cap_listed) {
        core->cap_listed = core->cap_listed ? 2 * core->cap_listed : 64;
        core->listed =
            td_core_must(td_realloc(core->listed, core->cap_listed * sizeof(struct td_job *)));
    }
    j->listed = true;
    core->listed[core->n_listed++] = j;
}

void td_core_touch(struct td_core *core, struct td_job *j) {
    list(core, j);
    j->touched = true;
}

void td_core_save_attempt(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    list(core, j);
    a->touched = true;
}

void td_core_progress(struct td_core *core, const struct td_job *j) {
    struct td_action *a = td_core_act(core, TD_ACTION_PROGRESS);
    memcpy(a->job, j->id, sizeof a->job);
}

static void save_job(struct td_core *core, struct td_job *j, struct td_buf *body) {
    j->touched = false;
    td_queue_place(core, j);
    j->version++;
    td_buf_clear(body);
    TD_CHECK(!td_job_encode(j, body));
    td_core_record(core, TD_RECORD_JOB, j->id, td_buf_cstr(body));
    struct td_action *a = td_core_act(core, TD_ACTION_EVENT);
    memcpy(a->job, j->id, sizeof a->job);
}

static void save_attempt(struct td_core *core, const struct td_job *j, struct td_attempt *a,
                         struct td_buf *body) {
    char key[64];
    a->touched = false;
    td_buf_clear(body);
    TD_CHECK(!td_attempt_encode(a, body));
    snprintf(key, sizeof key, "%s/a%u", j->id, a->number);
    td_core_record(core, TD_RECORD_ATTEMPT, key, td_buf_cstr(body));
}

void td_core_leave(struct td_core *core) {
    TD_AUTO_BUF body;
    td_buf_init(&body, RECORD_MAX);
    for (uint32_t i = 0; i < core->n_listed; i++) {
        struct td_job *j = core->listed[i];
        j->listed = false;
        for (uint32_t k = 1; k <= j->n_attempts; k++) {
            struct td_attempt *a = td_job_attempt(j, k);
            if (a->touched) save_attempt(core, j, a, &body);
        }
        if (j->touched) save_job(core, j, &body);
    }
    core->n_listed = 0;
}

// ---- the table, carried out ---------------------------------------------------------------------
static void deactivate(struct td_core *core, struct td_job *j) {
    td_jobs_remove(core->active, &core->n_active,
                   td_jobs_find(core->active, core->n_active, j, td_job_key_seq));
}

static void on_recovering(struct td_core *core, struct td_job *j) {
    const struct td_spec_restart *r = &j->knobs.restart;
    int32_t i = (int32_t)j->restarts - 1;
    if (i < 0) i = 0;
    int64_t wait_s = r->n_backoff > 0 ? r->backoff_s[TD_MIN(i, r->n_backoff - 1)] : 1;
    j->retry_at = td_mono_add(core->now.mono, wait_s * TD_NS_PER_S);
    td_reason_set(&j->reason, "BACKING_OFF", "restart %u of %d in %" PRId64 " s, after %s%s: %s",
                  j->restarts, r->max, wait_s, td_class_name(j->failure.cls),
                  j->failure.cls == TD_CLASS_DISK ? " (a full disk is tried once more only)" : "",
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

static void tell_moved(struct td_core *core, const struct td_job *j, enum td_job_state from) {
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
        j->hold_until = td_mono_add(core->now.mono, hold_ns);
    }
    if (td_job_state_ended(to)) {
        j->end_ns = core->now.real.ns;
        deactivate(core, j);
        td_retain_released(core, j);
        td_retention_ended(core, j);
    }
    td_core_touch(core, j);
    tell_moved(core, j, from);
    return TD_JOB_MOVED;
}

void td_core_fail_job(struct td_core *core, struct td_job *j, enum td_class cls, enum td_code code,
                      const char *message) {
    struct td_failure f = {.cls = cls,
                           .code = code,
                           .attempt = j->n_attempts,
                           .rank = -1,
                           .step = j->progress.step,
                           .message = (char *)(uintptr_t)message};
    TD_CHECK(!td_failure_set(&j->failure, &f));
    TD_CHECK(td_core_apply(core, j, TD_JOB_ON_FAIL) != TD_JOB_REFUSED);
}

// ---- jobs by id, by age, by activity ------------------------------------------------------------
td_status td_core_add_job(struct td_core *core, struct td_job *take_job) {
    TD_AUTO(td_job) *j = take_job;
    bool active = !td_job_state_ended(j->state);
    TD_TRY(td_map_put(core->jobs, j->id, j, NULL));
    (void)td_jobs_insert(&core->order, &core->n_jobs, &core->cap_jobs, j, td_job_key_seq);
    if (active) {
        (void)td_jobs_insert(&core->active, &core->n_active, &core->cap_active, j, td_job_key_seq);
    } else {
        td_retention_ended(core, j);
    }
    (void)td_steal(j);
    return TD_OK;
}

struct td_job *td_core_job(const struct td_core *core, const char *id) {
    return id ? td_map_get(core->jobs, id) : NULL;
}

// ---- start --------------------------------------------------------------------------------------
void td_core_start(struct td_core *core, struct td_now now) {
    td_core_enter(core, now);
    core->started = true;
    core->started_at = now.mono;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        struct td_host *n = value;
        n->heard = now.mono;
        td_core_wake_at(core, td_mono_add(now.mono, core->options.lease_ns / 4));
    }
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct td_job *j = core->order[i];
        for (uint32_t k = 1; k <= j->n_attempts; k++) // all of it may be here since the last stop
            td_attempt_maybe_forget(core, j, td_job_attempt(j, k));
    }
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        struct td_attempt *a = td_job_live(j);
        if (a) td_jobs_push(&core->live, &core->n_live, &core->cap_live, j);
        if (a) td_attempt_tick(core, j);
        j->hold_until = td_mono_add(now.mono, hold_ns);
        td_queue_place(core, j);
        td_forget_note_pins(core, j);
    }
    td_retention_start(core);
    td_retain_all(core);
    core->queue_dirty = true;
    td_core_leave(core);
}

// ---- time ---------------------------------------------------------------------------------------
static void expire(struct td_core *core) {
    for (uint32_t i = core->n_active; i-- > 0;) { // backwards: a job may leave the list
        struct td_job *j = core->active[i];
        if (td_job_live(j) || core->now.real.ns - j->wait_ns <= expire_ns) continue;
        td_core_apply(core, j, TD_JOB_ON_EXPIRE);
    }
}

static void on_time(struct td_core *core) {
    core->wake.ns = INT64_MAX;
    td_nodes_tick(core);
    for (uint32_t i = core->n_live; i-- > 0;) {
        if (td_job_live(core->live[i])) td_attempt_tick(core, core->live[i]);
    }
    td_queue_tick(core);
    td_plans_tick(core);
    td_core_forget_requests(core);
    if (core->now.mono.ns >= core->house_at.ns) {
        expire(core);
        td_retention_due(core);
        core->house_at = td_mono_add(core->now.mono, house_ns);
    }
    td_core_wake_at(core, core->house_at);
    td_retention_tick(core);
}

// Time that has come, then one pass of the queue for all that happened since the last one.
void td_core_tick(struct td_core *core, struct td_now now) {
    td_core_enter(core, now);
    if (core->wake.ns <= now.mono.ns) on_time(core);
    if (td_queue_due(core)) td_queue_pass(core);
    td_core_leave(core);
}

// ---- sessions -----------------------------------------------------------------------------------
static struct td_session *find_session(struct td_core *core, uint64_t id) {
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        if (core->sessions[i]->id == id) return core->sessions[i];
    }
    return NULL;
}

uint64_t td_core_session_open(struct td_core *core, struct td_now now, bool embedded) {
    td_core_enter(core, now);
    if (core->n_sessions == TD_COUNTOF(core->sessions)) return 0;
    struct td_session *s = td_core_must(td_calloc(1, sizeof *s));
    s->id = core->next_session++;
    s->embedded = embedded;
    core->sessions[core->n_sessions++] = s;
    return s->id;
}

void td_core_session_close(struct td_core *core, struct td_now now, uint64_t session) {
    td_core_enter(core, now);
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        struct td_session *s = core->sessions[i];
        if (s->id != session) continue;
        td_nodes_session_gone(core, s);
        core->sessions[i] = core->sessions[--core->n_sessions];
        free(s);
        break;
    }
    td_core_leave(core);
}

static void on_message(struct td_core *core, struct td_session *s,
                       const Traind__V1__NodeMessage *m) {
    if (m->body_case == TRAIND__V1__NODE_MESSAGE__BODY_REGISTER) {
        td_nodes_register(core, s, m->register_);
        return;
    }
    if (!s->node) {
        td_core_close_session(core, s->id, "the first message of a session is Register");
        return;
    }
    if (s->node->session != s->id || m->incarnation != core->options.incarnation) {
        core->counters[TD_COUNT_STALE]++;
        return;
    }
    s->node->heard = core->now.mono;
    switch (m->body_case) {
    case TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT:
        td_attempt_on_segment(core, s->node, m->segment);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS:
        td_attempt_on_progress(core, s->node, m->progress);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT:
        td_plans_on_result(core, s->node, m->plan_result);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_REFUSED:
        td_attempt_on_refused(core, s->node, m->refused);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT:
        td_nodes_heartbeat(core, s->node, m->heartbeat);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE:
        td_attempt_on_log_state(core, s->node, m->log_state);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED:
        td_reconcile_on_answer(core, s->node, m->reconciled);
        break;
    default:
        break; // newer bodies are skipped
    }
}

void td_core_session_message(struct td_core *core, struct td_now now, uint64_t session,
                             const Traind__V1__NodeMessage *m) {
    td_core_enter(core, now);
    struct td_session *s = find_session(core, session);
    if (s) on_message(core, s, m);
    td_core_leave(core);
}

void td_core_drain(struct td_core *core, struct td_now now, bool stop_embedded) {
    td_core_enter(core, now);
    core->draining = true;
    core->stopping = stop_embedded;
    for (uint32_t i = 0; stop_embedded && i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        struct td_attempt *a = td_job_live(j);
        struct td_host *n = a ? td_nodes_find(core, a->node) : NULL;
        if (n && n->embedded && !a->stop) td_attempt_stop(core, j, a, TD_STOP_CAUSE_DAEMON);
    }
    td_core_leave(core);
}

uint32_t td_core_n_stopping(const struct td_core *core) {
    uint32_t n = 0;
    for (uint32_t i = 0; core->stopping && i < core->n_live; i++) {
        struct td_attempt *a = td_job_live(core->live[i]);
        struct td_host *node = a ? td_nodes_find(core, a->node) : NULL;
        n += node && node->embedded && node->session;
    }
    return n;
}

// ---- bulk ---------------------------------------------------------------------------------------
void td_core_points_committed(struct td_core *core, struct td_now now, const char *job,
                              uint32_t attempt, uint32_t rank, uint64_t offset) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    if (a && rank < a->n_ranks) {
        a->ranks[rank].metrics_done = offset;
        td_attempt_ack(core, td_nodes_find(core, a->node), j, a, TRAIND__V1__SEGMENT__KIND__METRICS,
                       rank, offset);
        td_attempt_maybe_forget(core, j, a);
    }
    td_core_leave(core);
}

void td_core_log_committed(struct td_core *core, struct td_now now, const char *job,
                           uint32_t attempt, uint32_t rank, Traind__V1__Segment__Kind kind,
                           uint64_t offset) {
    td_core_enter(core, now);
    td_core_load_offset(core, job, attempt, rank, kind, offset);
    struct td_job *j = td_core_job(core, job);
    struct td_attempt *a = j ? td_job_attempt(j, attempt) : NULL;
    if (a && rank < a->n_ranks) {
        td_attempt_ack(core, td_nodes_find(core, a->node), j, a, kind, rank, offset);
        td_attempt_maybe_forget(core, j, a);
    }
    td_core_leave(core);
}

td_status td_core_shard_durable(struct td_core *core, struct td_now now,
                                const Traind__V1__AttemptId *id, const char *path, const char *file,
                                uint64_t bytes, const char *digest) {
    TD_TRY(td_core_check_attempt(core, id));
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, id->job);
    td_status s = td_catalog_on_shard(core, j, path, file, bytes, digest);
    struct td_attempt *a = td_job_attempt(j, id->attempt);
    if (!s && a) td_attempt_tick(core, j); // it may have been what its end waited for
    if (!s && a) td_attempt_maybe_forget(core, j, a);
    td_core_leave(core);
    return s;
}

void td_core_checkpoint_missing(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    struct td_checkpoint *c = j ? td_catalog_find(j, path) : NULL;
    if (c && c->streamed) {
        td_catalog_on_missing(core, j, c, "the coordinator", why);
        td_retain(core, j);
    }
    td_core_leave(core);
}

void td_core_checkpoint_damaged(struct td_core *core, struct td_now now, const char *job,
                                const char *path, const char *why) {
    td_core_enter(core, now);
    struct td_job *j = td_core_job(core, job);
    if (j) td_catalog_on_damaged(core, j, path, why);
    td_core_leave(core);
}

// ---- reads --------------------------------------------------------------------------------------
td_status td_core_find_job(const struct td_core *core, const char *id_or_name,
                           const struct td_job **out_job) {
    const struct td_job *found = td_core_job(core, id_or_name);
    uint32_t n = found ? 1 : 0;
    for (uint32_t i = 0; !found && i < core->n_jobs; i++) { // a name that is an id is an id
        if (strcmp(core->order[i]->name, id_or_name) == 0) n++;
    }
    if (n > 1) {
        return td_status_with_reason(td_fail(TD_FAILED_PRECONDITION,
                                             "%u jobs are named '%.100s'; use the id", n,
                                             id_or_name),
                                     "NAME_AMBIGUOUS");
    }
    for (uint32_t i = 0; !found && n == 1 && i < core->n_jobs; i++) {
        if (strcmp(core->order[i]->name, id_or_name) == 0) found = core->order[i];
    }
    if (!found) {
        return td_status_with_reason(
            td_fail(TD_NOT_FOUND, "no job '%.100s'; `trainctl list` shows them", id_or_name),
            "JOB_NOT_FOUND");
    }
    *out_job = found;
    return TD_OK;
}

const struct td_job *td_core_job_before(const struct td_core *core, uint64_t before_seq) {
    uint32_t low = 0, high = core->n_jobs; // the last with seq < before_seq
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (core->order[mid]->seq < before_seq) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low ? core->order[low - 1] : NULL;
}

static const char *const counter_names[] = {"stale_messages", "segment_gaps",  "bad_event_lines",
                                            "bad_points",     "attempts_lost", "restarts",
                                            "registrations",  "plans_asked",   "stalls",
                                            "queue_passes",   "queue_looks",   "reconcile_looks"};
_Static_assert(TD_COUNTOF(counter_names) == TD_COUNT_COUNT, "one name per counter");

const char *td_core_counter_name(enum td_core_counter c) {
    TD_CHECK((unsigned)c < TD_COUNT_COUNT);
    return counter_names[c];
}

uint32_t td_core_counter(const struct td_core *core, enum td_core_counter c) {
    TD_CHECK((unsigned)c < TD_COUNT_COUNT);
    return core->counters[c];
}
