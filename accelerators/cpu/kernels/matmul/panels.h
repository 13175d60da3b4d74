#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PANELS_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PANELS_H

// Panels: weights in the layout that the accelerator's own products read (matmul.h).

#include "accelerators/cpu/kernels/matmul/pack_shape.h"

// n elements of x, of type `from`, from element `at` on, as a product of type `as` multiplies them:
// rounded to it, as fp32. Where they are, or in buffer (n floats).
const float *td_panel_values(enum td_dtype from, enum td_dtype as, const void *x, int64_t at,
                             int64_t n, float *buffer);
// The rows from i * TD_PACK_STRIP on, of a strip.
void td_panel_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to);

#endif
