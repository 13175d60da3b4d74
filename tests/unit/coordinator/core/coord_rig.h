#ifndef TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_RIG_H
#define TRAIND_TESTS_UNIT_COORDINATOR_CORE_COORD_RIG_H

// The coordinator's core with one node that is messages: create jobs, answer plans, play an attempt
// of one rank. What the core answered is counted; its records are kept as state.db would keep them.
// After each input what has to hold of the core is checked.

#include <stdlib.h>

#include "daemon/coordinator/core/core.h"
#include "tests/unit/coordinator/core/core_check.h"
#include "daemon/coordinator/core/queue/queue_reason.h"
#include "lib/attempt/languages.h"
#include "lib/base/buf.h"
#include "lib/base/map.h"
#include "lib/spec/language.h"
#include "lib/spec/spec.h"
#include "tests/unit/test.h"

struct rig {
    struct td_core *core;
    struct td_now now;
    uint64_t session;
    char assigned[TD_JOB_ID_MAX];
    uint64_t epoch, events;
    uint32_t attempt;            // assigned last
    uint64_t memory_bytes;       // of nodes that register; 0: they do not say
    bool gives_no_devices;       // of nodes that register
    const char *language;        // that they read plans in; NULL: this build's
    uint32_t ranks_language;     // the same; 0: this build's
    bool says_no_ranks_language; // nodes that register
    uint32_t cores;              // of nodes that register; 0: as many as slots
    bool embedded;               // of nodes that register
    bool keyed;                  // of nodes that register
    bool runs_commands;          // nodes that register
    bool gives_gpus;             // nodes that register
    char key[33];                // that the newest registration was given
    const char *address;         // collective, of nodes that register; NULL: none
    const char *level;           // CPU, of nodes that register; NULL: they do not say
    const char *boot;            // of nodes that register; NULL: always the same
    const char *daemon;          // start of nodes that register; NULL: they do not say
    const char *called;          // the name of nodes that register; NULL: as their id
    char run[512];               // how `run` of the newest plan begins
    uint32_t n_assigned, n_progress, n_queue;
    struct { // the newest Assigns, and Stops of the newest of them
        uint64_t session;
        uint32_t first_rank, n_ranks, threads;
        uint64_t shared_bytes;
        char level[24];
        bool stream;
        char resume[64]; // the newest that it may go on from; "": none
    } parts[8];
    uint32_t n_parts;
    struct {
        uint64_t session;
        Traind__V1__Stop__Mode mode;
    } stops[16];
    uint32_t n_stops;
    uint64_t saves[8]; // sessions that were asked to save
    uint32_t n_saves;
    uint32_t n_puts[TD_RECORD_KIND_COUNT]; // rows written, of the newest input
    char requests[512][64];                // for plans, not yet answered
    uint64_t asked[512];                   // sessions they went to
    uint32_t n_requests;
    char cancelled[64];   // plan that was cancelled last
    char read[200];       // what a kept plan has read, of the last one; "": a plan is wanted
    bool asked_for_later; // the last one: for an attempt after the first
    struct {              // Reconciles not yet answered
        uint64_t request;
        char job[TD_JOB_ID_MAX];
    } reconciles[64];
    uint32_t n_reconciles;
    struct td_map *rows[TD_RECORD_KIND_COUNT]; // key -> body
    char forgotten[512][TD_JOB_ID_MAX];        // TD_ACTION_FORGET, in order
    uint32_t n_forgotten, n_closed;
    char closed[400]; // why the last session was
    char said[400];
    uint32_t n_planned; // answers of td_core_plan; of the last one:
    enum td_code planned_code;
    char planned[400];  // "REASON: message", or the plan
    size_t n_unchecked; // inputs
};

// ---- the rig ------------------------------------------------------------------------------------
static void keep_part(struct rig *r, uint64_t session, const Traind__V1__Assign *m) {
    assert_true(r->n_parts < TD_COUNTOF(r->parts));
    r->parts[r->n_parts].session = session;
    r->parts[r->n_parts].first_rank = m->first_rank;
    r->parts[r->n_parts].n_ranks = m->n_ranks;
    r->parts[r->n_parts].shared_bytes = m->shared_bytes;
    r->parts[r->n_parts].threads = m->threads_per_rank;
    r->parts[r->n_parts].stream = m->stream_store;
    snprintf(r->parts[r->n_parts].resume, sizeof r->parts[0].resume, "%s",
             m->n_resume ? m->resume[0]->path : "");
    const char *level = strstr(m->plan_json, "\"run\":");
    snprintf(r->run, sizeof r->run, "%.500s", level ? level : "");
    level = level ? strstr(level, "\"cpu_level\":\"") : NULL;
    snprintf(r->parts[r->n_parts].level, sizeof r->parts[0].level, "%.*s",
             level ? (int)strcspn(level + 13, "\"") : 0, level ? level + 13 : "");
    r->n_parts++;
}

static void on_message(struct rig *r, uint64_t session, const Traind__V1__CoordinatorMessage *m) {
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_STOP) {
        assert_true(r->n_stops < TD_COUNTOF(r->stops));
        r->stops[r->n_stops].session = session;
        r->stops[r->n_stops++].mode = m->stop->mode;
    }
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_CHECKPOINT_NOW) {
        assert_true(r->n_saves < TD_COUNTOF(r->saves));
        assert_string_equal(m->checkpoint_now->id->job, r->assigned);
        assert_true(m->checkpoint_now->id->epoch == r->epoch);
        r->saves[r->n_saves++] = session;
    }
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN) {
        if (m->assign->first_rank == 0) r->n_parts = r->n_stops = 0;
        keep_part(r, session, m->assign);
    }
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN) {
        snprintf(r->assigned, sizeof r->assigned, "%s", m->assign->id->job);
        r->epoch = m->assign->id->epoch;
        r->attempt = m->assign->id->attempt;
        r->events = 0;
        r->n_assigned++;
    } else if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_REGISTERED) {
        snprintf(r->key, sizeof r->key, "%s", m->registered->key);
    } else if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST) {
        assert_true(r->n_requests < TD_COUNTOF(r->requests));
        snprintf(r->requests[r->n_requests++], sizeof r->requests[0], "%s",
                 m->plan_request->request);
        snprintf(r->read, sizeof r->read, "%s", m->plan_request->read);
        r->asked_for_later = strstr(m->plan_request->plan_json, "\"attempt\":2") != NULL;
    } else if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_CANCEL) {
        snprintf(r->cancelled, sizeof r->cancelled, "%s", m->plan_cancel->request);
    } else if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_RECONCILE) {
        assert_true(r->n_reconciles < TD_COUNTOF(r->reconciles));
        r->reconciles[r->n_reconciles].request = m->reconcile->request;
        snprintf(r->reconciles[r->n_reconciles++].job, TD_JOB_ID_MAX, "%s", m->reconcile->job);
    }
}

static void keep_rows(struct rig *r, const struct td_record *x) {
    memset(r->n_puts, 0, sizeof r->n_puts);
    for (; x; x = x->next) {
        void *old = NULL;
        r->n_puts[x->kind] += x->body != NULL;
        if (x->body) {
            assert_ok(td_map_put(r->rows[x->kind], x->key, strdup(x->body), &old));
        } else {
            old = td_map_remove(r->rows[x->kind], x->key);
        }
        free(old);
    }
}

// It costs what there are of jobs: with many of them it is made after as many more inputs.
static void check_core(struct rig *r) {
    enum { FEW = 64 };
    if (++r->n_unchecked * FEW < td_map_count(r->rows[TD_RECORD_JOB])) return;
    r->n_unchecked = 0;
    assert_ok(td_core_check(r->core));
}

static void take(struct rig *r) {
    check_core(r);
    struct td_core_effects out = td_core_take(r->core);
    keep_rows(r, out.records);
    for (const struct td_action *a = out.actions; a; a = a->next) {
        if (r->n_requests < TD_COUNTOF(r->asked)) r->asked[r->n_requests] = a->session;
        if (a->message) on_message(r, a->session, a->message);
        r->n_progress += a->kind == TD_ACTION_PROGRESS;
        r->n_queue += a->kind == TD_ACTION_QUEUE;
        if (a->kind == TD_ACTION_FORGET && r->n_forgotten < TD_COUNTOF(r->forgotten)) {
            snprintf(r->forgotten[r->n_forgotten++], TD_JOB_ID_MAX, "%s", a->job);
        }
        if (a->kind == TD_ACTION_PLANNED) {
            r->n_planned++;
            r->planned_code = td_status_code(a->failure);
            snprintf(r->planned, sizeof r->planned, "%s%s%s",
                     a->failure ? td_status_reason(a->failure) : a->text, a->failure ? ": " : "",
                     a->failure ? td_status_message(a->failure) : "");
        }
        if (a->kind == TD_ACTION_SAY) snprintf(r->said, sizeof r->said, "%s", a->text);
        if (a->kind == TD_ACTION_CLOSE) {
            r->n_closed++;
            snprintf(r->closed, sizeof r->closed, "%s", a->text);
        }
    }
    td_core_effects_finish(&out);
}

static void say(struct rig *r, Traind__V1__NodeMessage *m) {
    m->incarnation = 1;
    td_core_session_message(r->core, r->now, r->session, m);
    take(r);
}

// Ticks until nothing is due now.
static void settle(struct rig *r) {
    for (int i = 0; td_core_wake(r->core).ns <= r->now.mono.ns; i++) {
        assert_true(i < 1000);
        td_core_tick(r->core, r->now);
        take(r);
    }
}

// With the attempt that runs on it, if it holds one.
static void say_register_with(struct rig *r, const char *name, uint32_t slots,
                              Traind__V1__AttemptHeld *held) {
    char boot[16], id[64];
    snprintf(boot, sizeof boot, "%s", r->boot ? r->boot : "boot");
    snprintf(id, sizeof id, "%s", name);
    Traind__V1__Register reg = TRAIND__V1__REGISTER__INIT;
    reg.node_id = id;
    reg.name = r->called ? td_unconst(r->called) : id;
    reg.boot_id = boot;
    reg.daemon = td_unconst(r->daemon ? r->daemon : "");
    char language[TD_DIGEST_HEX];
    td_spec_language(language);
    reg.plan_language = r->language ? td_unconst(r->language) : language;
    reg.ranks_language = r->ranks_language ? r->ranks_language : TD_RANKS_LANGUAGE;
    if (r->says_no_ranks_language) reg.ranks_language = 0;
    reg.launcher_major = 1;
    reg.slots = slots;
    reg.cores = r->cores ? r->cores : slots;
    reg.embedded = r->embedded;
    reg.keyed = r->keyed;
    reg.commands = r->runs_commands;
    reg.gpus = reg.gives_gpus = r->gives_gpus;
    reg.memory_bytes = r->memory_bytes;
    reg.devices = !r->gives_no_devices;
    reg.collective_address = td_unconst(r->address ? r->address : "");
    reg.cpu_level = reg.cpu_level_held = td_unconst(r->level ? r->level : "");
    reg.n_attempts = held ? 1 : 0;
    reg.attempts = &held;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &reg;
    say(r, &m);
}

static void say_register(struct rig *r, const char *name, uint32_t slots) {
    say_register_with(r, name, slots, NULL);
}

static void begin_alone(struct rig *r, const struct td_core_options *o) {
    memset(r, 0, sizeof *r);
    r->now = (struct td_now){{TD_NS_PER_S}, {INT64_C(1700000000) * TD_NS_PER_S}};
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        assert_ok(td_map_create(1 << 20, &r->rows[k]));
    }
    assert_ok(td_core_create(o, &r->core));
    td_core_start(r->core, r->now);
}

// On a new session, which is r->session from then on and returned.
static inline uint64_t add_node(struct rig *r, const char *name, uint32_t slots) {
    r->session = td_core_session_open(r->core, r->now, false);
    say_register(r, name, slots);
    settle(r);
    return r->session;
}

static void begin_with(struct rig *r, uint32_t slots, const struct td_core_options *o) {
    begin_alone(r, o);
    add_node(r, "n-1", slots);
}

static inline void begin(struct rig *r, uint32_t slots) {
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    begin_with(r, slots, &o);
}

static void end(struct rig *r) {
    td_core_destroy(r->core);
    for (int k = 0; k < TD_RECORD_KIND_COUNT; k++) {
        size_t at = 0;
        const char *key;
        void *value;
        while (td_map_next(r->rows[k], &at, &key, &value)) {
            free(value);
        }
        td_map_destroy(r->rows[k]);
    }
}

// Another coordinator, from the rows that this one wrote; it has not begun.
static inline void load_again(struct rig *r, const struct td_core_options *o) {
    td_core_destroy(r->core);
    assert_ok(td_core_create(o, &r->core));
    static const enum td_record_kind order[] = {
        TD_RECORD_NODE,    TD_RECORD_NODE_ADMIN, TD_RECORD_JOB,    TD_RECORD_SPEC,
        TD_RECORD_ATTEMPT, TD_RECORD_CHECKPOINT, TD_RECORD_LEAVING};
    for (size_t k = 0; k < TD_COUNTOF(order); k++) {
        size_t at = 0;
        const char *key;
        void *body;
        while (td_map_next(r->rows[order[k]], &at, &key, &body)) {
            assert_ok(td_core_load(r->core, order[k], key, body));
        }
    }
}

static inline void start_again(struct rig *r, const struct td_core_options *o) {
    load_again(r, o);
    td_core_start(r->core, r->now);
    take(r);
    settle(r);
}

static char *make_canonical(const char *spec) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    assert_ok(td_spec_parse(arena, spec, strlen(spec), NULL, 0, &tree));
    assert_ok(td_json_print(tree, false, &text));
    return td_buf_take_cstr(&text);
}

static char *make_spec_from(int seed, int devices, const char *more) {
    char spec[640];
    snprintf(spec, sizeof spec,
             "{name: n, seed_everything: %d, model: {name: mlp, layers: [2, 2]},"
             " data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 2},"
             " optimizer: {name: sgd, lr: 0.1}, trainer: {devices: %d}%s}",
             seed, devices, more);
    return make_canonical(spec);
}

static inline char *make_spec(int seed, int devices) {
    return make_spec_from(seed, devices, "");
}

// The same spec, for nodes of that CPU level.
static inline char *make_at_level(const char *spec, const char *level) {
    static const char any[] = "\"cpu_level\":\"auto\"";
    const char *at = strstr(spec, any);
    char *made = NULL;
    assert_non_null(at);
    assert_true(asprintf(&made, "%.*s\"cpu_level\":\"%s\"%s", (int)(at - spec), spec, level,
                         at + strlen(any)) > 0);
    return made;
}

static inline td_status try_create(struct rig *r, int number, const char *spec,
                                   const struct td_job **out_job) {
    char id[TD_JOB_ID_MAX];
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    const struct td_core_create_job request = {
        .id = id, .spec_json = spec, .request_id = "", .digest = ""};
    bool again = false;
    td_status s = td_core_create_job(r->core, r->now, &request, out_job, &again);
    take(r);
    return s;
}

static inline const struct td_job *create(struct rig *r, int number, const char *spec) {
    const struct td_job *j = NULL;
    assert_ok(try_create(r, number, spec, &j));
    return j;
}

static inline const struct td_job *job(struct rig *r, int number) {
    char id[TD_JOB_ID_MAX];
    const struct td_job *j = NULL;
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    assert_ok(td_core_find_job(r->core, id, &j));
    return j;
}

static inline struct td_reason reason(struct rig *r, int number) {
    struct td_reason why;
    td_queue_reason(r->core, job(r, number), r->now.mono, &why);
    return why;
}

static inline void say_plan_result(struct rig *r, const char *request,
                                   Traind__V1__PlanResult *result) {
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    result->request = td_unconst(request); // may be of r->requests: the core has read it by take
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = result;
    say(r, &m);
}

static inline void answer_plan_with(struct rig *r, const char *request, const char *sizes) {
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.result_json = td_unconst(sizes);
    say_plan_result(r, request, &result);
}

static inline void answer_plan(struct rig *r, const char *request) {
    answer_plan_with(r, request, "{\"state_bytes\":10,\"total_steps\":3,\"read\":[]}");
}

// To a question about a plan that is kept. change "": its files are as they were.
static inline void answer_compared(struct rig *r, const char *request, const char *change) {
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.same = !change[0];
    result.changed = td_unconst(change);
    say_plan_result(r, request, &result);
}

// cls "": the node names no class.
static inline void answer_failure(struct rig *r, const char *request, enum td_code code,
                                  const char *cls, const char *message) {
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.code = (uint32_t)code;
    result.class_ = td_unconst(cls);
    result.message = td_unconst(message);
    say_plan_result(r, request, &result);
}

static inline void answer_plans(struct rig *r) {
    while (r->n_requests) {
        answer_plan(r, r->requests[--r->n_requests]);
        settle(r);
    }
}

// Of the attempt that was assigned last.
static inline Traind__V1__AttemptId attempt_id(struct rig *r) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    id.job = r->assigned;
    id.attempt = r->attempt;
    id.epoch = r->epoch;
    return id;
}

static inline void line(struct rig *r, const char *text) {
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    s.id = &id;
    s.kind = TRAIND__V1__SEGMENT__KIND__EVENTS;
    s.offset = r->events;
    s.data = (ProtobufCBinaryData){strlen(text), td_unconst(text)};
    r->events += s.data.len;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    say(r, &m);
}

// Everything of the newest attempt is here: nothing but its events was written.
static inline void say_final(struct rig *r) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__LogState state = TRAIND__V1__LOG_STATE__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    id.job = r->assigned;
    id.attempt = r->attempt;
    id.epoch = r->epoch;
    state.id = &id;
    state.final = true;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
    m.log_state = &state;
    say(r, &m);
}

// The oldest Reconcile: the disk holds what the catalog says.
static inline void answer_reconcile(struct rig *r) {
    char job[TD_JOB_ID_MAX];
    Traind__V1__Reconciled answer = TRAIND__V1__RECONCILED__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    assert_true(r->n_reconciles > 0);
    answer.request = r->reconciles[0].request;
    memcpy(job, r->reconciles[0].job, sizeof job);
    answer.job = job;
    memmove(r->reconciles, r->reconciles + 1, --r->n_reconciles * sizeof r->reconciles[0]);
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_RECONCILED;
    m.reconciled = &answer;
    say(r, &m);
}

static inline void finish_running(struct rig *r) {
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    line(r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
}

#endif
