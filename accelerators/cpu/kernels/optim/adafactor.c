// Adafactor, torch's formulas, for a parameter that is a stack of matrices (rows, cols) with a
// factored second moment, or a vector whose second moment is kept whole.
//
// The update needs two sums over the whole parameter before it may write (the root mean squares of
// the parameter and of the update). So the gradient is read four times: for the rows, for the
// columns, for the size of the update, for the update. The update itself is never stored. Sums are
// kept per row in double precision and added in row order, so the bits do not depend on the number
// of threads. A vector is cut into rows of VECTOR_ROW elements.
//
// Parameter and gradient of 16 bits are read in pieces that fit L1. Second moments, which are
// small, are kept in fp32 in the scratch for the step and rounded once.

#include <math.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/optim/update.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"

// LANES: partial sums of squares, which fix the order of a sum. The same at every CPU level: the
// vectors of each divide it.
enum { GRAIN = 8192, LANES = 16, BLOCK = 1024, VECTOR_ROW = 1024 };

struct adafactor {
    const struct td_kernel *kernel;
    void *p;
    const void *g;
    enum td_dtype p_type, g_type;
    float *row, *col, *v;            // v: of a vector; row, col: of matrices
    int64_t n, matrices, rows, cols; // a vector is one matrix whose last row is short
    float clip, take, decay, step, eps, least;
    double *row_sum; // (matrices, rows): one sum at a time
    double *col_sum; // (matrices, cols)
    float *inv_mean; // (matrices): one over the mean of row
};

// Length of row i of all rows.
static int64_t row_length(const struct adafactor *a, int64_t i) {
    return TD_MIN(a->cols, a->n - i * a->cols);
}

static double mean_of_rows(const struct adafactor *a) {
    double sum = 0;
    for (int64_t i = 0; i < a->matrices * a->rows; i++) {
        sum += a->row_sum[i];
    }
    return a->n ? sum / (double)a->n : 0;
}

// Sums of squares in lanes, which the compiler makes vectors of; `term` is the i-th.
#define SUM_OF_SQUARES(term)                                                                       \
    double sum = 0;                                                                                \
    for (int64_t at = 0; at < n; at += BLOCK) {                                                    \
        float lane[LANES] = {0};                                                                   \
        int64_t end = TD_MIN(at + BLOCK, n), i = at;                                               \
        for (; i + LANES <= end; i += LANES) {                                                     \
            for (int l = 0; l < LANES; l++) {                                                      \
                float x = term(i + l);                                                             \
                lane[l] += x * x;                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int l = 0; i < end; i++, l++) {                                                       \
            float x = term(i);                                                                     \
            lane[l] += x * x;                                                                      \
        }                                                                                          \
        for (int l = 0; l < LANES; l++) {                                                          \
            sum += (double)lane[l];                                                                \
        }                                                                                          \
    }                                                                                              \
    return sum;

// One over the root of the second moment: factor * moment.
static inline float inv_root(float factor, float moment, float least) {
    float v = factor * moment;
    return 1 / vm_sqrt(v > least ? v : least);
}

static double sum_squares(const float *v, int64_t n, float scale) {
#define TERM(i) (v[i] * scale)
    SUM_OF_SQUARES(TERM)
#undef TERM
}

static double update_squares(const struct adafactor *a, const float *g, const float *moment,
                             float factor, int64_t n) {
    const float clip = a->clip, least = a->least;
#define TERM(i) (g[i] * clip * inv_root(factor, moment[i], least))
    SUM_OF_SQUARES(TERM)
#undef TERM
}

static void update_row(const struct adafactor *a, float *p, const float *g, const float *moment,
                       float factor, int64_t n) {
    const float clip = a->clip, least = a->least, decay = a->decay, step = a->step;
    for (int64_t i = 0; i < n; i++) {
        p[i] = p[i] * decay - step * (g[i] * clip * inv_root(factor, moment[i], least));
    }
}

// ---- passes over ranges of rows, columns, elements ----------------------------------------------
// Elements that are read at once: as many as there are, where they need not be widened.
static int64_t piece_of(enum td_dtype t, int64_t n) {
    return t == TD_F32 ? TD_MAX(n, (int64_t)1) : BLOCK;
}

static double squares(enum td_dtype t, const void *x, int64_t from, int64_t n, float scale) {
    const int64_t piece = piece_of(t, n);
    float buffer[BLOCK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += piece) {
        int64_t some = TD_MIN(piece, n - at);
        sum += sum_squares(td_cpu_row(t, x, from + at, some, buffer), some, scale);
    }
    return sum;
}

static void param_squares_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        a->row_sum[i] = squares(a->p_type, a->p, i * a->cols, row_length(a, i), 1);
    }
}

static void row_moment_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        double mean = squares(a->g_type, a->g, i * a->cols, a->cols, a->clip) / (double)a->cols;
        a->row[i] += a->take * ((float)mean - a->row[i]);
    }
}

static void add_squares(const float *g, float clip, double *sum, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        sum[i] += (double)(x * x);
    }
}

// Of n elements of the gradient from `from` on.
static void add_column_squares(const struct adafactor *a, int64_t from, double *sum, int64_t n) {
    const int64_t piece = piece_of(a->g_type, n);
    float buffer[BLOCK];
    for (int64_t at = 0; at < n; at += piece) {
        int64_t some = TD_MIN(piece, n - at);
        add_squares(td_cpu_row(a->g_type, a->g, from + at, some, buffer), a->clip, sum + at, some);
    }
}

// Columns of all matrices, counted through; a range may hold parts of several matrices.
static void column_moment_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    while (begin < end) {
        int64_t m = begin / a->cols, c = begin % a->cols, n = TD_MIN(a->cols - c, end - begin);
        double *sum = a->col_sum + begin;
        for (int64_t i = 0; i < n; i++) {
            sum[i] = 0;
        }
        for (int64_t r = 0; r < a->rows; r++) {
            add_column_squares(a, (m * a->rows + r) * a->cols + c, sum, n);
        }
        for (int64_t i = 0; i < n; i++) {
            float mean = (float)(sum[i] / (double)a->rows);
            a->col[begin + i] += a->take * (mean - a->col[begin + i]);
        }
        begin += n;
    }
}

static void update_vector_moment(const struct adafactor *a, const float *g, float *v, int64_t n) {
    const float clip = a->clip, take = a->take;
    for (int64_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        v[i] += take * (x * x - v[i]);
    }
}

static void vector_moment_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    const int64_t piece = piece_of(a->g_type, end - begin);
    float buffer[BLOCK];
    for (int64_t at = begin; at < end; at += piece) {
        int64_t n = TD_MIN(piece, end - at);
        update_vector_moment(a, td_cpu_row(a->g_type, a->g, at, n, buffer), a->v + at, n);
    }
}

// What row i multiplies its moments by, and where they are.
static float factor_of(const struct adafactor *a, int64_t i, const float **out_moment) {
    *out_moment = a->v ? a->v + i * a->cols : a->col + i / a->rows * a->cols;
    return a->v ? 1 : a->row[i] * a->inv_mean[i / a->rows];
}

static void update_squares_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    float buffer[BLOCK];
    for (int64_t i = begin; i < end; i++) {
        const float *moment;
        const float factor = factor_of(a, i, &moment);
        const int64_t n = row_length(a, i), piece = piece_of(a->g_type, n);
        double sum = 0;
        for (int64_t at = 0; at < n; at += piece) {
            int64_t some = TD_MIN(piece, n - at);
            const float *g = td_cpu_row(a->g_type, a->g, i * a->cols + at, some, buffer);
            sum += update_squares(a, g, moment + at, factor, some);
        }
        a->row_sum[i] = sum;
    }
}

static void update_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    const bool plain = a->p_type == TD_F32 && a->g_type == TD_F32;
    float buffer[BLOCK], g_buffer[BLOCK];
    for (int64_t i = begin; i < end; i++) {
        const float *moment;
        const float factor = factor_of(a, i, &moment);
        const int64_t n = row_length(a, i), piece = piece_of(plain ? TD_F32 : TD_BF16, n);
        for (int64_t at = 0; at < n; at += piece) {
            int64_t some = TD_MIN(piece, n - at), from = i * a->cols + at;
            float *p = td_cpu_result(a->p_type, a->p, from, buffer);
            if (p == buffer) td_cpu_row(a->p_type, a->p, from, some, buffer);
            update_row(a, p, td_cpu_row(a->g_type, a->g, from, some, g_buffer), moment + at, factor,
                       some);
            td_update_put(a->kernel, p, some, a->p, from);
        }
    }
}

// ---- the whole ----------------------------------------------------------------------------------
static void update_moments(const struct adafactor *a, int32_t n_threads) {
    if (a->v) {
        td_parallel(n_threads, a->n, GRAIN, vector_moment_range, a);
        return;
    }
    td_parallel(n_threads, a->matrices * a->rows, GRAIN / a->cols + 1, row_moment_range, a);
    td_parallel(n_threads, a->matrices * a->cols, GRAIN / a->rows + 1, column_moment_range, a);
    for (int64_t m = 0; m < a->matrices; m++) {
        double sum = 0;
        for (int64_t r = 0; r < a->rows; r++) {
            sum += (double)a->row[m * a->rows + r];
        }
        a->inv_mean[m] = 1 / fmaxf((float)(sum / (double)a->rows), a->eps);
    }
}

static void set_shape(const struct td_kernel *k, struct adafactor *a) {
    const struct td_shape *s = &k->shape[0];
    a->n = td_shape_elems(s);
    a->cols = VECTOR_ROW;
    a->rows = (a->n + VECTOR_ROW - 1) / VECTOR_ROW;
    a->matrices = 1;
    if (k->attrs.optim.factored) {
        a->rows = s->dim[s->n_dims - 2];
        a->cols = s->dim[s->n_dims - 1];
        a->matrices = a->n ? a->n / (a->rows * a->cols) : 0;
    }
}

// Sums, and moments that are not f32, in the scratch.
static void set_sums(const struct td_kernel *k, const struct td_run *r, struct adafactor *a) {
    const bool factored = k->attrs.optim.factored;
    const int64_t n[] = {factored ? a->matrices * a->rows : a->n, a->matrices * a->cols};
    a->row_sum = r->scratch;
    a->col_sum = a->row_sum + a->matrices * a->rows;
    a->inv_mean = (float *)(a->col_sum + a->matrices * a->cols);
    float *wide = a->inv_mean + a->matrices, *moment[2] = {0};
    for (int i = 0; i < (factored ? 2 : 1); i++) {
        enum td_dtype t = k->in_dtype[2 + i];
        moment[i] = td_operand_at(&k->in[2 + i], r);
        if (t == TD_F32) continue;
        td_cpu_widen(t, moment[i], n[i], wide);
        moment[i] = wide;
        wide += n[i];
    }
    a->row = factored ? moment[0] : NULL;
    a->v = factored ? NULL : moment[0];
    a->col = moment[1];
}

static void put_moments(const struct td_kernel *k, const struct td_run *r,
                        const struct adafactor *a) {
    int64_t first = a->v ? a->n : a->matrices * a->rows;
    td_cpu_put(k->in_dtype[2], a->v ? a->v : a->row, first, td_operand_at(&k->in[2], r), 0);
    if (a->v) return;
    td_cpu_put(k->in_dtype[3], a->col, a->matrices * a->cols, td_operand_at(&k->in[3], r), 0);
}

static td_status run_adafactor(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars), t = k->scalars[TD_SCALAR_STEP];
    double step = o->fixed_step ? lr : fmin(lr, 1 / sqrt(t));
    uint32_t n = o->factored ? 4 : 3;
    float buffer;
    struct adafactor a = {
        .kernel = k,
        .p = td_operand_at(&k->in[0], r),
        .g = td_operand_at(&k->in[1], r),
        .p_type = k->in_dtype[0],
        .g_type = k->in_dtype[1],
        .clip = 1,
        .take = (float)pow(t, o->beta2_decay),
        .decay = (float)(1 - lr * o->weight_decay),
        .eps = (float)o->eps,
        .least = (float)(o->eps * o->eps),
    };
    if (k->n_in > n) {
        a.clip = *td_cpu_row(k->in_dtype[n], td_operand_at(&k->in[n], r), 0, 1, &buffer);
    }
    set_shape(k, &a);
    if (!a.n) return TD_OK;
    set_sums(k, r, &a);
    int64_t rows = a.matrices * a.rows, grain = GRAIN / a.cols + 1;
    if (!o->unscaled) {
        td_parallel(k->n_threads, rows, grain, param_squares_range, &a);
        step *= fmax(o->eps2, sqrt(mean_of_rows(&a)));
    }
    update_moments(&a, k->n_threads);
    td_parallel(k->n_threads, rows, grain, update_squares_range, &a);
    a.step = (float)(step / fmax(1, sqrt(mean_of_rows(&a)) / o->threshold));
    td_update_run(k, r, a.cols, grain, update_range, &a);
    put_moments(k, r, &a);
    return TD_OK;
}

td_status td_kernel_adafactor(struct td_kernel *k) {
    if (!td_kernel_is(k, "adafactor")) return TD_OK;
    struct adafactor a = {0};
    set_shape(k, &a);
    size_t doubles = (size_t)(a.matrices * (a.rows + a.cols)), floats = (size_t)a.matrices;
    for (uint32_t i = 0; i < k->n_in; i++) {
        if (!td_cpu_is_narrow(k->in_dtype[i])) return TD_OK;
        bool moment = i == 2 || (i == 3 && k->attrs.optim.factored);
        if (moment && k->in_dtype[i] != TD_F32) floats += (size_t)td_shape_elems(&k->shape[i]);
    }
    k->scratch_bytes = doubles * sizeof(double) + floats * sizeof(float) + sizeof(double);
    k->run = run_adafactor;
    return TD_OK;
}
