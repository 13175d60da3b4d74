// Gradients of the elementwise ops. Where the derivative is a formula of its own the op has a
// partner that computes dx in one pass, and its row in ops.def is the rule. The partner reads the
// result where that suffices, so that the operand need not live until the backward segment, else
// the operand. The rest is written in plain ops.

#include "engine/graph/rules/gradient.h"
#include "engine/graph/rules/rules.h"

static td_status grad_add(const struct td_grad_call *c) {
    return td_grad_reduce(c, c->dy);
}

static td_status grad_sub(const struct td_grad_call *c) {
    td_value v = c->dy;
    if (c->operand == 1) TD_TRY(td_grad_times(c, v, -1, &v));
    return td_grad_reduce(c, v);
}

static td_status grad_mul(const struct td_grad_call *c) {
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_MUL, c->dy, c->node->inputs[1 - c->operand], 0, NULL, &v));
    return td_grad_reduce(c, v);
}

// d(a/b)/db = -y/b
static td_status grad_div(const struct td_grad_call *c) {
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_DIV, c->dy, c->node->inputs[1], 0, NULL, &v));
    if (c->operand == 1) {
        TD_TRY(td_graph_op3(c->g, TD_OP_MUL, v, c->node->outputs[0], 0, NULL, &v));
        TD_TRY(td_grad_times(c, v, -1, &v));
    }
    return td_grad_reduce(c, v);
}

// By <name>_grad, the next row of ops.def: of operand or result, and dy.
static td_status grad_by_partner(const struct td_grad_call *c) {
    enum td_op op = c->node->op, partner = (enum td_op)(op + 1);
    bool of_result = td_op_gradient(op) == TD_OP_GRADIENT_OF_RESULT;
    td_value from = of_result ? c->node->outputs[0] : c->node->inputs[0];
    return td_graph_op3(c->g, partner, from, c->dy, 0, &c->node->attrs, c->out);
}

static td_status grad_exp(const struct td_grad_call *c) {
    return td_graph_op3(c->g, TD_OP_MUL, c->dy, c->node->outputs[0], 0, NULL, c->out);
}

static td_status grad_log(const struct td_grad_call *c) {
    return td_graph_op3(c->g, TD_OP_DIV, c->dy, c->node->inputs[0], 0, NULL, c->out);
}

static td_status grad_sqrt(const struct td_grad_call *c) {
    td_value v;
    TD_TRY(td_graph_op3(c->g, TD_OP_DIV, c->dy, c->node->outputs[0], 0, NULL, &v));
    return td_grad_times(c, v, 0.5, c->out);
}

static td_status grad_select(const struct td_grad_call *c) {
    td_value zero, v, in[3] = {c->node->inputs[0], c->dy, c->dy};
    TD_TRY(td_grad_constant(c, c->dy, 0, &zero));
    in[3 - c->operand] = zero;
    TD_TRY(td_graph_op(c->g, TD_OP_SELECT, in, 3, NULL, &v));
    return td_grad_reduce(c, v);
}

static const struct td_grad_rule by_partner = {grad_by_partner, false};
static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_ADD] = {grad_add, false},   [TD_OP_SUB] = {grad_sub, false},
    [TD_OP_MUL] = {grad_mul, false},   [TD_OP_DIV] = {grad_div, false},
    [TD_OP_EXP] = {grad_exp, false},   [TD_OP_LOG] = {grad_log, false},
    [TD_OP_SQRT] = {grad_sqrt, false}, [TD_OP_SELECT] = {grad_select, false},
};

const struct td_grad_rule *td_grad_rule_elementwise(enum td_op op) {
    enum td_op_gradient is = td_op_gradient(op);
    if (is == TD_OP_GRADIENT_OF_OPERAND || is == TD_OP_GRADIENT_OF_RESULT) return &by_partner;
    return rules[op].grad ? &rules[op] : NULL;
}
