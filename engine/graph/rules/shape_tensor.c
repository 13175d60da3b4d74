// Rules of the ops that rearrange a tensor or reduce it over axes. Moving costs
// no FLOP; a reduction one for each element it reads, and so do the sums of scattered gradients.
// Shapes are checked here once, so kernels may trust them.

#include "engine/graph/rules/shape.h"

static td_status shape_reshape(const struct td_op_call *c) {
    if (td_shape_elems(shape_of(c, 0)) != td_shape_elems(&c->attrs->shape)) {
        return td_op_reject(c, "the new shape has another number of elements");
    }
    return give(c, 0, arg(c, 0)->dtype, &c->attrs->shape);
}

static td_status shape_transpose(const struct td_op_call *c) {
    const struct td_shape *x = shape_of(c, 0);
    struct td_shape y = {.n_dims = x->n_dims};
    uint32_t seen = 0;
    for (int32_t i = 0; i < x->n_dims; i++) {
        int32_t from = c->attrs->perm[i];
        if (from < 0 || from >= x->n_dims || seen >> from & 1) {
            return td_op_reject(c, "perm must name each axis once");
        }
        seen |= 1u << from;
        y.dim[i] = x->dim[from];
    }
    return give(c, 0, arg(c, 0)->dtype, &y);
}

static bool has_axis(const struct td_op_call *c) {
    return c->attrs->axis >= 0 && c->attrs->axis < shape_of(c, 0)->n_dims;
}

// a and b are alike but for their length along attrs.axis.
static bool alike_off_axis(const struct td_op_call *c, const struct td_shape *a,
                           const struct td_shape *b) {
    struct td_shape s = *a;
    if (a->n_dims != b->n_dims) return false;
    s.dim[c->attrs->axis] = b->dim[c->attrs->axis];
    return td_shape_equal(&s, b);
}

static td_status shape_concat(const struct td_op_call *c) {
    if (!same_dtype(c)) return td_op_reject(c, "operands must have one type");
    if (!has_axis(c)) return td_op_reject(c, "the operands do not have that axis");
    struct td_shape y = *shape_of(c, 0);
    for (uint32_t i = 1; i < c->n_in; i++) {
        if (!alike_off_axis(c, shape_of(c, i), &y)) {
            return td_op_reject(c, "shapes differ besides the axis");
        }
        if (__builtin_add_overflow(y.dim[c->attrs->axis], shape_of(c, i)->dim[c->attrs->axis],
                                   &y.dim[c->attrs->axis])) {
            return td_op_reject(c, "the result is too large");
        }
    }
    return give(c, 0, arg(c, 0)->dtype, &y);
}

// The box of shape `part` at attrs.start is within `whole`.
static bool box_fits(const struct td_op_call *c, const struct td_shape *part,
                     const struct td_shape *whole) {
    if (part->n_dims != whole->n_dims) return false;
    for (int32_t i = 0; i < part->n_dims; i++) {
        int64_t at = c->attrs->start[i];
        if (at < 0 || at > whole->dim[i] || part->dim[i] > whole->dim[i] - at) return false;
    }
    return true;
}

static td_status shape_slice(const struct td_op_call *c) {
    if (!box_fits(c, &c->attrs->shape, shape_of(c, 0))) {
        return td_op_reject(c, "the part is outside the operand");
    }
    return give(c, 0, arg(c, 0)->dtype, &c->attrs->shape);
}

static td_status shape_pad(const struct td_op_call *c) {
    if (!box_fits(c, shape_of(c, 0), &c->attrs->shape)) {
        return td_op_reject(c, "the operand is outside the result");
    }
    return give(c, 0, arg(c, 0)->dtype, &c->attrs->shape);
}

static td_status shape_gather(const struct td_op_call *c) {
    if (arg(c, 1)->dtype != TD_I32) return td_op_reject(c, "the index must be i32");
    if (!has_axis(c) || !alike_off_axis(c, shape_of(c, 0), shape_of(c, 1))) {
        return td_op_reject(c, "the index must have the operand's shape besides the axis");
    }
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 1));
}

static td_status shape_gather_grad(const struct td_op_call *c) {
    if (arg(c, 0)->dtype != TD_I32 || !td_is_float(arg(c, 1)->dtype)) {
        return td_op_reject(c, "needs an i32 index and a float gradient");
    }
    if (!has_axis(c) || !td_shape_equal(shape_of(c, 0), shape_of(c, 1)) ||
        !alike_off_axis(c, &c->attrs->shape, shape_of(c, 0))) {
        return td_op_reject(c, "shapes differ besides the axis");
    }
    return give(c, 0, result_dtype(c, arg(c, 1)->dtype), &c->attrs->shape);
}

static td_status shape_embedding(const struct td_op_call *c) {
    struct td_shape y = *shape_of(c, 1);
    if (arg(c, 1)->dtype != TD_I32 || shape_of(c, 0)->n_dims != 2 || y.n_dims >= TD_MAX_DIMS) {
        return td_op_reject(c, "needs a table (V,C) and i32 ids");
    }
    y.dim[y.n_dims++] = shape_of(c, 0)->dim[1];
    return give(c, 0, arg(c, 0)->dtype, &y);
}

static td_status shape_embedding_grad(const struct td_op_call *c) {
    const struct td_shape *table = &c->attrs->shape;
    struct td_shape dy = *shape_of(c, 0);
    if (arg(c, 0)->dtype != TD_I32 || !td_is_float(arg(c, 1)->dtype) || table->n_dims != 2 ||
        dy.n_dims >= TD_MAX_DIMS) {
        return td_op_reject(c, "needs i32 ids, a float gradient and attrs.shape (V,C)");
    }
    dy.dim[dy.n_dims++] = table->dim[1];
    if (!td_shape_equal(&dy, shape_of(c, 1))) {
        return td_op_reject(c, "the gradient must have a row of the table for each id");
    }
    return give(c, 0, result_dtype(c, arg(c, 1)->dtype), table);
}

static td_status shape_reduce(const struct td_op_call *c) {
    struct td_shape wide;
    const struct td_shape *x = shape_of(c, 0);
    if (!td_shape_broadcast(&c->attrs->shape, x, &wide) || !td_shape_equal(&wide, x)) {
        return td_op_reject(c, "the result's shape does not broadcast to the operand's");
    }
    if (c->op == TD_OP_REDUCE_MAX && !td_shape_elems(x) && td_shape_elems(&c->attrs->shape)) {
        return td_op_reject(c, "nothing has no maximum");
    }
    enum td_dtype t = arg(c, 0)->dtype;
    return give(c, 0, c->op == TD_OP_REDUCE_SUM ? result_dtype(c, t) : t, &c->attrs->shape);
}

static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_RESHAPE] = {shape_reshape, td_op_cost_free},
    [TD_OP_TRANSPOSE] = {shape_transpose, td_op_cost_free},
    [TD_OP_CONCAT] = {shape_concat, td_op_cost_free},
    [TD_OP_SLICE] = {shape_slice, td_op_cost_free},
    [TD_OP_PAD] = {shape_pad, td_op_cost_free},
    [TD_OP_GATHER] = {shape_gather, td_op_cost_free},
    [TD_OP_GATHER_GRAD] = {shape_gather_grad, td_op_cost_inputs},
    [TD_OP_EMBEDDING] = {shape_embedding, td_op_cost_free},
    [TD_OP_EMBEDDING_GRAD] = {shape_embedding_grad, td_op_cost_inputs},
    [TD_OP_REDUCE_SUM] = {shape_reduce, td_op_cost_inputs},
    [TD_OP_REDUCE_MEAN] = {shape_reduce, td_op_cost_inputs},
    [TD_OP_REDUCE_MAX] = {shape_reduce, td_op_cost_inputs},
};

const struct td_op_rule *td_op_rule_tensor(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
