#ifndef TRAIND_ACCELERATORS_REFERENCE_KERNELS_H
#define TRAIND_ACCELERATORS_REFERENCE_KERNELS_H

// Reference kernels: what each op computes, on operands that were widened to fp64.
//
// The caller (reference.c) loads operands and stores results; a kernel only loops. Where a fused op
// stands for several (matmul with bias, a direct write that accumulates), the kernel rounds to the
// element type between them, so that fusing does not change a bit here.

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
// Kernels of a family's file; NULL: not one of its ops.
td_ref_kernel_fn *td_ref_elementwise(enum td_op op);
td_ref_kernel_fn *td_ref_tensor(enum td_op op);
td_ref_kernel_fn *td_ref_loss(enum td_op op);
td_ref_kernel_fn *td_ref_nn(enum td_op op);
td_ref_kernel_fn *td_ref_conv(enum td_op op);
td_ref_kernel_fn *td_ref_attention(enum td_op op);
td_ref_kernel_fn *td_ref_optim(enum td_op op);

// Runs the node's kernel; INVALID_ARGUMENT (class data) on labels outside the classes.
TD_MUST_USE td_status td_ref_kernel(struct ref_call *c);
// True if there is a kernel.
bool td_ref_has_kernel(enum td_op op);
// Rounds to the element type, and back.
double td_ref_round(enum td_dtype dtype, double v);

// Linear index into an operand that broadcasts to `wide`, for element i of the result.
int64_t td_ref_broadcast(const struct td_shape *wide, const struct td_shape *x, int64_t i);

// Element i of an integer operand, which must be in [0, bound); the error speaks of one label and
// of many classes, or whatever they are.
TD_MUST_USE td_status td_ref_index(const struct ref_call *c, uint32_t operand, int64_t i,
                                   int64_t bound, const char *one, const char *many,
                                   int64_t *out_index);

static inline double td_ref_relu(double v) {
    return v > 0 || v != v ? v : 0; // a NaN stays visible
}

// An elementwise op of two operands, of one element of each.
double td_ref_scalar(enum td_op op, double a, double b, const struct td_attrs *attrs);

// Widening and narrowing of n elements.
void td_ref_load(enum td_dtype dtype, const void *from, int64_t n, double *to);
void td_ref_store(enum td_dtype dtype, const double *from, int64_t n, void *to);

#endif
