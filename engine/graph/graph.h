#ifndef TRAIND_ENGINE_GRAPH_GRAPH_H
#define TRAIND_ENGINE_GRAPH_GRAPH_H

// The inside of a graph, for the passes of this folder only; everybody else has graph.h.
//
// Values and nodes are arrays that grow; strings and operand lists live in the graph's arena, so a
// copied td_node_info stays good while nodes are added. A value is never removed: dead nodes are
// dropped by td_graph_compact, which renumbers nodes and leaves the values of the dropped ones
// behind with node = TD_NODE_NONE. Bounds: TD_GRAPH_MAX_NODES nodes, arena of 256 MiB.

#include "lib/base/arena.h"
#include "lib/base/base.h"
#include "lib/base/half.h"
#include "traind/graph.h"

enum {
    TD_GRAPH_MAX_NODES = 1 << 20,
    TD_GRAPH_MAX_PORTS = 32, // inputs of a step, and outputs
    TD_NODE_NONE = 0x7fffffff,
};

struct td_graph_port {
    const char *name;
    td_value value;
    enum td_output_kind kind; // outputs only
};

struct td_graph {
    const char *step;
    enum td_mode mode;
    struct td_state_table *state; // borrowed
    struct td_arena *arena;
    struct td_value_info *values; // [0] is "none"
    uint32_t n_values, cap_values;
    struct td_node_info *nodes;
    uint32_t n_nodes, cap_nodes;
    struct td_graph_port inputs[TD_GRAPH_MAX_PORTS];
    struct td_graph_port outputs[TD_GRAPH_MAX_PORTS];
    uint32_t n_inputs, n_outputs;
    td_value scalars[TD_SCALAR_COUNT];
    td_value *by_state; // value of each state tensor in this graph, 0: none
    uint32_t cap_by_state;
    td_value loss;
    enum td_segment segment;
    bool as_stored;      // state values come in the type they are stored in
    td_node cursor;      // where nodes are added; TD_NODE_NONE: at the end
    uint32_t *unreached; // in the arena
    uint32_t n_unreached;
};

// ---- op rules (shape_basic.c)
// ---------------------------------------------------------------------
struct td_op_result {
    enum td_dtype dtype[TD_MAX_OUT];
    struct td_shape shape[TD_MAX_OUT];
};
// Checks operands and attributes, and infers outputs. INVALID_ARGUMENT names op and shapes.
TD_MUST_USE td_status td_op_infer(const struct td_graph *g, enum td_op op, const td_value *inputs,
                                  uint32_t n_inputs, const struct td_attrs *attrs,
                                  struct td_op_result *out_result);
uint32_t td_op_n_out(enum td_op op);
double td_op_flops(const struct td_graph *g, const struct td_node_info *node);
// True if the op writes operand i (a state tensor) in place.
bool td_op_writes(enum td_op op, const struct td_attrs *attrs, uint32_t i);
// True for the gradients of activations, which a product may apply to its result (attrs.then).
bool td_op_is_activation_grad(enum td_op op);
// True if a node does more than make its outputs (writes state, communicates).
bool td_node_has_effect(const struct td_node_info *node);
// Result of NumPy broadcasting; false if the shapes do not fit.
bool td_shape_broadcast(const struct td_shape *a, const struct td_shape *b, struct td_shape *out);
TD_MUST_USE td_status td_shape_check(enum td_dtype dtype, const struct td_shape *s);

// ---- helpers of passes (builder.c)
// ----------------------------------------------------------------
static inline struct td_value_info *td_gv(const struct td_graph *g, td_value v) {
    TD_DCHECK(v >= 1 && v <= g->n_values);
    return &g->values[v];
}
// Calls a builder op with one output and at most three operands (0 = absent, at the end).
TD_MUST_USE td_status td_graph_op3(struct td_graph *g, enum td_op op, td_value a, td_value b,
                                   td_value c, const struct td_attrs *attrs, td_value *out_value);
// Number of readers of each value; graph outputs and the loss count. By value; to be freed.
TD_MUST_USE td_status td_graph_count_uses(const struct td_graph *g, uint32_t **out_uses);
// Replaces one operand (the list is copied, so that copies of the node stay as they were).
TD_MUST_USE td_status td_graph_set_operand(struct td_graph *g, td_node n, uint32_t i, td_value v);
// True if the node writes a gradient; which one.
bool td_node_gradient(const struct td_graph *g, const struct td_node_info *node,
                      uint32_t *out_state);
// True if no node in (after, until) writes the state tensor v; true for any other kind of value.
bool td_graph_stable(const struct td_graph *g, td_value v, td_node after, td_node until);
// Drops the nodes whose mark is set.
void td_graph_compact(struct td_graph *g, const bool *dead);

// ---- state table (state.c) ----------------------------------------------------------------------
void td_state_mark(struct td_state_table *t, uint32_t index, unsigned marks);
// The type that steps name, and (td_rewrite_state) storing the tensor in another one.
enum td_dtype td_state_recorded(const struct td_state_table *t, uint32_t index);
TD_MUST_USE td_status td_state_retype(struct td_state_table *t, uint32_t index,
                                      enum td_dtype dtype);
// Bucket of a gradient: false if it has none yet. Setting is refused once the layout is frozen.
bool td_state_bucket_of(const struct td_state_table *t, uint32_t index, uint32_t *out_bucket);
TD_MUST_USE td_status td_state_set_bucket(struct td_state_table *t, uint32_t index,
                                          uint32_t bucket);

#endif
