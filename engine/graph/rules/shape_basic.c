// Rules of the ops of linear algebra, and of those that read and write state whole: products,
// casts, sums to a scalar, stores, reductions over ranks, constants. A product counts two FLOPs for
// each inner term, and one more an element for a bias and for an activation that are part of it.

#include "engine/graph/rules/rules.h"
#include "engine/graph/rules/shape.h"

// ---- shape rules --------------------------------------------------------------------------------
static td_status check_bias(const struct td_op_call *c, const struct td_shape *y) {
    const struct td_shape *bias = shape_of(c, 2);
    if (bias->n_dims == 1 && bias->dim[0] == y->dim[y->n_dims - 1]) return TD_OK;
    return td_op_reject(c, "bias must have one element per column");
}

static td_status check_then(const struct td_op_call *c, const struct td_shape *y) {
    const struct td_attrs *a = c->attrs;
    if (td_op_gradient(a->then) != TD_OP_GRADIENT_THEN || a->act != TD_ACT_NONE || a->accumulate) {
        return td_op_reject(c, "attrs.then must be an activation's gradient, alone");
    }
    bool fits = c->n_in == 3 && td_shape_equal(shape_of(c, 2), y) &&
                result_dtype(c, arg(c, 0)->dtype) == arg(c, 2)->dtype;
    return fits ? TD_OK : td_op_reject(c, "attrs.then reads a third operand like the result");
}

static td_status shape_matmul(const struct td_op_call *c) {
    const struct td_shape *a = &arg(c, 0)->shape, *b = &arg(c, 1)->shape;
    if (!same_float(c)) return td_op_reject(c, "operands must have one float type");
    if (b->n_dims != 2) return td_op_reject(c, "b must have 2 dimensions");
    if (a->n_dims < 1) return td_op_reject(c, "a must have a dimension");
    if (c->attrs->trans_a && a->n_dims != 2) {
        return td_op_reject(c, "a must have 2 dimensions to be transposed");
    }
    struct td_shape y = *a;
    int64_t inner = a->dim[a->n_dims - 1];
    if (c->attrs->trans_a) {
        inner = a->dim[0];
        y.dim[0] = a->dim[1];
    }
    y.dim[y.n_dims - 1] = b->dim[c->attrs->trans_b ? 0 : 1];
    if (inner != b->dim[c->attrs->trans_b ? 1 : 0]) {
        return td_op_reject(c, "inner dimensions differ");
    }
    if (c->attrs->then) {
        TD_TRY(check_then(c, &y));
    } else if (c->n_in == 3) {
        TD_TRY(check_bias(c, &y));
    }
    return give(c, 0, result_dtype(c, arg(c, 0)->dtype), &y);
}

static td_status shape_cast(const struct td_op_call *c) {
    return give(c, 0, c->attrs->dtype, &arg(c, 0)->shape);
}

static td_status shape_to_scalar(const struct td_op_call *c) {
    bool wide = c->op == TD_OP_SUM_SQUARES && c->attrs->wide;
    return give_scalar(c, 0, wide ? TD_F64 : arg(c, 0)->dtype);
}

static td_status shape_scale(const struct td_op_call *c) {
    if (!td_is_float(arg(c, 0)->dtype) || !is_float_scalar(arg(c, 1))) {
        return td_op_reject(c, "needs a float tensor and a float scalar");
    }
    return give(c, 0, arg(c, 0)->dtype, &arg(c, 0)->shape);
}

static td_status shape_store(const struct td_op_call *c) {
    if (!is_state(c, 0)) return td_op_reject(c, "only a state tensor can be written");
    if (!like_first(c, 1)) return td_op_reject(c, "type and shape must be the state tensor's");
    return TD_OK;
}

static td_status shape_all_reduce(const struct td_op_call *c) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!is_state(c, i) || td_state_at(c->g->state, arg(c, i)->index)->role != TD_ROLE_GRAD) {
            return td_op_reject(c, "only gradients are reduced");
        }
    }
    return give_token(c, 0);
}

// Tensors of one role and type that are split, in memory as a whole.
static td_status check_pieces(const struct td_op_call *c, enum td_role role) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        const struct td_state_info *s =
            is_state(c, i) ? td_state_at(c->g->state, arg(c, i)->index) : NULL;
        if (!s || s->role != role || arg(c, i)->is_piece) {
            return td_op_reject(c, role == TD_ROLE_GRAD ? "only gradients are reduced"
                                                        : "only parameters are gathered");
        }
        if (!s->n_pieces || s->has_piece_alone) {
            return td_op_reject(c, "its tensors are split, and memory has all pieces of them");
        }
        if (arg(c, i)->dtype != arg(c, 0)->dtype) return td_op_reject(c, "of one type");
    }
    return give_token(c, 0);
}

static td_status shape_reduce_scatter(const struct td_op_call *c) {
    return check_pieces(c, TD_ROLE_GRAD);
}

static td_status shape_all_gather(const struct td_op_call *c) {
    return check_pieces(c, TD_ROLE_PARAM);
}

static td_status shape_await(const struct td_op_call *c) {
    if (td_node_of_token(c->g, c->in[0]) == (td_node)TD_NODE_NONE) {
        return td_op_reject(c, "only the token of a sum is awaited");
    }
    return TD_OK;
}

static td_status shape_rank_sum(const struct td_op_call *c) {
    return give(c, 0, arg(c, 0)->dtype, &arg(c, 0)->shape);
}

static td_status shape_clip_coef(const struct td_op_call *c) {
    if (!is_float_scalar(arg(c, 0))) return td_op_reject(c, "needs a float scalar");
    if (!(c->attrs->max_norm > 0)) return td_op_reject(c, "max_norm must be above 0");
    return give_scalar(c, 0, c->attrs->dtype == TD_F64 ? TD_F64 : TD_F32);
}

static td_status shape_fill(const struct td_op_call *c) {
    if (c->n_in == 1 && !is_float_scalar(arg(c, 0))) return td_op_reject(c, "needs a float scalar");
    if (!td_is_float(c->attrs->dtype)) return td_op_reject(c, "attrs.dtype must be float");
    return give(c, 0, c->attrs->dtype, &c->attrs->shape);
}

static td_status shape_constant(const struct td_op_call *c) {
    if (!td_is_float(c->attrs->dtype)) return td_op_reject(c, "attrs.dtype must be float");
    if (!c->attrs->values) return td_op_reject(c, "attrs.values are missing");
    return give(c, 0, c->attrs->dtype, &c->attrs->shape);
}

// ---- cost rules: FLOPs --------------------------------------------------------------------------
static double cost_matmul(const struct td_graph *g, const struct td_node_info *node) {
    const struct td_shape *a = &td_gv(g, node->inputs[0])->shape;
    double inner = (double)a->dim[node->attrs.trans_a ? 0 : a->n_dims - 1];
    td_value y = node->into ? node->into : node->outputs[0];
    double product = td_op_elems(g, y) * 2 * inner;
    if (node->attrs.then) return product + td_op_rule_elementwise(node->attrs.then)->cost(g, node);
    return product + td_op_elems(g, y) * ((node->n_inputs == 3) + (node->attrs.act != TD_ACT_NONE));
}

static double cost_store(const struct td_graph *g, const struct td_node_info *node) {
    return node->attrs.accumulate ? td_op_elems(g, node->inputs[0]) : 0;
}

// ---- the table ----------------------------------------------------------------------------------
static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_MATMUL] = {shape_matmul, cost_matmul},
    [TD_OP_CAST] = {shape_cast, td_op_cost_output},
    [TD_OP_MEAN] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_SUM_SQUARES] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_ALL_FINITE] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_SCALE] = {shape_scale, td_op_cost_output},
    [TD_OP_STORE] = {shape_store, cost_store},
    [TD_OP_ALL_REDUCE] = {shape_all_reduce, td_op_cost_free},
    [TD_OP_REDUCE_SCATTER] = {shape_reduce_scatter, td_op_cost_free},
    [TD_OP_ALL_GATHER] = {shape_all_gather, td_op_cost_free},
    [TD_OP_AWAIT] = {shape_await, td_op_cost_free},
    [TD_OP_RANK_SUM] = {shape_rank_sum, td_op_cost_output},
    [TD_OP_CLIP_COEF] = {shape_clip_coef, td_op_cost_free},
    [TD_OP_FILL] = {shape_fill, td_op_cost_free},
    [TD_OP_CONSTANT] = {shape_constant, td_op_cost_free},
};

const struct td_op_rule *td_op_rule_basic(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
