#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_ALGORITHM_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_ALGORITHM_H

// Which algorithm computes a convolution: Winograd's where it is worth a try, else the direct one.

#include "accelerators/cpu/onednn/conv_run.h"

// By its layouts and shape, may it be Winograd's? Anything else is direct.
bool td_conv_may_be_winograd(const struct td_conv_shape *s);
// d: of s. Where more than one is worth it they race (tune.h). A plan counts what all of them would
// hold, so that no choice moves its bytes.
TD_MUST_USE td_status td_conv_choose(const struct td_conv_shape *s, struct td_dnnl *e,
                                     const struct td_conv_descs *d,
                                     enum td_conv_algorithm *out_algorithm);

#endif
