// The queue of the coordinator's core with thousands of jobs: what a pass looks at is counted, not
// timed. Nodes are messages; an answer of the core is read where a test needs it.

#include <stdlib.h>

#include "daemon/coordinator/core.h"
#include "lib/base/buf.h"
#include "lib/spec/spec.h"
#include "tests/unit/test.h"

enum { MANY = 10000 };

struct rig {
    struct td_core *core;
    struct td_now now;
    uint64_t session;
    char assigned[TD_JOB_ID_MAX];
    uint64_t epoch, events;
    uint32_t n_assigned, n_progress, n_queue;
    char requests[512][64]; // for plans, not yet answered
    uint32_t n_requests;
};

// ---- the rig ------------------------------------------------------------------------------------
static void on_message(struct rig *r, const Traind__V1__CoordinatorMessage *m) {
    if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_ASSIGN) {
        snprintf(r->assigned, sizeof r->assigned, "%s", m->assign->id->job);
        r->epoch = m->assign->id->epoch;
        r->events = 0;
        r->n_assigned++;
    } else if (m->body_case == TRAIND__V1__COORDINATOR_MESSAGE__BODY_PLAN_REQUEST) {
        assert_true(r->n_requests < TD_COUNTOF(r->requests));
        snprintf(r->requests[r->n_requests++], sizeof r->requests[0], "%s",
                 m->plan_request->request);
    }
}

static void take(struct rig *r) {
    struct td_core_out out = td_core_take(r->core);
    for (const struct td_action *a = out.actions; a; a = a->next) {
        if (a->message) on_message(r, a->message);
        r->n_progress += a->kind == TD_ACTION_PROGRESS;
        r->n_queue += a->kind == TD_ACTION_QUEUE;
    }
    td_core_out_finish(&out);
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

static void begin(struct rig *r, uint32_t slots) {
    memset(r, 0, sizeof *r);
    r->now = (struct td_now){{TD_NS_PER_S}, {INT64_C(1700000000) * TD_NS_PER_S}};
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    assert_ok(td_core_create(&o, &r->core));
    td_core_start(r->core, r->now);
    r->session = td_core_session_open(r->core, r->now, false);
    char id[] = "n-1", boot[] = "boot";
    Traind__V1__Register reg = TRAIND__V1__REGISTER__INIT;
    reg.node_id = reg.name = id;
    reg.boot_id = boot;
    reg.launcher_major = 1;
    reg.cores = reg.slots = slots;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_REGISTER;
    m.register_ = &reg;
    say(r, &m);
    settle(r);
}

static char *make_spec(int seed, int devices) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_json *tree = NULL;
    TD_AUTO_BUF text;
    char spec[320];
    snprintf(spec, sizeof spec,
             "{name: n, seed_everything: %d, model: {name: mlp, layers: [2, 2]},"
             " data: {name: synthetic, samples: 8, features: 2, classes: 2, batch_size: 2},"
             " optimizer: {name: sgd, lr: 0.1}, trainer: {devices: %d}}",
             seed, devices);
    td_buf_init(&text, 1 << 20);
    assert_ok(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    assert_ok(td_spec_parse(arena, spec, strlen(spec), NULL, 0, &tree));
    assert_ok(td_json_print(tree, false, &text));
    return td_buf_take_cstr(&text);
}

static const struct td_job *create(struct rig *r, int number, const char *spec) {
    char id[TD_JOB_ID_MAX];
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    const struct td_core_create_job request = {
        .id = id, .spec_json = spec, .request_id = "", .digest = ""};
    const struct td_job *j = NULL;
    bool again = false;
    assert_ok(td_core_create_job(r->core, r->now, &request, &j, &again));
    take(r);
    return j;
}

static const struct td_job *job(struct rig *r, int number) {
    char id[TD_JOB_ID_MAX];
    const struct td_job *j = NULL;
    snprintf(id, sizeof id, "j-%012x", (unsigned)number);
    assert_ok(td_core_find_job(r->core, id, &j));
    return j;
}

static void answer_plan(struct rig *r, const char *request) {
    char json[] = "{\"state_bytes\":10,\"total_steps\":3}";
    char copy[64];
    snprintf(copy, sizeof copy, "%s", request);
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.request = copy;
    result.result_json = json;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PLAN_RESULT;
    m.plan_result = &result;
    say(r, &m);
}

static void answer_plans(struct rig *r) {
    while (r->n_requests) {
        answer_plan(r, r->requests[--r->n_requests]);
        settle(r);
    }
}

static void line(struct rig *r, const char *text) {
    Traind__V1__AttemptId id = TRAIND__V1__ATTEMPT_ID__INIT;
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    id.job = r->assigned;
    id.attempt = 1;
    id.epoch = r->epoch;
    s.id = &id;
    s.kind = TRAIND__V1__SEGMENT__KIND__EVENTS;
    s.offset = r->events;
    s.data = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    r->events += s.data.len;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    say(r, &m);
}

static void finish_running(struct rig *r) {
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    line(r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
}

static uint32_t looks(const struct rig *r) {
    return td_core_counter(r->core, TD_COUNT_LOOKS);
}

// Numbers 0 to n - 1 of one spec; the first runs, all others wait.
static void fill(struct rig *r, int n, const char *spec) {
    for (int i = 0; i < n; i++) {
        create(r, i, spec);
        settle(r);
        answer_plans(r);
    }
    assert_int_equal(r->n_assigned, 1);
}

static struct td_reason reason(struct rig *r, int number) {
    struct td_reason why;
    td_core_reason(r->core, job(r, number), r->now.mono, &why);
    return why;
}

// ---- cost ---------------------------------------------------------------------------------------
static void test_create_looks_at_no_job_when_no_slot_is_free(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    fill(&r, MANY, spec);
    uint32_t before = looks(&r);
    r.n_progress = r.n_queue = 0;
    create(&r, MANY, spec);
    settle(&r);
    assert_int_equal(looks(&r), before);
    assert_int_equal(r.n_progress + r.n_queue, 0); // and nobody is told of it
    td_core_destroy(r.core);
}

static void test_end_looks_at_the_head_only_when_ten_thousand_wait(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    fill(&r, MANY, spec);
    uint32_t before = looks(&r);
    r.n_progress = 0;
    finish_running(&r);
    settle(&r);
    assert_int_equal(r.n_assigned, 2);
    assert_true(looks(&r) - before <= 40);
    assert_int_equal(r.n_progress, 0);
    td_core_destroy(r.core);
}

static void test_pass_comes_once_a_tick_whatever_happened_before(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 4);
    uint32_t before = td_core_counter(r.core, TD_COUNT_PASSES);
    for (int i = 0; i < 100; i++)
        create(&r, i, spec);
    assert_int_equal(td_core_counter(r.core, TD_COUNT_PASSES), before);
    td_core_tick(r.core, r.now);
    take(&r);
    assert_int_equal(td_core_counter(r.core, TD_COUNT_PASSES), before + 1);
    td_core_destroy(r.core);
}

// ---- what it says -------------------------------------------------------------------------------
static void test_position_is_right_when_nothing_was_written_for_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    fill(&r, 5000, spec);
    struct td_reason last = reason(&r, 4999);
    assert_string_equal(last.code, "WAITING_FOR_SLOTS");
    assert_int_equal(last.position, 4999);
    assert_int_equal(last.needed_slots, 1);
    finish_running(&r);
    settle(&r);
    assert_int_equal(reason(&r, 4999).position, 4998);
    const struct td_job *j = NULL;
    assert_ok(td_core_cancel(r.core, r.now, job(&r, 100)->id, "", &j));
    settle(&r);
    assert_int_equal(reason(&r, 4999).position, 4997);
    assert_int_equal(reason(&r, 99).position, 98);
    td_core_destroy(r.core);
}

static void test_small_job_waits_for_one_that_reserves_the_node(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = make_spec(1, 1), *four = make_spec(1, 4);
    struct rig r;
    begin(&r, 4);
    create(&r, 0, one);
    settle(&r);
    answer_plans(&r);
    create(&r, 1, four);
    create(&r, 2, one);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_SLOTS");
    assert_int_equal(reason(&r, 1).free_slots, 3);
    const struct td_job *j = NULL; // the one that reserved is gone: the small one has its turn
    assert_ok(td_core_cancel(r.core, r.now, job(&r, 1)->id, "", &j));
    settle(&r);
    assert_int_equal(r.n_assigned, 2);
    td_core_destroy(r.core);
}

// ---- plans --------------------------------------------------------------------------------------
static void test_specs_that_wait_do_not_plan_each_other_out(void **state) {
    (void)state;
    enum { N = 3 * TD_CORE_MAX_PLANS };
    struct rig r;
    begin(&r, 1);
    for (int i = 0; i < N; i++) {
        TD_AUTO_FREE char *spec = make_spec(i, 1);
        create(&r, i, spec);
        settle(&r);
    }
    for (int i = 0; i < N; i++) {
        answer_plans(&r);
        assert_int_equal(r.n_assigned, i + 1);
        finish_running(&r);
        settle(&r);
    }
    assert_int_equal(td_core_counter(r.core, TD_COUNT_PLANS_ASKED), N); // each once
    td_core_destroy(r.core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_looks_at_no_job_when_no_slot_is_free),
        cmocka_unit_test(test_end_looks_at_the_head_only_when_ten_thousand_wait),
        cmocka_unit_test(test_pass_comes_once_a_tick_whatever_happened_before),
        cmocka_unit_test(test_position_is_right_when_nothing_was_written_for_it),
        cmocka_unit_test(test_small_job_waits_for_one_that_reserves_the_node),
        cmocka_unit_test(test_specs_that_wait_do_not_plan_each_other_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
