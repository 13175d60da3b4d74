// The dgrad pass: which products take an activation's gradient along, which it must leave alone,
// and that no bit moves on the reference, whose arena is NaN before the step.

#include "tests/unit/graph/graph_rig.h"

enum { B = 5, IN = 7, HIDDEN = 9 };

struct net {
    enum td_dtype dtype;
    enum td_op activation;
    struct td_attrs attrs; // of the activation
    bool fork;             // the second activation's operand has another reader
    bool bare;             // the first activation is of a parameter
};

static td_status param_of(const struct net *n, struct td_graph *g, const char *name, int64_t rows,
                          int64_t cols, td_value *out) {
    const struct td_shape shape = rig_shape(2, rows, cols, 0);
    struct td_init init = {.kind = TD_INIT_UNIFORM, .a = -1, .b = 1};
    return td_graph_param(g, name, n->dtype, &shape, init, out);
}

// Two layers of product and activation, and one product more; the loss is its mean.
static td_status record(void *arg, struct td_graph *g, int64_t batch) {
    const struct net *n = arg;
    static const char *const names[] = {"w1", "w2", "w3"};
    td_value h, w, other;
    TD_TRY(param_of(n, g, "x", batch, IN, &h));
    for (int i = 0; i < 3; i++) {
        bool act = i < 2 || n->bare;
        if (n->bare && act) TD_TRY(td_graph_op(g, n->activation, &h, 1, &n->attrs, &h));
        TD_TRY(param_of(n, g, names[i], i ? HIDDEN : IN, HIDDEN, &w));
        TD_TRY(td_graph_op(g, TD_OP_MATMUL, (td_value[]){h, w}, 2, NULL, &h));
        if (!n->bare && act) TD_TRY(td_graph_op(g, n->activation, &h, 1, &n->attrs, &h));
        if (i == 1 && n->fork) {
            TD_TRY(td_graph_op(g, TD_OP_SIGMOID, &h, 1, NULL, &other));
            TD_TRY(td_graph_op(g, TD_OP_ADD, (td_value[]){h, other}, 2, NULL, &h));
        }
    }
    TD_TRY(td_graph_op(g, TD_OP_MEAN, &h, 1, NULL, &h));
    TD_TRY(td_graph_output(g, "loss", h, TD_OUTPUT_MEAN));
    return td_graph_loss(g, h);
}

// As td_compile would, but with or without the pass.
static struct td_graph *compile(struct rig *r, struct net *n, bool joins) {
    const struct td_autodiff_options autodiff = {0};
    struct td_compiled *c = td_calloc(1, sizeof *c);
    assert_non_null(c);
    r->program[r->n_programs++].compiled = c;
    assert_ok(td_graph_create("train", TD_MODE_TRAIN, r->state, &c->graph));
    c->program.graph = c->graph;
    assert_ok(record(n, c->graph, B));
    assert_ok(td_pass_autodiff(c->graph, &autodiff));
    assert_ok(td_pass_simplify(c->graph));
    assert_ok(td_pass_fuse(c->graph));
    if (joins) assert_ok(td_pass_dgrad(c->graph));
    assert_ok(td_graph_verify(c->graph));
    assert_ok(td_pass_memory(c->graph, NULL, &c->placement, &c->program.arena_bytes));
    c->program.placement = c->placement;
    return c->graph;
}

static int count(const struct td_graph *g, enum td_op op, enum td_op then) {
    int n = 0;
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        const struct td_node_info *node = td_graph_node(g, i);
        n += node->op == op && node->attrs.then == then;
    }
    return n;
}

struct outcome {
    double loss;
    size_t bytes;
    double flops;
    char grads[8192];
};

static struct outcome run(struct net *n, bool joins) {
    struct outcome out = {0};
    struct rig r;
    rig_open(&r);
    out.flops = td_graph_flops(compile(&r, n, joins));
    rig_place(&r);
    memset(r.program[0].host_arena, 0xff, r.program[0].arena.bytes);
    rig_run(&r, 0, TD_SEGS_ALL, NULL);
    out.loss = r.program[0].outputs[0];
    out.bytes = r.region[TD_ROLE_GRAD].bytes;
    assert_true(out.bytes <= sizeof out.grads);
    memcpy(out.grads, r.host[TD_ROLE_GRAD], out.bytes);
    rig_close(&r);
    return out;
}

static const struct {
    enum td_op activation, then;
    struct td_attrs attrs;
} forms[] = {
    {TD_OP_RELU, TD_OP_RELU_GRAD, {0}}, {TD_OP_LEAKY_RELU, TD_OP_LEAKY_RELU_GRAD, {.scale = 0.2}},
    {TD_OP_GELU, TD_OP_GELU_GRAD, {0}}, {TD_OP_GELU, TD_OP_GELU_GRAD, {.gelu_tanh = true}},
    {TD_OP_SILU, TD_OP_SILU_GRAD, {0}}, {TD_OP_SIGMOID, TD_OP_SIGMOID_GRAD, {0}},
    {TD_OP_TANH, TD_OP_TANH_GRAD, {0}},
};

static void test_steps_have_the_same_bits_when_products_take_gradients_along(void **state) {
    (void)state;
    static const enum td_dtype types[] = {TD_F32, TD_F64, TD_BF16, TD_F16};
    for (size_t i = 0; i < TD_COUNTOF(forms) * TD_COUNTOF(types); i++) {
        struct net n = {.dtype = types[i % TD_COUNTOF(types)],
                        .activation = forms[i / TD_COUNTOF(types)].activation,
                        .attrs = forms[i / TD_COUNTOF(types)].attrs};
        struct outcome apart = run(&n, false), joined = run(&n, true);
        assert_true(isfinite(apart.loss) && apart.loss == joined.loss && apart.loss != 0);
        assert_true(apart.flops == joined.flops);
        assert_int_equal(apart.bytes, joined.bytes);
        assert_memory_equal(apart.grads, joined.grads, apart.bytes);
    }
}

static void test_both_gradients_are_joined_when_only_they_read_their_products(void **state) {
    (void)state;
    for (size_t i = 0; i < TD_COUNTOF(forms); i++) {
        struct net n = {
            .dtype = TD_F32, .activation = forms[i].activation, .attrs = forms[i].attrs};
        struct rig r;
        rig_open(&r);
        const struct td_graph *g = compile(&r, &n, true);
        assert_int_equal(count(g, TD_OP_MATMUL, forms[i].then), 2);
        assert_int_equal(count(g, forms[i].then, (enum td_op)0), 0);
        rig_close(&r);
    }
}

static void test_gradient_stays_apart_when_its_product_has_another_reader(void **state) {
    (void)state;
    struct net n = {.dtype = TD_F32, .activation = TD_OP_RELU, .fork = true};
    struct rig r;
    rig_open(&r);
    const struct td_graph *g = compile(&r, &n, true);
    assert_int_equal(count(g, TD_OP_MATMUL, TD_OP_RELU_GRAD), 1);
    assert_int_equal(count(g, TD_OP_RELU_GRAD, (enum td_op)0), 1);
    rig_close(&r);
}

static void test_gradient_stays_apart_when_it_is_a_parameters(void **state) {
    (void)state;
    struct net n = {.dtype = TD_F32, .activation = TD_OP_SILU, .bare = true};
    struct rig r;
    rig_open(&r);
    const struct td_graph *g = compile(&r, &n, true);
    assert_int_equal(count(g, TD_OP_MATMUL, TD_OP_SILU_GRAD), 2);
    assert_int_equal(count(g, TD_OP_SILU_GRAD, (enum td_op)0), 1); // it writes x's gradient
    rig_close(&r);
}

static void test_gradient_stays_apart_when_what_it_reads_is_made_after_the_product(void **state) {
    (void)state;
    const struct td_shape square = rig_shape(2, B, B, 0);
    struct td_init zero = {0};
    struct td_graph *g;
    struct rig r;
    td_value in[2], z, from, y;
    rig_open(&r);
    assert_ok(td_graph_create("train", TD_MODE_EVAL, r.state, &g));
    assert_ok(td_graph_param(g, "a", TD_F32, &square, zero, &in[0]));
    assert_ok(td_graph_param(g, "b", TD_F32, &square, zero, &in[1]));
    assert_ok(td_graph_op(g, TD_OP_MATMUL, in, 2, NULL, &z));
    assert_ok(td_graph_op(g, TD_OP_EXP, &in[0], 1, NULL, &from));
    assert_ok(td_graph_op(g, TD_OP_GELU_GRAD, (td_value[]){from, z}, 2, NULL, &y));
    assert_ok(td_graph_op(g, TD_OP_MEAN, &y, 1, NULL, &y));
    assert_ok(td_graph_output(g, "mean", y, TD_OUTPUT_MEAN));
    assert_ok(td_pass_dgrad(g));
    assert_ok(td_graph_verify(g));
    assert_int_equal(td_graph_n_nodes(g), 4);
    td_graph_destroy(g);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_have_the_same_bits_when_products_take_gradients_along),
        cmocka_unit_test(test_both_gradients_are_joined_when_only_they_read_their_products),
        cmocka_unit_test(test_gradient_stays_apart_when_its_product_has_another_reader),
        cmocka_unit_test(test_gradient_stays_apart_when_it_is_a_parameters),
        cmocka_unit_test(test_gradient_stays_apart_when_what_it_reads_is_made_after_the_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
