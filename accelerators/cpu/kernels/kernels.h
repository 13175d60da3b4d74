#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_KERNELS_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_KERNELS_H

// The folder's way out: one table of functions a CPU level.
//
// Every source of this folder is compiled once for each code generation of lib/base/cpu_level.h
// (generic, v3, v4), the objects of each are joined to one, and of all its names only the table
// stays visible: so files here call each other as files do, always within their level, and the rest
// of the accelerator calls them through td_kernels(). A source may ask the compiler what it
// compiles for (__AVX512F__, __AVX2__), never the processor.
//
//   activation.c attention.c batch_norm.c reduce_places.c dropout.c elementwise.c embedding.c
//   softmax_ce.c norm.c mse_bce.c pool.c reduce.c rope.c softmax.c             families of ops
//   optim.c adafactor.c muon.c, update.c                       optimizers, and how they write
//   linear_ce.c                                                     the last linear layer with its
//   loss matmul.c tile.c                                            products: of any size, small
//   ones winograd.c                                                 3x3 convolutions, where oneDNN
//   has none pack.c panels.c reorder.c convert.c                        packs, layouts, types
//   vmath.h shuffle.h strips.h                                 what loops are made of

#include "accelerators/cpu/cpu.h"
#include "lib/base/cpu_level.h"

struct td_matmul;
struct td_winograd;
struct td_pack_shape;

struct td_kernel_table {
    int32_t image_lanes; // channels of a block in blocked layouts
    td_kernel_family *const *family;
    size_t n_families;
    td_kernel_family *activation; // one of them, for a gradient behind a product

    // linear_ce.c: takes linear_ce and linear_ce_grad, if there are products of their types. And:
    // would it be taken, and read its weight through a pack alone?
    td_status (*head_take)(struct td_kernel *k, const struct td_product_site *site, td_node n);
    bool (*head_packs)(const struct td_product_site *site, td_node n);
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
    // reorder.c: on n_threads threads; from and to do not overlap.
    void (*reorder)(const struct td_reorder *r, int32_t n_threads, const void *from, void *to);
    // n elements of one of the types of convert.h as another, on n_threads threads.
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

// ---- within the folder --------------------------------------------------------------------------
td_kernel_family td_kernel_elementwise, td_kernel_activation, td_kernel_reduce, td_kernel_optim,
    td_kernel_adafactor, td_kernel_muon, td_kernel_norm, td_kernel_attention, td_kernel_embedding,
    td_kernel_softmax, td_kernel_loss, td_kernel_pair, td_kernel_dropout, td_kernel_pool,
    td_kernel_batch_norm, td_kernel_channel, td_kernel_rope;
TD_MUST_USE td_status td_head_take(struct td_kernel *k, const struct td_product_site *site,
                                   td_node n);
bool td_head_packs(const struct td_product_site *site, td_node n);
void td_reorder_run(const struct td_reorder *r, int32_t n_threads, const void *from, void *to);

// reduce.c: y (cols) = the sum of the rows of x (rows, cols), or y += that.
struct td_columns {
    const void *x;
    void *y;
    enum td_dtype from, to;
    int64_t rows, cols;
    bool accumulate;
};
void td_columns_sum(const struct td_columns *a, int32_t n_threads);

#endif
