// What is still to come of an attempt whose parts have ended, one after the other. How long it is
// waited for, and what it means that one of its nodes is silent, or has lost its files.

#include "daemon/coordinator/core/catalog/catalog.h"
#include "tests/unit/coordinator/core/coord_parts.h"

static const char digest[] = "00000000000000000000000000000000";
static const char done_line[] = "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n";

// Of rank 0, on n-1: its file is on the way.
static void say_checkpoint(struct two *t) {
    char text[320];
    snprintf(text, sizeof text,
             "{\"event\":\"checkpoint\",\"rank\":0,\"step\":3,\"epoch\":0,\"path\":\"a1/step-3\","
             "\"bytes\":1,\"files\":[{\"name\":\"m\",\"bytes\":1,\"digest\":\"%s\"}]}\n",
             digest);
    say_at(t, t->a, text);
}

static void bring_file(struct two *t) {
    Traind__V1__AttemptId id = attempt_id(&t->r);
    assert_ok(td_core_shard_durable(t->r.core, t->r.now, &id, "a1/step-3", "m", 1, digest));
    take(&t->r);
}

static void expect_kept(struct two *t, uint32_t n_notes) {
    const struct td_job *j = job(&t->r, 0);
    const struct td_checkpoint *c = td_catalog_find(j, "a1/step-3");
    assert_int_equal(j->n_notes, n_notes);
    assert_int_equal(j->state, TD_JOB_RUNNING);
    assert_true(c && !c->committed);
    bring_file(t);
    assert_int_equal(j->state, TD_JOB_SUCCEEDED);
    assert_true(td_catalog_find(j, "a1/step-3")->committed);
}

// ---- silence ------------------------------------------------------------------------------------
static void test_checkpoint_on_its_way_is_kept_when_a_node_that_ended_is_silent(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, done_line);
    pass(&t, 40, t.a);
    say_checkpoint(&t);
    say_at(&t, t.a, done_line);
    pass(&t, 50, t.a); // n-2 has been silent for longer than a part that lives may be
    expect_kept(&t, 0);
    end_two(&t);
}

static void test_silence_of_a_node_is_nothing_to_a_job_when_its_part_has_ended(void **state) {
    (void)state;
    struct two t;
    uint32_t n_puts = 0;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, done_line);
    for (int i = 0; i < 200; i++) {
        pass(&t, 1, t.a);
        n_puts += t.r.n_puts[TD_RECORD_ATTEMPT];
        assert_string_equal(job(&t.r, 0)->reason.code, "");
    }
    assert_int_equal(n_puts, 0);
    assert_int_equal(job(&t.r, 0)->n_notes, 0);
    assert_int_equal(job(&t.r, 0)->n_excluded, 0);
    say_at(&t, t.a, done_line);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_SUCCEEDED);
    end_two(&t);
}

// Its node may be back after the end: what it has of the attempt is as good then.
static void test_end_waits_for_a_silent_node_no_longer_than_for_another(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_checkpoint(&t);
    say_at(&t, t.a, done_line);
    pass(&t, 100, t.b);
    say_at(&t, t.b, done_line);
    pass(&t, 60, t.b);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING);
    pass(&t, 10, t.b);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_SUCCEEDED);
    bring_file(&t);
    assert_true(td_catalog_find(job(&t.r, 0), "a1/step-3")->committed);
    end_two(&t);
}

// ---- loss ---------------------------------------------------------------------------------------
static const char lost_note[] = "node n-2 came back without attempt 1: metrics and logs that were "
                                "still to come from it are lost";

// Its daemon begins again, with an empty directory.
static uint64_t come_back_empty(struct two *t, const char *name) {
    return join_as(&t->r, name, 2, "avx2", NULL);
}

// All of a rank's segments are as long as that many points; nothing of them has come.
static void say_ends(struct two *t, uint32_t rank, uint32_t n_points) {
    Traind__V1__AttemptId id = attempt_id(&t->r);
    Traind__V1__LogState ends = TRAIND__V1__LOG_STATE__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    ends.id = &id;
    ends.rank = rank;
    ends.final = true;
    ends.metrics_bytes = n_points * (uint64_t)64;
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_LOG_STATE;
    m.log_state = &ends;
    on(t, rank ? t->b : t->a);
    say(&t->r, &m);
}

static void test_checkpoint_on_its_way_is_kept_when_another_node_lost_its_files(void **state) {
    (void)state;
    for (int all_is_here = 0; all_is_here < 2; all_is_here++) {
        struct two t;
        begin_two(&t, "avx2", "avx2");
        run_both(&t);
        say_at(&t, t.b, done_line);
        if (all_is_here) say_ends(&t, 1, 0);
        say_checkpoint(&t);
        say_at(&t, t.a, done_line);
        come_back_empty(&t, "n-2");
        expect_kept(&t, all_is_here ? 0 : 1);
        if (!all_is_here) assert_string_equal(job(&t.r, 0)->notes[0], lost_note);
        end_two(&t);
    }
}

static void test_metrics_are_not_waited_for_when_their_node_lost_them(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_ends(&t, 1, 3);
    say_at(&t, t.b, done_line);
    say_at(&t, t.a, done_line);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING);
    come_back_empty(&t, "n-2");
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_SUCCEEDED);
    end_two(&t);
}

static void test_loss_of_what_was_to_come_is_noted_once_when_its_node_comes_again(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, done_line);
    for (int i = 0; i < 3; i++) {
        come_back_empty(&t, "n-2");
        pass(&t, 100, t.a);
    }
    assert_int_equal(job(&t.r, 0)->n_notes, 1);
    assert_string_equal(job(&t.r, 0)->notes[0], lost_note);
    end_two(&t);
}

// Nothing of it ever was on that node.
static void test_nothing_is_lost_when_a_node_that_refused_its_part_comes_again(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    refuse_at(&t, t.b);
    come_back_empty(&t, "n-2");
    assert_int_equal(job(&t.r, 0)->n_notes, 0);
    end_two(&t);
}

static uint32_t n_shards(struct two *t) {
    return (uint32_t)td_map_count(t->r.rows[TD_RECORD_SHARD]);
}

// A file of a checkpoint whose event never came is nobody's.
static void test_what_no_checkpoint_names_goes_when_the_last_node_lost_its_files(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_checkpoint(&t);
    Traind__V1__AttemptId id = attempt_id(&t.r);
    assert_ok(td_core_shard_durable(t.r.core, t.r.now, &id, "a1/step-6", "m", 1, digest));
    take(&t.r);
    assert_int_equal(n_shards(&t), 1);
    say_at(&t, t.b, done_line);
    come_back_empty(&t, "n-2");
    say_at(&t, t.a, done_line);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING); // a checkpoint is on its way
    come_back_empty(&t, "n-1");
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_SUCCEEDED);
    assert_null(td_catalog_find(job(&t.r, 0), "a1/step-3"));
    assert_int_equal(n_shards(&t), 0);
    end_two(&t);
}

static void test_what_no_checkpoint_names_goes_when_the_last_part_is_given_up(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    Traind__V1__AttemptId id = attempt_id(&t.r);
    assert_ok(td_core_shard_durable(t.r.core, t.r.now, &id, "a1/step-6", "m", 1, digest));
    take(&t.r);
    say_at(&t, t.b, done_line);
    come_back_empty(&t, "n-2");
    come_back_empty(&t, "n-1"); // its ranks are gone
    assert_int_equal(job(&t.r, 0)->attempts[0]->state, TD_ATTEMPT_ENDED);
    assert_int_equal(n_shards(&t), 0);
    end_two(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_on_its_way_is_kept_when_a_node_that_ended_is_silent),
        cmocka_unit_test(test_silence_of_a_node_is_nothing_to_a_job_when_its_part_has_ended),
        cmocka_unit_test(test_end_waits_for_a_silent_node_no_longer_than_for_another),
        cmocka_unit_test(test_checkpoint_on_its_way_is_kept_when_another_node_lost_its_files),
        cmocka_unit_test(test_metrics_are_not_waited_for_when_their_node_lost_them),
        cmocka_unit_test(test_loss_of_what_was_to_come_is_noted_once_when_its_node_comes_again),
        cmocka_unit_test(test_nothing_is_lost_when_a_node_that_refused_its_part_comes_again),
        cmocka_unit_test(test_what_no_checkpoint_names_goes_when_the_last_node_lost_its_files),
        cmocka_unit_test(test_what_no_checkpoint_names_goes_when_the_last_part_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
