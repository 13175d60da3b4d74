#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PACK_SHAPE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_PACK_SHAPE_H

// Layouts of packed weights: which ones pack.c and panels.c write.

#include <stdbool.h>
#include <stdint.h>

#include "traind/types.h"

// Blocks of a packed layout, and the rows of a strip. They are oneDNN's, the same at every CPU
// level: a layout with other blocks is not recognised (pack_match.h) and packed by oneDNN.
enum { TD_PACK_STRIP = 16, TD_PACK_COLS = 16, TD_PACK_PAIRS = 16, TD_PACK_MAX_BLOCK = 64 };

// What td_pack_rows takes of (rows, cols); cols 0: nothing, it is another layout.
struct td_pack_shape {
    int64_t rows, cols;
    bool pairs_rows;              // else columns are one after the other, or pairs of them
    int64_t block;                // rows of one; its columns, where rows are paired
    int64_t row_block, col_block; // words of 4 bytes from one block to the next
    bool from_half, to_half;      // bf16, else fp32
    // For the accelerator's own products (panels.c): panels of `block`, fp32 of type `from` rounded
    // to `as`; row_block and col_block are floats from one panel to the next.
    enum td_pack_panels {
        TD_PACK_NO_PANELS,
        TD_PACK_PANELS_OF_ROWS,
        TD_PACK_PANELS_OF_COLUMNS
    } panels;
    enum td_dtype from, as;
};

// A pack that is written together with its parameter.
enum { TD_PACKS_OF_UPDATE = 2 };
struct td_pack_target {
    struct td_pack_shape shape;
    void *to;
};

#endif
