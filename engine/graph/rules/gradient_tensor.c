// Gradients of the ops that rearrange or reduce. Each rearrangement has one that undoes it. Slice
// and pad undo each other, the parts of a concat are slices, a transpose has its inverse, and what
// was read by index is summed back by index.

#include "engine/graph/rules/gradient.h"

static td_status grad_reshape(const struct td_grad_call *c) {
    struct td_attrs a = {.shape = *td_grad_shape(c, c->node->inputs[0])};
    return td_graph_op3(c->g, TD_OP_RESHAPE, c->dy, 0, 0, &a, c->out);
}

static td_status grad_transpose(const struct td_grad_call *c) {
    struct td_attrs a = {0};
    for (int32_t i = 0; i < td_grad_shape(c, c->dy)->n_dims; i++) {
        a.perm[c->node->attrs.perm[i]] = i;
    }
    return td_graph_op3(c->g, TD_OP_TRANSPOSE, c->dy, 0, 0, &a, c->out);
}

static td_status grad_concat(const struct td_grad_call *c) {
    int32_t axis = c->node->attrs.axis;
    struct td_attrs a = {.shape = *td_grad_shape(c, c->node->inputs[c->operand])};
    for (uint32_t i = 0; i < c->operand; i++) {
        a.start[axis] += td_grad_shape(c, c->node->inputs[i])->dim[axis];
    }
    return td_graph_op3(c->g, TD_OP_SLICE, c->dy, 0, 0, &a, c->out);
}

static td_status grad_box(const struct td_grad_call *c) { // slice, pad
    struct td_attrs a = c->node->attrs;
    a.shape = *td_grad_shape(c, c->node->inputs[0]);
    a.scale = 0;
    return td_graph_op3(c->g, c->node->op == TD_OP_SLICE ? TD_OP_PAD : TD_OP_SLICE, c->dy, 0, 0, &a,
                        c->out);
}

static td_status grad_indexed(const struct td_grad_call *c) { // gather, embedding
    bool gathers = c->node->op == TD_OP_GATHER;
    struct td_attrs a = {.axis = c->node->attrs.axis,
                         .shape = *td_grad_shape(c, c->node->inputs[0])};
    return td_graph_op3(c->g, gathers ? TD_OP_GATHER_GRAD : TD_OP_EMBEDDING_GRAD,
                        c->node->inputs[1], c->dy, 0, &a, c->out);
}

static td_status grad_reduce_sum(const struct td_grad_call *c) { // and reduce_mean
    const struct td_value_info *x = td_gv(c->g, c->node->inputs[0]);
    int64_t n = td_shape_elems(&x->shape), n_out = td_shape_elems(&c->node->attrs.shape);
    struct td_attrs a = {.dtype = x->dtype, .shape = x->shape, .scale = 1};
    if (c->node->op == TD_OP_REDUCE_MEAN && n) a.scale = (double)n_out / (double)n;
    td_value share;
    TD_TRY(td_graph_op(c->g, TD_OP_FILL, NULL, 0, &a, &share));
    return td_graph_op3(c->g, TD_OP_MUL, share, c->dy, 0, NULL, c->out);
}

// Elements that equal the maximum share its gradient, as in torch's amax.
static td_status grad_reduce_max(const struct td_grad_call *c) {
    td_value x = c->node->inputs[0], y = c->node->outputs[0], is_top, one, zero, top, n, share;
    struct td_attrs count = {.shape = *td_grad_shape(c, y)};
    TD_TRY(td_graph_op3(c->g, TD_OP_COMPARE, x, y, 0, NULL, &is_top));
    TD_TRY(td_grad_constant(c, x, 1, &one));
    TD_TRY(td_grad_constant(c, x, 0, &zero));
    TD_TRY(td_graph_op3(c->g, TD_OP_SELECT, is_top, one, zero, NULL, &top));
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, top, 0, 0, &count, &n));
    TD_TRY(td_graph_op3(c->g, TD_OP_DIV, c->dy, n, 0, NULL, &share));
    return td_graph_op3(c->g, TD_OP_MUL, top, share, 0, NULL, c->out);
}

static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_RESHAPE] = {grad_reshape, false},
    [TD_OP_TRANSPOSE] = {grad_transpose, false},
    [TD_OP_CONCAT] = {grad_concat, false},
    [TD_OP_SLICE] = {grad_box, false},
    [TD_OP_PAD] = {grad_box, false},
    [TD_OP_GATHER] = {grad_indexed, false},
    [TD_OP_EMBEDDING] = {grad_indexed, false},
    [TD_OP_REDUCE_SUM] = {grad_reduce_sum, false},
    [TD_OP_REDUCE_MEAN] = {grad_reduce_sum, false},
    [TD_OP_REDUCE_MAX] = {grad_reduce_max, false},
};

const struct td_grad_rule *td_grad_rule_tensor(enum td_op op) {
    return rules[op].grad ? &rules[op] : NULL;
}
