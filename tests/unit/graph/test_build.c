// Builders of traind/build.h: each makes one node of its op, with its operands in the op's order
// and its options in the op's attributes. make lint wants a case of each that is written out in
// build.h; one is enough for those that a macro makes.

#include "traind/build.h"

#include "tests/unit/test.h"

static struct td_state_table *table;
static struct td_graph *g;

static int begin(void **state) {
    (void)state;
    td_status s = td_state_table_create(&table);
    if (!s) s = td_graph_create("train", TD_MODE_TRAIN, table, &g);
    int code = s ? -1 : 0;
    td_status_free(s);
    return code;
}

static int end(void **state) {
    (void)state;
    td_graph_destroy(g);
    td_state_table_destroy(table);
    return 0;
}
#define test_with_graph(f) cmocka_unit_test_setup_teardown(f, begin, end)

// A shape of at most four dimensions; 0 ends it.
static struct td_shape shape(int64_t a, int64_t b, int64_t c, int64_t d) {
    struct td_shape s = {0, {a, b, c, d}};
    while (s.n_dims < 4 && s.dim[s.n_dims]) {
        s.n_dims++;
    }
    return s;
}

static td_value input(enum td_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    const struct td_shape s = shape(a, b, c, d);
    char name[16];
    td_value v;
    snprintf(name, sizeof name, "in%u", td_graph_n_inputs(g));
    assert_ok(td_graph_input(g, name, dtype, &s, &v));
    return v;
}

static td_value floats(int64_t a, int64_t b, int64_t c, int64_t d) {
    return input(TD_F32, a, b, c, d);
}

// The builder succeeded, its node is the newest, and its first result is y, of this shape. What its
// attributes are.
static const struct td_attrs *made(td_status s, enum td_op op, const td_value *y,
                                   const char *wanted) {
    char text[64];
    assert_ok(s);
    const struct td_node_info *n = td_graph_node(g, td_graph_n_nodes(g) - 1);
    assert_string_equal(td_op_name(n->op), td_op_name(op));
    assert_int_equal(n->outputs[0], *y);
    td_shape_print(&td_graph_value(g, *y)->shape, text, sizeof text);
    assert_string_equal(text, wanted);
    return &n->attrs;
}

static void assert_operands(const td_value *wanted, uint32_t n_wanted) {
    const struct td_node_info *n = td_graph_node(g, td_graph_n_nodes(g) - 1);
    assert_int_equal(n->n_inputs, n_wanted);
    assert_memory_equal(n->inputs, wanted, n_wanted * sizeof *wanted);
}

static void test_elementwise_ops_are_built(void **state) {
    (void)state;
    td_value x = floats(2, 3, 0, 0), row = floats(3, 0, 0, 0), c = 0, y, s = 0;
    const char *two = "(2, 3)";
    made(td_build_relu(g, x, &y), TD_OP_RELU, &y, two);
    made(td_build_silu(g, x, &y), TD_OP_SILU, &y, two);
    made(td_build_sigmoid(g, x, &y), TD_OP_SIGMOID, &y, two);
    made(td_build_tanh(g, x, &y), TD_OP_TANH, &y, two);
    made(td_build_exp(g, x, &y), TD_OP_EXP, &y, two);
    made(td_build_log(g, x, &y), TD_OP_LOG, &y, two);
    made(td_build_sqrt(g, x, &y), TD_OP_SQRT, &y, two);
    made(td_build_softmax(g, x, &y), TD_OP_SOFTMAX, &y, two);
    made(td_build_log_softmax(g, x, &y), TD_OP_LOG_SOFTMAX, &y, two);
    made(td_build_mean(g, x, &s), TD_OP_MEAN, &s, "()");
    made(td_build_scale(g, x, s, &y), TD_OP_SCALE, &y, two);
    made(td_build_add(g, x, row, &y), TD_OP_ADD, &y, two);
    made(td_build_mul(g, x, row, &y), TD_OP_MUL, &y, two);
    made(td_build_sub(g, x, row, &y), TD_OP_SUB, &y, two);
    assert_operands((td_value[]){x, row}, 2);
    made(td_build_div(g, x, row, &y), TD_OP_DIV, &y, two);
    assert_true(made(td_build_leaky_relu(g, x, 0.25, &y), TD_OP_LEAKY_RELU, &y, two)->scale ==
                0.25);
    assert_true(made(td_build_gelu(g, x, true, &y), TD_OP_GELU, &y, two)->gelu_tanh);
    assert_true(made(td_build_clamp(g, x, 2, &y), TD_OP_CLAMP, &y, two)->scale == 2);
    const struct td_attrs *a =
        made(td_build_compare(g, TD_CMP_LE, x, row, &c), TD_OP_COMPARE, &c, two);
    assert_int_equal(a->compare, TD_CMP_LE);
    made(td_build_select(g, c, x, row, &y), TD_OP_SELECT, &y, two);
    assert_operands((td_value[]){c, x, row}, 3);
    a = made(td_build_cast(g, input(TD_U8, 2, 3, 0, 0), TD_F32, 0.5, &y), TD_OP_CAST, &y, two);
    assert_true(a->dtype == TD_F32 && a->scale == 0.5);
}

static void test_products_and_windows_are_built(void **state) {
    (void)state;
    td_value x = floats(2, 3, 0, 0), w = floats(4, 3, 0, 0), bias = floats(4, 0, 0, 0), y;
    const struct td_matmul_options transposed = {.trans_b = true};
    made(td_build_matmul(g, x, w, bias, &transposed, &y), TD_OP_MATMUL, &y, "(2, 4)");
    assert_operands((td_value[]){x, w, bias}, 3);
    made(td_build_matmul(g, x, floats(3, 5, 0, 0), 0, NULL, &y), TD_OP_MATMUL, &y, "(2, 5)");
    made(td_build_embedding(g, w, input(TD_I32, 2, 7, 0, 0), &y), TD_OP_EMBEDDING, &y, "(2, 7, 3)");
    td_value image = floats(2, 4, 9, 9), kernel = floats(6, 2, 3, 3);
    const struct td_conv2d_options conv = {{2, 1}, {1, 0}, {1, 2}, 2};
    made(td_build_conv2d(g, image, kernel, floats(6, 0, 0, 0), &conv, &y), TD_OP_CONV2D, &y,
         "(2, 6, 5, 5)");
    const struct td_attrs *a = made(td_build_conv2d(g, image, floats(6, 4, 3, 2), 0, NULL, &y),
                                    TD_OP_CONV2D, &y, "(2, 6, 7, 8)");
    const struct td_window_attrs plain = {{3, 2}, {1, 1}, {0, 0}, {1, 1}, 1};
    assert_memory_equal(&a->window, &plain, sizeof plain);
    assert_fails(td_build_conv2d(g, image, 0, 0, NULL, &y), TD_INVALID_ARGUMENT, "conv2d");
    const struct td_pool_options pool = {{3, 2}, {3, 2}, {0, 1}};
    made(td_build_max_pool(g, image, &pool, &y), TD_OP_MAX_POOL, &y, "(2, 4, 3, 5)");
    made(td_build_avg_pool(g, image, &pool, &y), TD_OP_AVG_POOL, &y, "(2, 4, 3, 5)");
}

static void test_attention_is_built(void **state) {
    (void)state;
    td_value q = floats(2, 5, 4, 6), k = floats(2, 5, 2, 6), v = floats(2, 5, 2, 6), y;
    const struct td_attention_options options = {0.5, true, 0.25, "h.0.attn"};
    const struct td_attrs *a =
        made(td_build_attention(g, q, k, v, &options, &y), TD_OP_ATTENTION, &y, "(2, 5, 4, 6)");
    assert_true(a->scale == 0.5 && a->causal && a->drop == 0.25);
    assert_true(a->stream == td_stream_of("h.0.attn"));
    a = made(td_build_self_attention(g, floats(2, 5, 8, 6), 2, NULL, &y), TD_OP_SELF_ATTENTION, &y,
             "(2, 5, 4, 6)");
    assert_true(a->groups == 2 && a->drop == 0 && !a->causal);
    const struct td_rope_options rope = {.base = 500, .interleaved = true, .first_token = 3};
    a = made(td_build_rope(g, q, &rope, &y), TD_OP_ROPE, &y, "(2, 5, 4, 6)");
    assert_true(a->base == 500 && a->interleaved && a->start[0] == 3);
}

static void test_attention_is_refused_when_its_drop_has_no_name(void **state) {
    (void)state;
    const struct td_attention_options options = {.drop = 0.5};
    td_value x = floats(2, 5, 8, 6), y;
    assert_fails(td_build_attention(g, x, x, x, &options, &y), TD_INVALID_ARGUMENT, "a name");
    assert_fails(td_build_self_attention(g, x, 2, &options, &y), TD_INVALID_ARGUMENT, "a name");
}

static void test_norms_and_dropout_are_built(void **state) {
    (void)state;
    td_value x = floats(2, 3, 0, 0), row = floats(3, 0, 0, 0), y;
    const struct td_shape three = shape(3, 0, 0, 0);
    const struct td_init zero = {TD_INIT_ZERO, 0, 0};
    struct td_batch_norm_state s = {row, row, 0, 0};
    uint32_t index;
    made(td_build_rank_sum(g, x, &y), TD_OP_RANK_SUM, &y, "(2, 3)");
    assert_ok(td_state_add(table, "mean", TD_ROLE_BUFFER, TD_F32, &three, zero, 0, &index));
    assert_ok(td_graph_state_value(g, index, &s.mean));
    assert_ok(td_state_add(table, "var", TD_ROLE_BUFFER, TD_F32, &three, zero, 0, &index));
    assert_ok(td_graph_state_value(g, index, &s.var));
    const struct td_attrs *a =
        made(td_build_layer_norm(g, x, row, row, 1e-5, &y), TD_OP_LAYER_NORM, &y, "(2, 3)");
    assert_true(a->eps == 1e-5);
    made(td_build_layer_norm(g, x, row, 0, 1e-5, &y), TD_OP_LAYER_NORM, &y, "(2, 3)");
    made(td_build_rms_norm(g, x, row, 1e-6, &y), TD_OP_RMS_NORM, &y, "(2, 3)");
    a = made(td_build_batch_norm(g, x, &s, 1e-5, 0.1, &y), TD_OP_BATCH_NORM, &y, "(2, 3)");
    assert_true(a->eps == 1e-5 && a->momentum == 0.1);
    assert_operands((td_value[]){x, row, row, s.mean, s.var}, 5);
    made(td_build_batch_norm_eval(g, x, &s, 1e-5, &y), TD_OP_BATCH_NORM_EVAL, &y, "(2, 3)");
    a = made(td_build_dropout(g, x, "drop", 0.5, &y), TD_OP_DROPOUT, &y, "(2, 3)");
    assert_true(a->drop == 0.5 && a->stream == td_stream_of("drop"));
    assert_ok(td_build_dropout(g, x, "drop", 0, &y));
    assert_int_equal(y, x); // nothing is dropped, and there is no node
    assert_ok(td_build_store(g, s.mean, row, true));
    const struct td_node_info *n = td_graph_node(g, td_graph_n_nodes(g) - 1);
    assert_true(n->op == TD_OP_STORE && n->attrs.accumulate && n->n_outputs == 0);
}

static void test_shapes_and_reductions_are_built(void **state) {
    (void)state;
    td_value x = floats(2, 3, 4, 0), y;
    const struct td_shape flat = shape(6, 4, 0, 0), part = shape(1, 2, 4, 0),
                          more = shape(4, 4, 4, 0), row = shape(3, 4, 0, 0);
    const int32_t perm[] = {2, 0, 1};
    const int64_t start[] = {1, 1, 0};
    made(td_build_reshape(g, x, &flat, &y), TD_OP_RESHAPE, &y, "(6, 4)");
    made(td_build_transpose(g, x, perm, 3, &y), TD_OP_TRANSPOSE, &y, "(4, 2, 3)");
    made(td_build_concat(g, (td_value[]){x, x}, 2, 1, &y), TD_OP_CONCAT, &y, "(2, 6, 4)");
    const struct td_attrs *a =
        made(td_build_slice(g, x, start, &part, &y), TD_OP_SLICE, &y, "(1, 2, 4)");
    assert_true(a->start[0] == 1 && a->start[1] == 1 && a->start[2] == 0);
    a = made(td_build_pad(g, x, start, &more, 7, &y), TD_OP_PAD, &y, "(4, 4, 4)");
    assert_true(a->scale == 7 && a->start[1] == 1);
    made(td_build_gather(g, x, input(TD_I32, 2, 5, 4, 0), 1, &y), TD_OP_GATHER, &y, "(2, 5, 4)");
    made(td_build_reduce_sum(g, x, &row, &y), TD_OP_REDUCE_SUM, &y, "(3, 4)");
    made(td_build_reduce_mean(g, x, &row, &y), TD_OP_REDUCE_MEAN, &y, "(3, 4)");
    made(td_build_reduce_max(g, x, &row, &y), TD_OP_REDUCE_MAX, &y, "(3, 4)");
    made(td_build_sum_squares(g, &x, 1, &y), TD_OP_SUM_SQUARES, &y, "()");
    made(td_build_all_finite(g, &x, 1, &y), TD_OP_ALL_FINITE, &y, "()");
}

static void test_losses_counts_and_constants_are_built(void **state) {
    (void)state;
    td_value x = floats(2, 3, 0, 0), labels = input(TD_I32, 2, 0, 0, 0), y, weights = 0;
    const double values[] = {1, 2, 3};
    const struct td_shape three = shape(3, 0, 0, 0);
    const struct td_labels_options options = {true, -1, 0.1};
    const struct td_attrs *a = made(td_build_constant(g, TD_F32, &three, values, &weights),
                                    TD_OP_CONSTANT, &weights, "(3)");
    assert_true(a->values[2] == 3);
    a = made(td_build_fill(g, TD_F32, &three, 5, &y), TD_OP_FILL, &y, "(3)");
    assert_true(a->scale == 5);
    a = made(td_build_softmax_ce(g, x, labels, weights, &options, &y), TD_OP_SOFTMAX_CE, &y, "()");
    assert_true(a->label_smoothing == 0.1 && a->ignores && a->ignore_index == -1);
    made(td_build_softmax_ce(g, x, labels, 0, NULL, &y), TD_OP_SOFTMAX_CE, &y, "()");
    made(td_build_mse(g, x, x, &y), TD_OP_MSE, &y, "()");
    made(td_build_bce(g, x, x, &y), TD_OP_BCE, &y, "()");
    a = made(td_build_count_correct(g, x, labels, &options, &y), TD_OP_COUNT_CORRECT, &y, "()");
    assert_true(a->ignores && a->ignore_index == -1 && a->label_smoothing == 0);
    made(td_build_count_labels(g, labels, weights, &options, &y), TD_OP_COUNT_LABELS, &y, "()");
    assert_operands((td_value[]){labels, weights}, 2);
}

static void test_output_stays_when_the_shapes_do_not_fit(void **state) {
    (void)state;
    td_value y = 77;
    assert_fails(td_build_matmul(g, floats(2, 3, 0, 0), floats(4, 5, 0, 0), 0, NULL, &y),
                 TD_INVALID_ARGUMENT, "matmul(f32(2,3), f32(4,5)): inner dimensions differ");
    assert_int_equal(y, 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_with_graph(test_elementwise_ops_are_built),
        test_with_graph(test_products_and_windows_are_built),
        test_with_graph(test_attention_is_built),
        test_with_graph(test_attention_is_refused_when_its_drop_has_no_name),
        test_with_graph(test_norms_and_dropout_are_built),
        test_with_graph(test_shapes_and_reductions_are_built),
        test_with_graph(test_losses_counts_and_constants_are_built),
        test_with_graph(test_output_stays_when_the_shapes_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
