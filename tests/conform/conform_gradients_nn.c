// Gradients of the ops of networks against finite differences: losses with their options, softmax,
// norms, dropout. See conform_gradients.c.

#include "tests/conform/grad_bench.h"

static void
test_cross_entropy_gradient_matches_differences_when_weighted_smoothed_ignored(void **state) {
    (void)state;
    for (int form = 0; form < 16; form++) {
        struct grad_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2, .inputs = 2, .below = 5};
        c.in[0] = mat(7, 5);
        c.in[1] = vec(7);
        c.input_dtype = TD_I32;
        c.plain = form & 1;
        c.attrs.label_smoothing = form & 2 ? 0.2 : 0;
        c.attrs.ignores = form & 4;
        c.attrs.ignore_index = form & 8 ? -100 : 2;
        check(c);
        c.n_in = 3; // class weights
        c.in[2] = vec(5);
        c.data = 4;
        check(c);
    }
}

// Logits of a layer with weight p1 after something with parameters; then a bias, if asked for; the
// last: weights of classes.
static td_status record_head(void *arg, struct td_graph *g, int64_t batch) {
    const struct grad_case *c = arg;
    const struct td_attrs transposed = {.trans_b = true};
    struct td_attrs attrs = c->attrs;
    td_value in[5], z[3], out[2];
    uint32_t n = attrs.biased ? 4 : 3;
    (void)batch;
    for (uint32_t i = 0; i < c->n_in; i++) {
        TD_TRY(operand_of(c, g, i, &in[i]));
    }
    TD_TRY(td_graph_op(g, TD_OP_TANH, &in[0], 1, NULL, &in[0]));
    TD_TRY(td_graph_op(g, TD_OP_MATMUL, in, 2, &transposed, &z[0]));
    if (attrs.biased) TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){z[0], in[3]}, 2, NULL, z));
    attrs.biased = false; // of the head that will be, not of the loss
    z[1] = in[2];
    if (c->n_in > n) z[2] = in[n];
    TD_TRY(td_graph_op(g, TD_OP_SOFTMAX_CE, z, c->n_in > n ? 3 : 2, &attrs, out));
    TD_TRY(td_graph_output(g, "loss", out[0], TD_OUTPUT_MEAN));
    return td_graph_loss(g, out[0]);
}

static void test_head_gradients_match_differences_when_logits_are_never_whole(void **state) {
    (void)state;
    for (int form = 0; form < 32; form++) {
        struct grad_case c = {
            .record = record_head, .n_in = 3, .inputs = 4, .below = 5, .split_head = true};
        c.attrs.biased = form & 16;
        c.in[0] = mat(7, 3);
        c.in[1] = mat(5, 3);
        c.in[2] = vec(7);
        if (form & 16) c.in[c.n_in++] = vec(5);
        if (form & 1) c.data = 1u << c.n_in; // weights of classes
        if (form & 1) c.in[c.n_in++] = vec(5);
        c.input_dtype = TD_I32;
        c.attrs.label_smoothing = form & 2 ? 0.2 : 0;
        c.attrs.ignores = form & 4;
        c.attrs.ignore_index = form & 8 ? -100 : 2;
        check(c);
    }
}

static void test_pair_loss_gradients_match_differences_when_loss_or_inner(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        struct grad_case c = {.op = TD_OP_MSE, .n_in = 2, .plain = plain};
        c.in[0] = c.in[1] = mat(3, 4);
        check(c);
        c.op = TD_OP_BCE;
        check(c);
        c.data = 2; // the usual target is not a parameter
        check(c);
    }
}

static void test_softmax_gradients_match_differences_when_rows_are_many(void **state) {
    (void)state;
    struct grad_case c = {.op = TD_OP_SOFTMAX, .n_in = 1, .in = {{3, {2, 3, 5}}}};
    check(c);
    c.op = TD_OP_LOG_SOFTMAX;
    check(c);
    c.in[0] = vec(1);
    check(c);
}

static void test_norm_gradients_match_differences_when_in_rows_or_channels(void **state) {
    (void)state;
    struct grad_case c = {.op = TD_OP_LAYER_NORM, .n_in = 3, .attrs = {.eps = 1e-2}};
    c.in[0] = rig_shape(3, 2, 3, 4);
    c.in[1] = c.in[2] = vec(4);
    check(c);
    c.n_in = 2;
    check(c);
    c.op = TD_OP_RMS_NORM;
    check(c);
}

// Batch norm writes its statistics, which are state and not parameters: recorded by hand.
static td_status record_batch_norm(void *arg, struct td_graph *g, int64_t batch) {
    const struct grad_case *c = arg;
    const struct td_shape *x = &c->in[0], channels = vec(x->dim[1]);
    struct td_attrs a = {.eps = 1e-2, .momentum = 0.1};
    struct td_init zero = {0};
    static const char *const names[] = {"x", "gamma", "beta", "mean", "var"};
    td_value in[5], y;
    (void)batch;
    for (int i = 0; i < 3; i++) {
        TD_TRY(td_graph_param(g, names[i], TD_F64, i ? &channels : x, zero, &in[i]));
    }
    for (int i = 3; i < 5; i++) {
        uint32_t index;
        TD_TRY(td_state_add(td_graph_state(g), names[i], TD_ROLE_BUFFER, TD_F64, &channels, zero, 0,
                            &index));
        TD_TRY(td_graph_state_value(g, index, &in[i]));
    }
    TD_TRY(td_graph_op(g, TD_OP_BATCH_NORM, in, 5, &a, &y));
    // Not the sum of squares, which the norm makes constant.
    TD_TRY(td_graph_op(g, TD_OP_MUL, (td_value[]){y, in[0]}, 2, NULL, &y));
    TD_TRY(td_graph_op(g, TD_OP_SUM_SQUARES, &y, 1, NULL, &y));
    TD_TRY(td_graph_output(g, "loss", y, TD_OUTPUT_MEAN));
    return td_graph_loss(g, y);
}

static void test_batch_norm_gradient_matches_differences_when_flat_or_images(void **state) {
    (void)state;
    struct td_shape shapes[] = {{2, {5, 3}}, {4, {2, 3, 2, 3}}};
    for (size_t i = 0; i < TD_COUNTOF(shapes); i++) {
        check((struct grad_case){.record = record_batch_norm, .n_in = 3, .in = {shapes[i]}});
    }
}

static void test_dropout_gradient_matches_differences_when_mask_is_made_again(void **state) {
    (void)state;
    struct grad_case c = {.op = TD_OP_DROPOUT, .n_in = 1, .in = {{2, {5, 7}}}};
    c.attrs.drop = 0.4;
    c.attrs.stream = 99;
    check(c);
}

static void test_convolution_gradients_match_differences_when_strided_padded_grouped(void **state) {
    (void)state;
    static const struct grad_case cases[] = {
        {.in = {{4, {2, 2, 4, 5}}, {4, {3, 2, 3, 3}}}},
        {.in = {{4, {1, 4, 5, 5}}, {4, {4, 2, 3, 2}}},
         .attrs = {.window = {.stride = {2, 1}, .pad = {1, 0}, .groups = 2}}},
        {.in = {{4, {2, 2, 5, 6}}, {4, {2, 1, 2, 2}}},
         .attrs = {.window = {.dilation = {2, 3}, .pad = {1, 1}, .groups = 2}}},
    };
    for (size_t i = 0; i < TD_COUNTOF(cases); i++) {
        struct grad_case c = cases[i];
        c.op = TD_OP_CONV2D;
        c.n_in = 2;
        check(c);
        c.n_in = 3;
        c.in[2] = vec(c.in[1].dim[0]);
        check(c);
    }
}

static void test_pool_gradients_match_differences_when_windows_overlap(void **state) {
    (void)state;
    struct grad_case c = {.n_in = 1, .in = {{4, {2, 2, 5, 7}}}};
    c.attrs.window = (struct td_window_attrs){.kernel = {3, 2}, .stride = {1, 2}, .pad = {1, 1}};
    c.op = TD_OP_MAX_POOL;
    check(c);
    c.op = TD_OP_AVG_POOL;
    check(c);
}

static void test_attention_gradients_match_differences_when_causal_or_grouped(void **state) {
    (void)state;
    static const struct td_shape shapes[][2] = {
        {{4, {2, 3, 2, 4}}, {4, {2, 3, 2, 4}}},
        {{4, {1, 4, 4, 2}}, {4, {1, 3, 2, 2}}},
        {{4, {1, 2, 3, 2}}, {4, {1, 5, 1, 2}}},
    };
    for (size_t i = 0; i < TD_COUNTOF(shapes) * 2; i++) {
        struct grad_case c = {.op = TD_OP_ATTENTION, .n_in = 3, .attrs = {.causal = i % 2}};
        c.in[0] = shapes[i / 2][0];
        c.in[1] = c.in[2] = shapes[i / 2][1];
        check(c);
        c.attrs.scale = 1.5;
        check(c);
        c.attrs.drop = 0.4;
        c.attrs.stream = 7;
        check(c);
    }
}

static void test_self_attention_gradient_matches_differences_when_causal_or_grouped(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct grad_case c = {.op = TD_OP_SELF_ATTENTION, .n_in = 1, .in = {{4, {2, 4, 8, 2}}}};
        c.attrs.causal = i & 1;
        c.attrs.groups = i & 2 ? 1 : 2;
        check(c);
        c.attrs.drop = 0.4;
        c.attrs.stream = 7;
        check(c);
    }
}

static void test_rope_gradient_matches_differences_when_turned_back(void **state) {
    (void)state;
    for (int form = 0; form < 4; form++) {
        struct grad_case c = {.op = TD_OP_ROPE, .n_in = 1, .in = {{4, {2, 3, 2, 6}}}};
        c.attrs.interleaved = form & 1;
        c.attrs.reverse = form & 2;
        c.attrs.start[0] = form;
        check(c);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_gradients_match_differences_when_logits_are_never_whole),
        cmocka_unit_test(
            test_cross_entropy_gradient_matches_differences_when_weighted_smoothed_ignored),
        cmocka_unit_test(test_pair_loss_gradients_match_differences_when_loss_or_inner),
        cmocka_unit_test(test_softmax_gradients_match_differences_when_rows_are_many),
        cmocka_unit_test(test_norm_gradients_match_differences_when_in_rows_or_channels),
        cmocka_unit_test(test_batch_norm_gradient_matches_differences_when_flat_or_images),
        cmocka_unit_test(test_convolution_gradients_match_differences_when_strided_padded_grouped),
        cmocka_unit_test(test_pool_gradients_match_differences_when_windows_overlap),
        cmocka_unit_test(test_attention_gradients_match_differences_when_causal_or_grouped),
        cmocka_unit_test(test_self_attention_gradient_matches_differences_when_causal_or_grouped),
        cmocka_unit_test(test_rope_gradient_matches_differences_when_turned_back),
        cmocka_unit_test(test_dropout_gradient_matches_differences_when_mask_is_made_again),
    };
    return run_gradients(argv[0], "conform_gradients_nn", tests, TD_COUNTOF(tests));
}
