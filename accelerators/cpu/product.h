#ifndef TRAIND_ACCELERATORS_CPU_PRODUCT_H
#define TRAIND_ACCELERATORS_CPU_PRODUCT_H

// Product: a matmul node as a kernel, and the weights that it reads.

#include "accelerators/cpu/kernel.h"
#include "traind/accelerator.h"

// The program that is being compiled.
struct td_product_site {
    const struct td_program *program;
    const struct td_bindings *bindings;
    struct td_accelerator *accel; // NULL: nothing will be created
};
// Takes a matmul, if its types are those of gemm.h.
TD_MUST_USE td_status td_product_take(struct td_kernel *k, const struct td_product_site *site,
                                      td_node n);
// True for the cast of a parameter that only products read, which read the parameter instead.
bool td_product_absorbs(const struct td_product_site *site, td_node cast);
// The parameter that v is or is cast from: its address and type. NULL: none.
const char *td_product_param(const struct td_product_site *s, td_value v, enum td_dtype *out_dtype);

#endif
