// Gradient rules: one per differentiable op, in terms of ops, so that every accelerator that runs
// the forward ops runs the gradients. tests/conform/conform_gradients*.c check each against finite
// differences in fp64. A family of ops has its own file and table (gradient_*.c), asked first.
//
// With A = op(a), B = op(b), y = A B: dA = dy B', dB = A' dy; where the operand itself is
// transposed the product is written the other way round, so that no transpose is ever materialised.
// An op without a row here (count_correct, the optimizers, ...) is an error when the loss depends
// on a parameter through it, found when the step is recorded and not when it runs.

#include "engine/graph/rules/gradient.h"

#include <inttypes.h>

td_status td_grad_value(struct td_graph *g, td_value dy, enum td_dtype dtype, td_value *out_value) {
    if (dy == TD_ADJOINT_ONE) {
        struct td_attrs one = {.dtype = dtype, .scale = 1};
        return td_graph_op(g, TD_OP_FILL, NULL, 0, &one, out_value);
    }
    *out_value = dy;
    return TD_OK;
}

// Sums v down to the operand's shape, undoing a broadcast.
td_status td_grad_reduce(const struct td_grad_call *c, td_value v) {
    struct td_attrs a = {.shape = *td_grad_shape(c, c->node->inputs[c->operand])};
    if (td_shape_equal(&a.shape, td_grad_shape(c, v))) {
        *c->out = v;
        return TD_OK;
    }
    return td_graph_op3(c->g, TD_OP_REDUCE_SUM, v, 0, 0, &a, c->out);
}

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

static td_status grad_fill(const struct td_grad_call *c) {
    struct td_attrs factor = {.dtype = td_gv(c->g, c->node->inputs[0])->dtype,
                              .scale = c->node->attrs.scale};
    struct td_attrs scalar = {0};
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_REDUCE_SUM, c->dy, 0, 0, &scalar, &v));
    return td_graph_op3(c->g, TD_OP_CAST, v, 0, 0, &factor, c->out);
}

static const struct td_grad_rule grad_rules[TD_OP_COUNT] = {
    [TD_OP_MATMUL] = {grad_matmul, false}, [TD_OP_CAST] = {grad_cast, false},
    [TD_OP_MEAN] = {grad_mean, true},      [TD_OP_SUM_SQUARES] = {grad_sum_squares, true},
    [TD_OP_SCALE] = {grad_scale, false},   [TD_OP_FILL] = {grad_fill, false},
};

// The others, by name, so that an op without a rule is a decision: gradients (there is no second
// derivative), what passes make after the gradients, updates, counts. make lint demands one or the
// other.
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
    return r ? r : &grad_rules[op];
}

td_status td_grad_prologue(struct td_graph *g, const struct td_node_info *node, td_value *dy) {
    const struct td_grad_rule *rule = rule_of(node->op);
    TD_CHECK(has_none[node->op] == !rule->grad);
    if (!rule->grad) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the loss depends on parameters through '%s', which has no gradient",
                       td_op_name(node->op));
    }
    if (*dy == TD_ADJOINT_ONE && !rule->takes_one) {
        TD_TRY(td_grad_value(g, *dy, td_gv(g, node->outputs[0])->dtype, dy));
    }
    if (node->op == TD_OP_MATMUL && node->attrs.then) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the gradient of a product with '%s' behind it is "
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
