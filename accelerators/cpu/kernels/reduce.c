// Reductions: reduce_sum, mean, sum_squares, all_finite, clip_coef.
//
// Every sum has one fixed order for a given number of threads: a range keeps its partial result in
// double precision and the partials are added in range order.

#include "accelerators/cpu/kernels/reduce.h"

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

enum { COLUMN_GRAIN = 64, CHUNK = 512, ROWS = 8, COLUMNS = 2048 };

// ---- reduce_sum ---------------------------------------------------------------------------------
// y += eight rows of x, one after the other: the same bits as by eight sums, and y passes through
// the registers once.
#define ADD_ROWS(name, type, value)                                                                \
    static void name(float *restrict y, const type *restrict x, int64_t stride, int64_t rows,      \
                     int64_t n) {                                                                  \
        for (; rows >= ROWS; rows -= ROWS, x += ROWS * stride) {                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                float sum = y[i];                                                                  \
                for (int r = 0; r < ROWS; r++) {                                                   \
                    sum += value(x[r * stride + i]);                                               \
                }                                                                                  \
                y[i] = sum;                                                                        \
            }                                                                                      \
        }                                                                                          \
        for (; rows > 0; rows--, x += stride) {                                                    \
            for (int64_t i = 0; i < n; i++) {                                                      \
                y[i] += value(x[i]);                                                               \
            }                                                                                      \
        }                                                                                          \
    }
ADD_ROWS(add_f32, float, )
ADD_ROWS(add_bf16, uint16_t, td_f32_of_bf16)
ADD_ROWS(add_f16, uint16_t, td_f32_of_f16)

static void columns_range(const void *arg, int64_t begin, int64_t end) {
    const struct td_columns *a = arg;
    float sum[COLUMNS];
    for (int64_t at = begin; at < end; at += COLUMNS) {
        int64_t n = TD_MIN((int64_t)COLUMNS, end - at);
        float *y = td_cpu_result(a->to, a->y, at, sum);
        const void *x = td_cpu_at(a->from, a->x, at);
        if (!a->accumulate) memset(y, 0, (size_t)n * sizeof *y);
        if (a->accumulate && y == sum) td_cpu_widen(a->to, td_cpu_at(a->to, a->y, at), n, sum);
        if (a->from == TD_F32) {
            add_f32(y, x, a->cols, a->rows, n);
        } else if (a->from == TD_BF16) {
            add_bf16(y, x, a->cols, a->rows, n);
        } else {
            add_f16(y, x, a->cols, a->rows, n);
        }
        td_cpu_put(a->to, sum, n, a->y, at);
    }
}

void td_columns_sum(const struct td_columns *a, int32_t n_threads) {
    td_parallel(n_threads, a->cols, COLUMN_GRAIN, columns_range, a);
}

// Any broadcast's gradient: each element of x belongs to one element of y.
static void reduce_any(const struct td_kernel *k, const float *x, float *y) {
    const struct td_shape *from = &k->shape[0], *to = &k->out_shape;
    int64_t stride[TD_MAX_DIMS] = {0}, at[TD_MAX_DIMS] = {0}, run = 1;
    for (int i = from->n_dims - 1, j = to->n_dims - 1; i >= 0 && j >= 0; i--, j--) {
        stride[i] = to->dim[j] == 1 ? 0 : run;
        run *= to->dim[j];
    }
    int64_t n = td_shape_elems(from);
    if (!k->attrs.accumulate) memset(y, 0, (size_t)k->elems * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        int64_t iy = 0;
        for (int d = 0; d < from->n_dims; d++) {
            iy += at[d] * stride[d];
        }
        y[iy] += x[i];
        for (int d = from->n_dims - 1; d >= 0 && ++at[d] == from->dim[d]; d--) {
            at[d] = 0;
        }
    }
}

static bool sums_columns(const struct td_kernel *k) {
    return k->out_shape.n_dims == 1 && k->out_shape.dim[0] == k->cols && k->cols > 1;
}

static td_status run_reduce_sum(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->in[0], r);
    void *y = td_operand_at(&k->out[0], r);
    if (!sums_columns(k)) {
        reduce_any(k, x, y);
        return TD_OK;
    }
    struct td_columns a = {x,       y,       k->in_dtype[0],     k->out_dtype[0],
                           k->rows, k->cols, k->attrs.accumulate};
    td_columns_sum(&a, k->n_threads);
    return TD_OK;
}

static td_status run_reduce_mean(const struct td_kernel *k, const struct td_run *r) {
    float *y = td_operand_at(&k->out[0], r);
    float scale = (float)((double)k->elems / (double)td_shape_elems(&k->shape[0]));
    TD_TRY(run_reduce_sum(k, r));
    for (int64_t i = 0; i < k->elems; i++) {
        y[i] *= scale;
    }
    return TD_OK;
}

// ---- to a scalar --------------------------------------------------------------------------------
static double sum_of(const float *x, int64_t n) {
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int l = 0; l < 8; l++) {
            lane[l] += (double)x[i + l];
        }
    }
    double rest = 0;
    for (; i < n; i++) {
        rest += (double)x[i];
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7])) + rest;
}

static double squares_of(const float *x, int64_t n) {
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int l = 0; l < 8; l++) {
            lane[l] += (double)x[i + l] * (double)x[i + l];
        }
    }
    double rest = 0;
    for (; i < n; i++) {
        rest += (double)x[i] * (double)x[i];
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7])) + rest;
}

// An exponent of all ones is an infinity or a NaN; integers keep the test out of reach of any
// floating point mode.
static uint32_t nonfinite_in(const uint32_t *bits, int64_t n) {
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        found |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    }
    return found;
}

static td_status run_mean(const struct td_kernel *k, const struct td_run *r) {
    int64_t n = td_shape_elems(&k->shape[0]);
    float buffer[CHUNK];
    double sum = 0;
    const void *x = td_operand_at(&k->in[0], r);
    int64_t step = k->in_dtype[0] == TD_F32 ? TD_MAX(n, 1) : CHUNK;
    for (int64_t at = 0; at < n; at += step) {
        int64_t some = TD_MIN(step, n - at);
        sum += sum_of(td_cpu_row(k->in_dtype[0], x, at, some, buffer), some);
    }
    *(float *)td_operand_at(&k->out[0], r) = n ? (float)(sum / (double)n) : 0;
    return TD_OK;
}

struct squares_arg {
    const void *x;
    enum td_dtype type;
    double *partial; // one a block
    int64_t n;
};

// Blocks of a fixed size, so that the sum does not even depend on the number of threads.
enum { SQUARES_BLOCK = 16384 };

static void squares_range(const void *arg, int64_t begin, int64_t end) {
    const struct squares_arg *a = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * SQUARES_BLOCK, last = TD_MIN(a->n, first + SQUARES_BLOCK);
        int64_t step = a->type == TD_F32 ? SQUARES_BLOCK : CHUNK;
        float buffer[CHUNK];
        a->partial[i] = 0;
        for (int64_t at = first; at < last; at += step) {
            int64_t n = TD_MIN(step, last - at);
            a->partial[i] += squares_of(td_cpu_row(a->type, a->x, at, n, buffer), n);
        }
    }
}

static td_status run_sum_squares(const struct td_kernel *k, const struct td_run *r) {
    double sum = 0;
    for (uint32_t i = 0; i < k->n_in; i++) {
        enum { AT_ONCE = 64 };
        double partial[AT_ONCE];
        const char *x = td_operand_at(&k->in[i], r);
        enum td_dtype t = k->in_dtype[i];
        int64_t elems = td_shape_elems(&k->shape[i]);
        int64_t step = (int64_t)AT_ONCE * SQUARES_BLOCK;
        for (int64_t at = 0; at < elems; at += step) {
            int64_t n = TD_MIN(step, elems - at);
            int64_t blocks = (n + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
            struct squares_arg a = {x + at * (int64_t)td_dtype_bytes(t), t, partial, n};
            td_parallel(k->n_threads, blocks, 2, squares_range, &a);
            for (int64_t b = 0; b < blocks; b++) {
                sum += partial[b];
            }
        }
    }
    void *y = td_operand_at(&k->out[0], r);
    if (k->attrs.wide) {
        *(double *)y = sum;
    } else {
        *(float *)y = (float)sum;
    }
    return TD_OK;
}

static td_status run_all_finite(const struct td_kernel *k, const struct td_run *r) {
    uint32_t bad = 0, bits[CHUNK];
    for (uint32_t i = 0; i < k->n_in; i++) {
        const void *x = td_operand_at(&k->in[i], r);
        int64_t elems = td_shape_elems(&k->shape[i]);
        if (k->in_dtype[i] == TD_F32) {
            bad |= nonfinite_in(x, elems);
            continue;
        }
        for (int64_t at = 0; at < elems; at += CHUNK) {
            int64_t n = TD_MIN((int64_t)CHUNK, elems - at);
            float buffer[CHUNK];
            td_cpu_widen(k->in_dtype[i], td_cpu_at(k->in_dtype[i], x, at), n, buffer);
            memcpy(bits, buffer, (size_t)n * sizeof *bits);
            bad |= nonfinite_in(bits, n);
        }
    }
    *(float *)td_operand_at(&k->out[0], r) = bad ? 0 : 1;
    return TD_OK;
}

static td_status run_clip_coef(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->in[0], r);
    double squares = k->in_dtype[0] == TD_F64 ? *(const double *)x : (double)*(const float *)x;
    double coef = k->attrs.max_norm / (sqrt(squares) + 1e-6);
    *(float *)td_operand_at(&k->out[0], r) = coef > 1 ? 1 : (float)coef; // a NaN stays one
    return TD_OK;
}

// Scalars and what is not summed in columns are f32, a norm's square also f64; the rest is narrow.
static bool types_fit(const struct td_kernel *k) {
    if (td_kernel_is(k, "clip_coef")) {
        return (k->in_dtype[0] == TD_F32 || k->in_dtype[0] == TD_F64) && k->out_dtype[0] == TD_F32;
    }
    bool many = td_kernel_is(k, "sum_squares") || td_kernel_is(k, "all_finite");
    bool columns = td_kernel_is(k, "reduce_sum") && sums_columns(k);
    for (uint32_t i = 0; i < k->n_in; i++) {
        bool narrow = many || (i == 0 && (columns || td_kernel_is(k, "mean")));
        if (narrow ? !td_cpu_is_narrow(k->in_dtype[i]) : k->in_dtype[i] != TD_F32) return false;
    }
    bool wide = td_kernel_is(k, "sum_squares") && k->attrs.wide;
    return columns ? td_cpu_is_narrow(k->out_dtype[0])
                   : k->out_dtype[0] == (wide ? TD_F64 : TD_F32);
}

td_status td_kernel_reduce(struct td_kernel *k) {
    static const struct td_kernel_row table[] = {
        {"reduce_sum", run_reduce_sum},   {"mean", run_mean},
        {"sum_squares", run_sum_squares}, {"all_finite", run_all_finite},
        {"clip_coef", run_clip_coef},     {"reduce_mean", run_reduce_mean},
    };
    if (types_fit(k)) k->run = TD_KERNEL_OF(k, table);
    return TD_OK;
}
