// An attempt with parts on two nodes: how it is placed, what the end of one part means for the
// other, and when silence of a node is enough.

#include "tests/unit/coordinator/core/coord_parts.h"

// ---- start --------------------------------------------------------------------------------------
static void test_ranks_are_numbered_by_the_names_of_their_nodes(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    assert_true(t.r.parts[0].session == t.a && t.r.parts[0].first_rank == 0);
    assert_true(t.r.parts[1].session == t.b && t.r.parts[1].first_rank == 1);
    assert_int_equal(job(&t.r, 0)->n_notes, 0);
    end_two(&t);
}

// The names of all nodes, for errors, and how long a link may be silent: three quarters of a lease.
static void test_plan_of_two_parts_names_the_nodes_and_the_link_timeout(void **state) {
    (void)state;
    static const struct {
        int64_t lease_s;
        const char *run;
    } rows[] = {{0, "\"link_timeout\":7500"}, {1, "\"link_timeout\":4000"}, {40, ":30000"}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        const struct td_core_options o = {
            .incarnation = 1, .checkpoint_dir = "/c", .lease_ns = rows[i].lease_s * TD_NS_PER_S};
        TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
        struct rig r;
        begin_alone(&r, &o);
        r.called = "a \"b\"\n\x7f";
        join_as(&r, "n-1", 2, "avx2", NULL);
        r.called = NULL;
        join_as(&r, "n-2", 2, "avx2", NULL);
        create(&r, 0, spec);
        settle(&r);
        answer_all(&r);
        assert_int_equal(r.n_parts, 2);
        assert_non_null(strstr(r.run, rows[i].run));
        assert_non_null(strstr(r.run, "\"nodes\":[\"a \\\"b\\\"??\",\"n-2\"]"));
        end(&r);
    }
}

static void test_all_ranks_run_at_the_lowest_level_and_a_note_says_so(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx512", "avx2");
    for (uint32_t i = 0; i < 2; i++) {
        assert_string_equal(t.r.parts[i].level, "avx2");
    }
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->n_notes, 1);
    assert_string_equal(j->notes[0],
                        "all ranks run at CPU level avx2, the highest that each of their "
                        "nodes has; node n-1 has avx512");
    end_two(&t);
}

static void test_nodes_of_the_highest_level_are_taken_where_there_are_enough(void **state) {
    (void)state;
    struct rig r;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    begin_alone(&r, &o);
    const uint64_t low = join_as(&r, "n-1", 2, "avx2", NULL);
    join_as(&r, "n-2", 2, "avx512", NULL);
    join_as(&r, "n-3", 2, "avx512", NULL);
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    assert_true(r.parts[0].session != low && r.parts[1].session != low);
    end(&r);
}

static void test_node_without_the_memory_takes_no_part(void **state) {
    (void)state;
    struct rig r;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec =
        make_spec_from(1, 1, ", resources: {nodes: 2, memory_bytes: 8388608}");
    begin_alone(&r, &o);
    r.memory_bytes = 16 << 20;
    join_as(&r, "n-1", 2, "avx2", NULL);
    r.memory_bytes = 4 << 20;
    join_as(&r, "n-2", 2, "avx2", NULL);
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    const struct td_reason why = reason(&r, 0);
    assert_int_equal(r.n_assigned, 0);
    assert_non_null(strstr(why.text, "needs 2 nodes for 1 rank each, 1 connected node could take a "
                                     "part: n-1"));
    r.memory_bytes = 16 << 20;
    join_as(&r, "n-3", 2, "avx2", NULL);
    answer_all(&r);
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

static void test_all_ranks_have_the_threads_that_each_node_has_for_one(void **state) {
    (void)state;
    struct rig r;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    begin_alone(&r, &o);
    r.cores = 8;
    join_as(&r, "n-1", 2, "avx2", NULL);
    r.cores = 6;
    join_as(&r, "n-2", 2, "avx2", NULL);
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    assert_int_equal(r.parts[0].threads, 3);
    assert_int_equal(r.parts[1].threads, 3);
    end(&r);
}

// One of its nodes is in the coordinator's process, where a job of its own keeps its files.
static void test_store_is_decided_by_the_job_and_not_by_each_of_its_nodes(void **state) {
    (void)state;
    struct rig r;
    const struct td_core_options o = {.incarnation = 1, .checkpoint_dir = "/c"};
    TD_AUTO_FREE char *wide = make_spec_from(1, 1, ", resources: {nodes: 2}");
    TD_AUTO_FREE char *narrow = make_spec_from(2, 1, "");
    begin_alone(&r, &o);
    r.embedded = true;
    join_as(&r, "n-1", 2, "avx2", NULL);
    create(&r, 0, narrow);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 1);
    assert_false(r.parts[0].stream);
    r.embedded = false;
    join_as(&r, "n-2", 2, "avx2", NULL);
    create(&r, 1, wide);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    assert_true(r.parts[0].stream && r.parts[1].stream);
    end(&r);
}

// ---- the end ------------------------------------------------------------------------------------
static const char *const failed_line =
    "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"rank\":1,\"class\":\"internal\","
    "\"code\":\"INTERNAL\",\"message\":\"it broke\"}\n";
static const char *const victim_line =
    "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"rank\":0,\"class\":\"collective\","
    "\"code\":\"ABORTED\",\"message\":\"a peer is gone\"}\n";

static void test_part_that_fails_aborts_the_other_and_its_error_is_the_jobs(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, failed_line);
    assert_int_equal(t.r.n_stops, 1);
    assert_true(t.r.stops[0].session == t.a);
    assert_int_equal(t.r.stops[0].mode, TRAIND__V1__STOP__MODE__ABORT);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING); // ranks live still
    assert_string_equal(job(&t.r, 0)->reason.code, "ENDING");
    say_at(&t, t.a, victim_line);
    pass(&t, 6, 0);
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->state, TD_JOB_RECOVERING);
    assert_string_equal(j->failure.message, "it broke");
    assert_string_equal(j->failure.node, "n-2");
    assert_int_equal(j->failure.rank, 1);
    end_two(&t);
}

// Its launcher gives the others there time to end. Those of other nodes have the same time, and not
// one after it.
static void test_other_part_is_aborted_while_the_first_still_ends(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b,
           "{\"event\":\"rank_exit\",\"rank\":1,\"signal\":9,\"class\":\"internal\","
           "\"status\":\"INTERNAL\",\"message\":\"it was killed\"}\n");
    assert_int_equal(t.r.n_stops, 1); // none to the part itself
    assert_true(t.r.stops[0].session == t.a);
    assert_int_equal(t.r.stops[0].mode, TRAIND__V1__STOP__MODE__ABORT);
    assert_string_equal(job(&t.r, 0)->reason.code, "ENDING");
    say_at(&t, t.b, failed_line);
    assert_int_equal(t.r.n_stops, 1); // it was said
    say_at(&t, t.a, victim_line);
    pass(&t, 6, 0);
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RECOVERING);
    assert_string_equal(job(&t.r, 0)->failure.message, "it was killed");
    end_two(&t);
}

static void test_rank_that_ends_by_a_stop_aborts_no_other_part(void **state) {
    (void)state;
    static const char *const classes[] = {"none", "stuck", "preempted"};
    for (size_t i = 0; i < TD_COUNTOF(classes); i++) {
        struct two t;
        char line[256];
        begin_two(&t, "avx2", "avx2");
        run_both(&t);
        snprintf(line, sizeof line, "{\"event\":\"rank_exit\",\"rank\":1,\"class\":\"%s\"}\n",
                 classes[i]);
        say_at(&t, t.b, line);
        assert_int_equal(t.r.n_stops, 0);
        assert_false(td_attempt_aborts(job(&t.r, 0)->attempts[0]));
        end_two(&t);
    }
}

static void test_cause_replaces_the_consequence_that_came_first(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.a, victim_line);
    assert_true(t.r.n_stops == 1 && t.r.stops[0].session == t.b);
    say_at(&t, t.b, failed_line);
    pass(&t, 6, 0);
    assert_string_equal(job(&t.r, 0)->failure.message, "it broke");
    end_two(&t);
}

static void test_abort_is_said_again_to_a_node_that_comes_back(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    td_core_session_close(t.r.core, t.r.now, t.a);
    take(&t.r);
    say_at(&t, t.b, failed_line);
    assert_int_equal(t.r.n_stops, 0);
    Traind__V1__AttemptId id = attempt_id(&t.r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    t.a = join_as(&t.r, "n-1", 2, "avx2", &held);
    assert_int_equal(t.r.n_stops, 1);
    assert_int_equal(t.r.stops[0].mode, TRAIND__V1__STOP__MODE__ABORT);
    end_two(&t);
}

// Ranks of the other node wait for it, and so fall silent themselves.
static void test_rank_that_was_silent_first_is_shown_whatever_the_order_of_nodes(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct two t;
        begin_two(&t, "avx2", "avx2");
        run_both(&t);
        for (int i = 0; i < 2; i++) {
            const int rank = i ? 1 - first : first;
            char line[128];
            snprintf(line, sizeof line,
                     "{\"event\":\"silent\",\"rank\":%d,\"text\":\"rank %d is silent\"}\n", rank,
                     rank);
            say_at(&t, rank ? t.b : t.a, line);
            t.r.now.mono.ns += TD_NS_PER_MS;
        }
        const char *shown = job(&t.r, 0)->reason.text;
        assert_string_equal(shown, first ? "rank 1 is silent" : "rank 0 is silent");
        say_at(&t, first ? t.b : t.a,
               first ? "{\"event\":\"beats\",\"rank\":1}\n" : "{\"event\":\"beats\",\"rank\":0}\n");
        assert_string_equal(shown, first ? "rank 0 is silent" : "rank 1 is silent");
        end_two(&t);
    }
}

// ---- saving -------------------------------------------------------------------------------------
static void expect_no_save(struct two *t, enum td_code code, const char *reason) {
    const struct td_job *j = NULL;
    td_status s = td_core_save(t->r.core, t->r.now, job(&t->r, 0)->id, &j);
    take(&t->r);
    assert_int_equal(td_status_code(s), code);
    assert_string_equal(td_status_reason(s), reason);
    td_status_free(s);
}

static void save(struct two *t) {
    const struct td_job *j = NULL;
    assert_ok(td_core_save(t->r.core, t->r.now, job(&t->r, 0)->id, &j));
    take(&t->r);
    assert_true(j == job(&t->r, 0) && j->state == TD_JOB_RUNNING);
}

static void test_one_node_of_several_is_asked_to_save(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    expect_no_save(&t, TD_FAILED_PRECONDITION, "STATE_STARTING_SAVE");
    run_both(&t);
    save(&t);
    save(&t);
    assert_true(t.r.n_saves == 2 && t.r.saves[0] == t.a && t.r.saves[1] == t.a);
    td_core_session_close(t.r.core, t.r.now, t.b); // its ranks agree with those of the other
    take(&t.r);
    save(&t);
    td_core_session_close(t.r.core, t.r.now, t.a);
    take(&t.r);
    expect_no_save(&t, TD_UNAVAILABLE, "NODE_AWAY");
    assert_int_equal(t.r.n_saves, 3);
    end_two(&t);
}

// Each of its ranks saves for itself, and one that has ended has nothing to save.
static void test_command_is_asked_to_save_where_its_ranks_still_run(void **state) {
    (void)state;
    struct two t;
    TD_AUTO_FREE char *spec =
        make_canonical("{kind: command, command: [a], trainer: {num_nodes: 2}}");
    begin_two_with(&t, "avx2", "avx2", spec);
    run_both(&t);
    save(&t);
    assert_true(t.r.n_saves == 2 && t.r.saves[0] == t.a && t.r.saves[1] == t.b);
    say_at(&t, t.b, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    td_core_session_close(t.r.core, t.r.now, t.b);
    take(&t.r);
    save(&t);
    assert_true(t.r.n_saves == 3 && t.r.saves[2] == t.a);
    end_two(&t);
}

// What it registered is on one node alone: that one is among those of the next attempt.
static void test_command_goes_on_with_the_node_of_its_checkpoint(void **state) {
    (void)state;
    struct two t;
    TD_AUTO_FREE char *spec =
        make_canonical("{kind: command, command: [a], trainer: {num_nodes: 2}}");
    begin_two_with(&t, "avx2", "avx2", spec);
    join_as(&t.r, "n-0", 2, "avx512", NULL); // better than both, and first by name
    run_both(&t);
    say_at(&t, t.a,
           "{\"event\":\"registered\",\"rank\":0,\"step\":3,\"epoch\":0,"
           "\"directory\":\"/x\",\"metrics\":{}}\n");
    say_at(&t, t.b, "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"class\":\"internal\"}\n");
    say_at(&t, t.a, "{\"event\":\"launcher_end\",\"outcome\":\"failed\",\"class\":\"internal\"}\n");
    const struct td_job *j = job(&t.r, 0);
    t.r.now.mono.ns += 60 * TD_NS_PER_S; // its back-off
    td_core_tick(t.r.core, t.r.now);
    take(&t.r);
    settle(&t.r);
    assert_int_equal(j->n_attempts, 2);
    const struct td_attempt *a = td_job_live(j);
    assert_string_equal(a->parts[0].node, "n-0");
    assert_string_equal(a->parts[1].node, "n-1"); // where the checkpoint is
    end_two(&t);
}

static void test_job_that_stops_is_not_asked_to_save(void **state) {
    (void)state;
    struct two t;
    const struct td_job *j = NULL;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    assert_ok(td_core_pause(t.r.core, t.r.now, job(&t.r, 0)->id, &j));
    take(&t.r);
    expect_no_save(&t, TD_FAILED_PRECONDITION, "STATE_PAUSING_SAVE");
    assert_int_equal(t.r.n_saves, 0);
    end_two(&t);
}

static void test_job_succeeds_when_both_parts_have_ended_well(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_RUNNING);
    assert_int_equal(t.r.n_stops, 0);
    say_at(&t, t.a, "{\"event\":\"launcher_end\",\"outcome\":\"done\"}\n");
    assert_int_equal(job(&t.r, 0)->state, TD_JOB_SUCCEEDED);
    end_two(&t);
}

// It was said to be the first of them.
static void test_node_is_not_named_when_a_job_of_several_is_stopped_on_one(void **state) {
    (void)state;
    static const char stopped_line[] = "{\"event\":\"launcher_end\",\"outcome\":\"stopped\"}\n";
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, stopped_line);
    say_at(&t, t.a, stopped_line);
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->n_notes, 1);
    assert_non_null(strstr(j->notes[0], "attempt 1 was stopped on one of its nodes, not by"));
    end_two(&t);
}

static void test_part_that_is_refused_takes_the_other_along(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    say_at(&t, t.a, "{\"event\":\"launched\",\"pid\":1}\n");
    refuse_at(&t, t.b);
    assert_true(t.r.n_stops == 1 && t.r.stops[0].session == t.a);
    say_at(&t, t.a, victim_line);
    pass(&t, 6, 0);
    assert_string_equal(job(&t.r, 0)->failure.message, "the disk is full");
    end_two(&t);
}

// ---- silence ------------------------------------------------------------------------------------
static void test_silence_is_enough_once_the_other_part_lost_it(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    pass(&t, 5, t.a);
    say_at(&t, t.a, victim_line);
    pass(&t, 4, t.a);
    assert_int_equal(job(&t.r, 0)->restarts, 0); // its lease holds
    pass(&t, 8, t.a);
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->restarts, 1); // and not 60 s later
    assert_int_equal(j->failure.cls, TD_CLASS_NODE_LOST);
    assert_string_equal(j->failure.node, "n-2");
    assert_int_equal(j->attempts[0]->parts[1].state, TD_ATTEMPT_FENCED);
    assert_int_equal(j->attempts[0]->parts[0].state, TD_ATTEMPT_ENDED);
    end_two(&t);
}

static void test_silence_alone_gives_nothing_up_before_its_time(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    pass(&t, 60, t.a);
    assert_true(job(&t.r, 0)->state == TD_JOB_RUNNING && t.r.n_stops == 0);
    pass(&t, 12, t.a);
    assert_true(t.r.n_stops == 1 && t.r.stops[0].session == t.a);
    assert_int_equal(t.r.stops[0].mode, TRAIND__V1__STOP__MODE__ABORT);
    end_two(&t);
}

// ---- records ------------------------------------------------------------------------------------
static void test_coordinator_that_starts_again_knows_which_part_has_ended(void **state) {
    (void)state;
    struct two t;
    const struct td_core_options o = {.incarnation = 2, .checkpoint_dir = "/c"};
    begin_two(&t, "avx2", "avx2");
    run_both(&t);
    say_at(&t, t.b, failed_line);
    start_again(&t.r, &o);
    const struct td_attempt *a = job(&t.r, 0)->attempts[0];
    assert_int_equal(a->parts[0].state, TD_ATTEMPT_STARTED);
    assert_int_equal(a->parts[1].state, TD_ATTEMPT_ENDED);
    assert_int_equal(a->parts[1].outcome, TD_OUTCOME_FAILED);
    assert_true(td_attempt_aborts(a));
    end_two(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_numbered_by_the_names_of_their_nodes),
        cmocka_unit_test(test_plan_of_two_parts_names_the_nodes_and_the_link_timeout),
        cmocka_unit_test(test_all_ranks_run_at_the_lowest_level_and_a_note_says_so),
        cmocka_unit_test(test_nodes_of_the_highest_level_are_taken_where_there_are_enough),
        cmocka_unit_test(test_node_without_the_memory_takes_no_part),
        cmocka_unit_test(test_all_ranks_have_the_threads_that_each_node_has_for_one),
        cmocka_unit_test(test_store_is_decided_by_the_job_and_not_by_each_of_its_nodes),
        cmocka_unit_test(test_part_that_fails_aborts_the_other_and_its_error_is_the_jobs),
        cmocka_unit_test(test_other_part_is_aborted_while_the_first_still_ends),
        cmocka_unit_test(test_rank_that_ends_by_a_stop_aborts_no_other_part),
        cmocka_unit_test(test_cause_replaces_the_consequence_that_came_first),
        cmocka_unit_test(test_abort_is_said_again_to_a_node_that_comes_back),
        cmocka_unit_test(test_rank_that_was_silent_first_is_shown_whatever_the_order_of_nodes),
        cmocka_unit_test(test_one_node_of_several_is_asked_to_save),
        cmocka_unit_test(test_command_is_asked_to_save_where_its_ranks_still_run),
        cmocka_unit_test(test_command_goes_on_with_the_node_of_its_checkpoint),
        cmocka_unit_test(test_job_that_stops_is_not_asked_to_save),
        cmocka_unit_test(test_job_succeeds_when_both_parts_have_ended_well),
        cmocka_unit_test(test_node_is_not_named_when_a_job_of_several_is_stopped_on_one),
        cmocka_unit_test(test_part_that_is_refused_takes_the_other_along),
        cmocka_unit_test(test_silence_is_enough_once_the_other_part_lost_it),
        cmocka_unit_test(test_silence_alone_gives_nothing_up_before_its_time),
        cmocka_unit_test(test_coordinator_that_starts_again_knows_which_part_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
