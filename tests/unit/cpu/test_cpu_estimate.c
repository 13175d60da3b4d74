// How long the cpu predicts that nodes take: what is counted as moved, at rates that are given. How
// near it is to steps that ran, the bench `predicted` shows.

#include "accelerators/cpu/estimate.c"
#include "tests/unit/graph/step_rig.h"

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

static void test_a_cast_of_a_weight_takes_what_it_reads_and_writes(void **state) {
    (void)state;
    struct rig r;
    const struct td_graph *g = compile_case(&r, "convnet", TD_OP_SGD)->graph;
    const struct td_accel_rates rates = {.f32 = 1e12, .bf16 = 1e12, .bandwidth = 1};
    const double elems = 4 * 9 + 6 * 4 * 9; // of the two kernels alone
    double seconds = 0;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        if (td_graph_node(g, n)->op != TD_OP_CAST) continue;
        seconds += td_cpu_node_seconds(g, n, &rates, false);
    }
    assert_true(seconds >= (4 + 2) * elems);
    rig_close(&r);
}

static void test_winograd_counts_only_where_the_accelerator_has_it(void **state) {
    (void)state;
    static const enum td_op ops[] = {TD_OP_CONV2D, TD_OP_CONV2D_GRAD_X, TD_OP_CONV2D_GRAD_W};
    const struct td_shape three = {.n_dims = 4, .dim = {64, 64, 3, 3}};
    const struct td_shape one = {.n_dims = 4, .dim = {64, 64, 1, 1}};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        bool weights = ops[i] == TD_OP_CONV2D_GRAD_W;
        uint32_t its = weights ? WINOGRAD_WEIGHTS : WINOGRAD_IMAGES;
        uint32_t other = WINOGRAD_WEIGHTS + WINOGRAD_IMAGES - its;
        struct td_node_info node = {.op = ops[i], .attrs.window.stride = {1, 1}};
        assert_true(is_winograd(&node, &three, its) && !is_winograd(&node, &three, other));
        assert_false(is_winograd(&node, &one, its));
        node.attrs.window.stride[1] = 2;
        assert_false(is_winograd(&node, &three, its));
    }
    // a weights' gradient says its kernel without a graph
    struct td_node_info node = {.op = TD_OP_CONV2D_GRAD_W, .attrs.shape = three};
    double direct = share_of_conv(NULL, &node, 0, false);
    assert_true(share_of_conv(NULL, &node, WINOGRAD_WEIGHTS, false) > direct);
    assert_true(share_of_conv(NULL, &node, WINOGRAD_WEIGHTS, true) < direct); // bf16 has none
}

static void test_a_node_on_plain_loops_takes_what_those_take(void **state) {
    (void)state;
    struct rig r;
    const struct td_graph *g = compile_case(&r, "mlp", TD_OP_SGD)->graph;
    const struct td_accel_rates rates = {.f32 = 1e15, .bf16 = 1e15, .bandwidth = 1e15};
    td_node product = td_graph_n_nodes(g);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        if (td_graph_node(g, n)->op == TD_OP_MATMUL) product = n;
    }
    assert_true(product < td_graph_n_nodes(g));
    double slow = td_cpu_node_seconds(g, product, &rates, true) -
                  td_cpu_node_seconds(g, product, &rates, false);
    double flops = td_op_flops(g, td_graph_node(g, product));
    assert_true(slow > flops / PLAIN_PRODUCT && slow < 2 * flops / PLAIN_PRODUCT + 1e-3);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packs_are_counted_once_whatever_optimizer_writes_them),
        cmocka_unit_test(test_a_cast_of_a_weight_takes_what_it_reads_and_writes),
        cmocka_unit_test(test_a_node_on_plain_loops_takes_what_those_take),
        cmocka_unit_test(test_winograd_counts_only_where_the_accelerator_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
