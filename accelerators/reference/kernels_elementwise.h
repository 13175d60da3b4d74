#ifndef TRAIND_ACCELERATORS_REFERENCE_KERNELS_ELEMENTWISE_H
#define TRAIND_ACCELERATORS_REFERENCE_KERNELS_ELEMENTWISE_H

// Elementwise ops one element at a time, for kernels that fuse one.

#include "traind/graph.h"
#include "traind/op.h"

// An op of two operands, of one element of each.
double td_ref_scalar(enum td_op op, double a, double b, const struct td_attrs *attrs);

#endif
