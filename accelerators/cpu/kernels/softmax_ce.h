#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_SOFTMAX_CE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_SOFTMAX_CE_H

// Rows of cross entropy: what softmax_ce does to all of them at once, and a head (linear_ce.c) to a
// few at a time. The caller sums the weights of all labels first, because each row's share in the
// mean depends on them, and the rows' losses last.

#include "traind/graph.h"

struct td_softmax_ce {
    const void *logits; // (rows, cols)
    enum td_dtype type; // of logits and d
    const int32_t *label;
    const float *weight; // of each class, or NULL
    void *d;             // gradient of the logits; may be the logits
    float *row_loss;
    uint8_t *row_right; // 1: the label's logit is the row's (first) largest; or NULL
    float *buffer;      // td_softmax_ce_buffer_bytes
    int64_t rows, cols;
    float share; // of a row in the gradient of the mean
    float smoothing;
    const struct td_attrs *attrs;
};

size_t td_softmax_ce_buffer_bytes(enum td_dtype type, int64_t cols, int32_t n_threads);
// Checks the labels and sums the weights of those that count. INVALID_ARGUMENT (class data) names a
// label outside the classes.
TD_MUST_USE td_status td_softmax_ce_sum_weights(const struct td_softmax_ce *a, double *out_sum);
void td_softmax_ce_rows(const struct td_softmax_ce *a, int32_t n_threads);
float td_softmax_ce_count_correct(const uint8_t *row_right, int64_t rows);
float td_softmax_ce_mean(const float *row_loss, int64_t rows, double weights);

#endif
