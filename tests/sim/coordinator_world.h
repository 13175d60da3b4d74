#ifndef TRAIND_TESTS_SIM_COORDINATOR_WORLD_H
#define TRAIND_TESTS_SIM_COORDINATOR_WORLD_H

// The world of test_sim_coordinator.c: its state, and the coordinator's shell with a store that
// commits late. coordinator_nodes.h has the other side. Everything random is drawn from one seed.

#include <stdlib.h>

#include "daemon/coordinator/core/catalog/catalog.h"
#include "daemon/coordinator/core/core.h"
#include "tests/unit/coordinator/core/core_check.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/languages.h"
#include "lib/attempt/segments.h"
#include "lib/base/map.h"
#include "lib/job/labels.h"
#include "lib/spec/language.h"
#include "lib/spec/spec.h"
#include "tests/sim/disk.h"
#include "tests/unit/test.h"

enum {
    N_NODES = 3,
    N_JOBS = 12,
    MAX_HELD = 64,
    STEP_MS = 50,
    CHAOS_STEPS = 8000, // 400 s
    CALM_STEPS = 60000,
    MAX_RANKS = 4,
    RECORD = 64,
    N_GANGS = 3,    // specs over several nodes, after those of one
    N_LABELLED = 1, // specs whose nodes have LABEL, after those
    N_SPECS = MAX_RANKS + N_GANGS + N_LABELLED,
    LEASE_MS = 10000, // defaults of the core
    LOST_AFTER_MS = 60000,
    N_VERSIONS = 256,
    STALE_MS = 6000, // a plan is compared, and what it starts is committed, within
};

#define LABEL "role=gold"

static const int64_t lease_ns = LEASE_MS * TD_NS_PER_MS,
                     lost_after_ns = LOST_AFTER_MS * TD_NS_PER_MS;
static const int64_t gang_ends_ns = 5 * TD_NS_PER_S; // once its node can learn of it

struct held { // an attempt on a node: its files, and its launcher while alive
    bool used, alive, ended;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt, first_rank, n_ranks, world, slots;
    uint64_t epoch;
    struct td_buf events;
    uint64_t sent, acked;
    uint64_t metrics[MAX_RANKS], metrics_sent[MAX_RANKS], metrics_acked[MAX_RANKS];
    uint32_t step, last, boundary, saved;
    bool ready, stop_asked, adopted, stream;
    bool met;            // the other ranks of its gang
    int64_t doomed_at;   // its gang has ended, or ends, while its node could learn of it; 0: not
    bool tells_end;      // in each session: its lengths are final
    uint32_t unsent[64]; // steps of checkpoints whose file is to be streamed
    uint32_t n_unsent;
    uint64_t
        put_ticket; // its first one is with the coordinator, whose answer waits for this; 0: no
    int stop_in;    // sim steps until it obeys
    Traind__V1__Stop__Mode mode;
};

struct sim_node {
    char id[8];
    char boot[16];
    uint32_t slots;
    uint64_t session, incarnation;
    bool registered;
    int64_t dial_at, said_at; // to the coordinator, last
    int64_t cut_until;        // its ranks do not reach those of others before
    struct held held[MAX_HELD];
    struct sim_disk disk;
};

struct waiting { // an action or a reply that waits at the gate
    struct waiting *next;
    uint64_t ticket;
    struct td_action *action;
    int created; // index of the job whose creation this acknowledges, or -1
};

struct batch {
    struct batch *next;
    uint64_t ticket;
    int64_t at;
    struct td_record *records;
};

struct points {
    struct points *next;
    int64_t at;
    struct td_points *p;
};

struct job_facts {
    char id[TD_JOB_ID_MAX];
    bool created, acknowledged, deleted;
    int64_t created_ns;
};

struct world {
    uint64_t rng;
    int64_t now_ns;
    bool calm;
    struct td_core *core;
    void (*carry_out)(struct world *w, struct td_action *a); // on the nodes' side
    uint64_t incarnation, ticket, committed;
    struct td_map *rows[TD_RECORD_KIND_COUNT];
    struct td_map *cursors; // "<job>/<attempt>/<rank>" -> uint64_t *
    // Of attempts over several nodes whose checkpoints come to the coordinator: how long a rank's
    // metrics were at a boundary, "<job>/<attempt>/<boundary>/<rank>", and which boundary a
    // checkpoint is of, "<job>/<attempt>/<step>".
    struct td_map *passed, *saved;
    struct td_map *attempts;            // that were seen, "<job>/<attempt>"
    struct td_map *given_up;            // parts that are, "<job>/<attempt>/<part>"
    const struct sim_node *registering; // whose Register is the input
    bool starting;                      // the coordinator reads its rows
    struct batch *batches, **batches_tail;
    struct points *points, **points_tail;
    struct waiting *gate, **gate_tail;
    struct sim_node nodes[N_NODES];
    struct job_facts jobs[N_JOBS];
    char *specs[N_SPECS + 1];
    // The files that plans read: their version, and until when earlier ones were current.
    uint32_t version;
    int64_t version_until[N_VERSIONS];
    uint32_t crashes, assigned, gangs, aborted, forgotten, deleted, resumed, n_given_up, compared,
        stale, cordoned, drained, labelled;
};

static uint64_t draw(struct world *w) { // splitmix64
    uint64_t z = (w->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool chance(struct world *w, uint32_t one_in) {
    return draw(w) % one_in == 0;
}

static struct td_now now(const struct world *w) {
    return (struct td_now){{w->now_ns}, {INT64_C(1700000000) * TD_NS_PER_S + w->now_ns}};
}

// ---- what plans read
// ----------------------------------------------------------------------------- The version that
// the plan is of was current just now, and after the job came. 0: a job that has run starts without
// a plan.
static void check_plan(const struct world *w, const Traind__V1__Assign *m) {
    if (!m->shared_bytes) {
        assert_true(m->id->attempt > 1);
        return;
    }
    const uint64_t version = m->shared_bytes - 1;
    assert_true(version <= w->version);
    if (version == w->version) return;
    assert_true(w->now_ns - w->version_until[version] <= STALE_MS * TD_NS_PER_MS);
    for (int i = 0; i < N_JOBS; i++) {
        if (strcmp(w->jobs[i].id, m->id->job) == 0) {
            assert_true(w->jobs[i].created_ns <= w->version_until[version]);
        }
    }
}

// ---- the coordinator's shell --------------------------------------------------------------------
static void put(struct world *w, struct td_action *action, int created) {
    struct waiting *x = calloc(1, sizeof *x);
    x->ticket = w->ticket;
    x->action = action;
    x->created = created;
    *w->gate_tail = x;
    w->gate_tail = &x->next;
}

static void free_map(struct td_map *m) {
    size_t at = 0;
    const char *key;
    void *value;
    while (td_map_next(m, &at, &key, &value)) {
        free(value);
    }
    td_map_destroy(m);
}

static void keep_number(struct td_map *m, const char *key, uint64_t number) {
    uint64_t *value = calloc(1, sizeof *value);
    void *old = NULL;
    *value = number;
    assert_ok(td_map_put(m, key, value, &old));
    free(old);
}

// ---- what holds after every input ---------------------------------------------------------------
static struct sim_node *node_of(struct world *w, const struct td_attempt_part *p) {
    struct sim_node *n = w->nodes;
    while (strcmp(n->id, p->node) != 0) {
        n++;
        assert_true(n < w->nodes + N_NODES);
    }
    return n;
}

static struct held *held_of(struct sim_node *n, const char *job, uint32_t attempt, uint64_t epoch) {
    for (int i = 0; i < MAX_HELD; i++) {
        struct held *h = &n->held[i];
        if (h->used && h->attempt == attempt && h->epoch == epoch && strcmp(h->job, job) == 0) {
            return h;
        }
    }
    return NULL;
}

static bool is_new(struct td_map *m, const char *key) {
    if (td_map_get(m, key)) return false;
    keep_number(m, key, 1);
    return true;
}

// Another part has said that it lost this one, or was given up before.
static bool is_witnessed(struct world *w, const struct td_job *j, const struct td_attempt *a,
                         uint32_t part) {
    char key[64];
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_attempt_part *p = &a->parts[i];
        snprintf(key, sizeof key, "%s/%u/%u", j->id, a->number, i);
        bool ended = p->state == TD_ATTEMPT_ENDED && p->outcome != TD_OUTCOME_DONE;
        if (i != part && (ended || td_map_get(w->given_up, key))) return true;
    }
    return false;
}

// No part is given up because its node is silent, before the time for that is over. A witness makes
// it the lease. A node that comes back without the part is one at once.
static void check_given_up(struct world *w, const struct td_job *j, const struct td_attempt *a,
                           uint32_t part) {
    char key[64];
    const struct td_attempt_part *p = &a->parts[part];
    struct sim_node *n = node_of(w, p);
    snprintf(key, sizeof key, "%s/%u/%u", j->id, a->number, part);
    if (p->state != TD_ATTEMPT_FENCED || td_map_get(w->given_up, key)) return;
    int64_t silent_ns = w->now_ns - n->said_at;
    bool missing = w->starting || // of before the crash
                   (w->registering == n && !held_of(n, j->id, a->number, a->epoch));
    bool lost = silent_ns >= lease_ns && is_witnessed(w, j, a, part);
    assert_true(missing || lost || silent_ns >= lease_ns + lost_after_ns);
    keep_number(w->given_up, key, 1);
    w->n_given_up += !missing;
}

// A gang starts on all its nodes or on none. No attempt starts on a node that is cordoned.
static void check_start(struct world *w, const struct td_job *j, const struct td_attempt *a) {
    char key[64];
    snprintf(key, sizeof key, "%s/%u", j->id, a->number);
    if (!is_new(w->attempts, key) || w->starting) return;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct td_host *n = td_nodes_find(w->core, a->parts[i].node);
        assert_true(n && n->session && !n->lost); // one that has just fallen silent has it still
        assert_true(!n->cordon.on);
        assert_true(td_labels_have(n->labels, j->knobs.node_labels));
        w->labelled += j->knobs.node_labels[0] != 0;
    }
}

// A checkpoint on its way is given up only when its writer, the part of rank 0, has no more of it.
static void check_dropped(const struct td_job *j) {
    unsigned attempt, step;
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (!strstr(j->notes[i], "was given up before")) continue;
        assert_int_equal(sscanf(j->notes[i], "checkpoint a%u/step-%u is lost", &attempt, &step), 2);
        assert_true(td_attempt_part_over(&td_job_attempt(j, attempt)->parts[0]));
    }
}

static void check_all(struct world *w) {
    assert_ok(td_core_check(w->core));
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        if (!w->jobs[i].id[0]) continue;
        td_status_free(td_core_find_job(w->core, w->jobs[i].id, &j));
        const struct td_attempt *a = j ? td_job_attempt(j, j->n_attempts) : NULL;
        if (!a) continue;
        check_start(w, j, a);
        check_dropped(j);
        for (uint32_t k = 0; k < a->n_parts; k++) {
            check_given_up(w, j, a, k);
        }
    }
}

static void after(struct world *w) {
    check_all(w);
    struct td_core_effects out = td_core_take(w->core);
    if (out.records) {
        struct batch *b = calloc(1, sizeof *b);
        b->ticket = ++w->ticket;
        b->at = w->now_ns + (int64_t)(draw(w) % 200) * TD_NS_PER_MS;
        b->records = out.records;
        *w->batches_tail = b;
        w->batches_tail = &b->next;
    }
    while (out.points) {
        struct points *p = calloc(1, sizeof *p);
        p->p = out.points;
        p->at = w->now_ns + (int64_t)(draw(w) % 1000) * TD_NS_PER_MS;
        out.points = out.points->next;
        p->p->next = NULL;
        *w->points_tail = p;
        w->points_tail = &p->next;
    }
    while (out.actions) {
        struct td_action *a = out.actions;
        out.actions = a->next;
        put(w, a, -1);
    }
}

static void free_value(void *v) {
    free(v);
}

static void commit(struct world *w, struct batch *b) {
    for (struct td_record *r = b->records; r; r = r->next) {
        void *old = NULL;
        if (r->body) {
            assert_ok(td_map_put(w->rows[r->kind], r->key, strdup(r->body), &old));
        } else {
            old = td_map_remove(w->rows[r->kind], r->key);
        }
        free_value(old);
    }
    w->committed = b->ticket;
}

static void free_batch(struct batch *b) {
    struct td_core_effects out = {.records = b->records};
    td_core_effects_finish(&out);
    free(b);
}

static void store_points(struct world *w, const struct td_points *p) {
    char key[64];
    snprintf(key, sizeof key, "%s/%u/%u", p->job, p->attempt, p->rank);
    uint64_t *have = td_map_get(w->cursors, key);
    if (!have) {
        have = calloc(1, sizeof *have);
        assert_ok(td_map_put(w->cursors, key, have, NULL));
    }
    assert_int_equal(p->offset - p->n_points * RECORD, *have); // once, in order
    for (size_t i = 0; i < p->n_points; i++) {
        assert_int_equal(p->points[i].step, *have / RECORD + i + 1);
    }
    *have = p->offset;
}

static void run_store(struct world *w) {
    while (w->batches && w->batches->at <= w->now_ns) {
        struct batch *b = w->batches;
        w->batches = b->next;
        if (!w->batches) w->batches_tail = &w->batches;
        commit(w, b);
        free_batch(b);
    }
    while (w->points && w->points->at <= w->now_ns) {
        struct points *p = w->points;
        w->points = p->next;
        if (!w->points) w->points_tail = &w->points;
        store_points(w, p->p);
        td_core_points_committed(w->core, now(w), p->p->job, p->p->attempt, p->p->rank,
                                 p->p->offset);
        after(w);
        td_points_destroy(p->p);
        free(p);
    }
    while (w->gate && w->gate->ticket <= w->committed) {
        struct waiting *x = w->gate;
        w->gate = x->next;
        if (!w->gate) w->gate_tail = &w->gate;
        if (x->created >= 0) w->jobs[x->created].acknowledged = true;
        if (x->action) w->carry_out(w, x->action);
        free(x);
    }
}

static void drop_pending(struct world *w) {
    while (w->batches) {
        struct batch *b = w->batches;
        w->batches = b->next;
        free_batch(b);
    }
    while (w->points) {
        struct points *p = w->points;
        w->points = p->next;
        td_points_destroy(p->p);
        free(p);
    }
    while (w->gate) {
        struct waiting *x = w->gate;
        w->gate = x->next;
        if (x->action) td_action_destroy(x->action);
        free(x);
    }
    w->batches_tail = &w->batches;
    w->points_tail = &w->points;
    w->gate_tail = &w->gate;
    w->ticket = w->committed;
}

static void lose_session(struct world *w, struct sim_node *n, int64_t away_ms) {
    if (n->session) {
        td_core_session_close(w->core, now(w), n->session);
        after(w);
    }
    n->session = 0;
    n->registered = false;
    n->dial_at = w->now_ns + away_ms * TD_NS_PER_MS;
}

// Nothing of it comes any more, and nobody says so: the core has its session still.
static void fall_silent(struct world *w, struct sim_node *n, int64_t away_ms) {
    n->session = 0;
    n->registered = false;
    n->dial_at = w->now_ns + away_ms * TD_NS_PER_MS;
}

static void load_cursors(struct world *w) {
    size_t at = 0;
    const char *key;
    void *value;
    while (td_map_next(w->cursors, &at, &key, &value)) {
        char job[TD_JOB_ID_MAX];
        unsigned attempt, rank;
        assert_int_equal(sscanf(key, "%15[^/]/%u/%u", job, &attempt, &rank), 3);
        td_core_load_offset(w->core, job, attempt, rank, TRAIND__V1__SEGMENT__KIND__METRICS,
                            *(uint64_t *)value);
    }
}

static void start_core(struct world *w) {
    static const enum td_record_kind order[] = {
        TD_RECORD_META,  TD_RECORD_NODE,    TD_RECORD_NODE_ADMIN, TD_RECORD_PLAN,
        TD_RECORD_JOB,   TD_RECORD_SPEC,    TD_RECORD_ATTEMPT,    TD_RECORD_CHECKPOINT,
        TD_RECORD_SHARD, TD_RECORD_REQUEST, TD_RECORD_LEAVING,    TD_RECORD_REMOVAL};
    const struct td_core_options o = {.incarnation = ++w->incarnation,
                                      .checkpoint_dir = "/c",
                                      .lease_ns = lease_ns,
                                      .lost_after_ns = lost_after_ns};
    assert_ok(td_core_create(&o, &w->core));
    for (size_t k = 0; k < TD_COUNTOF(order); k++) {
        size_t at = 0;
        const char *key;
        void *body;
        while (td_map_next(w->rows[order[k]], &at, &key, &body)) {
            assert_ok(td_core_load(w->core, order[k], key, body));
        }
    }
    load_cursors(w);
    td_core_start(w->core, now(w));
    after(w);
}

static inline void crash(struct world *w) {
    w->crashes++;
    for (int i = 0; i < N_NODES; i++) {
        w->nodes[i].session = 0;
        w->nodes[i].registered = false;
        w->nodes[i].dial_at = w->now_ns + (int64_t)(draw(w) % 2000) * TD_NS_PER_MS;
        for (int k = 0; k < MAX_HELD; k++) {
            w->nodes[i].held[k].put_ticket = 0; // nobody answers
        }
    }
    drop_pending(w);
    td_core_destroy(w->core);
    free_map(w->attempts); // what was not committed never was
    free_map(w->given_up);
    assert_ok(td_map_create(100000, &w->attempts));
    assert_ok(td_map_create(100000, &w->given_up));
    w->starting = true;
    start_core(w);
    w->starting = false;
    for (int i = 0; i < N_JOBS; i++) {
        const struct td_job *j = NULL;
        if (w->jobs[i].deleted) { // or the crash took the delete back
            td_status_free(td_core_find_job(w->core, w->jobs[i].id, &j));
            w->jobs[i].deleted = j == NULL;
            continue;
        }
        if (w->jobs[i].acknowledged) assert_ok(td_core_find_job(w->core, w->jobs[i].id, &j));
        if (!w->jobs[i].acknowledged) w->jobs[i].created = false; // the client sees an error
        if (j) w->jobs[i].created = true;
    }
}

// Nodes are of the build under test.
static inline void set_build(Traind__V1__Register *r) {
    static char language[TD_DIGEST_HEX];
    td_spec_language(language);
    r->plan_language = language;
    r->ranks_language = TD_RANKS_LANGUAGE;
    r->launcher_major = TD_LAUNCHER_MAJOR;
}

#endif
