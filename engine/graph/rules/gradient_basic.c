// Gradients of the ops of linear algebra and of those over whole tensors. With A = op(a), B =
// op(b), y = A B: dA = dy B', dB = A' dy. Where the operand itself is transposed the product is
// written the other way round, so that no transpose is ever materialised.

#include "engine/graph/rules/gradient.h"

// Folds leading dimensions into one: a product's transposed operand must be 2-D.
static td_status as_matrix(const struct td_grad_call *c, td_value v, td_value *out_value) {
    const struct td_shape *s = td_grad_shape(c, v);
    if (s->n_dims == 2) {
        *out_value = v;
        return TD_OK;
    }
    struct td_attrs a = {.shape = {.n_dims = 2, .dim = {1, s->dim[s->n_dims - 1]}}};
    for (int32_t i = 0; i + 1 < s->n_dims; i++) {
        a.shape.dim[0] *= s->dim[i];
    }
    return td_graph_op3(c->g, TD_OP_RESHAPE, v, 0, 0, &a, out_value);
}

static td_status grad_matmul(const struct td_grad_call *c) {
    td_value a = c->node->inputs[0], b = c->node->inputs[1], dy = c->dy;
    bool ta = c->node->attrs.trans_a, tb = c->node->attrs.trans_b;
    if (c->operand == 2) return td_grad_reduce(c, dy);
    if (c->operand == 0 && !ta) {
        struct td_attrs t = {.trans_b = !tb};
        return td_graph_op3(c->g, TD_OP_MATMUL, dy, b, 0, &t, c->out);
    }
    if (c->operand == 0) {
        struct td_attrs t = {.trans_a = tb, .trans_b = true};
        return td_graph_op3(c->g, TD_OP_MATMUL, b, dy, 0, &t, c->out);
    }
    TD_TRY(as_matrix(c, a, &a));
    TD_TRY(as_matrix(c, dy, &dy));
    struct td_attrs t = {.trans_a = tb ? true : !ta, .trans_b = tb && ta};
    return tb ? td_graph_op3(c->g, TD_OP_MATMUL, dy, a, 0, &t, c->out)
              : td_graph_op3(c->g, TD_OP_MATMUL, a, dy, 0, &t, c->out);
}

static td_status grad_cast(const struct td_grad_call *c) {
    struct td_attrs a = {.dtype = td_gv(c->g, c->node->inputs[0])->dtype,
                         .scale = c->node->attrs.scale};
    return td_graph_op3(c->g, TD_OP_CAST, c->dy, 0, 0, &a, c->out);
}

static td_status grad_mean(const struct td_grad_call *c) {
    const struct td_value_info *x = td_gv(c->g, c->node->inputs[0]);
    int64_t n = td_shape_elems(&x->shape);
    struct td_attrs a = {.dtype = x->dtype, .shape = x->shape, .scale = n ? 1.0 / (double)n : 0};
    td_value dy = c->dy == TD_ADJOINT_ONE ? 0 : c->dy;
    return td_graph_op3(c->g, TD_OP_FILL, dy, 0, 0, &a, c->out);
}

static td_status grad_sum_squares(const struct td_grad_call *c) {
    td_value x = c->node->inputs[c->operand];
    struct td_attrs twice = {.dtype = td_gv(c->g, x)->dtype, .scale = 2};
    TD_TRY(td_graph_op3(c->g, TD_OP_CAST, x, 0, 0, &twice, c->out));
    if (c->dy == TD_ADJOINT_ONE) return TD_OK;
    return td_graph_op3(c->g, TD_OP_SCALE, *c->out, c->dy, 0, NULL, c->out);
}

static td_status grad_scale(const struct td_grad_call *c) {
    td_value x = c->node->inputs[0], s = c->node->inputs[1];
    if (c->operand == 0) return td_graph_op3(c->g, TD_OP_SCALE, c->dy, s, 0, NULL, c->out);
    struct td_attrs scalar = {.dtype = td_gv(c->g, s)->dtype};
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_MUL, c->dy, x, 0, NULL, &v));
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, v, 0, 0, &scalar, &v));
    if (td_gv(c->g, v)->dtype == scalar.dtype) {
        *c->out = v;
        return TD_OK;
    }
    return td_graph_op3(c->g, TD_OP_CAST, v, 0, 0, &scalar, c->out);
}

static td_status grad_rank_sum(const struct td_grad_call *c) {
    return td_graph_op3(c->g, TD_OP_RANK_SUM, c->dy, 0, 0, NULL, c->out);
}

static td_status grad_fill(const struct td_grad_call *c) {
    struct td_attrs factor = {.dtype = td_gv(c->g, c->node->inputs[0])->dtype,
                              .scale = c->node->attrs.scale};
    struct td_attrs scalar = {0};
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, c->dy, 0, 0, &scalar, &v));
    return td_graph_op3(c->g, TD_OP_CAST, v, 0, 0, &factor, c->out);
}

static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_MATMUL] = {grad_matmul, false},     [TD_OP_CAST] = {grad_cast, false},
    [TD_OP_MEAN] = {grad_mean, true},          [TD_OP_SUM_SQUARES] = {grad_sum_squares, true},
    [TD_OP_SCALE] = {grad_scale, false},       [TD_OP_FILL] = {grad_fill, false},
    [TD_OP_RANK_SUM] = {grad_rank_sum, false},
};

const struct td_grad_rule *td_grad_rule_basic(enum td_op op) {
    return rules[op].grad ? &rules[op] : NULL;
}
