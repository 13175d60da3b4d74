// Layer norm and RMS norm, forward and backward, a row at a time. What is read of a row stays in L1
// for its two or three passes, so that a norm costs one trip through memory. So do a norm with the
// residual sum before it and a gradient with the sum after it. Any type of at most 32 bits is read
// into fp32 rows and rounded once, but for the residual sum: what is normalized is what the
// backward pass will read.
//
// dgamma and dbeta are sums over rows: each range of rows keeps its own, and they are added in
// range order. The reference's formulas (its kernels_nn.c): with h = (x - mean) rstd and d = dy
// gamma, dx = rstd (d - mean(d) - h mean(d h)); RMS norm takes no mean.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/machine/machine.h"

// PAD: rows of scratch begin at cache lines at every CPU level, whose vectors are a line at most.
enum { GRAIN = 8192, PAD = TD_LINE_BYTES / sizeof(float) };

// Rows of scratch that a range has; gamma and beta are everybody's.
enum { BUFFER_X, BUFFER_Y, BUFFER_MORE, BUFFER_DGAMMA, BUFFER_DBETA, BUFFERS };

struct norm_arg {
    enum td_dtype type;
    bool centred;
    const void *x, *dy, *more; // more: what is added to x or to dx, NULL if nothing is
    const float *gamma, *beta; // beta: NULL if there is none
    void *y, *sum;
    int64_t cols;
    float eps;
    float *buffer; // ranges x BUFFERS rows of `stride`
    int64_t stride;
};

static float *buffer_of(const struct norm_arg *a, int which) {
    return a->buffer + (td_parallel_index() * BUFFERS + which) * a->stride;
}

// ---- a row --------------------------------------------------------------------------------------
// The normalized element is (x - mean) rstd + shift. shift holds what the mean lost when it was
// rounded to fp32: where the elements are close to each other that is no small part of x - mean.
struct moments {
    float mean, rstd, shift;
};

static void row_moments(const float *x, int64_t n, bool centred, float eps, struct moments *out) {
    float sum = 0, squares = 0, rest = 0, mean, lost;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    mean = centred ? sum / (float)n : 0;
#pragma omp simd reduction(+ : squares, rest)
    for (int64_t i = 0; i < n; i++) {
        rest += x[i] - mean;
        squares += (x[i] - mean) * (x[i] - mean);
    }
    lost = centred ? rest / (float)n : 0;
    out->mean = mean;
    out->rstd = 1 / sqrtf(fmaxf(squares / (float)n - lost * lost, 0) + eps);
    out->shift = -lost * out->rstd;
}

static void norm_row(const float *x, const float *gamma, const float *beta, const struct moments *m,
                     int64_t n, float *y) {
    const float mean = m->mean, rstd = m->rstd, shift = m->shift;
    for (int64_t i = 0; i < n && !beta; i++) {
        y[i] = ((x[i] - mean) * rstd + shift) * gamma[i];
    }
    for (int64_t i = 0; i < n && beta; i++) {
        y[i] = ((x[i] - mean) * rstd + shift) * gamma[i] + beta[i];
    }
}

static void add_row(const float *x, const float *y, int64_t n, float *sum) {
    for (int64_t i = 0; i < n; i++) {
        sum[i] = x[i] + y[i];
    }
}

struct slope {
    const float *x, *gamma, *dy, *more; // more: NULL if there is none
    float *dgamma, *dbeta, *dx;         // the first two are added to; dx may overwrite an operand
    int64_t n;
    bool centred;
};

// Two passes: the means (and the sums over rows, while everything is at hand), then dx.
static void norm_row_grad(const struct slope *s, const struct moments *m) {
    const float *x = s->x, *gamma = s->gamma, *dy = s->dy, *more = s->more;
    const float mean = m->mean, rstd = m->rstd, shift = m->shift;
    float *dgamma = s->dgamma, *dbeta = s->dbeta, *dx = s->dx, sum_d = 0, sum_dh = 0;
#pragma omp simd reduction(+ : sum_d, sum_dh)
    for (int64_t i = 0; i < s->n; i++) {
        float h = (x[i] - mean) * rstd + shift, d = dy[i] * gamma[i];
        sum_d += d;
        sum_dh += d * h;
        dgamma[i] += dy[i] * h;
        dbeta[i] += dy[i];
    }
    const float mean_d = s->centred ? sum_d / (float)s->n : 0, mean_dh = sum_dh / (float)s->n;
#pragma omp simd
    for (int64_t i = 0; i < s->n; i++) {
        float h = (x[i] - mean) * rstd + shift,
              d = rstd * (dy[i] * gamma[i] - mean_d - h * mean_dh);
        dx[i] = more ? d + more[i] : d;
    }
}

// ---- all rows -----------------------------------------------------------------------------------
// Row i of what is normalized: x, or the sum, which is stored and read back in its type.
static const float *row_of(const struct norm_arg *a, int64_t i) {
    float *buffer = buffer_of(a, BUFFER_X);
    const float *x = td_cpu_row(a->type, a->x, i * a->cols, a->cols, buffer);
    if (!a->sum) return x;
    const float *more =
        td_cpu_row(a->type, a->more, i * a->cols, a->cols, buffer_of(a, BUFFER_MORE));
    float *sum = td_cpu_result(a->type, a->sum, i * a->cols, buffer);
    add_row(x, more, a->cols, sum);
    td_cpu_put(a->type, sum, a->cols, a->sum, i * a->cols);
    return td_cpu_row(a->type, a->sum, i * a->cols, a->cols, buffer);
}

static void forward_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm_arg *a = arg;
    for (int64_t i = begin; i < end; i++) {
        struct moments m;
        const float *x = row_of(a, i);
        float *y = td_cpu_result(a->type, a->y, i * a->cols, buffer_of(a, BUFFER_Y));
        row_moments(x, a->cols, a->centred, a->eps, &m);
        norm_row(x, a->gamma, a->beta, &m, a->cols, y);
        td_cpu_put(a->type, y, a->cols, a->y, i * a->cols);
    }
}

static void backward_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm_arg *a = arg;
    float *buffer_x = buffer_of(a, BUFFER_X), *buffer_y = buffer_of(a, BUFFER_Y);
    float *sums = buffer_of(a, BUFFER_DGAMMA); // dbeta's row is the next
    memset(sums, 0, 2 * (size_t)a->stride * sizeof *sums);
    for (int64_t i = begin; i < end; i++) {
        struct moments m;
        const int64_t at = i * a->cols;
        const struct slope s = {
            .x = td_cpu_row(a->type, a->x, at, a->cols, buffer_x),
            .gamma = a->gamma,
            .dy = td_cpu_row(a->type, a->dy, at, a->cols, buffer_y),
            .more = a->more ? td_cpu_row(a->type, a->more, at, a->cols, buffer_of(a, BUFFER_MORE))
                            : NULL,
            .dgamma = sums,
            .dbeta = sums + a->stride,
            .dx = td_cpu_result(a->type, a->y, at, buffer_x),
            .n = a->cols,
            .centred = a->centred,
        };
        row_moments(s.x, a->cols, a->centred, a->eps, &m);
        norm_row_grad(&s, &m);
        td_cpu_put(a->type, s.dx, a->cols, a->y, at);
    }
}

static int64_t grain_of(const struct td_kernel *k) {
    return GRAIN / TD_MAX(k->cols, 1) + 1;
}

static void set_up(const struct td_kernel *k, const struct td_run *r, uint32_t gamma,
                   struct norm_arg *a) {
    *a = (struct norm_arg){
        .type = k->in_dtype[0],
        .centred = !td_kernel_is(k, "rms_norm") && !td_kernel_is(k, "rms_norm_grad") &&
                   !td_kernel_is(k, "add_rms_norm"),
        .x = td_operand_at(&k->in[0], r),
        .y = td_operand_at(&k->out[0], r),
        .cols = k->cols,
        .eps = (float)k->attrs.eps,
        .stride = (int64_t)td_align_up((size_t)k->cols, PAD),
        .buffer = r->scratch,
    };
    float *shared = a->buffer + (int64_t)k->n_threads * BUFFERS * a->stride;
    a->gamma = td_cpu_row(k->in_dtype[gamma], td_operand_at(&k->in[gamma], r), 0, k->cols, shared);
}

static bool adds(const struct td_kernel *k) {
    return td_kernel_is(k, "add_layer_norm") || td_kernel_is(k, "add_rms_norm");
}

static td_status run_norm(const struct td_kernel *k, const struct td_run *r) {
    struct norm_arg a;
    const uint32_t gamma = adds(k) ? 2 : 1, beta = gamma + 1;
    set_up(k, r, gamma, &a);
    if (adds(k)) {
        a.more = td_operand_at(&k->in[1], r);
        a.sum = td_operand_at(&k->out[1], r);
    }
    float *shared = a.buffer + ((int64_t)k->n_threads * BUFFERS + 1) * a.stride;
    if (k->n_in > beta) {
        a.beta = td_cpu_row(k->in_dtype[beta], td_operand_at(&k->in[beta], r), 0, k->cols, shared);
    }
    td_parallel(k->n_threads, k->rows, grain_of(k), forward_range, &a);
    return TD_OK;
}

static td_status run_norm_grad(const struct td_kernel *k, const struct td_run *r) {
    struct norm_arg a;
    set_up(k, r, 1, &a);
    a.dy = td_operand_at(&k->in[2], r);
    if (k->n_in > 3) a.more = td_operand_at(&k->in[3], r);
    td_parallel(k->n_threads, k->rows, grain_of(k), backward_range, &a);
    int32_t ranges = td_parallel_ranges(k->n_threads, k->rows, grain_of(k));
    for (uint32_t out = 1; out < k->n_out; out++) {
        float *sum = a.buffer + (BUFFER_DGAMMA + (int64_t)out - 1) * a.stride;
        for (int32_t i = 1; i < ranges; i++) {
            add_row(sum, sum + (int64_t)i * BUFFERS * a.stride, k->cols, sum);
        }
        td_cpu_narrow(k->out_dtype[out], sum, k->cols, td_operand_at(&k->out[out], r));
    }
    return TD_OK;
}

// x and what has its shape are of one type; gamma, beta and their gradients may be of another:
// mixed precision keeps them in fp32.
static bool types_fit(const struct td_kernel *k) {
    bool grad = td_kernel_is(k, "layer_norm_grad") || td_kernel_is(k, "rms_norm_grad"), fits = true;
    for (uint32_t i = 0; i < k->n_in; i++) {
        bool row = grad ? i == 1 : i >= (adds(k) ? 2 : 1);
        fits &= row ? td_cpu_is_narrow(k->in_dtype[i]) : k->in_dtype[i] == k->in_dtype[0];
    }
    return fits && td_cpu_is_narrow(k->in_dtype[0]);
}

td_status td_kernel_norm(struct td_kernel *k) {
    static const struct td_kernel_row table[] = {
        {"layer_norm", run_norm},           {"rms_norm", run_norm},
        {"add_layer_norm", run_norm},       {"add_rms_norm", run_norm},
        {"layer_norm_grad", run_norm_grad}, {"rms_norm_grad", run_norm_grad},
    };
    td_kernel_fn *run = TD_KERNEL_OF(k, table);
    if (!run || !types_fit(k)) return TD_OK;
    k->run = run;
    size_t rows = (size_t)k->n_threads * BUFFERS + 2;
    k->scratch_bytes = rows * td_align_up((size_t)k->cols, PAD) * sizeof(float);
    return TD_OK;
}
