// Small matrix products in plain C: a few rows of A by a panel of B are kept in registers, as
// vectors of the level's own width. Where there are 32 registers a block has 4 rows (200 to 220
// GF/s of one core with AVX-512 where the hardware's best is 260). Where there are 16, it has 6
// rows and two vectors: 4 rows would have too few sums to hide what a sum waits for. Rows are
// padded to fours, so the last blocks may have 4. The inner dimension is cut so that a panel of B
// stays in L1. Every sum runs over it in order, whatever the blocks: they do not change the bits.

#include "accelerators/cpu/kernels/matmul/tile.h"

#include "lib/base/machine/machine.h"

// A register of floats, wherever they are.
typedef float vec __attribute__((vector_size(TD_TILE_VECTOR * 4), aligned(4), may_alias));

enum { VEC = TD_TILE_VECTOR, K_AT_ONCE = 128 };
enum { MR = TD_TILE_M, MORE = 6 }; // rows of a block
// Floats of a cache line: the same at every CPU level, whose vectors are a line at most.
enum { LINE = TD_LINE_BYTES / sizeof(float) };

// One block of C: M rows, NV vectors. t's pointers are at the block.
#define BLOCK(M, NV)                                                                               \
    static void block_##M##_##NV(const struct td_tile *t) {                                        \
        const int64_t a_row = t->a_row, a_col = t->a_col;                                          \
        vec sum[M][NV];                                                                            \
        for (int i = 0; i < M; i++) {                                                              \
            for (int j = 0; j < NV; j++) {                                                         \
                sum[i][j] = t->add ? *(const vec *)(t->c + i * t->c_row + j * VEC) : (vec){0};     \
            }                                                                                      \
        }                                                                                          \
        const float *a = t->a, *b = t->b;                                                          \
        for (int64_t p = 0; p < t->k; p++, a += a_col, b += t->b_row) {                            \
            vec row[NV];                                                                           \
            for (int j = 0; j < NV; j++) {                                                         \
                row[j] = *(const vec *)(b + j * VEC);                                              \
            }                                                                                      \
            for (int i = 0; i < M; i++) {                                                          \
                float x = a[i * a_row];                                                            \
                for (int j = 0; j < NV; j++) {                                                     \
                    sum[i][j] += row[j] * x;                                                       \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < M; i++) {                                                              \
            for (int j = 0; j < NV; j++) {                                                         \
                *(vec *)(t->c + i * t->c_row + j * VEC) = sum[i][j];                               \
            }                                                                                      \
        }                                                                                          \
    }

typedef void block_fn(const struct td_tile *t);

static void rows(const struct td_tile *t, int64_t from, block_fn *block) {
    struct td_tile part = *t;
    part.a = t->a + from * t->a_row;
    part.c = t->c + from * t->c_row;
    block(&part);
}

// A panel of B, or what there is of the last one, by all rows of A.
#if defined(__AVX512F__)
BLOCK(4, 1)
BLOCK(4, 2)
BLOCK(4, 3)
BLOCK(4, 4)

static void panel(const struct td_tile *t, int64_t columns) {
    static block_fn *const blocks[] = {block_4_1, block_4_2, block_4_3, block_4_4};
    for (int64_t i = 0; i < t->m; i += MR) {
        rows(t, i, blocks[columns / VEC - 1]);
    }
}
#else
BLOCK(4, 2)
BLOCK(6, 2)

static void panel(const struct td_tile *t, int64_t columns) {
    TD_DCHECK(columns == TD_TILE_PANEL);
    (void)columns;
    // Rows left over by sixes are 2 or 4 or none, and 2 and 6 are two fours.
    const int64_t more = t->m % MORE == 2 ? t->m - MORE - 2 : t->m - t->m % MORE;
    int64_t i = 0;
    for (; i < more; i += MORE) {
        rows(t, i, block_6_2);
    }
    for (; i < t->m; i += MR) {
        rows(t, i, block_4_2);
    }
}
#endif

void td_tile_product(const struct td_tile *t) {
    for (int64_t p = 0; p < t->k || p == 0; p += K_AT_ONCE) {
        struct td_tile part = *t;
        part.k = TD_MIN(t->k - p, (int64_t)K_AT_ONCE);
        part.a = t->a + p * t->a_col;
        part.add = t->add || p > 0;
        for (int64_t j = 0; j < t->n; j += TD_TILE_PANEL) {
            part.b = t->b + p * t->b_row + j / TD_TILE_PANEL * t->b_panel;
            part.c = t->c + j;
            panel(&part, TD_MIN(t->n - j, (int64_t)TD_TILE_PANEL));
        }
    }
}

// A cache line of y's rows at a time: lines are written whole.
static void transpose_line(const float *x, int64_t x_row, int64_t cols, float *y, int64_t y_row) {
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = 0; r < LINE; r++) {
            y[c * y_row + r] = x[r * x_row + c];
        }
    }
}

void td_tile_transpose(const float *x, int64_t x_row, int64_t rows, int64_t cols, float *y,
                       int64_t y_row) {
    int64_t r = 0;
    for (; r + LINE <= rows; r += LINE) {
        transpose_line(x + r * x_row, x_row, cols, y + r, y_row);
    }
    for (; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            y[c * y_row + r] = x[r * x_row + c];
        }
    }
}
