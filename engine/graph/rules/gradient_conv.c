// Gradients of convolutions and pools. A convolution has an op for each
// operand's gradient, because libraries have; its bias is summed like any broadcast. A maximum
// remembers where in its window it was, a byte each, so that x need not live until the backward
// segment.

#include "engine/graph/rules/gradient.h"

static td_status grad_conv2d(const struct td_grad_call *c) {
    td_value x = c->node->inputs[0], w = c->node->inputs[1];
    struct td_attrs a = {.window = c->node->attrs.window};
    if (c->operand < 2) {
        bool of_x = c->operand == 0;
        a.shape = *td_grad_shape(c, of_x ? x : w);
        return of_x ? td_graph_op3(c->g, TD_OP_CONV2D_GRAD_X, c->dy, w, 0, &a, c->out)
                    : td_graph_op3(c->g, TD_OP_CONV2D_GRAD_W, x, c->dy, 0, &a, c->out);
    }
    td_value v;
    struct td_attrs sum = {.shape = {3, {td_grad_shape(c, w)->dim[0], 1, 1}}};
    struct td_attrs flat = {.shape = {1, {td_grad_shape(c, w)->dim[0]}}};
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, c->dy, 0, 0, &sum, &v));
    return td_graph_op3(c->g, TD_OP_RESHAPE, v, 0, 0, &flat, c->out);
}

static td_status grad_pool(const struct td_grad_call *c) {
    struct td_attrs a = {.window = c->node->attrs.window,
                         .shape = *td_grad_shape(c, c->node->inputs[0])};
    if (c->node->op == TD_OP_AVG_POOL) {
        return td_graph_op3(c->g, TD_OP_AVG_POOL_GRAD, c->dy, 0, 0, &a, c->out);
    }
    return td_graph_op3(c->g, TD_OP_MAX_POOL_GRAD, c->node->outputs[1], c->dy, 0, &a, c->out);
}

static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_CONV2D] = {grad_conv2d, false},
    [TD_OP_MAX_POOL] = {grad_pool, false},
    [TD_OP_AVG_POOL] = {grad_pool, false},
};

const struct td_grad_rule *td_grad_rule_conv(enum td_op op) {
    return rules[op].grad ? &rules[op] : NULL;
}
