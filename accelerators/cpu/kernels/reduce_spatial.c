// Sums of images over their places: of each channel over all images (a convolution's bias
// gradient), and of each channel of each image (the global pool). Images have any layout of
// layout.h.
//
// Strips of one image are summed first, by threads, each in a fixed order. What is left are (N,C)
// numbers: the global pool's result; for a bias they are summed over the images in order. bf16 is
// widened as it is read, and summed in fp32.

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

struct sums {
    struct td_strips s;
    const void *x;
    float *y; // (N,C)
    float scale;
    bool narrow; // x is bf16
};

enum { AT_ONCE = 4 }; // places whose sums do not wait for each other

// Of a strip that lacks channels.
static void sum_part(const struct sums *a, int64_t at, int64_t width, float *y) {
    float sum[AT_ONCE][TD_LAYOUT_LANES] = {{0}};
    const bool narrow = a->narrow;
    int64_t step = a->s.step, whole = a->s.places / AT_ONCE * AT_ONCE;
    const float *x = (const float *)a->x + at;
    const uint16_t *half = (const uint16_t *)a->x + at;
    for (int64_t p = 0; p < a->s.places; p += p < whole ? AT_ONCE : 1) {
        for (int64_t i = 0; i < (p < whole ? AT_ONCE : 1); i++) {
            for (int64_t l = 0; l < width; l++) {
                int64_t k = (p + i) * step + l;
                sum[i][l] += narrow ? td_f32_of_bf16(half[k]) : x[k];
            }
        }
    }
    for (int64_t l = 0; l < width; l++) {
        y[l] = ((sum[0][l] + sum[1][l]) + (sum[2][l] + sum[3][l])) * a->scale;
    }
}

static inline __attribute__((always_inline)) void sum_strip(const struct sums *a, int64_t at,
                                                            bool narrow, float *y) {
    td_strip sum[AT_ONCE] = {0}, v;
    int64_t p = 0, whole = a->s.places / AT_ONCE * AT_ONCE, step = a->s.step;
    for (; p < whole; p += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            td_strip_load(a->x, at + (p + i) * step, narrow, &v);
            sum[i] += v;
        }
    }
    for (; p < a->s.places; p++) {
        td_strip_load(a->x, at + p * step, narrow, &v);
        sum[0] += v;
    }
    v = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * a->scale;
    td_strip_store(&v, y, 0, false);
}

static void sum_f32(const struct sums *a, int64_t at, float *y) {
    sum_strip(a, at, false, y);
}

static void sum_bf16(const struct sums *a, int64_t at, float *y) {
    sum_strip(a, at, true, y);
}

static void sum_range(const void *arg, int64_t begin, int64_t end) {
    const struct sums *a = arg;
    int64_t strips = td_strips_count(&a->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / strips, strip = i % strips, width = td_strip_width(&a->s, strip);
        float *y = a->y + n * a->s.channels + strip * a->s.width;
        int64_t at = td_strip_at(&a->s, n, strip);
        if (width < TD_LAYOUT_LANES) {
            sum_part(a, at, width, y);
        } else {
            (a->narrow ? sum_bf16 : sum_f32)(a, at, y);
        }
    }
}

static bool keeps_images(const struct td_kernel *k) {
    return k->out_shape.n_dims == 4 && k->out_shape.dim[0] == k->shape[0].dim[0];
}

static td_status run_reduce(const struct td_kernel *k, const struct td_run *r) {
    struct sums a = {.s = td_strips_of(&k->shape[0], k->layout),
                     .x = td_operand_at(&k->in[0], r),
                     .y = r->scratch,
                     .scale = 1,
                     .narrow = k->in_dtype[0] == TD_BF16};
    void *y = td_operand_at(&k->out[0], r);
    bool wide = k->out_dtype[0] == TD_F32;
    int64_t n = a.s.n * a.s.channels;
    float *sum = wide ? y : (float *)r->scratch + n;
    if (td_kernel_is(k, "reduce_mean")) {
        a.scale = 1 / (float)(a.s.places * (keeps_images(k) ? 1 : TD_MAX(a.s.n, 1)));
    }
    td_parallel_units(k->n_threads, a.s.n * td_strips_count(&a.s), n * a.s.places, sum_range, &a);
    if (!wide || !k->attrs.accumulate) memset(sum, 0, (size_t)k->elems * sizeof *sum);
    for (int64_t i = 0; i < n; i++) {
        sum[i % k->elems] += a.y[i];
    }
    if (!wide) td_cpu_narrow(k->out_dtype[0], sum, k->elems, y);
    return TD_OK;
}

// x summed down to (C,1,1), (1,C,1,1) or (N,C,1,1).
static bool sums_places(const struct td_shape *x, const struct td_shape *y) {
    if (x->n_dims != 4 || y->n_dims < 3) return false;
    int c = y->n_dims - 3;
    bool places = y->dim[c] == x->dim[1] && y->dim[c + 1] == 1 && y->dim[c + 2] == 1;
    return places && x->dim[1] && (!c || y->dim[0] == 1 || y->dim[0] == x->dim[0]);
}

td_status td_kernel_reduce_spatial(struct td_kernel *k) {
    bool sums = td_kernel_is(k, "reduce_sum") || td_kernel_is(k, "reduce_mean");
    if (!sums || !sums_places(&k->shape[0], &k->out_shape)) return TD_OK;
    enum td_dtype x = k->in_dtype[0], y = k->out_dtype[0];
    bool narrow = x == TD_BF16 && (y == TD_F32 || (y == TD_BF16 && !k->attrs.accumulate));
    if (!narrow && !td_kernel_all(k, TD_F32)) return TD_OK;
    k->run = run_reduce;
    k->need = TD_NEED_ANY;
    size_t elems = (size_t)(k->shape[0].dim[0] * k->shape[0].dim[1] + k->elems);
    k->scratch_bytes = elems * sizeof(float);
    return TD_OK;
}
