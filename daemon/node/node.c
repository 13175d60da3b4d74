// The shell: carries out what the core answers, and gives it what happens.
//
// Every input goes the same way: into the core, carry out its actions at once and in order, arm the
// timer for its next wish. An action may cause further inputs (a launch that fails at once); their
// actions are queued in the core after those that wait. Attempts found at start are recovered
// before the transport is started, so the first Register knows them all.

#include "daemon/node/node.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/node/attempt.h"
#include "daemon/node/core/cores.h"
#include "daemon/node/fetch.h"
#include "daemon/node/inventory.h"
#include "daemon/node/measurer.h"
#include "daemon/node/planner.h"
#include "daemon/node/reconcile.h"
#include "daemon/node/shards.h"
#include "daemon/node/transport.h"
#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/fit.h"
#include "lib/base/fsio.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/plugin_files.h"
#include "lib/rpc/loop.h"

enum { td_node_magic = 0x4e4f4445 };

struct td_node {
    uint32_t magic;
    struct td_loop *loop;
    char state_dir[1024], runtime_dir[1024], bin_dir[TD_FS_PATH_BYTES], version[64];
    int64_t orphan_timeout_ns, silent_after_ns;
    mode_t user_umask;
    struct td_inventory inventory;
    char plugin_dir[TD_FS_PATH_BYTES];
    struct td_plugin_files plugins;
    cpu_set_t cores;
    struct td_node_core *core;
    struct td_transport *transport;
    struct td_rpc_channel *channel;
    struct td_planner *planner;
    struct td_measurer *measurer;
    struct td_reconciler *reconciler;
    struct td_loop_timer *timer;
    bool closing, down_logged;
    char key[64]; // of the session
    bool known;   // it has registered since it started
};

// ---- the core, in and out -----------------------------------------------------------------------
static void carry_out(struct td_node *n, const struct td_node_action *action);

static void after_input(struct td_node *n) {
    struct td_node_action action;
    while (td_node_core_next(n->core, &action))
        carry_out(n, &action);
    struct td_mono wake = td_node_core_wake(n->core);
    if (wake.ns == INT64_MAX) {
        td_loop_timer_disarm(n->timer);
    } else {
        td_loop_timer_arm(n->timer, wake.ns - td_mono_now().ns);
    }
}

static void give(struct td_node *n, struct td_node_attempt *a, enum td_attempt_event event,
                 td_status take_failure) {
    td_node_core_event(n->core, td_mono_now(), a, event, take_failure);
    after_input(n);
}

static void on_timer(void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    td_node_core_tick(n->core, td_mono_now());
    after_input(n);
}

static enum td_transport_send send_message(struct td_node *n, Traind__V1__NodeMessage *m) {
    m->incarnation = td_node_core_incarnation(n->core);
    return n->transport->ops->send(n->transport, m);
}

static bool forward_send(Traind__V1__NodeMessage *m, void *arg) {
    return send_message(TD_CAST(td_node, arg), m) != TD_TRANSPORT_REFUSED;
}

// ---- attempts: what they report-----------------------------------------------------------------
static void on_started(struct td_local_attempt *a) {
    struct td_node *n = TD_CAST(td_node, a->owner);
    a->core->major = a->major;
    snprintf(a->core->build, sizeof a->core->build, "%s", a->build);
    td_log_info("attempt started job=%s attempt=%u ranks=%u cores=%s", a->core->job,
                a->core->attempt, a->core->n_ranks, a->cores[0] ? a->cores : "any");
    if (td_node_core_registered(n->core)) {
        td_forward_adopt(a->forward, NULL);
        if (a->shards) td_shards_up(a->shards, true);
    }
    give(n, a->core, TD_AE_STARTED, TD_OK);
    td_reconciler_poke(n->reconciler);
}

static void on_failed(struct td_local_attempt *a, td_status take_failure) {
    struct td_node *n = TD_CAST(td_node, a->owner);
    td_log_warn("attempt not started job=%s attempt=%u why=\"%s\"", a->core->job, a->core->attempt,
                td_status_message(take_failure));
    give(n, a->core, TD_AE_FAILED, take_failure);
}

static void on_gone(struct td_local_attempt *a) {
    struct td_node *n = TD_CAST(td_node, a->owner);
    td_log_info("attempt ended job=%s attempt=%u", a->core->job, a->core->attempt);
    if (a->shards) td_shards_poke(a->shards);
    give(n, a->core, TD_AE_GONE, TD_OK);
}

static void on_connected(struct td_local_attempt *a) {
    if (a->core->state == TD_AT_STOPPING || a->core->state == TD_AT_KILLING) {
        td_local_attempt_stop(a, a->core->stop_mode, a->core->stop_grace_ms);
    }
}

static void on_status(struct td_local_attempt *a, const Traind__V1__LauncherStatus *status) {
    if (status) {
        td_forward_status(a->forward, status);
    } else {
        td_forward_poke(a->forward);
    }
    if (a->shards) td_shards_poke(a->shards);
}

static void on_again(struct td_local_attempt *a);

static const struct td_local_attempt_events attempt_events = {.on_started = on_started,
                                                              .on_failed = on_failed,
                                                              .on_again = on_again,
                                                              .on_gone = on_gone,
                                                              .on_connected = on_connected,
                                                              .on_status = on_status};

static td_status make_attempt(struct td_node *n, const struct td_assignment *assigned,
                              struct td_local_attempt **out_attempt) {
    return td_local_attempt_create(n->loop, assigned, n->state_dir, &attempt_events, n,
                                   out_attempt);
}

// What flows upward; once the assignment is known for sure.
static td_status make_streams(struct td_node *n, struct td_local_attempt *a) {
    struct td_forward_options o = {.loop = n->loop,
                                   .channel = n->channel,
                                   .dir = a->dir,
                                   .job = a->assigned.job,
                                   .attempt = a->assigned.attempt,
                                   .epoch = a->assigned.epoch,
                                   .first_rank = a->assigned.first_rank,
                                   .n_ranks = a->assigned.n_ranks,
                                   .key = n->key,
                                   .send = forward_send,
                                   .arg = n};
    TD_TRY(td_forward_create(&o, &a->forward));
    if (!a->assigned.stream_store || !n->channel) return TD_OK;
    return td_shards_create(n->loop, n->channel, &a->assigned, a->dir, n->key, &a->shards);
}

// ---- starting one -------------------------------------------------------------------------------
static struct td_local_attempt *local(const struct td_node_attempt *a) {
    return a->shell;
}

static cpu_set_t used_cores(const struct td_node *n) {
    cpu_set_t used;
    CPU_ZERO(&used);
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->state != TD_AT_ENDED && a->shell) td_cores_add(local(a)->cores, &used);
    }
    return used;
}

static td_status launch(struct td_node *n, struct td_local_attempt *a) {
    td_measurer_yield(n->measurer);
    cpu_set_t used = used_cores(n);
    char cores[TD_ATTEMPT_CORES] = "";
    uint32_t per_slot = (uint32_t)(n->inventory.cores / n->inventory.slots);
    uint32_t per_rank = a->assigned.slots / a->assigned.n_ranks * per_slot;
    bool own = per_slot > 0 && td_cores_allocate(&n->cores, &used, a->assigned.n_ranks, per_rank,
                                                 cores, sizeof cores);
    struct td_launch_context c = {.bin_dir = n->bin_dir,
                                  .runtime_dir = n->runtime_dir,
                                  .cores = cores,
                                  .shared_cores = !own,
                                  .orphan_timeout_ns = n->orphan_timeout_ns,
                                  .silent_after_ns = n->silent_after_ns,
                                  .rank_umask = a->assigned.writes_outside ? n->user_umask : 077};
    return td_local_attempt_launch(a, n->inventory.boot_id, &c);
}

static void on_again(struct td_local_attempt *a) {
    td_status failed = launch(TD_CAST(td_node, a->owner), a);
    if (failed) on_failed(a, failed);
}

static void on_fetched(td_status take_status, void *arg) {
    struct td_local_attempt *a = arg;
    struct td_node *n = TD_CAST(td_node, a->owner);
    td_fetch_destroy(td_steal(a->fetch));
    if (!take_status) take_status = launch(n, a);
    if (take_status) on_failed(a, take_status);
}

static td_status prepare(struct td_node *n, struct td_node_attempt *row,
                         const Traind__V1__Assign *m) {
    struct td_assignment assigned;
    TD_TRY(td_assignment_read(m, n->state_dir, &assigned));
    struct td_local_attempt *a;
    TD_TRY(make_attempt(n, &assigned, &a));
    row->shell = a;
    a->core = row;
    a->plan_json = td_strdup(m->plan_json);
    if (!a->plan_json) return td_fail_oom();
    TD_TRY(make_streams(n, a));
    if (n->channel && td_fetch_needed(&a->assigned)) {
        return td_fetch_create(n->loop, n->channel, &a->assigned, on_fetched, a, &a->fetch);
    }
    return launch(n, a);
}

static void start(struct td_node *n, const struct td_node_action *action) {
    td_status failed = prepare(n, action->attempt, action->assign);
    if (!failed) return;
    td_log_warn("attempt not started job=%s attempt=%u why=\"%s\"", action->attempt->job,
                action->attempt->attempt, td_status_message(failed));
    // START is the last action of its input, so the core may be called from here.
    give(n, action->attempt, TD_AE_FAILED, failed);
}

static void abandon(struct td_node *n, struct td_node_attempt *a) {
    (void)n;
    if (a->shell) td_local_attempt_abandon(local(a));
}

static void remove_attempt(struct td_node_attempt *a) {
    struct td_local_attempt *l = a->shell;
    a->shell = NULL;
    if (!l) return;
    td_local_attempt_remove_files(l);
    td_local_attempt_destroy(l);
}

// ---- messages upward ----------------------------------------------------------------------------
static void send_register(struct td_node *n) {
    TD_AUTO(td_arena) *arena = NULL;
    td_status s = td_arena_create(4 << 20, &arena);
    size_t n_attempts = 0, cap = 0;
    while (td_node_core_attempt(n->core, cap))
        cap++;
    Traind__V1__AttemptHeld **held = s ? NULL : td_arena_array(arena, cap + 1, sizeof *held);
    Traind__V1__Register r = TRAIND__V1__REGISTER__INIT;
    struct td_inventory *inv = &n->inventory;
    for (size_t i = 0; held && i < cap; i++) {
        struct td_node_attempt *a = td_node_core_attempt(n->core, i);
        Traind__V1__AttemptHeld *h = td_arena_alloc(arena, sizeof *h);
        Traind__V1__AttemptId *id = td_arena_alloc(arena, sizeof *id);
        if (!h || !id) continue;
        traind__v1__attempt_held__init(h);
        traind__v1__attempt_id__init(id);
        id->job = a->job;
        id->attempt = a->attempt;
        id->epoch = a->epoch;
        h->id = id;
        h->alive = a->state != TD_AT_ENDED;
        h->launcher_major = a->major ? a->major : TD_LAUNCHER_MAJOR;
        h->build = a->build;
        held[n_attempts++] = h;
    }
    char *accelerators[TD_INVENTORY_ACCELERATORS];
    for (size_t i = 0; i < inv->n_accelerators; i++)
        accelerators[i] = inv->accelerator[i];
    r.node_id = inv->node_id;
    r.boot_id = inv->boot_id;
    r.name = inv->name;
    r.version = n->version;
    r.launcher_major = TD_LAUNCHER_MAJOR;
    r.cores = (uint32_t)inv->cores;
    r.slots = (uint32_t)inv->slots;
    r.memory_bytes = inv->memory_bytes;
    (void)td_plugin_files_look(&n->plugins, n->plugin_dir);
    r.plugins = n->plugins.digest;
    r.cpu_level = (char *)(uintptr_t)td_cpu_level_name(inv->cpu_level);
    r.cpu_level_held = (char *)(uintptr_t)td_cpu_level_name(inv->cpu_level_held);
    r.n_accelerators = inv->n_accelerators;
    r.accelerators = accelerators;
    r.n_attempts = n_attempts;
    r.attempts = held;
    r.embedded = n->transport->ops->embedded;
    r.keyed = r.batches = true;
    r.fresh = !n->known;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &r;
    // Out of memory for the list would make the coordinator think that attempts are gone.
    bool sent = !s && held && n->transport->ops->send(n->transport, &m) != TD_TRANSPORT_REFUSED;
    td_status_free(s);
    if (!sent) n->transport->ops->reset(n->transport);
}

static void send_heartbeat(struct td_node *n, uint32_t slots_used) {
    Traind__V1__Heartbeat h = TRAIND__V1__HEARTBEAT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    h.slots_used = slots_used;
    (void)td_plugin_files_look(&n->plugins, n->plugin_dir);
    h.plugins = n->plugins.digest;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
    m.heartbeat = &h;
    (void)send_message(n, &m);
}

static void send_refused(struct td_node *n, const Traind__V1__AttemptId *id, td_status borrow_why) {
    char cls[32], message[2048], job[TD_NODE_JOB_MAX];
    snprintf(cls, sizeof cls, "%s", td_class_name(td_status_class(borrow_why)));
    (void)td_fit(message, sizeof message, "%s", td_status_message(borrow_why));
    snprintf(job, sizeof job, "%s", id->job);
    Traind__V1__AttemptId copy = *id;
    copy.job = job;
    Traind__V1__AttemptRefused r = TRAIND__V1__ATTEMPT_REFUSED__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    r.id = &copy;
    r.code = (uint32_t)td_status_code(borrow_why);
    r.class_ = cls;
    r.message = message;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REFUSED;
    m.refused = &r;
    (void)send_message(n, &m);
}

// What a plan lacked is measured when the node is idle.
static void want_rates(struct td_node *n, const char *result_json) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    td_status s = td_arena_create(8 << 20, &arena);
    if (!s) s = td_json_parse(arena, result_json, strlen(result_json), &v);
    int64_t threads = s ? 0 : td_json_int(td_json_get(v, "rates_wanted"), 0);
    td_status_free(s);
    if (threads > 0 && threads <= INT32_MAX) td_measurer_want(n->measurer, (int32_t)threads);
}

static bool is_idle(void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->state != TD_AT_ENDED) return false;
    }
    return true;
}

static void on_planned(const char *request, td_status take_status, const char *result_json,
                       void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    TD_AUTO_FREE char *name = td_strdup(request), *json = td_strdup(result_json);
    char cls[32], message[4096];
    snprintf(cls, sizeof cls, "%s", td_class_name(td_status_class(take_status)));
    (void)td_fit(message, sizeof message, "%s", take_status ? td_status_message(take_status) : "");
    Traind__V1__PlanResult r = TRAIND__V1__PLAN_RESULT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    r.request = name;
    r.result_json = json;
    r.code = (uint32_t)td_status_code(take_status);
    r.class_ = cls;
    r.message = message;
    (void)td_plugin_files_look(&n->plugins, n->plugin_dir);
    r.plugins = n->plugins.digest;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = &r;
    td_status_free(take_status);
    if (name && json) (void)send_message(n, &m);
    if (json && json[0]) want_rates(n, json);
}

static void plan(struct td_node *n, const Traind__V1__PlanRequest *request) {
    td_measurer_yield(n->measurer);
    td_status failed =
        td_planner_submit(n->planner, request->request, request->plan_json, request->dump_graph);
    if (failed) on_planned(request->request, failed, "", n);
}

// ---- actions ------------------------------------------------------------------------------------
static void carry_out(struct td_node *n, const struct td_node_action *action) {
    struct td_local_attempt *a = action->attempt ? local(action->attempt) : NULL;
    switch (action->kind) {
    case TD_NA_REGISTER:
        send_register(n);
        return;
    case TD_NA_HEARTBEAT:
        send_heartbeat(n, action->n);
        return;
    case TD_NA_START:
        start(n, action);
        return;
    case TD_NA_ABANDON:
        abandon(n, action->attempt);
        return;
    case TD_NA_REFUSE:
        send_refused(n, action->id, action->status);
        return;
    case TD_NA_STOP:
        td_local_attempt_stop(a, action->attempt->stop_mode, action->attempt->stop_grace_ms);
        return;
    case TD_NA_KILL:
        td_local_attempt_kill(a);
        return;
    case TD_NA_SAVE:
        td_local_attempt_save(a);
        return;
    case TD_NA_ADOPT:
        td_log_info("attempt adopted job=%s attempt=%u state=%s", action->attempt->job,
                    action->attempt->attempt, td_attempt_state_name(action->attempt->state));
        td_local_attempt_committed(a, td_forward_events_of(action->cursor));
        td_forward_adopt(a->forward, action->cursor);
        if (a->shards) td_shards_up(a->shards, true);
        return;
    case TD_NA_ACK:
        td_forward_ack(a->forward, action->ack);
        return;
    case TD_NA_FINAL:
        td_forward_final(a->forward);
        return;
    case TD_NA_REMOVE:
        remove_attempt(action->attempt);
        td_reconciler_poke(n->reconciler);
        return;
    case TD_NA_PLAN:
        plan(n, action->plan);
        return;
    case TD_NA_RECONCILE:
        td_reconciler_submit(n->reconciler, action->reconcile);
        return;
    }
}

// ---- session ------------------------------------------------------------------------------------
static void on_up(void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    td_node_core_up(n->core);
    after_input(n);
}

static void on_message(const Traind__V1__CoordinatorMessage *m, void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) {
        td_log_info("registered node=%s transport=%s", n->inventory.node_id,
                    n->transport->ops->name);
        n->down_logged = false;
        snprintf(n->key, sizeof n->key, "%s", m->registered->key);
        n->known = true;
    }
    uint64_t stale = td_node_core_stale(n->core);
    td_node_core_message(n->core, td_mono_now(), m);
    if (td_node_core_stale(n->core) != stale) {
        td_log_debug("stale message dropped incarnation=%" PRIu64 " dropped=%" PRIu64,
                     m->incarnation, stale + 1);
    }
    after_input(n);
}

static void on_down(const char *why, void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    if (n->closing) return;
    if (!n->down_logged) td_log_warn("no coordinator why=\"%s\", ranks go on, trying again", why);
    n->down_logged = true;
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (!a->shell) continue;
        if (local(a)->forward) td_forward_down(local(a)->forward);
        if (local(a)->shards) td_shards_up(local(a)->shards, false);
    }
    td_reconciler_clear(n->reconciler);
    td_node_core_down(n->core);
    after_input(n);
}

static void on_writable(void *arg) {
    struct td_node *n = TD_CAST(td_node, arg);
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->shell && local(a)->forward) td_forward_poke(local(a)->forward);
    }
    td_reconciler_poke(n->reconciler);
}

static const struct td_transport_events transport_events = {
    .on_up = on_up, .on_message = on_message, .on_down = on_down, .on_writable = on_writable};

// ---- what is here at start ----------------------------------------------------------------------
static td_status recover(struct td_node *n, const char *job, uint32_t attempt) {
    struct td_assignment assigned = {.attempt = attempt};
    snprintf(assigned.job, sizeof assigned.job, "%s", job);
    TD_AUTO(td_local_attempt) *a = NULL;
    TD_TRY(make_attempt(n, &assigned, &a));
    td_status s = td_local_attempt_recover(a, n->inventory.boot_id, n->runtime_dir);
    if (td_status_code(s) == TD_NOT_FOUND) { // a start that never came to a launcher
        td_status_free(s);
        td_local_attempt_remove_files(a);
        return TD_OK;
    }
    TD_TRY(s);
    TD_TRY(make_streams(n, a));
    struct td_node_attempt row = {.attempt = attempt,
                                  .epoch = a->assigned.epoch,
                                  .state = a->ended ? TD_AT_ENDED : TD_AT_RUNNING,
                                  .slots = a->assigned.slots,
                                  .n_ranks = a->assigned.n_ranks,
                                  .major = a->major};
    snprintf(row.job, sizeof row.job, "%s", job);
    snprintf(row.build, sizeof row.build, "%s", a->build);
    TD_TRY(td_node_core_found(n->core, &row, &a->core));
    td_log_info("attempt found job=%s attempt=%u state=%s build=%s", job, attempt,
                td_attempt_state_name(row.state), row.build);
    a->core->shell = a;
    td_steal(a);
    return TD_OK;
}

static void scan_job(struct td_node *n, const char *job) {
    char path[TD_FS_PATH_BYTES];
    snprintf(path, sizeof path, "%s/attempts/%s", n->state_dir, job);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned attempt;
        int end = 0;
        if (sscanf(e->d_name, "a%9u%n", &attempt, &end) != 1 || e->d_name[end]) continue;
        td_status failed = recover(n, job, attempt);
        if (!failed) continue;
        td_log_error("attempt left as it is dir=%s/%s why=\"%s\", continuing", path, e->d_name,
                     td_status_message(failed));
        td_status_free(failed);
    }
    if (dir) closedir(dir);
}

static td_status scan(struct td_node *n) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/attempts", n->state_dir));
    TD_TRY(td_fs_mkdirs(path, 0700));
    DIR *dir = opendir(path);
    if (!dir) return td_fs_fail("read directory", path);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= TD_NODE_JOB_MAX) continue;
        scan_job(n, e->d_name);
    }
    closedir(dir);
    return TD_OK;
}

// ---- life ---------------------------------------------------------------------------------------
static td_status copy(char *out, size_t out_bytes, const char *from, const char *what) {
    if (snprintf(out, out_bytes, "%s", from) < (int)out_bytes) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the path of the %s is too long", what);
}

static td_status open_node(struct td_node *n, const struct td_node_options *o) {
    char scratch[TD_FS_PATH_BYTES], cache[TD_FS_PATH_BYTES], checkpoints[TD_FS_PATH_BYTES];
    TD_TRY(copy(n->state_dir, sizeof n->state_dir, o->state_dir, "state directory"));
    TD_TRY(copy(n->runtime_dir, sizeof n->runtime_dir, o->runtime_dir, "runtime directory"));
    TD_TRY(copy(n->bin_dir, sizeof n->bin_dir, o->bin_dir, "binaries"));
    TD_TRY(copy(n->version, sizeof n->version, o->version, "version"));
    TD_TRY(td_fs_path(n->plugin_dir, "%s/../lib/traind", n->bin_dir));
    TD_TRY(td_inventory_read(n->state_dir, n->bin_dir, o->name, o->slots, &n->inventory));
    td_inventory_core_ids(n->inventory.cores, &n->cores);
    TD_TRY(td_node_core_create((uint32_t)n->inventory.slots, &n->core));
    TD_TRY(td_loop_timer_create(n->loop, on_timer, n, &n->timer));
    TD_TRY(td_fs_path(scratch, "%s/scratch", n->state_dir));
    TD_TRY(td_fs_remove_tree(scratch)); // left by a daemon that was killed
    TD_TRY(td_fs_mkdirs(scratch, 0700));
    TD_TRY(td_fs_path(cache, "%s/cache", n->state_dir));
    TD_TRY(td_fs_mkdirs(cache, 0700));
    TD_TRY(td_fs_path(checkpoints, "%s/checkpoints", n->state_dir));
    TD_TRY(td_fs_mkdirs(checkpoints, 0700));
    TD_TRY(td_measurer_create(n->loop, n->bin_dir, cache, o->measure_after_ns, is_idle, n,
                              &n->measurer));
    td_measurer_want(n->measurer, (int32_t)(n->inventory.cores / n->inventory.slots));
    const struct td_planner_options planning = {.bin_dir = n->bin_dir,
                                                .scratch_dir = scratch,
                                                .cache_dir = cache,
                                                .idle = is_idle,
                                                .fn = on_planned,
                                                .arg = n};
    TD_TRY(td_planner_create(n->loop, &planning, &n->planner));
    const struct td_reconciler_options reconciling = {.loop = n->loop,
                                                      .state_dir = n->state_dir,
                                                      .core = n->core,
                                                      .send = forward_send,
                                                      .arg = n};
    TD_TRY(td_reconciler_create(&reconciling, &n->reconciler));
    TD_TRY(scan(n));
    n->transport->ops->start(n->transport, &transport_events, n);
    return TD_OK;
}

td_status td_node_create(struct td_loop *loop, const struct td_node_options *options,
                         struct td_node **out_node) {
    TD_AUTO(td_node) *n = td_calloc(1, sizeof *n);
    if (!n) {
        options->take_transport->ops->destroy(options->take_transport);
        return td_fail_oom();
    }
    n->magic = td_node_magic;
    n->loop = loop;
    n->transport = options->take_transport;
    n->channel = options->channel;
    n->user_umask = options->user_umask;
    n->orphan_timeout_ns =
        options->orphan_timeout_ns > 0 ? options->orphan_timeout_ns : 3600 * TD_NS_PER_S;
    n->silent_after_ns = options->silent_after_ns > 0 ? options->silent_after_ns : 30 * TD_NS_PER_S;
    TD_TRY(open_node(n, options));
    *out_node = td_steal(n);
    return TD_OK;
}

void td_node_destroy(struct td_node *n) {
    if (!n) return;
    n->closing = true;
    struct td_node_attempt *a;
    for (size_t i = 0; n->core && (a = td_node_core_attempt(n->core, i)); i++)
        td_local_attempt_destroy(td_steal(a->shell));
    td_planner_destroy(n->planner);
    td_measurer_destroy(n->measurer);
    td_reconciler_destroy(n->reconciler);
    if (n->transport) n->transport->ops->destroy(n->transport);
    td_loop_timer_destroy(n->timer);
    td_node_core_destroy(n->core);
    n->magic = 0;
    free(n);
}
