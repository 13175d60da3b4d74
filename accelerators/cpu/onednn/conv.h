#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_H

// Convolutions and the gradients of their operands, by oneDNN and our own Winograd. A node is taken
// first, and built when the layouts of its images are known.

#include "accelerators/cpu/kernel.h"

struct td_dnnl;

td_kernel_family td_conv_take;
// param: the address of the parameter that the weights are, or NULL.
TD_MUST_USE td_status td_conv_build(struct td_kernel *k, struct td_dnnl *e,
                                    enum td_image_layout x_layout, enum td_image_layout y_layout,
                                    const void *param);
// Is it as fast some images at a time (parts.h) as all at once, in these layouts? Winograd's way is
// not: it transforms the weights in each part, and its results go past the caches.
bool td_conv_takes_parts(const struct td_kernel *k, enum td_image_layout x_layout,
                         enum td_image_layout y_layout);

#endif
