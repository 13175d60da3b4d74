// Op rules of the optimizers. What updates a parameter takes (param, grad, buffers...[, clip]):
// state tensors that it writes, but for the gradient, and after them maybe the clip coefficient.
// Buffers have the parameter's shape, except those of a factored adafactor, and its type, or f32
// beside a parameter of 16 bits. Muon is two ops with matrix products between them: one writes the
// momentum, one the parameter. Costs are FLOPs an element, as counted in the formulas of
// accelerators/reference.

#include "engine/graph/rules/shape.h"

// How many of an optimizer's operands are tensors; after them may be clip.
static uint32_t optimizer_tensors(enum td_op op, const struct td_attrs *attrs) {
    if (op == TD_OP_SGD) return attrs->optim.momentum != 0.0f ? 3 : 2;
    if (op == TD_OP_LION) return 3;
    if (op == TD_OP_ADAFACTOR) return attrs->optim.factored ? 4 : 3;
    if (op == TD_OP_MUON || op == TD_OP_MUON_MOMENTUM) return 2;
    return 4;
}

// Operand i is a buffer of operand 0.
static bool is_buffer_type(const struct td_op_call *c, uint32_t i) {
    enum td_dtype t = arg(c, i)->dtype, param = arg(c, 0)->dtype;
    return t == param || (t == TD_F32 && td_dtype_bytes(param) < td_dtype_bytes(TD_F32));
}

// Everything but the shapes of the buffers.
static td_status check_operands(const struct td_op_call *c) {
    uint32_t n = optimizer_tensors(c->op, c->attrs);
    if (c->n_in < n || c->n_in > n + 1) {
        return td_op_reject(c,
                            "the optimizer's buffers are missing, or there are too many operands");
    }
    if (!td_is_float(arg(c, 0)->dtype)) return td_op_reject(c, "the parameter must be float");
    for (uint32_t i = 0; i < n; i++) {
        if (i != 1 && !is_state(c, i)) return td_op_reject(c, "only a state tensor can be written");
        if (!is_buffer_type(c, i) || (i == 1 && !like_first(c, i))) {
            return td_op_reject(c, "types and shapes must be the parameter's");
        }
    }
    if (c->n_in == n + 1 && !is_float_scalar(arg(c, n))) {
        return td_op_reject(c, "the clip coefficient must be a float scalar");
    }
    return TD_OK;
}

static td_status shape_moments(const struct td_op_call *c) {
    TD_TRY(check_operands(c));
    for (uint32_t i = 2; i < optimizer_tensors(c->op, c->attrs); i++) {
        if (!td_shape_equal(shape_of(c, i), shape_of(c, 0))) {
            return td_op_reject(c, "types and shapes must be the parameter's");
        }
    }
    return TD_OK;
}

static td_status shape_adafactor(const struct td_op_call *c) {
    if (!c->attrs->optim.factored) return shape_moments(c);
    TD_TRY(check_operands(c));
    struct td_shape row = *shape_of(c, 0), col = row;
    if (row.n_dims < 2) return td_op_reject(c, "only matrices are factored");
    row.dim[row.n_dims - 1] = 1;
    col.dim[col.n_dims - 2] = 1;
    if (!td_shape_equal(shape_of(c, 2), &row) || !td_shape_equal(shape_of(c, 3), &col)) {
        return td_op_reject(c, "the factors must be a row and a column of the parameter");
    }
    return TD_OK;
}

static td_status shape_muon_momentum(const struct td_op_call *c) {
    bool clip_fits = c->n_in < 3 || is_float_scalar(arg(c, 2));
    bool buffer_fits = is_buffer_type(c, 1) && td_shape_equal(shape_of(c, 1), shape_of(c, 0));
    if (!td_is_float(arg(c, 0)->dtype) || !buffer_fits || !clip_fits) {
        return td_op_reject(c, "needs a gradient, a buffer like it, and maybe a float scalar");
    }
    if (!is_state(c, 1)) return td_op_reject(c, "only a state tensor can be written");
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 0));
}

// ---- cost rules: FLOPs --------------------------------------------------------------------------
static double cost_of(double each, const struct td_graph *g, const struct td_node_info *node) {
    return each * td_op_elems(g, node->inputs[0]);
}

static double cost_sgd(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(6, g, node);
}

static double cost_adam(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(14, g, node);
}

static double cost_lion(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(10, g, node);
}

static double cost_adafactor(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(16, g, node);
}

static double cost_muon_momentum(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(9, g, node);
}

static double cost_muon(const struct td_graph *g, const struct td_node_info *node) {
    return cost_of(3, g, node);
}

// ---- the table ----------------------------------------------------------------------------------
static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_SGD] = {shape_moments, cost_sgd},
    [TD_OP_ADAM] = {shape_moments, cost_adam},
    [TD_OP_ADAMW] = {shape_moments, cost_adam},
    [TD_OP_LION] = {shape_moments, cost_lion},
    [TD_OP_ADAFACTOR] = {shape_adafactor, cost_adafactor},
    [TD_OP_MUON_MOMENTUM] = {shape_muon_momentum, cost_muon_momentum},
    [TD_OP_MUON] = {shape_moments, cost_muon},
};

const struct td_op_rule *td_op_rule_optim(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}

bool td_op_optim_writes(enum td_op op, const struct td_attrs *attrs, uint32_t i) {
    if (op == TD_OP_MUON) return i == 0;
    return rules[op].shape && i < optimizer_tensors(op, attrs) &&
           (op == TD_OP_MUON_MOMENTUM ? i == 1 : i != 1);
}
