// A checkpoint of an attempt over two nodes, and the metric points that both ranks recorded before.
// It is committed when they are stored, and void when some are lost.

#include "daemon/coordinator/core/catalog/boundaries.h"
#include "daemon/coordinator/core/catalog/catalog.h"
#include "lib/attempt/rank_page.h"
#include "tests/unit/coordinator/core/coord_parts.h"

enum { RECORD = 64 };
static const char digest[] = "00000000000000000000000000000000";

// Both run; their launchers write boundary lines.
static void run(struct two *t) {
    begin_two(t, "avx2", "avx2");
    say_at(t, t->a, "{\"event\":\"launched\",\"pid\":1,\"boundaries\":true}\n");
    say_at(t, t->b, "{\"event\":\"launched\",\"pid\":1,\"boundaries\":true}\n");
    say_at(t, t->a, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    say_at(t, t->b, "{\"event\":\"ready\",\"rank\":1,\"pid\":2}\n");
}

static void say_boundary(struct two *t, uint32_t rank, uint32_t number, uint32_t n_points) {
    char text[160];
    snprintf(text, sizeof text,
             "{\"event\":\"boundary\",\"rank\":%u,\"number\":%u,\"metrics_bytes\":%u}\n", rank,
             number, n_points * RECORD);
    say_at(t, rank ? t->b : t->a, text);
}

// Of rank 0, whole at the coordinator. boundary 0: its line has none.
static void say_checkpoint(struct two *t, uint32_t step, uint32_t boundary) {
    char text[400], path[64], of[48] = "";
    if (boundary) snprintf(of, sizeof of, ",\"boundary\":%u", boundary);
    snprintf(text, sizeof text,
             "{\"event\":\"checkpoint\",\"rank\":0,\"step\":%u,\"epoch\":0,\"path\":\"a1/step-%u\","
             "\"bytes\":1%s,\"files\":[{\"name\":\"m\",\"bytes\":1,\"digest\":\"%s\"}]}\n",
             step, step, of, digest);
    say_at(t, t->a, text);
    Traind__V1__AttemptId id = attempt_id(&t->r);
    snprintf(path, sizeof path, "a1/step-%u", step);
    assert_ok(td_core_shard_durable(t->r.core, t->r.now, &id, path, "m", 1, digest));
    take(&t->r);
}

// Points of a rank come: records `from` to `to`.
static void send_points(struct two *t, uint32_t rank, uint32_t from, uint32_t to) {
    struct td_metric_record p[16] = {0};
    for (uint32_t i = from; i < to; i++) {
        snprintf(p[i - from].name, sizeof p[0].name, "train_loss_step");
        p[i - from].step = (int32_t)i + 1;
        p[i - from].sum = p[i - from].count = 1;
    }
    Traind__V1__AttemptId id = attempt_id(&t->r);
    Traind__V1__Segment s = TRAIND__V1__SEGMENT__INIT;
    Traind__V1__NodeMessage m = TRAIND__V1__NODE_MESSAGE__INIT;
    s.id = &id;
    s.kind = TRAIND__V1__SEGMENT__KIND__METRICS;
    s.rank = rank;
    s.offset = from * RECORD;
    s.data = (ProtobufCBinaryData){(to - from) * RECORD, (uint8_t *)p};
    m.body_case = TRAIND__V1__NODE_MESSAGE__BODY_SEGMENT;
    m.segment = &s;
    on(t, rank ? t->b : t->a);
    say(&t->r, &m);
}

static void store_points(struct two *t, uint32_t rank, uint32_t n_points) {
    td_core_points_committed(t->r.core, t->r.now, t->r.assigned, 1, rank, n_points * RECORD);
    take(&t->r);
}

static bool committed(struct two *t, const char *path) {
    const struct td_checkpoint *c = td_catalog_find(job(&t->r, 0), path);
    return c && c->committed;
}

static const char *note_of(struct two *t, const char *word) {
    const struct td_job *j = job(&t->r, 0);
    for (uint32_t i = 0; i < j->n_notes; i++) {
        if (strstr(j->notes[i], word)) return j->notes[i];
    }
    return "";
}

// ---- it waits -----------------------------------------------------------------------------------
static void test_checkpoint_is_committed_when_points_of_all_ranks_are_stored(void **state) {
    (void)state;
    struct two t;
    run(&t);
    send_points(&t, 0, 0, 3);
    say_boundary(&t, 0, 1, 3);
    say_checkpoint(&t, 3, 1);
    store_points(&t, 0, 3);
    assert_false(committed(&t, "a1/step-3")); // rank 1 has said nothing yet
    send_points(&t, 1, 0, 2);
    say_boundary(&t, 1, 1, 3);
    store_points(&t, 1, 2);
    assert_false(committed(&t, "a1/step-3")); // it is slow: one is still to come
    send_points(&t, 1, 2, 3);
    assert_false(committed(&t, "a1/step-3")); // and not stored
    store_points(&t, 1, 3);
    assert_true(committed(&t, "a1/step-3"));
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING);
    end_two(&t);
}

static void test_what_is_waited_for_is_known_when_the_coordinator_starts_again(void **state) {
    (void)state;
    struct two t;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    run(&t);
    say_boundary(&t, 0, 1, 3);
    say_boundary(&t, 1, 1, 3);
    say_checkpoint(&t, 3, 1);
    Traind__V1__AttemptId id = attempt_id(&t.r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    load_again(&t.r, &o);
    td_core_load_offset(t.r.core, t.r.assigned, 1, 0, TRAIND__V1__SEGMENT__KIND__METRICS,
                        3 * RECORD);
    td_core_start(t.r.core, t.r.now);
    take(&t.r);
    assert_false(committed(&t, "a1/step-3"));
    t.b = join_as(&t.r, "n-2", 2, "avx2", &held);
    send_points(&t, 1, 0, 3);
    assert_false(committed(&t, "a1/step-3"));
    store_points(&t, 1, 3);
    assert_true(committed(&t, "a1/step-3"));
    end_two(&t);
}

// Of a rank that saves faster than its points are stored two boundaries are remembered.
static void test_boundary_that_is_waited_for_is_not_put_off_by_later_ones(void **state) {
    (void)state;
    struct td_rank_cursor c = {0};
    for (uint32_t number = 1; number <= 9; number++) {
        td_boundary_passed(&c, number, number * RECORD);
    }
    c.metrics_done = RECORD;
    td_boundary_passed(&c, 10, 10 * RECORD);
    struct td_attempt a = {.n_ranks = 1, .ranks = &c};
    td_boundaries_look(&a);
    assert_int_equal(c.kept, 1);
    assert_true(td_boundaries_wait(&a));
    c.metrics_done = 10 * RECORD;
    td_boundaries_look(&a);
    assert_int_equal(c.kept, 10);
    assert_false(td_boundaries_wait(&a));
}

static void test_checkpoint_that_its_rank_removed_stays_while_it_waits_for_points(void **state) {
    (void)state;
    struct two t;
    run(&t);
    for (uint32_t i = 1; i <= 3; i++) { // its rank keeps one
        say_boundary(&t, 0, i, 0);
        say_checkpoint(&t, i, i);
        char text[96];
        snprintf(text, sizeof text,
                 "{\"event\":\"removed\",\"rank\":0,\"step\":%u,\"path\":\"a1/step-%u\"}\n", i - 1,
                 i - 1);
        if (i > 1) say_at(&t, t.a, text);
    }
    assert_int_equal(job(&t.r, 0)->n_checkpoints, 2); // one of two that were removed, and the last
    say_boundary(&t, 1, 1, 0);
    assert_true(committed(&t, "a1/step-1"));
    assert_false(committed(&t, "a1/step-3"));
    say_boundary(&t, 1, 3, 0);
    assert_true(committed(&t, "a1/step-3"));
    assert_int_equal(job(&t.r, 0)->n_checkpoints, 1);
    end_two(&t);
}

static void test_checkpoint_waits_for_nobody_when_launchers_are_of_an_older_build(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_checkpoint(&t, 3, 1);
    assert_true(committed(&t, "a1/step-3"));
    end_two(&t);
}

// ---- it is void ---------------------------------------------------------------------------------
static const char victim_line[] =
    "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"rank\":0,\"class\":\"collective\","
    "\"code\":\"ABORTED\",\"message\":\"rank 1 is gone\"}\n";

static void test_job_goes_on_from_the_one_before_when_the_node_of_points_is_given_up(void **state) {
    (void)state;
    struct two t;
    run(&t);
    send_points(&t, 1, 0, 3);
    say_boundary(&t, 0, 1, 0);
    say_boundary(&t, 1, 1, 3);
    store_points(&t, 1, 3);
    say_checkpoint(&t, 3, 1);
    assert_true(committed(&t, "a1/step-3"));
    say_boundary(&t, 0, 2, 0);
    say_checkpoint(&t, 6, 2); // n-2 is silent from here on
    say_at(&t, t.a, victim_line);
    pass(&t, 12, t.a);
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->restarts, 1);
    assert_int_equal(j->attempts[0]->parts[1].state, TD_ATTEMPT_FENCED);
    assert_null(td_catalog_find(j, "a1/step-6"));
    assert_string_equal(td_catalog_find(j, NULL)->path, "a1/step-3");
    assert_non_null(strstr(note_of(&t, "a1/step-6"), "metrics of node n-2 up to step 6 are lost"));
    t.b = join_as(&t.r, "n-2", 2, "avx2", NULL);
    answer_all(&t.r);
    assert_int_equal(job(&t.r, 0)->n_attempts, 2);
    assert_int_equal(t.r.n_parts, 2); // all ranks go on from one
    assert_string_equal(t.r.parts[0].resume, "a1/step-3");
    assert_string_equal(t.r.parts[1].resume, "a1/step-3");
    end_two(&t);
}

// What it had sent is on its way into metrics.db, and comes there.
static void test_checkpoint_is_committed_when_a_node_is_given_up_that_had_sent_all(void **state) {
    (void)state;
    struct two t;
    run(&t);
    send_points(&t, 1, 0, 3);
    say_boundary(&t, 0, 1, 0);
    say_boundary(&t, 1, 1, 3);
    say_checkpoint(&t, 3, 1);
    say_at(&t, t.a, victim_line);
    pass(&t, 12, t.a);
    assert_int_equal(job(&t.r, 0)->attempts[0]->parts[1].state, TD_ATTEMPT_FENCED);
    assert_false(committed(&t, "a1/step-3"));
    store_points(&t, 1, 3);
    assert_true(committed(&t, "a1/step-3"));
    end_two(&t);
}

static void test_checkpoint_is_void_when_a_launcher_was_killed_before_its_boundary(void **state) {
    (void)state;
    struct two t;
    run(&t);
    say_boundary(&t, 0, 1, 0);
    say_checkpoint(&t, 3, 1);
    say_at(&t, t.b,
           "{\"event\":\"launcher_lost\",\"class\":\"internal\",\"message\":\"killed\"}\n");
    assert_null(td_catalog_find(job(&t.r, 0), "a1/step-3"));
    assert_true(note_of(&t, "a1/step-3")[0]);
    end_two(&t);
}

static void test_line_about_a_rank_of_another_node_is_not_taken(void **state) {
    (void)state;
    struct two t;
    run(&t);
    say_at(&t, t.a, "{\"event\":\"boundary\",\"rank\":1,\"number\":1,\"metrics_bytes\":0}\n");
    assert_int_equal(job(&t.r, 0)->attempts[0]->ranks[1].kept, 0);
    assert_int_equal(td_core_counter(t.r.core, TD_COUNT_BAD_LINES), 1);
    end_two(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_is_committed_when_points_of_all_ranks_are_stored),
        cmocka_unit_test(test_what_is_waited_for_is_known_when_the_coordinator_starts_again),
        cmocka_unit_test(test_boundary_that_is_waited_for_is_not_put_off_by_later_ones),
        cmocka_unit_test(test_checkpoint_that_its_rank_removed_stays_while_it_waits_for_points),
        cmocka_unit_test(test_checkpoint_waits_for_nobody_when_launchers_are_of_an_older_build),
        cmocka_unit_test(test_job_goes_on_from_the_one_before_when_the_node_of_points_is_given_up),
        cmocka_unit_test(test_checkpoint_is_committed_when_a_node_is_given_up_that_had_sent_all),
        cmocka_unit_test(test_checkpoint_is_void_when_a_launcher_was_killed_before_its_boundary),
        cmocka_unit_test(test_line_about_a_rank_of_another_node_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
