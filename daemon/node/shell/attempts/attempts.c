// See the header.

#include "daemon/node/shell/attempts/attempts.h"

#include <stdio.h>

#include "daemon/node/core/cores.h"
#include "daemon/node/core/gpu_parts.h"
#include "daemon/node/shell/shards/fetch.h"
#include "daemon/node/shell/home.h"
#include "daemon/node/shell/assignment/given_dir.h"
#include "daemon/node/shell/attempts/rendezvous.h"
#include "daemon/node/shell/shards/shards.h"
#include "lib/base/log.h"
#include "lib/base/files/path_rules.h"

// ---- what they report ---------------------------------------------------------------------------
static void on_started(struct td_local_attempt *a) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    a->core->major = a->major;
    snprintf(a->core->build, sizeof a->core->build, "%s", a->build);
    td_log_info("attempt started job=%s attempt=%u ranks=%u cores=%s", a->core->job,
                a->core->attempt, a->core->n_ranks, a->cores[0] ? a->cores : "any");
    if (td_node_core_registered(n->core)) {
        td_forward_adopt(a->forward, NULL);
        if (a->shards) td_shards_up(a->shards, true);
    }
    td_node_daemon_give(n, a->core, TD_AE_STARTED, TD_OK);
    td_reconciler_poke(n->reconciler);
}

static void on_failed(struct td_local_attempt *a, td_status take_failure) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    td_log_warn("attempt not started job=%s attempt=%u why=\"%s\"", a->core->job, a->core->attempt,
                td_status_message(take_failure));
    td_node_daemon_give(n, a->core, TD_AE_FAILED, take_failure);
}

static void on_gone(struct td_local_attempt *a) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    td_log_info("attempt ended job=%s attempt=%u", a->core->job, a->core->attempt);
    if (a->shards) td_shards_poke(a->shards);
    if (a->assigned.devices[0]) td_gpus_look(n->gpus); // they are free once the driver says so
    td_node_daemon_give(n, a->core, TD_AE_GONE, TD_OK);
}

static void on_connected(struct td_local_attempt *a) {
    if (a->core->state == TD_AT_STOPPING || a->core->state == TD_AT_KILLING) {
        td_local_attempt_stop(a, a->core->stop_mode, a->core->stop_grace_ms);
    }
    if (a->save_waits) td_local_attempt_save(a);
}

static void on_status(struct td_local_attempt *a, const Traind__V1__LauncherStatus *status) {
    if (status) {
        td_forward_status(a->forward, status);
    } else {
        td_forward_poke(a->forward);
    }
    if (a->shards) td_shards_poke(a->shards);
}

// ---- starting one -------------------------------------------------------------------------------
static cpu_set_t used_cores(const struct td_node_daemon *n) {
    cpu_set_t used;
    CPU_ZERO(&used);
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->state != TD_AT_ENDED && a->shell) td_cores_add(td_node_local(a)->cores, &used);
    }
    return used;
}

static mode_t rank_umask(const struct td_node_daemon *n, const struct td_local_attempt *a) {
    return a->assigned.writes_outside ? n->user_umask : 077;
}

static td_status launch(struct td_node_daemon *n, struct td_local_attempt *a) {
    td_measurer_yield(n->measurer);
    cpu_set_t used = used_cores(n);
    char cores[TD_ATTEMPT_CORES] = "";
    uint32_t per_slot = (uint32_t)(n->inventory.cores / n->inventory.slots);
    uint32_t per_rank = a->assigned.slots / a->assigned.n_ranks * per_slot;
    uint64_t near[TD_LAUNCH_RANKS_MAX];
    char gpus[TD_LAUNCH_RANKS_MAX * TD_DEVICE_UUID];
    const struct td_assignment *s = &a->assigned;
    const Traind__V1__GpuList *list = td_gpus_list(n->gpus);
    TD_TRY(td_gpu_parts_name(list, s->devices, s->gpu_indexes, gpus, sizeof gpus));
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        near[i] = td_gpu_parts_near(list, s->devices, s->n_ranks, i);
    }
    bool own = per_slot > 0 && td_cores_allocate(&n->topology, &used, s->n_ranks, per_rank, near,
                                                 cores, sizeof cores);
    TD_AUTO_BUF rules;
    td_buf_init(&rules, TD_PATH_RULES_BYTES);
    TD_TRY(td_node_daemon_path_rules(n, a->assigned.job, a->assigned.trusted, &rules));
    struct td_launch_context c = {.bin_dir = n->bin_dir,
                                  .runtime_dir = n->runtime_dir,
                                  .plugin_dirs = n->plugin_dirs,
                                  .path_rules = td_buf_cstr(&rules),
                                  .cores = cores,
                                  .gpus = gpus,
                                  .shared_cores = !own,
                                  .ports = n->ports,
                                  .orphan_timeout_ns = n->orphan_timeout_ns,
                                  .silent_after_ns = n->silent_after_ns,
                                  .gpu_idle_ns = n->gpu_idle_ns,
                                  .rank_umask = rank_umask(n, a)};
    return td_local_attempt_launch(a, n->inventory.boot_id, &c);
}

static void on_again(struct td_local_attempt *a) {
    td_status failed = launch(TD_CAST(td_node_daemon, a->owner), a);
    if (failed) on_failed(a, failed);
}

static const struct td_local_attempt_events attempt_events = {.on_started = on_started,
                                                              .on_failed = on_failed,
                                                              .on_again = on_again,
                                                              .on_gone = on_gone,
                                                              .on_connected = on_connected,
                                                              .on_status = on_status,
                                                              .on_store_set = td_rendezvous_set,
                                                              .on_store_want = td_rendezvous_want,
                                                              .on_store_taken =
                                                                  td_rendezvous_taken};

td_status td_attempts_make(struct td_node_daemon *n, const struct td_assignment *assigned,
                           struct td_local_attempt **out_attempt) {
    return td_local_attempt_create(n->loop, assigned, n->state_dir, &attempt_events, n,
                                   out_attempt);
}

td_status td_attempts_open_streams(struct td_node_daemon *n, struct td_local_attempt *a) {
    struct td_forward_options o = {.loop = n->loop,
                                   .channel = n->channel,
                                   .dir = a->dir,
                                   .job = a->assigned.job,
                                   .attempt = a->assigned.attempt,
                                   .epoch = a->assigned.epoch,
                                   .first_rank = a->assigned.first_rank,
                                   .n_ranks = a->assigned.n_ranks,
                                   .checkpoints = a->assigned.checkpoints,
                                   .key = n->key,
                                   .send = td_node_daemon_deliver,
                                   .arg = n};
    TD_TRY(td_forward_create(&o, &a->forward));
    if (!a->assigned.stream_store || !n->channel) return TD_OK;
    return td_shards_create(n->loop, n->channel, &a->assigned, a->dir, n->key, &a->shards);
}

static void on_fetched(td_status take_status, void *arg) {
    struct td_local_attempt *a = arg;
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    td_fetch_destroy(td_steal(a->fetch));
    if (!take_status) take_status = launch(n, a);
    if (take_status) on_failed(a, take_status);
}

static td_status fetch_or_launch(struct td_node_daemon *n, struct td_local_attempt *a) {
    if (!n->channel || !td_fetch_needed(&a->assigned)) return launch(n, a);
    return td_fetch_create(n->loop, n->channel, &a->assigned, on_fetched, a, &a->fetch);
}

static void on_placed(td_status take_status, void *arg) {
    struct td_local_attempt *a = arg;
    struct td_node_daemon *n = TD_CAST(td_node_daemon, a->owner);
    td_given_dir_destroy(td_steal(a->place));
    if (!take_status) take_status = fetch_or_launch(n, a);
    if (take_status) on_failed(a, take_status);
}

// The files of its job may be being cleared: that comes to an end first.
static td_status begin(struct td_node_daemon *n, struct td_local_attempt *a) {
    a->waits_for_files = td_reconciler_is_at(n->reconciler, a->assigned.job);
    if (a->waits_for_files) return TD_OK;
    if (!a->assigned.place_is_given) return fetch_or_launch(n, a);
    return td_given_dir_create(n->loop, &a->assigned, 0777 & ~rank_umask(n, a),
                               TD_GIVEN_DIR_SECONDS * TD_NS_PER_S, on_placed, a, &a->place);
}

static struct td_local_attempt *find_waiting(const struct td_node_daemon *n) {
    const struct td_node_attempt *row;
    for (size_t i = 0; (row = td_node_core_attempt(n->core, i)); i++) {
        struct td_local_attempt *a = row->shell;
        if (!a || !a->waits_for_files) continue;
        if (!td_reconciler_is_at(n->reconciler, a->assigned.job)) return a;
    }
    return NULL;
}

void td_attempts_files_are_free(struct td_node_daemon *n) {
    struct td_local_attempt *a;
    while ((a = find_waiting(n))) {
        td_status failed = begin(n, a); // it waits no more
        if (failed) on_failed(a, failed);
    }
}

static td_status prepare(struct td_node_daemon *n, struct td_node_attempt *row,
                         const Traind__V1__Assign *m) {
    struct td_assignment assigned;
    TD_TRY(td_node_home_check(n->home));
    TD_TRY(td_assignment_read(m, n->state_dir, &assigned));
    assigned.collective = n->collective;
    struct td_local_attempt *a;
    if (!td_job_kind_is_in(n->kinds, assigned.kind)) {
        const char *kind = td_job_kind_name(assigned.kind);
        return td_status_with_class(td_fail(TD_PERMISSION_DENIED,
                                            "node %s does not allow kind %s; start it with "
                                            "--allow %ss (TRAIND_ALLOW)",
                                            n->inventory.name, kind, kind),
                                    TD_CLASS_BAD_SPEC);
    }
    TD_TRY(td_attempts_make(n, &assigned, &a));
    row->shell = a;
    a->core = row;
    a->plan_json = td_strdup(m->plan_json);
    if (!a->plan_json) return td_fail_oom();
    TD_TRY(td_attempts_open_streams(n, a));
    return begin(n, a);
}

void td_attempts_start(struct td_node_daemon *n, const struct td_node_action *action) {
    td_status failed = prepare(n, action->attempt, action->assign);
    if (!failed) return;
    td_log_warn("attempt not started job=%s attempt=%u why=\"%s\"", action->attempt->job,
                action->attempt->attempt, td_status_message(failed));
    // START is the last action of its input, so the core may be called from here.
    td_node_daemon_give(n, action->attempt, TD_AE_FAILED, failed);
}

// ---- what the coordinator wants -----------------------------------------------------------------
void td_attempts_abandon(struct td_node_attempt *a) {
    if (a->shell) td_local_attempt_abandon(td_node_local(a));
}

void td_attempts_adopt(struct td_node_attempt *row, const Traind__V1__AttemptCursor *cursor) {
    struct td_local_attempt *a = td_node_local(row);
    td_log_info("attempt adopted job=%s attempt=%u state=%s", row->job, row->attempt,
                td_node_attempt_state_name(row->state));
    td_local_attempt_committed(a, td_forward_events_of(cursor));
    td_forward_adopt(a->forward, cursor);
    td_rendezvous_again(a);
    if (a->shards) td_shards_up(a->shards, true);
}

void td_attempts_remove(struct td_node_attempt *a) {
    struct td_local_attempt *l = a->shell;
    a->shell = NULL;
    if (!l) return;
    td_local_attempt_remove_files(l);
    td_local_attempt_destroy(l);
}

// ---- the session --------------------------------------------------------------------------------
void td_attempts_down(const struct td_node_daemon *n) {
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (!a->shell) continue;
        if (td_node_local(a)->forward) td_forward_down(td_node_local(a)->forward);
        if (td_node_local(a)->shards) td_shards_up(td_node_local(a)->shards, false);
    }
}

void td_attempts_poke(const struct td_node_daemon *n) {
    const struct td_node_attempt *a;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (!a->shell) continue;
        if (td_node_local(a)->forward) td_forward_poke(td_node_local(a)->forward);
        td_rendezvous_poke(td_node_local(a));
    }
}
