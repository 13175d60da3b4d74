#ifndef TRAIND_ACCELERATORS_REFERENCE_KERNELS_H
#define TRAIND_ACCELERATORS_REFERENCE_KERNELS_H

// The kernel of each op.

#include "accelerators/reference/kernel.h"

// Runs the node's kernel; INVALID_ARGUMENT (class data) on labels outside the classes.
TD_MUST_USE td_status td_ref_kernel(struct ref_call *c);
// True if there is a kernel.
bool td_ref_has_kernel(td_op_id op);

#endif
