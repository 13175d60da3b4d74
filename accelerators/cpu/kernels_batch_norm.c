// Batch norm, forward and backward, in any layout of layout.h.
//
// A channel's mean and variance come from one pass over x: sums of x - k and its square, where k is
// the mean of the channel's first places. k is near enough to the mean that nothing cancels, so one
// pass is as good as two. The backward pass takes the sums of dy and dy (x - k) along; then both
// write their result in a second pass:
//     y = (x - mean) rstd gamma + beta
//     dx = A dy + B (x - mean) + C,   A = rstd gamma, B = -A rstd^2 mean(dy (x - mean)), C = -A
//     mean(dy)
// Images are summed in at most GROUPS groups, beyond a strip of an image in double. Groups do not
// depend on the number of threads, and neither do the bits.

#include <math.h>
#include <string.h>

#include "accelerators/cpu/cpu.h"

enum { GROUPS = 32, FIRST_PLACES = 64 };
enum { X, XX, DY, DYX, SUMS }; // what is summed
enum { FACTORS = 4 };          // near, of_x, of_dy, constant

struct norm {
    struct td_strips s;
    const float *x, *dy;            // dy: NULL forward
    float *y;                       // or dx
    float *near;                    // (C): k, then the mean
    float *of_x, *of_dy, *constant; // (C): factors of x - mean and dy
    double *sums;                   // (n_groups, SUMS, C)
    int64_t n_groups;
};

// ---- sums
static inline void add_strip(const struct norm *m, int64_t at, const float *near, int64_t width,
                             int64_t step, float sum[SUMS][TD_LAYOUT_LANES]) {
    for (int64_t p = 0; p < m->s.places; p++) {
        const float *x = m->x + at + p * step, *dy = m->dy ? m->dy + at + p * step : NULL;
        for (int64_t l = 0; l < width; l++) {
            float v = x[l] - near[l];
            sum[X][l] += v;
            sum[XX][l] += v * v;
        }
        for (int64_t l = 0; dy && l < width; l++) {
            sum[DY][l] += dy[l];
            sum[DYX][l] += dy[l] * (x[l] - near[l]);
        }
    }
}

TD_CLONES static void add_whole(const struct norm *m, int64_t at, const float *near,
                                float sum[SUMS][TD_LAYOUT_LANES]) {
    add_strip(m, at, near, TD_LAYOUT_LANES, m->s.step, sum);
}

TD_CLONES static void add_part(const struct norm *m, int64_t at, const float *near, int64_t width,
                               float sum[SUMS][TD_LAYOUT_LANES]) {
    add_strip(m, at, near, width, m->s.step, sum);
}

// One (group, strip) after another.
static void sums_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm *m = arg;
    int64_t strips = td_strips_count(&m->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / strips, strip = i % strips, c = strip * m->s.width;
        int64_t width = td_strip_width(&m->s, strip);
        double *to = m->sums + group * SUMS * m->s.channels + c;
        int64_t last = (group + 1) * m->s.n / m->n_groups;
        for (int64_t n = group * m->s.n / m->n_groups; n < last; n++) {
            float sum[SUMS][TD_LAYOUT_LANES] = {{0}};
            int64_t at = td_strip_at(&m->s, n, strip);
            if (width == TD_LAYOUT_LANES)
                add_whole(m, at, m->near + c, sum);
            else
                add_part(m, at, m->near + c, width, sum);
            for (int64_t k = 0; k < SUMS * width; k++) {
                to[k / width * m->s.channels + k % width] += (double)sum[k / width][k % width];
            }
        }
    }
}

static void find_near(const struct norm *m) {
    int64_t total = m->s.n * m->s.places, count = TD_MIN(total, (int64_t)FIRST_PLACES);
    for (int64_t c = 0; c < m->s.channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t at = td_strip_at(&m->s, i / m->s.places, c / m->s.width);
            sum += (double)m->x[at + i % m->s.places * m->s.step + c % m->s.width];
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

static void sum_up(const struct td_kernel *k, const struct norm *m) {
    int64_t units = m->n_groups * td_strips_count(&m->s);
    find_near(m);
    memset(m->sums, 0, (size_t)(m->n_groups * SUMS * m->s.channels) * sizeof *m->sums);
    td_parallel_units(k->n_threads, units, sums_range, m);
}

// ---- the second pass
static inline void write_strip(const struct norm *m, int64_t at, int64_t c, int64_t width,
                               int64_t step) {
    const float *near = m->near + c, *of_x = m->of_x + c, *of_dy = m->of_dy + c;
    const float *constant = m->constant + c;
    for (int64_t p = 0; p < m->s.places; p++) {
        const float *x = m->x + at + p * step, *dy = m->dy ? m->dy + at + p * step : NULL;
        float *y = m->y + at + p * step;
        for (int64_t l = 0; !dy && l < width; l++) {
            y[l] = (x[l] - near[l]) * of_x[l] + constant[l];
        }
        for (int64_t l = 0; dy && l < width; l++) {
            y[l] = dy[l] * of_dy[l] + ((x[l] - near[l]) * of_x[l] + constant[l]);
        }
    }
}

TD_CLONES static void write_whole(const struct norm *m, int64_t at, int64_t c) {
    write_strip(m, at, c, TD_LAYOUT_LANES, m->s.step);
}

TD_CLONES static void write_part(const struct norm *m, int64_t at, int64_t c, int64_t width) {
    write_strip(m, at, c, width, m->s.step);
}

static void write_range(const void *arg, int64_t begin, int64_t end) {
    const struct norm *m = arg;
    int64_t strips = td_strips_count(&m->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t strip = i % strips, width = td_strip_width(&m->s, strip);
        int64_t at = td_strip_at(&m->s, i / strips, strip);
        if (width == TD_LAYOUT_LANES)
            write_whole(m, at, strip * m->s.width);
        else
            write_part(m, at, strip * m->s.width, width);
    }
}

static void write_all(const struct td_kernel *k, const struct norm *m) {
    td_parallel_units(k->n_threads, m->s.n * td_strips_count(&m->s), write_range, m);
}

// ---- entries
static struct norm norm_of(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = {.s = td_strips_of(&k->shape[0], k->layout),
                     .x = td_operand_at(&k->in[0], r),
                     .y = td_operand_at(&k->out[0], r)};
    m.n_groups = TD_MAX(1, TD_MIN(m.s.n, (int64_t)GROUPS));
    m.sums = r->scratch;
    m.near = (float *)(void *)(m.sums + GROUPS * SUMS * m.s.channels);
    m.of_x = m.near + m.s.channels;
    m.of_dy = m.of_x + m.s.channels;
    m.constant = m.of_dy + m.s.channels;
    return m;
}

// Towards the batch's statistics; the variance without bias, as torch keeps it.
static void move_statistics(const struct td_kernel *k, const struct td_run *r, const struct norm *m,
                            int64_t c, double mean, double var) {
    float *old_mean = td_operand_at(&k->in[3], r), *old_var = td_operand_at(&k->in[4], r);
    double count = (double)m->s.n * (double)m->s.places, by = k->attrs.momentum;
    if (count > 1) var *= count / (count - 1);
    old_mean[c] += (float)(by * (mean - (double)old_mean[c]));
    old_var[c] += (float)(by * (var - (double)old_var[c]));
}

static td_status run_batch_norm(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    if (!k->elems) return TD_OK;
    const float *gamma = td_operand_at(&k->in[1], r), *beta = td_operand_at(&k->in[2], r);
    sum_up(k, &m);
    for (int64_t c = 0; c < m.s.channels; c++) {
        double mean[SUMS];
        moments_of(&m, c, mean);
        m.near[c] = (float)mean[X];
        m.of_x[c] = (float)((double)gamma[c] / sqrt(mean[XX] + k->attrs.eps));
        m.constant[c] = beta[c];
        move_statistics(k, r, &m, c, mean[X], mean[XX]);
    }
    write_all(k, &m);
    return TD_OK;
}

static td_status run_batch_norm_eval(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    const float *gamma = td_operand_at(&k->in[1], r), *beta = td_operand_at(&k->in[2], r);
    const float *mean = td_operand_at(&k->in[3], r), *var = td_operand_at(&k->in[4], r);
    for (int64_t c = 0; c < m.s.channels; c++) {
        m.near[c] = mean[c];
        m.of_x[c] = (float)((double)gamma[c] / sqrt((double)var[c] + k->attrs.eps));
        m.constant[c] = beta[c];
    }
    write_all(k, &m);
    return TD_OK;
}

static td_status run_batch_norm_grad(const struct td_kernel *k, const struct td_run *r) {
    struct norm m = norm_of(k, r);
    const float *gamma = td_operand_at(&k->in[1], r);
    float *dgamma = td_operand_at(&k->out[1], r);
    double count = (double)m.s.n * (double)m.s.places;
    m.dy = td_operand_at(&k->in[2], r);
    if (!k->elems) {
        memset(dgamma, 0, (size_t)m.s.channels * sizeof *dgamma);
        return TD_OK;
    }
    sum_up(k, &m);
    for (int64_t c = 0; c < m.s.channels; c++) {
        double mean[SUMS];
        moments_of(&m, c, mean);
        double rstd = 1 / sqrt(mean[XX] + k->attrs.eps), a = (double)gamma[c] * rstd;
        m.near[c] = (float)mean[X];
        m.of_dy[c] = (float)a;
        m.of_x[c] = (float)(-a * rstd * rstd * mean[DYX]);
        m.constant[c] = (float)(-a * mean[DY]);
        dgamma[c] = (float)(mean[DYX] * rstd * count);
    }
    write_all(k, &m);
    return TD_OK;
}

td_status td_kernel_batch_norm(struct td_kernel *k) {
    static td_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_BATCH_NORM] = run_batch_norm,
        [TD_OP_BATCH_NORM_EVAL] = run_batch_norm_eval,
        [TD_OP_BATCH_NORM_GRAD] = run_batch_norm_grad,
    };
    if (!table[k->op] || !td_kernel_all(k, TD_F32)) return TD_OK;
    k->run = table[k->op];
    k->need = TD_NEED_ANY;
    k->scratch_bytes =
        (size_t)k->shape[0].dim[1] * (FACTORS * sizeof(float) + GROUPS * SUMS * sizeof(double));
    return TD_OK;
}
