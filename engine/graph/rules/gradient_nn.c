// Gradients of losses, softmax, norms and dropout. A norm's partner makes dx,
// dgamma and, for layer norm, dbeta in one node, which the rules of its operands share. Dropout is
// linear, and its mask comes from the same key whenever it is asked for: it is its own gradient.

#include "engine/graph/rules/gradient.h"

static td_status no_gradient(const char *what) {
    return td_fail(TD_INVALID_ARGUMENT, "there is none for %s: keep it out of the parameters",
                   what);
}

// v times dy, where dy may be the constant one.
static td_status scaled(const struct td_grad_call *c, td_value v) {
    if (c->dy == TD_ADJOINT_ONE) {
        *c->out = v;
        return TD_OK;
    }
    return td_graph_op3(c->g, TD_OP_SCALE, v, c->dy, 0, NULL, c->out);
}

static td_status grad_softmax_ce(const struct td_grad_call *c) {
    if (c->operand != 0) return no_gradient("class weights");
    return scaled(c, c->node->outputs[1]);
}

// d/dx = 2 (x - t) / n, made by the loss; d/dt is its opposite
static td_status grad_mse(const struct td_grad_call *c) {
    td_value v = c->node->outputs[1];
    if (c->operand) TD_TRY(td_grad_times(c, v, -1, &v));
    return scaled(c, v);
}

// d/dx = (sigmoid(x) - t) / n, made by the loss; d/dt = -x / n
static td_status grad_bce(const struct td_grad_call *c) {
    int64_t n = td_shape_elems(td_grad_shape(c, c->node->inputs[0]));
    td_value v = c->node->outputs[1];
    if (c->operand) TD_TRY(td_grad_times(c, c->node->inputs[0], n ? -1.0 / (double)n : -1, &v));
    return scaled(c, v);
}

static td_status grad_softmax(const struct td_grad_call *c) {
    bool log = c->node->op == TD_OP_LOG_SOFTMAX;
    return td_graph_op3(c->g, log ? TD_OP_LOG_SOFTMAX_GRAD : TD_OP_SOFTMAX_GRAD,
                        c->node->outputs[0], c->dy, 0, NULL, c->out);
}

// beta of a batch norm: the sum of dy over everything but its channel.
static td_status grad_shift(const struct td_grad_call *c) {
    td_value beta = c->node->inputs[2], v;
    const struct td_shape *channel = td_grad_shape(c, beta);
    struct td_attrs sum = {.shape = *channel}, flat = {.shape = *channel};
    for (int32_t d = 2; d < td_grad_shape(c, c->dy)->n_dims; d++) {
        sum.shape.dim[sum.shape.n_dims++] = 1;
    }
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, c->dy, 0, 0, &sum, &v));
    if (sum.shape.n_dims > 1) TD_TRY(td_graph_op3(c->g, TD_OP_RESHAPE, v, 0, 0, &flat, &v));
    *c->out = v;
    if (td_grad_dtype(c, v) == td_grad_dtype(c, beta)) return TD_OK;
    struct td_attrs cast = {.dtype = td_grad_dtype(c, beta)};
    return td_graph_op3(c->g, TD_OP_CAST, v, 0, 0, &cast, c->out);
}

static td_status grad_norm(const struct td_grad_call *c) {
    enum td_op partner = c->node->op == TD_OP_LAYER_NORM ? TD_OP_LAYER_NORM_GRAD
                         : c->node->op == TD_OP_RMS_NORM ? TD_OP_RMS_NORM_GRAD
                                                         : TD_OP_BATCH_NORM_GRAD;
    if (c->operand > 2) return no_gradient("running statistics");
    if (c->operand == 2 && partner == TD_OP_BATCH_NORM_GRAD) return grad_shift(c);
    const td_value in[3] = {c->node->inputs[0], c->node->inputs[1], c->dy};
    struct td_attrs a = {.eps = c->node->attrs.eps};
    if (!c->made[0]) TD_TRY(td_graph_op(c->g, partner, in, 3, &a, c->made));
    *c->out = c->made[c->operand];
    return TD_OK;
}

static td_status grad_dropout(const struct td_grad_call *c) {
    return td_graph_op3(c->g, TD_OP_DROPOUT, c->dy, 0, 0, &c->node->attrs, c->out);
}

static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_SOFTMAX_CE] = {grad_softmax_ce, true},
    [TD_OP_MSE] = {grad_mse, true},
    [TD_OP_BCE] = {grad_bce, true},
    [TD_OP_SOFTMAX] = {grad_softmax, false},
    [TD_OP_LOG_SOFTMAX] = {grad_softmax, false},
    [TD_OP_LAYER_NORM] = {grad_norm, false},
    [TD_OP_RMS_NORM] = {grad_norm, false},
    [TD_OP_BATCH_NORM] = {grad_norm, false},
    [TD_OP_DROPOUT] = {grad_dropout, false},
};

const struct td_grad_rule *td_grad_rule_nn(enum td_op op) {
    return rules[op].grad ? &rules[op] : NULL;
}
