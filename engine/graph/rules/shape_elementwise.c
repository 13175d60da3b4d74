// Rules of the elementwise ops. There is one shape rule each for "like the operand", "all operands
// alike" and "operands broadcast" (as NumPy does). There is one cost for what is an instruction and
// one for what is a polynomial.

#include "engine/graph/rules/shape.h"

static td_status shape_binary(const struct td_op_call *c) {
    struct td_shape y;
    if (!same_float(c)) return td_op_reject(c, "operands must have one float type");
    if (!td_shape_broadcast(shape_of(c, 0), shape_of(c, 1), &y)) {
        return td_op_reject(c, "shapes do not broadcast");
    }
    return give(c, 0, arg(c, 0)->dtype, &y);
}

static td_status shape_unary(const struct td_op_call *c) {
    if (!same_float(c)) return td_op_reject(c, "the operand must be float");
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 0));
}

static td_status shape_alike(const struct td_op_call *c) {
    if (!same_float(c) || !like_first(c, 1)) {
        return td_op_reject(c, "both operands must have one float type and shape");
    }
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 0));
}

// A slope below zero would hide the operand's sign from the gradient, which sees the result.
static td_status slope_ok(const struct td_op_call *c) {
    return c->attrs->scale >= 0 ? TD_OK : td_op_reject(c, "the slope must not be negative");
}

static td_status shape_leaky_relu(const struct td_op_call *c) {
    TD_TRY(slope_ok(c));
    return shape_unary(c);
}

static td_status shape_leaky_relu_grad(const struct td_op_call *c) {
    TD_TRY(slope_ok(c));
    return shape_alike(c);
}

static td_status shape_compare(const struct td_op_call *c) {
    struct td_shape y;
    if (!same_dtype(c)) return td_op_reject(c, "operands must have one type");
    if ((unsigned)c->attrs->compare >= TD_CMP_COUNT) return td_op_reject(c, "unknown comparison");
    if (!td_shape_broadcast(shape_of(c, 0), shape_of(c, 1), &y)) {
        return td_op_reject(c, "shapes do not broadcast");
    }
    return give(c, 0, TD_BOOL, &y);
}

static td_status shape_select(const struct td_op_call *c) {
    struct td_shape y;
    enum td_dtype t = arg(c, 1)->dtype;
    if (arg(c, 0)->dtype != TD_BOOL || arg(c, 2)->dtype != t || !td_is_float(t)) {
        return td_op_reject(c, "needs a bool and two operands of one float type");
    }
    if (!td_shape_broadcast(shape_of(c, 1), shape_of(c, 2), &y) ||
        !td_shape_broadcast(&y, shape_of(c, 0), &y)) {
        return td_op_reject(c, "shapes do not broadcast");
    }
    return give(c, 0, t, &y);
}

// exp, tanh and erf cost about this many multiplications and additions in fp32.
static double cost_series(const struct td_graph *g, const struct td_node_info *node) {
    return 10 * td_op_cost_output(g, node);
}

static double cost_axpby(const struct td_graph *g, const struct td_node_info *node) {
    return 3 * td_op_cost_output(g, node);
}

static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_ADD] = {shape_binary, td_op_cost_output},
    [TD_OP_MUL] = {shape_binary, td_op_cost_output},
    [TD_OP_SUB] = {shape_binary, td_op_cost_output},
    [TD_OP_DIV] = {shape_binary, td_op_cost_output},
    [TD_OP_AXPBY] = {shape_alike, cost_axpby},
    [TD_OP_RELU] = {shape_unary, td_op_cost_output},
    [TD_OP_RELU_GRAD] = {shape_alike, td_op_cost_output},
    [TD_OP_LEAKY_RELU] = {shape_leaky_relu, td_op_cost_output},
    [TD_OP_LEAKY_RELU_GRAD] = {shape_leaky_relu_grad, td_op_cost_output},
    [TD_OP_GELU] = {shape_unary, cost_series},
    [TD_OP_GELU_GRAD] = {shape_alike, cost_series},
    [TD_OP_SILU] = {shape_unary, cost_series},
    [TD_OP_SILU_GRAD] = {shape_alike, cost_series},
    [TD_OP_SIGMOID] = {shape_unary, cost_series},
    [TD_OP_SIGMOID_GRAD] = {shape_alike, td_op_cost_output},
    [TD_OP_TANH] = {shape_unary, cost_series},
    [TD_OP_TANH_GRAD] = {shape_alike, td_op_cost_output},
    [TD_OP_EXP] = {shape_unary, cost_series},
    [TD_OP_LOG] = {shape_unary, cost_series},
    [TD_OP_SQRT] = {shape_unary, td_op_cost_output},
    [TD_OP_CLAMP] = {shape_unary, td_op_cost_output},
    [TD_OP_COMPARE] = {shape_compare, td_op_cost_output},
    [TD_OP_SELECT] = {shape_select, td_op_cost_output},
};

const struct td_op_rule *td_op_rule_elementwise(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
