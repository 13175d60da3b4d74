#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_LAYOUT_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_LAYOUT_H

// The layouts of its images in which oneDNN has a fast way for a convolution.

#include "accelerators/cpu/kernel.h"

struct td_dnnl;

TD_MUST_USE td_status td_conv_prefer(const struct td_kernel *k, struct td_dnnl *e,
                                     struct td_conv_layouts *out_layouts);

#endif
