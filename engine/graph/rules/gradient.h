#ifndef TRAIND_ENGINE_GRAPH_RULES_GRADIENT_H
#define TRAIND_ENGINE_GRAPH_RULES_GRADIENT_H

// Gradient rules: one per differentiable op, in terms of ops, so that every accelerator that runs
// the forward ops runs the gradients. tests/conform/conform_gradients*.c check each against finite
// differences in fp64.
//
// Autodiff asks (passes/autodiff.c), gradient.c looks for the rule in the families' tables. A
// family of ops has its own file and table (gradient_*.c). It exports one function that gives an
// op's rule, or NULL where the op is another family's (or has none). An op without a gradient is an
// error when the loss depends on a parameter through it, found when the step is recorded and not
// when it runs.
//
// An adjoint is the gradient of the loss with respect to a value. TD_ADJOINT_ONE stands for the
// constant 1 of d(loss)/d(loss), so that the usual loss (softmax cross entropy, whose second output
// is the gradient already) adds no node. A rule that cannot use it asks for a real value.

#include "engine/graph/builder.h"
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

// ---- a family's rules ---------------------------------------------------------------------------
struct td_grad_rule {
    td_status (*grad)(const struct td_grad_call *c);
    bool takes_one; // the rule understands TD_ADJOINT_ONE
};

const struct td_grad_rule *td_grad_rule_basic(enum td_op op);
const struct td_grad_rule *td_grad_rule_elementwise(enum td_op op);
const struct td_grad_rule *td_grad_rule_tensor(enum td_op op);
const struct td_grad_rule *td_grad_rule_nn(enum td_op op);
const struct td_grad_rule *td_grad_rule_conv(enum td_op op);
const struct td_grad_rule *td_grad_rule_attention(enum td_op op);

static inline const struct td_shape *td_grad_shape(const struct td_grad_call *c, td_value v) {
    return &td_gv(c->g, v)->shape;
}

static inline enum td_dtype td_grad_dtype(const struct td_grad_call *c, td_value v) {
    return td_gv(c->g, v)->dtype;
}

// The contribution is v, summed down to the operand's shape where a broadcast widened it.
TD_MUST_USE static inline td_status td_grad_reduce(const struct td_grad_call *c, td_value v) {
    struct td_attrs a = {.shape = *td_grad_shape(c, c->node->inputs[c->operand])};
    if (td_shape_equal(&a.shape, td_grad_shape(c, v))) {
        *c->out = v;
        return TD_OK;
    }
    return td_graph_op3(c->g, TD_OP_REDUCE_SUM, v, 0, 0, &a, c->out);
}

// v times a constant.
TD_MUST_USE static inline td_status td_grad_times(const struct td_grad_call *c, td_value v,
                                                  double factor, td_value *out_value) {
    struct td_attrs a = {.dtype = td_grad_dtype(c, v), .scale = factor};
    return td_graph_op3(c->g, TD_OP_CAST, v, 0, 0, &a, out_value);
}

// A scalar constant of v's type.
TD_MUST_USE static inline td_status td_grad_constant(const struct td_grad_call *c, td_value v,
                                                     double constant, td_value *out_value) {
    struct td_attrs a = {.dtype = td_grad_dtype(c, v), .scale = constant};
    return td_graph_op(c->g, TD_OP_FILL, NULL, 0, &a, out_value);
}

#endif
