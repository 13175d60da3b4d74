// Layer norm and RMS norm, forward and backward, a row at a time: what is read of a row stays in L1
// for its two or three passes, so that a norm costs one trip through memory. Any type of at most 32
// bits is read into fp32 rows and rounded once.
//
// dgamma is a sum over rows: each range of rows keeps its own, and they are added in range order.
// The reference's formulas (its kernels_nn.c): with h = (x - mean) rstd and d = dy gamma,
// dx = rstd (d - mean(d) - h mean(d h)); RMS norm takes no mean.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/convert.h"
#include "accelerators/cpu/cpu.h"

enum { GRAIN = 8192, PAD = 16 };

// Rows of room that a range has: x, dy or y, dgamma; gamma and beta are everybody's.
enum { ROOM_X, ROOM_Y, ROOM_DGAMMA, ROOMS };

struct norm_arg {
    const struct td_kernel *k;
    enum td_dtype type;
    bool centred;
    const void *x, *dy;
    const float *gamma, *beta; // beta: NULL if there is none
    void *y;
    int64_t cols;
    float eps;
    float *room; // ranges x ROOMS rows of `stride`
    int64_t stride;
};

static float *room_of(const struct norm_arg *a, int which) {
    return a->room + (td_parallel_index() * ROOMS + which) * a->stride;
}

// ---- a row --------------------------------------------------------------------------------------
struct moments {
    float mean, rstd;
};

TD_CLONES static void measure(const float *x, int64_t n, bool centred, float eps,
                              struct moments *out) {
    float sum = 0, squares = 0, mean;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
    }
    mean = centred ? sum / (float)n : 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    out->mean = mean;
    out->rstd = 1 / sqrtf(squares / (float)n + eps);
}

TD_CLONES static void apply(const float *x, const float *gamma, const float *beta,
                            const struct moments *m, int64_t n, float *y) {
    const float mean = m->mean, rstd = m->rstd;
    for (int64_t i = 0; i < n && !beta; i++) {
        y[i] = (x[i] - mean) * rstd * gamma[i];
    }
    for (int64_t i = 0; i < n && beta; i++) {
        y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    }
}

// Two passes: the means (and dgamma, while everything is at hand), then dx.
TD_CLONES static void differentiate(const float *x, const float *gamma, const float *dy,
                                    const struct moments *m, int64_t n, bool centred, float *dgamma,
                                    float *dx) {
    const float mean = m->mean, rstd = m->rstd;
    float sum_d = 0, sum_dh = 0;
#pragma omp simd reduction(+ : sum_d, sum_dh)
    for (int64_t i = 0; i < n; i++) {
        float h = (x[i] - mean) * rstd, d = dy[i] * gamma[i];
        sum_d += d;
        sum_dh += d * h;
        dgamma[i] += dy[i] * h;
    }
    const float mean_d = centred ? sum_d / (float)n : 0, mean_dh = sum_dh / (float)n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float h = (x[i] - mean) * rstd;
        dx[i] = rstd * (dy[i] * gamma[i] - mean_d - h * mean_dh);
    }
}

// ---- all rows -----------------------------------------------------------------------------------
static void forward_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm_arg *a = arg;
    float *room_x = room_of(a, ROOM_X), *room_y = room_of(a, ROOM_Y);
    for (int64_t i = begin; i < end; i++) {
        struct moments m;
        const float *x = td_cpu_row(a->type, a->x, i * a->cols, a->cols, room_x);
        float *y = td_cpu_result(a->type, a->y, i * a->cols, room_y);
        measure(x, a->cols, a->centred, a->eps, &m);
        apply(x, a->gamma, a->beta, &m, a->cols, y);
        td_cpu_put(a->type, y, a->cols, a->y, i * a->cols);
    }
}

static void backward_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm_arg *a = arg;
    float *room_x = room_of(a, ROOM_X), *room_y = room_of(a, ROOM_Y);
    float *dgamma = room_of(a, ROOM_DGAMMA);
    memset(dgamma, 0, (size_t)a->cols * sizeof *dgamma);
    for (int64_t i = begin; i < end; i++) {
        struct moments m;
        const float *x = td_cpu_row(a->type, a->x, i * a->cols, a->cols, room_x);
        const float *dy = td_cpu_row(a->type, a->dy, i * a->cols, a->cols, room_y);
        float *dx = td_cpu_result(a->type, a->y, i * a->cols, room_x);
        measure(x, a->cols, a->centred, a->eps, &m);
        differentiate(x, a->gamma, dy, &m, a->cols, a->centred, dgamma, dx);
        td_cpu_put(a->type, dx, a->cols, a->y, i * a->cols);
    }
}

static int64_t grain_of(const struct td_kernel *k) {
    return GRAIN / TD_MAX(k->cols, 1) + 1;
}

static void set_up(const struct td_kernel *k, const struct td_run *r, struct norm_arg *a) {
    *a = (struct norm_arg){
        .k = k,
        .type = k->in_dtype[0],
        .centred = k->op == TD_OP_LAYER_NORM || k->op == TD_OP_LAYER_NORM_GRAD,
        .x = td_operand_at(&k->in[0], r),
        .y = td_operand_at(&k->out[0], r),
        .cols = k->cols,
        .eps = (float)k->attrs.eps,
        .stride = (int64_t)td_align_up((size_t)k->cols, PAD),
        .room = r->scratch,
    };
    float *shared = a->room + (int64_t)k->n_threads * ROOMS * a->stride;
    a->gamma = td_cpu_row(k->in_dtype[1], td_operand_at(&k->in[1], r), 0, k->cols, shared);
}

static td_status run_norm(const struct td_kernel *k, const struct td_run *r) {
    struct norm_arg a;
    set_up(k, r, &a);
    float *shared = a.room + ((int64_t)k->n_threads * ROOMS + 1) * a.stride;
    if (k->n_in > 2) {
        a.beta = td_cpu_row(k->in_dtype[2], td_operand_at(&k->in[2], r), 0, k->cols, shared);
    }
    td_parallel(k->n_threads, k->rows, grain_of(k), forward_range, &a);
    return TD_OK;
}

static td_status run_norm_grad(const struct td_kernel *k, const struct td_run *r) {
    struct norm_arg a;
    set_up(k, r, &a);
    a.dy = td_operand_at(&k->in[2], r);
    td_parallel(k->n_threads, k->rows, grain_of(k), backward_range, &a);
    int32_t ranges = td_parallel_ranges(k->n_threads, k->rows, grain_of(k));
    float *sum = a.room + ROOM_DGAMMA * a.stride;
    if (!ranges) memset(sum, 0, (size_t)k->cols * sizeof *sum);
    for (int32_t i = 1; i < ranges; i++) {
        const float *more = sum + (int64_t)i * ROOMS * a.stride;
        for (int64_t c = 0; c < k->cols; c++) {
            sum[c] += more[c];
        }
    }
    td_cpu_narrow(k->out_dtype[1], sum, k->cols, td_operand_at(&k->out[1], r));
    return TD_OK;
}

// x and what has its shape are of one type; gamma, beta and dgamma may be of another: mixed
// precision keeps them in fp32.
static bool types_fit(const struct td_kernel *k) {
    enum td_dtype t = k->in_dtype[0];
    bool fits = td_cpu_is_narrow(t) && k->out_dtype[0] == t && td_cpu_is_narrow(k->in_dtype[1]);
    if (k->n_out > 1) return fits && k->in_dtype[2] == t && td_cpu_is_narrow(k->out_dtype[1]);
    return fits && (k->n_in < 3 || td_cpu_is_narrow(k->in_dtype[2]));
}

td_status td_kernel_norm(struct td_kernel *k) {
    static td_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_LAYER_NORM] = run_norm,
        [TD_OP_LAYER_NORM_GRAD] = run_norm_grad,
        [TD_OP_RMS_NORM] = run_norm,
        [TD_OP_RMS_NORM_GRAD] = run_norm_grad,
    };
    if (!table[k->op] || !types_fit(k)) return TD_OK;
    k->run = table[k->op];
    size_t rows = (size_t)k->n_threads * ROOMS + 2;
    k->scratch_bytes = rows * td_align_up((size_t)k->cols, PAD) * sizeof(float);
    return TD_OK;
}
