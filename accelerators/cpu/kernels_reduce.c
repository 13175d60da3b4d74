// Reductions and the loss: softmax_ce, reduce_sum, mean, count_correct, sum_squares, all_finite,
// clip_coef.
//
// Every sum has one fixed order for a given number of threads: a range keeps its partial result in
// double precision and the partials are added in range order. softmax_ce reads a row's target
// logit before the gradient overwrites the row, because both may share memory.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/convert.h"
#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/vmath.h"

enum { GRAIN = 8192, COLUMN_GRAIN = 64, CHUNK = 512 };

// ---- softmax_ce ---------------------------------------------------------------------------------
struct loss_arg {
    const void *logits;
    enum td_dtype type; // of logits and d
    const int32_t *label;
    const float *weight; // of each class, or NULL
    void *d;
    float *row_loss;
    float *room; // two rows a thread, when the type is not f32
    int64_t cols;
    float share; // of a row in the mean
    float smoothing;
    const struct td_attrs *attrs;
};

TD_CLONES static float row_max(const float *x, int64_t n) {
    float best = x[0];
#pragma omp simd reduction(max : best)
    for (int64_t i = 1; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

// d = exp(x - top); gives the sum. A vocabulary is summed in pieces, or fp32 would lose digits.
TD_CLONES static float exponents(const float *x, float top, int64_t n, float *d) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = vm_exp(x[i] - top);
        d[i] = e;
        sum += e;
    }
    return sum;
}

TD_CLONES static void scale_row(float *d, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++) {
        d[i] *= by;
    }
}

static float loss_row(const float *x, int32_t label, float *d, int64_t cols, float share) {
    float target = x[label], top = row_max(x, cols);
    double sum = 0;
    for (int64_t i = 0; i < cols; i += CHUNK) {
        sum += (double)exponents(x + i, top, TD_MIN(cols - i, (int64_t)CHUNK), d + i);
    }
    scale_row(d, cols, (float)(1.0 / sum) * share);
    d[label] -= share;
    return (float)(log(sum) - (double)(target - top));
}

// With class weights or smoothing the row's target is a distribution t (kernels_loss.c of the
// reference): the gradient is p times the sum of t, less t.
static double target_of(const struct loss_arg *a, int64_t row, int64_t class) {
    double smoothing = (double)a->smoothing, t = smoothing / (double)a->cols;
    if (class == a->label[row]) t += 1 - smoothing;
    return a->weight ? t * (double)a->weight[class] : t;
}

static float target_row(const struct loss_arg *a, int64_t row, const float *x, float *d) {
    float top = row_max(x, a->cols);
    double sum = 0, total = 0, picked = 0;
    for (int64_t i = 0; i < a->cols; i++) {
        double t = target_of(a, row, i);
        if (t != 0) picked += t * (double)(x[i] - top);
        total += t;
        sum += (double)expf(x[i] - top);
    }
    float to_grad = (float)(total / sum) * a->share;
    for (int64_t i = 0; i < a->cols; i++) {
        float t = (float)target_of(a, row, i);
        d[i] = expf(x[i] - top) * to_grad - t * a->share;
    }
    return (float)(total * log(sum) - picked);
}

static bool counts(const struct td_attrs *a, int32_t label) {
    return !a->ignores || label != a->ignore_index;
}

static void loss_range(const void *arg, int64_t begin, int64_t end) {
    const struct loss_arg *a = arg;
    float *room = a->room ? a->room + td_parallel_index() * 2 * a->cols : NULL;
    float *result = room ? room + a->cols : NULL;
    for (int64_t i = begin; i < end; i++) {
        float *d = td_cpu_result(a->type, a->d, i * a->cols, result);
        const float *x = td_cpu_row(a->type, a->logits, i * a->cols, a->cols, room);
        if (!counts(a->attrs, a->label[i])) {
            memset(d, 0, (size_t)a->cols * sizeof *d);
            a->row_loss[i] = 0;
        } else if (a->weight || a->smoothing > 0) {
            a->row_loss[i] = target_row(a, i, x, d);
        } else {
            a->row_loss[i] = loss_row(x, a->label[i], d, a->cols, a->share);
        }
        td_cpu_put(a->type, d, a->cols, a->d, i * a->cols);
    }
}

// Checks the labels and sums the weights of those that count.
static td_status weigh_labels(const struct loss_arg *a, int64_t rows, double *out_sum) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        int32_t label = a->label[i];
        if (!counts(a->attrs, label)) continue;
        if (label < 0 || label >= a->cols) {
            return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                                "label %d of row %lld is outside the %lld classes",
                                                label, (long long)i, (long long)a->cols),
                                        TD_CLASS_DATA);
        }
        sum += a->weight ? (double)a->weight[label] : 1;
    }
    *out_sum = sum;
    return TD_OK;
}

static td_status run_softmax_ce(const struct td_kernel *k, const struct td_run *r) {
    struct loss_arg a = {
        .logits = td_operand_at(&k->in[0], r),
        .type = k->in_dtype[0],
        .label = td_operand_at(&k->in[1], r),
        .weight = k->n_in > 2 ? td_operand_at(&k->in[2], r) : NULL,
        .d = td_operand_at(&k->out[1], r),
        .row_loss = r->scratch,
        .cols = k->cols,
        .smoothing = (float)k->attrs.label_smoothing,
        .attrs = &k->attrs,
    };
    float *loss = td_operand_at(&k->out[0], r);
    if (a.type != TD_F32) a.room = a.row_loss + k->rows;
    double weights = 0, sum = 0;
    TD_TRY(weigh_labels(&a, k->rows, &weights));
    a.share = weights > 0 ? (float)(1 / weights) : 0;
    td_parallel(k->n_threads, k->rows, GRAIN / TD_MAX(k->cols, 1) + 1, loss_range, &a);
    for (int64_t i = 0; i < k->rows; i++) {
        sum += (double)a.row_loss[i];
    }
    *loss = weights > 0 ? (float)(sum / weights) : 0;
    return TD_OK;
}

static td_status run_count_correct(const struct td_kernel *k, const struct td_run *r) {
    const void *logits = td_operand_at(&k->in[0], r);
    const int32_t *label = td_operand_at(&k->in[1], r);
    int64_t right = 0;
    for (int64_t i = 0; i < k->rows; i++) {
        const float *x = td_cpu_row(k->in_dtype[0], logits, i * k->cols, k->cols, r->scratch);
        int64_t best = 0;
        for (int64_t j = 1; j < k->cols; j++) {
            if (x[j] > x[best]) best = j;
        }
        right += counts(&k->attrs, label[i]) && best == label[i];
    }
    *(float *)td_operand_at(&k->out[0], r) = (float)right;
    return TD_OK;
}

// ---- reduce_sum ---------------------------------------------------------------------------------
struct columns_arg {
    const void *x;
    void *y;
    enum td_dtype from, to;
    int64_t rows, cols;
    bool accumulate;
};

TD_CLONES static void add_to(float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void columns_range(const void *arg, int64_t begin, int64_t end) {
    const struct columns_arg *a = arg;
    float room[CHUNK], sum[CHUNK];
    int64_t step = a->from == TD_F32 && a->to == TD_F32 ? TD_MAX(end - begin, 1) : CHUNK;
    for (int64_t at = begin; at < end; at += step) {
        int64_t n = TD_MIN(step, end - at);
        float *y = td_cpu_result(a->to, a->y, at, sum);
        if (!a->accumulate) memset(y, 0, (size_t)n * sizeof *y);
        if (a->accumulate && y == sum) td_cpu_widen(a->to, td_cpu_at(a->to, a->y, at), n, sum);
        for (int64_t i = 0; i < a->rows; i++) {
            add_to(y, td_cpu_row(a->from, a->x, i * a->cols + at, n, room), n);
        }
        td_cpu_put(a->to, sum, n, a->y, at);
    }
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
    struct columns_arg a = {x,       y,       k->in_dtype[0],     k->out_dtype[0],
                            k->rows, k->cols, k->attrs.accumulate};
    td_parallel(k->n_threads, k->cols, COLUMN_GRAIN, columns_range, &a);
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
TD_CLONES static double sum_of(const float *x, int64_t n) {
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

TD_CLONES static double squares_of(const float *x, int64_t n) {
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
TD_CLONES static uint32_t nonfinite_in(const uint32_t *bits, int64_t n) {
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        found |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    }
    return found;
}

static td_status run_mean(const struct td_kernel *k, const struct td_run *r) {
    int64_t n = td_shape_elems(&k->shape[0]);
    float room[CHUNK];
    double sum = 0;
    const void *x = td_operand_at(&k->in[0], r);
    int64_t step = k->in_dtype[0] == TD_F32 ? TD_MAX(n, 1) : CHUNK;
    for (int64_t at = 0; at < n; at += step) {
        int64_t some = TD_MIN(step, n - at);
        sum += sum_of(td_cpu_row(k->in_dtype[0], x, at, some, room), some);
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
        float room[CHUNK];
        a->partial[i] = 0;
        for (int64_t at = first; at < last; at += step) {
            int64_t n = TD_MIN(step, last - at);
            a->partial[i] += squares_of(td_cpu_row(a->type, a->x, at, n, room), n);
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
    *(float *)td_operand_at(&k->out[0], r) = (float)sum;
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
            float room[CHUNK];
            td_cpu_widen(k->in_dtype[i], td_cpu_at(k->in_dtype[i], x, at), n, room);
            memcpy(bits, room, (size_t)n * sizeof *bits);
            bad |= nonfinite_in(bits, n);
        }
    }
    *(float *)td_operand_at(&k->out[0], r) = bad ? 0 : 1;
    return TD_OK;
}

static td_status run_clip_coef(const struct td_kernel *k, const struct td_run *r) {
    float squares = *(const float *)td_operand_at(&k->in[0], r);
    double coef = k->attrs.max_norm / (sqrt((double)squares) + 1e-6);
    *(float *)td_operand_at(&k->out[0], r) = coef < 1 ? (float)coef : 1;
    return TD_OK;
}

// Labels are integers; scalars, weights and what is not summed in columns are f32; the rest is
// narrow.
static bool types_fit(const struct td_kernel *k) {
    bool labels = k->op == TD_OP_SOFTMAX_CE || k->op == TD_OP_COUNT_CORRECT;
    bool many = k->op == TD_OP_SUM_SQUARES || k->op == TD_OP_ALL_FINITE;
    bool columns = k->op == TD_OP_REDUCE_SUM && sums_columns(k);
    for (uint32_t i = 0; i < k->n_in; i++) {
        bool narrow = many || (i == 0 && (labels || columns || k->op == TD_OP_MEAN));
        enum td_dtype t = k->in_dtype[i], want = labels && i == 1 ? TD_I32 : TD_F32;
        if (narrow ? !td_cpu_is_narrow(t) : t != want) return false;
    }
    return columns ? td_cpu_is_narrow(k->out_dtype[0]) : k->out_dtype[0] == TD_F32;
}

td_status td_kernel_reduce(struct td_kernel *k) {
    static td_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_SOFTMAX_CE] = run_softmax_ce,   [TD_OP_COUNT_CORRECT] = run_count_correct,
        [TD_OP_REDUCE_SUM] = run_reduce_sum,   [TD_OP_MEAN] = run_mean,
        [TD_OP_SUM_SQUARES] = run_sum_squares, [TD_OP_ALL_FINITE] = run_all_finite,
        [TD_OP_CLIP_COEF] = run_clip_coef,     [TD_OP_REDUCE_MEAN] = run_reduce_mean,
    };
    if (!types_fit(k)) return TD_OK;
    k->run = table[k->op];
    size_t rooms = k->in_dtype[0] == TD_F32 ? 0 : (size_t)k->cols; // rows that are widened
    if (k->op == TD_OP_COUNT_CORRECT) k->scratch_bytes = rooms * sizeof(float);
    if (k->op == TD_OP_SOFTMAX_CE) {
        k->scratch_bytes = ((size_t)k->rows + 2 * rooms * (size_t)k->n_threads) * sizeof(float);
    }
    return TD_OK;
}
