#ifndef TRAIND_PRECISIONS_PRECISIONS_H
#define TRAIND_PRECISIONS_PRECISIONS_H

// The in-tree precisions, all of traind/precision.h, by the names of the job spec:
//
//   true.c    32-true 64-true bf16-true 16-true    one type for weights, gradients and values
//   mixed.c   bf16-mixed 16-mixed                  fp32 weights and gradients, 16-bit products
//
//   lower.h   the one rewrite, which does what both of them ask for
//
// 16-mixed scales the loss, because gradients of fp16 fall below its smallest number; bf16 has the
// range of fp32 and needs none.

#include "traind/descriptor.h"

extern const struct td_plugin_desc td_precision_fp32;
extern const struct td_plugin_desc td_precision_fp64;
extern const struct td_plugin_desc td_precision_bf16_true;
extern const struct td_plugin_desc td_precision_fp16_true;
extern const struct td_plugin_desc td_precision_bf16_mixed;
extern const struct td_plugin_desc td_precision_fp16_mixed;

#endif
