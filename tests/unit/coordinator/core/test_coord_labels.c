// Labels of nodes: where a job goes that asks for some, and what it waits for. When it is refused,
// with what comes nearest. What becomes of it when labels change.

#include <string.h>

#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/model.h"
#include "tests/unit/coordinator/core/coord_parts.h"

static const struct td_core_options options = {.incarnation = 1, .checkpoint_dir = "/c"};

static td_status try_label(struct rig *r, const char *node, const char *change) {
    const struct td_host *n = NULL;
    char *changes[] = {td_unconst(change)};
    td_status s = td_core_label_node(r->core, r->now, node, changes, 1, &n);
    take(r);
    settle(r);
    return s;
}

static void label(struct rig *r, const char *node, const char *change) {
    assert_ok(try_label(r, node, change));
}

static char *asks_for(int seed, int devices, const char *labels) {
    char more[200];
    snprintf(more, sizeof more, ", resources: {labels: {%s}}", labels);
    return make_spec_from(seed, devices, more);
}

static const char *place(struct rig *r, int number) {
    const struct td_attempt *a = td_job_live(job(r, number));
    return a ? a->parts[0].node : "";
}

static void expect(td_status s, const char *reason, const char *part) {
    if (strcmp(td_status_reason(s), reason) != 0 || !strstr(td_status_message(s), part)) {
        fail_msg("wanted %s: %s, got %s: %s", reason, part, td_status_reason(s),
                 td_status_message(s));
    }
    td_status_free(s);
}

// ---- where it goes ------------------------------------------------------------------------------
static void test_job_goes_to_a_node_with_its_labels_alone(void **state) {
    (void)state;
    TD_AUTO_FREE char *first = asks_for(1, 4, "gpu: h100"), *second = asks_for(2, 4, "gpu: h100");
    TD_AUTO_FREE char *any = make_spec(3, 1);
    struct rig r;
    begin(&r, 2); // fits better
    const uint64_t b = add_node(&r, "n-2", 4);
    add_node(&r, "n-3", 8);
    label(&r, "n-1", "gpu=a100");
    label(&r, "n-2", "gpu=h100");
    label(&r, "n-2", "room=b2");
    create(&r, 1, first);
    settle(&r);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(r.asked[0], b); // it is planned on such a node, too
    answer_all(&r);
    assert_string_equal(place(&r, 1), "n-2");
    create(&r, 2, second);
    settle(&r);
    answer_all(&r);
    assert_string_equal(place(&r, 2), "");
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_SLOTS"); // others have room
    assert_non_null(strstr(reason(&r, 2).text, "on node n-2"));
    create(&r, 3, any);
    settle(&r);
    answer_all(&r);
    assert_string_equal(place(&r, 3), "n-1");
    end(&r);
}

static void test_gang_has_labels_on_each_of_its_nodes(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = make_spec_from(1, 1, ", resources: {nodes: 2, labels: {gpu: h100}}");
    struct rig r;
    begin_alone(&r, &options);
    join_as(&r, "n-1", 2, NULL, NULL);
    join_as(&r, "n-2", 2, NULL, NULL);
    join_as(&r, "n-3", 2, NULL, NULL);
    label(&r, "n-1", "gpu=h100");
    create(&r, 1, spec);
    settle(&r);
    answer_all(&r);
    assert_string_equal(reason(&r, 1).code, "WAITING_FOR_NODE");
    const struct td_reason why = reason(&r, 1);
    assert_non_null(strstr(why.text, "needs 2 nodes with the label gpu=h100 for 1 rank each, "
                                     "1 connected node could take a part: n-1"));
    label(&r, "n-3", "gpu=h100");
    answer_all(&r);
    const struct td_attempt *live = td_job_live(job(&r, 1));
    assert_non_null(live);
    assert_string_equal(live->parts[0].node, "n-1");
    assert_string_equal(live->parts[1].node, "n-3");
    end(&r);
}

// A node without the labels had the CPU level, so that those with them were left out.
static void test_cpu_level_of_a_node_without_the_labels_does_not_count(void **state) {
    (void)state;
    TD_AUTO_FREE char *any = asks_for(1, 1, "gpu: h100"), *spec = make_at_level(any, "avx512");
    struct rig r;
    begin_alone(&r, &options);
    join_as(&r, "n-1", 2, "avx512", NULL);
    const uint64_t b = join_as(&r, "n-2", 2, "avx2", NULL);
    label(&r, "n-2", "gpu=h100");
    create(&r, 1, spec);
    settle(&r);
    assert_int_equal(r.n_requests, 1); // its plan says what n-2 has
    assert_int_equal(r.asked[0], b);
    end(&r);
}

// ---- changes ------------------------------------------------------------------------------------
static void test_job_that_waits_is_looked_at_again_when_labels_change(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = asks_for(1, 2, "gpu: h100"), *second = asks_for(2, 2, "gpu: h100");
    struct rig r;
    begin(&r, 4);
    label(&r, "n-1", "gpu=h100");
    create(&r, 1, spec);
    settle(&r);
    answer_all(&r);
    assert_string_equal(place(&r, 1), "n-1");
    create(&r, 2, second);
    label(&r, "n-1", "gpu-"); // before its plan is there
    answer_all(&r);
    assert_string_equal(place(&r, 1), "n-1"); // what runs goes on
    assert_string_equal(reason(&r, 2).code, "WAITING_FOR_NODE");
    assert_string_equal(reason(&r, 2).text, "there is no connected node with the label gpu=h100");
    assert_int_equal(job(&r, 2)->state, TD_JOB_QUEUED);
    const uint64_t mark = td_queue_reason_mark(r.core, job(&r, 2), r.now.mono);
    label(&r, "n-1", "gpu=h100");
    assert_true(mark != td_queue_reason_mark(r.core, job(&r, 2), r.now.mono));
    answer_all(&r);
    assert_string_equal(place(&r, 2), "n-1");
    end(&r);
}

static void test_labels_are_kept_when_node_and_coordinator_start_again(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = asks_for(1, 1, "gpu: h100");
    struct rig r;
    begin(&r, 2);
    label(&r, "n-1", "gpu=h100");
    label(&r, "n-1", "room=");
    start_again(&r, &options);
    assert_string_equal(td_nodes_find(r.core, "n-1")->labels, "gpu=h100,room=");
    create(&r, 1, spec);
    settle(&r);
    assert_string_equal(reason(&r, 1).code, "NO_NODES");
    r.boot = "another";
    add_node(&r, "n-1", 2);
    assert_string_equal(td_nodes_find(r.core, "n-1")->labels, "gpu=h100,room=");
    answer_all(&r);
    assert_string_equal(place(&r, 1), "n-1");
    end(&r);
}

static void test_change_is_whole_or_none(void **state) {
    (void)state;
    char *const changes[] = {td_unconst("a=1"), td_unconst("b=2"), td_unconst("c d=3")};
    const struct td_host *n = NULL;
    struct rig r;
    begin(&r, 2);
    label(&r, "n-1", "z=9");
    expect(td_core_label_node(r.core, r.now, "n-1", changes, 3, &n), "LABEL_INVALID", "'c d=3'");
    take(&r);
    assert_string_equal(td_nodes_find(r.core, "n-1")->labels, "z=9");
    expect(td_core_label_node(r.core, r.now, "n-1", changes, 0, &n), "LABEL_INVALID", "0 changes");
    expect(td_core_label_node(r.core, r.now, "n-1", changes, 65, &n), "LABEL_INVALID",
           "65 changes");
    expect(try_label(&r, "n-9", "a=1"), "NODE_NOT_FOUND", "'n-9'");
    assert_ok(td_core_label_node(r.core, r.now, "n-1", changes, 2, &n));
    take(&r);
    assert_string_equal(n->labels, "a=1,b=2,z=9");
    label(&r, "n-1", "a-");
    label(&r, "n-1", "b-");
    label(&r, "n-1", "z-");
    assert_null(n->labels);
    end(&r);
}

// ---- never --------------------------------------------------------------------------------------
static td_status try_with(struct rig *r, int number, const char *labels) {
    TD_AUTO_FREE char *spec = asks_for(number, 1, labels);
    const struct td_job *j = NULL;
    return try_create(r, number, spec, &j);
}

static void test_nodes_that_have_the_key_are_counted_when_not_all_can_be_named(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 2);
    label(&r, "n-1", "gpu=a100");
    for (int i = 2; i <= 40; i++) {
        char id[16];
        snprintf(id, sizeof id, "n-%d", i);
        add_node(&r, id, 8);
        label(&r, id, "gpu=a100");
    }
    expect(try_with(&r, 1, "gpu: h100"), "UNSATISFIABLE", " more. Label one: ");
    end(&r);
}

static void test_job_is_refused_with_the_nearest_when_no_known_node_has_its_labels(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = asks_for(9, 1, "gpu: h100"), *large = asks_for(8, 4, "gpu: a100");
    const struct td_job *j = NULL;
    struct rig r;
    begin(&r, 2);
    const uint64_t a = r.session;
    expect(try_with(&r, 1, "gpu: h100"), "UNSATISFIABLE",
           "no known node has gpu=h100; no node has a label gpu. Label one: `trainctl node label "
           "NODE gpu=h100`");
    add_node(&r, "n-2", 8);
    label(&r, "n-1", "gpu=a100");
    label(&r, "n-1", "room=b2");
    label(&r, "n-2", "gpu=l4");
    expect(try_with(&r, 2, "gpu: h100"), "UNSATISFIABLE",
           "no known node has gpu=h100; node n-1 has gpu=a100, node n-2 has gpu=l4. Label");
    expect(try_with(&r, 3, "gpus: a100"), "UNSATISFIABLE",
           "no node has a label gpus, did you mean gpu?");
    expect(try_with(&r, 4, "gpu: l4, room: b2"), "UNSATISFIABLE",
           "no known node has all of gpu=l4,room=b2; node n-1 comes nearest, without gpu=l4; node "
           "n-1 has gpu=a100, node n-2 has gpu=l4");
    // Of the nodes with its labels none is large enough.
    expect(try_create(&r, 8, large, &j), "UNSATISFIABLE", "the largest known node (n-1) has 2");
    expect(td_core_plan(r.core, r.now, spec, true, "", 1), "UNSATISFIABLE", "gpu=h100");
    take(&r);
    td_core_session_close(r.core, r.now, r.session);
    td_core_session_close(r.core, r.now, a);
    take(&r);
    settle(&r);
    assert_ok(try_with(&r, 5, "gpu: h100")); // no node is there to ask
    assert_string_equal(reason(&r, 5).code, "NO_NODES");
    end(&r);
}

static void test_plan_is_not_asked_of_a_node_without_the_labels(void **state) {
    (void)state;
    TD_AUTO_FREE char *spec = asks_for(1, 1, "gpu: h100");
    struct rig r;
    begin(&r, 2);
    label(&r, "n-1", "gpu=h100");
    td_core_session_close(r.core, r.now, r.session);
    take(&r);
    add_node(&r, "n-2", 2);
    assert_ok(td_core_plan(r.core, r.now, spec, true, "", 1));
    take(&r);
    for (int i = 0; i < 8; i++) { // by the second, so that it does not take itself for stopped
        r.now.mono.ns += TD_NS_PER_S;
        settle(&r);
    }
    assert_int_equal(r.n_requests, 0);
    assert_int_equal(r.n_planned, 1);
    assert_non_null(strstr(r.planned, "NO_NODES: no connected node has the labels gpu=h100"));
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_goes_to_a_node_with_its_labels_alone),
        cmocka_unit_test(test_cpu_level_of_a_node_without_the_labels_does_not_count),
        cmocka_unit_test(test_gang_has_labels_on_each_of_its_nodes),
        cmocka_unit_test(test_job_that_waits_is_looked_at_again_when_labels_change),
        cmocka_unit_test(test_labels_are_kept_when_node_and_coordinator_start_again),
        cmocka_unit_test(test_change_is_whole_or_none),
        cmocka_unit_test(test_nodes_that_have_the_key_are_counted_when_not_all_can_be_named),
        cmocka_unit_test(test_job_is_refused_with_the_nearest_when_no_known_node_has_its_labels),
        cmocka_unit_test(test_plan_is_not_asked_of_a_node_without_the_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
