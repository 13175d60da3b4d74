// Packs of weights for products; contract in pack.h.
//
// They are made sixteen rows at a time (a strip), so that rows are read in order and whole cache
// lines are written.
//
// Where columns are one after another a strip is transposed in tiles of eight by eight words, one
// fp32 or two bf16 each. What has no whole blocks of columns is oneDNN's. Where rows are paired two
// of them are interleaved, and blocks may be short at either end.

#include "accelerators/cpu/kernels/matmul/pack.h"

#include <string.h>

#include "accelerators/cpu/kernels/matmul/panels.h"
#include "accelerators/cpu/kernels/shuffle.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

enum { COLS = TD_PACK_COLS, STRIP = TD_PACK_STRIP, TILE = 8, PAIRS = TD_PACK_PAIRS };
enum kind { ROUND, HALF, FLOAT }; // fp32 to bf16, bf16 as it is, fp32 as it is

typedef uint32_t words __attribute__((vector_size(TILE * sizeof(uint32_t))));

struct pack_arg {
    const struct td_pack_shape *s;
    const void *from;
    void *to;
};

// ---- a strip of columns -------------------------------------------------------------------------
// Eight words of a row.
static inline __attribute__((always_inline)) void load(enum kind kind, const char *from,
                                                       words *to) {
    if (kind != ROUND) {
        memcpy(to, from, sizeof *to);
        return;
    }
    float x[2 * TILE];
    uint16_t half[2 * TILE];
    memcpy(x, from, sizeof x);
    for (int c = 0; c < 2 * TILE; c++) {
        half[c] = td_bf16_of_f32(x[c]);
    }
    memcpy(to, half, sizeof half);
}

// Blocks of columns one after the other, from rows that are row_bytes apart.
static inline __attribute__((always_inline)) void pack_strip(enum kind kind,
                                                             const struct td_pack_shape *s,
                                                             const char *from, int64_t row_bytes,
                                                             int64_t n_blocks, uint32_t *to) {
    const int tiles = kind == FLOAT ? 2 : 1, step = (kind == ROUND ? 2 : 1) * (int)sizeof(words);
    for (int64_t i = 0; i < n_blocks; i++, to += s->col_block) {
        for (int t = 0; t < tiles; t++, from += step) {
            for (int top = 0; top < STRIP; top += TILE) {
                words a[TILE], b[TILE];
                for (int r = 0; r < TILE; r++) {
                    load(kind, from + (top + r) * row_bytes, &a[r]);
                }
                TD_INTERLEAVE(a, b)
                TD_INTERLEAVE(b, a)
                TD_INTERLEAVE(a, b)
                for (int w = 0; w < TILE; w++) {
                    memcpy(to + (t * TILE + w) * s->block + top, &b[w], sizeof *b);
                }
            }
        }
    }
}

static void strip_round(const struct td_pack_shape *s, const char *from, int64_t row_bytes,
                        int64_t n_blocks, uint32_t *to) {
    pack_strip(ROUND, s, from, row_bytes, n_blocks, to);
}

static void strip_half(const struct td_pack_shape *s, const char *from, int64_t row_bytes,
                       int64_t n_blocks, uint32_t *to) {
    pack_strip(HALF, s, from, row_bytes, n_blocks, to);
}

static void strip_float(const struct td_pack_shape *s, const char *from, int64_t row_bytes,
                        int64_t n_blocks, uint32_t *to) {
    pack_strip(FLOAT, s, from, row_bytes, n_blocks, to);
}

static void strip(const struct td_pack_shape *s, const char *from, int64_t row_bytes,
                  int64_t n_blocks, uint32_t *to) {
    if (s->from_half) {
        strip_half(s, from, row_bytes, n_blocks, to);
    } else if (s->to_half) {
        strip_round(s, from, row_bytes, n_blocks, to);
    } else {
        strip_float(s, from, row_bytes, n_blocks, to);
    }
}

// A strip of which the weights have n rows only, maybe none.
static void strip_short(const struct td_pack_shape *s, const char *from, int64_t n, uint32_t *to) {
    const size_t bytes = s->from_half ? sizeof(uint16_t) : sizeof(float), row = COLS * bytes;
    float buffer[STRIP * COLS] = {0};
    for (int64_t c = 0; c < s->cols; c += COLS, to += s->col_block) {
        for (int64_t r = 0; r < n; r++) {
            memcpy((char *)buffer + (size_t)r * row, from + (size_t)(r * s->cols + c) * bytes, row);
        }
        strip(s, (const char *)buffer, (int64_t)row, 1, to);
    }
}

// ---- a strip of pairs of rows -------------------------------------------------------------------
static const float no_row[TD_PACK_MAX_BLOCK];

// Two rows of a block, of which the weights have n columns.
static void pair_round(const float *a, const float *b, int64_t n, uint32_t *to) {
    for (int64_t c = 0; c < n; c++) {
        to[c] = td_bf16_of_f32(a[c]) | (uint32_t)td_bf16_of_f32(b[c]) << 16;
    }
}

static void pair_half(const uint16_t *a, const uint16_t *b, int64_t n, uint32_t *to) {
    for (int64_t c = 0; c < n; c++) {
        to[c] = a[c] | (uint32_t)b[c] << 16;
    }
}

// Of the strip's rows the weights have n, maybe none.
static void strip_pairs(const struct td_pack_shape *s, const char *from, int64_t n, uint32_t *to) {
    const int64_t bytes = s->from_half ? 2 : 4, row_bytes = s->cols * bytes;
    for (int64_t c = 0; c < s->cols; c += s->block, from += s->block * bytes, to += s->col_block) {
        const int64_t cols = TD_MIN(s->cols - c, s->block);
        uint32_t *pair = to;
        for (int64_t r = 0; r < STRIP; r += 2, pair += s->block) {
            const void *a = r < n ? from + r * row_bytes : (const char *)no_row;
            const void *b = r + 1 < n ? from + (r + 1) * row_bytes : (const char *)no_row;
            if (s->from_half) {
                pair_half(a, b, cols, pair);
            } else {
                pair_round(a, b, cols, pair);
            }
            memset(pair + cols, 0, (size_t)(s->block - cols) * sizeof *pair);
        }
    }
}

// ---- all of it ----------------------------------------------------------------------------------
void td_pack_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to) {
    if (s->panels) {
        td_panel_strip(s, from, i, to);
        return;
    }
    const int64_t row_bytes = s->cols * (s->from_half ? 2 : 4), row = i * STRIP;
    const int64_t left = TD_MIN(s->rows - row, (int64_t)STRIP);
    const char *first = (const char *)from + row * row_bytes;
    uint32_t *place = (uint32_t *)to;
    if (s->pairs_rows) {
        place += row / 2 / PAIRS * s->row_block + row / 2 % PAIRS * s->block;
        strip_pairs(s, first, left, place);
        return;
    }
    place += row / s->block * s->row_block + row % s->block;
    if (left < STRIP) {
        strip_short(s, first, left, place);
    } else {
        strip(s, first, row_bytes, s->cols / COLS, place);
    }
}

static void pack_range(const void *arg, int64_t begin, int64_t end) {
    const struct pack_arg *a = arg;
    for (int64_t i = begin; i < end; i++) {
        td_pack_strip(a->s, a->from, i, a->to);
    }
}

void td_pack_rows(const struct td_pack_shape *s, const void *from, void *to) {
    struct pack_arg a = {s, from, to};
    const int64_t high = s->pairs_rows                            ? 2 * PAIRS
                         : s->panels == TD_PACK_PANELS_OF_COLUMNS ? STRIP
                                                                  : s->block; // a block's rows
    int64_t strips = (s->rows + high - 1) / high * (high / STRIP);
    td_parallel_units(td_parallel_threads(), strips, s->rows * s->cols, pack_range, &a);
}
