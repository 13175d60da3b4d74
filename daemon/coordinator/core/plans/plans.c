// See the header.

#include "daemon/coordinator/core/plans/plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/model/plan_asks.h"
#include "daemon/coordinator/core/plans/plan_ends.h"
#include "daemon/coordinator/core/plans/plan_pick.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/job/labels.h"
#include "lib/spec/plan.h"

enum { RESULT_MAX_BYTES = 2 << 20, PLAN_MAX_BYTES = 4 << 20, NONE_BYTES = 256 };
// A node ends its planner in --plan-timeout-s, 600 s at most. Before that it may wait half a minute
// for a descriptor.
static const int64_t answer_ns = 660 * TD_NS_PER_S, nodes_grace_ns = 5 * TD_NS_PER_S;

// ---- trainer.precision: auto --------------------------------------------------------------------
bool td_plans_precision_is_auto(const struct td_job *j) {
    return strcmp(j->knobs.precision, "auto") == 0;
}

const char *td_plans_precision(const struct td_plan_entry *e, const struct td_job *j) {
    return td_plans_precision_is_auto(j) && e && e->precision[0] ? e->precision : NULL;
}

void td_plans_note(const struct td_plan_entry *e, struct td_job *j) {
    if (e && e->slow) td_job_note(j, "%s", e->slow); // the ranks will say the same
    if (!td_plans_precision_is_auto(j) || !e || !e->precision[0]) return;
    char text[TD_PLAN_PRECISION_BYTES];
    td_plan_say_precision(e->precision, e->step_seconds, e->other, e->other_seconds, text);
    td_job_note(j, "%s", text);
}

// ---- of a job -----------------------------------------------------------------------------------
// Of another CPU level the bytes that ranks share are the same. Other plugins are another build's,
// which may need other bytes, so they come last.
const struct td_plan_entry *td_plans_of(const struct td_core *core, const struct td_job *j,
                                        const struct td_host *n) {
    return td_plans_find_near(core, td_job_plan_digest(j), n);
}

// A later attempt does with a plan of another level, and one rank with none. More ranks need the
// bytes that they share; a plan that was dropped, as its plugins changed, is asked for again.
bool td_plans_suffice(const struct td_core *core, const struct td_job *j, const struct td_host *n) {
    if (j->knobs.kind != TD_KIND_TRAIN) return true; // its resources say all that is known
    bool has_precision =
        j->frozen_json || !td_plans_precision_is_auto(j); // else ranks would not know what to do
    bool sized = j->n_ranks == 1 || td_plans_of(core, j, n);
    // Its devices are in the answer.
    if (!td_host_devices_known(&n->devices, j->knobs.accelerator)) return false;
    const struct td_plan_entry *own = td_plans_find(core, td_job_plan_digest(j), n);
    return own ? td_plans_holds(own, j) : j->n_attempts && has_precision && sized;
}

// ---- questions ----------------------------------------------------------------------------------
// "" if it cannot be read; the node that is asked says so then.
static void read_spec(struct td_plan_ask *ask) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *v = NULL;
    struct td_spec spec;
    td_status s = td_arena_create(TD_SPEC_ARENA_BYTES, &arena);
    if (!s) s = td_json_parse(arena, ask->spec_json, strlen(ask->spec_json), &v);
    td_spec_read(v, &spec);
    snprintf(ask->minimum, sizeof ask->minimum, "%s", spec.trainer.cpu_level);
    td_accel_key(&spec, ask->accelerator);
    ask->n_ranks = (uint32_t)td_spec_node_ranks(&spec);
    ask->has_plugins = spec.plugins && spec.plugins->n_children;
    TD_CHECK(!td_labels_of_map(spec.node_labels, &ask->labels));
    if (!ask->labels) ask->labels = td_core_dup("");
    td_status_free(s);
}

td_status td_plans_want(struct td_core *core, const char *digest, const struct td_host *n,
                        const char *dump, const char *spec_json) {
    const char *level = n ? n->cpu_level_held : "";
    for (uint32_t i = 0; i < core->n_asks; i++) {
        const struct td_plan_ask *a = core->asks[i];
        bool same = strcmp(a->digest, digest) == 0 && strcmp(a->level, level) == 0;
        if (same && strcmp(a->dump, dump) == 0) return TD_OK;
    }
    if (core->n_asks == TD_COUNTOF(core->asks)) {
        return td_status_with_reason(td_fail(TD_RESOURCE_EXHAUSTED,
                                             "%u plans are on their way already; try again",
                                             core->n_asks),
                                     "LIMIT_PLANS");
    }
    struct td_plan_ask *ask = td_core_must(td_calloc(1, sizeof *ask));
    snprintf(ask->digest, sizeof ask->digest, "%s", digest);
    snprintf(ask->dump, sizeof ask->dump, "%s", dump);
    snprintf(ask->level, sizeof ask->level, "%s", level);
    snprintf(ask->prefer, sizeof ask->prefer, "%s", n ? n->id : "");
    ask->spec_json = td_core_dup(spec_json);
    read_spec(ask);
    core->asks[core->n_asks++] = ask;
    return TD_OK;
}

// ---- asking -------------------------------------------------------------------------------------
td_status td_plans_text(const char *spec_json, const char *frozen_json,
                        const struct td_plan_run *run, char **out_text) {
    TD_AUTO_BUF text;
    td_buf_init(&text, PLAN_MAX_BYTES);
    TD_TRY(td_plan_join(spec_json, run, frozen_json, &text));
    *out_text = td_buf_take_cstr(&text);
    return *out_text ? TD_OK : td_fail_oom();
}

// For jobs that have run, and for nobody else: what they began with may be gone by now. Who asks
// while that is worked out gets the same answer.
static bool is_for_later_attempt(const struct td_core *core, const struct td_plan_ask *ask) {
    bool later = false;
    for (uint32_t i = 0; i < core->n_active; i++) {
        const struct td_job *j = core->active[i];
        if (strcmp(td_job_plan_digest(j), ask->digest) != 0) continue;
        if (j->n_attempts == 0) return false;
        later = true;
    }
    return later && !td_plan_ask_is_waited_for(core, ask);
}

static td_status text_of_ask(const struct td_plan_ask *ask, const struct td_host *n,
                             char **out_text) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *tree = NULL;
    TD_TRY(td_json_parse(arena, ask->spec_json, strlen(ask->spec_json), &tree));
    struct td_spec spec;
    td_spec_read(tree, &spec);
    const struct td_plan_run run = {
        .attempt = ask->later ? 2 : 1,
        .world_size = td_spec_ranks(&spec),
        .threads_per_rank = td_spec_threads(&spec.resources, (int32_t)n->cores, (int32_t)n->slots),
    };
    return td_plans_text(ask->spec_json, NULL, &run, out_text);
}

// What is kept of n for this question, and is to be compared with its files. One that guesses a
// step's time is not what a caller of PlanJob wants.
static const struct td_plan_entry *kept_of(const struct td_core *core,
                                           const struct td_plan_ask *ask, const struct td_host *n) {
    const struct td_plan_entry *e = ask->dump[0] ? NULL : td_plans_find(core, ask->digest, n);
    if (!e || !e->read || td_plans_is_settled(e)) return NULL;
    // Its devices are in the answer of a plan alone.
    if (!td_host_devices_known(&n->devices, ask->accelerator)) return NULL;
    return e->guesses && td_plan_ask_is_waited_for(core, ask) ? NULL : e;
}

static void ask_node(struct td_core *core, uint32_t at, struct td_host *n) {
    struct td_plan_ask *ask = core->asks[at];
    TD_AUTO_FREE char *plan_text = NULL;
    ask->later = is_for_later_attempt(core, ask);
    td_status s = text_of_ask(ask, n, &plan_text);
    if (s) {
        td_plan_ask_fail(core, at, TD_CLASS_INTERNAL, td_status_code(s), td_status_message(s));
        td_status_free(s);
        return;
    }
    snprintf(ask->node, sizeof ask->node, "%s", n->id);
    snprintf(ask->last, sizeof ask->last, "%s", n->id);
    snprintf(ask->request, sizeof ask->request, "p%" PRIu64, core->next_plan++);
    ask->deadline = td_mono_add(core->now.mono, answer_ns);
    ask->asked = core->now.mono;
    ask->tries++;
    td_core_wake_at(core, ask->deadline);
    const struct td_plan_entry *kept = kept_of(core, ask, n);
    ask->compares = kept != NULL;
    if (!kept) core->counters[TD_COUNT_PLANS_ASKED]++;
    Traind__V1__PlanRequest request = TRAIND__V1__PLAN_REQUEST__INIT;
    request.request = ask->request;
    request.plan_json = plan_text;
    request.dump_graph = ask->dump;
    request.read = td_unconst(kept ? kept->read : "");
    request.trusted = td_plan_digest_is_trusted(ask->digest);
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST;
    m.plan_request = &request;
    td_core_send(core, n, &m);
}

// Until when a node that is away may still come: after a start, or when a connection broke.
static struct td_mono nodes_due(const struct td_core *core) {
    struct td_mono last = core->started_at;
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        last.ns = TD_MAX(last.ns, n->last_message.ns);
    }
    return td_mono_add(last, nodes_grace_ns);
}

static bool any_ready(const struct td_core *core) {
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (td_host_ready(n)) return true;
    }
    return false;
}

// No node can be asked. Who waits for the answer is refused; jobs ask again when a node comes.
static void wait_for_node(struct td_core *core, uint32_t at) {
    struct td_plan_ask *ask = core->asks[at];
    if (!td_plan_ask_is_waited_for(core, ask)) return;
    struct td_mono due = nodes_due(core);
    if (core->now.mono.ns < due.ns) {
        td_core_wake_at(core, due);
        return;
    }
    char none[NONE_BYTES];
    td_nodes_say_none(core, none, sizeof none);
    if (ask->labels[0] && any_ready(core)) { // none of these may be asked
        (void)td_clip(none, sizeof none, "no connected node has the labels %s", ask->labels);
    }
    td_status s = td_fail(TD_UNAVAILABLE,
                          "%s, and a plan is worked out by one: start `traind --role node "
                          "--coordinator ADDRESS`, or ask again when `trainctl node list` shows "
                          "one that is READY",
                          none);
    s = td_status_with_reason(s, "NO_NODES");
    td_plan_ask_answer(core, ask, NULL, NULL, s);
    td_status_free(s);
    td_plan_ask_drop(core, at);
    core->queue_dirty = true;
}

// No other node can be asked that may read it. One may come soon: a cluster that is upgraded is a
// node short for a moment.
static void wait_for_reader(struct td_core *core, uint32_t at) {
    struct td_plan_ask *ask = core->asks[at];
    if (ask->tries < TD_PLAN_MAX_TRIES && core->now.mono.ns < ask->reader_due.ns) {
        td_core_wake_at(core, ask->reader_due);
        return;
    }
    TD_AUTO_FREE char *unread = td_core_dup(ask->unread);
    td_plan_ask_fail(core, at, TD_CLASS_INTERNAL, TD_FAILED_PRECONDITION, unread);
}

// A plugin that never returns is the likeliest reason, and no other node is asked to wait for it.
static enum td_class class_of_late(const struct td_plan_ask *ask) {
    return ask->has_plugins ? TD_CLASS_USER_CODE : TD_CLASS_INTERNAL;
}

// Another node, if one can be asked that has not failed; else what it waited for fails.
static void ask_other(struct td_core *core, uint32_t at) {
    struct td_plan_ask *ask = core->asks[at];
    bool is_spent = ask->tries >= TD_PLAN_MAX_TRIES;
    bool over = ask->late && (ask->has_plugins || is_spent);
    struct td_host *n = over || (ask->unread && is_spent) ? NULL : td_plan_ask_pick(core, ask);
    if (n) {
        ask_node(core, at, n);
    } else if (over || (ask->late && any_ready(core))) {
        TD_AUTO_FREE char *late = td_core_dup(ask->late);
        td_plan_ask_fail(core, at, class_of_late(ask), TD_DEADLINE_EXCEEDED, late);
    } else if (ask->unread) {
        wait_for_reader(core, at);
    } else {
        wait_for_node(core, at);
    }
}

static void note_late(struct td_plan_ask *ask, const char *why) {
    td_plan_ask_note_failed(ask, ask->node);
    ask->node[0] = '\0';
    free(ask->late);
    ask->late = td_core_dup(why);
}

static void cancel_at_node(struct td_core *core, const struct td_plan_ask *ask) {
    const struct td_host *n = td_nodes_find(core, ask->node);
    if (!n || !n->session) return;
    Traind__V1__PlanCancel cancel = TRAIND__V1__PLAN_CANCEL__INIT;
    cancel.request = td_unconst(ask->request);
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_CANCEL;
    m.plan_cancel = &cancel;
    td_core_send(core, n, &m);
}

static bool is_used(const struct td_core *core, const struct td_plan_ask *ask) {
    for (uint32_t i = 0; i < core->n_active && !ask->dump[0]; i++) {
        if (strcmp(td_job_plan_digest(core->active[i]), ask->digest) == 0) return true;
    }
    return td_plan_ask_is_waited_for(core, ask);
}

static void tick(struct td_core *core, uint32_t at) {
    struct td_plan_ask *ask = core->asks[at];
    if (ask->maybe_unused && !is_used(core, ask)) {
        cancel_at_node(core, ask);
        td_plan_ask_drop(core, at);
        return;
    }
    ask->maybe_unused = false;
    if (ask->node[0] && core->now.mono.ns < ask->deadline.ns) {
        td_core_wake_at(core, ask->deadline);
        return;
    }
    if (ask->node[0]) {
        char why[160];
        snprintf(why, sizeof why, "node %s did not answer with a plan in %d s", ask->node,
                 (int)(answer_ns / TD_NS_PER_S));
        cancel_at_node(core, ask);
        note_late(ask, why);
    }
    ask_other(core, at);
}

void td_plans_tick(struct td_core *core) {
    for (uint32_t i = core->n_asks; i-- > 0;) {
        tick(core, i);
    }
}

void td_plans_node_gone(struct td_core *core, const char *node) {
    for (uint32_t i = 0; i < core->n_asks; i++) {
        if (strcmp(core->asks[i]->node, node) != 0) continue;
        core->asks[i]->node[0] = '\0';
        core->asks[i]->reader_due = td_mono_add(core->now.mono, nodes_grace_ns);
        if (core->asks[i]->tries) core->asks[i]->tries--; // it was not an answer
    }
}

// ---- answers ------------------------------------------------------------------------------------
// The node that an answer of `node` is for. Where the job would run may be a node that gave none;
// one that has the same plan speaks for it.
static const struct td_host *spoken_for(const struct td_core *core, const struct td_plan_ask *ask,
                                        const struct td_host *node) {
    const struct td_host *n = ask->prefer[0] ? td_nodes_find(core, ask->prefer) : NULL;
    if (!n || !td_plan_ask_has_failed(ask, n)) return node;
    const bool is_alike =
        td_plans_find(core, ask->digest, n) == td_plans_find(core, ask->digest, node);
    return is_alike ? n : node;
}

static bool on_plan(struct td_core *core, struct td_host *node, uint32_t at, const char *json) {
    struct td_plan_ask *ask = core->asks[at];
    struct td_plan_entry *e = NULL;
    size_t bytes = strlen(json);
    td_status s = TD_OK;
    if (bytes > RESULT_MAX_BYTES) {
        s = td_fail(TD_RESOURCE_EXHAUSTED, "a plan of %zu bytes", bytes);
    } else if (!ask->dump[0]) {
        char key[TD_PLAN_KEY_BYTES];
        td_plans_key(ask->digest, node, key);
        s = td_plans_read(key, json, &e);
    }
    if (s) {
        td_plan_ask_fail(core, at, TD_CLASS_INTERNAL, td_status_code(s), td_status_message(s));
        td_status_free(s);
        return false;
    }
    bool changed = td_host_devices_take_plan(&node->devices, ask->accelerator, json);
    if (e) {
        td_plans_keep(core, e);
        (void)td_plans_confirm(core, ask->digest, spoken_for(core, ask, node), ask->asked);
        td_core_record(core, TD_RECORD_PLAN, e->key, e->json);
    }
    for (uint32_t i = 0; i < ask->n_failed; i++) {
        struct td_host *n = td_nodes_find(core, ask->failed[i]);
        if (n && n != node) td_host_devices_refuse(&n->devices, ask->accelerator);
    }
    td_plan_ask_answer(core, ask, json, e, TD_OK);
    td_plan_ask_drop(core, at);
    core->queue_dirty = true;
    return changed;
}

// The answer to a comparison: the plan that is kept is good, or there is none any more.
static void on_comparison(struct td_core *core, struct td_host *node, uint32_t at, bool same) {
    struct td_plan_ask *ask = core->asks[at];
    if (same && td_plans_confirm(core, ask->digest, spoken_for(core, ask, node), ask->asked)) {
        const struct td_plan_entry *e = td_plans_find(core, ask->digest, node);
        td_plan_ask_answer(core, ask, e->json, e, TD_OK);
        td_plan_ask_drop(core, at);
        core->queue_dirty = true;
        return;
    }
    td_plans_drop(core, ask->digest, node);
    ask->was_stale = true;
    ask->tries--; // the plan itself has not been tried
    ask_node(core, at, node);
}

// The coordinator writes what it reads itself, so this says nothing of the job. Where no other node
// can read it either, and none comes, it fails as a fault of traind's.
static void ask_another_reader(struct td_core *core, uint32_t at, const char *message) {
    struct td_plan_ask *ask = core->asks[at];
    ask->node[0] = '\0';
    free(ask->unread);
    ask->unread = td_core_dup(message);
    ask->reader_due = td_mono_add(core->now.mono, nodes_grace_ns);
    ask_other(core, at);
}

// A node works on one plan at a time: the time of those that wait there begins now.
static void restart_clocks(struct td_core *core, const struct td_host *node) {
    for (uint32_t i = 0; i < core->n_asks; i++) {
        if (strcmp(core->asks[i]->node, node->id) != 0) continue;
        core->asks[i]->deadline = td_mono_add(core->now.mono, answer_ns);
    }
}

bool td_plans_on_result(struct td_core *core, struct td_host *node,
                        const Traind__V1__PlanResult *m) {
    uint32_t at = 0;
    restart_clocks(core, node);
    while (at < core->n_asks && (strcmp(core->asks[at]->request, m->request) != 0 ||
                                 strcmp(core->asks[at]->node, node->id) != 0)) {
        at++;
    }
    if (at == core->n_asks) return false; // asked again elsewhere meanwhile
    if (m->result_json[0]) return on_plan(core, node, at, m->result_json);
    struct td_plan_ask *ask = core->asks[at];
    if (ask->compares && (m->same || m->changed[0])) {
        on_comparison(core, node, at, m->same);
        return false;
    }
    enum td_class cls = td_class_parse(m->class_);
    if (cls == TD_CLASS_NONE && m->code == TD_DEADLINE_EXCEEDED) {
        note_late(ask, m->message);
        td_plans_tick(core);
        return false;
    }
    if (cls == TD_CLASS_NONE) cls = TD_CLASS_INTERNAL;
    td_plan_ask_note_failed(ask, node->id);
    if (m->unreadable) {
        ask_another_reader(core, at, m->message);
        return false;
    }
    bool is_final =
        td_plan_ask_is_final(cls, m->code) && !td_plan_ask_other_may_know(core, ask, node);
    if (is_final || ask->tries >= TD_PLAN_MAX_TRIES) {
        enum td_code code = m->code <= TD_UNAUTHENTICATED ? (enum td_code)m->code : TD_UNKNOWN;
        td_plan_ask_fail(core, at, cls, code, m->message);
        return false;
    }
    ask->node[0] = '\0';
    td_plans_tick(core);
    return false;
}
