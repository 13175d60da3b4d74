// The loss of classes: softmax_ce with its gradient, rows of it for others (softmax_ce.h),
// count_correct and count_labels.
//
// A row's target logit is read before the gradient overwrites the row, because both may share
// memory. A row of another type than f32 passes through two rows of scratch that belong to its
// range. The rows' losses are added in order, so the mean does not depend on the threads.

#include "accelerators/cpu/kernels/softmax_ce.h"

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"
#include "accelerators/reference/node.h"

enum { GRAIN = 8192, CHUNK = 512 };

static float row_max(const float *x, int64_t n) {
    float best = x[0];
#pragma omp simd reduction(max : best)
    for (int64_t i = 1; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

// d = exp(x - top); gives the sum. A vocabulary is summed in pieces, or fp32 would lose digits.
static float exp_sum(const float *x, float top, int64_t n, float *d) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = vm_exp(x[i] - top);
        d[i] = e;
        sum += e;
    }
    return sum;
}

static void scale_row(float *d, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++) {
        d[i] *= by;
    }
}

static float ce_row(const float *x, int32_t label, float *d, int64_t cols, float share) {
    float target = x[label], top = row_max(x, cols);
    double sum = 0;
    for (int64_t i = 0; i < cols; i += CHUNK) {
        sum += (double)exp_sum(x + i, top, TD_MIN(cols - i, (int64_t)CHUNK), d + i);
    }
    scale_row(d, cols, (float)(1.0 / sum) * share);
    d[label] -= share;
    return (float)(log(sum) - (double)(target - top));
}

// The sum of w (x - top); w NULL: of x - top. A class without weight may be infinitely far away.
static float weighted_difference_sum(const float *x, const float *w, float top, int64_t n) {
    float sum = 0;
    if (!w) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            sum += x[i] - top;
        }
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += w[i] != 0 ? w[i] * (x[i] - top) : 0;
    }
    return sum;
}

// d = by d - less w; w NULL: ones
static void scale_subtract(float *d, const float *w, int64_t n, float by, float less) {
    if (!w) {
        for (int64_t i = 0; i < n; i++) {
            d[i] = d[i] * by - less;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        d[i] = d[i] * by - less * w[i];
    }
}

// With class weights or smoothing the row's target is a distribution t (kernels_loss.c of the
// reference), a share of each class and the label's own. The gradient is p times the sum of t, less
// t. `all` is the sum of the weights of all classes.
static float ce_row_of_distribution(const struct td_softmax_ce *a, double all, int32_t label,
                                    const float *x, float *d) {
    const float *w = a->weight;
    double spread = (double)a->smoothing / (double)a->cols, sum = 0, picked = 0;
    double own = (1 - (double)a->smoothing) * (w ? (double)w[label] : 1);
    double total = spread * all + own;
    float top = row_max(x, a->cols), target = x[label];
    for (int64_t i = 0; i < a->cols; i += CHUNK) {
        int64_t n = TD_MIN(a->cols - i, (int64_t)CHUNK);
        if (spread > 0) picked += (double)weighted_difference_sum(x + i, w ? w + i : NULL, top, n);
        sum += (double)exp_sum(x + i, top, n, d + i);
    }
    scale_subtract(d, w, a->cols, (float)(total / sum) * a->share, (float)spread * a->share);
    d[label] -= (float)own * a->share;
    picked *= spread;
    if (own > 0) picked += own * (double)(target - top);
    return (float)(total * log(sum) - picked);
}

static bool any_greater(const float *x, int64_t n, float least) {
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        found |= x[i] > least;
    }
    return found;
}

static bool any_greater_equal(const float *x, int64_t n, float least) {
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        found |= x[i] >= least;
    }
    return found;
}

// Would a search for the largest, from the front, find the label? Mostly known after a piece.
static bool is_argmax(const float *x, int32_t label, int64_t cols) {
    if (label < 0 || label >= cols || (label && (isnan(x[0]) || isnan(x[label])))) return false;
    for (int64_t i = 0; i < label; i += CHUNK) {
        if (any_greater_equal(x + i, TD_MIN(label - i, (int64_t)CHUNK), x[label])) return false;
    }
    for (int64_t i = label + 1; i < cols; i += CHUNK) {
        if (any_greater(x + i, TD_MIN(cols - i, (int64_t)CHUNK), x[label])) return false;
    }
    return true;
}

static bool counts(const struct td_attrs *a, int32_t label) {
    return !a->ignores || label != a->ignore_index;
}

static double sum_of_weights(const struct td_softmax_ce *a) {
    double sum = 0;
    if (!a->weight) return (double)a->cols;
    for (int64_t i = 0; i < a->cols; i++) {
        sum += (double)a->weight[i];
    }
    return sum;
}

static void ce_rows(const void *arg, int64_t begin, int64_t end) {
    const struct td_softmax_ce *a = arg;
    float *buffer = a->buffer ? a->buffer + td_parallel_index() * 2 * a->cols : NULL;
    float *result = buffer ? buffer + a->cols : NULL;
    bool plain = !a->weight && !(a->smoothing > 0);
    double all = plain ? 0 : sum_of_weights(a);
    for (int64_t i = begin; i < end; i++) {
        float *d = td_cpu_result(a->type, a->d, i * a->cols, result);
        const float *x = td_cpu_row(a->type, a->logits, i * a->cols, a->cols, buffer);
        bool counted = counts(a->attrs, a->label[i]);
        if (a->row_right) a->row_right[i] = counted && is_argmax(x, a->label[i], a->cols);
        if (!counted) {
            memset(d, 0, (size_t)a->cols * sizeof *d);
            a->row_loss[i] = 0;
        } else if (!plain) {
            a->row_loss[i] = ce_row_of_distribution(a, all, a->label[i], x, d);
        } else {
            a->row_loss[i] = ce_row(x, a->label[i], d, a->cols, a->share);
        }
        td_cpu_put(a->type, d, a->cols, a->d, i * a->cols);
    }
}

size_t td_softmax_ce_buffer_bytes(enum td_dtype type, int64_t cols, int32_t n_threads) {
    return type == TD_F32 ? 0 : (size_t)(2 * cols * n_threads) * sizeof(float);
}

td_status td_softmax_ce_sum_weights(const struct td_softmax_ce *a, double *out_sum) {
    double sum = 0;
    for (int64_t i = 0; i < a->rows; i++) {
        int32_t label = a->label[i];
        if (!counts(a->attrs, label)) continue;
        if (label < 0 || label >= a->cols) {
            return td_ref_no_index("label", label, i, a->cols, "classes");
        }
        sum += a->weight ? (double)a->weight[label] : 1;
    }
    *out_sum = sum;
    return TD_OK;
}

void td_softmax_ce_rows(const struct td_softmax_ce *a, int32_t n_threads) {
    td_parallel(n_threads, a->rows, GRAIN / TD_MAX(a->cols, 1) + 1, ce_rows, a);
}

float td_softmax_ce_count_correct(const uint8_t *row_right, int64_t rows) {
    int64_t right = 0;
    for (int64_t i = 0; i < rows; i++) {
        right += row_right[i];
    }
    return (float)right;
}

float td_softmax_ce_mean(const float *row_loss, int64_t rows, double weights) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        sum += (double)row_loss[i];
    }
    return (float)(weights > 0 ? sum / weights : sum);
}

static td_status run_softmax_ce(const struct td_kernel *k, const struct td_run *r) {
    struct td_softmax_ce a = {
        .logits = td_operand_at(&k->in[0], r),
        .type = k->in_dtype[0],
        .label = td_operand_at(&k->in[1], r),
        .weight = k->n_in > 2 ? td_operand_at(&k->in[2], r) : NULL,
        .d = td_operand_at(&k->out[1], r),
        .row_loss = r->scratch,
        .rows = k->rows,
        .cols = k->cols,
        .smoothing = (float)k->attrs.label_smoothing,
        .attrs = &k->attrs,
    };
    if (a.type != TD_F32) a.buffer = a.row_loss + k->rows;
    double weights = 0;
    TD_TRY(td_softmax_ce_sum_weights(&a, &weights));
    a.share = weights > 0 ? (float)(1 / weights) : 0;
    td_softmax_ce_rows(&a, k->n_threads);
    *(float *)td_operand_at(&k->out[0], r) = td_softmax_ce_mean(a.row_loss, k->rows, weights);
    return TD_OK;
}

static td_status run_count_correct(const struct td_kernel *k, const struct td_run *r) {
    const void *logits = td_operand_at(&k->in[0], r);
    const int32_t *label = td_operand_at(&k->in[1], r);
    const struct td_softmax_ce all = {
        .label = label, .rows = k->rows, .cols = k->cols, .attrs = &k->attrs};
    int64_t right = 0;
    double weights;
    TD_TRY(td_softmax_ce_sum_weights(&all, &weights));
    for (int64_t i = 0; i < k->rows; i++) {
        const float *x = td_cpu_row(k->in_dtype[0], logits, i * k->cols, k->cols, r->scratch);
        right += counts(&k->attrs, label[i]) && is_argmax(x, label[i], k->cols);
    }
    *(float *)td_operand_at(&k->out[0], r) = (float)right;
    return TD_OK;
}

static int64_t count_same_sign(const float *x, const float *t, int64_t n) {
    int64_t right = 0;
    for (int64_t i = 0; i < n; i++) {
        right += (x[i] > 0) == (t[i] > 0.5f);
    }
    return right;
}

static td_status run_count_correct_binary(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->in[0], r), *t = td_operand_at(&k->in[1], r);
    int64_t n = td_shape_elems(&k->shape[0]), right = 0;
    float buffer[2][CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t some = TD_MIN(n - at, (int64_t)CHUNK);
        right += count_same_sign(td_cpu_row(k->in_dtype[0], x, at, some, buffer[0]),
                                 td_cpu_row(k->in_dtype[1], t, at, some, buffer[1]), some);
    }
    *(float *)td_operand_at(&k->out[0], r) = (float)right;
    return TD_OK;
}

static td_status run_count_labels(const struct td_kernel *k, const struct td_run *r) {
    const struct td_softmax_ce a = {
        .label = td_operand_at(&k->in[0], r),
        .weight = k->n_in > 1 ? td_operand_at(&k->in[1], r) : NULL,
        .rows = td_shape_elems(&k->shape[0]),
        .cols = k->n_in > 1 ? td_shape_elems(&k->shape[1]) : INT64_MAX,
        .attrs = &k->attrs,
    };
    double sum = 0;
    TD_TRY(td_softmax_ce_sum_weights(&a, &sum));
    *(float *)td_operand_at(&k->out[0], r) = (float)sum;
    return TD_OK;
}

static td_kernel_fn *counter_of(const struct td_kernel *k) {
    bool narrow = td_cpu_is_narrow(k->in_dtype[0]), f32 = k->out_dtype[0] == TD_F32;
    if (td_kernel_is(k, "count_labels")) {
        return f32 && (k->n_in < 2 || k->in_dtype[1] == TD_F32) ? run_count_labels : NULL;
    }
    if (!td_kernel_is(k, "count_correct") || !narrow) return NULL;
    return k->in_dtype[1] == TD_I32           ? run_count_correct
           : td_cpu_is_narrow(k->in_dtype[1]) ? run_count_correct_binary
                                              : NULL;
}

td_status td_kernel_softmax_ce(struct td_kernel *k) {
    k->run = counter_of(k);
    size_t buffer = td_softmax_ce_buffer_bytes(k->in_dtype[0], k->cols, k->n_threads);
    if (k->run == run_count_correct) k->scratch_bytes = buffer;
    if (!td_kernel_is(k, "softmax_ce")) return TD_OK;
    bool fits = td_cpu_is_narrow(k->in_dtype[0]) && k->in_dtype[1] == TD_I32 &&
                (k->n_in < 3 || k->in_dtype[2] == TD_F32) && k->out_dtype[0] == TD_F32;
    if (!fits) return TD_OK;
    k->run = run_softmax_ce;
    k->scratch_bytes = (size_t)k->rows * sizeof(float) + buffer;
    return TD_OK;
}
