// Dgrad: the product that makes an activation's incoming gradient applies its gradient, too.
//
// Take z = matmul dy w, where the only reader of z is relu_grad, gelu_grad, ... (from, z). Both
// nodes become one matmul with attrs.then, where the matmul was. Its third operand is `from` (the
// activation's result, or its operand). On `reference` no bit changes, because the product is
// rounded before; `cpu` runs the two one after the other, in place, so that neither does there.
//
// It runs after head, which looks for plain products, and before recompute, so that what is made
// again for `from` is before the product. Left apart: an activation's gradient whose result is only
// stored (fuse has it write the gradient directly), one after a cast, and one after a view. Such a
// view is in front of a flattened image, which accelerators keep in an order of their own.

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/rules/rules.h"

// The product whose result node n alone reads and turns into a gradient; or TD_NODE_NONE.
static td_node product_of(const struct td_graph *g, const uint32_t *uses, td_node n) {
    const td_node none = TD_NODE_NONE;
    const struct td_node_info *grad = &g->nodes[n];
    if (td_op_gradient(grad->op) != TD_OP_GRADIENT_THEN || grad->into) return none;
    td_value from = grad->inputs[0], z = grad->inputs[1];
    const struct td_value_info *product = td_gv(g, z), *operand = td_gv(g, from);
    if (product->kind != TD_VALUE_NODE || uses[z] != 1) return none;
    const struct td_node_info *m = &g->nodes[product->node];
    bool plain = m->op == TD_OP_MATMUL && m->n_inputs == 2 && m->attrs.act == TD_ACT_NONE &&
                 m->segment == grad->segment;
    bool early = operand->kind != TD_VALUE_NODE || operand->node < product->node;
    bool fits = plain && early && td_graph_stable(g, from, product->node, n);
    return fits ? product->node : none;
}

static td_status join(struct td_graph *g, td_node product, td_node n) {
    struct td_node_info *m = &g->nodes[product], *grad = &g->nodes[n];
    td_value *in = td_arena_array(g->arena, 3, sizeof *in);
    if (!in) return td_fail_oom();
    in[0] = m->inputs[0];
    in[1] = m->inputs[1];
    in[2] = grad->inputs[0];
    m->inputs = in;
    m->n_inputs = 3;
    m->attrs.then = grad->op;
    m->attrs.scale = grad->attrs.scale; // what the activation knows
    m->attrs.gelu_tanh = grad->attrs.gelu_tanh;
    g->values[m->outputs[0]].node = TD_NODE_NONE;
    m->outputs[0] = grad->outputs[0];
    g->values[m->outputs[0]].node = product;
    grad->n_outputs = 0; // or compacting would forget the value's maker
    return TD_OK;
}

td_status td_pass_dgrad(struct td_graph *g) {
    TD_AUTO_FREE uint32_t *uses = NULL;
    TD_TRY(td_graph_count_uses(g, &uses));
    TD_AUTO_FREE bool *dead = td_calloc(g->n_nodes + 1, sizeof *dead);
    if (!dead) return td_fail_oom();
    for (td_node n = 0; n < g->n_nodes; n++) {
        td_node product = product_of(g, uses, n);
        if (product == (td_node)TD_NODE_NONE) continue;
        TD_TRY(join(g, product, n));
        dead[n] = true;
    }
    td_graph_compact(g, dead);
    return TD_OK;
}
