// The queue of the coordinator's core with thousands of jobs: what a pass looks at is counted, not
// timed.

#include "daemon/coordinator/core/catalog/reconcile.h"
#include "tests/unit/coordinator/core/coord_rig.h"

enum { MANY = 10000 };

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

// ---- cost ---------------------------------------------------------------------------------------
// One slot, one job that runs and MANY that wait. Looks so far.
static uint32_t begin_many(struct rig *r, const char *spec) {
    begin(r, 1);
    fill(r, MANY, spec);
    r->n_progress = r->n_queue = 0;
    return looks(r);
}

static void test_create_looks_at_no_job_when_no_slot_is_free(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    uint32_t before = begin_many(&r, spec);
    create(&r, MANY, spec);
    settle(&r);
    assert_int_equal(looks(&r), before);
    assert_int_equal(r.n_progress + r.n_queue, 0); // and no watcher is woken
    end(&r);
}

static void test_end_looks_at_the_head_only_when_ten_thousand_wait(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    uint32_t before = begin_many(&r, spec);
    finish_running(&r);
    settle(&r);
    assert_int_equal(r.n_assigned, 2);
    assert_true(looks(&r) - before <= 40);
    assert_int_equal(r.n_progress, 0);
    end(&r);
}

static void test_pass_comes_once_a_tick_whatever_happened_before(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 4);
    uint32_t before = td_core_counter(r.core, TD_COUNT_PASSES);
    for (int i = 0; i < 100; i++) {
        create(&r, i, spec);
    }
    assert_int_equal(td_core_counter(r.core, TD_COUNT_PASSES), before);
    td_core_tick(r.core, r.now);
    take(&r);
    assert_int_equal(td_core_counter(r.core, TD_COUNT_PASSES), before + 1);
    end(&r);
}

static void test_end_writes_a_row_once_whatever_changed_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    fill(&r, 2, spec);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    assert_int_equal(r.n_puts[TD_RECORD_ATTEMPT], 1);
    assert_int_equal(r.n_puts[TD_RECORD_JOB], 1);
    assert_non_null(
        strstr(td_map_get(r.rows[TD_RECORD_ATTEMPT], "j-000000000000/a1"), "\"ended\""));
    end(&r);
}

// ---- what its node's disk is to hold ------------------------------------------------------------
static void end_jobs(struct rig *r, int from, int to, const char *spec, bool answer) {
    for (int i = from; i < to; i++) {
        create(r, i, spec);
        settle(r);
        answer_plans(r);
        say_final(r);
        finish_running(r);
        settle(r);
        if (answer) answer_reconcile(r);
    }
}

// It went through all older jobs, each time.
static void test_end_looks_at_no_older_job_for_its_disk(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    uint32_t before = td_core_counter(r.core, TD_COUNT_DUE_LOOKS);
    end_jobs(&r, 0, 200, spec, true);
    assert_int_equal(td_core_counter(r.core, TD_COUNT_DUE_LOOKS), before);
    assert_int_equal(r.n_reconciles, 0);
    end(&r);
}

static void test_every_disk_gets_its_turn_when_more_are_due_than_are_remembered(void **state) {
    (void)state;
    enum { N = TD_RECONCILE_WINDOW + 2 * TD_RECONCILE_DUE };
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    bool seen[N] = {false};
    begin(&r, 1);
    end_jobs(&r, 0, N, spec, false);
    assert_int_equal(r.n_reconciles, TD_RECONCILE_WINDOW);
    for (int i = 0; i < N; i++) {
        assert_true(r.n_reconciles > 0);
        unsigned long number = strtoul(r.reconciles[0].job + 2, NULL, 16);
        assert_true(number < N && !seen[number]); // each once
        seen[number] = true;
        answer_reconcile(&r);
    }
    assert_int_equal(r.n_reconciles, 0);
    end(&r);
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
    end(&r);
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
    end(&r);
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
    end(&r);
}

static void ask_plan(struct rig *r, const char *spec) {
    assert_ok(td_core_plan(r->core, r->now, spec, false, "", 7));
    take(r);
    settle(r);
}

static void refuse_plans(struct rig *r) {
    while (r->n_requests) {
        answer_failure(r, r->requests[--r->n_requests], TD_NOT_FOUND, "bad_spec", "no such file");
    }
}

// The clock goes on to the next thing that is due, at most by so much.
static void pass(struct rig *r, int64_t ns) {
    int64_t end = r->now.mono.ns + ns;
    while (r->now.mono.ns < end) {
        r->now.mono.ns = TD_MIN(end, TD_MAX(td_core_wake(r->core).ns, r->now.mono.ns + 1));
        settle(r);
    }
}

static void test_plan_is_refused_when_no_node_came_within_a_grace_after_the_start(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    struct rig r;
    begin_alone(&r, &o);
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    create(&r, 1, spec); // a job of the same spec waits for as long as it takes
    ask_plan(&r, spec);
    pass(&r, 5 * TD_NS_PER_S - 1);
    assert_int_equal(r.n_planned, 0); // a node may still come
    pass(&r, 1);
    assert_int_equal(r.n_planned, 1);
    assert_int_equal(r.planned_code, TD_UNAVAILABLE);
    assert_non_null(strstr(r.planned, "NO_NODES: no node has registered yet"));
    ask_plan(&r, spec);
    assert_int_equal(r.n_planned, 2); // at once
    add_node(&r, "n-1", 1);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    ask_plan(&r, spec);
    assert_int_equal(r.n_planned, 3);
    assert_int_equal(r.planned_code, TD_CODE_OK);
    end(&r);
}

static void test_plan_is_asked_of_a_node_that_comes_within_the_grace(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    struct rig r;
    begin_alone(&r, &o);
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    ask_plan(&r, spec);
    pass(&r, 4 * TD_NS_PER_S);
    add_node(&r, "n-1", 1);
    pass(&r, TD_NS_PER_S);
    assert_int_equal(r.n_planned, 0);
    answer_plans(&r);
    assert_int_equal(r.n_planned, 1);
    assert_int_equal(r.planned_code, TD_CODE_OK);
    end(&r);
}

// It began with weights that may be gone by now, and a plan that looked for them kept it waiting
// for ever. What a person asks is about a job that begins.
static void test_plan_for_a_job_that_has_run_does_not_look_for_what_it_began_with(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec(1, 2);
    struct rig r;
    begin_with(&r, 2, &o);
    create(&r, 0, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_false(r.asked_for_later);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    start_again(&r, &o); // without the plan
    ask_plan(&r, spec);
    add_node(&r, "n-1", 2);
    assert_int_equal(r.n_requests, 1);
    assert_false(r.asked_for_later);
    refuse_plans(&r);
    pass(&r, 2 * TD_NS_PER_S);
    assert_int_equal(r.n_requests, 1);
    assert_true(r.asked_for_later);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

static void test_plan_is_refused_when_the_node_that_works_on_it_is_gone(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    ask_plan(&r, spec);
    assert_int_equal(r.n_requests, 1);
    td_core_session_close(r.core, r.now, r.session);
    take(&r);
    pass(&r, 5 * TD_NS_PER_S - 1);
    assert_int_equal(r.n_planned, 0); // it may come back
    pass(&r, 1);
    assert_int_equal(r.n_planned, 1);
    assert_int_equal(r.planned_code, TD_UNAVAILABLE);
    assert_non_null(strstr(r.planned, "NO_NODES: no node is connected"));
    end(&r);
}

// It was accepted with "it starts next", and failed before its first rank.
static void
test_create_is_refused_as_the_plan_was_when_its_memory_is_known_and_fits_nowhere(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *small = make_spec(1, 1), *large = make_spec(2, 1);
    const struct td_job *j = NULL;
    struct rig r;
    begin_alone(&r, &o);
    r.memory_bytes = UINT64_C(1) << 30;
    add_node(&r, "n-1", 1);
    ask_plan(&r, large);
    answer_plan_with(&r, r.requests[--r.n_requests], "{\"memory_bytes\":2147483648}");
    assert_int_equal(r.planned_code, TD_FAILED_PRECONDITION);
    td_status s = try_create(&r, 1, large, &j);
    assert_int_equal(td_status_code(s), r.planned_code);
    assert_string_equal(td_status_reason(s), "UNSATISFIABLE");
    assert_non_null(strstr(r.planned, td_status_message(s)));
    td_status_free(s);
    assert_null(td_core_job_before(r.core, UINT64_MAX));
    ask_plan(&r, small);
    answer_plan_with(&r, r.requests[--r.n_requests], "{\"memory_bytes\":1073741824}");
    assert_int_equal(r.planned_code, TD_CODE_OK);
    assert_non_null(create(&r, 2, small));
    end(&r);
}

// ---- start --------------------------------------------------------------------------------------
// The first of two jobs that run has ended, but for a point that was on its way.
static void end_first_but_for_a_point(struct rig *r) {
    snprintf(r->assigned, sizeof r->assigned, "%s", job(r, 0)->id);
    r->epoch = job(r, 0)->attempts[0]->epoch;
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__LogState state = TRAIND__V1__LOG_STATE__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    state.id = &id;
    state.final = true;
    state.metrics_bytes = 64;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
    m.log_state = &state;
    say(r, &m);
    finish_running(r);
    assert_int_equal(job(r, 0)->state, TD_JOB_RUNNING);
}

static void test_slots_are_not_given_twice_when_a_job_ends_with_the_start(void **state) {
    (void)state;
    struct rig r;
    TD_AUTO_FREE char *spec = make_spec(1, 1), *wide = make_spec(2, 2);
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    begin(&r, 2);
    for (int i = 0; i < 2; i++) {
        create(&r, i, spec);
        settle(&r);
        answer_plans(&r);
    }
    assert_int_equal(r.n_assigned, 2);
    char other[TD_JOB_ID_MAX];
    snprintf(other, sizeof other, "%s", job(&r, 1)->id);
    end_first_but_for_a_point(&r);
    load_again(&r, &o);
    td_core_load_offset(r.core, job(&r, 0)->id, 1, 0, TRAIND__V1__SEGMENT__KIND__METRICS, 64);
    td_core_start(r.core, r.now);
    take(&r);
    assert_int_equal(job(&r, 0)->state, TD_JOB_SUCCEEDED);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    Traind__V1__AttemptId id = attempt_id(&r);
    id.job = other;
    id.epoch = job(&r, 1)->attempts[0]->epoch;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    r.session = td_core_session_open(r.core, r.now, false);
    say_register_with(&r, "n-1", 2, &held);
    settle(&r);
    create(&r, 2, wide);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 2); // one slot of two is free
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_looks_at_no_job_when_no_slot_is_free),
        cmocka_unit_test(test_end_looks_at_the_head_only_when_ten_thousand_wait),
        cmocka_unit_test(test_pass_comes_once_a_tick_whatever_happened_before),
        cmocka_unit_test(test_end_writes_a_row_once_whatever_changed_it),
        cmocka_unit_test(test_end_looks_at_no_older_job_for_its_disk),
        cmocka_unit_test(test_every_disk_gets_its_turn_when_more_are_due_than_are_remembered),
        cmocka_unit_test(test_position_is_right_when_nothing_was_written_for_it),
        cmocka_unit_test(test_small_job_waits_for_one_that_reserves_the_node),
        cmocka_unit_test(test_specs_that_wait_do_not_plan_each_other_out),
        cmocka_unit_test(test_plan_is_refused_when_no_node_came_within_a_grace_after_the_start),
        cmocka_unit_test(test_plan_is_asked_of_a_node_that_comes_within_the_grace),
        cmocka_unit_test(test_plan_is_refused_when_the_node_that_works_on_it_is_gone),
        cmocka_unit_test(
            test_create_is_refused_as_the_plan_was_when_its_memory_is_known_and_fits_nowhere),
        cmocka_unit_test(test_plan_for_a_job_that_has_run_does_not_look_for_what_it_began_with),
        cmocka_unit_test(test_slots_are_not_given_twice_when_a_job_ends_with_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
