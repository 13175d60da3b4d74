// See the header.

#include "engine/graph/rules/gradient.h"

#include "engine/graph/rules/rules.h"

td_status td_grad_value(struct td_graph *g, td_value dy, enum td_dtype dtype, td_value *out_value) {
    if (dy == TD_ADJOINT_ONE) {
        struct td_attrs one = {.dtype = dtype, .scale = 1};
        return td_graph_op(g, TD_OP_FILL, NULL, 0, &one, out_value);
    }
    *out_value = dy;
    return TD_OK;
}

static const struct td_grad_rule *rule_of(enum td_op op) {
    const struct td_grad_rule *r = td_grad_rule_elementwise(op);
    if (!r) r = td_grad_rule_tensor(op);
    if (!r) r = td_grad_rule_nn(op);
    if (!r) r = td_grad_rule_conv(op);
    if (!r) r = td_grad_rule_attention(op);
    return r ? r : td_grad_rule_basic(op);
}

td_status td_grad_prologue(struct td_graph *g, const struct td_node_info *node, td_value *dy) {
    const struct td_grad_rule *rule = rule_of(node->op);
    enum td_op_gradient is = td_op_gradient(node->op);
    TD_CHECK((is == TD_OP_GRADIENT_NONE || is == TD_OP_GRADIENT_THEN) == !rule);
    if (!rule) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the loss depends on parameters through '%s', which has no gradient",
                       td_op_name(node->op));
    }
    if (*dy == TD_ADJOINT_ONE && !rule->takes_one) {
        TD_TRY(td_grad_value(g, *dy, td_gv(g, node->outputs[0])->dtype, dy));
    }
    if (node->op == TD_OP_MATMUL && node->attrs.then) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the gradient of a product with '%s' after it is "
                       "unknown: record them apart",
                       td_op_name(node->attrs.then));
    }
    if (node->op == TD_OP_MATMUL && node->attrs.act == TD_ACT_RELU) {
        return td_graph_op3(g, TD_OP_RELU_GRAD, node->outputs[0], *dy, 0, NULL, dy);
    }
    return TD_OK;
}

td_status td_grad_rule(const struct td_grad_call *c) {
    TD_TRY_CTX(rule_of(c->node->op)->grad(c), "gradient of %s", td_op_name(c->node->op));
    return TD_OK;
}
