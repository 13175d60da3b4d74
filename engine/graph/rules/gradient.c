// See the header.

#include "engine/graph/rules/gradient.h"

td_status td_grad_value(struct td_graph *g, td_value dy, enum td_dtype dtype, td_value *out_value) {
    if (dy == TD_ADJOINT_ONE) {
        struct td_attrs one = {.dtype = dtype, .scale = 1};
        return td_graph_op(g, TD_OP_FILL, NULL, 0, &one, out_value);
    }
    *out_value = dy;
    return TD_OK;
}

// ---- which ops have one -------------------------------------------------------------------------
// Ops without a gradient, by name, so that an op without a rule is a decision. They are gradients
// (there is no second derivative), what passes make after the gradients, updates, counts. make lint
// demands a rule or a row here.
static const bool has_none[TD_OP_COUNT] = {
    [TD_OP_AXPBY] = true,
    [TD_OP_RELU_GRAD] = true,
    [TD_OP_LEAKY_RELU_GRAD] = true,
    [TD_OP_GELU_GRAD] = true,
    [TD_OP_SILU_GRAD] = true,
    [TD_OP_SIGMOID_GRAD] = true,
    [TD_OP_TANH_GRAD] = true,
    [TD_OP_CLAMP] = true,
    [TD_OP_COMPARE] = true,
    [TD_OP_GATHER_GRAD] = true,
    [TD_OP_EMBEDDING_GRAD] = true,
    [TD_OP_LINEAR_CE] = true,
    [TD_OP_LINEAR_CE_GRAD] = true,
    [TD_OP_SOFTMAX_GRAD] = true,
    [TD_OP_LOG_SOFTMAX_GRAD] = true,
    [TD_OP_LAYER_NORM_GRAD] = true,
    [TD_OP_RMS_NORM_GRAD] = true,
    [TD_OP_ADD_LAYER_NORM] = true,
    [TD_OP_ADD_RMS_NORM] = true,
    [TD_OP_BATCH_NORM_EVAL] = true,
    [TD_OP_BATCH_NORM_GRAD] = true,
    [TD_OP_CONV2D_GRAD_X] = true,
    [TD_OP_CONV2D_GRAD_W] = true,
    [TD_OP_MAX_POOL_GRAD] = true,
    [TD_OP_AVG_POOL_GRAD] = true,
    [TD_OP_ATTENTION_GRAD] = true,
    [TD_OP_SELF_ATTENTION_GRAD] = true,
    [TD_OP_COUNT_CORRECT] = true,
    [TD_OP_COUNT_LABELS] = true,
    [TD_OP_ALL_FINITE] = true,
    [TD_OP_STORE] = true,
    [TD_OP_ALL_REDUCE] = true,
    [TD_OP_CLIP_COEF] = true,
    [TD_OP_SGD] = true,
    [TD_OP_ADAM] = true,
    [TD_OP_ADAMW] = true,
    [TD_OP_LION] = true,
    [TD_OP_ADAFACTOR] = true,
    [TD_OP_MUON_MOMENTUM] = true,
    [TD_OP_MUON] = true,
    [TD_OP_CONSTANT] = true,
};

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
    TD_CHECK(has_none[node->op] == !rule);
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
