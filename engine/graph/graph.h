#ifndef TRAIND_ENGINE_GRAPH_GRAPH_H
#define TRAIND_ENGINE_GRAPH_GRAPH_H

// engine/graph: what is trained, as data; the inside of a graph.
//
// In reading order:
//
//   graph.h       the structure
//   state.h       the tensors that outlive a step
//   builder.h     through which a module records a step
//   rules/        what each op takes, makes and costs
//   rewrite.c     what precisions and strategies call
//   edit.h        what passes do besides
//   passes/       the rewrites, a file each
//   verify.h      checks what each of them leaves
//   compile.h     runs them in order; options.h says what they are asked for
//   graph_text.h  prints a graph
//   inputs.c      what a run is given, for its accelerator
//   sums.c        what a program sums over ranks, likewise
//   random.c      the numbers of traind/random.h
//   anomaly.c     looks for what is no number
//
// An accelerator takes it from there.
//
// The graph is a list in execution order, not a DAG that someone schedules. What writes state is
// ordered with its readers by position alone, and the same text always means the same bits.
//
// This header is for this folder and its rooms; everybody else has traind/graph.h. Values and nodes
// are arrays that grow. Strings and operand lists live in the graph's arena, so a copied
// td_node_info stays good while nodes are added. A value is never removed: dead nodes are dropped
// by td_graph_compact, which renumbers nodes and leaves the values of the dropped ones there with
// node = TD_NODE_NONE. Ownership: the graph owns all; the state table is borrowed. Bounds:
// TD_GRAPH_MAX_NODES nodes, arena of 256 MiB. Thread: one.

#include "lib/base/arena.h"
#include "lib/base/base.h"
#include "traind/graph.h"
#include "traind/op.h"

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
    int32_t world_size;           // 0: 1
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
    struct td_state_values {
        td_value whole, piece; // 0: none
    } * by_state;              // of each state tensor in this graph
    uint32_t cap_by_state;
    td_value loss;
    enum td_segment segment;
    bool as_stored;      // state values come in the type they are stored in
    td_node cursor;      // where nodes are added; TD_NODE_NONE: at the end
    uint32_t *unreached; // in the arena
    uint32_t n_unreached;
};

// What an op makes of its operands (rules/).
struct td_op_result {
    enum td_dtype dtype[TD_MAX_OUT];
    struct td_shape shape[TD_MAX_OUT];
};

static inline struct td_value_info *td_gv(const struct td_graph *g, td_value v) {
    TD_DCHECK(v >= 1 && v <= g->n_values);
    return &g->values[v];
}

#endif
