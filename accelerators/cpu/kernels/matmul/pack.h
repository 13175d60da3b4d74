#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PACK_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PACK_H

// Pack: weights (rows, cols) in the layout that oneDNN's products read. Those that sum over columns
// want blocks of 16 to 64 rows by 16 columns: column after column for fp32 (AB16b64a), pairs of
// columns for bf16 (AB8b64a2b). Those that sum over rows, in bf16 alone, want blocks of 32 rows by
// 16 to 64 columns, pairs of rows (BA16a64b2a). oneDNN's own reorder takes as long as a product of
// 30 rows in fp32, of 130 in bf16. Bits: lib/base/floats/half.h's rounding, where fp32 becomes
// bf16; else the weights' own.

#include "accelerators/cpu/kernels/matmul/pack_shape.h"

// On all threads of the team. What fills up the last blocks is zeroes.
void td_pack_rows(const struct td_pack_shape *s, const void *from, void *to);
// The rows from i * TD_PACK_STRIP on, of a strip: what td_pack_rows does on each thread.
void td_pack_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to);

#endif
