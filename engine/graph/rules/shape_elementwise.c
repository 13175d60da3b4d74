// Rules of the elementwise ops: the row of ops.def says enough of most. Operands broadcast, as
// NumPy does; those of ops that passes and rules make are alike. There is one cost for what is an
// instruction and one for what is a polynomial. Only what is more than that has a row in the table.

#include "engine/graph/rules/shape.h"

static td_status shape_plain(const struct td_op_call *c) {
    struct td_shape y = *shape_of(c, 0);
    for (uint32_t i = 1; i < c->n_in; i++) {
        if (td_op_is(c->op, TD_OP_IS_MADE) && !like_first(c, i)) {
            return td_op_reject(c, "both operands must have one float type and shape");
        }
        if (!td_shape_broadcast(&y, shape_of(c, i), &y)) {
            return td_op_reject(c, "shapes do not broadcast");
        }
    }
    return give(c, 0, arg(c, 0)->dtype, &y);
}

// A slope below zero would hide the operand's sign from the gradient, which sees the result.
static td_status shape_sloped(const struct td_op_call *c) {
    if (!(c->attrs->scale >= 0)) return td_op_reject(c, "the slope must not be negative");
    return shape_plain(c);
}

static td_status shape_compare(const struct td_op_call *c) {
    if (!same_dtype(c)) return td_op_reject(c, "operands must have one type");
    if ((unsigned)c->attrs->compare >= TD_CMP_COUNT) return td_op_reject(c, "unknown comparison");
    TD_TRY(shape_plain(c));
    c->out->dtype[0] = TD_BOOL;
    return TD_OK;
}

static td_status shape_select(const struct td_op_call *c) {
    enum td_dtype t = arg(c, 1)->dtype;
    if (arg(c, 0)->dtype != TD_BOOL || arg(c, 2)->dtype != t || !td_is_float(t)) {
        return td_op_reject(c, "needs a bool and two operands of one float type");
    }
    TD_TRY(shape_plain(c));
    c->out->dtype[0] = t;
    return TD_OK;
}

// exp, tanh and erf cost about this many multiplications and additions in fp32.
static double cost_series(const struct td_graph *g, const struct td_node_info *node) {
    return 10 * td_op_cost_output(g, node);
}

static double cost_axpby(const struct td_graph *g, const struct td_node_info *node) {
    return 3 * td_op_cost_output(g, node);
}

static const struct td_op_rule plain = {shape_plain, td_op_cost_output};
static const struct td_op_rule series = {shape_plain, cost_series};
static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_AXPBY] = {shape_plain, cost_axpby},
    [TD_OP_LEAKY_RELU] = {shape_sloped, td_op_cost_output},
    [TD_OP_LEAKY_RELU_GRAD] = {shape_sloped, td_op_cost_output},
    [TD_OP_COMPARE] = {shape_compare, td_op_cost_output},
    [TD_OP_SELECT] = {shape_select, td_op_cost_output},
};

const struct td_op_rule *td_op_rule_elementwise(enum td_op op) {
    if (!td_op_is(op, TD_OP_IS_ELEMENTWISE)) return NULL;
    if (rules[op].shape) return &rules[op];
    return td_op_is(op, TD_OP_IS_SERIES) ? &series : &plain;
}
