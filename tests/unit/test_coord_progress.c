// The step that a job shows: samples of its progress, and the lines of its event log.

#include "tests/unit/coord_rig.h"

static void sample(struct rig *r, uint32_t step) {
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__AttemptProgress p = TRAIND__V1__ATTEMPT_PROGRESS__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    p.id = &id;
    p.step = step;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS;
    m.progress = &p;
    say(r, &m);
}

static void begin_job(struct rig *r) {
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    begin(r, 1);
    create(r, 0, spec);
    settle(r);
    answer_plans(r);
    assert_int_equal(r->n_assigned, 1);
    line(r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
}

static void test_job_ends_at_its_last_step_when_its_node_sends_an_older_sample(void **state) {
    (void)state;
    struct rig r;
    begin_job(&r);
    sample(&r, 300);
    assert_int_equal(job(&r, 0)->progress.step, 300);
    line(&r, "{\"event\":\"end\",\"rank\":0,\"outcome\":\"done\",\"step\":400}\n");
    const char *row = td_map_get(r.rows[TD_RECORD_ATTEMPT], "j-000000000000/a1");
    assert_non_null(strstr(row, "\"step\":400")); // a coordinator that starts again knows it
    sample(&r, 354); // what was sampled last before the session was lost
    assert_int_equal(job(&r, 0)->progress.step, 400);
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    assert_int_equal(job(&r, 0)->progress.step, 400);
    end(&r);
}

static void test_step_goes_back_when_an_attempt_resumes_from_an_older_one(void **state) {
    (void)state;
    struct rig r;
    begin_job(&r);
    line(&r, "{\"event\":\"checkpoint\",\"rank\":0,\"step\":50,\"path\":\"a1/step-50\"}\n");
    assert_int_equal(job(&r, 0)->progress.step, 50);
    line(&r, "{\"event\":\"resumed\",\"rank\":0,\"step\":20}\n");
    sample(&r, 21);
    assert_int_equal(job(&r, 0)->progress.step, 21);
    end(&r);
}

// By the second, so that the core does not take itself for the one that stood still.
static void pass(struct rig *r, int seconds) {
    for (int i = 0; i < seconds; i++) {
        r->now.mono.ns += TD_NS_PER_S;
        r->now.real.ns += TD_NS_PER_S;
        settle(r);
    }
}

static void test_silent_rank_is_shown_again_when_its_node_was_silent_meanwhile(void **state) {
    (void)state;
    struct rig r;
    begin_job(&r);
    line(&r, "{\"event\":\"silent\",\"rank\":0,\"text\":\"rank 0 is silent since noon\"}\n");
    assert_string_equal(job(&r, 0)->reason.code, "RANK_SILENT");
    pass(&r, 12);
    assert_string_equal(job(&r, 0)->reason.code, "NODE_SILENT");
    Traind__V1__AttemptId id = attempt_id(&r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    r.session = td_core_session_open(r.core, r.now, false);
    say_register_with(&r, "n-1", 1, &held);
    assert_string_equal(job(&r, 0)->reason.code, "RANK_SILENT");
    assert_string_equal(job(&r, 0)->reason.text, "rank 0 is silent since noon");
    line(&r, "{\"event\":\"beats\",\"rank\":0}\n");
    assert_string_equal(job(&r, 0)->reason.code, "");
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_ends_at_its_last_step_when_its_node_sends_an_older_sample),
        cmocka_unit_test(test_step_goes_back_when_an_attempt_resumes_from_an_older_one),
        cmocka_unit_test(test_silent_rank_is_shown_again_when_its_node_was_silent_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
