// The queue: which waiting job gets which node, and why the others wait.
//
// Gangs: all ranks of a job start together, on one node (num_nodes above 1 is refused by the spec).
// Order: RECOVERING jobs, then QUEUED ones, each by the time they began to wait; one that is still
// being planned, or whose last checkpoint is on its way (a minute at most), keeps the slots it
// would take. The first job that
// does not fit reserves the node that is nearest to fitting it: later, smaller jobs may run
// elsewhere, but not there, so that it drains and nobody starves. A node is best-fit: the least
// free slots that suffice, first the one that has the newest checkpoint. A node without the CPU
// level that the job asks for is left out where another has it. A node that lost a
// launcher of the job is avoided while another known node is large enough.
//
// Reasons with numbers are set by each pass and told as progress, not stored: the next pass finds
// them again.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core_state.h"
#include "lib/base/cpu_level.h"

enum { MAX_RESUME = 8 };

static uint32_t slots_needed(const struct td_job *j, const struct td_host *n) {
    int32_t per_rank = td_spec_slots(&j->spec, (int32_t)n->cores, (int32_t)n->slots);
    return j->n_ranks * (uint32_t)TD_MAX(per_rank, 1);
}

static uint32_t free_slots(const struct td_host *n) {
    return n->used < n->slots ? n->slots - n->used : 0;
}

// ---- can it ever? -------------------------------------------------------------------------------
td_status td_queue_check(struct td_core *core, const struct td_job *j) {
    uint32_t most = 0, least = UINT32_MAX;
    const struct td_host *largest = NULL;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        uint32_t needed = slots_needed(j, n);
        if (needed <= n->slots) return TD_OK;
        least = TD_MIN(least, needed);
        if (n->slots > most) {
            most = n->slots;
            largest = n;
        }
    }
    if (!largest) return TD_OK; // no node is known yet: it waits
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "%u ranks need %u slots on one node; the largest known node (%s) has %u. "
                          "Ask for fewer devices or threads, or start a larger node",
                          j->n_ranks, least, largest->name, most);
    s = td_status_with_class(td_status_with_reason(s, "UNSATISFIABLE"), TD_CLASS_BAD_SPEC);
    s = td_status_with_meta(s, "needed_slots", "%u", least);
    return td_status_with_meta(s, "largest_node_slots", "%u", most);
}

// ---- where? -------------------------------------------------------------------------------------
struct choice {
    struct td_host *node;    // to run on now; NULL: none
    struct td_host *nearest; // could hold it, and comes nearest to it
    uint32_t needed, free;   // of nearest
    bool any_ready;
    bool away; // its newest checkpoint lies on a node that is not ready
};

// Its newest checkpoint is on one node only: that node, or nothing.
static const char *pinned(const struct td_job *j) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    if (!c || c->streamed || j->spec.checkpoint.dir[0]) return NULL;
    return c->node;
}

// trainer.cpu_level; of a job without a spec (its record was lost), "".
static const char *level_asked(const struct td_job *j) {
    return j->spec.trainer.cpu_level ? j->spec.trainer.cpu_level : "";
}

// A known node has the CPU level that the job asks for: those that do not are left out. Where none
// has, any will do to say so, and what it has.
static bool some_has_level(const struct td_core *core, const struct td_job *j) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        if (td_host_has_level(value, level_asked(j))) return true;
    }
    return false;
}

static bool lacks_level(const struct td_job *j, const struct td_host *n, bool picky) {
    return picky && !td_host_has_level(n, level_asked(j));
}

static bool other_fits(struct td_core *core, const struct td_job *j, bool picky) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        if (td_host_ready(n) && !lacks_level(j, n, picky) && !td_job_excludes(j, n->id) &&
            slots_needed(j, n) <= n->slots) {
            return true;
        }
    }
    return false;
}

static bool better(const struct td_job *j, const struct td_host *a, const struct td_host *b) {
    const struct td_checkpoint *c = td_catalog_find(j, NULL);
    bool a_has = c && strcmp(c->node, a->id) == 0, b_has = c && strcmp(c->node, b->id) == 0;
    if (a_has != b_has) return a_has;
    return free_slots(a) < free_slots(b);
}

static struct choice choose(struct td_core *core, const struct td_job *j) {
    struct choice c = {0};
    const char *only = pinned(j);
    bool picky = some_has_level(core, j);
    bool avoid = !only && j->n_excluded && other_fits(core, j, picky);
    size_t cursor = 0;
    const char *key;
    void *value;
    uint32_t least_missing = UINT32_MAX;
    c.away = only != NULL;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        struct td_host *n = value;
        if (!td_host_ready(n)) continue;
        c.any_ready = true;
        if (only && strcmp(only, n->id) != 0) continue;
        c.away = false;
        if (avoid && td_job_excludes(j, n->id)) continue;
        if (lacks_level(j, n, picky)) continue;
        uint32_t needed = slots_needed(j, n);
        if (needed > n->slots) continue;
        uint32_t have = n->settling || n->reserved ? 0 : free_slots(n);
        if (needed <= have) {
            if (!c.node || better(j, n, c.node)) c.node = n;
        } else if (needed - have < least_missing) {
            least_missing = needed - have;
            c.nearest = n;
            c.needed = needed;
            c.free = have;
        }
    }
    return c;
}

// What was planned for its CPU level, else for another's: bytes that ranks share are the same.
static const struct td_plan_entry *plan_on(const struct td_core *core, const struct td_job *j,
                                           const struct td_host *n) {
    const struct td_plan_entry *p = n ? td_plans_find(core, j->spec_digest, n) : NULL;
    return p ? p : td_plans_find(core, j->spec_digest, NULL);
}

// ---- start --------------------------------------------------------------------------------------
static void add_resume(struct td_arena *arena, const struct td_job *j, const struct td_host *n,
                       Traind__V1__Assign *assign) {
    assign->resume = td_core_must(td_arena_array(arena, MAX_RESUME, sizeof *assign->resume));
    for (uint32_t i = j->n_checkpoints; i-- > 0 && assign->n_resume < MAX_RESUME;) {
        const struct td_checkpoint *c = j->checkpoints[i];
        bool shared = j->spec.checkpoint.dir[0] != '\0';
        if (!c->committed || c->damage || (!shared && !td_catalog_reachable(c, n->id))) continue;
        Traind__V1__ResumeSource *r = td_core_must(td_arena_alloc(arena, sizeof *r));
        traind__v1__resume_source__init(r);
        r->path = (char *)(uintptr_t)c->path;
        r->step = c->step;
        r->fetch = c->streamed;
        assign->resume[assign->n_resume++] = r;
    }
}

static bool wants_stream(const struct td_job *j, const struct td_host *n) {
    return strcmp(j->spec.checkpoint.store, "fs") != 0 && !n->embedded; // stream or auto
}

static td_status make_attempt(struct td_core *core, struct td_job *j, const struct td_host *n,
                              struct td_attempt **out_attempt) {
    TD_AUTO(td_attempt) *a = NULL;
    TD_TRY(td_attempt_create(j->n_attempts + 1, j->n_ranks, &a));
    a->epoch = core->next_epoch;
    snprintf(a->node, sizeof a->node, "%s", n->id);
    a->slots = slots_needed(j, n);
    a->stream = wants_stream(j, n);
    *out_attempt = a;
    return td_job_add_attempt(j, td_steal(a));
}

static void send_assign(struct td_core *core, struct td_job *j, struct td_attempt *a,
                        struct td_host *n, char *plan_text, uint32_t threads) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_CHECK(!td_arena_create((size_t)1 << 20, &arena));
    Traind__V1__AttemptId id;
    td_core_attempt_id(j, a, &id);
    const struct td_plan_entry *plan = plan_on(core, j, n);
    Traind__V1__Assign assign = TRAIND__V1__ASSIGN__INIT;
    assign.id = &id;
    assign.plan_json = plan_text;
    assign.world_size = j->n_ranks;
    assign.n_ranks = j->n_ranks;
    assign.slots_per_rank = a->slots / j->n_ranks;
    assign.threads_per_rank = threads;
    assign.shared_bytes = plan ? plan->shared_bytes : 0;
    int64_t limit = j->spec.resources.memory_bytes;
    assign.memory_limit_bytes = limit > 0 ? (uint64_t)limit * j->n_ranks : 0;
    assign.stream_store = a->stream;
    add_resume(arena, j, n, &assign);
    Traind__V1__CoordinatorMessage m = TRAIND__V1__COORDINATOR_MESSAGE__INIT;
    m.body_case = TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN;
    m.assign = &assign;
    td_core_send(core, n, &m);
}

static void start(struct td_core *core, struct td_job *j, struct td_host *n) {
    TD_AUTO_FREE char *plan_text = NULL;
    uint32_t threads = 1;
    struct td_attempt *a = NULL;
    const struct td_plan_entry *plan = plan_on(core, j, n);
    td_status s = td_plans_text(j->id, j->n_attempts + 1, j->spec_json, j->frozen_json,
                                td_plans_precision(plan, j), n, &plan_text, &threads);
    if (!s) s = make_attempt(core, j, n, &a);
    if (s) {
        td_core_fail_job(core, j, TD_CLASS_INTERNAL, td_status_code(s), td_status_message(s));
        td_status_free(s);
        return;
    }
    td_core_meta(core, "epoch", ++core->next_epoch);
    td_core_apply(core, j, TD_JOB_ON_ASSIGN);
    td_reason_set(&j->reason, j->state == TD_JOB_STARTING ? "STARTING" : "RESTARTING",
                  "attempt %u starts on node %s", a->number, n->name);
    if (j->state == TD_JOB_RECOVERING) {
        const struct td_checkpoint *c = td_catalog_find(j, NULL);
        td_reason_set(&j->reason, "RESTARTING", "attempt %u starts on node %s from %s", a->number,
                      n->name, c ? c->path : "the beginning");
    }
    if (plan && plan->total_steps) j->progress.total_steps = plan->total_steps;
    if (a->number == 1) td_plans_note(plan, j);
    j->progress.phase = 0;
    n->used += a->slots;
    td_core_touch(core, j);
    td_core_save_attempt(core, j, a);
    send_assign(core, j, a, n, plan_text, threads);
}

// ---- why not ------------------------------------------------------------------------------------
static void set_reason(struct td_core *core, struct td_job *j, const struct td_reason *r) {
    if (memcmp(&j->reason, r, sizeof *r) == 0) return;
    j->reason = *r;
    td_core_progress(core, j);
}

// Why its last attempt ended is worth knowing until something can be done about it.
static bool told_by_an_end(const struct td_job *j) {
    static const char *const codes[] = {"DAEMON_STOPPED", "LAUNCHER_UPGRADED", "STOPPED_ON_NODE"};
    for (size_t i = 0; i < TD_COUNTOF(codes); i++) {
        if (strcmp(j->reason.code, codes[i]) == 0) return true;
    }
    return false;
}

static void explain(struct td_core *core, struct td_job *j, const struct choice *c,
                    uint32_t position) {
    struct td_reason r;
    if (told_by_an_end(j) && (core->draining || !c->any_ready)) return; // that says more
    if (core->draining) {
        td_reason_set(&r, "DRAINING", "the coordinator is stopping");
    } else if (!td_map_count(core->nodes) || (!c->any_ready && !c->away)) {
        td_reason_set(&r, "NO_NODES", "%s",
                      td_map_count(core->nodes) ? "no node is connected"
                                                : "no node has registered yet");
    } else if (c->away) {
        const struct td_checkpoint *cp = td_catalog_find(j, NULL);
        td_reason_set(&r, "WAITING_FOR_NODE", "its checkpoint %s is on node %s, which is away",
                      cp->path, cp->node);
    } else if (!c->nearest) {
        enum td_cpu_level level;
        const char *name = level_asked(j);
        bool asks = td_cpu_level_parse(name, &level);
        td_reason_set(&r, "WAITING_FOR_NODE", "no connected node%s%s is large enough for %u ranks",
                      asks ? " with CPU level " : "", asks ? name : "", j->n_ranks);
    } else {
        td_reason_set(&r, "WAITING_FOR_SLOTS", "needs %u slot%s, %u free on node %s (%u slots)",
                      c->needed, c->needed == 1 ? "" : "s", c->free, c->nearest->name,
                      c->nearest->slots);
        r.needed_slots = c->needed;
        r.free_slots = c->free;
    }
    r.position = position;
    set_reason(core, j, &r);
}

static void explain_plan(struct td_core *core, struct td_job *j, uint32_t position) {
    struct td_reason r;
    td_reason_set(&r, "PLANNING", "a node works out its memory and steps");
    r.position = position;
    set_reason(core, j, &r);
}

// ---- memory -------------------------------------------------------------------------------------
// True: the job was ended, because no known node has the memory.
static bool too_large(struct td_core *core, struct td_job *j, const struct td_host *place) {
    const struct td_plan_entry *p = plan_on(core, j, place);
    if (!p || !p->memory_bytes) return false;
    uint64_t needed = p->memory_bytes * j->n_ranks + p->shared_bytes, most = 0;
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->nodes, &cursor, &key, &value)) {
        const struct td_host *n = value;
        most = TD_MAX(most, n->memory_bytes ? n->memory_bytes : UINT64_MAX);
    }
    if (!most || needed <= most) return false;
    char why[320];
    snprintf(why, sizeof why,
             "UNSATISFIABLE: %u %s %" PRIu64 " MiB, the largest known node has %" PRIu64
             " MiB; lower trainer.devices, data.batch_size or the model's sizes, %sor add a node "
             "with more",
             j->n_ranks, j->n_ranks == 1 ? "rank needs" : "ranks need", needed >> 20, most >> 20,
             p->recomputes_all ? "" : "set trainer.recompute: full, ");
    td_core_fail_job(core, j, TD_CLASS_OUT_OF_MEMORY, TD_FAILED_PRECONDITION, why);
    td_reason_set(&j->reason, "UNSATISFIABLE", "%s", why);
    return true;
}

// ---- a pass -------------------------------------------------------------------------------------
static int by_turn(const void *a, const void *b) {
    const struct td_job *x = *(struct td_job *const *)a, *y = *(struct td_job *const *)b;
    bool xr = x->state == TD_JOB_RECOVERING, yr = y->state == TD_JOB_RECOVERING;
    if (xr != yr) return xr ? -1 : 1;
    return x->queue_seq < y->queue_seq ? -1 : x->queue_seq > y->queue_seq;
}

static bool planned(struct td_core *core, struct td_job *j, const struct td_host *n) {
    bool settled = j->frozen_json || !td_plans_settles(j); // else ranks would not know what to do
    if ((j->n_attempts && settled) || td_plans_find(core, j->spec_digest, n)) {
        return true;
    }
    td_status_free(td_plans_want(core, j->spec_digest, n->cpu_level_held, "",
                                 j->spec_json)); // full: a later pass asks
    td_plans_tick(core);
    return false;
}

// In this pass: a later job, whose plan is known already, does not take its slots.
static void keep_place(const struct td_job *j, const struct choice *c) {
    if (c->node) {
        c->node->used += slots_needed(j, c->node);
    } else if (c->nearest) {
        c->nearest->reserved = 1;
    }
}

static void try_job(struct td_core *core, struct td_job *j, uint32_t position) {
    if (j->retry_at.ns > core->now.mono.ns) return; // BACKING_OFF says it
    struct choice c = choose(core, j);
    if (td_catalog_pending(j) && core->now.mono.ns < j->hold_until.ns) {
        struct td_reason r;
        td_reason_set(&r, "SAVING_CHECKPOINT", "its last checkpoint is on its way");
        r.position = position;
        set_reason(core, j, &r);
        keep_place(j, &c);
        return;
    }
    const struct td_host *place = c.node ? c.node : c.nearest; // now or later
    if (place && !core->draining && !planned(core, j, place)) {
        if (!td_job_state_waits(j->state)) return;
        explain_plan(core, j, position);
        keep_place(j, &c);
        return;
    }
    if (too_large(core, j, place)) return;
    if (c.node && !core->draining) {
        start(core, j, c.node);
        return;
    }
    explain(core, j, &c, position);
    keep_place(j, &c);
}

void td_queue_pass(struct td_core *core) {
    core->queue_dirty = false;
    td_nodes_count(core);
    struct td_job **turn = td_core_must(malloc((core->n_active + 1) * sizeof(struct td_job *)));
    uint32_t n = 0;
    for (uint32_t i = 0; i < core->n_active; i++) {
        struct td_job *j = core->active[i];
        if (td_job_state_waits(j->state) && !td_job_live(j)) turn[n++] = j;
    }
    qsort(turn, n, sizeof(struct td_job *), by_turn);
    for (uint32_t i = 0; i < n; i++) {
        if (td_job_state_waits(turn[i]->state)) try_job(core, turn[i], i + 1);
    }
    free(turn);
    core->queue_dirty = false; // a start marks it, but this pass has seen all
}
