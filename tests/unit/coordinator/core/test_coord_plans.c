// Plans that do not come, in the coordinator's core: a planner that ran into its deadline, a node
// that does not answer, and questions that nobody waits for any more.

#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/plans/plans_cache.h"
#include "lib/spec/plan.h"
#include "tests/unit/coordinator/core/coord_rig.h"

static const char late[] = "planning took more than 60 s and was stopped";

static const char unread[] = "this node cannot read the plan: metrics: unknown key";

// A planner that was killed at its deadline: the node names no class.
static void answer_late(struct rig *r, const char *request) {
    answer_failure(r, request, TD_DEADLINE_EXCEEDED, "", late);
    settle(r);
}

static void answer_unreadable(struct rig *r, const char *request) {
    Traind__V1__PlanResult result = TRAIND__V1__PLAN_RESULT__INIT;
    result.code = TD_FAILED_PRECONDITION;
    result.class_ = td_unconst("internal");
    result.message = td_unconst(unread);
    result.unreadable = true;
    say_plan_result(r, request, &result);
    settle(r);
}

// Time that passes; the node says that it lives.
static void pass(struct rig *r, int64_t seconds) {
    for (int64_t i = 0; i < seconds; i++) {
        Traind__V1__Heartbeat beat = TRAIND__V1__HEARTBEAT__INIT;
        Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
        m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_HEARTBEAT;
        m.heartbeat = &beat;
        r->now.mono.ns += TD_NS_PER_S;
        say(r, &m);
        settle(r);
    }
}

static void assert_failed_with(struct rig *r, int number, enum td_class cls, enum td_code code,
                               const char *message) {
    const struct td_job *j = job(r, number);
    assert_int_equal(j->state, TD_JOB_FAILED);
    assert_int_equal(j->failure.cls, cls);
    assert_int_equal(j->failure.code, code);
    assert_string_equal(j->failure.message, message);
}

static void assert_failed(struct rig *r, int number, enum td_class cls, const char *message) {
    assert_failed_with(r, number, cls, TD_DEADLINE_EXCEEDED, message);
}

// ---- a planner at its deadline ------------------------------------------------------------------
static void test_only_node_is_asked_once_when_its_planner_does_not_end(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    answer_late(&r, r.requests[0]);
    assert_int_equal(r.n_requests, 1);
    assert_failed(&r, 1, TD_CLASS_INTERNAL, late);
    end(&r);
}

static void test_failure_is_of_user_code_when_the_job_names_plugins(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", plugins: [/p/module-x.so]");
    struct rig r;
    begin(&r, 1);
    add_node(&r, "n-2", 1); // is not asked to wait for it, too
    create(&r, 1, spec);
    settle(&r);
    r.session = r.asked[0];
    answer_late(&r, r.requests[0]);
    assert_int_equal(r.n_requests, 1);
    assert_failed(&r, 1, TD_CLASS_USER_CODE, late);
    end(&r);
}

static void test_other_node_is_asked_when_a_planner_does_not_end(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    add_node(&r, "n-2", 1);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    r.session = r.asked[0];
    answer_late(&r, r.requests[0]);
    assert_int_equal(r.n_requests, 2);
    assert_int_not_equal(r.asked[1], r.asked[0]);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    r.session = r.asked[1];
    answer_late(&r, r.requests[1]);
    assert_int_equal(r.n_requests, 2); // each has been asked
    assert_failed(&r, 1, TD_CLASS_INTERNAL, late);
    end(&r);
}

// ---- nodes of another build ---------------------------------------------------------------------
static void test_node_that_reads_other_plans_gets_none(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    const uint64_t own = r.session;
    r.language = "";
    add_node(&r, "old-1", 8); // larger, so it would be asked first
    r.language = "feed";
    add_node(&r, "old-2", 8);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_true(r.asked[0] == own);
    r.session = own;
    answer_plans(&r);
    settle(&r);
    assert_int_equal(r.n_assigned, 1);
    assert_true(r.parts[0].session == own);
    end(&r);
}

static void test_job_waits_and_names_the_node_when_all_are_of_other_builds(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    r.language = "feed";
    say_register(&r, "n-1", 1); // the same session, as another build would
    settle(&r);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    assert_string_equal(reason(&r, 1).code, "NO_NODES");
    assert_non_null(strstr(reason(&r, 1).text, "n-1 is traind"));
    r.language = NULL;
    say_register(&r, "n-1", 1); // it was updated
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    end(&r);
}

static void test_other_node_is_asked_when_one_cannot_read_the_plan(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    add_node(&r, "n-2", 1);
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    r.session = r.asked[0];
    answer_unreadable(&r, r.requests[0]);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    assert_int_equal(r.n_requests, 2);
    assert_int_not_equal(r.asked[1], r.asked[0]);
    r.session = r.asked[1];
    answer_unreadable(&r, r.requests[1]);
    assert_int_equal(r.n_requests, 2); // each has been asked
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    pass(&r, 6);
    assert_failed_with(&r, 1, TD_CLASS_INTERNAL, TD_FAILED_PRECONDITION, unread);
    end(&r);
}

static void test_plan_waits_a_moment_for_a_node_that_can_read_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    answer_unreadable(&r, r.requests[0]);
    pass(&r, 3);
    assert_int_equal(job(&r, 1)->state, TD_JOB_QUEUED);
    add_node(&r, "n-2", 1);
    assert_int_equal(r.n_requests, 2);
    answer_plan(&r, r.requests[1]);
    settle(&r);
    assert_int_equal(r.n_assigned, 1);
    end(&r);
}

// ---- the queue of a node ------------------------------------------------------------------------
static void test_plan_has_its_whole_time_when_others_came_before_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = make_spec(1, 1), *two = make_spec(2, 1);
    struct rig r;
    begin(&r, 2);
    create(&r, 1, one);
    create(&r, 2, two);
    settle(&r);
    assert_int_equal(r.n_requests, 2);
    pass(&r, 600);
    answer_late(&r, r.requests[0]);
    pass(&r, 600);
    assert_int_equal(r.n_requests, 2);
    answer_plan(&r, r.requests[1]);
    settle(&r);
    assert_int_equal(r.n_assigned, 1);
    assert_string_equal(r.assigned, job(&r, 2)->id);
    end(&r);
}

static void test_node_is_named_when_it_does_not_answer(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    pass(&r, 661);
    assert_int_equal(r.n_requests, 1);
    assert_string_equal(r.cancelled, r.requests[0]);
    assert_failed(&r, 1, TD_CLASS_INTERNAL, "node n-1 did not answer with a plan in 660 s");
    end(&r);
}

static void test_plan_is_cancelled_when_the_last_job_that_waits_for_it_is_gone(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    const struct td_job *j = NULL;
    struct rig r;
    begin(&r, 2);
    create(&r, 1, spec);
    create(&r, 2, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_ok(td_core_cancel(r.core, r.now, job(&r, 1)->id, "", &j));
    settle(&r);
    assert_string_equal(r.cancelled, "");
    assert_ok(td_core_cancel(r.core, r.now, job(&r, 2)->id, "", &j));
    settle(&r);
    assert_string_equal(r.cancelled, r.requests[0]);
    answer_plan(&r, r.requests[0]); // it was on its way
    create(&r, 3, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 2);
    end(&r);
}

static void test_plan_is_cancelled_when_the_caller_is_gone(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    assert_ok(td_core_plan(r.core, r.now, spec, false, "", 7));
    take(&r);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    td_core_plan_abandon(r.core, 7);
    settle(&r);
    assert_string_equal(r.cancelled, r.requests[0]);
    end(&r);
}

// ---- what a job that waits after it is shown ---------------------------------------------------
static void test_reason_names_the_job_that_slots_are_kept_for(void **state) {
    (void)state;
    TD_AUTO_FREE char *known = make_spec(1, 2), *hangs = make_spec(2, 2);
    char kept[512];
    struct rig r;
    begin(&r, 2);
    create(&r, 1, known);
    settle(&r);
    answer_plans(&r);
    finish_running(&r);
    say_final(&r);
    settle(&r);
    create(&r, 2, hangs);
    create(&r, 3, known);
    settle(&r);
    assert_string_equal(reason(&r, 2).code, "PLANNING");
    snprintf(kept, sizeof kept,
             "needs 2 slots, 0 free on node n-1 (2 slots, 2 kept for job %s (n) before it)",
             job(&r, 2)->id);
    assert_string_equal(reason(&r, 3).text, kept);
    end(&r);
}

static void test_reason_names_the_job_that_reserves_the_node(void **state) {
    (void)state;
    TD_AUTO_FREE char *one = make_spec(1, 1), *four = make_spec(1, 4);
    char kept[512];
    struct rig r;
    begin(&r, 4);
    create(&r, 1, one);
    settle(&r);
    answer_plans(&r);
    create(&r, 2, four);
    create(&r, 3, one);
    settle(&r);
    answer_plans(&r);
    assert_string_equal(reason(&r, 2).text,
                        "needs 4 slots, 3 free on node n-1 (4 slots); job j-000000000001 (n) runs "
                        "there");
    snprintf(kept, sizeof kept,
             "needs 1 slot, 0 free on node n-1 (4 slots, 3 kept for job %s (n) before it); job %s "
             "(n) runs there",
             job(&r, 2)->id, job(&r, 1)->id);
    assert_string_equal(reason(&r, 3).text, kept);
    end(&r);
}

// ---- restart.max --------------------------------------------------------------------------------
static void fail_attempt(struct rig *r, const char *cls) {
    char text[160];
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    snprintf(text, sizeof text,
             "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"class\":\"%s\"}\n", cls);
    line(r, text);
    say_final(r);
    settle(r);
}

static const char *note_after(const char *restart, const char *cls, uint32_t n_attempts) {
    static char note[400];
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, restart);
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    answer_plans(&r);
    for (uint32_t i = 1; i <= n_attempts; i++) {
        assert_int_equal(r.n_assigned, i);
        fail_attempt(&r, cls);
        pass(&r, 3);
    }
    const struct td_job *j = job(&r, 1);
    assert_int_equal(j->state, TD_JOB_FAILED);
    snprintf(note, sizeof note, "%s", j->n_notes ? j->notes[j->n_notes - 1] : "");
    end(&r);
    return note;
}

static void test_used_up_restarts_are_noted_only_where_one_was_wanted(void **state) {
    (void)state;
    static const char one[] = ", restart: {max: 1, backoff: [0]}",
                      used[] = "the job is not restarted again: restart.max (1) is used up";
    assert_string_equal(note_after(one, "internal", 2), used);
    assert_string_equal(note_after(one, "user_code", 1), "");
    assert_string_equal(note_after(", restart: {max: 0}", "internal", 1), "");
    assert_string_equal(note_after(", restart: {max: 0}", "numeric", 1), "");
}

// A full disk had one more attempt, and that at once.
static void test_pauses_after_disk_errors_double_up_to_a_minute(void **state) {
    (void)state;
    static const int64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 60, 60};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", restart: {max: 8, backoff: [0]}");
    struct rig r;
    begin(&r, 1);
    create(&r, 1, spec);
    settle(&r);
    answer_plans(&r);
    for (uint32_t i = 0; i < TD_COUNTOF(pauses_s); i++) {
        assert_int_equal(r.n_assigned, i + 1);
        fail_attempt(&r, "disk");
        const struct td_job *j = job(&r, 1);
        char words[80], at[32];
        const struct td_real until = {r.now.real.ns + pauses_s[i] * TD_NS_PER_S};
        td_real_format(until, at, sizeof at);
        snprintf(words, sizeof words, "restart %u of 8 in %d s, at %s, after disk: ", i + 1,
                 (int)pauses_s[i], at);
        assert_int_equal(j->retry_at.ns - r.now.mono.ns, pauses_s[i] * TD_NS_PER_S);
        assert_ptr_equal(strstr(j->reason.text, words), j->reason.text);
        pass(&r, pauses_s[i] - 1);
        assert_int_equal(r.n_assigned, i + 1);
        pass(&r, 1);
        if (r.n_requests) answer_plans(&r);
    }
    fail_attempt(&r, "disk");
    assert_int_equal(job(&r, 1)->state, TD_JOB_FAILED);
    end(&r);
}

static void test_auto_precision_is_said_as_it_was_chosen(void **state) {
    (void)state;
    static const struct {
        const char *precision, *other;
        double seconds, other_seconds;
        const char *want;
    } rows[] = {
        {"bf16-mixed", "32-true", 0.002, 0.004,
         "chose bf16-mixed: a step takes about 2 ms, with 32-true 4 ms"},
        {"32-true", "bf16-mixed", 0.002, 0.002,
         "chose 32-true: a step takes about 2 ms, with bf16-mixed 2 ms"},
        {"bf16-mixed", "32-true", 0.004, 0.002,
         "keeps bf16-mixed of the checkpoint: a step takes about 4 ms, with 32-true 2 ms"},
        {"32-true", "", 0.002, 0, "chose 32-true: nothing is known to be faster"},
        {"32-true", "bf16-mixed", 0.002, 0, "chose 32-true: nothing is known to be faster"},
    };
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        char got[TD_PLAN_PRECISION_BYTES], want[TD_PLAN_PRECISION_BYTES];
        snprintf(want, sizeof want, "trainer.precision: auto %s", rows[i].want);
        td_plan_say_precision(rows[i].precision, rows[i].seconds, rows[i].other,
                              rows[i].other_seconds, got);
        assert_string_equal(got, want);
    }
}

// ---- plans of other nodes -----------------------------------------------------------------------
static void test_plan_of_the_same_plugins_comes_before_that_of_others(void **state) {
    (void)state;
    struct rig r;
    struct td_host n = {.plugins = "new"};
    begin(&r, 1);
    snprintf(n.cpu_level_held, sizeof n.cpu_level_held, "avx2");
    assert_ok(td_plans_load(r.core, "digest/amx/old", "{\"shared_bytes\":10}"));
    assert_int_equal(td_plans_find_near(r.core, "digest", &n)->shared_bytes, 10);
    assert_int_equal(td_plans_find_near(r.core, "digest", NULL)->shared_bytes, 10);
    assert_ok(td_plans_load(r.core, "digest/amx/new", "{\"shared_bytes\":20}"));
    assert_int_equal(td_plans_find_near(r.core, "digest", &n)->shared_bytes, 20);
    assert_ok(td_plans_load(r.core, "digest/avx2/new", "{\"shared_bytes\":30}"));
    assert_int_equal(td_plans_find_near(r.core, "digest", &n)->shared_bytes, 30);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_node_is_asked_once_when_its_planner_does_not_end),
        cmocka_unit_test(test_plan_of_the_same_plugins_comes_before_that_of_others),
        cmocka_unit_test(test_failure_is_of_user_code_when_the_job_names_plugins),
        cmocka_unit_test(test_other_node_is_asked_when_a_planner_does_not_end),
        cmocka_unit_test(test_node_that_reads_other_plans_gets_none),
        cmocka_unit_test(test_job_waits_and_names_the_node_when_all_are_of_other_builds),
        cmocka_unit_test(test_other_node_is_asked_when_one_cannot_read_the_plan),
        cmocka_unit_test(test_plan_waits_a_moment_for_a_node_that_can_read_it),
        cmocka_unit_test(test_plan_has_its_whole_time_when_others_came_before_it),
        cmocka_unit_test(test_node_is_named_when_it_does_not_answer),
        cmocka_unit_test(test_plan_is_cancelled_when_the_last_job_that_waits_for_it_is_gone),
        cmocka_unit_test(test_plan_is_cancelled_when_the_caller_is_gone),
        cmocka_unit_test(test_reason_names_the_job_that_slots_are_kept_for),
        cmocka_unit_test(test_reason_names_the_job_that_reserves_the_node),
        cmocka_unit_test(test_used_up_restarts_are_noted_only_where_one_was_wanted),
        cmocka_unit_test(test_pauses_after_disk_errors_double_up_to_a_minute),
        cmocka_unit_test(test_auto_precision_is_said_as_it_was_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
