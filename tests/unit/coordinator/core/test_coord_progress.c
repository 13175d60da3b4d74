// The step that a job shows: samples of its progress, and the lines of its event log.

#include "tests/unit/coordinator/core/coord_rig.h"

#include "daemon/coordinator/core/view.h"

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

// Its rank says no end itself, and what was sampled last came too late to be taken.
static void test_command_ends_at_its_last_step_when_no_sample_had_it(void **state) {
    (void)state;
    struct rig r;
    begin_job(&r);
    sample(&r, 1);
    line(&r, "{\"event\":\"rank_exit\",\"rank\":0,\"code\":0,\"step\":2}\n");
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    sample(&r, 2);
    assert_int_equal(job(&r, 0)->progress.step, 2);
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

static void test_rank_whose_earlier_names_were_not_kept_takes_no_later_ones(void **state) {
    (void)state;
    struct rig r;
    begin_job(&r);
    const char *id = job(&r, 0)->id;
    const struct td_metric_names *t = &job(&r, 0)->attempts[0]->ranks[0].names;
    td_core_load_name(r.core, id, 1, 0, UINT32_MAX, "");
    td_core_load_name(r.core, id, 1, 0, 0, "a_name_of_more_than_23_bytes");
    assert_true(t->full && t->n == 0);
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

// The attempt's row is written with the line that names the step, the job's is not.
static void test_job_shows_its_last_step_when_the_coordinator_starts_again(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 2, .checkpoint_dir = "/c"};
    struct rig r;
    begin_job(&r);
    sample(&r, 301);
    line(&r, "{\"event\":\"end\",\"rank\":0,\"outcome\":\"done\",\"step\":320}\n");
    start_again(&r, &o);
    assert_int_equal(job(&r, 0)->progress.step, 320);
    end(&r);
}

static void test_job_ends_when_its_last_checkpoint_was_removed_before_it_had_arrived(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", checkpoint: {store: stream}");
    char path[] = "a1/step-50", *gone[] = {path};
    struct rig r;
    begin(&r, 1);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    line(&r, "{\"event\":\"checkpoint\",\"rank\":0,\"step\":50,\"path\":\"a1/step-50\",\"files\":"
             "[{\"name\":\"model.safetensors\",\"bytes\":9,\"digest\":"
             "\"0123456789abcdef0123456789abcdef\"}],\"manifest\":"
             "\"0123456789abcdef0123456789abcdef\",\"bytes\":10}\n");
    finish_running(&r);
    assert_int_equal(job(&r, 0)->n_checkpoints, 1);
    assert_false(td_job_state_ended(job(&r, 0)->state)); // it waits for the checkpoint
    Traind__V1__AttemptId id = attempt_id(&r);
    Traind__V1__LogState final = TRAIND__V1__LOG_STATE__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    final.id = &id;
    final.final = true;
    final.gone = gone;
    final.n_gone = 1;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
    m.log_state = &final;
    say(&r, &m);
    assert_int_equal(job(&r, 0)->n_checkpoints, 0);
    assert_true(td_job_state_ended(job(&r, 0)->state));
    assert_true(td_attempt_forgotten(td_job_attempt(job(&r, 0), 1)));
    end(&r);
}

// Says so when a second has passed. ETA of the job in seconds.
static double paced(struct rig *r, uint32_t step, uint32_t total_steps) {
    Traind__V1__AttemptId id = attempt_id(r);
    Traind__V1__AttemptProgress p = TRAIND__V1__ATTEMPT_PROGRESS__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    TD_AUTO(td_arena) *a = NULL;
    assert_ok(td_arena_create(1 << 20, &a));
    pass(r, 1);
    p.id = &id;
    p.step = step;
    p.total_steps = total_steps;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_PROGRESS;
    m.progress = &p;
    say(r, &m);
    return td_view_job(a, r->core, job(r, 0), r->now, 0)->progress->eta_s;
}

static void test_steps_are_timed_from_where_their_number_is_known_to_the_last_one(void **state) {
    (void)state;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_canonical("{kind: command, command: [a]}");
    struct rig r;
    begin_alone(&r, &o);
    r.runs_commands = true;
    add_node(&r, "n-1", 1);
    create(&r, 0, spec);
    settle(&r);
    assert_int_equal(r.n_assigned, 1);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    assert_true(paced(&r, 0, 0) == 0); // imports, loads
    assert_true(paced(&r, 0, 100) == 0);
    assert_true(paced(&r, 0, 100) == 0);
    assert_true(paced(&r, 4, 100) == 0.5 * 96);
    assert_true(paced(&r, 4, 100) == 0.5 * 96); // nothing new: it stays
    assert_true(paced(&r, 4, 100) == 0.5 * 96);
    assert_true(paced(&r, 10, 100) == 0.5 * 90);
    assert_true(paced(&r, 100, 100) == 0);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_timed_from_where_their_number_is_known_to_the_last_one),
        cmocka_unit_test(test_job_ends_at_its_last_step_when_its_node_sends_an_older_sample),
        cmocka_unit_test(test_rank_whose_earlier_names_were_not_kept_takes_no_later_ones),
        cmocka_unit_test(test_command_ends_at_its_last_step_when_no_sample_had_it),
        cmocka_unit_test(test_step_goes_back_when_an_attempt_resumes_from_an_older_one),
        cmocka_unit_test(test_job_shows_its_last_step_when_the_coordinator_starts_again),
        cmocka_unit_test(test_job_ends_when_its_last_checkpoint_was_removed_before_it_had_arrived),
        cmocka_unit_test(test_silent_rank_is_shown_again_when_its_node_was_silent_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
