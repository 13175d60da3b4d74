#ifndef TRAIND_ACCELERATORS_CPU_PACK_H
#define TRAIND_ACCELERATORS_CPU_PACK_H

// Pack: fp32 weights (rows, cols) in the layout that oneDNN's bf16 products read, blocks of 64 rows
// by 16 columns whose columns lie in pairs (AB8b64a2b). oneDNN's own reorder goes element by
// element and takes as long as a product of 128 rows. Bits: lib/base/half.h's rounding.

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdint.h>

// What td_pack_rows takes of (rows, cols); cols 0: nothing, it is another layout.
struct td_pack_shape {
    int64_t rows, cols;
    int64_t row_block, col_block; // elements from one block to the next
};
struct td_pack_shape td_pack_shape_of(const dnnl_memory_desc_t *plain,
                                      const dnnl_memory_desc_t *layout);
// On all threads of the team.
void td_pack_rows(const struct td_pack_shape *s, const float *from, uint16_t *to);

#endif
