// Every gradient rule against finite differences: linear algebra, elementwise ops, reductions and
// the loss; and parameters that are read twice or broadcast. The ops of networks have a program of
// their own, conform_gradients_nn.c.

#include "tests/conform/grad_bench.h"

static void
test_matmul_gradient_matches_differences_when_transposed_biased_activated(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        struct grad_case c = {.op = TD_OP_MATMUL, .n_in = form & 4 ? 3 : 2};
        c.in[0] = form & 1 ? mat(4, 3) : mat(3, 4);
        c.in[1] = form & 2 ? mat(5, 4) : mat(4, 5);
        c.in[2] = vec(5);
        c.attrs.trans_a = form & 1;
        c.attrs.trans_b = form & 2;
        c.attrs.act = form & 8 ? TD_ACT_RELU : TD_ACT_NONE;
        check(c);
        if (form & 1) continue;
        c.in[0] = rig_shape(3, 2, 3, 4); // leading dimensions are rows
        check(c);
    }
    check((struct grad_case){
        .op = TD_OP_MATMUL, .n_in = 2, .in = {mat(3, 3), mat(3, 3)}, .twice = true});
    check((struct grad_case){.op = TD_OP_MATMUL, .n_in = 2, .in = {vec(3), mat(3, 2)}});
}

static void test_elementwise_gradients_match_differences_when_broadcast(void **state) {
    (void)state;
    static const enum td_op ops[] = {TD_OP_ADD, TD_OP_MUL, TD_OP_SUB};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 4), mat(3, 4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 4), vec(4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {mat(3, 1), mat(1, 4)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {scalar(), rig_shape(3, 2, 1, 3)}});
        check((struct grad_case){.op = ops[i], .n_in = 2, .in = {vec(5), vec(5)}, .twice = true});
    }
    check((struct grad_case){.op = TD_OP_RANK_SUM, .n_in = 1, .in = {mat(3, 4)}});
    check((struct grad_case){.op = TD_OP_SCALE, .n_in = 2, .in = {mat(3, 4), scalar()}});
    check((struct grad_case){
        .op = TD_OP_SCALE, .n_in = 2, .in = {scalar(), scalar()}, .twice = true});
    check((struct grad_case){
        .op = TD_OP_RESHAPE, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.shape = mat(2, 6)}});
    check((struct grad_case){
        .op = TD_OP_CAST, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.dtype = TD_F64, .scale = -3}});
    check((struct grad_case){
        .op = TD_OP_CAST, .n_in = 1, .in = {mat(3, 4)}, .attrs = {.dtype = TD_F64}});
    check((struct grad_case){.op = TD_OP_FILL,
                             .n_in = 1,
                             .in = {scalar()},
                             .attrs = {.dtype = TD_F64, .shape = mat(3, 2), .scale = 2}});
}

static void test_function_gradients_match_differences_when_anywhere_in_range(void **state) {
    (void)state;
    static const struct grad_case cases[] = {
        {.op = TD_OP_RELU},
        {.op = TD_OP_LEAKY_RELU},
        {.op = TD_OP_LEAKY_RELU, .attrs = {.scale = 0.3}},
        {.op = TD_OP_GELU, .low = -4, .high = 4},
        {.op = TD_OP_GELU, .low = -4, .high = 4, .attrs = {.gelu_tanh = true}},
        {.op = TD_OP_SILU, .low = -6, .high = 6},
        {.op = TD_OP_SIGMOID, .low = -6, .high = 6},
        {.op = TD_OP_TANH, .low = -3, .high = 3},
        {.op = TD_OP_EXP},
        {.op = TD_OP_LOG, .low = 0.3, .high = 4},
        {.op = TD_OP_SQRT, .low = 0.3, .high = 4},
        {.op = TD_OP_DIV, .n_in = 2, .in = {{2, {3, 4}}, {2, {3, 4}}}, .low = 0.5, .high = 2},
        {.op = TD_OP_DIV, .n_in = 2, .in = {{2, {3, 1}}, {1, {4}}}, .low = 0.5, .high = 2},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct grad_case c = cases[i];
        if (!c.n_in) c.in[c.n_in++] = mat(5, 7);
        check(c);
    }
}

static void test_select_gradient_matches_differences_when_broadcast(void **state) {
    (void)state;
    struct grad_case c = {.op = TD_OP_SELECT, .n_in = 3, .inputs = 1, .input_dtype = TD_BOOL};
    c.in[0] = c.in[1] = c.in[2] = mat(3, 4);
    check(c);
    c.in[0] = mat(3, 1);
    c.in[1] = vec(4);
    c.in[2] = scalar();
    check(c);
}

static void test_reduction_gradients_match_differences_when_loss_or_inner(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct grad_case c = {.n_in = 1, .in = {mat(3, 5)}, .plain = plain};
        c.op = TD_OP_MEAN;
        check(c);
        c.op = TD_OP_REDUCE_SUM;
        check(c);
        c.op = TD_OP_SUM_SQUARES;
        check(c);
        c.n_in = 2;
        c.in[1] = vec(4);
        check(c);
        c.n_in = 1;
        c.plain = false;
        c.op = TD_OP_REDUCE_SUM;
        c.attrs.shape = vec(5);
        check(c);
        c.attrs.shape = mat(3, 1);
        check(c);
    }
}

static void test_reduction_gradients_match_differences_when_over_some_axes(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct grad_case c = {.op = i ? TD_OP_REDUCE_MAX : TD_OP_REDUCE_MEAN, .n_in = 1};
        c.in[0] = rig_shape(3, 3, 4, 5);
        c.attrs.shape = rig_shape(3, 3, 1, 1);
        check(c);
        c.attrs.shape = vec(5);
        check(c);
        c.attrs.shape = scalar();
        check(c);
        c.plain = true;
        check(c);
    }
}

static void test_rearranging_gradients_match_differences_when_undone(void **state) {
    (void)state;
    check((struct grad_case){
        .op = TD_OP_TRANSPOSE, .n_in = 1, .in = {{3, {2, 3, 4}}}, .attrs = {.perm = {2, 0, 1}}});
    check((struct grad_case){.op = TD_OP_SLICE,
                             .n_in = 1,
                             .in = {{2, {4, 5}}},
                             .attrs = {.shape = {2, {2, 3}}, .start = {1, 2}}});
    check((struct grad_case){.op = TD_OP_PAD,
                             .n_in = 1,
                             .in = {{2, {2, 3}}},
                             .attrs = {.shape = {2, {4, 5}}, .start = {1, 2}, .scale = 3}});
    for (int32_t axis = 0; axis < 2; axis++) {
        struct grad_case c = {.op = TD_OP_CONCAT, .n_in = 3, .attrs = {.axis = axis}};
        c.in[0] = axis ? mat(3, 1) : mat(1, 3);
        c.in[1] = mat(3, 3);
        c.in[2] = axis ? mat(3, 2) : mat(2, 3);
        check(c);
        c.in[0] = c.in[2] = mat(3, 3);
        c.twice = true;
        check(c);
    }
}

static void test_indexed_gradients_match_differences_when_read_more_than_once(void **state) {
    (void)state;
    struct grad_case c = {.n_in = 2, .inputs = 2, .input_dtype = TD_I32, .below = 4};
    c.op = TD_OP_EMBEDDING;
    c.in[0] = mat(4, 3);
    c.in[1] = mat(3, 5);
    check(c);
    c.op = TD_OP_GATHER;
    c.in[1] = mat(7, 3);
    check(c);
    c.attrs.axis = 1;
    c.in[0] = mat(3, 4);
    c.in[1] = mat(3, 7);
    check(c);
}

static void test_softmax_ce_gradient_matches_differences_when_loss_or_inner(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct grad_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2, .plain = plain, .inputs = 2};
        c.input_dtype = TD_I32;
        c.below = 6;
        c.in[0] = mat(4, 6);
        c.in[1] = vec(4);
        check(c);
        c.in[0] = mat(1, 1);
        c.in[1] = vec(1);
        c.below = 1;
        check(c);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_gradient_matches_differences_when_transposed_biased_activated),
        cmocka_unit_test(test_elementwise_gradients_match_differences_when_broadcast),
        cmocka_unit_test(test_function_gradients_match_differences_when_anywhere_in_range),
        cmocka_unit_test(test_select_gradient_matches_differences_when_broadcast),
        cmocka_unit_test(test_reduction_gradients_match_differences_when_loss_or_inner),
        cmocka_unit_test(test_reduction_gradients_match_differences_when_over_some_axes),
        cmocka_unit_test(test_rearranging_gradients_match_differences_when_undone),
        cmocka_unit_test(test_indexed_gradients_match_differences_when_read_more_than_once),
        cmocka_unit_test(test_softmax_ce_gradient_matches_differences_when_loss_or_inner),
    };
    return run_gradients(argv[0], "conform_gradients", tests, TD_COUNTOF(tests));
}
