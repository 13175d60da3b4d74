// The plan's estimate of a step: which nodes the accelerator is asked for, and how.

#include "engine/train/plan/estimate.c"
#include "tests/unit/graph/step_rig.h"

// A second for each node, one more on plain loops; what was asked of is counted.
static double count_nodes(const struct td_graph *g, td_node n, const struct td_accel_rates *rates,
                          bool is_slow) {
    assert_true(n < td_graph_n_nodes(g) && rates->f32 == 7);
    return is_slow ? 2 : 1;
}

static bool elides_casts(const struct td_graph *g, td_node n) {
    return td_graph_node(g, n)->op == TD_OP_CAST;
}

static void test_nodes_are_summed_but_for_those_that_the_accelerator_skips(void **state) {
    (void)state;
    struct rig r;
    struct td_accelerator_ops ops = {.node_seconds = count_nodes};
    const struct td_accel_rates rates = {.f32 = 7};
    struct td_optimizer_options optimizer = {.op = TD_OP_SGD};
    struct td_compile_options o = step_options(step_case("convnet"), &optimizer);
    rig_open(&r);
    step_set_precision(&o, &td_precision_bf16_mixed);
    const struct td_graph *g = r.program[rig_add(&r, &o)].compiled->graph;
    uint32_t n_nodes = td_graph_n_nodes(g), casts = 0;
    bool *slow = td_calloc(n_nodes, sizeof *slow);
    for (td_node n = 0; n < n_nodes; n++) {
        casts += elides_casts(g, n);
    }
    assert_true(casts > 0);
    assert_true(program_seconds(&ops, g, NULL, &rates) == n_nodes);
    assert_true(program_seconds(&ops, g, slow, &rates) == n_nodes);
    slow[n_nodes - 1] = true;
    assert_true(program_seconds(&ops, g, slow, &rates) == n_nodes + 1);
    ops.elides = elides_casts;
    assert_true(program_seconds(&ops, g, NULL, &rates) == n_nodes - casts);
    free(slow);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_are_summed_but_for_those_that_the_accelerator_skips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
