// Packs of fp32 weights for bf16 products; contract in pack.h. Sixteen rows at a time are rounded
// and transposed in tiles of eight by eight pairs, so that rows are read in order and whole cache
// lines are written. What fills no block is oneDNN's.

#include "accelerators/cpu/pack.h"

#include <string.h>

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/shuffle.h"
#include "lib/base/half.h"

enum { ROWS = 64, COLS = 16, AT_ONCE = 16, PAIRS = COLS / 2 };

typedef uint32_t pairs __attribute__((vector_size(PAIRS * sizeof(uint32_t))));

struct pack_arg {
    const struct td_pack_shape *s;
    const float *from;
    uint16_t *to;
};

struct td_pack_shape td_pack_shape_of(const dnnl_memory_desc_t *plain,
                                      const dnnl_memory_desc_t *layout) {
    static const dnnl_dim_t blocks[] = {PAIRS, ROWS, 2}, of_dim[] = {1, 0, 1};
    const dnnl_blocking_desc_t *b = &layout->format_desc.blocking;
    const dnnl_blocking_desc_t *p = &plain->format_desc.blocking;
    struct td_pack_shape none = {0};
    bool types = plain->data_type == dnnl_f32 && layout->data_type == dnnl_bf16;
    bool kinds = plain->format_kind == dnnl_blocked && layout->format_kind == dnnl_blocked;
    if (!types || !kinds || plain->ndims != 2 || layout->ndims != 2) return none;
    if (p->inner_nblks != 0 || b->inner_nblks != 3) return none;
    for (int i = 0; i < 3; i++) {
        if (b->inner_blks[i] != blocks[i] || b->inner_idxs[i] != of_dim[i]) return none;
    }
    int64_t rows = plain->dims[0], cols = plain->dims[1];
    bool rows_of_plain = p->strides[1] == 1 && p->strides[0] == cols;
    if (rows % ROWS || cols % COLS || !rows_of_plain) return none;
    return (struct td_pack_shape){rows, cols, b->strides[0], b->strides[1]};
}

// Eight rows by sixteen columns, for place `row` of a block.
static inline __attribute__((always_inline)) void pack_tile(const float *from, int64_t cols,
                                                            uint16_t *to) {
    pairs a[8], b[8];
    for (int r = 0; r < 8; r++) {
        uint16_t half[COLS];
        for (int c = 0; c < COLS; c++) {
            half[c] = td_bf16_of_f32(from[r * cols + c]);
        }
        memcpy(&a[r], half, sizeof half);
    }
    TD_INTERLEAVE(a, b)
    TD_INTERLEAVE(b, a)
    TD_INTERLEAVE(a, b)
    for (int k = 0; k < PAIRS; k++) {
        memcpy(to + k * 2 * ROWS, &b[k], sizeof *b);
    }
}

// Sixteen rows: all blocks that they are in.
TD_CLONES static void pack_rows(const float *from, int64_t cols, int64_t col_block, uint16_t *to) {
    for (int64_t c = 0; c < cols; c += COLS, to += col_block) {
        pack_tile(from + c, cols, to);
        pack_tile(from + 8 * cols + c, cols, to + 2 * 8);
    }
}

static void pack_range(const void *arg, int64_t begin, int64_t end) {
    const struct pack_arg *a = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * AT_ONCE;
        pack_rows(a->from + row * a->s->cols, a->s->cols, a->s->col_block,
                  a->to + row / ROWS * a->s->row_block + row % ROWS * 2);
    }
}

void td_pack_rows(const struct td_pack_shape *s, const float *from, uint16_t *to) {
    struct pack_arg a = {s, from, to};
    td_parallel_units(td_parallel_threads(), s->rows / AT_ONCE, pack_range, &a);
}
