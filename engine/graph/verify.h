#ifndef TRAIND_ENGINE_GRAPH_VERIFY_H
#define TRAIND_ENGINE_GRAPH_VERIFY_H

// Verify: does a pass leave a graph that means something?
//
// Run after every pass of the pipeline, on graphs of a few hundred nodes: microseconds. It looks
// for what would otherwise show up as wrong numbers far away. That is a value read before it is
// made, a node filed under a wrong index, or a segment that goes back. It is also a shape that no
// longer follows the rules, or a direct write that is no gradient. A module cannot cause any of
// these, so the code is INTERNAL.
//
// A sum over ranks is under way from its start to its await. Each has one of both, in one segment.
// Meanwhile no node writes what it reads, or touches what it writes.

#include "traind/graph.h"

// Every value is made before it is read, shapes still follow the rules, segments ascend, written
// operands are state. INTERNAL names the node: a pass of ours is wrong.
TD_MUST_USE td_status td_graph_verify(const struct td_graph *g);

#endif
