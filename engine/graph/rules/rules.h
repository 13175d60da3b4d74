#ifndef TRAIND_ENGINE_GRAPH_RULES_RULES_H
#define TRAIND_ENGINE_GRAPH_RULES_RULES_H

// Between autodiff.c (walks the graph backwards) and gradient_basic.c (what each op does to a
// gradient).
//
// An adjoint is the gradient of the loss with respect to a value. TD_ADJOINT_ONE stands for the
// constant 1 of d(loss)/d(loss), so that the usual loss (softmax cross entropy, whose second output
// is the gradient already) adds no node; a rule that cannot use it asks for a real value.

#include "engine/graph/graph.h"

#define TD_ADJOINT_ONE ((td_value)UINT32_MAX)

struct td_grad_call {
    struct td_graph *g;
    const struct td_node_info *node; // a copy: the graph grows while rules run
    uint32_t operand;                // which operand's gradient is wanted
    td_value dy;                     // adjoint of output 0, not 0
    td_value *out;                   // contribution to the operand's adjoint
    td_value *made; // [TD_MAX_OUT], zero at first: what a rule that makes several operands'
                    // gradients at once keeps for the node's other operands
};

// INVALID_ARGUMENT if the op has no gradient with respect to that operand.
TD_MUST_USE td_status td_grad_rule(const struct td_grad_call *c);
// Once per node, before the rules: through the activation that is part of the op.
TD_MUST_USE td_status td_grad_prologue(struct td_graph *g, const struct td_node_info *node,
                                       td_value *dy);
// A value for the adjoint: itself, or for TD_ADJOINT_ONE a scalar 1 of dtype.
TD_MUST_USE td_status td_grad_value(struct td_graph *g, td_value dy, enum td_dtype dtype,
                                    td_value *out_value);

#endif
