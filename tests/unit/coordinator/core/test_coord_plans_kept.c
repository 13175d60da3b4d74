// Plans that are kept, in the coordinator's core: each carries what it was made from, and a node
// compares that before the plan decides anything.

#include "tests/unit/coordinator/core/coord_devices.h"
#include "tests/unit/coordinator/core/coord_rig.h"

static const char small[] = "{\"memory_bytes\":1000,\"shared_bytes\":16,\"total_steps\":16,"
                            "\"read\":[{\"of\":\"data.train\",\"digest\":\"a\"}]}";
static const char large[] = "{\"memory_bytes\":3000,\"shared_bytes\":160,\"total_steps\":160,"
                            "\"read\":[{\"of\":\"data.train\",\"digest\":\"b\"}]}";
static const char change[] = "data.train: '/d/a.bin' has other content";

static void answer(struct rig *r, const char *sizes) {
    assert_true(r->n_requests > 0);
    answer_plan_with(r, r->requests[--r->n_requests], sizes);
    settle(r);
}

static void answer_change(struct rig *r, const char *what) {
    assert_true(r->n_requests > 0);
    answer_compared(r, r->requests[--r->n_requests], what);
    settle(r);
}

static void answer_refusal(struct rig *r, enum td_code code, const char *cls, const char *why) {
    assert_true(r->n_requests > 0);
    answer_failure(r, r->requests[--r->n_requests], code, cls, why);
    settle(r);
}

// A job that ran to its end, whose plan is kept from then on.
static void begin_with_kept(struct rig *r, const char *spec, const char *sizes) {
    begin(r, 4);
    create(r, 1, spec);
    settle(r);
    assert_string_equal(r->read, "");
    answer(r, sizes);
    assert_int_equal(r->n_assigned, 1);
    finish_running(r);
    say_final(r);
    settle(r);
    r->now.mono.ns += 3600 * TD_NS_PER_S;
    r->now.real.ns += 3600 * TD_NS_PER_S;
    add_node(r, "n-1", 4);
    assert_int_equal(r->n_requests, 0);
}

static void test_kept_plan_is_compared_before_an_assignment(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    create(&r, 2, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.read, "[{\"of\":\"data.train\",\"digest\":\"a\"}]");
    assert_int_equal(r.n_assigned, 1);
    answer_change(&r, "");
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(r.n_assigned, 2);
    assert_int_equal(r.parts[0].shared_bytes, 16);
    end(&r);
}

static void test_stale_plan_is_made_again_before_an_assignment(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    create(&r, 2, spec);
    settle(&r);
    answer_change(&r, change);
    assert_int_equal(r.n_assigned, 1);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_PLAN]), 0);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.read, ""); // the plan itself
    answer(&r, large);
    assert_int_equal(r.n_assigned, 2);
    assert_int_equal(r.parts[0].shared_bytes, 160);
    assert_int_equal(job(&r, 2)->progress.total_steps, 160);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_PLAN]), 1);
    end(&r);
}

static void test_plan_that_no_node_confirmed_refuses_no_job(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    memset(&r, 0, sizeof r);
    begin_with_kept(&r, spec, large);
    r.memory_bytes = 2000; // the only node comes back with less
    add_node(&r, "n-1", 4);
    create(&r, 2, spec); // the weights may be smaller by now
    settle(&r);
    assert_int_equal(job(&r, 2)->state, TD_JOB_QUEUED);
    answer_change(&r, change);
    answer(&r, small);
    assert_int_equal(r.n_assigned, 2);
    r.now.mono.ns += TD_NS_PER_S;
    create(&r, 3, spec); // as large as ever: the node says so first
    settle(&r);
    answer_change(&r, change);
    answer(&r, large);
    assert_int_equal(job(&r, 3)->state, TD_JOB_FAILED);
    assert_int_equal(job(&r, 3)->failure.cls, TD_CLASS_OUT_OF_MEMORY);
    end(&r);
}

static void test_order_that_takes_too_much_is_refused_naming_the_knob(void **state) {
    (void)state;
    TD_AUTO_FREE char *first = make_spec(1, 1), *second = make_spec(2, 1);
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    struct rig r;
    begin_alone(&r, &o);
    r.memory_bytes = 1000;
    r.session = td_core_session_open(r.core, r.now, false);
    say_register(&r, "n-1", 4);
    create(&r, 1, first);
    create(&r, 2, second);
    settle(&r);
    assert_int_equal(r.n_requests, 2);
    answer(&r, "{\"memory_bytes\":3000,\"order_bytes\":2500,\"read\":[]}");
    answer(&r, "{\"memory_bytes\":3000,\"order_bytes\":1500,\"read\":[]}");
    for (int i = 1; i < 3; i++) {
        const struct td_job *j = job(&r, i);
        assert_int_equal(j->failure.cls, TD_CLASS_OUT_OF_MEMORY);
        const bool names = strstr(j->failure.message, "trainer.sampler: keyed") != NULL;
        assert_int_equal(names, i == 2); // the other one would be too large without an order, too
    }
    end(&r);
}

static void test_plan_is_compared_again_when_the_coordinator_was_started_again(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    struct rig r;
    begin_with_kept(&r, spec, large);
    load_again(&r, &o);
    size_t at = 0;
    const char *key;
    void *body;
    while (td_map_next(r.rows[TD_RECORD_PLAN], &at, &key, &body)) {
        assert_ok(td_core_load(r.core, TD_RECORD_PLAN, key, body));
    }
    td_core_start(r.core, r.now);
    take(&r);
    add_node(&r, "n-1", 4);
    create(&r, 2, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.read, "[{\"of\":\"data.train\",\"digest\":\"b\"}]");
    answer_change(&r, "");
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

static void test_node_of_an_older_build_plans_instead_of_comparing(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    create(&r, 2, spec);
    settle(&r);
    answer(&r, "{\"state_bytes\":10,\"shared_bytes\":160}"); // and it says nothing of files
    assert_int_equal(r.n_assigned, 2);
    assert_int_equal(r.parts[0].shared_bytes, 160);
    r.now.mono.ns += 10 * TD_NS_PER_S;
    create(&r, 3, spec); // so nothing is known of them
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.read, "");
    end(&r);
}

static void test_jobs_that_start_together_compare_once(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    for (int i = 2; i < 5; i++) {
        create(&r, i, spec);
    }
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    answer_change(&r, "");
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(r.n_assigned, 4);
    create(&r, 5, spec); // what was compared before it came says nothing of it
    settle(&r);
    assert_int_equal(r.n_requests, 0); // it waits for a slot, and no plan is needed for that
    end(&r);
}

static void test_job_that_waited_for_long_is_compared_when_it_has_a_place(void **state) {
    (void)state;
    TD_AUTO_FREE char *wide = make_spec(2, 4), *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    create(&r, 2, wide);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 2);
    create(&r, 3, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1); // ahead of its place
    answer_change(&r, "");
    assert_int_equal(r.n_assigned, 2);
    r.now.mono.ns += 5 * TD_NS_PER_S;
    finish_running(&r);
    say_final(&r);
    settle(&r);
    assert_int_equal(r.n_requests, 1); // its files may have changed meanwhile
    assert_int_equal(r.n_assigned, 2);
    answer_change(&r, change);
    answer(&r, large);
    assert_int_equal(r.n_assigned, 3);
    assert_int_equal(r.parts[0].shared_bytes, 160);
    end(&r);
}

static void test_caller_of_plan_gets_what_a_node_has_confirmed(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    assert_ok(td_core_plan(r.core, r.now, spec, false, "", 7));
    take(&r);
    settle(&r);
    assert_int_equal(r.n_planned, 0);
    answer_change(&r, "");
    assert_int_equal(r.n_planned, 1);
    assert_string_equal(r.planned, small);
    assert_ok(td_core_plan(r.core, r.now, spec, false, "", 8));
    take(&r);
    settle(&r);
    answer_change(&r, change);
    assert_int_equal(r.n_planned, 1);
    answer(&r, large);
    assert_int_equal(r.n_planned, 2);
    assert_string_equal(r.planned, large);
    end(&r);
}

// What it began with is gone; it goes on from its checkpoint, and needs no plan.
static void test_job_that_has_run_goes_on_when_its_plan_is_stale_and_no_other_comes(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", restart: {max: 3}");
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    answer(&r, small);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    line(&r, "{\"event\":\"launcher_lost\"}\n");
    say_final(&r);
    settle(&r);
    r.now.mono.ns += 600 * TD_NS_PER_S;
    add_node(&r, "n-1", 1);
    assert_int_equal(r.n_requests, 1);
    assert_string_not_equal(r.read, "");
    answer_change(&r, change);
    assert_int_equal(r.n_requests, 1);
    assert_true(r.asked_for_later);
    answer_refusal(&r, TD_DATA_LOSS, "data", "no such file");
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

static void test_other_node_is_asked_when_one_goes_while_it_compares(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, small);
    create(&r, 2, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    td_core_session_close(r.core, r.now, r.session);
    take(&r);
    settle(&r);
    add_node(&r, "n-2", 4);
    assert_int_equal(r.n_requests, 2);
    assert_string_not_equal(r.read, ""); // of the same level and plugins: it has the files, too
    answer_change(&r, "");
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

// Its devices are forgotten then, and only the answer of a plan names them.
static void test_plan_is_made_again_when_the_machine_was_started_again(void **state) {
    (void)state;
    static const char far_away[] =
        "{\"memory_bytes\":1000,\"shared_bytes\":16,\"total_steps\":16,\"accelerator\":\"far\","
        "\"devices\":[{\"uuid\":\"far-0\",\"name\":\"a\",\"memory_bytes\":7}],"
        "\"read\":[{\"of\":\"data.train\",\"digest\":\"a\"}]}";
    TD_AUTO_FREE char *spec = far_spec(1, 1);
    struct rig r;
    begin_with_kept(&r, spec, far_away);
    r.boot = "boot-2";
    add_node(&r, "n-1", 4);
    create(&r, 2, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.read, "");
    answer(&r, far_away);
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

// Its planner fails there each time, so what another node like it says has to do.
static void test_job_starts_when_another_node_answers_for_the_one_where_it_runs(void **state) {
    (void)state;
    for (int is_stale = 0; is_stale < 2; is_stale++) {
        TD_AUTO_FREE char *spec = make_spec(1, 1);
        struct rig r;
        begin_with_kept(&r, spec, small);
        const uint64_t first = r.session;
        const uint64_t second = add_node(&r, "n-2", 8); // the job takes the smaller one
        create(&r, 2, spec);
        settle(&r);
        assert_true(r.n_requests == 1 && r.asked[0] == first);
        r.session = first;
        answer_refusal(&r, TD_INTERNAL, "internal", "the planner was killed");
        assert_true(r.n_requests == 1 && r.asked[0] == second);
        r.session = second;
        answer_change(&r, is_stale ? change : "");
        if (is_stale) answer(&r, large);
        assert_int_equal(r.n_requests, 0);
        assert_int_equal(r.n_assigned, 2);
        assert_true(r.parts[0].session == first);
        end(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_plan_is_compared_before_an_assignment),
        cmocka_unit_test(test_stale_plan_is_made_again_before_an_assignment),
        cmocka_unit_test(test_plan_that_no_node_confirmed_refuses_no_job),
        cmocka_unit_test(test_order_that_takes_too_much_is_refused_naming_the_knob),
        cmocka_unit_test(test_plan_is_compared_again_when_the_coordinator_was_started_again),
        cmocka_unit_test(test_node_of_an_older_build_plans_instead_of_comparing),
        cmocka_unit_test(test_jobs_that_start_together_compare_once),
        cmocka_unit_test(test_job_that_waited_for_long_is_compared_when_it_has_a_place),
        cmocka_unit_test(test_caller_of_plan_gets_what_a_node_has_confirmed),
        cmocka_unit_test(test_job_that_has_run_goes_on_when_its_plan_is_stale_and_no_other_comes),
        cmocka_unit_test(test_other_node_is_asked_when_one_goes_while_it_compares),
        cmocka_unit_test(test_plan_is_made_again_when_the_machine_was_started_again),
        cmocka_unit_test(test_job_starts_when_another_node_answers_for_the_one_where_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
