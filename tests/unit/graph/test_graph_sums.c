// Sums over ranks in a graph. What the verifier refuses between a start and its await, whether a
// view of a sum is kept, and what the list says that an accelerator reads.

#include "tests/unit/test.h"

#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/state.h"
#include "engine/graph/verify.h"
#include "tests/unit/graph/graph_rig.h"
#include "traind/build.h"
#include "traind/sum.h"

static struct td_state_table *table;
static struct td_graph *graph;
static td_value grad[2], weight;

static td_value add_state(const char *name, enum td_role role, uint32_t param) {
    const struct td_shape shape = {2, {3, 5}};
    const struct td_init zero = {0};
    uint32_t index;
    td_value v;
    assert_ok(td_state_add(table, name, role, TD_F32, &shape, zero, param, &index));
    assert_ok(td_graph_state_value(graph, index, &v));
    return v;
}

static int set_up(void **state) {
    (void)state;
    if (td_state_table_create(&table)) return -1;
    if (td_graph_create("train", TD_MODE_TRAIN, table, &graph)) return -1;
    weight = add_state("w", TD_ROLE_PARAM, 0);
    grad[0] = add_state("w:grad", TD_ROLE_GRAD, 0);
    grad[1] = add_state("w:other", TD_ROLE_GRAD, 0);
    td_graph_set_segment(graph, TD_SEG_BACKWARD);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    td_graph_destroy(graph);
    td_state_table_destroy(table);
    return 0;
}

static td_value start(int i) {
    const struct td_attrs a = {.bucket = (uint32_t)i};
    td_value token = 0;
    assert_ok(td_graph_op(graph, TD_OP_ALL_REDUCE, &grad[i], 1, &a, &token));
    return token;
}

static void await(td_value token) {
    assert_ok(td_graph_op(graph, TD_OP_AWAIT, &token, 1, NULL, NULL));
}

static void store(td_value to, td_value x) {
    const td_value in[2] = {to, x};
    assert_ok(td_graph_op(graph, TD_OP_STORE, in, 2, NULL, NULL));
}

static void test_sums_may_be_under_way_together_and_end_in_any_order(void **state) {
    (void)state;
    td_value first = start(0), second = start(1), y;
    assert_ok(td_build_relu(graph, weight, &y)); // which neither of them touches
    await(second);
    store(weight, grad[1]);
    await(first);
    store(weight, grad[0]);
    assert_ok(td_graph_verify(graph));
}

static void test_verifier_names_a_start_that_is_never_awaited(void **state) {
    (void)state;
    (void)start(0);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "step 'train' node 0 (all_reduce): a sum over ranks is never awaited");
}

static void test_verifier_names_a_second_await(void **state) {
    (void)state;
    td_value token = start(0);
    await(token);
    await(token);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "step 'train' node 2 (await): a sum over ranks is awaited twice");
}

static void test_verifier_names_what_reads_a_sum_before_its_await(void **state) {
    (void)state;
    td_value token = start(0);
    store(weight, grad[0]);
    await(token);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "node 1 (store): it touches what a sum over ranks writes, before its await");
}

static void test_verifier_names_what_writes_a_sum_before_its_await(void **state) {
    (void)state;
    td_value token = start(0);
    store(grad[0], weight);
    await(token);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "node 1 (store): it touches what a sum over ranks writes, before its await");
}

static void test_verifier_names_an_await_in_another_segment(void **state) {
    (void)state;
    td_value token = start(0);
    td_graph_set_segment(graph, TD_SEG_FINISH);
    await(token);
    assert_fails(
        td_graph_verify(graph), TD_INTERNAL,
        "node 1 (await): a sum over ranks is awaited in another segment than it begins in");
}

static void test_token_is_for_an_await_alone(void **state) {
    (void)state;
    td_value token = start(0), y = 0;
    const struct td_attrs cast = {.dtype = TD_F32};
    assert_fails(td_graph_op(graph, TD_OP_AWAIT, &weight, 1, NULL, NULL), TD_INVALID_ARGUMENT,
                 "only the token of a sum is awaited");
    assert_ok(td_graph_op(graph, TD_OP_CAST, &token, 1, &cast, &y));
    await(token);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "node 1 (cast): a token is read by what is no await");
}

// A view of the gradients that is made before the sum, and read after it, is of the old content.
static void test_view_of_a_sum_is_copied_when_the_sum_comes_before_its_reader(void **state) {
    (void)state;
    const struct td_shape flat = {1, {15}};
    td_value y = 0, z = 0;
    assert_ok(td_build_reshape(graph, grad[0], &flat, &y));
    await(start(0));
    assert_ok(td_build_relu(graph, y, &z));
    struct td_placement *placement;
    size_t bytes;
    assert_ok(td_pass_memory(graph, NULL, &placement, &bytes));
    assert_int_equal(placement[y].alias, 0);
    free(placement);
}

// ---- pieces -------------------------------------------------------------------------------------

static void test_pieces_cover_a_tensor_and_may_be_empty(void **state) {
    static const struct {
        int64_t n, length, last_first, last_count;
        int32_t ranks;
    } cases[] = {{100, 48, 96, 4, 3},
                 {48, 16, 32, 16, 3},
                 {1, 16, 1, 0, 3},
                 {0, 0, 0, 0, 2},
                 {100, 112, 0, 100, 1}};
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        int64_t next = 0;
        struct td_piece p = {0};
        assert_int_equal(td_piece_length(cases[i].n, cases[i].ranks), cases[i].length);
        for (int32_t r = 0; r < cases[i].ranks; r++) {
            p = td_piece_of(cases[i].n, cases[i].ranks, r);
            assert_int_equal(p.first, next);
            next += p.count;
        }
        assert_int_equal(next, cases[i].n);
        assert_int_equal(p.first, cases[i].last_first);
        assert_int_equal(p.count, cases[i].last_count);
    }
}

static void split(int32_t rank, int32_t world) {
    td_state_set_rank(table, rank, world);
    graph->world_size = world;
    for (uint32_t i = 0; i < 2; i++) { // the parameter and its gradient
        assert_ok(td_rewrite_split(graph, i, false));
    }
}

static void test_value_of_a_piece_is_where_this_ranks_part_of_memory_begins(void **state) {
    (void)state;
    td_value piece = 0, again = 0;
    assert_fails(td_graph_state_piece(graph, 0, &piece), TD_INVALID_ARGUMENT, "'w' is whole");
    split(1, 2);
    assert_ok(td_graph_state_piece(graph, 0, &piece));
    assert_ok(td_graph_state_piece(graph, 0, &again));
    assert_int_equal(piece, again);
    assert_int_not_equal(piece, weight);
    assert_int_equal(td_shape_elems(&td_graph_value(graph, piece)->shape), 16);
    assert_int_equal(td_state_at(table, 0)->bytes, 2 * 16 * sizeof(float));
    assert_int_equal(td_state_whole_bytes(td_state_at(table, 0)), 15 * sizeof(float));
    assert_ok(td_state_layout(table));
    assert_int_equal(td_graph_state_offset(graph, weight), 0);
    assert_int_equal(td_graph_state_offset(graph, piece), 16 * sizeof(float));
    assert_int_equal(td_graph_state_first(graph, piece), 15); // an empty one: past the end
    assert_int_equal(td_state_at(table, 0)->piece.count, 0);
}

static void test_programs_agree_about_pieces(void **state) {
    (void)state;
    split(0, 3);
    assert_ok(td_rewrite_split(graph, 0, false)); // as before
    assert_fails(td_rewrite_split(graph, 0, true), TD_FAILED_PRECONDITION,
                 "state 'w' has 3 pieces");
    td_value y = 0;
    assert_ok(td_build_relu(graph, grad[1], &y));
    assert_fails(td_rewrite_split(graph, 2, true), TD_INVALID_ARGUMENT,
                 "uses all of state 'w:other'");
    assert_fails(td_rewrite_split(graph, 99, false), TD_INVALID_ARGUMENT, "no state tensor");
    assert_ok(td_state_layout(table));
    assert_fails(td_rewrite_split(graph, 2, false), TD_FAILED_PRECONDITION, "or in memory");
}

// A gather writes the whole, so a piece of it is touched, too.
static void test_verifier_names_what_touches_a_piece_of_a_tensor_that_is_gathered(void **state) {
    (void)state;
    td_value piece = 0, token = 0, y = 0;
    split(0, 2);
    assert_ok(td_graph_state_piece(graph, 0, &piece));
    assert_ok(td_graph_op(graph, TD_OP_ALL_GATHER, &weight, 1, NULL, &token));
    assert_ok(td_build_relu(graph, piece, &y));
    await(token);
    assert_fails(td_graph_verify(graph), TD_INTERNAL,
                 "node 1 (relu): it touches what a sum over ranks writes, before its await");
}

static void test_only_tensors_in_pieces_are_scattered_and_gathered(void **state) {
    (void)state;
    td_value token = 0, piece = 0;
    assert_fails(td_graph_op(graph, TD_OP_REDUCE_SCATTER, &grad[0], 1, NULL, &token),
                 TD_INVALID_ARGUMENT, "memory has all pieces");
    split(0, 2);
    assert_ok(td_graph_state_piece(graph, 1, &piece));
    assert_fails(td_graph_op(graph, TD_OP_REDUCE_SCATTER, &piece, 1, NULL, &token),
                 TD_INVALID_ARGUMENT, "only gradients are reduced");
    assert_fails(td_graph_op(graph, TD_OP_ALL_GATHER, &grad[0], 1, NULL, &token),
                 TD_INVALID_ARGUMENT, "only parameters are gathered");
}

// ---- the list -----------------------------------------------------------------------------------

static td_status never(void *arg, const struct td_sum *sum) {
    (void)arg, (void)sum;
    return td_fail(TD_INTERNAL, "nothing runs here");
}

static void test_list_has_the_bucket_of_a_start_and_of_its_await(void **state) {
    (void)state;
    const struct td_attrs none = {0};
    td_value y = 0;
    store(grad[0], weight);
    assert_ok(td_rewrite_assign_buckets(graph, 1 << 20, 1 << 20));
    assert_ok(td_rewrite_all_reduce(graph));
    assert_ok(td_graph_op(graph, TD_OP_RANK_SUM, &weight, 1, &none, &y));
    assert_ok(td_graph_verify(graph));
    assert_ok(td_state_layout(table));
    struct td_placement *placement;
    size_t bytes;
    assert_ok(td_pass_memory(graph, NULL, &placement, &bytes));
    const struct td_program p = {.graph = graph, .placement = placement, .arena_bytes = bytes};
    struct td_bindings b = {.struct_bytes = sizeof b,
                            .arena = {TD_SPACE_DEVICE, 77, bytes},
                            .region[TD_ROLE_GRAD] = {TD_SPACE_DEVICE, 78, 4096},
                            .collective = never,
                            .collective_wait = never,
                            .sums_on_host = 1u << TD_SUM_RANK_SUM,
                            .sums_recordable = 1u << TD_SUM_ALL_REDUCE};
    struct td_sums *sums;
    assert_ok(td_sums_create(&p, &b, &sums));
    assert_null(td_sums_at(sums, 0)); // a store
    const struct td_sum *bucket = td_sums_at(sums, 1), *value = td_sums_at(sums, 3);
    assert_non_null(bucket);
    assert_ptr_equal(td_sums_at(sums, 2), bucket);
    assert_null(td_sums_at(sums, 4)); // past the end
    assert_int_equal(bucket->kind, TD_SUM_ALL_REDUCE);
    assert_string_equal(td_sum_kind_name(bucket->kind), "all_reduce");
    assert_int_equal(bucket->node, 1);
    assert_int_equal(bucket->op, TD_REDUCE_MEAN);
    assert_int_equal(bucket->out[0].buffer.handle, 78);
    assert_int_equal(bucket->out[0].n, 32); // two gradients of 15 elements, each padded to 64 bytes
    assert_true(bucket->recordable && !bucket->on_host);
    assert_int_equal(value->kind, TD_SUM_RANK_SUM);
    assert_int_equal(value->op, TD_REDUCE_SUM);
    assert_int_equal(value->out[0].buffer.handle, 77);
    assert_int_equal(value->out[0].n, 15);
    assert_true(value->on_host && !value->recordable);
    td_sums_destroy(sums);
    b.collective = NULL; // one rank
    assert_ok(td_sums_create(&p, &b, &sums));
    assert_null(td_sums_at(sums, 1));
    td_sums_destroy(sums);
    free(placement);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_sums_may_be_under_way_together_and_end_in_any_order),
        TEST(test_verifier_names_a_start_that_is_never_awaited),
        TEST(test_verifier_names_a_second_await),
        TEST(test_verifier_names_what_reads_a_sum_before_its_await),
        TEST(test_verifier_names_what_writes_a_sum_before_its_await),
        TEST(test_verifier_names_an_await_in_another_segment),
        TEST(test_token_is_for_an_await_alone),
        TEST(test_view_of_a_sum_is_copied_when_the_sum_comes_before_its_reader),
        TEST(test_pieces_cover_a_tensor_and_may_be_empty),
        TEST(test_value_of_a_piece_is_where_this_ranks_part_of_memory_begins),
        TEST(test_programs_agree_about_pieces),
        TEST(test_verifier_names_what_touches_a_piece_of_a_tensor_that_is_gathered),
        TEST(test_only_tensors_in_pieces_are_scattered_and_gathered),
        TEST(test_list_has_the_bucket_of_a_start_and_of_its_await),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
