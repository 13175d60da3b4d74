#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_MATMUL_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_MATMUL_H

// The accelerator's own matrix product: fp32 throughout, of operands of any type.
//
// y (m,n) = act(op(a) (m,k) @ op(b) (k,n) + bias), or y += that. Operands of 16 bits are widened,
// which is exact, and sums are fp32; a result of 16 bits is rounded once. So a CPU without products
// of 16 bits computes them at nearly the speed of fp32. Where oneDNN has a product, too, the two
// race (tune.h).
//
// b is read in panels of some columns, one row of a panel after the other. A weight is packed into
// panels once an update (pack.h: td_matmul_panels says how), anything else block by block while the
// product runs. Sums over k are in the same order for any number of threads.
//
// The room:
//
//   pack_shape.h pack.h  weights packed for oneDNN's products
//   panels.h             for ours
//   tile.h               products that the caches hold
//   matmul.h             of any size
//   winograd.h           3x3 convolutions below AVX-512

#include <stdbool.h>
#include <stdint.h>

#include "accelerators/cpu/kernels/matmul/pack_shape.h"
#include "traind/graph.h"

struct td_matmul {
    int64_t m, n, k; // all > 0
    bool trans_a, trans_b;
    bool accumulate; // y += the product; no act then
    bool packed_b;   // b is in panels
    enum td_act act;
    enum td_dtype a_type, bias_type, y_type; // f32, bf16, f16
    enum td_dtype b_type, b_as;              // b's, and what it is rounded to; unless packed_b
    int32_t n_threads;
};

// Panels of a weight: stored (n,k) if trans_b, else (k,n), as `stored`, its values rounded to
// `operands` before they are multiplied.
struct td_pack_shape td_matmul_panels(int64_t n, int64_t k, bool trans_b, enum td_dtype stored,
                                      enum td_dtype operands);
size_t td_matmul_panel_bytes(const struct td_pack_shape *panels);
// What a run writes in `scratch`, 64-byte aligned.
size_t td_matmul_scratch_bytes(const struct td_matmul *p);
// bias: (n) or NULL.
void td_matmul_run(const struct td_matmul *p, const void *a, const void *b, const void *bias,
                   void *y, void *scratch);

#endif
