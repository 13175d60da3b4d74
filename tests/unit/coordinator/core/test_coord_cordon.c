// Nodes that operators keep from new attempts, and nodes that they empty: who gets what, what is
// stopped and what stays, and that a restart changes none of it.

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "daemon/coordinator/core/nodes/drain.h"
#include "tests/unit/coordinator/core/coord_parts.h"

static const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = "/c"};
static const char command[] = "{kind: command, command: [sleep], trainer: {devices: 1}}";

static td_status try_cordon(struct rig *r, const char *node, const char *reason, bool drains) {
    const struct td_host *n = NULL;
    const struct td_core_cordon request = {
        .node = node, .by = "alice", .reason = reason, .drains = drains};
    td_status s = td_core_cordon(r->core, r->now, &request, &n);
    take(r);
    return s;
}

static void cordon(struct rig *r, const char *node) {
    assert_ok(try_cordon(r, node, "a fan is loud", false));
    settle(r);
}

static void drain(struct rig *r, const char *node) {
    assert_ok(try_cordon(r, node, "", true));
    settle(r);
}

static void uncordon(struct rig *r, const char *node) {
    const struct td_host *n = NULL;
    assert_ok(td_core_uncordon(r->core, r->now, node, &n));
    take(r);
    settle(r);
}

static const struct td_host *host(struct rig *r, const char *id) {
    const struct td_host *n = td_nodes_find(r->core, id);
    assert_non_null(n);
    return n;
}

// Two nodes, the second of which is cordoned, and a job that spans some.
static void begin_gang(struct rig *r, const char *spec) {
    begin_alone(r, &options);
    join_as(r, "n-1", 2, "", NULL);
    join_as(r, "n-2", 2, "", NULL);
    cordon(r, "n-2");
    create(r, 0, spec);
    settle(r);
    answer_all(r);
}

static void begin_command(struct rig *r, const char *spec) {
    begin_alone(r, &options);
    r->runs_commands = true;
    add_node(r, "n-1", 1);
    create(r, 0, spec);
    settle(r);
}

// ---- new attempts -------------------------------------------------------------------------------
static void test_cordoned_node_gets_no_attempt_and_the_one_there_goes_on(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 2);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    cordon(&r, "n-1");
    create(&r, 1, spec);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    assert_int_equal(r.n_stops, 0);
    struct td_reason why = reason(&r, 1);
    assert_string_equal(why.code, "NODES_CORDONED");
    assert_string_equal(why.text,
                        "node n-1 is cordoned; `trainctl node uncordon n-1` lets jobs start there");
    uncordon(&r, "n-1"); // the queue looks again at once
    assert_int_equal(r.n_assigned, 2);
    end(&r);
}

static void test_another_node_is_taken_while_the_better_one_is_cordoned(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 2);
    struct rig r;
    begin(&r, 2);
    const uint64_t b = add_node(&r, "n-2", 3); // n-1 fits best
    cordon(&r, "n-1");
    create(&r, 0, spec);
    settle(&r);
    answer_all(&r);
    assert_int_equal(r.n_parts, 1);
    assert_int_equal(r.parts[0].session, b);
    create(&r, 1, spec);
    settle(&r);
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_SLOTS"); // n-2 fits, and is busy
    end(&r);
}

static void test_gang_that_lacks_cordoned_nodes_says_so(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2}");
    struct rig r;
    begin_gang(&r, spec);
    assert_int_equal(r.n_assigned, 0);
    assert_string_equal(reason(&r, 0).code, "NODES_CORDONED");
    assert_non_null(strstr(reason(&r, 0).text, "needs 2 nodes, and 1 other could take a part: node "
                                               "n-2 is cordoned; `trainctl node uncordon n-2`"));
    uncordon(&r, "n-2");
    answer_all(&r);
    assert_int_equal(r.n_parts, 2);
    end(&r);
}

static void test_gang_that_has_too_few_nodes_all_the_same_names_the_cordoned_one(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 3}");
    struct rig r;
    begin_gang(&r, spec);
    assert_string_equal(reason(&r, 0).code, "WAITING_FOR_NODE");
    assert_non_null(strstr(reason(&r, 0).text, "needs 3 nodes for 1 rank each, 1 connected node "
                                               "could take a part: n-1; node n-2 is cordoned "
                                               "(trainctl node uncordon)"));
    end(&r);
}

// One that lost a launcher of the job is avoided while another can be had: here none can.
static void test_excluded_node_is_taken_while_the_other_is_cordoned(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", restart: {max: 3, backoff: [0]}");
    struct rig r;
    begin(&r, 1);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    const uint64_t a = r.session, events = r.events;
    add_node(&r, "n-2", 1);
    cordon(&r, "n-2");
    r.session = a;
    r.events = events;
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"launcher_lost\",\"class\":\"internal\",\"message\":\"killed\"}\n");
    settle(&r);
    answer_plans(&r);
    assert_true(td_job_excludes(job(&r, 0), "n-1"));
    assert_int_equal(job(&r, 0)->n_attempts, 2);
    assert_int_equal(r.parts[0].session, a);
    end(&r);
}

static void test_plan_is_made_where_the_job_may_start(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 4); // it would be asked for being larger
    const uint64_t b = add_node(&r, "n-2", 1);
    cordon(&r, "n-1");
    assert_ok(td_core_plan(r.core, r.now, spec, false, "", 7));
    take(&r);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(r.asked[0], b);
    end(&r);
}

static void test_cordoned_node_is_not_forgotten_for_a_new_one(void **state) {
    (void)state;
    struct rig r;
    char id[64];
    begin(&r, 1);
    cordon(&r, "n-1");
    for (int i = 0; i < TD_CORE_MAX_NODES; i++) {
        td_core_session_close(r.core, r.now, r.session); // each goes before the next one comes
        take(&r);
        r.now.real.ns++;
        snprintf(id, sizeof id, "other-%d", i);
        add_node(&r, id, 1);
    }
    assert_true(host(&r, "n-1")->cordon.on); // which was seen before all of them
    assert_null(td_nodes_find(r.core, "other-0"));
    end(&r);
}

static void test_job_that_only_a_cordoned_node_could_hold_waits(void **state) {
    (void)state;
    TD_AUTO_FREE char *fits = make_spec(1, 4), *too_large = make_spec(2, 5);
    struct rig r;
    const struct td_job *j = NULL;
    begin(&r, 4);
    add_node(&r, "n-2", 1);
    cordon(&r, "n-1");
    assert_ok(try_create(&r, 0, fits, &j));
    settle(&r);
    assert_int_equal(job(&r, 0)->state, TD_JOB_QUEUED);
    assert_string_equal(reason(&r, 0).code, "NODES_CORDONED");
    assert_fails(try_create(&r, 1, too_large, &j), TD_FAILED_PRECONDITION, "(n-1) has 4");
    end(&r);
}

static void test_cordon_survives_a_restart_and_a_registration(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 2);
    cordon(&r, "n-1");
    const int64_t time_ns = host(&r, "n-1")->cordon.time_ns;
    start_again(&r, &options);
    r.boot = "another";
    add_node(&r, "n-1", 4);
    const struct td_host_cordon *c = &host(&r, "n-1")->cordon;
    assert_true(c->on && !c->drains);
    assert_string_equal(c->by, "alice");
    assert_string_equal(c->reason, "a fan is loud");
    assert_true(c->time_ns == time_ns && time_ns == r.now.real.ns);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 0);
    uncordon(&r, "n-1");
    answer_plans(&r);
    assert_int_equal(r.n_assigned, 1);
    assert_int_equal(td_map_count(r.rows[TD_RECORD_NODE_ADMIN]), 0);
    end(&r);
}

static void test_newest_call_is_shown_and_a_reason_stays(void **state) {
    (void)state;
    struct rig r;
    const struct td_host *n = NULL;
    begin(&r, 1);
    cordon(&r, "n-1");
    r.now.real.ns += TD_NS_PER_S;
    const struct td_core_cordon again = {.node = "n-1", .by = "bob", .reason = "", .drains = true};
    assert_ok(td_core_cordon(r.core, r.now, &again, &n));
    take(&r);
    assert_string_equal(n->cordon.by, "bob");
    assert_string_equal(n->cordon.reason, "a fan is loud");
    assert_true(n->cordon.drains && n->cordon.time_ns == r.now.real.ns);
    cordon(&r, "n-1"); // of one that is drained no drain is ended
    assert_true(n->cordon.drains);
    end(&r);
}

// ---- names --------------------------------------------------------------------------------------
static void test_unknown_node_is_refused_with_the_nearest(void **state) {
    (void)state;
    struct rig r;
    const struct td_host *n = NULL;
    begin(&r, 1);
    assert_fails(try_cordon(&r, "n-2", "", false), TD_NOT_FOUND,
                 "no node has the id or the name 'n-2', did you mean n-1?");
    assert_fails(td_core_uncordon(r.core, r.now, "somewhere-else", &n), TD_NOT_FOUND,
                 "'somewhere-else'; `trainctl node list`");
    end(&r);
}

static void test_of_several_of_one_name_the_connected_one_is_meant(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 1);
    r.called = "gpu";
    uint64_t session = add_node(&r, "n-2", 1);
    for (int i = 0; i < 2; i++) {
        td_core_session_close(r.core, r.now, session);
        take(&r);
        if (i == 0) session = add_node(&r, "n-3", 1); // installed again
        if (i == 0) assert_ok(try_cordon(&r, "gpu", "", false));
    }
    assert_true(host(&r, "n-3")->cordon.on && !host(&r, "n-2")->cordon.on);
    td_status s = try_cordon(&r, "gpu", "", false); // both are away now
    assert_int_equal(td_status_code(s), TD_FAILED_PRECONDITION);
    assert_string_equal(td_status_reason(s), "NODE_AMBIGUOUS");
    assert_non_null(strstr(td_status_message(s), "2 nodes are called 'gpu'"));
    assert_non_null(strstr(td_status_message(s), "n-2, n-3"));
    td_status_free(s);
    assert_ok(try_cordon(&r, "n-2", "", false)); // by its id
    end(&r);
}

// ---- draining -----------------------------------------------------------------------------------
static void stop_at(struct two *t, uint64_t session) {
    say_at(t, session, "{\"event\":\"launcher_end\",\"outcome\":\"stopped\"}\n");
    say_final(&t->r);
    settle(&t->r);
}

static void test_drain_stops_the_whole_gang_and_it_goes_on_elsewhere(void **state) {
    (void)state;
    struct two t;
    begin_two(&t, "", "");
    const uint64_t c = join_as(&t.r, "n-3", 2, "", NULL);
    run_both(&t);
    drain(&t.r, "n-1");
    assert_int_equal(t.r.n_stops, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.r.stops[i].mode, TRAIND__V1__STOP__MODE__CHECKPOINT);
    }
    assert_string_equal(job(&t.r, 0)->reason.code, "LEAVING_NODE");
    stop_at(&t, t.a);
    assert_false(td_drain_is_empty(t.r.core, host(&t.r, "n-1"))); // its other part still stops
    stop_at(&t, t.b);
    const struct td_job *j = job(&t.r, 0);
    assert_int_equal(j->n_attempts, 2);
    assert_int_equal(j->restarts, 0);
    assert_int_equal(j->n_excluded, 0);
    assert_int_equal(t.r.n_parts, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(t.r.parts[i].session == t.b || t.r.parts[i].session == c);
    }
    assert_non_null(strstr(j->notes[j->n_notes - 1], "attempt 1 was stopped, as node n-1 was "
                                                     "drained"));
    end_two(&t);
}

static void test_node_is_empty_when_nothing_more_comes_from_it(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", checkpoint: {dir: /shared}");
    struct rig r;
    begin(&r, 1);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    drain(&r, "n-1");
    assert_int_equal(r.n_stops, 1);
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"stopped\"}\n");
    settle(&r);
    assert_int_equal(job(&r, 0)->state, TD_JOB_QUEUED);
    assert_string_equal(reason(&r, 0).code, "NODES_CORDONED");
    assert_false(td_drain_is_empty(r.core, host(&r, "n-1"))); // its log may be longer
    say_final(&r);
    assert_true(td_drain_is_empty(r.core, host(&r, "n-1")));
    td_core_tick(r.core, r.now);
    take(&r);
    assert_string_equal(r.said, "node is drained and empty node=n-1");
    end(&r);
}

static void test_command_without_a_checkpoint_stays_until_it_registers_one(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_canonical(command);
    struct rig r;
    const char *why;
    begin_command(&r, spec);
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    drain(&r, "n-1");
    const struct td_job *j = job(&r, 0);
    assert_int_equal(r.n_stops, 0);
    assert_int_equal(j->state, TD_JOB_RUNNING);
    assert_false(td_drain_leaves(j, td_job_live(j), &why));
    assert_string_equal(why, "it is a command that has registered no checkpoint");
    line(&r, "{\"event\":\"registered\",\"rank\":0,\"step\":3,\"epoch\":0,\"directory\":\"/x\","
             "\"metrics\":{}}\n");
    td_core_tick(r.core, r.now);
    take(&r);
    assert_int_equal(r.n_stops, 1);
    assert_true(td_drain_leaves(j, td_job_live(j), &why));
    assert_non_null(strstr(why, "on this node alone"));
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"stopped\"}\n");
    settle(&r);
    assert_non_null(strstr(reason(&r, 0).text,
                           "node n-1, which alone has its checkpoint a1/step-3, "
                           "is cordoned"));
    uncordon(&r, "n-1");
    assert_int_equal(j->n_attempts, 2);
    assert_int_equal(j->restarts, 0);
    end(&r);
}

static void test_uncordon_ends_a_drain_and_the_node_gets_the_job_back(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec(1, 1);
    struct rig r;
    begin(&r, 1);
    create(&r, 0, spec);
    settle(&r);
    answer_plans(&r);
    drain(&r, "n-1");
    uncordon(&r, "n-1");
    line(&r, "{\"event\":\"launched\",\"pid\":1}\n");
    line(&r, "{\"event\":\"launcher_end\",\"outcome\":\"stopped\"}\n");
    settle(&r);
    answer_plans(&r);
    assert_int_equal(job(&r, 0)->n_attempts, 2);
    assert_int_equal(job(&r, 0)->restarts, 0);
    assert_int_equal(r.n_stops, 0); // of the second
    end(&r);
}

static void test_drain_goes_on_after_a_restart(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_canonical(command);
    struct rig r;
    begin_command(&r, spec);
    line(&r, "{\"event\":\"ready\",\"rank\":0,\"pid\":2}\n");
    drain(&r, "n-1");
    start_again(&r, &options);
    const uint64_t events = r.events;
    Traind__V1__AttemptId id = attempt_id(&r);
    Traind__V1__AttemptHeld held = TRAIND__V1__ATTEMPT_HELD__INIT;
    held.id = &id;
    held.alive = true;
    held.launcher_major = 1;
    r.session = td_core_session_open(r.core, r.now, false);
    say_register_with(&r, "n-1", 1, &held);
    r.events = events;
    assert_true(host(&r, "n-1")->cordon.drains);
    line(&r, "{\"event\":\"registered\",\"rank\":0,\"step\":3,\"epoch\":0,\"directory\":\"/x\","
             "\"metrics\":{}}\n");
    td_core_tick(r.core, r.now);
    take(&r);
    assert_int_equal(r.n_stops, 1);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cordoned_node_gets_no_attempt_and_the_one_there_goes_on),
        cmocka_unit_test(test_another_node_is_taken_while_the_better_one_is_cordoned),
        cmocka_unit_test(test_gang_that_lacks_cordoned_nodes_says_so),
        cmocka_unit_test(test_gang_that_has_too_few_nodes_all_the_same_names_the_cordoned_one),
        cmocka_unit_test(test_excluded_node_is_taken_while_the_other_is_cordoned),
        cmocka_unit_test(test_plan_is_made_where_the_job_may_start),
        cmocka_unit_test(test_cordoned_node_is_not_forgotten_for_a_new_one),
        cmocka_unit_test(test_job_that_only_a_cordoned_node_could_hold_waits),
        cmocka_unit_test(test_cordon_survives_a_restart_and_a_registration),
        cmocka_unit_test(test_newest_call_is_shown_and_a_reason_stays),
        cmocka_unit_test(test_unknown_node_is_refused_with_the_nearest),
        cmocka_unit_test(test_of_several_of_one_name_the_connected_one_is_meant),
        cmocka_unit_test(test_drain_stops_the_whole_gang_and_it_goes_on_elsewhere),
        cmocka_unit_test(test_node_is_empty_when_nothing_more_comes_from_it),
        cmocka_unit_test(test_command_without_a_checkpoint_stays_until_it_registers_one),
        cmocka_unit_test(test_uncordon_ends_a_drain_and_the_node_gets_the_job_back),
        cmocka_unit_test(test_drain_goes_on_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
