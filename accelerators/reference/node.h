#ifndef TRAIND_ACCELERATORS_REFERENCE_NODE_H
#define TRAIND_ACCELERATORS_REFERENCE_NODE_H

// One node of a graph, run by the reference's loops on operands in host memory. The reference
// accelerator does so with each node, another one with a node that it has no kernel of its own for.
// Layouts are plain, whatever the other one likes. Views and sums over ranks are the caller's.
// Results are stored after all operands were read, so any of them may share memory.

#include "accelerators/reference/kernel.h"

// Where a node's operands and results are, and memory to work in.
struct td_ref_site {
    void *const *in;              // [n_inputs]; read, but for those that the op writes
    void *const *out;             // [n_outputs], or the state tensor that it writes into
    const double *scalars;        // step scalars
    const uint32_t *random;       // and random words
    struct ref_operand *operands; // [n_inputs]
    double *scratch;              // as many elements as td_ref_node_check says
};

// UNIMPLEMENTED, naming the node: there is no kernel.
TD_MUST_USE td_status td_ref_node_check(const struct td_graph *g, td_node n,
                                        size_t *out_scratch_elems);
TD_MUST_USE td_status td_ref_node_run(const struct td_graph *g, td_node n,
                                      const struct td_ref_site *site);

#endif
