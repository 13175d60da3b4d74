// Products of a matrix and thin factors; contract in low_rank_loops.h. They read the matrix from
// memory three times a step, which is what their time is: with a rank of a few the factors stay in
// the caches.

#include "comm_hooks/low_rank_loops.h"

#include <string.h>

enum { LANES = 16 };

static void add(float *restrict m, const float *restrict e, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        m[i] += e[i];
    }
}

static float dot(const float *restrict a, const float *restrict b, int64_t n) {
    float sum[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            sum[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < n; i++) {
        rest += a[i] * b[i];
    }
    for (int half = LANES / 2; half; half /= 2) {
        for (int j = 0; j < half; j++) {
            sum[j] += sum[j + half];
        }
    }
    return sum[0] + rest;
}

static void axpy(float *restrict y, const float *restrict x, int64_t n, float a) {
    for (int64_t i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

static void left(const float *m, int64_t rows, int64_t cols, const float *q, int64_t rank,
                 float *p) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < rank; k++) {
            p[k * rows + i] = dot(m + i * cols, q + k * cols, cols);
        }
    }
}

static void right(const float *m, int64_t rows, int64_t cols, const float *p, int64_t rank,
                  float *q) {
    memset(q, 0, (size_t)(rank * cols) * sizeof *q);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < rank; k++) {
            axpy(q + k * cols, m + i * cols, cols, p[k * rows + i]);
        }
    }
}

static void expand_row(float *restrict row, int64_t cols, const float *restrict q, float p,
                       bool first) {
    for (int64_t j = 0; j < cols; j++) {
        row[j] = first ? p * q[j] : row[j] + p * q[j];
    }
}

static void take_away(float *restrict error, const float *restrict row, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        error[j] -= row[j];
    }
}

static void expand(float *m, int64_t rows, int64_t cols, const float *p, const float *q,
                   int64_t rank, float *error) {
    for (int64_t i = 0; i < rows; i++) {
        float *row = m + i * cols;
        if (error) memcpy(error + i * cols, row, (size_t)cols * sizeof *row);
        for (int64_t k = 0; k < rank; k++) {
            expand_row(row, cols, q + k * cols, p[k * rows + i], k == 0);
        }
        if (error) take_away(error + i * cols, row, cols);
    }
}

const struct td_low_rank_loops TD_LEVELED(td_low_rank_loops) = {
    .add = add,
    .left = left,
    .right = right,
    .expand = expand,
};
