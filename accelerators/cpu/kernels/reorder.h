#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_REORDER_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_REORDER_H

// Reorder: an image in one layout becomes the same image in another.

#include "accelerators/cpu/layout.h"

struct td_reorder {
    struct td_shape shape; // (N,C,H,W)
    enum td_image_layout from, to;
    size_t elem_bytes; // 1, 2, 4 or 8
};
// On n_threads threads; from and to do not overlap.
void td_reorder_run(const struct td_reorder *r, int32_t n_threads, const void *from, void *to);

#endif
