#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_PRODUCT_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_PRODUCT_H

// A matrix product by oneDNN. Thread: the training thread.

#include "accelerators/cpu/gemm_spec.h"
#include "lib/base/base.h"

struct td_dnnl;
struct td_dnnl_product;

enum td_dnnl_way {
    TD_DNNL_INNER_PRODUCT, // of a parameter (n,k) or (k,n), or a weight's gradient
    TD_DNNL_MATMUL,        // operands where they are
    TD_DNNL_PACKED_MATMUL, // of a parameter (k,n) through a pack
};
// It holds its packs and scratch from now on; its code is generated when it first runs.
// UNIMPLEMENTED: oneDNN has no such product, or its reference loops alone; nothing is held then.
TD_MUST_USE td_status td_dnnl_product_create(struct td_dnnl *e, const struct td_gemm_spec *spec,
                                             enum td_dnnl_way way,
                                             struct td_dnnl_product **out_product);
void td_dnnl_product_destroy(struct td_dnnl_product *p); // accepts NULL
size_t td_dnnl_product_scratch_bytes(const struct td_dnnl_product *p);
// Would its first run wait until oneDNN has generated its gemm?
bool td_dnnl_product_starts_slowly(const struct td_dnnl_product *p);
TD_MUST_USE td_status td_dnnl_product_run(struct td_dnnl_product *p, const void *a, const void *b,
                                          const void *bias, void *y);

#endif
