#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_WINOGRAD_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_WINOGRAD_H

// The accelerator's own Winograd convolution: 3x3 filters of stride 1 in fp32, forward and the
// gradient of the images, on images in blocks of TD_LAYOUT_LANES channels.
//
// Each 2x2 of the result takes 16 multiplications a pair of channels instead of 36. oneDNN has
// Winograd with AVX-512 alone; below, this one races with its direct convolution.
// Bits do not depend on the number of threads.
// Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016: F(2x2,
// 3x3).

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// y (n,o,out_h,out_w) = convolution of x (n,c,h,w), c and o whole blocks. With `gradient` x is dy
// and y is dx of a forward convolution from o to c channels, whose weights are given.
struct td_winograd {
    int64_t n, c, h, w, o, out_h, out_w;
    int64_t pad[2]; // zeroes above and left of x; those below and right follow from out_h, out_w
    bool gradient;
    int32_t n_threads;
};

// What a run writes in `scratch`, 64-byte aligned.
size_t td_winograd_scratch_bytes(const struct td_winograd *p);
// weights: plain, (o,c,3,3), of a gradient (c,o,3,3). bias: (o) or NULL.
void td_winograd_run(const struct td_winograd *p, const float *x, const float *weights,
                     const float *bias, float *y, void *scratch);

#endif
