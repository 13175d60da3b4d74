#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_PACK_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_PACK_H

// Pack: weights (rows, cols) in the layout that oneDNN's products read. Those that sum over columns
// want blocks of 16 to 64 rows by 16 columns, column behind column for fp32 (AB16b64a), pairs of
// columns for bf16 (AB8b64a2b); those that sum over rows, in bf16 alone, blocks of 32 rows by 16 to
// 64 columns, pairs of rows (BA16a64b2a).
// oneDNN's own reorder takes as long as a product of 30 rows in fp32, of 130 in bf16.
// Bits: lib/base/half.h's rounding, where fp32 becomes bf16; else the weights' own.

#include <stdbool.h>
#include <stdint.h>

#include "traind/types.h"

// Blocks of a packed layout, and the rows of a strip.
enum { TD_PACK_STRIP = 16, TD_PACK_COLS = 16, TD_PACK_PAIRS = 16, TD_PACK_MAX_BLOCK = 64 };

// What td_pack_rows takes of (rows, cols); cols 0: nothing, it is another layout.
struct td_pack_shape {
    int64_t rows, cols;
    bool pairs_rows;              // else columns lie one behind the other, or pairs of them
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
// On all threads of the team. What fills up the last blocks is zeroes.
void td_pack_rows(const struct td_pack_shape *s, const void *from, void *to);
// The rows from i * TD_PACK_STRIP on, of a strip: what td_pack_rows does on each thread.
void td_pack_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to);

// n elements of x, of type `from`, from element `at` on, as a product of type `as` multiplies them:
// rounded to it, as fp32. Where they lie, or in room (n floats).
const float *td_panel_values(enum td_dtype from, enum td_dtype as, const void *x, int64_t at,
                             int64_t n, float *room);
// The same of panels; what td_pack_strip calls.
void td_panel_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to);

// A pack that is written together with its parameter.
enum { TD_PACKS_OF_UPDATE = 2 };
struct td_pack_target {
    struct td_pack_shape shape;
    void *to;
};

#endif
