// The schedule pass: what moves to its reader, what has to stay, and what it is for: shadows of
// parameters do not live before they are read.

#include "tests/unit/graph/step_rig.h"

static struct rig rig;
static struct td_graph *graph;

static int set_up(void **state) {
    (void)state;
    rig_open(&rig);
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, rig.state, &graph));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    td_graph_destroy(graph);
    rig_close(&rig);
    return 0;
}

static td_value param(const char *name) {
    const struct td_shape four = rig_shape(1, 4, 0, 0);
    struct td_init zero = {0};
    td_value v;
    assert_ok(td_graph_param(graph, name, TD_F32, &four, zero, &v));
    return v;
}

static td_value apply(enum td_op op, td_value a, td_value b) {
    const struct td_attrs attrs = {.dtype = TD_F64};
    td_value v;
    assert_ok(td_graph_op(graph, op, (td_value[]){a, b}, b ? 2 : 1, &attrs, &v));
    return v;
}

static td_node maker(td_value v) {
    return td_graph_value(graph, v)->node;
}

static void schedule(void) {
    assert_ok(td_pass_schedule(graph));
    assert_ok(td_graph_verify(graph));
}

static void test_casts_of_state_stand_before_their_readers_when_scheduled(void **state) {
    (void)state;
    td_value a = apply(TD_OP_CAST, param("a"), 0), b = apply(TD_OP_CAST, param("b"), 0);
    td_value c = apply(TD_OP_CAST, param("c"), 0), d = apply(TD_OP_CAST, param("d"), 0);
    td_value first = apply(TD_OP_EXP, a, 0), second = apply(TD_OP_MUL, b, d);
    td_value third = apply(TD_OP_MUL, apply(TD_OP_ADD, first, second), c);
    schedule();
    assert_int_equal(maker(a), 0);
    assert_int_equal(maker(first), 1);
    assert_int_equal(maker(b), 2); // in the order that they had
    assert_int_equal(maker(d), 3);
    assert_int_equal(maker(second), 4);
    assert_int_equal(maker(c), 6);
    assert_int_equal(maker(third), 7);
}

static void test_read_of_state_stays_when_the_state_is_written_before_its_reader(void **state) {
    (void)state;
    td_value p = param("p"), old = apply(TD_OP_EXP, p, 0), other = apply(TD_OP_EXP, param("q"), 0);
    assert_ok(td_graph_op(graph, TD_OP_STORE, (td_value[]){p, other}, 2, NULL, NULL));
    td_value sum = apply(TD_OP_ADD, old, other);
    schedule();
    assert_int_equal(maker(old), 0);
    assert_int_equal(maker(other), 1);
    assert_int_equal(maker(sum), 3);
}

static void test_node_stays_in_its_segment_when_it_is_read_in_the_next(void **state) {
    (void)state;
    td_value early = apply(TD_OP_EXP, param("p"), 0);
    td_value other = apply(TD_OP_LOG, apply(TD_OP_EXP, param("q"), 0), 0);
    td_graph_set_segment(graph, TD_SEG_BACKWARD);
    td_value sum = apply(TD_OP_ADD, early, other);
    schedule();
    assert_int_equal(maker(early), 0);
    assert_int_equal(maker(sum), 3);
}

static size_t arena_bytes(void) {
    struct td_placement *placement;
    size_t bytes;
    assert_ok(td_pass_memory(graph, NULL, &placement, &bytes));
    free(placement);
    return bytes;
}

static void test_arena_of_a_step_shrinks_when_shadows_of_weights_are_made_late(void **state) {
    (void)state;
    const struct step_case *c = step_case("mlp");
    const struct td_autodiff_options autodiff = {0};
    const struct td_program_key key = rig_key(TD_MODE_TRAIN, c->batch, false);
    assert_ok(step_record(td_unconst(c), graph, c->batch));
    assert_ok(td_pass_autodiff(graph, &autodiff));
    assert_ok(step_lower(td_unconst(&td_precision_bf16_mixed), graph, &key));
    assert_ok(td_rewrite_insert_at(graph, TD_REWRITE_END));
    assert_ok(td_pass_simplify(graph));
    assert_ok(td_pass_fuse(graph));
    size_t before = arena_bytes();
    schedule();
    assert_true(arena_bytes() < before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_casts_of_state_stand_before_their_readers_when_scheduled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_read_of_state_stays_when_the_state_is_written_before_its_reader, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_node_stays_in_its_segment_when_it_is_read_in_the_next,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_arena_of_a_step_shrinks_when_shadows_of_weights_are_made_late, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
