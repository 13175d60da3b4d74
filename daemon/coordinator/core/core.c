// The core's life, and its inputs from nodes and from time. Every input has the same shape:
// enter(now), change state through the other files, leave: one record per changed job. A pass of
// the queue is due when something could have moved; the next tick, which is then at once, makes it.

#include "daemon/coordinator/core/core.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/attempt.h"
#include "daemon/coordinator/core/attempt/attempt_end.h"
#include "daemon/coordinator/core/attempt/expiry.h"
#include "daemon/coordinator/core/attempt/forget.h"
#include "daemon/coordinator/core/attempt/rendezvous.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/catalog/reconcile_answer.h"
#include "daemon/coordinator/core/catalog/removals.h"
#include "daemon/coordinator/core/catalog/retain.h"
#include "daemon/coordinator/core/frame.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/exchange.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/job_list.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "daemon/coordinator/core/model/specs.h"
#include "daemon/coordinator/core/nodes/drain.h"
#include "daemon/coordinator/core/nodes/leases.h"
#include "daemon/coordinator/core/nodes/node_gpus.h"
#include "daemon/coordinator/core/nodes/nodes.h"
#include "daemon/coordinator/core/plans/offers.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "daemon/coordinator/core/queue/queue.h"
#include "daemon/coordinator/core/requests.h"
#include "lib/attempt/checkpoint_name.h"

static const int64_t expire_ns = INT64_C(30) * 24 * 3600 * TD_NS_PER_S;
static const int64_t house_ns = INT64_C(3600) * TD_NS_PER_S; // what only days bring about

// ---- output -------------------------------------------------------------------------------------
struct td_core_effects td_core_take(struct td_core *core) {
    struct td_core_effects out = core->out;
    memset(&core->out, 0, sizeof core->out);
    core->records_tail = &core->out.records;
    core->points_tail = &core->out.points;
    core->actions_tail = &core->out.actions;
    return out;
}

// ---- life ---------------------------------------------------------------------------------------
static void forget_values(struct td_map *m, void (*destroy)(void *)) {
    void *value;
    for (size_t cursor = 0; m && (value = td_map_each(m, &cursor));) {
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
    core->lacks_plan = td_queue_lacks_plan;
    if (!core->checkpoint_dir) return td_fail_oom();
    TD_TRY(td_map_create(TD_CORE_MAX_JOBS, &core->jobs));
    TD_TRY(td_map_create(TD_CORE_MAX_JOBS, &core->spec_shares));
    TD_TRY(td_map_create(TD_CORE_MAX_JOBS, &core->leaving));
    TD_TRY(td_map_create(TD_CORE_MAX_NODES, &core->nodes));
    TD_TRY(td_map_create(TD_CORE_MAX_NODES, &core->offers));
    TD_TRY(td_map_create(TD_CORE_MAX_PLANS, &core->plans));
    TD_TRY(td_map_create(TD_CORE_MAX_REQUESTS, &core->requests));
    TD_TRY(td_map_create(TD_CORE_MAX_REMOVALS, &core->removals));
    TD_TRY(td_map_create(TD_CORE_MAX_ACTIVE, &core->rendezvous));
    TD_TRY(td_map_create(TD_CORE_MAX_CHECKPOINTS * (TD_CHECKPOINT_MAX_FILES + 1), &core->shards));
    (void)td_core_take(core); // sets the tails
    *out_core = td_steal(core);
    return TD_OK;
}

void td_core_destroy(struct td_core *core) {
    if (!core) return;
    td_core_effects_finish(&core->out);
    forget_values(core->jobs, destroy_job);
    td_specs_finish(core);
    forget_values(core->leaving, td_forget_destroy);
    forget_values(core->nodes, td_host_destroy);
    td_offers_finish(core);
    forget_values(core->plans, destroy_plan);
    forget_values(core->requests, free);
    forget_values(core->shards, destroy_shard);
    forget_values(core->removals, destroy_removal);
    forget_values(core->rendezvous, td_rendezvous_destroy);
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        free(core->sessions[i]);
    }
    for (uint32_t i = 0; i < core->n_asks; i++) {
        td_plan_ask_destroy(core->asks[i]);
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

struct td_mono td_core_wake(const struct td_core *core) {
    return td_queue_due(core) ? (struct td_mono){0} : core->wake;
}

// ---- start --------------------------------------------------------------------------------------
void td_core_start(struct td_core *core, struct td_now now) {
    td_core_enter(core, now);
    core->started = true;
    core->started_at = now.mono;
    td_specs_start(core);
    struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        n->last_message = now.mono;
        td_core_wake_at(core, td_mono_add(now.mono, core->options.lease_ns / 4));
    }
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct td_job *j = core->order[i];
        const struct td_attempt *last = td_job_attempt(j, j->n_attempts);
        // The row of an attempt is written with its events, the job's with what it shows.
        if (last) j->progress.step = TD_MAX(j->progress.step, last->step);
        for (uint32_t k = 1; k <= j->n_attempts; k++) { // all of it may be here since the last stop
            (void)td_catalog_settle(core, j, td_job_attempt(j, k)); // td_retain_all comes below
            td_attempt_maybe_forget(core, j, td_job_attempt(j, k));
        }
    }
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        if (td_job_live(j)) td_jobs_push(&core->live, &core->n_live, &core->cap_live, j);
        td_core_hold(core, j);
        td_queue_insert(core, j);
        td_forget_note_pins(core, j);
    }
    for (uint32_t i = core->n_active; i-- > 0;) { // backwards: a job that ends leaves the list
        td_attempt_tick(core, core->active[i]);
    }
    td_expiry_start(core);
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

// In process nobody waits for a network.
static bool is_unregistered(const struct td_node_session *s) {
    return !s->node && !s->embedded && !s->ends;
}

static void end_unregistered(struct td_core *core) {
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        struct td_node_session *s = core->sessions[i];
        struct td_mono due = td_mono_add(s->opened, core->options.lease_ns);
        if (!is_unregistered(s)) continue;
        if (core->now.mono.ns < due.ns) {
            td_core_wake_at(core, due);
            continue;
        }
        s->ends = true;
        td_core_close_session(core, s->id, "no Register came in time");
    }
}

static void on_time(struct td_core *core) {
    core->wake.ns = INT64_MAX;
    td_leases_tick(core);
    end_unregistered(core);
    for (uint32_t i = core->n_live; i-- > 0;) {
        if (td_job_live(core->live[i])) td_attempt_tick(core, core->live[i]);
    }
    td_queue_tick(core);
    td_plans_tick(core);
    td_requests_forget(core);
    if (core->now.mono.ns >= core->house_at.ns) {
        expire(core);
        td_expiry_due(core);
        core->house_at = td_mono_add(core->now.mono, house_ns);
    }
    td_core_wake_at(core, core->house_at);
    td_expiry_tick(core);
}

// Time that has come, then one pass of the queue for all that happened since the last one.
void td_core_tick(struct td_core *core, struct td_now now) {
    td_core_enter(core, now);
    if (core->wake.ns <= now.mono.ns) on_time(core);
    td_drain_look(core);
    if (td_queue_due(core)) td_queue_pass(core);
    td_core_leave(core);
}

// ---- sessions -----------------------------------------------------------------------------------
static struct td_node_session *find_session(struct td_core *core, uint64_t id) {
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        if (core->sessions[i]->id == id) return core->sessions[i];
    }
    return NULL;
}

static void end_oldest_unregistered(struct td_core *core) {
    struct td_node_session *oldest = NULL;
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        struct td_node_session *s = core->sessions[i];
        if (is_unregistered(s) && (!oldest || s->id < oldest->id)) oldest = s;
    }
    if (!oldest) return;
    oldest->ends = true;
    td_core_close_session(core, oldest->id, "no Register came, and another session needs the room");
}

uint64_t td_core_session_open(struct td_core *core, struct td_now now, bool embedded) {
    td_core_enter(core, now);
    if (core->n_sessions >= TD_CORE_MAX_NODES) end_oldest_unregistered(core);
    if (core->n_sessions == TD_COUNTOF(core->sessions)) return 0;
    struct td_node_session *s = td_core_must(td_calloc(1, sizeof *s));
    s->id = core->next_session++;
    s->embedded = embedded;
    s->opened = now.mono;
    if (!embedded) td_core_wake_at(core, td_mono_add(now.mono, core->options.lease_ns));
    core->sessions[core->n_sessions++] = s;
    return s->id;
}

void td_core_session_holder(struct td_core *core, uint64_t session, const char *holder) {
    struct td_node_session *s = find_session(core, session);
    if (s) snprintf(s->holder, sizeof s->holder, "%s", holder);
}

void td_core_session_from(struct td_core *core, uint64_t session, const char *address) {
    struct td_node_session *s = find_session(core, session);
    if (s) snprintf(s->from, sizeof s->from, "%s", address);
}

void td_core_session_close(struct td_core *core, struct td_now now, uint64_t session) {
    td_core_enter(core, now);
    for (uint32_t i = 0; i < core->n_sessions; i++) {
        struct td_node_session *s = core->sessions[i];
        if (s->id != session) continue;
        td_nodes_session_gone(core, s);
        core->sessions[i] = core->sessions[--core->n_sessions];
        free(s);
        break;
    }
    td_core_leave(core);
}

static void on_message(struct td_core *core, struct td_node_session *s,
                       const Traind__V1__NodeMessage *m) {
    if (s->ends) return;
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
    s->node->last_message = core->now.mono;
    switch (m->body_case) {
    case TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT:
        td_attempt_on_segment(core, s->node, m->segment);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS:
        td_attempt_on_progress(core, s->node, m->progress);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT:
        td_nodes_set_plugins(core, s->node, m->plan_result->plugins);
        if (td_plans_on_result(core, s->node, m->plan_result)) {
            td_nodes_devices_changed(core, s->node);
        }
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
    case TRAIND__V1__NODE_MESSAGE__BODY_PLUGIN_LIST:
        td_nodes_take_probe(core, s->node, m->plugin_list);
        td_offers_set(core, s->node, m->plugin_list);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_GPU_LIST:
        td_node_gpus_take(core, s->node, m->gpu_list);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED:
        td_reconcile_on_answer(core, s->node, m->reconciled);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_STORE_SET:
        td_rendezvous_on_set(core, s->node, m->store_set);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_STORE_WANT:
        td_rendezvous_on_want(core, s->node, m->store_want);
        break;
    case TRAIND__V1__NODE_MESSAGE__BODY_STORE_TAKEN:
        td_rendezvous_on_taken(core, s->node, m->store_taken);
        break;
    default:
        break; // newer bodies are skipped
    }
}

void td_core_session_message(struct td_core *core, struct td_now now, uint64_t session,
                             const Traind__V1__NodeMessage *m) {
    td_core_enter(core, now);
    struct td_node_session *s = find_session(core, session);
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
        const bool stops = a && !a->stop && td_nodes_embedded_of(core, a);
        if (stops) td_attempt_stop(core, j, a, TD_STOP_CAUSE_DAEMON);
    }
    td_core_leave(core);
}

uint32_t td_core_n_stopping(const struct td_core *core) {
    uint32_t n = 0;
    for (uint32_t i = 0; core->stopping && i < core->n_live; i++) {
        struct td_attempt *a = td_job_live(core->live[i]);
        const struct td_host *node = a ? td_nodes_embedded_of(core, a) : NULL;
        n += node && node->session;
    }
    return n;
}

// ---- reads --------------------------------------------------------------------------------------
uint32_t td_core_counter(const struct td_core *core, enum td_core_counter c) {
    TD_CHECK((unsigned)c < TD_COUNT_COUNT);
    return core->counters[c];
}
