#ifndef TRAIND_ACCELERATORS_REFERENCE_KERNEL_H
#define TRAIND_ACCELERATORS_REFERENCE_KERNEL_H

// A call of a kernel: one node on operands that were widened to fp64, and what several kernels need
// for it. The caller (node.c) loads operands and stores results; a kernel only loops. Where a fused
// op does the work of several (matmul with bias, a direct write that accumulates), the kernel
// rounds to the element type between them. So fusing does not change a bit here.

#include "lib/base/base.h"
#include "traind/graph.h"

struct ref_operand {
    double *x; // n elements
    int64_t n;
    enum td_dtype dtype;
    const struct td_shape *shape;
};

struct ref_call {
    const struct td_node_info *node;
    struct ref_operand *in; // [node->n_inputs]
    struct ref_operand out[TD_MAX_OUT];
    const double *scalars;  // step scalars
    const uint32_t *random; // and random words
    uint32_t written;       // bit i: operand i was changed and must be stored
};

typedef td_status td_ref_kernel_fn(struct ref_call *c);

// Linear index into an operand that broadcasts to `wide`, for element i of the result.
int64_t td_ref_broadcast(const struct td_shape *wide, const struct td_shape *x, int64_t i);

// What every accelerator says of an index that is not in [0, bound): INVALID_ARGUMENT, class data.
// It speaks of one label and of many classes, or whatever they are; who runs the node names it.
TD_MUST_USE td_status td_ref_no_index(const char *one, int64_t index, int64_t row, int64_t bound,
                                      const char *many);

// Element i of an integer operand, which must be in [0, bound); else td_ref_no_index.
TD_MUST_USE td_status td_ref_index(const struct ref_call *c, uint32_t operand, int64_t i,
                                   int64_t bound, const char *one, const char *many,
                                   int64_t *out_index);

static inline double td_ref_relu(double v) {
    return v > 0 || v != v ? v : 0; // a NaN stays visible
}

#endif
