#ifndef TRAIND_ENGINE_GRAPH_BUILDER_H
#define TRAIND_ENGINE_GRAPH_BUILDER_H

// What the builder gives to rules and passes beside traind/graph.h. Thread: the graph's.

#include "lib/base/base.h"
#include "traind/graph.h"

// Calls a builder op with one output and at most three operands (0 = absent, at the end).
TD_MUST_USE td_status td_graph_op3(struct td_graph *g, td_op_id op, td_value a, td_value b,
                                   td_value c, const struct td_attrs *attrs, td_value *out_value);

// True if the node writes a gradient; which one.
bool td_node_gradient(const struct td_graph *g, const struct td_node_info *node,
                      uint32_t *out_state);

TD_DEFINE_AUTO(td_graph, td_graph_destroy);

#endif
