#ifndef TRAIND_ENGINE_GRAPH_RULES_SHAPE_H
#define TRAIND_ENGINE_GRAPH_RULES_SHAPE_H

// Shape and cost rules: what a row of a family's table is, and the few sentences that all of them
// speak.
//
// A shape rule checks operands and attributes, and infers type and shape of the outputs. A cost
// rule counts FLOPs; 0 where the op only moves bytes. A family of ops has its own file (shape_*.c)
// and exports one function that gives an op's row, or NULL where the op is another family's. Pure
// functions over a graph that is being built.

#include "engine/graph/graph.h"
#include "lib/base/floats/floats.h"

struct td_op_call {
    const struct td_graph *g;
    enum td_op op;
    const td_value *in;
    uint32_t n_in;
    const struct td_attrs *attrs;
    struct td_op_result *out;
};

struct td_op_rule {
    td_status (*shape)(const struct td_op_call *c); // fills c->out, or rejects
    double (*cost)(const struct td_graph *g, const struct td_node_info *node);
};

const struct td_op_rule *td_op_rule_basic(enum td_op op);
const struct td_op_rule *td_op_rule_elementwise(enum td_op op);
const struct td_op_rule *td_op_rule_tensor(enum td_op op);
const struct td_op_rule *td_op_rule_nn(enum td_op op);
const struct td_op_rule *td_op_rule_conv(enum td_op op);
const struct td_op_rule *td_op_rule_attention(enum td_op op);
const struct td_op_rule *td_op_rule_optim(enum td_op op);
// td_op_writes for optimizers; false for other ops.
bool td_op_optim_writes(enum td_op op, const struct td_attrs *attrs, uint32_t i);

// INVALID_ARGUMENT "matmul(f32(128,784), f32(100,10)): <why>"; long operand lists are cut.
TD_MUST_USE td_status td_op_reject(const struct td_op_call *c, const char *why);

// Result of NumPy broadcasting; false if the shapes do not fit.
bool td_shape_broadcast(const struct td_shape *a, const struct td_shape *b, struct td_shape *out);

// Costs: one FLOP an element of the output; of the inputs; none.
double td_op_cost_output(const struct td_graph *g, const struct td_node_info *node);
double td_op_cost_inputs(const struct td_graph *g, const struct td_node_info *node);
double td_op_cost_free(const struct td_graph *g, const struct td_node_info *node);

static inline double td_op_elems(const struct td_graph *g, td_value v) {
    return (double)td_shape_elems(&td_gv(g, v)->shape);
}

static inline const struct td_value_info *arg(const struct td_op_call *c, uint32_t i) {
    return td_gv(c->g, c->in[i]);
}

static inline const struct td_shape *shape_of(const struct td_op_call *c, uint32_t i) {
    return &arg(c, i)->shape;
}

static inline td_status give(const struct td_op_call *c, uint32_t i, enum td_dtype dtype,
                             const struct td_shape *shape) {
    c->out->dtype[i] = dtype;
    c->out->shape[i] = *shape;
    return TD_OK;
}

static inline enum td_dtype scalar_dtype(enum td_dtype t) {
    return t == TD_F64 ? TD_F64 : TD_F32;
}

// Of ops that know attrs.wide.
static inline enum td_dtype result_dtype(const struct td_op_call *c, enum td_dtype operand) {
    return c->attrs->wide && td_dtype_bytes(operand) < sizeof(float) ? TD_F32 : operand;
}

static inline td_status give_scalar(const struct td_op_call *c, uint32_t i, enum td_dtype operand) {
    struct td_shape none = {0};
    return give(c, i, scalar_dtype(operand), &none);
}

// Of what begins a sum over ranks: no bytes, so it takes no memory.
static inline td_status give_token(const struct td_op_call *c, uint32_t i) {
    const struct td_shape nothing = {1, {0}};
    return give(c, i, TD_U8, &nothing);
}

static inline bool same_dtype(const struct td_op_call *c) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (arg(c, i)->dtype != arg(c, 0)->dtype) return false;
    }
    return true;
}

static inline bool same_float(const struct td_op_call *c) {
    return same_dtype(c) && td_is_float(arg(c, 0)->dtype);
}

static inline bool is_float_scalar(const struct td_value_info *v) {
    return v->shape.n_dims == 0 && td_is_float(v->dtype);
}

static inline bool is_state(const struct td_op_call *c, uint32_t i) {
    return arg(c, i)->kind == TD_VALUE_STATE;
}

// Operand i has type and shape of the first.
static inline bool like_first(const struct td_op_call *c, uint32_t i) {
    return arg(c, i)->dtype == arg(c, 0)->dtype && td_shape_equal(shape_of(c, i), shape_of(c, 0));
}

#endif
