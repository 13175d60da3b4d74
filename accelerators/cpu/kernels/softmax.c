// Softmax and log-softmax over the last axis, and their gradients, a row at a time in fp32.
// The formulas are the reference's (its kernels_nn.c). A row of another type than fp32 passes
// through two rows of scratch that belong to its range; results may overwrite operands.

#include <math.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"

enum { GRAIN = 4096, BUFFERS = 2 };

struct softmax {
    enum td_dtype type;
    bool log;
    const void *x, *dy; // gradient: x is the result
    void *y;
    int64_t cols;
    float *buffer; // BUFFERS rows a range
};

// Inlined, so that the loops around it are vectors as well.
__attribute__((always_inline)) static inline float row_max(const float *x, int64_t n) {
    float top = x[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

static void softmax_row(const float *x, int64_t n, float *y) {
    float top = row_max(x, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        y[i] = vm_exp(x[i] - top);
        sum += y[i];
    }
    const float share = 1 / sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] *= share;
    }
}

static void log_softmax_row(const float *x, int64_t n, float *y) {
    float top = row_max(x, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += vm_exp(x[i] - top);
    }
    const float log_sum = logf(sum);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] - top - log_sum;
    }
}

static void softmax_row_grad(const float *y, const float *dy, int64_t n, float *dx) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += y[i] * dy[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = y[i] * (dy[i] - sum);
    }
}

static void log_softmax_row_grad(const float *y, const float *dy, int64_t n, float *dx) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += dy[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] - vm_exp(y[i]) * sum;
    }
}

static void rows_range(const void *arg, int64_t begin, int64_t end) {
    const struct softmax *s = arg;
    float *buffer_x = s->buffer + td_parallel_index() * BUFFERS * s->cols,
          *buffer_y = buffer_x + s->cols;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * s->cols;
        const float *x = td_cpu_row(s->type, s->x, at, s->cols, buffer_x);
        float *y = td_cpu_result(s->type, s->y, at, buffer_x);
        if (s->dy) {
            const float *dy = td_cpu_row(s->type, s->dy, at, s->cols, buffer_y);
            (s->log ? log_softmax_row_grad : softmax_row_grad)(x, dy, s->cols, y);
        } else {
            (s->log ? log_softmax_row : softmax_row)(x, s->cols, y);
        }
        td_cpu_put(s->type, y, s->cols, s->y, at);
    }
}

static td_status run_softmax(const struct td_kernel *k, const struct td_run *r) {
    struct softmax s = {.type = k->in_dtype[0],
                        .log =
                            td_kernel_is(k, "log_softmax") || td_kernel_is(k, "log_softmax_grad"),
                        .x = td_operand_at(&k->in[0], r),
                        .dy = k->n_in > 1 ? td_operand_at(&k->in[1], r) : NULL,
                        .y = td_operand_at(&k->out[0], r),
                        .cols = k->cols,
                        .buffer = r->scratch};
    if (!k->elems) return TD_OK;
    td_parallel(k->n_threads, k->rows, GRAIN / k->cols + 1, rows_range, &s);
    return TD_OK;
}

td_status td_kernel_softmax(struct td_kernel *k) {
    bool ours = td_kernel_is(k, "softmax") || td_kernel_is(k, "softmax_grad") ||
                td_kernel_is(k, "log_softmax") || td_kernel_is(k, "log_softmax_grad");
    if (!ours || !td_kernel_narrow(k)) return TD_OK;
    k->run = run_softmax;
    k->scratch_bytes = (size_t)(k->n_threads * BUFFERS * k->cols) * sizeof(float);
    return TD_OK;
}
