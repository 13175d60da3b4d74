#ifndef TRAIND_ENGINE_GRAPH_RULES_GRADIENT_H
#define TRAIND_ENGINE_GRAPH_RULES_GRADIENT_H

// Between gradient_basic.c and the files of the op families. A family exports one function that
// gives an op's gradient rule, or NULL where the op is another family's (or has none).

#include "engine/graph/rules/rules.h"

struct td_grad_rule {
    td_status (*grad)(const struct td_grad_call *c);
    bool takes_one; // the rule understands TD_ADJOINT_ONE
};

const struct td_grad_rule *td_grad_rule_elementwise(enum td_op op);
const struct td_grad_rule *td_grad_rule_tensor(enum td_op op);
const struct td_grad_rule *td_grad_rule_nn(enum td_op op);
const struct td_grad_rule *td_grad_rule_conv(enum td_op op);
const struct td_grad_rule *td_grad_rule_attention(enum td_op op);

// The contribution is v, summed down to the operand's shape where a broadcast widened it.
TD_MUST_USE td_status td_grad_reduce(const struct td_grad_call *c, td_value v);

static inline const struct td_shape *td_grad_shape(const struct td_grad_call *c, td_value v) {
    return &td_gv(c->g, v)->shape;
}

static inline enum td_dtype td_grad_dtype(const struct td_grad_call *c, td_value v) {
    return td_gv(c->g, v)->dtype;
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
