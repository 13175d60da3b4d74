#ifndef TRAIND_ACCELERATORS_CPU_FALLBACK_H
#define TRAIND_ACCELERATORS_CPU_FALLBACK_H

// The reference's loops as a slow kernel, for a node that no family takes.

#include "accelerators/cpu/kernel.h"

// UNIMPLEMENTED, naming the node, where the reference has no kernel either.
TD_MUST_USE td_status td_fallback_take(struct td_kernel *k, const struct td_graph *g, td_node n);

#endif
