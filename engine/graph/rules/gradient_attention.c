// Gradients of attention, whose three operands share one node, and of the rotation, which is turned
// back. Scores are computed again from the saved log-sum-exp, so that no T x T matrix outlives its
// row.

#include "engine/graph/rules/gradient.h"

static td_status grad_attention(const struct td_grad_call *c) {
    const td_value *in = c->node->inputs, *out = c->node->outputs;
    const td_value operands[6] = {in[0], in[1], in[2], out[0], out[1], c->dy};
    if (!c->made[0]) {
        TD_TRY(td_graph_op(c->g, TD_OP_ATTENTION_GRAD, operands, 6, &c->node->attrs, c->made));
    }
    *c->out = c->made[c->operand];
    return TD_OK;
}

static td_status grad_self_attention(const struct td_grad_call *c) {
    const td_value operands[4] = {c->node->inputs[0], c->node->outputs[0], c->node->outputs[1],
                                  c->dy};
    return td_graph_op(c->g, TD_OP_SELF_ATTENTION_GRAD, operands, 4, &c->node->attrs, c->out);
}

static td_status grad_rope(const struct td_grad_call *c) {
    struct td_attrs a = c->node->attrs;
    a.reverse = !a.reverse;
    return td_graph_op3(c->g, TD_OP_ROPE, c->dy, 0, 0, &a, c->out);
}

static const struct td_grad_rule rules[TD_OP_COUNT] = {
    [TD_OP_ATTENTION] = {grad_attention, false},
    [TD_OP_SELF_ATTENTION] = {grad_self_attention, false},
    [TD_OP_ROPE] = {grad_rope, false},
};

const struct td_grad_rule *td_grad_rule_attention(enum td_op op) {
    return rules[op].grad ? &rules[op] : NULL;
}
