#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_TILE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_MATMUL_TILE_H

// Matrix products of one thread, on operands that its caches hold. Kernels are built from them that
// call many small products inside their own parallel loop (attention), where a library's call and
// packing would cost as much as the product. fp32.

#include <stdbool.h>
#include <stdint.h>

// What a matrix is padded to, and the columns of a panel of B: what a block of the level's
// registers takes, of TD_TILE_VECTOR floats each. Of 32 registers a block of 4x64 takes 16 for its
// sums, 4 for a row of B; of 16, one of 6x16 or 6x8 takes 12 and 2.
#if defined(__AVX512F__)
enum { TD_TILE_VECTOR = 16, TD_TILE_PANEL = 64, TD_TILE_N = 16 };
#elif defined(__AVX2__)
enum { TD_TILE_VECTOR = 8, TD_TILE_PANEL = 16, TD_TILE_N = 16 };
#else
enum { TD_TILE_VECTOR = 4, TD_TILE_PANEL = 8, TD_TILE_N = 8 };
#endif
enum { TD_TILE_M = 4 };

// C (m,n) = A (m,k) B (k,n), or C += with add. Element (i,p) of A is a[i * a_row + p * a_col], so A
// may be a transpose. Rows of C are contiguous, and those of B in panels of TD_TILE_PANEL columns,
// which are b_panel apart (TD_TILE_PANEL: B is one matrix). m a multiple of TD_TILE_M, n of
// TD_TILE_N: what is computed beyond a matrix goes into the padding of C, from the padding of A and
// B.
struct td_tile {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t b_row, b_panel;
    float *c;
    int64_t c_row;
    bool add;
};
void td_tile_product(const struct td_tile *t);

// y (cols, rows with y_row apart) = transpose of x (rows, cols with x_row apart).
void td_tile_transpose(const float *x, int64_t x_row, int64_t rows, int64_t cols, float *y,
                       int64_t y_row);

#endif
