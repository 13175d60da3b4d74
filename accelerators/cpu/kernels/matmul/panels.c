// Panels of weights for the accelerator's own products; contract in pack.h and matmul.h.
//
// A panel holds `block` columns of the second operand, row after row, as fp32. Of weights stored as
// that operand (in, out) a row is cut into the panels. Of weights stored transposed (out, in), as
// most are, `block` rows become a panel, which is their transpose, made in tiles of eight by eight.
// Values pass through the type that the product is of, so a mixed precision multiplies by what a
// cast would have given.

#include "accelerators/cpu/kernels/matmul/panels.h"

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/shuffle.h"
#include "lib/base/base.h"
#include "lib/base/floats/half.h"

enum { SIDE = 8, SOME = 256 };

typedef float floats __attribute__((vector_size(SIDE * sizeof(float))));

static void round_to(enum td_dtype t, const float *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n && t == TD_BF16; i++) {
        y[i] = td_f32_of_bf16(td_bf16_of_f32(x[i]));
    }
    for (int64_t i = 0; i < n && t == TD_F16; i++) {
        y[i] = td_f32_of_f16(td_f16_of_f32(x[i]));
    }
}

const float *td_panel_values(enum td_dtype from, enum td_dtype as, const void *x, int64_t at,
                             int64_t n, float *buffer) {
    if (from != TD_F32) {
        td_cpu_widen(from, td_cpu_at(from, x, at), n, buffer);
        return buffer;
    }
    if (as == TD_F32) return (const float *)x + at;
    round_to(as, (const float *)x + at, n, buffer);
    return buffer;
}

static const float *values_at(const struct td_pack_shape *s, const void *from, int64_t at,
                              int64_t n, float *buffer) {
    return td_panel_values(s->from, s->as, from, at, n, buffer);
}

// to (n, block) = transpose of eight rows of n floats.
static void transpose_8(const float *const row[SIDE], int64_t n, float *to, int64_t block) {
    int64_t c = 0;
    for (; c + SIDE <= n; c += SIDE) {
        floats a[SIDE], b[SIDE];
        for (int r = 0; r < SIDE; r++) {
            memcpy(&a[r], row[r] + c, sizeof *a);
        }
        TD_INTERLEAVE(a, b)
        TD_INTERLEAVE(b, a)
        TD_INTERLEAVE(a, b)
        for (int w = 0; w < SIDE; w++) {
            memcpy(to + (c + w) * block, &b[w], sizeof *b);
        }
    }
    for (; c < n; c++) {
        for (int r = 0; r < SIDE; r++) {
            to[c * block + r] = row[r][c];
        }
    }
}

// Rows [first, first + SIDE) of a panel of rows; of those past the weights' last, zeroes.
static void eight_rows(const struct td_pack_shape *s, const void *from, int64_t first, float *to) {
    static const float nothing[SOME];
    float buffer[SIDE][SOME];
    for (int64_t c = 0; c < s->cols; c += SOME) {
        const int64_t n = TD_MIN(s->cols - c, (int64_t)SOME);
        const float *row[SIDE];
        for (int r = 0; r < SIDE; r++) {
            bool there = first + r < s->rows;
            row[r] = there ? values_at(s, from, (first + r) * s->cols + c, n, buffer[r]) : nothing;
        }
        transpose_8(row, n, to + c * s->block, s->block);
    }
}

// A row of weights cut into the panels of columns.
static void cut_row(const struct td_pack_shape *s, const void *from, int64_t row, float *to) {
    float buffer[SOME];
    for (int64_t c = 0; c < s->cols; c += SOME) { // SOME: whole panels
        const int64_t n = TD_MIN(s->cols - c, (int64_t)SOME);
        const float *x = values_at(s, from, row * s->cols + c, n, buffer);
        float *panel = to + c / s->block * s->col_block + row * s->block;
        int64_t j = 0;
        for (; j + s->block <= n; j += s->block, panel += s->col_block) {
            memcpy(panel, x + j, (size_t)s->block * sizeof *x);
        }
        if (j == n) continue;
        memcpy(panel, x + j, (size_t)(n - j) * sizeof *x);
        memset(panel + (n - j), 0, (size_t)(s->block - (n - j)) * sizeof *x);
    }
}

void td_panel_strip(const struct td_pack_shape *s, const void *from, int64_t i, void *to) {
    const int64_t first = i * TD_PACK_STRIP, past = first + TD_PACK_STRIP;
    if (s->panels == TD_PACK_PANELS_OF_ROWS) {
        for (int64_t r = first; r < past; r += SIDE) {
            float *panel = (float *)to + r / s->block * s->row_block + r % s->block;
            eight_rows(s, from, r, panel);
        }
        return;
    }
    for (int64_t r = first; r < TD_MIN(past, s->rows); r++) {
        cut_row(s, from, r, to);
    }
}
