// The plan's estimate of a step: what is counted as moved, at rates that are given. How near it is
// to steps that ran, the bench `foretold` shows.

#include "engine/train/plan/estimate.c"
#include "tests/unit/step_rig.h"

static void choose_muon(const void *arg, const struct td_state_info *param,
                        struct td_optim_choice *io) {
    (void)arg;
    if (param->shape.n_dims != 2) io->op = TD_OP_ADAMW;
    io->ns_steps = 1;
}

static const struct td_compiled *compile_case(struct rig *r, const char *name, enum td_op op) {
    struct td_optimizer_options optimizer = {.op = op};
    if (op == TD_OP_MUON) optimizer.choose = choose_muon;
    struct td_compile_options o = step_options(step_case(name), &optimizer);
    rig_open(r);
    step_set_precision(&o, &td_precision_bf16_mixed);
    return r->program[rig_add(r, &o)].compiled;
}

static void test_packs_are_counted_once_whatever_optimizer_writes_them(void **state) {
    (void)state;
    static const enum td_op ops[] = {TD_OP_SGD,  TD_OP_ADAM,      TD_OP_ADAMW,
                                     TD_OP_LION, TD_OP_ADAFACTOR, TD_OP_MUON};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        struct rig r;
        const struct td_graph *g = compile_case(&r, "mlp", ops[i])->graph;
        double bytes = 0;
        for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
            bytes += packed(g, td_graph_node(g, n));
        }
        assert_true(bytes == 2 * (16 * 32 + 32 * 24 + 24 * 5)); // bf16
        rig_close(&r);
    }
}

static bool skips_casts(const struct td_graph *g, td_node n) {
    return td_graph_node(g, n)->op == TD_OP_CAST;
}

static void test_a_cast_of_a_weight_costs_nothing_only_when_the_accelerator_skips_it(void **state) {
    (void)state;
    struct rig r;
    const struct td_compiled *c = compile_case(&r, "convnet", TD_OP_SGD);
    struct machine m = {.rates = {.f32 = 1e12, .bf16 = 1e12, .bandwidth = 1}};
    const double bytes = 4 * 9 + 6 * 4 * 9; // of the two kernels alone
    double all = program_seconds(c, NULL, &m);
    m.skips = skips_casts;
    double some = program_seconds(c, NULL, &m);
    assert_true(some > 0 && all - some >= (4 + 2) * bytes);
    rig_close(&r);
}

static void test_winograd_counts_only_where_the_accelerator_has_it(void **state) {
    (void)state;
    static const enum td_op ops[] = {TD_OP_CONV2D, TD_OP_CONV2D_GRAD_X, TD_OP_CONV2D_GRAD_W};
    const struct td_shape three = {.n_dims = 4, .dim = {64, 64, 3, 3}};
    const struct td_shape one = {.n_dims = 4, .dim = {64, 64, 1, 1}};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        bool weights = ops[i] == TD_OP_CONV2D_GRAD_W;
        uint32_t its = weights ? TD_WINOGRAD_WEIGHTS : TD_WINOGRAD_IMAGES;
        uint32_t other = TD_WINOGRAD_WEIGHTS + TD_WINOGRAD_IMAGES - its;
        struct td_node_info node = {.op = ops[i], .attrs.window.stride = {1, 1}};
        assert_true(is_winograd(&node, &three, its) && !is_winograd(&node, &three, other));
        assert_false(is_winograd(&node, &one, its));
        node.attrs.window.stride[1] = 2;
        assert_false(is_winograd(&node, &three, its));
    }
    // a weights' gradient says its kernel without a graph
    struct td_node_info node = {.op = TD_OP_CONV2D_GRAD_W, .attrs.shape = three};
    double direct = share_of_conv(NULL, &node, 0, false);
    assert_true(share_of_conv(NULL, &node, TD_WINOGRAD_WEIGHTS, false) > direct);
    assert_true(share_of_conv(NULL, &node, TD_WINOGRAD_WEIGHTS, true) < direct); // bf16 has none
}

static void test_a_node_on_plain_loops_takes_what_those_take(void **state) {
    (void)state;
    struct rig r;
    const struct td_compiled *c = compile_case(&r, "mlp", TD_OP_SGD);
    uint32_t n_nodes = td_graph_n_nodes(c->graph), product = n_nodes;
    struct machine m = {.rates = {.f32 = 1e15, .bf16 = 1e15, .bandwidth = 1e15}};
    bool *plain = td_calloc(n_nodes, sizeof *plain);
    double quick = program_seconds(c, NULL, &m);
    assert_true(quick == program_seconds(c, plain, &m));
    for (td_node n = 0; n < n_nodes; n++) {
        if (td_graph_node(c->graph, n)->op == TD_OP_MATMUL) product = n;
    }
    assert_true(product < n_nodes);
    plain[product] = true;
    double slow = program_seconds(c, plain, &m) - quick;
    double flops = td_op_flops(c->graph, td_graph_node(c->graph, product));
    assert_true(slow > flops / PLAIN_PRODUCT && slow < 2 * flops / PLAIN_PRODUCT + 1e-3);
    free(plain);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packs_are_counted_once_whatever_optimizer_writes_them),
        cmocka_unit_test(test_a_cast_of_a_weight_costs_nothing_only_when_the_accelerator_skips_it),
        cmocka_unit_test(test_a_node_on_plain_loops_takes_what_those_take),
        cmocka_unit_test(test_winograd_counts_only_where_the_accelerator_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
