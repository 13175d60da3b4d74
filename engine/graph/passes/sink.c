// Sink: an activation moves after a pool that makes its operand smaller.
//
// max over a window of relu(x) is relu of the max over the window, bit for bit. So relu may as well
// see the pooled values, which are a quarter, forward and backward. The mask of the gradient then
// comes from the pooled result, and what was convolved is dead as soon as it is pooled. The place
// that a window remembers differs only where nothing in it is positive, and there the mask is zero.
// It runs before autodiff, so that the backward pass comes out right by itself.
//
// Only relu: for sigmoid and tanh large values round to equal ones, of which the pool would then
// remember another. Only max pools: an average does not commute.

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"

// Is the pool's operand made by a relu that nobody else reads?
static bool follows_relu(const struct td_graph *g, td_node pool, const uint32_t *uses) {
    td_value x = g->nodes[pool].inputs[0];
    const struct td_value_info *info = td_gv(g, x);
    if (info->kind != TD_VALUE_NODE || uses[x] != 1) return false;
    const struct td_node_info *relu = &g->nodes[info->node];
    return relu->op == TD_OP_RELU && relu->segment == g->nodes[pool].segment;
}

static void put(struct td_graph *g, td_node at, struct td_node_info node) {
    g->nodes[at] = node;
    for (uint32_t i = 0; i < node.n_outputs; i++) {
        td_gv(g, node.outputs[i])->node = at;
    }
}

// relu at `from`, pool at n: what is between them moves up by one, then come pool and relu. Readers
// of the pooled value shall read what the relu now makes, so the two exchange their results.
static td_status exchange(struct td_graph *g, td_node n) {
    struct td_node_info pool = g->nodes[n];
    td_node from = td_gv(g, pool.inputs[0])->node;
    struct td_node_info relu = g->nodes[from];
    td_value inner = relu.outputs[0], outer = pool.outputs[0];
    for (td_node i = from; i + 1 < n; i++) {
        put(g, i, g->nodes[i + 1]);
    }
    td_gv(g, inner)->shape = td_gv(g, outer)->shape;
    pool.outputs[0] = inner;
    relu.outputs[0] = outer;
    put(g, n - 1, pool);
    put(g, n, relu);
    TD_TRY(td_graph_set_operand(g, n - 1, 0, relu.inputs[0]));
    return td_graph_set_operand(g, n, 0, inner);
}

td_status td_pass_sink(struct td_graph *g) {
    TD_AUTO_FREE uint32_t *uses = NULL;
    TD_TRY(td_graph_count_uses(g, &uses));
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].op != TD_OP_MAX_POOL || !follows_relu(g, n, uses)) continue;
        TD_TRY(exchange(g, n));
    }
    return TD_OK;
}
