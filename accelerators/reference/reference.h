#ifndef TRAIND_ACCELERATORS_REFERENCE_REFERENCE_H
#define TRAIND_ACCELERATORS_REFERENCE_REFERENCE_H

// Reference: the accelerator made of plain loops. It is the specification of every op, not a way to
// train: kernels read operands into fp64, compute there, and round once when they write. It honours
// placements and segments like any other accelerator, so it also is the specification of those.
// All element types are known. Everything happens inside run; wait does nothing. In reading order:
//
//   reference.h  the accelerator: memory, compile and run
//   node.h       one node, run by the loops; what another accelerator may borrow
//   kernel.h     a call of a kernel, on operands widened to fp64
//   convert.h    element types as fp64, and back
//   kernels.h    the kernel of each op; families.h: the families, which are asked first:
//                kernels_elementwise.c, kernels_tensor.c, kernels_nn.c, kernels_loss.c,
//                kernels_conv.c, kernels_attention.c, kernels_optim.c

#include "traind/accelerator.h"
#include "traind/descriptor.h"

extern const struct td_plugin_desc td_accelerator_reference;

// Tests look at the arena between two nodes: fn is called after each node that ran.
void td_reference_trace(struct td_executable *e, void (*fn)(void *arg, td_node n), void *arg);

#endif
