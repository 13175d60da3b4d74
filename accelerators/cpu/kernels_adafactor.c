// Adafactor, torch's formulas, for a parameter that is a stack of matrices (rows, cols) with a
// factored second moment, or a vector whose second moment is kept whole.
//
// The update needs two sums over the whole parameter before it may write (the root mean squares of
// the parameter and of the update), so the gradient is read four times: for the rows, for the
// columns, for the size of the update, for the update. The update itself is never stored. Sums are
// kept per row in double precision and added in row order, so the bits do not depend on the number
// of threads. A vector is cut into rows of VECTOR_ROW elements.

#include <math.h>

#include "accelerators/cpu/cpu.h"

enum { GRAIN = 8192, LANES = 16, BLOCK = 1024, VECTOR_ROW = 1024 };

struct adafactor {
    float *p, *row, *col, *v; // v: of a vector; row, col: of matrices
    const float *g;
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
    return 1 / sqrtf(v > least ? v : least);
}

TD_CLONES static double sum_squares(const float *v, int64_t n, float scale){
#define TERM(i) (v[i] * scale)
    SUM_OF_SQUARES(TERM)
#undef TERM
}

TD_CLONES static double update_squares(const struct adafactor *a, const float *g,
                                       const float *moment, float factor, int64_t n) {
    const float clip = a->clip, least = a->least;
#define TERM(i) (g[i] * clip * inv_root(factor, moment[i], least))
    SUM_OF_SQUARES(TERM)
#undef TERM
}

TD_CLONES static void update_row(const struct adafactor *a, float *p, const float *g,
                                 const float *moment, float factor, int64_t n) {
    const float clip = a->clip, least = a->least, decay = a->decay, step = a->step;
    for (int64_t i = 0; i < n; i++) {
        p[i] = p[i] * decay - step * (g[i] * clip * inv_root(factor, moment[i], least));
    }
}

// ---- passes over ranges of rows, columns, elements ----------------------------------------------
static void parameter_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        a->row_sum[i] = sum_squares(a->p + i * a->cols, row_length(a, i), 1);
    }
}

static void row_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        double mean = sum_squares(a->g + i * a->cols, a->cols, a->clip) / (double)a->cols;
        a->row[i] += a->take * ((float)mean - a->row[i]);
    }
}

TD_CLONES static void add_squares(const float *g, float clip, double *sum, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = g[i] * clip;
        sum[i] += (double)(x * x);
    }
}

// Columns of all matrices, counted through; a range may hold parts of several matrices.
static void column_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    while (begin < end) {
        int64_t m = begin / a->cols, c = begin % a->cols, n = TD_MIN(a->cols - c, end - begin);
        double *sum = a->col_sum + begin;
        for (int64_t i = 0; i < n; i++) {
            sum[i] = 0;
        }
        for (int64_t r = 0; r < a->rows; r++) {
            add_squares(a->g + (m * a->rows + r) * a->cols + c, a->clip, sum, n);
        }
        for (int64_t i = 0; i < n; i++) {
            float mean = (float)(sum[i] / (double)a->rows);
            a->col[begin + i] += a->take * (mean - a->col[begin + i]);
        }
        begin += n;
    }
}

TD_CLONES static void vector_pass(const struct adafactor *a, int64_t begin, int64_t end) {
    const float clip = a->clip, take = a->take, *g = a->g;
    float *v = a->v;
    for (int64_t i = begin; i < end; i++) {
        float x = g[i] * clip;
        v[i] += take * (x * x - v[i]);
    }
}

static void vector_range(const void *arg, int64_t begin, int64_t end) {
    vector_pass(arg, begin, end);
}

// What row i multiplies its moments by, and where they are.
static float factor_of(const struct adafactor *a, int64_t i, const float **out_moment) {
    *out_moment = a->v ? a->v + i * a->cols : a->col + i / a->rows * a->cols;
    return a->v ? 1 : a->row[i] * a->inv_mean[i / a->rows];
}

static void size_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *moment;
        float factor = factor_of(a, i, &moment);
        a->row_sum[i] = update_squares(a, a->g + i * a->cols, moment, factor, row_length(a, i));
    }
}

static void update_range(const void *arg, int64_t begin, int64_t end) {
    const struct adafactor *a = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *moment;
        float factor = factor_of(a, i, &moment);
        update_row(a, a->p + i * a->cols, a->g + i * a->cols, moment, factor, row_length(a, i));
    }
}

// ---- the whole ----------------------------------------------------------------------------------
static void follow_gradient(const struct adafactor *a, int32_t n_threads) {
    if (a->v) {
        td_parallel(n_threads, a->n, GRAIN, vector_range, a);
        return;
    }
    td_parallel(n_threads, a->matrices * a->rows, GRAIN / a->cols + 1, row_range, a);
    td_parallel(n_threads, a->matrices * a->cols, GRAIN / a->rows + 1, column_range, a);
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

static void set_sums(struct adafactor *a, void *room) {
    a->row_sum = room;
    a->col_sum = a->row_sum + a->matrices * a->rows;
    a->inv_mean = (float *)(a->col_sum + a->matrices * a->cols);
}

static td_status run_adafactor(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars), t = (double)k->scalars[TD_SCALAR_STEP];
    double step = o->fixed_step ? lr : fmin(lr, 1 / sqrt(t));
    uint32_t n = o->factored ? 4 : 3;
    struct adafactor a = {
        .p = td_operand_at(&k->in[0], r),
        .g = td_operand_at(&k->in[1], r),
        .v = o->factored ? NULL : td_operand_at(&k->in[2], r),
        .row = o->factored ? td_operand_at(&k->in[2], r) : NULL,
        .col = o->factored ? td_operand_at(&k->in[3], r) : NULL,
        .clip = k->n_in > n ? *(const float *)td_operand_at(&k->in[n], r) : 1,
        .take = (float)pow(t, o->beta2_decay),
        .decay = (float)(1 - lr * o->weight_decay),
        .eps = (float)o->eps,
        .least = (float)(o->eps * o->eps),
    };
    set_shape(k, &a);
    set_sums(&a, r->scratch);
    if (!a.n) return TD_OK;
    int64_t rows = a.matrices * a.rows, grain = GRAIN / a.cols + 1;
    if (!o->unscaled) {
        td_parallel(k->n_threads, rows, grain, parameter_range, &a);
        step *= fmax(o->eps2, sqrt(mean_of_rows(&a)));
    }
    follow_gradient(&a, k->n_threads);
    td_parallel(k->n_threads, rows, grain, size_range, &a);
    a.step = (float)(step / fmax(1, sqrt(mean_of_rows(&a)) / o->threshold));
    td_parallel(k->n_threads, rows, grain, update_range, &a);
    return TD_OK;
}

td_status td_kernel_adafactor(struct td_kernel *k) {
    if (k->op != TD_OP_ADAFACTOR || !td_kernel_all(k, TD_F32)) return TD_OK;
    struct adafactor a = {0};
    set_shape(k, &a);
    size_t doubles = (size_t)(a.matrices * (a.rows + a.cols)), floats = (size_t)a.matrices;
    k->scratch_bytes = doubles * sizeof(double) + floats * sizeof(float) + sizeof(double);
    k->run = run_adafactor;
    return TD_OK;
}
