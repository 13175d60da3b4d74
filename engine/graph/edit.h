#ifndef TRAIND_ENGINE_GRAPH_EDIT_H
#define TRAIND_ENGINE_GRAPH_EDIT_H

// Edit: what passes ask of a graph before they change it, and the changes that a builder does not
// make: an operand that is replaced, nodes that are dropped. Thread: the graph's.

#include "traind/graph.h"

// Number of readers of each value; graph outputs and the loss count. By value; to be freed.
TD_MUST_USE td_status td_graph_count_uses(const struct td_graph *g, uint32_t **out_uses);
// Replaces one operand (the list is copied, so that copies of the node stay as they were).
TD_MUST_USE td_status td_graph_set_operand(struct td_graph *g, td_node n, uint32_t i, td_value v);
// The program reads input `slot` as dtype from here on, its casts included. Nodes that read it as
// it was recorded get a cast of it.
TD_MUST_USE td_status td_graph_retype_input(struct td_graph *g, uint32_t slot, enum td_dtype dtype);
// True if node n writes the state tensor v, or completes a sum that does.
bool td_node_writes(const struct td_graph *g, td_node n, td_value v);
// True if no node in (after, until) writes the state tensor v; true for any other kind of value.
bool td_graph_stable(const struct td_graph *g, td_value v, td_node after, td_node until);
// Drops the nodes whose mark is set.
void td_graph_compact(struct td_graph *g, const bool *dead);

#endif
