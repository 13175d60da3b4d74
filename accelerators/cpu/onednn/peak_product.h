#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_PEAK_PRODUCT_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_PEAK_PRODUCT_H

// A large product by oneDNN at its best, for peak.c to time: weights packed, operands zero, memory
// of its own. Thread: the training thread.

#include <stdbool.h>
#include <stdint.h>

#include "traind/types.h"

struct td_dnnl_peak_product;

// y (rows, width) = x (rows, width) by weights (width, width), of fp32 or bf16. False: oneDNN has
// none, or there is no memory.
bool td_dnnl_peak_product_create(enum td_dtype type, int64_t rows, int64_t width,
                                 struct td_dnnl_peak_product **out_product);
void td_dnnl_peak_product_destroy(struct td_dnnl_peak_product *p); // accepts NULL
// False: oneDNN failed.
bool td_dnnl_peak_product_run(struct td_dnnl_peak_product *p);

#endif
