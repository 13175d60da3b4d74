// Above the shell's parts: it makes them and takes them down, gives the core messages and times,
// and carries out what it answers.
//
// Attempts found at start are recovered before the transport is started, so the first Register
// knows them all.

#include "daemon/node/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/node/shell/assignment/given_plan.h"
#include "daemon/node/shell/attempts/attempts.h"
#include "daemon/node/shell/attempts/rendezvous.h"
#include "daemon/node/shell/attempts/adopt.h"
#include "daemon/node/shell/home.h"
#include "daemon/node/shell/messages.h"
#include "daemon/node/shell/shell.h"
#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/files/path_rules.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { COMPARED_MAX = 8 << 20 };

// ---- plans --------------------------------------------------------------------------------------
// What a plan lacked is measured when the node is idle.
static void want_rates(struct td_node_daemon *n, const char *result_json) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    td_status s = td_arena_create(8 << 20, &arena);
    if (!s) s = td_json_parse(arena, result_json, strlen(result_json), &v);
    int64_t threads = s ? 0 : td_json_int(td_json_get(v, "rates_wanted"), 0);
    td_status_free(s);
    if (threads > 0 && threads <= INT32_MAX) td_measurer_want(n->measurer, (int32_t)threads);
}

static void on_planned(const char *request, td_status take_status, const char *result_json,
                       void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    td_messages_planned(n, request, take_status, result_json);
    td_status_free(take_status);
    if (result_json[0]) want_rates(n, result_json);
}

static bool is_idle(void *arg) {
    return td_node_daemon_is_idle(TD_CAST(td_node_daemon, arg));
}

// What cannot be compared may be another.
static void on_compared(const char *request, td_status take_status, const char *result_json,
                        void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    td_status s = take_status;
    if (!s) s = td_arena_create(1 << 20, &arena);
    if (!s) s = td_json_parse(arena, result_json, strlen(result_json), &v);
    const char *change = s ? td_status_message(s) : td_json_string(td_json_get(v, "change"), "?");
    if (change[0]) td_log_info("a plan is stale request=%s why=\"%s\"", request, change);
    td_messages_compared(n, request, change);
    td_status_free(s);
}

static td_status submit(struct td_node_daemon *n, struct td_planner *p,
                        const Traind__V1__PlanRequest *request, const char *plan,
                        const char *dump) {
    TD_AUTO_BUF rules;
    td_buf_init(&rules, TD_PATH_RULES_BYTES);
    TD_TRY(td_node_daemon_path_rules(n, NULL, request->trusted, &rules));
    return td_planner_submit(p, request->request, plan, dump, td_buf_cstr(&rules));
}

// Beside the planner, so that a start does not wait for another job's plan.
static void compare(struct td_node_daemon *n, const Traind__V1__PlanRequest *request) {
    TD_AUTO_BUF text;
    td_buf_init(&text, COMPARED_MAX);
    td_status s =
        td_buf_printf(&text, "{\"plan\":%s,\"read\":%s}", request->plan_json, request->read);
    if (!s) s = td_node_home_check(n->home);
    if (!s) s = submit(n, n->comparer, request, td_buf_cstr(&text), "");
    if (s) on_compared(request->request, s, "", n);
}

static void plan(struct td_node_daemon *n, const Traind__V1__PlanRequest *request) {
    if (request->read[0]) {
        compare(n, request);
        return;
    }
    td_measurer_yield(n->measurer);
    TD_AUTO(td_arena) *arena = NULL;
    struct td_plan read;
    td_status failed = td_given_plan_parse(request->plan_json, &arena, &read);
    if (!failed) failed = td_node_home_check(n->home);
    if (!failed) {
        failed = submit(n, n->planner, request, request->plan_json, request->dump_graph);
    }
    if (failed) on_planned(request->request, failed, "", n);
}

static void on_plugins_listed(void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    if (n->known) td_messages_plugins(n);
}

static void on_gpus(void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    if (n->known) td_messages_gpus(n);
}

static void on_gpu_samples(void *arg) {
    const struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    td_attempts_gpus(n, td_gpus_list(n->gpus));
}

// ---- actions ------------------------------------------------------------------------------------
static void on_files_free(void *arg) {
    td_attempts_files_are_free(TD_CAST(td_node_daemon, arg));
}

static void carry_out(struct td_node_daemon *n, const struct td_node_action *action) {
    struct td_local_attempt *a = action->attempt ? td_node_local(action->attempt) : NULL;
    switch (action->kind) {
    case TD_NA_REGISTER:
        td_messages_register(n);
        return;
    case TD_NA_HEARTBEAT:
        td_messages_heartbeat(n, action->n);
        return;
    case TD_NA_START:
        td_attempts_start(n, action);
        return;
    case TD_NA_ABANDON:
        td_attempts_abandon(action->attempt);
        return;
    case TD_NA_REFUSE:
        td_messages_refused(n, action->id, action->status);
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
        td_attempts_adopt(action->attempt, action->cursor);
        return;
    case TD_NA_ACK:
        td_forward_ack(a->forward, action->ack);
        return;
    case TD_NA_FINAL:
        td_forward_final(a->forward);
        return;
    case TD_NA_REMOVE:
        td_attempts_remove(action->attempt);
        td_reconciler_poke(n->reconciler);
        return;
    case TD_NA_PLAN:
        plan(n, action->plan);
        return;
    case TD_NA_PLAN_DROP:
        td_planner_drop(n->planner, action->plan_cancel->request);
        td_planner_drop(n->comparer, action->plan_cancel->request);
        return;
    case TD_NA_RECONCILE:
        td_reconciler_submit(n->reconciler, action->reconcile);
        return;
    case TD_NA_STORE:
        td_rendezvous_deliver(a, action->store);
        return;
    }
}

void td_node_daemon_save(struct td_node_daemon *n) {
    struct td_node_attempt *a;
    int n_asked = 0;
    for (size_t i = 0; (a = td_node_core_attempt(n->core, i)); i++) {
        if (a->state != TD_AT_RUNNING) continue;
        td_local_attempt_save(td_node_local(a));
        n_asked++;
    }
    td_log_info("ranks are asked to save attempts=%d", n_asked);
}

// ---- time and the session -----------------------------------------------------------------------
static void on_timer(void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    td_node_core_tick(n->core, td_mono_now());
    td_node_daemon_answer(n);
}

static void on_up(void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    td_node_core_up(n->core);
    td_node_daemon_answer(n);
}

static void on_message(const Traind__V1__CoordinatorMessage *m, void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) {
        td_log_info("registered node=%s transport=%s", n->inventory.node_id,
                    n->transport->ops->name);
        if (m->registered->unfit[0]) {
            td_log_warn("no jobs come here why=\"%s\", continuing", m->registered->unfit);
        }
        n->down.why[0] = '\0';
        snprintf(n->key, sizeof n->key, "%s", m->registered->key);
        n->known = true;
    }
    uint64_t stale = td_node_core_stale(n->core);
    td_node_core_message(n->core, td_mono_now(), m);
    bool tells = m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED &&
                 !td_plugin_list_runs(n->plugin_list); // else its end does, with newer devices
    if (tells) td_messages_plugins(n);
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) td_messages_gpus(n);
    bool in_trouble = n->trouble[0];
    if (in_trouble && m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) {
        td_messages_heartbeat(n, td_node_core_slots_used(n->core));
    }
    if (td_node_core_stale(n->core) != stale) {
        td_log_debug("stale message dropped incarnation=%" PRIu64 " dropped=%" PRIu64,
                     m->incarnation, stale + 1);
    }
    td_node_daemon_answer(n);
}

// Each try may fail. There is a line for the first, and one when the reason has become another: a
// coordinator that stopped may come back and be refused. Reasons in turn have fewer and fewer.
static void say_down(struct td_node_daemon *n, const char *why) {
    char now[sizeof n->down.why];
    struct td_mono at = td_mono_now();
    snprintf(now, sizeof now, "%s", why);
    bool first = !n->down.why[0];
    bool early = at.ns - n->down.said.ns < n->down.pause_ns;
    if (!first && (early || strcmp(now, n->down.why) == 0)) return;
    td_log_warn("no coordinator why=\"%s\", ranks go on, trying again", why);
    memcpy(n->down.why, now, sizeof now);
    n->down.said = at;
    n->down.pause_ns = first ? TD_NS_PER_S : TD_MIN(2 * n->down.pause_ns, 3600 * TD_NS_PER_S);
}

static void on_down(const char *why, void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    if (n->closing) return;
    say_down(n, why);
    td_attempts_down(n);
    td_reconciler_clear(n->reconciler);
    td_planner_drop(n->planner, NULL); // the coordinator asks again, here or elsewhere
    td_planner_drop(n->comparer, NULL);
    td_node_core_down(n->core);
    td_node_daemon_answer(n);
}

static void on_writable(void *arg) {
    struct td_node_daemon *n = TD_CAST(td_node_daemon, arg);
    td_attempts_poke(n);
    td_reconciler_poke(n->reconciler);
}

static const struct td_transport_events transport_events = {
    .on_up = on_up, .on_message = on_message, .on_down = on_down, .on_writable = on_writable};

// ---- life ---------------------------------------------------------------------------------------
static td_status copy(char *out, size_t out_bytes, const char *from, const char *what) {
    if (snprintf(out, out_bytes, "%s", from) < (int)out_bytes) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "the path of the %s is too long", what);
}

static td_status list_devices(struct td_node_daemon *n, const struct td_node_options *o) {
    const struct td_gpus_options options = {.bin_dir = n->bin_dir,
                                            .gpus = o->gpus ? o->gpus : "none",
                                            .visible = o->visible_gpus,
                                            .shares_busy = o->shares_busy_gpus,
                                            .timeout_ns = o->gpu_timeout_ns > 0 ? o->gpu_timeout_ns
                                                                                : 30 * TD_NS_PER_S,
                                            .fn = on_gpus,
                                            .on_samples = on_gpu_samples,
                                            .arg = n};
    TD_TRY(td_plugin_list_create(n->loop, n->bin_dir, on_plugins_listed, n, &n->plugin_list));
    return td_gpus_create(n->loop, &options, &n->gpus);
}

static td_status open_node(struct td_node_daemon *n, const struct td_node_options *o) {
    char scratch[TD_FS_PATH_BYTES], cache[TD_FS_PATH_BYTES], checkpoints[TD_FS_PATH_BYTES];
    TD_TRY(copy(n->state_dir, sizeof n->state_dir, o->state_dir, "state directory"));
    TD_TRY(copy(n->runtime_dir, sizeof n->runtime_dir, o->runtime_dir, "runtime directory"));
    TD_TRY(copy(n->bin_dir, sizeof n->bin_dir, o->bin_dir, "binaries"));
    TD_TRY(copy(n->version, sizeof n->version, o->version, "version"));
    TD_TRY(td_fs_path(n->plugin_dir, "%s/../lib/traind", n->bin_dir));
    TD_TRY(copy(n->plugin_dirs, sizeof n->plugin_dirs, o->plugin_dirs ? o->plugin_dirs : "",
                "plugins (--plugin-dirs)"));
    TD_TRY(copy(n->read_roots, sizeof n->read_roots, o->read_roots ? o->read_roots : "",
                "directories to read (--read-roots)"));
    TD_TRY(copy(n->write_roots, sizeof n->write_roots, o->write_roots ? o->write_roots : "",
                "directories to write (--write-roots)"));
    TD_TRY(copy(n->token_file, sizeof n->token_file, o->token_file ? o->token_file : "",
                "token (--token-file)"));
    n->kinds = o->kinds | td_job_kind_bit(TD_KIND_TRAIN);
    n->ports = o->ports;
    TD_TRY(copy(n->collective_interface, sizeof n->collective_interface,
                o->collective_interface ? o->collective_interface : "", "collective interface"));
    n->topology = *o->topology;
    TD_TRY(td_inventory_read(n->state_dir, n->bin_dir, o->name, n->topology.n_cores, o->slots,
                             &n->inventory));
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
    struct td_planner_options planning = {.bin_dir = n->bin_dir,
                                          .scratch_dir = scratch,
                                          .cache_dir = cache,
                                          .checkpoints_dir = checkpoints,
                                          .plugin_dirs = n->plugin_dirs,
                                          .timeout_s = (int32_t)(o->plan_timeout_ns / TD_NS_PER_S),
                                          .idle = is_idle,
                                          .fn = on_planned,
                                          .arg = n};
    TD_TRY(td_planner_create(n->loop, &planning, &n->planner));
    planning.verb = "compare";
    planning.fn = on_compared;
    TD_TRY(td_planner_create(n->loop, &planning, &n->comparer));
    TD_TRY(list_devices(n, o));
    const struct td_reconciler_options reconciling = {.loop = n->loop,
                                                      .state_dir = n->state_dir,
                                                      .core = n->core,
                                                      .send = td_node_daemon_deliver,
                                                      .on_over = on_files_free,
                                                      .arg = n};
    TD_TRY(td_reconciler_create(&reconciling, &n->reconciler));
    TD_TRY(td_node_home_create(n, &n->home));
    TD_TRY(td_scan(n));
    n->transport->ops->start(n->transport, &transport_events, n);
    return TD_OK;
}

td_status td_node_daemon_create(struct td_loop *loop, const struct td_node_options *options,
                                struct td_node_daemon **out_node) {
    TD_AUTO(td_node_daemon) *n = td_calloc(1, sizeof *n);
    if (!n) {
        options->take_transport->ops->destroy(options->take_transport);
        return td_fail_oom();
    }
    n->magic = td_node_daemon_magic;
    n->loop = loop;
    n->transport = options->take_transport;
    n->channel = options->channel;
    n->carry_out = carry_out;
    n->user_umask = options->user_umask;
    n->orphan_timeout_ns =
        options->orphan_timeout_ns > 0 ? options->orphan_timeout_ns : 3600 * TD_NS_PER_S;
    n->silent_after_ns = options->silent_after_ns > 0 ? options->silent_after_ns : 30 * TD_NS_PER_S;
    n->gpu_idle_ns = options->gpu_idle_ns;
    TD_TRY(open_node(n, options));
    *out_node = td_steal(n);
    return TD_OK;
}

void td_node_daemon_destroy(struct td_node_daemon *n) {
    if (!n) return;
    n->closing = true;
    struct td_node_attempt *a;
    for (size_t i = 0; n->core && (a = td_node_core_attempt(n->core, i)); i++) {
        td_local_attempt_destroy(td_steal(a->shell));
    }
    td_planner_destroy(n->planner);
    td_planner_destroy(n->comparer);
    td_measurer_destroy(n->measurer);
    td_plugin_list_destroy(n->plugin_list);
    td_gpus_destroy(n->gpus);
    td_reconciler_destroy(n->reconciler);
    td_node_home_destroy(n->home);
    if (n->transport) n->transport->ops->destroy(n->transport);
    td_loop_timer_destroy(n->timer);
    td_node_core_destroy(n->core);
    n->magic = 0;
    free(n);
}
