// The shell: owns core, store, gate, disk threads and server, and moves what one answers to the
// others. No policy; see core.h for that. Order of creation is the order of need, and destroy goes
// backwards; it accepts what was built half.

#include "daemon/coordinator/coordinator.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/actions.h"
#include "daemon/coordinator/api/api.h"
#include "daemon/coordinator/shell/access/access.h"
#include "daemon/coordinator/shell/databases/check.h"
#include "daemon/coordinator/shell/databases/metrics_db.h"
#include "daemon/coordinator/shell/databases/salvage.h"
#include "daemon/coordinator/shell/disk/logs.h"
#include "daemon/coordinator/shell/disk/look.h"
#include "daemon/coordinator/shell/disk/sweep.h"
#include "daemon/coordinator/shell/shell.h"
#include "daemon/coordinator/shell/watch.h"
#include "lib/base/log.h"
#include "lib/base/rng.h"
#include "lib/rpc/health.h"
#include "lib/rpc/reflection.h"
#include "lib/tls/revoked.h"

static const int64_t last_commit_ns = 5 * TD_NS_PER_S; // what is not on disk then is given up
static const int64_t end_calls_ns = 2 * TD_NS_PER_S;   // what the server's drain may take

// ---- what the parts report ----------------------------------------------------------------------
static void on_timer(void *arg) {
    (void)arg; // there is a turn: its end does the rest
}

static void arm_timer(struct td_coordinator *c) {
    struct td_mono wake = td_core_wake(c->core);
    if (c->records && c->records_due.ns < wake.ns) wake = c->records_due;
    wake.ns = TD_MIN(wake.ns, td_sessions_wake(c).ns);
    if (wake.ns == INT64_MAX) {
        if (td_loop_timer_is_armed(c->timer)) td_loop_timer_disarm(c->timer);
    } else if (wake.ns != c->armed.ns || !td_loop_timer_is_armed(c->timer)) {
        td_loop_timer_arm(c->timer, wake.ns - td_mono_now().ns);
    }
    c->armed = wake;
}

static void hand_over_due(struct td_coordinator *c, struct td_mono now) {
    if (td_gate_wants(c->gate, c->ticket) || now.ns >= c->records_due.ns) td_shell_hand_over(c);
}

// The gate comes between two hand-overs: the writer works while answers leave, and what they bring
// about (a call that ends) is handed over, too.
static void on_turn(void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    struct td_now now = td_shell_now();
    if (td_core_wake(c->core).ns <= now.mono.ns) {
        td_core_tick(c->core, now);
        td_shell_after(c);
    }
    hand_over_due(c, now.mono);
    td_gate_open(c->gate);
    hand_over_due(c, now.mono);
    td_sessions_flush(c, now.mono);
    arm_timer(c);
}

static bool is_healthy(const struct td_coordinator *c) {
    return !c->failing && !c->n_damages;
}

static void show_health(struct td_coordinator *c) {
    if (!c->server || c->draining || c->closing) return;
    td_rpc_server_set_serving(c->server, is_healthy(c));
}

// While the disk refuses, what would stop attempts waits in the gate: a drain waits less for it.
static void limit_drain(struct td_coordinator *c) {
    if (!c->draining || c->ending || c->closing) return;
    int64_t left_ns = c->drain_by.ns - td_mono_now().ns;
    td_loop_timer_arm(c->drain_timer, c->stuck ? TD_MIN(left_ns, last_commit_ns) : left_ns);
}

static void on_committed(uint64_t ticket, void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    td_gate_committed(c->gate, ticket);
    bool failing = td_databases_failing(c->store);
    td_databases_why(c->store, c->why);
    bool stuck = td_databases_state_failing(c->store);
    td_gate_set_stuck(c->gate, stuck);
    if (stuck != c->stuck) {
        c->stuck = stuck;
        limit_drain(c);
    }
    if (failing == c->failing) return;
    c->failing = failing;
    show_health(c);
}

static void on_damage(const char *text, void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    td_log_error("a check found damage: %s", text);
    char *copy = c->n_damages < TD_COUNTOF(c->damages) ? td_strdup(text) : NULL;
    if (copy) c->damages[c->n_damages++] = copy;
    show_health(c);
}

static void on_points(const struct td_points *points, void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    td_core_points_committed(c->core, td_shell_now(), points->job, points->attempt, points->rank,
                             points->offset);
    td_shell_after(c);
}

static void on_forgotten(const char *job, void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    td_core_forgotten(c->core, td_shell_now(), job, true);
    td_shell_after(c);
}

// ---- loading ------------------------------------------------------------------------------------
static td_status load_row(enum td_record_kind kind, const char *key, const char *body, void *arg) {
    struct td_coordinator *c = arg;
    return td_core_load(c->core, kind, key, body);
}

static void load_offset(const char *job, uint32_t attempt, uint32_t rank, uint64_t offset,
                        void *arg) {
    struct td_coordinator *c = arg;
    td_core_load_offset(c->core, job, attempt, rank, TRAIND__V1__SEGMENT__KIND__METRICS, offset);
}

static void load_name(const char *job, uint32_t attempt, uint32_t rank, uint32_t number,
                      const char *name, void *arg) {
    struct td_coordinator *c = arg;
    td_core_load_name(c->core, job, attempt, rank, number, name);
}

struct last_of {
    struct td_coordinator *c;
    const char *job;
};

static void load_last(struct td_metric_last *m, void *arg) {
    struct last_of *l = arg;
    td_core_load_metric(l->c->core, l->job, m);
}

static td_status load_metrics(struct td_coordinator *c) {
    const struct td_cursor_loader cursors = {load_offset, load_name, c};
    TD_TRY(td_databases_load_cursors(c->store, &cursors));
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        before = j->seq;
        struct last_of l = {c, j->id};
        if (!td_job_state_ended(j->state)) {
            TD_TRY(td_databases_load_last(c->store, j->id, load_last, &l));
        }
    }
    return TD_OK;
}

// Of all attempts: their points are asked for again from the first byte.
static void forget_offsets(struct td_coordinator *c) {
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        before = j->seq;
        for (uint32_t i = 1; i <= j->n_attempts; i++) {
            for (uint32_t r = 0; r < td_job_attempt(j, i)->n_ranks; r++) {
                load_offset(j->id, i, r, 0, c);
            }
        }
    }
}

static bool holds_jobs(const struct td_coordinator *c, const char *name) {
    char path[TD_SHELL_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", c->state_dir, name);
    DIR *dir = opendir(path);
    bool any = false;
    for (struct dirent *e; dir && !any && (e = readdir(dir));) {
        any = strncmp(e->d_name, "j-", 2) == 0;
    }
    if (dir) closedir(dir);
    return any;
}

static void warn_of_lost_state(const struct td_coordinator *c) {
    bool checkpoints = holds_jobs(c, "checkpoints"), logs = holds_jobs(c, "logs");
    if (td_core_job_before(c->core, UINT64_MAX) || !(checkpoints || logs)) return;
    td_log_warn("state.db knows no job, but there are %s%s%s of some in %s: if state.db was lost, "
                "stop traind and put it back together with its -wal file; without it, ckpt_path of "
                "a new job goes on from a checkpoint, continuing",
                checkpoints ? "checkpoints" : "", checkpoints && logs ? " and " : "",
                logs ? "logs" : "", c->state_dir);
}

static td_status name_salvage(const struct td_coordinator *c, td_status s) {
    s = td_status_context(s,
                          "state directory '%s' is damaged; `traind --salvage` starts with what "
                          "is readable and lists what is not",
                          c->state_dir);
    return td_status_with_reason(s, "STATE_DAMAGED");
}

static td_status load(struct td_coordinator *c, const struct td_core_options *core, bool salvage) {
    td_status failed = td_access_load(c, salvage); // first: a salvage ends with a commit
    if (!failed) {
        failed = salvage ? td_salvage_load(c->store, core, c->core, &c->ticket)
                         : td_databases_load(c->store, load_row, c);
    }
    enum td_code code = td_status_code(failed);
    if (!salvage && (code == TD_DATA_LOSS || code == TD_INVALID_ARGUMENT)) {
        return name_salvage(c, failed);
    }
    TD_TRY(failed);
    if (c->ticket) td_gate_issued(c->gate, c->ticket);
    failed = load_metrics(c);
    if (td_status_code(failed) == TD_DATA_LOSS) {
        failed = td_databases_renew_metrics(c->store, failed);
        if (!failed) forget_offsets(c);
    }
    TD_TRY(failed);
    uint64_t before = UINT64_MAX;
    const struct td_job *j;
    while ((j = td_core_job_before(c->core, before))) {
        before = j->seq;
        td_logs_load(c->logs, j);
    }
    warn_of_lost_state(c);
    return TD_OK;
}

// ---- life ---------------------------------------------------------------------------------------
static td_status copy_options(struct td_coordinator *c, const struct td_coordinator_options *o) {
    const int64_t day_ns = 24 * 3600 * TD_NS_PER_S;
    c->join_token_ns = o->join_token_ns ? o->join_token_ns : 900 * TD_NS_PER_S;
    c->node_certificate_ns = o->node_certificate_ns ? o->node_certificate_ns : day_ns;
    c->renew_grace_ns = o->renew_grace_ns ? o->renew_grace_ns : 7 * day_ns;
    c->state_dir = td_strdup(o->state_dir);
    c->token = td_strdup(o->token);
    c->version = td_strdup(o->version ? o->version : "");
    c->role = td_strdup(o->role ? o->role : "coordinator");
    return c->state_dir && c->token && c->version && c->role ? TD_OK : td_fail_oom();
}

static td_status make_parts(struct td_coordinator *c, const struct td_coordinator_options *o) {
    const struct td_databases_options store = {.dir = c->state_dir,
                                               .on_committed = on_committed,
                                               .on_points = on_points,
                                               .on_forgotten = on_forgotten,
                                               .salvage = o->salvage,
                                               .arg = c};
    td_status failed = td_databases_open(c->loop, &store, &c->store);
    if (td_status_code(failed) == TD_DATA_LOSS && !o->salvage) return name_salvage(c, failed);
    TD_TRY_CTX(failed, "state directory '%s'", c->state_dir);
    TD_TRY(td_held_path_take(c->state_dir, &c->home));
    char checkpoints[TD_SHELL_PATH_MAX];
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", c->state_dir);
    struct td_core_options core = {.incarnation = td_databases_incarnation(c->store),
                                   .checkpoint_dir = checkpoints,
                                   .heartbeat_ns = o->heartbeat_ns,
                                   .lease_ns = o->lease_ns,
                                   .lost_after_ns = o->lost_after_ns,
                                   .stop_grace_ns = o->stop_grace_ns,
                                   .retention_jobs = o->retention_jobs,
                                   .retention_ns = o->retention_ns};
    td_random_bytes(core.secret, sizeof core.secret);
    TD_TRY(td_core_create(&core, &c->core));
    TD_TRY(td_gate_create(&c->gate));
    TD_TRY(td_checker_create(c->loop, c->state_dir, o->check_after_ms, on_damage, c, &c->checker));
    TD_TRY(td_disk_create(c->loop, "disk", &c->disk));
    TD_TRY(td_disk_create(c->loop, "reads", &c->reads));
    TD_TRY(td_loop_timer_create(c->loop, on_timer, c, &c->timer));
    TD_TRY(td_loop_turn_create(c->loop, on_turn, c, &c->turn));
    TD_TRY(td_access_create(c, &c->access));
    TD_TRY(td_watchers_create(c, &c->watchers));
    TD_TRY(td_logs_create(c, &c->logs));
    TD_TRY(td_readers_create(c, &c->readers));
    TD_TRY(td_sessions_create(&c->sessions));
    TD_TRY(td_planners_create(&c->planners));
    return load(c, &core, o->salvage);
}

static void on_notice(const char *text, void *ctx) {
    (void)ctx;
    td_log_warn("%s, continuing", text);
}

static td_status serve(struct td_coordinator *c, const struct td_coordinator_options *o) {
    const struct td_tls_guests guests = td_access_guests(c->access);
    const struct td_rpc_server_options server = {
        .listen = o->listen,
        .authorize = td_access_authorize,
        .authorize_peer = td_access_authorize_peer,
        .on_answered = td_access_answered,
        .enter = td_access_enter,
        .leave = td_access_leave,
        .ctx = c,
        .max_connections = o->max_connections,
        .max_per_source = o->max_per_source,
        .max_strangers = o->max_strangers,
        .max_own_connections = TD_SHELL_NODE_CALLS,
        .first_request_ns = o->first_request_ns,
        .tls = o->tls,
        .guests = &guests,
        .handshake_ns = o->handshake_ns,
        .idle_ns = o->idle_ns,
        .check_ns = o->check_ns,
        .on_notice = on_notice,
    };
    TD_TRY(td_rpc_server_create(c->loop, &server, &c->server));
    TD_TRY(td_rpc_health_add(c->server));
    TD_TRY(td_rpc_reflection_add(c->server));
    TD_TRY(td_api_jobs_add(c));
    TD_TRY(td_api_nodes_add(c));
    TD_TRY(td_api_shards_add(c));
    TD_TRY(td_api_metrics_add(c));
    TD_TRY(td_api_logs_add(c));
    TD_TRY(td_api_checkpoints_add(c));
    TD_TRY(td_api_admin_add(c));
    TD_TRY(td_api_tokens_add(c));
    TD_TRY(td_api_join_add(c));
    TD_TRY(td_rpc_server_start(c->server));
    td_rpc_server_set_serving(c->server, is_healthy(c));
    return TD_OK;
}

static void finish_drain(struct td_coordinator *c);

static const struct td_shell_roof roof = {
    .act = td_coordinator_act,
    .stopped = finish_drain,
    .log_grew = td_readers_wake,
    .changed = td_access_note_change,
    .end_uploads = td_uploads_end,
};

td_status td_coordinator_create(struct td_loop *loop, const struct td_coordinator_options *options,
                                struct td_coordinator **out_coordinator) {
    TD_AUTO(td_coordinator) *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->magic = td_coordinator_magic;
    c->loop = loop;
    c->roof = &roof;
    c->started = td_mono_now();
    TD_TRY(copy_options(c, options));
    TD_TRY(make_parts(c, options));
    td_core_start(c->core, td_shell_now());
    td_shell_after(c);
    td_sweep_all(c);
    td_look_all(c);
    TD_TRY(serve(c, options));
    *out_coordinator = td_steal(c);
    return TD_OK;
}

// Calls that end and disk jobs that finish meanwhile still feed the core.
void td_coordinator_destroy(struct td_coordinator *c) {
    if (!c) return;
    c->closing = true;
    td_loop_turn_destroy(c->turn);
    td_loop_timer_destroy(c->timer);
    td_loop_timer_destroy(c->drain_timer);
    td_rpc_server_destroy(c->server);
    td_access_destroy(c->access);
    td_disk_destroy(c->reads);
    td_disk_destroy(c->disk);
    td_checker_destroy(c->checker);
    if (c->store) td_shell_hand_over(c);
    td_databases_close(c->store);
    td_gate_destroy(c->gate);
    td_watchers_destroy(c->watchers);
    td_readers_destroy(c->readers);
    td_logs_destroy(c->logs);
    td_planners_destroy(c->planners);
    td_sessions_destroy(c->sessions);
    td_core_destroy(c->core);
    for (size_t i = 0; i < c->n_damages; i++) {
        free(c->damages[i]);
    }
    free(c->state_dir);
    free(c->token);
    free(c->version);
    free(c->role);
    c->magic = 0;
    free(c);
}

const char *td_coordinator_address(const struct td_coordinator *c) {
    return td_rpc_server_address(c->server);
}

// ---- drain --------------------------------------------------------------------------------------
static void drained(void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    c->on_drained(c->on_drained_arg);
}

static void end_calls(struct td_coordinator *c) {
    if (c->ended) return;
    c->ended = true;
    td_loop_timer_disarm(c->drain_timer);
    td_watchers_end_all(c->watchers);
    td_readers_end_all(c);
    td_sessions_end_all(c);
    td_rpc_server_drain(c->server, end_calls_ns, drained, c);
}

static void on_all_saved(void *take_arg, enum td_gate_pass pass) {
    if (pass) end_calls(take_arg);
}

// What is said goes through the gate, so that the last replies leave before the calls are ended.
static void finish_drain(struct td_coordinator *c) {
    c->ending = true;
    td_loop_timer_arm(c->drain_timer, last_commit_ns);
    td_gate_put(c->gate, on_all_saved, c);
}

static void on_drain_timer(void *arg) {
    struct td_coordinator *c = TD_CAST(td_coordinator, arg);
    uint32_t n = c->ending ? 0 : td_core_n_stopping(c->core);
    if (n) {
        td_log_warn("attempts have not stopped in time, ending without them, continuing n=%u", n);
    }
    if (!c->ending && !c->stuck) {
        finish_drain(c);
        return;
    }
    c->ending = true;
    td_log_warn("the last changes are not on disk%s (%s), ending without them, continuing",
                c->stuck ? "" : " yet", c->why[0] ? c->why : "state.db");
    end_calls(c);
}

void td_coordinator_drain(struct td_coordinator *c, int flags, int64_t timeout_ns,
                          void (*on_drained_fn)(void *arg), void *arg) {
    TD_CHECK(!c->draining);
    c->draining = true;
    c->on_drained = on_drained_fn;
    c->on_drained_arg = arg;
    td_status s = td_loop_timer_create(c->loop, on_drain_timer, c, &c->drain_timer);
    TD_CHECK(!s);
    c->drain_by = td_mono_add(td_mono_now(), timeout_ns);
    limit_drain(c);
    td_rpc_server_set_serving(c->server, false);
    td_core_drain(c->core, td_shell_now(), (flags & TD_DRAIN_STOP_ATTEMPTS) != 0);
    td_shell_after(c);
}
