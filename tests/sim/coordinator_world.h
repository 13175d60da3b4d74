#ifndef TRAIND_TESTS_SIM_COORDINATOR_WORLD_H
#define TRAIND_TESTS_SIM_COORDINATOR_WORLD_H

// The world of test_sim_coordinator.c: its state, and the coordinator's shell with a store that
// commits late. coordinator_nodes.h has the other side. Everything random is drawn from one seed.

#include <stdlib.h>

#include "daemon/coordinator/core/catalog.h"
#include "daemon/coordinator/core/core.h"
#include "lib/attempt/rank_page.h"
#include "lib/base/map.h"
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
};

struct held { // an attempt on a node: its files, and its launcher while alive
    bool used, alive, ended;
    char job[TD_JOB_ID_MAX];
    uint32_t attempt, n_ranks, slots;
    uint64_t epoch;
    struct td_buf events;
    uint64_t sent, acked;
    uint64_t metrics[MAX_RANKS], metrics_sent[MAX_RANKS], metrics_acked[MAX_RANKS];
    uint32_t step, last;
    bool ready, stop_asked, adopted, stream;
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
    int64_t dial_at;
    struct held held[MAX_HELD];
    struct sim_disk disk;
};

struct waiting { // an action or a reply behind the gate
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
};

struct world {
    uint64_t rng;
    int64_t now_ns;
    bool calm;
    struct td_core *core;
    uint64_t incarnation, ticket, committed;
    struct td_map *rows[TD_RECORD_KIND_COUNT];
    struct td_map *cursors; // "<job>/<attempt>/<rank>" -> uint64_t *
    struct batch *batches, **batches_tail;
    struct points *points, **points_tail;
    struct waiting *gate, **gate_tail;
    struct sim_node nodes[N_NODES];
    struct job_facts jobs[N_JOBS];
    char *specs[MAX_RANKS + 1];
    uint32_t crashes, assigned, forgotten, deleted;
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

// ---- the coordinator's shell --------------------------------------------------------------------
static void carry_out(struct world *w, struct td_action *a);

static void put(struct world *w, struct td_action *action, int created) {
    struct waiting *x = calloc(1, sizeof *x);
    x->ticket = w->ticket;
    x->action = action;
    x->created = created;
    *w->gate_tail = x;
    w->gate_tail = &x->next;
}

static void after(struct world *w) {
    struct td_core_out out = td_core_take(w->core);
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
    struct td_core_out out = {.records = b->records};
    td_core_out_finish(&out);
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
        if (x->action) carry_out(w, x->action);
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
        TD_RECORD_META,    TD_RECORD_NODE,    TD_RECORD_PLAN,       TD_RECORD_JOB,
        TD_RECORD_SPEC,    TD_RECORD_ATTEMPT, TD_RECORD_CHECKPOINT, TD_RECORD_SHARD,
        TD_RECORD_REQUEST, TD_RECORD_LEAVING, TD_RECORD_REMOVAL};
    const struct td_core_options o = {.incarnation = ++w->incarnation, .checkpoint_dir = "/c"};
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

static void crash(struct world *w) {
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
    start_core(w);
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

// ---- nodes --------------------------------------------------------------------------------------
static void to_core(struct world *w, struct sim_node *n, Traind__V1__NodeMessage *m) {
    m->incarnation = n->incarnation;
    td_core_session_message(w->core, now(w), n->session, m);
    after(w);
}

static void line(struct held *h, const char *fmt, ...) TD_PRINTF(2, 3);
static void line(struct held *h, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert_ok(td_buf_printf(&h->events, "%s\n", text));
}

static struct held *find_held(struct sim_node *n, const Traind__V1__AttemptId *id) {
    for (int i = 0; i < MAX_HELD; i++) {
        struct held *h = &n->held[i];
        if (h->used && h->attempt == id->attempt && h->epoch == id->epoch &&
            strcmp(h->job, id->job) == 0) {
            return h;
        }
    }
    return NULL;
}

static void drop_held(struct held *h) {
    td_buf_finish(&h->events);
    memset(h, 0, sizeof *h);
}

static uint32_t used_slots(const struct sim_node *n) {
    uint32_t used = 0;
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) used += n->held[i].slots;
    }
    return used;
}

static void end_attempt(struct held *h, const char *outcome, const char *cls) {
    if (strcmp(outcome, "failed") == 0) {
        line(h,
             "{\"event\":\"end\",\"rank\":0,\"outcome\":\"failed\",\"class\":\"%s\","
             "\"code\":\"INTERNAL\",\"message\":\"sim\",\"step\":%u}",
             cls, h->step);
    }
    line(h,
         "{\"event\":\"launcher_end\",\"outcome\":\"%s\",\"rank\":0,\"class\":\"%s\","
         "\"code\":\"INTERNAL\",\"message\":\"sim\"}",
         outcome, cls);
    h->alive = false;
    h->ended = true;
}

static void lose_launcher(struct held *h, const char *cls) {
    line(h, "{\"event\":\"launcher_lost\",\"class\":\"%s\",\"message\":\"killed\"}", cls);
    h->alive = false;
    h->ended = true;
}

static void save(struct sim_node *n, struct held *h) {
    sim_disk_write(&n->disk, h->job, h->attempt, h->step);
    line(h,
         "{\"event\":\"checkpoint\",\"rank\":0,\"step\":%u,\"epoch\":0,\"path\":\"a%u/step-%u\","
         "\"bytes\":1,\"files\":[{\"name\":\"m\",\"bytes\":1,"
         "\"digest\":\"00000000000000000000000000000000\"}]}",
         h->step, h->attempt, h->step);
    if (h->stream && h->n_unsent < TD_COUNTOF(h->unsent)) h->unsent[h->n_unsent++] = h->step;
}

// No two attempts of a job train unless the older one is fenced: the core knows that it is.
static void check_single(struct world *w, const Traind__V1__AttemptId *id) {
    const struct td_job *j = NULL;
    td_status_free(td_core_find_job(w->core, id->job, &j));
    if (!j) return; // deleted with the message on its way
    for (int n = 0; n < N_NODES; n++) {
        for (int i = 0; i < MAX_HELD; i++) {
            const struct held *h = &w->nodes[n].held[i];
            if (!h->used || !h->alive || strcmp(h->job, id->job) != 0) continue;
            if (h->attempt == id->attempt) continue;
            assert_int_equal(td_job_attempt(j, h->attempt)->state, TD_ATTEMPT_FENCED);
        }
    }
}

static void on_assign(struct world *w, struct sim_node *n, const Traind__V1__Assign *m) {
    check_single(w, m->id);
    assert_null(find_held(n, m->id));
    uint32_t needed = m->n_ranks * m->slots_per_rank;
    assert_true(used_slots(n) + needed <= n->slots);
    struct held *h = n->held;
    while (h->used) {
        h++;
        assert_true(h < n->held + MAX_HELD);
    }
    td_buf_init(&h->events, 1 << 20);
    h->used = h->alive = h->adopted = true;
    snprintf(h->job, sizeof h->job, "%s", m->id->job);
    h->attempt = m->id->attempt;
    h->epoch = m->id->epoch;
    h->n_ranks = m->n_ranks;
    h->slots = needed;
    h->stream = m->stream_store;
    h->step = m->n_resume ? m->resume[0]->step : 0;
    h->last = 20 + (uint32_t)(draw(w) % 100);
    if (h->last <= h->step) h->last = h->step + 1;
    line(h, "{\"event\":\"launched\",\"pid\":1}");
    w->assigned++;
}

static void on_stop(struct world *w, struct sim_node *n, const Traind__V1__Stop *m) {
    struct held *h = find_held(n, m->id);
    if (!h || !h->alive) return;
    h->stop_asked = true;
    h->mode = m->mode;
    h->stop_in = (int)(draw(w) % 20);
}

static void on_registered(struct sim_node *n, const Traind__V1__Registered *m) {
    n->registered = true;
    for (size_t i = 0; i < m->n_adopt; i++) {
        struct held *h = find_held(n, m->adopt[i]->id);
        assert_non_null(h);
        h->adopted = h->tells_end = true;
        for (size_t o = 0; o < m->adopt[i]->n_offsets; o++) {
            const Traind__V1__SegmentOffset *s = m->adopt[i]->offsets[o];
            if (s->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) h->sent = h->acked = s->offset;
            if (s->kind == TRAIND__V1__SEGMENT__KIND__METRICS) {
                h->metrics_sent[s->rank] = h->metrics_acked[s->rank] = s->offset;
            }
        }
    }
    for (size_t i = 0; i < m->n_stop; i++) { // fenced: at once, and nothing of it is sent
        struct held *h = find_held(n, m->stop[i]);
        if (h) drop_held(h);
    }
}

static bool is_deleted(const struct world *w, const char *job) {
    for (int i = 0; i < N_JOBS; i++) {
        if (strcmp(w->jobs[i].id, job) == 0) return w->jobs[i].deleted;
    }
    return false;
}

static void on_forget(struct world *w, struct sim_node *n, const Traind__V1__Forget *m) {
    struct held *h = find_held(n, m->id);
    if (is_deleted(w, m->id->job)) { // whatever it still had to report
        if (h) drop_held(h);
        return;
    }
    assert_non_null(h);
    assert_false(h->alive);
    assert_int_equal(h->acked, h->events.len);
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        char key[64];
        snprintf(key, sizeof key, "%s/%u/%u", h->job, h->attempt, r);
        const uint64_t *have = td_map_get(w->cursors, key);
        assert_int_equal(have ? *have : 0, h->metrics[r]);
    }
    drop_held(h);
    w->forgotten++;
}

static void on_ack(struct sim_node *n, const Traind__V1__SegmentAck *m) {
    struct held *h = find_held(n, m->id);
    if (!h) return;
    if (m->kind == TRAIND__V1__SEGMENT__KIND__EVENTS) {
        assert_true(m->offset <= h->events.len);
        h->acked = m->offset;
    } else {
        h->metrics_acked[m->rank] = m->offset;
    }
}

static void on_plan(struct world *w, struct sim_node *n, const Traind__V1__PlanRequest *m) {
    Traind__V1__PlanResult r = TRAIND__V1__PLAN_RESULT__INIT;
    Traind__V1__NodeMessage out = TRAIND__V1__NODE_MESSAGE__INIT;
    char empty[] = "", result[] = "{\"state_bytes\":10,\"total_steps\":100}", cls[] = "internal";
    r.request = m->request;
    r.result_json = chance(w, 4) && !w->calm ? empty : result;
    r.class_ = cls;
    out.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    out.plan_result = &r;
    to_core(w, n, &out);
}

// ---- reconcile ----------------------------------------------------------------------------------
static bool is_held(const struct sim_node *n, const Traind__V1__Reconcile *m) {
    for (int i = 0; i < MAX_HELD; i++) {
        const struct held *h = &n->held[i];
        if (h->used && strcmp(h->job, m->job) == 0 && sim_disk_is_over(m, h->attempt)) return true;
    }
    return false;
}

static void reconcile_some(struct world *w, struct sim_node *n) {
    for (int i = 0; i < SIM_DISK_WAITING; i++) {
        Traind__V1__CoordinatorMessage *m = n->disk.waiting[i];
        if (!m || !n->session || is_held(n, m->reconcile) || !chance(w, 3)) continue;
        if (!sim_disk_is_first(&n->disk, m->reconcile)) continue;
        n->disk.waiting[i] = NULL;
        sim_disk_carry_out(&n->disk, m->reconcile);
        Traind__V1__Reconciled r = TRAIND__V1__RECONCILED__INIT;
        Traind__V1__NodeMessage out = TRAIND__V1__NODE_MESSAGE__INIT;
        r.request = m->reconcile->request;
        r.job = m->reconcile->job;
        out.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
        out.reconciled = &r;
        to_core(w, n, &out);
        traind__v1__coordinator_message__free_unpacked(m, NULL);
    }
}

static void to_node(struct world *w, struct sim_node *n, const Traind__V1__CoordinatorMessage *m) {
    n->incarnation = m->incarnation;
    switch (m->body_case) {
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED:
        on_registered(n, m->registered);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN:
        on_assign(w, n, m->assign);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP:
        on_stop(w, n, m->stop);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_FORGET:
        on_forget(w, n, m->forget);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_SEGMENT_ACK:
        on_ack(n, m->segment_ack);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST:
        on_plan(w, n, m->plan_request);
        break;
    case TRAIND__V1__COORDINATOR_MESSAGE__BODY_RECONCILE:
        assert_true(n->registered);
        sim_disk_keep(&n->disk, m);
        break;
    default:
        fail();
    }
}

static void carry_out(struct world *w, struct td_action *a) {
    if (a->kind == TD_ACTION_FORGET) { // the disk may refuse; then the next start asks again
        td_core_forgotten(w->core, now(w), a->job, w->calm || !chance(w, 4));
        after(w);
    }
    for (int i = 0; i < N_NODES && a->session; i++) {
        struct sim_node *n = &w->nodes[i];
        if (n->session != a->session) continue;
        if (a->kind == TD_ACTION_CLOSE) {
            lose_session(w, n, 500);
        } else if (chance(w, 400) && !w->calm) {
            lose_session(w, n, 1000); // it broke with the message in flight
        } else {
            to_node(w, n, a->message);
        }
        break;
    }
    td_action_destroy(a);
}

static void dial(struct world *w, struct sim_node *n) {
    sim_disk_drop(&n->disk); // of an earlier session
    n->session = td_core_session_open(w->core, now(w), false);
    Traind__V1__AttemptHeld held[MAX_HELD], *list[MAX_HELD];
    Traind__V1__AttemptId ids[MAX_HELD];
    Traind__V1__Register r = TRAIND__V1__REGISTER__INIT;
    for (int i = 0; i < MAX_HELD; i++) {
        struct held *h = &n->held[i];
        if (!h->used) continue;
        h->adopted = false;
        size_t k = r.n_attempts++;
        traind__v1__attempt_id__init(&ids[k]);
        traind__v1__attempt_held__init(&held[k]);
        ids[k].job = h->job;
        ids[k].attempt = h->attempt;
        ids[k].epoch = h->epoch;
        held[k].id = &ids[k];
        held[k].alive = h->alive;
        held[k].launcher_major = 1;
        list[k] = &held[k];
    }
    r.attempts = list;
    r.node_id = r.name = n->id;
    r.boot_id = n->boot;
    r.launcher_major = 1;
    r.cores = r.slots = n->slots;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &r;
    to_core(w, n, &m);
}

static void train(struct world *w, struct sim_node *n, struct held *h) {
    if (!h->ready) {
        if (!chance(w, 4)) return;
        for (uint32_t r = 0; r < h->n_ranks; r++) {
            line(h, "{\"event\":\"ready\",\"rank\":%u,\"pid\":1}", r);
        }
        h->ready = true;
    }
    if (h->stop_asked && h->stop_in-- <= 0) {
        bool save_first = h->mode == TRAIND__V1__STOP__MODE__CHECKPOINT;
        if (save_first && h->step) save(n, h);
        end_attempt(h, h->mode == TRAIND__V1__STOP__MODE__KILL ? "killed" : "stopped", "none");
        return;
    }
    if (!chance(w, 3)) return;
    h->step++;
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        h->metrics[r] += RECORD;
    }
    if (h->step % 10 == 0) {
        save(n, h);
    } else if (h->step % 10 == 5) {
        sim_disk_write(&n->disk, h->job, h->attempt, h->step); // of which no event came: an orphan
    }
    if (h->step >= h->last) {
        save(n, h);
        end_attempt(h, "done", "none");
    } else if (chance(w, 300) && !w->calm) {
        end_attempt(h, "failed", chance(w, 2) ? "internal" : "collective");
    } else if (chance(w, 400) && !w->calm) {
        lose_launcher(h, "internal");
    }
}

static void send_segment(struct world *w, struct sim_node *n, const struct held *h,
                         Traind__V1__Segment__Kind kind, uint32_t rank, uint64_t offset,
                         const void *data, size_t bytes) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    id.job = td_unconst(h->job);
    id.attempt = h->attempt;
    id.epoch = h->epoch;
    s.id = &id;
    s.kind = kind;
    s.rank = rank;
    s.offset = offset;
    s.data.data = td_unconst(data);
    s.data.len = bytes;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    to_core(w, n, &m);
}

static void send_metrics(struct world *w, struct sim_node *n, struct held *h, uint32_t rank) {
    uint64_t from = h->metrics_sent[rank];
    if (chance(w, 5)) from = h->metrics_acked[rank]; // again
    if (from >= h->metrics[rank]) return;
    size_t k = (size_t)(h->metrics[rank] - from) / RECORD;
    struct td_metric_record *p = calloc(k, sizeof *p);
    for (size_t i = 0; i < k; i++) { // in the sim, record i of an attempt is its step i + 1
        snprintf(p[i].name, sizeof p[i].name, "train_loss_step");
        p[i].step = (int32_t)(from / RECORD + i + 1);
        p[i].sum = p[i].count = 1;
        p[i].flags = TD_METRIC_SUM_COUNT;
    }
    h->metrics_sent[rank] = h->metrics[rank];
    send_segment(w, n, h, TRAIND__V1__SEGMENT__KIND__METRICS, rank, from, p, k * RECORD);
    free(p);
}

static void send_final(struct world *w, struct sim_node *n, const struct held *h) {
    for (uint32_t r = 0; r < h->n_ranks; r++) {
        Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
        Traind__V1__LogState s = TRAIND__V1__LOG_STATE__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        id.job = td_unconst(h->job);
        id.attempt = h->attempt;
        id.epoch = h->epoch;
        s.id = &id;
        s.rank = r;
        s.metrics_bytes = h->metrics[r];
        s.final = 1;
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
        m.log_state = &s;
        to_core(w, n, &m);
    }
}

// PutShard: a file at a time; may come before its event or long after the end.
static void send_file(struct world *w, struct held *h) {
    if (!h->n_unsent || !chance(w, 4) || w->committed < h->put_ticket) return;
    if (h->put_ticket) { // the answer passed the gate
        h->put_ticket = 0;
        if (chance(w, 3)) return; // and was lost: it is sent again
        memmove(h->unsent, h->unsent + 1, --h->n_unsent * sizeof h->unsent[0]);
        return;
    }
    char path[64];
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = h->job;
    id.attempt = h->attempt;
    id.epoch = h->epoch;
    snprintf(path, sizeof path, "a%u/step-%u", h->attempt, h->unsent[0]);
    td_status s = td_core_shard_durable(w->core, now(w), &id, path, "m", 1,
                                        "00000000000000000000000000000000");
    after(w);
    bool gone = s != TD_OK; // fenced: it will be told
    td_status_free(s);
    if (!gone) h->put_ticket = w->ticket;
}

static void forward(struct world *w, struct sim_node *n, struct held *h) {
    for (uint32_t r = 0; r < h->n_ranks && n->session; r++) {
        send_metrics(w, n, h, r);
    }
    if (h->ended && h->tells_end) send_final(w, n, h);
    if (h->ended) h->tells_end = false;
    send_file(w, h);
    uint64_t from = chance(w, 5) ? h->acked : h->sent;
    if (!n->session || from >= h->events.len) return;
    size_t bytes = h->events.len - (size_t)from;
    if (chance(w, 3)) { // not all at once
        const char *end = memchr(h->events.data + from, '\n', bytes);
        bytes = (size_t)(end - (h->events.data + from)) + 1;
    }
    if (h->ended && from + bytes == h->events.len) send_final(w, n, h);
    if (from + bytes > h->sent) h->sent = from + bytes;
    send_segment(w, n, h, TRAIND__V1__SEGMENT__KIND__EVENTS, 0, from, h->events.data + from, bytes);
}

static void beat(struct world *w, struct sim_node *n) {
    Traind__V1__Heartbeat b = TRAIND__V1__HEARTBEAT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    b.slots_used = used_slots(n);
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
    m.heartbeat = &b;
    to_core(w, n, &m);
}

static void reboot(struct world *w, struct sim_node *n) {
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) lose_launcher(&n->held[i], "node_lost");
        if (n->held[i].used && chance(w, 4)) drop_held(&n->held[i]); // its disk, too
    }
    snprintf(n->boot, sizeof n->boot, "b%llx", (unsigned long long)(draw(w) & 0xffffff));
    lose_session(w, n, (int64_t)(draw(w) % 20000));
}

static void step_node(struct world *w, struct sim_node *n) {
    for (int i = 0; i < MAX_HELD; i++) {
        if (n->held[i].used && n->held[i].alive) train(w, n, &n->held[i]);
    }
    if (!n->session && w->now_ns >= n->dial_at) dial(w, n);
    for (int i = 0; i < MAX_HELD && n->session && n->registered; i++) {
        if (n->held[i].used && n->held[i].adopted) forward(w, n, &n->held[i]);
    }
    if (n->session && n->registered) reconcile_some(w, n);
    if (n->session && n->registered && chance(w, 10)) beat(w, n);
    if (w->calm) return;
    if (chance(w, 2000)) lose_session(w, n, (int64_t)(draw(w) % 5000));
    if (chance(w, 4000)) lose_session(w, n, 60000 + (int64_t)(draw(w) % 60000)); // partition
    if (chance(w, 4000)) reboot(w, n);
}

// ---- people

#endif
