#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_KERNELS_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_KERNELS_H

// The folder of loops, and its way out: one table of functions a CPU level.
//
// Every source of this folder is compiled once for each code generation of lib/base/cpu_level.h
// (generic, v3, v4). The objects of each are joined to one, and of all its names only the table
// stays visible. So files here call each other as files do, always within their level. The rest of
// the accelerator calls them through td_kernels(). A source may ask the compiler what it compiles
// for (__AVX512F__, __AVX2__), never the processor. In reading order:
//
//   table.c                     the table; families.def, families.h: families of kernels, in order
//   elementwise.c activation.c  functions of elements; reorder.c: of whole images, into a layout
//   reduce.c reduce_spatial.c   sums of columns, of images over their places
//   softmax.c norm.c batch_norm.c dropout.c pool.c rope.c embedding.c
//   matmul/                     products of any size, convolutions, weights packed for them
//   attention.c                 built from products that the caches hold (matmul/tile.h)
//   softmax_ce.c mse_bce.c      losses; linear_ce.c: the last linear layer with its loss
//   optim/                      optimizers
//   convert.c                   16-bit types as fp32
//   vmath.h shuffle.h strips.h  what loops are made of

#include "accelerators/cpu/kernel.h"
#include "lib/base/cpu_level.h"

struct td_matmul;
struct td_product_site;
struct td_winograd;
struct td_pack_shape;

struct td_kernel_table {
    int32_t image_lanes; // channels of a block in blocked layouts
    td_kernel_family *const *family;
    size_t n_families;
    td_kernel_family *activation; // one of them, for a gradient after a product

    // linear_ce.h.
    td_status (*linear_ce_take)(struct td_kernel *k, const struct td_product_site *site, td_node n);
    bool (*linear_ce_packs)(const struct td_product_site *site, td_node n);
    // pack.h.
    void (*pack_rows)(const struct td_pack_shape *s, const void *from, void *to);
    // matmul.h.
    struct td_pack_shape (*matmul_panels)(int64_t n, int64_t k, bool trans_b, enum td_dtype stored,
                                          enum td_dtype operands);
    size_t (*matmul_panel_bytes)(const struct td_pack_shape *panels);
    size_t (*matmul_scratch_bytes)(const struct td_matmul *p);
    void (*matmul_run)(const struct td_matmul *p, const void *a, const void *b, const void *bias,
                       void *y, void *scratch);
    // winograd.h.
    size_t (*winograd_scratch_bytes)(const struct td_winograd *p);
    void (*winograd_run)(const struct td_winograd *p, const float *x, const float *weights,
                         const float *bias, float *y, void *scratch);
    // reorder.h.
    void (*reorder)(const struct td_reorder *r, int32_t n_threads, const void *from, void *to);
    // convert.h.
    void (*convert)(int32_t n_threads, enum td_dtype from, const void *x, enum td_dtype to, void *y,
                    int64_t n);
    // v[i] = v[i] / 2 + 1 for i in [begin, end): bytes through memory, for peak.c.
    void (*update_in_place)(float *v, int64_t begin, int64_t end);
};
TD_LEVELED_DECLARE(struct td_kernel_table, td_kernels);

// Of the CPU level in use.
static inline const struct td_kernel_table *td_kernels(void) {
    return TD_LEVELED_TABLE(td_kernels);
}

#endif
