// Batch norm, forward and backward, in any layout of layout.h.
//
// A channel's mean and variance come from one pass over x: sums of x - k and its square, where k is
// the mean of the channel's first places. k is near enough to the mean that nothing cancels, so one
// pass is as good as two. The backward pass takes the sums of dy and dy (x - k) along; then both
// write their result in a second pass:
//     y = (x - mean) rstd gamma + beta
//     dx = A dy + B (x - mean) + C,   A = rstd gamma, B = -A rstd^2 mean(dy (x - mean)), C = -A
//     mean(dy)
// What the mean loses when it is rounded to fp32 goes into the constant. Where a channel's elements
// are close to each other, that is no small part of x - mean.
// Images are summed in at most GROUPS groups, beyond a strip of an image in double. Groups do not
// depend on the number of threads, and neither do the bits. bf16 is widened as it is read and
// rounded as it is written; what belongs to a channel has a type of its own.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

enum { GROUPS = 32, FIRST_PLACES = 64 };
enum { X, XX, DY, DYX, SUMS }; // what is summed
enum { FACTORS = 4 };          // near, of_x, of_dy, constant
#define INLINE static inline __attribute__((always_inline))

struct norm {
    struct td_strips s;
    const void *x, *dy;             // dy: NULL forward
    void *y;                        // or dx
    bool narrow;                    // these three are bf16
    float *near;                    // (C): k, then the mean
    float *of_x, *of_dy, *constant; // (C): factors of x - near and dy; what is added
    double *sums;                   // (n_groups, SUMS, C)
    int64_t n_groups;
};

// ---- sums
static inline float read_at(const void *x, int64_t at, bool narrow) {
    return narrow ? td_f32_of_bf16(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

typedef void add_fn(const struct norm *m, int64_t at, const float *near, int64_t width,
                    float sum[SUMS][TD_LAYOUT_LANES]);

// Of a strip that lacks channels.
static void sum_part(const struct norm *m, int64_t at, const float *near, int64_t width,
                     float sum[SUMS][TD_LAYOUT_LANES]) {
    for (int64_t p = at; p < at + m->s.places * m->s.step; p += m->s.step) {
        for (int64_t l = 0; l < width; l++) {
            float v = read_at(m->x, p + l, m->narrow) - near[l];
            sum[X][l] += v;
            sum[XX][l] += v * v;
        }
        for (int64_t l = 0; m->dy && l < width; l++) {
            float dy = read_at(m->dy, p + l, m->narrow);
            sum[DY][l] += dy;
            sum[DYX][l] += dy * (read_at(m->x, p + l, m->narrow) - near[l]);
        }
    }
}

INLINE void sum_strip(const struct norm *m, int64_t at, const float *near, bool narrow,
                      bool backward, float sum[SUMS][TD_LAYOUT_LANES]) {
    td_strip all[SUMS] = {0}, k, v, dy;
    td_strip_load(near, 0, false, &k);
    for (int64_t p = at; p < at + m->s.places * m->s.step; p += m->s.step) {
        td_strip_load(m->x, p, narrow, &v);
        v -= k;
        all[X] += v;
        all[XX] += v * v;
        if (!backward) continue;
        td_strip_load(m->dy, p, narrow, &dy);
        all[DY] += dy;
        all[DYX] += dy * v;
    }
    memcpy(sum, all, sizeof all);
}

#define ADD(name, narrow, backward)                                                                \
    static void name(const struct norm *m, int64_t at, const float *near, int64_t width,           \
                     float sum[SUMS][TD_LAYOUT_LANES]) {                                           \
        (void)width;                                                                               \
        sum_strip(m, at, near, narrow, backward, sum);                                             \
    }
ADD(add_f32, false, false)
ADD(add_bf16, true, false)
ADD(add_f32_grad, false, true)
ADD(add_bf16_grad, true, true)

// One (group, strip) after another.
static void sums_range(const void *arg, int64_t begin, int64_t end) {
    static add_fn *const forms[2][2] = {{add_f32, add_f32_grad}, {add_bf16, add_bf16_grad}};
    const struct norm *m = arg;
    add_fn *whole = forms[m->narrow][m->dy != NULL];
    int64_t strips = td_strips_count(&m->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / strips, strip = i % strips, c = strip * m->s.width;
        int64_t width = td_strip_width(&m->s, strip);
        double *to = m->sums + group * SUMS * m->s.channels + c;
        int64_t last = (group + 1) * m->s.n / m->n_groups;
        for (int64_t n = group * m->s.n / m->n_groups; n < last; n++) {
            float sum[SUMS][TD_LAYOUT_LANES] = {{0}};
            int64_t at = td_strip_at(&m->s, n, strip);
            (width == TD_LAYOUT_LANES ? whole : sum_part)(m, at, m->near + c, width, sum);
            for (int64_t k = 0; k < SUMS * width; k++) {
                to[k / width * m->s.channels + k % width] += (double)sum[k / width][k % width];
            }
        }
    }
}

static void choose_shift(const struct norm *m) {
    int64_t total = m->s.n * m->s.places, count = TD_MIN(total, (int64_t)FIRST_PLACES);
    for (int64_t c = 0; c < m->s.channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t at = td_strip_at(&m->s, i / m->s.places, c / m->s.width);
            at += i % m->s.places * m->s.step + c % m->s.width;
            sum += (double)read_at(m->x, at, m->narrow);
        }
        m->near[c] = (float)(sum / (double)count);
    }
}

// Means of what was summed; those of X and DYX are about the mean afterwards, XX is the variance.
static void moments_of(const struct norm *m, int64_t c, double mean[SUMS]) {
    double count = (double)m->s.n * (double)m->s.places;
    memset(mean, 0, SUMS * sizeof *mean);
    for (int64_t g = 0; g < m->n_groups; g++) {
        for (int k = 0; k < SUMS; k++) {
            mean[k] += m->sums[(g * SUMS + k) * m->s.channels + c] / count;
        }
    }
    double off = mean[X];
    mean[X] = (double)m->near[c] + off;
    mean[XX] = fmax(mean[XX] - off * off, 0);
    mean[DYX] -= off * mean[DY];
}

// of_x (x - mean) + constant, about the mean as fp32 has it.
static void set_affine(const struct norm *m, int64_t c, double mean, double of_x, double constant) {
    m->near[c] = (float)mean;
    m->of_x[c] = (float)of_x;
    m->constant[c] = (float)(constant + of_x * ((double)m->near[c] - mean));
}

static void sum_all(const struct td_kernel *k, const struct norm *m) {
    int64_t units = m->n_groups * td_strips_count(&m->s);
    choose_shift(m);
    memset(m->sums, 0, (size_t)(m->n_groups * SUMS * m->s.channels) * sizeof *m->sums);
    td_parallel_units(k->n_threads, units, k->elems, sums_range, m);
}

// ---- the second pass
// Of a strip that lacks channels.
static void norm_part(const struct norm *m, int64_t at, int64_t c, int64_t width) {
    const float *near = m->near + c, *of_x = m->of_x + c, *of_dy = m->of_dy + c;
    const float *constant = m->constant + c;
    for (int64_t p = at; p < at + m->s.places * m->s.step; p += m->s.step) {
        float y[TD_LAYOUT_LANES];
        for (int64_t l = 0; l < width; l++) {
            y[l] = (read_at(m->x, p + l, m->narrow) - near[l]) * of_x[l] + constant[l];
        }
        for (int64_t l = 0; m->dy && l < width; l++) {
            y[l] = read_at(m->dy, p + l, m->narrow) * of_dy[l] + y[l];
        }
        uint16_t *half = (uint16_t *)m->y + p;
        for (int64_t l = 0; m->narrow && l < width; l++) {
            half[l] = td_bf16_of_f32(y[l]);
        }
        if (!m->narrow) memcpy((float *)m->y + p, y, (size_t)width * sizeof *y);
    }
}

INLINE void norm_strip(const struct norm *m, int64_t at, int64_t c, bool narrow, bool backward) {
    td_strip near, of_x, of_dy, constant, y, dy;
    td_strip_load(m->near, c, false, &near);
    td_strip_load(m->of_x, c, false, &of_x);
    td_strip_load(m->of_dy, c, false, &of_dy);
    td_strip_load(m->constant, c, false, &constant);
    for (int64_t p = at; p < at + m->s.places * m->s.step; p += m->s.step) {
        td_strip_load(m->x, p, narrow, &y);
        y = (y - near) * of_x + constant;
        if (backward) {
            td_strip_load(m->dy, p, narrow, &dy);
            y = dy * of_dy + y;
        }
        td_strip_store(&y, m->y, p, narrow);
    }
}

typedef void write_fn(const struct norm *m, int64_t at, int64_t c, int64_t width);
#define WRITE(name, narrow, backward)                                                              \
    static void name(const struct norm *m, int64_t at, int64_t c, int64_t width) {                 \
        (void)width;                                                                               \
        norm_strip(m, at, c, narrow, backward);                                                    \
    }
WRITE(write_f32, false, false)
WRITE(write_bf16, true, false)
WRITE(write_f32_grad, false, true)
WRITE(write_bf16_grad, true, true)

static void norm_range(const void *arg, int64_t begin, int64_t end) {
    static write_fn *const forms[2][2] = {{write_f32, write_f32_grad},
                                          {write_bf16, write_bf16_grad}};
    const struct norm *m = arg;
    write_fn *whole = forms[m->narrow][m->dy != NULL];
    int64_t strips = td_strips_count(&m->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t strip = i % strips, width = td_strip_width(&m->s, strip);
        int64_t at = td_strip_at(&m->s, i / strips, strip);
        (width == TD_LAYOUT_LANES ? whole : norm_part)(m, at, strip * m->s.width, width);
    }
}

static void norm_all(const struct td_kernel *k, const struct norm *m) {
    td_parallel_units(k->n_threads, m->s.n * td_strips_count(&m->s), k->elems, norm_range, m);
}

// ---- entries
static struct norm norm_of(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = {.s = td_strips_of(&k->shape[0], k->layout),
                     .x = td_operand_at(&k->in[0], r),
                     .y = td_operand_at(&k->out[0], r),
                     .narrow = k->out_dtype[0] == TD_BF16};
    m.n_groups = TD_MAX(1, TD_MIN(m.s.n, (int64_t)GROUPS));
    m.sums = r->scratch;
    m.near = (float *)(void *)(m.sums + GROUPS * SUMS * m.s.channels);
    m.of_x = m.near + m.s.channels;
    m.of_dy = m.of_x + m.s.channels;
    m.constant = m.of_dy + m.s.channels;
    return m;
}

// Operand i of channel c.
static float of_channel(const struct td_kernel *k, const struct td_run *r, uint32_t i, int64_t c) {
    float buffer;
    return *td_cpu_row(k->in_dtype[i], td_operand_at(&k->in[i], r), c, 1, &buffer);
}

static void update_running_average(const struct td_kernel *k, const struct td_run *r, uint32_t i,
                                   int64_t c, double to) {
    float old = of_channel(k, r, i, c), by = (float)(k->attrs.momentum * (to - (double)old));
    float moved = old + by;
    enum td_dtype t = k->in_dtype[i];
    td_cpu_narrow(t, &moved, 1,
                  (char *)td_operand_at(&k->in[i], r) + c * (int64_t)td_dtype_bytes(t));
}

// Towards the batch's statistics; the variance without bias, as torch keeps it.
static void update_running_statistics(const struct td_kernel *k, const struct td_run *r,
                                      const struct norm *m, int64_t c, double mean, double var) {
    double count = (double)m->s.n * (double)m->s.places;
    if (count > 1) var *= count / (count - 1);
    update_running_average(k, r, 3, c, mean);
    update_running_average(k, r, 4, c, var);
}

static td_status run_batch_norm(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    if (!k->elems) return TD_OK;
    sum_all(k, &m);
    for (int64_t c = 0; c < m.s.channels; c++) {
        double mean[SUMS];
        moments_of(&m, c, mean);
        set_affine(&m, c, mean[X], (double)of_channel(k, r, 1, c) / sqrt(mean[XX] + k->attrs.eps),
                   (double)of_channel(k, r, 2, c));
        update_running_statistics(k, r, &m, c, mean[X], mean[XX]);
    }
    norm_all(k, &m);
    return TD_OK;
}

static td_status run_batch_norm_eval(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    for (int64_t c = 0; c < m.s.channels; c++) {
        double var = (double)of_channel(k, r, 4, c);
        m.near[c] = of_channel(k, r, 3, c);
        m.of_x[c] = (float)((double)of_channel(k, r, 1, c) / sqrt(var + k->attrs.eps));
        m.constant[c] = of_channel(k, r, 2, c);
    }
    norm_all(k, &m);
    return TD_OK;
}

static td_status run_batch_norm_grad(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    char *dgamma = td_operand_at(&k->out[1], r);
    int64_t step = (int64_t)td_dtype_bytes(k->out_dtype[1]);
    double count = (double)m.s.n * (double)m.s.places;
    m.dy = td_operand_at(&k->in[2], r);
    if (!k->elems) {
        memset(dgamma, 0, (size_t)(m.s.channels * step));
        return TD_OK;
    }
    sum_all(k, &m);
    for (int64_t c = 0; c < m.s.channels; c++) {
        double mean[SUMS];
        moments_of(&m, c, mean);
        double rstd = 1 / sqrt(mean[XX] + k->attrs.eps), a = (double)of_channel(k, r, 1, c) * rstd;
        m.of_dy[c] = (float)a;
        set_affine(&m, c, mean[X], -a * rstd * rstd * mean[DYX], -a * mean[DY]);
        float slope = (float)(mean[DYX] * rstd * count);
        td_cpu_narrow(k->out_dtype[1], &slope, 1, dgamma + c * step);
    }
    norm_all(k, &m);
    return TD_OK;
}

// Images fp32 or bf16; what belongs to a channel, of any narrow type.
static bool types_fit(const struct td_kernel *k) {
    enum td_dtype x = k->in_dtype[0];
    bool grad = td_kernel_is(k, "batch_norm_grad"), fits = x == TD_F32 || x == TD_BF16;
    for (uint32_t i = 1; i < k->n_in; i++) {
        fits = fits && (grad && i == 2 ? k->in_dtype[i] == x : td_cpu_is_narrow(k->in_dtype[i]));
    }
    return fits && k->out_dtype[0] == x && (!grad || td_cpu_is_narrow(k->out_dtype[1]));
}

td_status td_kernel_batch_norm(struct td_kernel *k) {
    static const struct td_kernel_row table[] = {
        {"batch_norm", run_batch_norm},
        {"batch_norm_eval", run_batch_norm_eval},
        {"batch_norm_grad", run_batch_norm_grad},
    };
    td_kernel_fn *run = TD_KERNEL_OF(k, table);
    if (!run || !types_fit(k)) return TD_OK;
    k->run = run;
    k->need = TD_NEED_ANY;
    k->scratch_bytes =
        (size_t)k->shape[0].dim[1] * (FACTORS * sizeof(float) + GROUPS * SUMS * sizeof(double));
    return TD_OK;
}
