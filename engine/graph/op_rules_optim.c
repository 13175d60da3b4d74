// Op rules of the optimizers. Each takes (param, grad, buffers...[, clip]): parameter and buffers
// are state tensors that it writes, alike in type and shape, and behind them may be the clip
// coefficient. Costs are FLOPs an element, as counted in the formulas of accelerators/reference.

#include "engine/graph/op_rules.h"

// How many of an optimizer's operands are tensors like the parameter; behind them may be clip.
static uint32_t optimizer_tensors(enum td_op op, const struct td_attrs *attrs) {
    if (op == TD_OP_SGD) return attrs->optim.momentum != 0.0f ? 3 : 2;
    return 4;
}

static td_status shape_optimizer(const struct td_op_call *c) {
    uint32_t n = optimizer_tensors(c->op, c->attrs);
    if (c->n_in < n || c->n_in > n + 1) {
        return td_op_reject(c,
                            "the optimizer's buffers are missing, or there are too many operands");
    }
    if (!td_dtype_is_float(arg(c, 0)->dtype)) return td_op_reject(c, "the parameter must be float");
    for (uint32_t i = 0; i < n; i++) {
        if (i != 1 && !is_state(c, i)) return td_op_reject(c, "only a state tensor can be written");
        if (!like_first(c, i)) return td_op_reject(c, "types and shapes must be the parameter's");
    }
    if (c->n_in == n + 1 && !is_float_scalar(arg(c, n))) {
        return td_op_reject(c, "the clip coefficient must be a float scalar");
    }
    return TD_OK;
}

// ---- cost rules: FLOPs --------------------------------------------------------------------------
static double cost_sgd(const struct td_graph *g, const struct td_node_info *node) {
    return 6 * td_op_elems(g, node->inputs[0]);
}

static double cost_adam(const struct td_graph *g, const struct td_node_info *node) {
    return 14 * td_op_elems(g, node->inputs[0]);
}

// ---- the table ----------------------------------------------------------------------------------
static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_SGD] = {shape_optimizer, cost_sgd},
    [TD_OP_ADAM] = {shape_optimizer, cost_adam},
    [TD_OP_ADAMW] = {shape_optimizer, cost_adam},
};

const struct td_op_rule *td_op_rule_optim(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}

bool td_op_optim_writes(enum td_op op, const struct td_attrs *attrs, uint32_t i) {
    return rules[op].shape && i != 1 && i < optimizer_tensors(op, attrs);
}
