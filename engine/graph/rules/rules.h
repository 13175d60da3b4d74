#ifndef TRAIND_ENGINE_GRAPH_RULES_RULES_H
#define TRAIND_ENGINE_GRAPH_RULES_RULES_H

// engine/graph/rules: what each op of ops.def takes and makes, costs, and gives back as a gradient.
//
// In reading order:
//
//   rules.h     the questions that a builder and passes ask (those that accelerators ask, too, are
//               in traind/graph.h)
//   shape.h     what a shape and a cost rule are
//   gradient.h  what a gradient rule is
//
// Then the families of ops, a file each for shape and cost, one for gradients:
//
//   shape_basic.c        gradient_basic.c        products, casts, state
//   shape_elementwise.c  gradient_elementwise.c
//   shape_tensor.c       gradient_tensor.c       moves and reductions
//   shape_nn.c           gradient_nn.c           losses, norms, dropout
//   shape_conv.c         gradient_conv.c
//   shape_attention.c    gradient_attention.c
//   shape_optim.c                                optimizers, which have no gradients
//
// Each ends in its table, a row an op; reference kernels are in accelerators/reference, and
// tests/conform visits every row.
//
// A rule fails with INVALID_ARGUMENT that names op and operand shapes; it never aborts, because
// what it judges is a user's module. Pure functions over a graph.

#include "lib/base/base.h"
#include "traind/graph.h"
#include "traind/op.h"

struct td_op_result; // engine/graph/graph.h

// Checks operands and attributes, and infers outputs. INVALID_ARGUMENT names op and shapes.
TD_MUST_USE td_status td_op_infer(const struct td_graph *g, enum td_op op, const td_value *inputs,
                                  uint32_t n_inputs, const struct td_attrs *attrs,
                                  struct td_op_result *out_result);
uint32_t td_op_n_out(enum td_op op);
enum td_op_types td_op_types(enum td_op op);
enum td_op_gradient td_op_gradient(enum td_op op);
// True if a node does more than make its outputs (writes state, communicates).
bool td_node_has_effect(const struct td_node_info *node);
// The node that gives the token v; TD_NODE_NONE: v is no token.
td_node td_node_of_token(const struct td_graph *g, td_value v);
// INVALID_ARGUMENT: no element type, too many dimensions, more than 64 TiB.
TD_MUST_USE td_status td_shape_check(enum td_dtype dtype, const struct td_shape *s);

#endif
