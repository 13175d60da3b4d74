#ifndef TRAIND_ACCELERATORS_REFERENCE_FAMILIES_H
#define TRAIND_ACCELERATORS_REFERENCE_FAMILIES_H

// Families of ops: each file kernels_<family>.c exports td_ref_<family>, which gives the kernel of
// an op; NULL: not one of its ops.

#include "accelerators/reference/kernel.h"
#include "traind/op.h"

typedef td_ref_kernel_fn *td_ref_family(enum td_op op);
td_ref_family td_ref_elementwise, td_ref_tensor, td_ref_loss, td_ref_nn, td_ref_conv,
    td_ref_attention, td_ref_optim;

#endif
