// Small matrix products in plain C: 4 rows of A by up to 64 columns of B are kept in registers, as
// vectors that the compiler maps to the clone's own (16 AVX-512 registers, 200 to 220 GF/s a core
// where the hardware's best is 260). The inner dimension is cut so that a panel of B stays in L1.

#include "accelerators/cpu/kernels/tile.h"

#include "lib/base/base.h"

// Sixteen floats, wherever they lie.
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));

enum { MR = TD_TILE_M, K_AT_ONCE = 128 };

// One block of C: MR rows, NV vectors. t's pointers are at the block.
#define BLOCK(NV)                                                                                  \
    static void block_##NV(const struct td_tile *t) {                                              \
        const int64_t a_row = t->a_row, a_col = t->a_col;                                          \
        v16 sum[MR][NV];                                                                           \
        for (int i = 0; i < MR; i++) {                                                             \
            for (int j = 0; j < NV; j++) {                                                         \
                sum[i][j] = t->add ? *(const v16 *)(t->c + i * t->c_row + j * 16) : (v16){0};      \
            }                                                                                      \
        }                                                                                          \
        const float *a = t->a, *b = t->b;                                                          \
        for (int64_t p = 0; p < t->k; p++, a += a_col, b += t->b_row) {                            \
            v16 row[NV];                                                                           \
            for (int j = 0; j < NV; j++) {                                                         \
                row[j] = *(const v16 *)(b + j * 16);                                               \
            }                                                                                      \
            for (int i = 0; i < MR; i++) {                                                         \
                float x = a[i * a_row];                                                            \
                for (int j = 0; j < NV; j++) {                                                     \
                    sum[i][j] += row[j] * x;                                                       \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < MR; i++) {                                                             \
            for (int j = 0; j < NV; j++) {                                                         \
                *(v16 *)(t->c + i * t->c_row + j * 16) = sum[i][j];                                \
            }                                                                                      \
        }                                                                                          \
    }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)

// A panel of B by all rows of A.
static void panel(const struct td_tile *t, int64_t vectors) {
    static void (*const block[])(const struct td_tile *t) = {block_1, block_2, block_3, block_4};
    struct td_tile part = *t;
    for (int64_t i = 0; i < t->m; i += MR) {
        part.a = t->a + i * t->a_row;
        part.c = t->c + i * t->c_row;
        block[vectors - 1](&part);
    }
}

void td_tile_product(const struct td_tile *t) {
    for (int64_t p = 0; p < t->k || p == 0; p += K_AT_ONCE) {
        struct td_tile part = *t;
        part.k = TD_MIN(t->k - p, (int64_t)K_AT_ONCE);
        part.a = t->a + p * t->a_col;
        part.add = t->add || p > 0;
        for (int64_t j = 0; j < t->n; j += TD_TILE_PANEL) {
            part.b = t->b + p * t->b_row + j / TD_TILE_PANEL * t->b_panel;
            part.c = t->c + j;
            panel(&part, TD_MIN(t->n - j, (int64_t)TD_TILE_PANEL) / TD_TILE_N);
        }
    }
}

// Sixteen columns of y's rows at a time: whole cache lines are written.
static void transpose_16(const float *x, int64_t x_row, int64_t cols, float *y, int64_t y_row) {
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = 0; r < 16; r++) {
            y[c * y_row + r] = x[r * x_row + c];
        }
    }
}

void td_tile_transpose(const float *x, int64_t x_row, int64_t rows, int64_t cols, float *y,
                       int64_t y_row) {
    int64_t r = 0;
    for (; r + 16 <= rows; r += 16) {
        transpose_16(x + r * x_row, x_row, cols, y + r, y_row);
    }
    for (; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            y[c * y_row + r] = x[r * x_row + c];
        }
    }
}
