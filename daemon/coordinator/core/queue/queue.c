// See the header.

#include "daemon/coordinator/core/queue/queue.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/attempt/source.h"
#include "daemon/coordinator/core/attempt/transitions.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/job_list.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/nodes.h"
#include "daemon/coordinator/core/plans/capacity.h"
#include "daemon/coordinator/core/plans/gpu_capacity.h"
#include "daemon/coordinator/core/plans/plans.h"
#include "daemon/coordinator/core/queue/match.h"
#include "lib/base/digest.h"

enum { MAX_RESUME = 8, MAX_LOOKS = 256, PLAN_AHEAD = 32, SHOWN_NODES = 4 };
enum { LINK_MS_LEAST = 4000, LINK_MS_MOST = 86400000 };
_Static_assert(PLAN_AHEAD + TD_CORE_MAX_PLAN_WAITERS < TD_CORE_MAX_PLANS,
               "what is planned ahead and what is on its way fit the cache together");

// ---- the order ----------------------------------------------------------------------------------
static uint64_t turn_of(const struct td_job *j) {
    return j->state == TD_JOB_RECOVERING ? j->queue_seq : j->queue_seq | UINT64_C(1) << 63;
}

static uint64_t by_turn(const struct td_job *j) {
    return j->turn;
}

static void leave_line(struct td_core *core, struct td_job *j) {
    uint32_t at = td_jobs_find(core->waiting, core->n_waiting, j, by_turn);
    td_jobs_remove(core->waiting, &core->n_waiting, at);
    j->turn = 0;
    if (at >= core->n_looked) return; // nothing was kept for it
    core->n_looked--;
    core->queue_dirty = true;
}

void td_queue_insert(struct td_core *core, struct td_job *j) {
    bool waits = td_job_state_waits(j->state) && !td_job_live(j);
    uint64_t turn = waits ? turn_of(j) : 0;
    if (turn == j->turn) return;
    if (j->turn) leave_line(core, j);
    if (!turn) return;
    j->turn = turn;
    uint32_t at = td_jobs_insert(&core->waiting, &core->n_waiting, &core->cap_waiting, j, by_turn);
    if (at < core->n_looked) {
        core->n_looked++;
        core->queue_dirty = true;
    }
}

uint32_t td_queue_position(const struct td_core *core, const struct td_job *j) {
    return j->turn ? td_jobs_find(core->waiting, core->n_waiting, j, by_turn) + 1 : 0;
}

bool td_queue_ahead(const struct td_core *core, const struct td_job *j) {
    uint32_t at = td_queue_position(core, j);
    return at && at <= PLAN_AHEAD;
}

static bool goes_on(const struct td_core *core) {
    return core->n_looked < core->n_waiting && !core->draining &&
           (core->free_slots || core->n_looked < PLAN_AHEAD);
}

bool td_queue_due(const struct td_core *core) {
    return core->started && (core->queue_dirty || goes_on(core));
}

// What a job waits for by time: a back-off, a checkpoint on its way.
static void wake_at(struct td_core *core, struct td_mono t) {
    if (t.ns < core->queue_wake.ns) core->queue_wake = t;
    td_core_wake_at(core, t);
}

void td_queue_tick(struct td_core *core) {
    if (core->queue_wake.ns <= core->now.mono.ns) {
        core->queue_dirty = true;
    } else {
        td_core_wake_at(core, core->queue_wake);
    }
}

// ---- places -------------------------------------------------------------------------------------
static void count_free(struct td_core *core) {
    const struct td_host *n;
    core->free_slots = 0;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (td_host_ready(n)) core->free_slots += td_match_free(n);
    }
}

static void take_slots(struct td_core *core, struct td_host *n, uint32_t slots) {
    core->free_slots -= TD_MIN(core->free_slots, td_match_free(n));
    n->used += slots;
    core->free_slots += td_match_free(n);
}

static void keep_devices(const struct td_job *j, struct td_host *n) {
    const struct td_device_want want = td_match_want(j);
    if (!td_match_devices(j, n)) return;
    td_host_devices_keep(&n->devices, j->knobs.accelerator, &want, j->turn);
}

// Its part there is kept for it, and its devices.
static void keep_part(struct td_core *core, const struct td_job *j, struct td_host *n) {
    uint32_t slots = td_match_slots(j, n);
    keep_devices(j, n);
    take_slots(core, n, slots);
    n->kept += slots;
    if (!n->kept_for) n->kept_for = j->turn;
}

// Until the next pass from the head: a later job, whose plan is known already, does not take it.
// One that lacks only devices keeps those that are free, and no slots: others need no device. A job
// over several nodes keeps its place on those that have room, and the next one that comes nearest.
static void keep_place(struct td_core *core, const struct td_job *j, const struct td_match *p) {
    struct td_host *nodes[TD_SPEC_MAX_RANKS] = {p->node};
    const uint32_t n = p->wanted > 1 ? td_match_nodes(core, j, nodes) : p->node != NULL;
    for (uint32_t i = 0; i < n; i++) {
        keep_part(core, j, nodes[i]);
    }
    if (p->node || !p->nearest) return;
    keep_devices(j, p->nearest);
    if (p->needed_devices) return;
    core->free_slots -= TD_MIN(core->free_slots, td_match_free(p->nearest));
    if (!p->nearest->reserved) p->nearest->reserved = j->turn;
}

// ---- start --------------------------------------------------------------------------------------
// The nodes of an attempt that starts, by name, and what is the same for all its ranks.
struct gang {
    struct td_host *nodes[TD_SPEC_MAX_RANKS];
    uint32_t n;
    const struct td_plan_entry *plan; // of the node whose level all hold; NULL: none
    uint32_t threads;                 // of a rank: what each of its nodes has for one
    const char *level;                // NULL: each node's own
};

static struct gang find_gang(const struct td_core *core, const struct td_job *j,
                             struct td_host *place) {
    struct gang g = {.nodes = {place}, .n = 1, .plan = td_plans_of(core, j, place)};
    int32_t threads = INT32_MAX;
    if (j->knobs.num_nodes > 1) {
        g.n = td_match_nodes(core, j, g.nodes);
        g.level = td_match_common_level(g.nodes, g.n);
    }
    for (uint32_t i = 0; i < g.n; i++) {
        const struct td_host *n = g.nodes[i];
        int32_t own = td_spec_threads(&j->knobs.resources, (int32_t)n->cores, (int32_t)n->slots);
        threads = TD_MIN(threads, own);
    }
    g.threads = (uint32_t)TD_MAX(threads, 1);
    return g;
}

// All ranks go on from one checkpoint, so each of the nodes must be able to reach it.
static bool is_reachable(const struct td_job *j, const struct td_checkpoint *c,
                         const struct gang *g) {
    if (j->knobs.checkpoint.dir[0]) return true; // shared
    for (uint32_t i = 0; i < g->n; i++) {
        if (!td_catalog_reachable(c, g->nodes[i]->id)) return false;
    }
    return true;
}

static void add_resume(struct td_arena *arena, const struct td_job *j, const struct gang *g,
                       Traind__V1__Assign *assign) {
    assign->resume = td_core_must(td_arena_array(arena, MAX_RESUME, sizeof *assign->resume));
    for (uint32_t i = j->n_checkpoints; i-- > 0 && assign->n_resume < MAX_RESUME;) {
        const struct td_checkpoint *c = j->checkpoints[i];
        bool usable = c->committed && !c->damage && !c->registered;
        if (!usable || !is_reachable(j, c, g)) continue;
        Traind__V1__ResumeSource *r = td_core_must(td_arena_alloc(arena, sizeof *r));
        traind__v1__resume_source__init(r);
        r->path = td_unconst(c->path);
        r->step = c->step;
        r->fetch = c->streamed;
        assign->resume[assign->n_resume++] = r;
    }
}

// By the job, never by the node: what one node of several holds, the others could not read.
static bool wants_stream(const struct td_job *j, const struct gang *g) {
    if (strcmp(j->knobs.checkpoint.store, "fs") == 0) return false;
    return g->n > 1 || !g->nodes[0]->embedded; // stream or auto
}

static td_status make_attempt(struct td_core *core, struct td_job *j, const struct gang *g,
                              struct td_attempt **out_attempt) {
    TD_AUTO(td_attempt) *a = NULL;
    TD_TRY(td_attempt_create(j->n_attempts + 1, j->n_ranks, g->n, &a));
    a->epoch = core->next_epoch;
    a->stream = wants_stream(j, g);
    const struct td_device_want want = td_match_want(j);
    for (uint32_t i = 0; i < g->n; i++) {
        const struct td_host *n = g->nodes[i];
        const struct td_host_accel *devices = td_match_devices(j, n);
        struct td_attempt_part *p = &a->parts[i];
        snprintf(p->node, sizeof p->node, "%s", n->id);
        p->slots = td_match_slots(j, n);
        if (devices) p->devices = td_host_devices_pick(devices, &want, j->turn);
        TD_CHECK(!devices || p->devices); // td_match_choose found them
    }
    *out_attempt = a;
    return td_job_add_attempt(j, td_steal(a));
}

static void add_devices(struct td_arena *arena, const struct td_attempt_part *p,
                        Traind__V1__Assign *assign) {
    char uuid[TD_DEVICE_UUID];
    uint32_t n = p->devices ? td_device_list_count(p->devices) : 0;
    assign->devices = td_core_must(td_arena_array(arena, n + 1, sizeof *assign->devices));
    for (uint32_t i = 0; i < n && td_device_list_at(p->devices, i, uuid); i++) {
        assign->devices[assign->n_devices++] = td_core_must(td_arena_strdup(arena, uuid));
    }
}

// Each attempt another one. Nobody here knows whether it is free: the launcher there refuses if
// not.
static uint32_t draw_port(const struct td_job *j, const struct td_attempt *a,
                          const struct td_host *n) {
    if (j->knobs.kind == TD_KIND_TRAIN || !n->first_port) return 0;
    const uint32_t n_ports = n->last_port - n->first_port + 1;
    return n->first_port +
           (uint32_t)(td_xxh3_64(j->id, strlen(j->id)) + a->number * 7919) % n_ports;
}

static void send_assign(struct td_core *core, struct td_job *j, struct td_attempt *a,
                        const struct td_attempt_part *p, const struct gang *g, char *plan_text) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_CHECK(!td_arena_create((size_t)1 << 20, &arena));
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    Traind__V1__Assign assign = TRAIND__V1__ASSIGN__INIT;
    assign.id = &id;
    assign.plan_json = plan_text;
    assign.world_size = j->n_ranks;
    assign.first_rank = p->first_rank;
    assign.n_ranks = p->n_ranks;
    assign.slots_per_rank = p->slots / p->n_ranks;
    assign.threads_per_rank = g->threads;
    assign.shared_bytes = g->plan ? g->plan->shared_bytes : 0;
    int64_t limit = j->knobs.resources.memory_bytes;
    assign.memory_limit_bytes = limit > 0 ? (uint64_t)limit * p->n_ranks : 0;
    assign.stream_store = a->stream;
    assign.trusted = j->trusted;
    if (g->n > 1) {
        assign.master_address = td_unconst(g->nodes[0]->collective_address);
        assign.master_port = draw_port(j, a, g->nodes[0]);
    }
    add_resume(arena, j, g, &assign);
    add_devices(arena, p, &assign);
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN;
    m.assign = &assign;
    td_core_send(core, td_nodes_find(core, p->node), &m);
}

// "a", "a, b and 14 others"
static void name_nodes(const struct gang *g, char *out, size_t bytes) {
    const char *node = g->n > 1 ? "nodes " : "node ";
    if (g->n <= SHOWN_NODES) {
        size_t len = (size_t)snprintf(out, bytes, "%s", node);
        for (uint32_t i = 0; i < g->n && len < bytes; i++) {
            len +=
                (size_t)snprintf(out + len, bytes - len, "%s%s", i ? ", " : "", g->nodes[i]->name);
        }
    } else {
        snprintf(out, bytes, "%s%s, %s and %u others", node, g->nodes[0]->name, g->nodes[1]->name,
                 g->n - 2);
    }
}

static void say_start(struct td_job *j, const struct td_attempt *a, const struct gang *g) {
    char where[320];
    name_nodes(g, where, sizeof where);
    td_reason_set(&j->reason, j->state == TD_JOB_STARTING ? "STARTING" : "RESTARTING",
                  "attempt %u starts on %s", a->number, where);
    if (j->state == TD_JOB_RECOVERING) {
        const struct td_checkpoint *c = td_catalog_find(j, NULL);
        td_reason_set(&j->reason, "RESTARTING", "attempt %u starts on %s from %s", a->number, where,
                      c ? c->path : "the beginning");
    }
}

static void note_level(struct td_job *j, const struct gang *g) {
    for (uint32_t i = 0; g->level && i < g->n; i++) {
        if (strcmp(g->nodes[i]->cpu_level_held, g->level) == 0) continue;
        td_job_note(j,
                    "all ranks run at CPU level %s, the highest that each of their nodes has; node "
                    "%s has %s",
                    g->level, g->nodes[i]->name, g->nodes[i]->cpu_level_held);
        return;
    }
}

static void take_places(struct td_core *core, const struct td_attempt *a, const struct gang *g) {
    for (uint32_t i = 0; i < g->n; i++) {
        take_slots(core, g->nodes[i], a->parts[i].slots);
        if (a->parts[i].devices) td_host_devices_hold(&g->nodes[i]->devices, a->parts[i].devices);
    }
}

// A host that is cut off is noticed by ranks of others before its lease is over, so that its
// silence has a witness then. But not before TCP has repeated what was lost several times.
static int32_t link_timeout_ms(const struct td_core *core) {
    const int64_t ms = core->options.lease_ns / 4 * 3 / TD_NS_PER_MS;
    return (int32_t)TD_MIN(TD_MAX(ms, (int64_t)LINK_MS_LEAST), (int64_t)LINK_MS_MOST);
}

static struct td_json *names_of(struct td_arena *arena, const struct gang *g) {
    struct td_json *names = td_core_must(td_json_new(arena, TD_JSON_ARRAY));
    for (uint32_t i = 0; i < g->n; i++) {
        char *name = td_core_must(td_arena_strdup(arena, g->nodes[i]->name));
        for (char *c = name; *c; c++) {
            if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?'; // a plan has none
        }
        TD_CHECK(td_json_push(names, td_json_new_string(arena, name)));
    }
    return names;
}

static void start(struct td_core *core, struct td_job *j, struct td_host *place) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_AUTO_FREE char *plan_text = NULL;
    struct td_attempt *a = NULL;
    const struct gang g = find_gang(core, j, place);
    const struct td_checkpoint *newest = td_catalog_find(j, NULL);
    const bool own = newest && newest->registered;
    TD_CHECK(!td_arena_create((size_t)1 << 20, &arena));
    const struct td_plan_run run = {.job = j->id,
                                    .resume_from = own ? newest->directory : NULL,
                                    .attempt = (int32_t)j->n_attempts + 1,
                                    .world_size = (int32_t)j->n_ranks,
                                    .threads_per_rank = (int32_t)g.threads,
                                    .cpu_level = g.level,
                                    .precision = td_plans_precision(g.plan, j),
                                    .nodes = g.n > 1 ? names_of(arena, &g) : NULL,
                                    .link_timeout_ms = g.n > 1 ? link_timeout_ms(core) : 0};
    td_status s = td_plans_text(td_job_plan_spec(j), j->frozen_json, &run, &plan_text);
    if (!s) s = make_attempt(core, j, &g, &a);
    if (s) {
        td_core_fail_job(core, j, TD_CLASS_INTERNAL, td_status_code(s), td_status_message(s));
        td_status_free(s);
        return;
    }
    td_core_meta(core, "epoch", ++core->next_epoch);
    td_core_apply(core, j, TD_JOB_ON_ASSIGN);
    td_jobs_push(&core->live, &core->n_live, &core->cap_live, j);
    say_start(j, a, &g);
    if (g.plan && g.plan->total_steps) j->progress.total_steps = g.plan->total_steps;
    if (a->number == 1) td_plans_note(g.plan, j);
    if (a->number == 1) td_source_note(core, j);
    note_level(j, &g);
    j->progress.phase = 0;
    take_places(core, a, &g);
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        send_assign(core, j, a, &a->parts[i], &g, plan_text);
    }
}

// ---- memory and devices -------------------------------------------------------------------------
// True: the job was ended, because no known node has the memory, or the devices. One that has run
// had them, and waits for them to come back.
static bool too_large(struct td_core *core, struct td_job *j, const struct td_host *place) {
    const struct td_plan_entry *e = td_plans_of(core, j, place);
    const struct td_job_knobs *k = &j->knobs;
    const uint32_t ranks = td_job_node_ranks(j);
    td_status s = td_capacity_memory(core, k->node_labels, ranks, td_plans_holds(e, j) ? e : NULL);
    if (!s && !j->n_attempts) {
        s = td_capacity_kind(core, k->node_labels, k->kind, ranks, &k->resources);
    }
    if (!s && !j->n_attempts) {
        s = td_capacity_devices(core, k->node_labels, ranks, k->accelerator);
    }
    if (!s && !j->n_attempts) s = td_gpu_capacity(core, k->node_labels, ranks, &k->resources);
    if (!s) return false;
    td_core_fail_job(core, j, td_status_class(s), td_status_code(s), td_status_message(s));
    td_reason_set(&j->reason, td_status_reason(s), "%s", td_status_message(s));
    td_status_free(s);
    return true;
}

// ---- a pass -------------------------------------------------------------------------------------
// Its plan is there, or it needs none; where it starts, the plan is fresh. If not, a node is asked,
// unless too many are asked already: a later pass does it then.
static bool planned(struct td_core *core, struct td_job *j, struct td_host *n, bool starts) {
    const struct td_plan_entry *own = td_plans_find(core, td_job_plan_digest(j), n);
    bool fresh = !starts || !own || td_plans_is_fresh(core, own, j, n);
    if (fresh && td_plans_suffice(core, j, n)) {
        td_plans_use(core, td_job_plan_digest(j), n);
        td_host_devices_use(&n->devices, j->knobs.accelerator);
        return true;
    }
    td_status_free(td_plans_want(core, td_job_plan_digest(j), n, "", td_job_plan_spec(j)));
    td_plans_tick(core);
    return false;
}

bool td_queue_lacks_plan(const struct td_core *core, const struct td_job *j) {
    const struct td_match p = td_match_choose(core, j);
    const struct td_host *place = p.node ? p.node : p.nearest;
    return place && !td_plans_suffice(core, j, place);
}

// at: how many wait before it.
static void look(struct td_core *core, struct td_job *j, uint32_t at) {
    if (j->retry_at.ns > core->now.mono.ns) { // BACKING_OFF says it
        wake_at(core, j->retry_at);
        return;
    }
    struct td_match p = td_match_choose(core, j);
    if (td_catalog_pending(j) && core->now.mono.ns < j->hold_until.ns) {
        wake_at(core, j->hold_until);
        keep_place(core, j, &p);
        return;
    }
    struct td_host *place = p.node ? p.node : p.nearest; // now or later
    bool soon = p.node || at < PLAN_AHEAD;
    // One that waits for a checkpoint of another job keeps no slots, which that job may need.
    if (place && soon && !td_source_settle(core, j, p.node != NULL)) return;
    if (place && soon && !planned(core, j, place, p.node != NULL)) {
        if (td_job_state_waits(j->state)) keep_place(core, j, &p);
        return;
    }
    if (too_large(core, j, place)) return;
    if (p.node) {
        start(core, j, p.node);
    } else {
        keep_place(core, j, &p);
    }
}

void td_queue_pass(struct td_core *core) {
    bool moved = core->queue_dirty;
    core->counters[TD_COUNT_PASSES]++;
    if (core->queue_dirty) {
        td_nodes_count(core);
        count_free(core);
        core->n_looked = 0;
        core->queue_wake.ns = INT64_MAX;
    }
    core->queue_dirty = false;
    for (uint32_t i = 0; i < MAX_LOOKS && goes_on(core); i++) {
        struct td_job *j = core->waiting[core->n_looked];
        core->counters[TD_COUNT_LOOKS]++;
        if (td_job_state_waits(j->state) && !td_job_live(j)) look(core, j, core->n_looked);
        td_queue_insert(core, j); // one that starts leaves; the next one comes to where it was
        if (j->turn) core->n_looked++;
    }
    if (moved && core->n_waiting) (void)td_core_act(core, TD_ACTION_QUEUE);
}
