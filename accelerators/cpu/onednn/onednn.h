#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H

// The folder of oneDNN: products and convolutions by that library, the only files that include it.
// In reading order:
//
//   onednn.h        what an accelerator opens once: engine, stream, the CPU level
//   dnnl.h          oneDNN's C interface as its versions 2 and 3 share it
//   engine.h        what the files here share of an open engine
//   primitive.h     a primitive that is created when it first runs; oneDNN's statuses as ours
//   pack_match.h    which of oneDNN's packed layouts kernels/matmul/pack.c writes
//   weights.h       weights in oneDNN's layouts, as packs (packs.h)
//   product.h       a matrix product by oneDNN, for gemm.c
//   conv.h          convolutions: the family that compile.c asks
//   conv_shape.h    what a convolution is to oneDNN
//   conv_layout.h   the layouts of images that suit one
//   conv_run.h      one convolution by one algorithm: operands, packs, scratch, a run
//   conv_algorithm.h  Winograd's way or the direct one
//   peak_product.h  a large product, for peak.c to time
//
// The headers that the rest of the accelerator includes name none of the library's types: onednn.h,
// product.h, conv.h, conv_layout.h and peak_product.h. Thread: the rank's training thread.

#include <stdbool.h>
#include <stddef.h>

#include "accelerators/cpu/memory.h"
#include "traind/status.h"
#include "traind/types.h"

struct td_dnnl;  // engine and stream
struct td_packs; // packs.h
struct td_tune;  // tune.h

// memory, tune and packs are the accelerator's.
TD_MUST_USE td_status td_dnnl_create(struct td_cpu_memory *memory, struct td_tune *tune,
                                     struct td_packs *packs, struct td_dnnl **out_engine);
void td_dnnl_destroy(struct td_dnnl *e); // accepts NULL
// "oneDNN 2.6.3, avx512_bf16, caches 32/1024/32768 KiB": what the bits of its results depend on,
// besides the number of threads.
void td_dnnl_describe(char *out, size_t out_bytes);
// Has oneDNN products and convolutions of these operands at the CPU level in use?
bool td_dnnl_takes(enum td_dtype operands);

#endif
