// Builder, state table, rewrite calls: what a module, a strategy and the trainer lean on, and what
// they get when they ask for something impossible.

#include "engine/graph/edit.h"
#include "tests/unit/graph/graph_rig.h"

static struct td_state_table *table;
static struct td_graph *graph;

static int open_graph(void **state) {
    (void)state;
    td_status s = td_state_table_create(&table);
    if (!s) s = td_graph_create("train", TD_MODE_TRAIN, table, &graph);
    td_status_free(s);
    return s ? -1 : 0;
}

static int close_graph(void **state) {
    (void)state;
    td_graph_destroy(graph);
    td_state_table_destroy(table);
    graph = NULL;
    table = NULL;
    return 0;
}

static td_value input(const char *name, enum td_dtype t, struct td_shape shape) {
    td_value v = 0;
    assert_ok(td_graph_input(graph, name, t, &shape, &v));
    return v;
}

static td_value param(const char *name, struct td_shape shape) {
    td_value v = 0;
    struct td_init init = {0};
    assert_ok(td_graph_param(graph, name, TD_F32, &shape, init, &v));
    return v;
}

static uint32_t add_state(const char *name, enum td_role role, int64_t n, uint32_t owner) {
    uint32_t i = 0;
    struct td_shape shape = rig_shape(1, n, 0, 0);
    struct td_init init = {0};
    assert_ok(td_state_add(table, name, role, TD_F32, &shape, init, owner, &i));
    return i;
}

// ---- state --------------------------------------------------------------------------------------
static void test_state_is_found_again_when_added_twice_alike(void **state) {
    (void)state;
    uint32_t a = add_state("w", TD_ROLE_PARAM, 5, 0), i;
    assert_int_equal(add_state("w", TD_ROLE_PARAM, 5, 0), a);
    assert_int_equal(td_state_count(table), 1);
    struct td_shape other = rig_shape(1, 6, 0, 0), bad = {.n_dims = 9}, minus = {1, {-1}};
    struct td_init init = {0};
    assert_fails(td_state_add(table, "w", TD_ROLE_PARAM, TD_F32, &other, init, 0, &i),
                 TD_FAILED_PRECONDITION, "state 'w' is param f32(5)");
    assert_fails(td_state_add(table, "w", TD_ROLE_BUFFER, TD_F32, &other, init, 0, &i),
                 TD_FAILED_PRECONDITION, "buffer f32(6) here");
    assert_fails(td_state_add(table, "", TD_ROLE_PARAM, TD_F32, &other, init, 0, &i),
                 TD_INVALID_ARGUMENT, "");
    assert_fails(td_state_add(table, "v", TD_ROLE_PARAM, TD_F32, &bad, init, 0, &i),
                 TD_INVALID_ARGUMENT, "dimensions");
    assert_fails(td_state_add(table, "v", TD_ROLE_PARAM, TD_F32, &minus, init, 0, &i),
                 TD_INVALID_ARGUMENT, "negative");
    assert_fails(td_state_add(table, "g", TD_ROLE_GRAD, TD_F32, &other, init, 7, &i),
                 TD_INVALID_ARGUMENT, "is not a parameter");
    assert_fails(td_state_find(table, "v", &i), TD_NOT_FOUND, "'v'");
    assert_ok(td_state_find(table, "w", &i));
    assert_int_equal(i, a);
}

static void test_layout_is_aligned_and_ordered_when_frozen(void **state) {
    (void)state;
    uint32_t a = add_state("a", TD_ROLE_PARAM, 5, 0), b = add_state("b", TD_ROLE_PARAM, 33, 0);
    uint32_t gb = add_state("b:grad", TD_ROLE_GRAD, 33, b);
    uint32_t ga = add_state("a:grad", TD_ROLE_GRAD, 5, a);
    assert_ok(td_state_layout(table));
    assert_int_equal(td_state_at(table, a)->offset, 0);
    assert_int_equal(td_state_at(table, b)->offset, 64);
    assert_int_equal(td_state_at(table, gb)->offset, 0); // in order of the backward pass
    assert_int_equal(td_state_at(table, ga)->offset, 192);
    assert_int_equal(td_state_region_bytes(table, TD_ROLE_PARAM), 64 + 192);
    assert_int_equal(td_state_control_offset(table), 192 + 64);
    assert_int_equal(td_state_region_bytes(table, TD_ROLE_GRAD), 192 + 64 + 64);
    assert_int_equal(td_state_region_bytes(table, TD_ROLE_OPTIM), 0);
    size_t offset, bytes;
    enum td_dtype dtype;
    assert_int_equal(td_state_n_buckets(table), 1);
    td_state_bucket(table, 0, &offset, &bytes, &dtype);
    assert_true(offset == 0 && bytes == 256 && dtype == TD_F32);
    uint32_t i;
    struct td_shape shape = rig_shape(1, 5, 0, 0);
    struct td_init init = {0};
    assert_ok(td_state_add(table, "a", TD_ROLE_PARAM, TD_F32, &shape, init, 0, &i));
    assert_fails(td_state_add(table, "new", TD_ROLE_PARAM, TD_F32, &shape, init, 0, &i),
                 TD_FAILED_PRECONDITION, "laid out");
    assert_fails(td_state_layout(table), TD_FAILED_PRECONDITION, "once");
}

// ---- builder ------------------------------------------------------------------------------------
static void refused(enum td_op op, td_value a, td_value b, td_value c, struct td_attrs attrs,
                    const char *text) {
    td_value in[3] = {a, b, c}, out[2];
    uint32_t before = td_graph_n_nodes(graph);
    assert_fails(td_graph_op(graph, op, in, (a != 0) + (b != 0) + (c != 0), &attrs, out),
                 TD_INVALID_ARGUMENT, text);
    assert_int_equal(td_graph_n_nodes(graph), before);
}

static void test_op_is_refused_with_its_shapes_when_operands_do_not_fit(void **state) {
    (void)state;
    td_value x = input("x", TD_F32, rig_shape(2, 4, 8, 0));
    td_value y = input("y", TD_I32, rig_shape(1, 4, 0, 0));
    td_value z = input("z", TD_F64, rig_shape(2, 4, 8, 0));
    td_value w = param("w", rig_shape(2, 6, 7, 0)), c = param("c", rig_shape(3, 2, 3, 4));
    td_value v = param("v", rig_shape(2, 8, 8, 0));
    struct td_attrs none = {0}, grow = {.shape = rig_shape(1, 33, 0, 0)};
    struct td_attrs huge = {.shape = rig_shape(2, INT64_MAX / 2, 8, 0)};
    refused(TD_OP_MATMUL, x, w, 0, none, "matmul(f32(4,8), f32(6,7)): inner dimensions differ");
    refused(TD_OP_MATMUL, x, c, 0, none, "b must have 2 dimensions");
    refused(TD_OP_MATMUL, c, w, 0, (struct td_attrs){.trans_a = true}, "to be transposed");
    refused(TD_OP_MATMUL, x, z, 0, none, "one float type");
    refused(TD_OP_MATMUL, x, 0, 0, none, "takes 2 to 3 operands, not 1");
    refused(TD_OP_MATMUL, x, v, w, (struct td_attrs){.then = TD_OP_RELU_GRAD}, "like the result");
    refused(TD_OP_MATMUL, x, v, 0, (struct td_attrs){.then = TD_OP_RELU_GRAD}, "like the result");
    refused(TD_OP_MATMUL, x, v, x, (struct td_attrs){.then = TD_OP_RELU}, "activation's gradient");
    refused(TD_OP_ADD, x, w, 0, none, "do not broadcast");
    refused(TD_OP_ADD, x, y, 0, none, "one float type");
    refused(TD_OP_RELU, y, 0, 0, none, "must be float");
    refused(TD_OP_RELU_GRAD, x, w, 0, none, "type and shape");
    refused(TD_OP_LEAKY_RELU, x, 0, 0, (struct td_attrs){.scale = -0.1}, "must not be negative");
    refused(TD_OP_RESHAPE, x, 0, 0, grow, "number of elements");
    refused(TD_OP_RESHAPE, x, 0, 0, huge, "64 TiB");
    refused(TD_OP_CAST, x, 0, 0, (struct td_attrs){.dtype = (enum td_dtype)99}, "type 99");
    refused(TD_OP_SOFTMAX_CE, y, x, 0, none, "logits (B,C)");
    refused(TD_OP_COUNT_CORRECT, w, y, 0, none, "logits (B,C)");
    refused(TD_OP_REDUCE_SUM, x, 0, 0, grow, "does not broadcast");
    refused(TD_OP_SCALE, x, w, 0, none, "float scalar");
    refused(TD_OP_STORE, x, x, 0, none, "only a state tensor");
    refused(TD_OP_STORE, w, x, 0, none, "type and shape");
    refused(TD_OP_ALL_REDUCE, w, 0, 0, none, "only gradients");
    refused(TD_OP_CLIP_COEF, x, 0, 0, none, "float scalar");
    refused(TD_OP_SGD, w, x, 0, none, "types and shapes");
    refused(TD_OP_ADAM, w, w, 0, none, "takes 4 to 5 operands");
    refused(TD_OP_FILL, 0, 0, 0, (struct td_attrs){.dtype = TD_I32}, "must be float");
    refused(TD_OP_RELU, 999, 0, 0, none, "no value of this graph");
    refused((enum td_op)99, x, 0, 0, none, "op 99 is unknown");
}

static void test_op_of_a_family_is_refused_when_operands_do_not_fit(void **state) {
    (void)state;
    td_value x = input("x", TD_F32, rig_shape(2, 4, 8, 0));
    td_value y = input("y", TD_I32, rig_shape(1, 4, 0, 0));
    td_value w = param("w", rig_shape(2, 6, 7, 0)), c = param("c", rig_shape(3, 2, 3, 4));
    struct td_attrs none = {0}, grow = {.shape = rig_shape(1, 33, 0, 0)};
    refused(TD_OP_GELU, y, 0, 0, none, "must be float");
    refused(TD_OP_GELU_GRAD, x, w, 0, none, "type and shape");
    refused(TD_OP_COMPARE, x, y, 0, none, "one type");
    refused(TD_OP_COMPARE, x, x, 0, (struct td_attrs){.compare = TD_CMP_COUNT}, "unknown");
    refused(TD_OP_SELECT, x, x, x, none, "needs a bool");
    refused(TD_OP_TRANSPOSE, x, 0, 0, none, "each axis once");
    refused(TD_OP_CONCAT, x, w, 0, none, "besides the axis");
    refused(TD_OP_CONCAT, x, x, 0, (struct td_attrs){.axis = 2}, "have that axis");
    refused(TD_OP_SLICE, x, 0, 0, (struct td_attrs){.shape = {2, {4, 8}}, .start = {0, 1}},
            "outside the operand");
    refused(TD_OP_PAD, x, 0, 0, (struct td_attrs){.shape = {2, {4, 7}}}, "outside the result");
    refused(TD_OP_GATHER, x, y, 0, none, "operand's shape besides the axis");
    refused(TD_OP_EMBEDDING, c, y, 0, none, "needs a table (V,C)");
    refused(TD_OP_REDUCE_MAX, x, 0, 0, grow, "does not broadcast");
}

static void test_op_of_networks_is_refused_when_operands_do_not_fit(void **state) {
    (void)state;
    td_value x = input("x", TD_F32, rig_shape(2, 4, 8, 0));
    td_value y = input("y", TD_I32, rig_shape(1, 4, 0, 0)), w = param("w", rig_shape(2, 6, 7, 0));
    struct td_attrs none = {0};
    refused(TD_OP_SOFTMAX_CE, x, y, w, none, "weight for each class");
    refused(TD_OP_SOFTMAX_CE, x, y, 0, (struct td_attrs){.label_smoothing = 2}, "in [0, 1]");
    refused(TD_OP_LINEAR_CE, x, w, y, none, "x (B,K) and w (C,K)");
    refused(TD_OP_MSE, x, w, 0, none, "type and shape");
    refused(TD_OP_SOFTMAX, y, 0, 0, none, "must be float");
    refused(TD_OP_LAYER_NORM, x, y, 0, none, "one float a channel");
    refused(TD_OP_LAYER_NORM_GRAD, x, w, w, none, "type and shape");
    refused(TD_OP_DROPOUT, x, 0, 0, (struct td_attrs){.drop = 1}, "in [0, 1)");
    td_value image = param("image", (struct td_shape){4, {2, 4, 6, 8}});
    td_value filter = param("filter", (struct td_shape){4, {3, 2, 7, 3}});
    struct td_attrs halves = {.window = {.groups = 2}}, minus = {.window = {.stride = {-1, 1}}};
    struct td_attrs wide = {.window = {.kernel = {2, 2}, .pad = {2, 0}}};
    refused(TD_OP_CONV2D, image, filter, 0, halves, "that fits into it");
    refused(TD_OP_CONV2D, image, x, 0, none, "needs x (N,C,H,W)");
    refused(TD_OP_CONV2D, image, image, 0, minus, "that fits into it");
    refused(TD_OP_CONV2D_GRAD_X, image, filter, 0, none, "not those of a convolution");
    refused(TD_OP_MAX_POOL, image, 0, 0, wide, "padding of at most half");
    refused(TD_OP_AVG_POOL, image, 0, 0, minus, "that fits into it");
    refused(TD_OP_AVG_POOL_GRAD, image, 0, 0, none, "not those of a pool");
    refused(TD_OP_ATTENTION, image, filter, filter, none, "H a multiple of G");
    refused(TD_OP_ROPE, x, 0, 0, none, "an even D");
}

static void test_outputs_and_loss_are_refused_when_not_scalar_or_repeated(void **state) {
    (void)state;
    td_value x = input("x", TD_F32, rig_shape(2, 4, 8, 0)), m = 0;
    assert_fails(td_graph_output(graph, "x", x, TD_OUTPUT_MEAN), TD_INVALID_ARGUMENT, "one float");
    assert_fails(td_graph_loss(graph, x), TD_INVALID_ARGUMENT, "float scalar");
    assert_ok(td_graph_op(graph, TD_OP_MEAN, &x, 1, NULL, &m));
    assert_ok(td_graph_output(graph, "m", m, TD_OUTPUT_MEAN));
    assert_fails(td_graph_output(graph, "m", m, TD_OUTPUT_SUM), TD_INVALID_ARGUMENT, "named 'm'");
    assert_ok(td_graph_loss(graph, m));
    assert_fails(td_graph_loss(graph, m), TD_INVALID_ARGUMENT, "second loss");
    struct td_shape minus = {1, {-3}};
    assert_fails(td_graph_input(graph, "n", TD_F32, &minus, &x), TD_INVALID_ARGUMENT, "negative");
    td_graph_set_segment(graph, TD_SEG_APPLY);
    assert_ok(td_graph_op(graph, TD_OP_RELU, &x, 1, NULL, &m));
    td_graph_set_segment(graph, TD_SEG_FORWARD);
    assert_fails(td_graph_op(graph, TD_OP_RELU, &x, 1, NULL, &m), TD_INVALID_ARGUMENT,
                 "relu is added to forward after apply");
}

static void test_view_tells_what_was_built_when_read(void **state) {
    (void)state;
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 3, .width = {8, 6, 4}};
    assert_ok(rig_record_mlp(&m, graph, 5));
    assert_string_equal(td_graph_step(graph), "train");
    assert_int_equal(td_graph_mode(graph), TD_MODE_TRAIN);
    assert_int_equal(td_graph_n_inputs(graph), 2);
    assert_string_equal(td_graph_value(graph, td_graph_input_at(graph, 1))->name, "y");
    const char *name;
    td_value v;
    enum td_output_kind kind;
    assert_int_equal(td_graph_n_outputs(graph), 2);
    td_graph_output_at(graph, 1, &name, &v, &kind);
    assert_true(!strcmp(name, "accuracy") && kind == TD_OUTPUT_SUM);
    // 2 B (8*6 + 6*4) + biases, relu, softmax, count
    double flops = 2 * 5 * (48 + 24) + 30 + 20 + 30 + 5 * 20 + (20 + 5);
    assert_true(td_graph_flops(graph) == flops);
    assert_ok(td_graph_verify(graph));
    for (int op = 0; op < TD_OP_COUNT; op++) {
        assert_true(strcmp(td_op_name((enum td_op)op), "unknown") != 0);
    }
}

// ---- autodiff and rewrite -----------------------------------------------------------------------
// The mean of the sum of two parameters, which a step trains the first of, or the second.
static td_value sum_of(struct td_graph *g, td_value v, td_value w) {
    td_value in[] = {v, w}, sum = 0, m = 0;
    assert_ok(td_graph_op(g, TD_OP_ADD, in, 2, NULL, &sum));
    assert_ok(td_graph_op(g, TD_OP_MEAN, &sum, 1, NULL, &m));
    return m;
}

static bool trains_its_own(const void *arg, const struct td_program_key *key, const char *name) {
    (void)arg;
    return strcmp(key->step, name) == 0;
}

static void test_gradients_of_two_steps_share_no_bucket(void **state) {
    (void)state;
    static const struct td_program_key keys[] = {{.step = "v"}, {.step = "w"}};
    uint32_t of_v, of_w;
    for (int i = 0; i < 2; i++) {
        struct td_graph *first = graph;
        if (i == 1) assert_ok(td_graph_create("w", TD_MODE_TRAIN, table, &graph));
        struct td_autodiff_options o = {.trains = trains_its_own, .key = &keys[i]};
        td_value v = param("v", rig_shape(1, 3, 0, 0)), w = param("w", rig_shape(1, 3, 0, 0));
        assert_ok(td_graph_loss(graph, sum_of(graph, v, w)));
        assert_ok(td_pass_autodiff(graph, &o));
        assert_int_equal(td_graph_n_unreached(graph), 1); // a constant of this step
        assert_ok(td_rewrite_assign_buckets(graph, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
        if (i == 1) td_graph_destroy(first);
    }
    assert_ok(td_state_find(table, "v:grad", &of_v));
    assert_ok(td_state_find(table, "w:grad", &of_w));
    assert_int_equal(td_state_at(table, of_v)->bucket, 0);
    assert_int_equal(td_state_at(table, of_w)->bucket, 1);
}

static void test_unreached_parameters_are_listed_when_the_loss_skips_them(void **state) {
    (void)state;
    struct td_autodiff_options o = {0};
    td_value used = param("used", rig_shape(1, 3, 0, 0)), m = 0;
    td_value idle = param("idle", rig_shape(1, 3, 0, 0));
    add_state("elsewhere", TD_ROLE_PARAM, 4, 0);
    add_state("statistics", TD_ROLE_BUFFER, 4, 0);
    assert_fails(td_pass_autodiff(graph, &o), TD_INVALID_ARGUMENT, "names no loss");
    assert_ok(td_graph_op(graph, TD_OP_RELU, &idle, 1, NULL, &m)); // read, but not by the loss
    assert_ok(td_graph_op(graph, TD_OP_MEAN, &used, 1, NULL, &m));
    assert_ok(td_graph_loss(graph, m));
    assert_ok(td_pass_autodiff(graph, &o));
    assert_int_equal(td_graph_n_unreached(graph), 2);
    const char *first = td_state_at(table, td_graph_unreached_at(graph, 0))->name;
    const char *second = td_state_at(table, td_graph_unreached_at(graph, 1))->name;
    assert_true(!strcmp(first, "idle") && !strcmp(second, "elsewhere"));
    uint32_t i;
    assert_ok(td_state_find(table, "used:grad", &i));
    assert_fails(td_state_find(table, "idle:grad", &i), TD_NOT_FOUND, "");
}

static void test_autodiff_is_refused_when_an_op_has_no_gradient(void **state) {
    (void)state;
    struct td_autodiff_options o = {0};
    td_value in[2] = {param("w", rig_shape(2, 4, 3, 0)), input("y", TD_I32, rig_shape(1, 4, 0, 0))};
    td_value m = 0;
    assert_ok(td_graph_op(graph, TD_OP_COUNT_CORRECT, in, 2, NULL, &m));
    assert_ok(td_graph_loss(graph, m));
    assert_fails(td_pass_autodiff(graph, &o), TD_INVALID_ARGUMENT,
                 "through 'count_correct', which has no gradient");
}

static void test_buckets_are_kept_when_a_second_program_writes_in_another_order(void **state) {
    (void)state;
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 4, .width = {8, 64, 64, 4}};
    struct td_autodiff_options o = {0};
    assert_ok(rig_record_mlp(&m, graph, 5));
    assert_ok(td_pass_autodiff(graph, &o));
    assert_fails(td_rewrite_all_reduce(graph), TD_FAILED_PRECONDITION, "has no bucket");
    assert_ok(td_rewrite_assign_buckets(graph, 1024, 16384));
    assert_ok(td_rewrite_assign_buckets(graph, 1, 1)); // all are assigned: nothing happens
    uint32_t i;
    static const struct {
        const char *name;
        uint32_t bucket;
    } want[] = {{"fc3.bias:grad", 0},   {"fc3.weight:grad", 0}, {"fc2.bias:grad", 1},
                {"fc2.weight:grad", 1}, {"fc1.bias:grad", 2},   {"fc1.weight:grad", 2}};
    for (size_t k = 0; k < TD_COUNTOF(want); k++) {
        assert_ok(td_state_find(table, want[k].name, &i));
        assert_int_equal(td_state_at(table, i)->bucket, want[k].bucket);
    }
    assert_ok(td_rewrite_all_reduce(graph));
    assert_ok(td_graph_verify(graph));
    uint32_t seen = 0;
    for (td_node n = 0; n < td_graph_n_nodes(graph); n++) {
        const struct td_node_info *node = td_graph_node(graph, n);
        if (node->op != TD_OP_ALL_REDUCE) continue;
        assert_int_equal(node->attrs.bucket, seen++);
        assert_int_equal(node->segment, TD_SEG_BACKWARD);
        assert_int_equal(td_graph_node(graph, n - 1)->op, TD_OP_STORE);
    }
    assert_int_equal(seen, 3);
    assert_ok(td_state_layout(table));
    size_t offset, bytes, at = 0;
    enum td_dtype dtype;
    for (uint32_t b = 0; b < 3; b++, at += bytes) {
        td_state_bucket(table, b, &offset, &bytes, &dtype);
        assert_int_equal(offset, at); // buckets are contiguous
    }
    assert_int_equal(td_state_control_offset(table), at);
}

static void test_bucket_ends_when_it_has_as_many_gradients_as_one_reduction_takes(void **state) {
    (void)state;
    const struct td_shape one = {1, {1}};
    const struct td_init zero = {0};
    for (int i = 0; i < 4096 + 5; i++) {
        char name[16];
        uint32_t param, grad;
        td_value in[2];
        snprintf(name, sizeof name, "p%d", i);
        assert_ok(td_state_add(table, name, TD_ROLE_PARAM, TD_F32, &one, zero, 0, &param));
        snprintf(name, sizeof name, "p%d:grad", i);
        assert_ok(td_state_add(table, name, TD_ROLE_GRAD, TD_F32, &one, zero, param, &grad));
        assert_ok(td_graph_state_value(graph, grad, &in[0]));
        assert_ok(td_graph_state_value(graph, param, &in[1]));
        assert_ok(td_graph_op(graph, TD_OP_STORE, in, 2, NULL, NULL));
    }
    assert_ok(td_rewrite_assign_buckets(graph, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
    assert_ok(td_rewrite_all_reduce(graph));
    assert_int_equal(td_state_n_buckets(table), 2);
    const td_node end = td_graph_n_nodes(graph); // two starts, two awaits
    assert_int_equal(td_graph_node(graph, end - 3)->op, TD_OP_ALL_REDUCE);
    assert_int_equal(td_graph_node(graph, end - 3)->n_inputs, 5);
    assert_int_equal(td_graph_node(graph, end - 1)->op, TD_OP_AWAIT);
}

static void test_node_reads_a_new_value_when_rewritten_after_an_insertion(void **state) {
    (void)state;
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 2, .width = {8, 4}};
    assert_ok(rig_record_mlp(&m, graph, 5));
    td_value x = td_graph_input_at(graph, 0), relu = 0;
    td_node n = td_graph_n_nodes(graph);
    assert_ok(td_rewrite_insert_at(graph, 0));
    assert_ok(td_graph_op(graph, TD_OP_RELU, &x, 1, NULL, &relu));
    const struct td_node_info *reader = td_graph_node(graph, 1);
    td_value in[4];
    assert_true(reader->n_inputs <= TD_COUNTOF(in) && reader->inputs[0] == x);
    memcpy(in, reader->inputs, reader->n_inputs * sizeof *in);
    in[0] = relu;
    assert_ok(td_rewrite_node(graph, 1, in, &reader->attrs));
    assert_ok(td_rewrite_insert_at(graph, TD_REWRITE_END));
    assert_fails(td_rewrite_insert_at(graph, 1000), TD_INVALID_ARGUMENT, "no place 1000");
    assert_int_equal(td_graph_n_nodes(graph), n + 1);
    assert_int_equal(td_graph_node(graph, 0)->op, TD_OP_RELU);
    assert_int_equal(td_graph_node(graph, 0)->inputs[0], x);
    assert_int_equal(td_graph_node(graph, 1)->inputs[0], relu);
    assert_ok(td_graph_verify(graph));
    assert_ok(td_rewrite_insert_at(graph, 0)); // reads what is made later
    td_value made_later = td_graph_node(graph, 1)->outputs[0];
    assert_ok(td_graph_op(graph, TD_OP_RELU, &made_later, 1, NULL, &relu));
    assert_fails(td_graph_verify(graph), TD_INTERNAL, "read before it is made");
}

// ---- memory runs out ----------------------------------------------------------------------------
static td_status compile_all(void *arg) {
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW, .attrs = {.beta1 = 0.9, .beta2 = 0.999}, .clip_norm = 1};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, 4, true),
                                   .windowed = true,
                                   .record = rig_record_mlp,
                                   .record_arg = arg,
                                   .optimizer = &opt};
    TD_AUTO(td_state_table) *t = NULL;
    TD_AUTO(td_compiled) *c = NULL;
    TD_AUTO_BUF text;
    td_buf_init(&text, 1 << 20);
    TD_TRY(td_state_table_create(&t));
    o.state = t;
    TD_TRY(td_compile(&o, &c));
    TD_TRY(td_state_layout(t));
    TD_TRY(td_program_text(&c->program, &text));
    double scalars[TD_SCALAR_COUNT] = {0};
    double outputs[4];
    char *memory = calloc(1, 1 << 16);
    struct td_buffer all = {TD_SPACE_HOST, (uint64_t)(uintptr_t)memory, 1 << 16};
    struct td_bindings b = {.struct_bytes = sizeof b,
                            .arena = all,
                            .scalars = scalars,
                            .outputs = outputs,
                            .region = {all, all, all, all}};
    const struct td_accelerator_ops *ops = td_accelerator_reference.ops;
    struct td_accel_config config = {.struct_bytes = sizeof config, .n_threads = 1};
    struct td_accelerator *accel = NULL;
    struct td_executable *exe = NULL;
    td_status s = ops->open(&config, &accel);
    if (!s) s = ops->compile(accel, &c->program, &b, &exe);
    ops->release(exe);
    ops->close(accel);
    free(memory);
    return s;
}

static void test_compile_fails_cleanly_when_any_allocation_fails(void **state) {
    (void)state;
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 3, .width = {8, 6, 4}};
    td_test_failing_allocations(compile_all, &m);
}

static void test_result_is_stored_as_f32_under_its_rows_when_recorded(void **state) {
    (void)state;
    td_value wide = input("wide", TD_F64, rig_shape(2, 7, 3, 0));
    td_value scalar = input("s", TD_F32, rig_shape(0, 0, 0, 0));
    uint32_t index;
    assert_ok(td_graph_result(graph, "logits", wide));
    assert_ok(td_state_find(table, "logits:7", &index));
    const struct td_state_info *info = td_state_at(table, index);
    assert_int_equal(info->role, TD_ROLE_RESULT);
    assert_int_equal(info->dtype, TD_F32);
    assert_true(info->shape.dim[0] == 7 && info->shape.dim[1] == 3);
    assert_int_equal(td_graph_n_nodes(graph), 2);
    assert_int_equal(td_graph_node(graph, 0)->op, TD_OP_CAST);
    assert_int_equal(td_graph_node(graph, 1)->op, TD_OP_STORE);
    assert_fails(td_graph_result(graph, "logits", scalar), TD_INVALID_ARGUMENT,
                 "'logits' has no leading dimension");
    assert_fails(td_graph_result(graph, "logits", 99), TD_INVALID_ARGUMENT, "'logits'");
}

// What a precision did not cast reads what was recorded.
static void test_input_is_read_as_f64_when_it_comes_as_that(void **state) {
    (void)state;
    const struct td_attrs wide = {.dtype = TD_F64};
    td_value x = input("x", TD_F32, rig_shape(2, 0, 0, 0)), cast, y;
    assert_ok(td_graph_op(graph, TD_OP_CAST, &x, 1, &wide, &cast));
    assert_ok(td_graph_op(graph, TD_OP_RELU, &x, 1, NULL, &y));
    assert_ok(td_graph_op(graph, TD_OP_MUL, (td_value[]){x, y}, 2, NULL, &y));
    assert_ok(td_graph_retype_input(graph, 0, TD_F64));
    assert_ok(td_graph_verify(graph));
    assert_int_equal(td_graph_n_nodes(graph), 4);
    assert_true(td_graph_value(graph, x)->dtype == TD_F64);
    assert_int_equal(td_graph_node(graph, 0)->inputs[0], x);
    const td_value narrow = td_graph_node(graph, 1)->outputs[0];
    assert_true(td_graph_value(graph, narrow)->dtype == TD_F32);
    assert_int_equal(td_graph_node(graph, 2)->inputs[0], narrow);
    assert_int_equal(td_graph_node(graph, 3)->inputs[0], narrow);
    assert_ok(td_graph_retype_input(graph, 0, TD_F64));
    assert_int_equal(td_graph_n_nodes(graph), 4);
}

static void test_step_scalar_is_read_as_f64_when_a_precision_says_so(void **state) {
    (void)state;
    td_value x = input("x", TD_F32, rig_shape(0, 0, 0, 0)), lr, again;
    assert_ok(td_graph_scalar(graph, TD_SCALAR_LR, &lr));
    assert_int_equal(td_graph_value(graph, lr)->dtype, TD_F32);
    assert_ok(td_rewrite_scalar(graph, lr, TD_F64));
    assert_ok(td_graph_scalar(graph, TD_SCALAR_LR, &again));
    assert_true(again == lr && td_graph_value(graph, lr)->dtype == TD_F64);
    assert_fails(td_rewrite_scalar(graph, lr, TD_BF16), TD_INVALID_ARGUMENT, "f32 or f64");
    assert_fails(td_rewrite_scalar(graph, x, TD_F64), TD_INVALID_ARGUMENT, "only a step scalar");
}

#define test_with_graph(f) cmocka_unit_test_setup_teardown(f, open_graph, close_graph)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_with_graph(test_state_is_found_again_when_added_twice_alike),
        test_with_graph(test_layout_is_aligned_and_ordered_when_frozen),
        test_with_graph(test_op_is_refused_with_its_shapes_when_operands_do_not_fit),
        test_with_graph(test_op_of_a_family_is_refused_when_operands_do_not_fit),
        test_with_graph(test_op_of_networks_is_refused_when_operands_do_not_fit),
        test_with_graph(test_outputs_and_loss_are_refused_when_not_scalar_or_repeated),
        test_with_graph(test_view_tells_what_was_built_when_read),
        test_with_graph(test_gradients_of_two_steps_share_no_bucket),
        test_with_graph(test_unreached_parameters_are_listed_when_the_loss_skips_them),
        test_with_graph(test_autodiff_is_refused_when_an_op_has_no_gradient),
        test_with_graph(test_buckets_are_kept_when_a_second_program_writes_in_another_order),
        test_with_graph(test_bucket_ends_when_it_has_as_many_gradients_as_one_reduction_takes),
        test_with_graph(test_node_reads_a_new_value_when_rewritten_after_an_insertion),
        test_with_graph(test_step_scalar_is_read_as_f64_when_a_precision_says_so),
        test_with_graph(test_input_is_read_as_f64_when_it_comes_as_that),
        test_with_graph(test_result_is_stored_as_f32_under_its_rows_when_recorded),
        cmocka_unit_test(test_compile_fails_cleanly_when_any_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
