// What is still to come of an attempt whose parts have ended, one after the other. How long it is
// waited for, and what it means that one of its nodes is silent, or has lost its files.

#include "daemon/coordinator/core/catalog.h"
#include "tests/unit/coord_parts.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_on_its_way_is_kept_when_a_node_that_ended_is_silent),
        cmocka_unit_test(test_silence_of_a_node_is_nothing_to_a_job_when_its_part_has_ended),
        cmocka_unit_test(test_end_waits_for_a_silent_node_no_longer_than_for_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
