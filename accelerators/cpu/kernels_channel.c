// Sums of images over their places: of each channel over all images (a convolution's bias
// gradient), and of each channel of each image (the global pool), in any layout of layout.h.
//
// Strips of one image are summed first, by threads, each in a fixed order; what is left are (N,C)
// numbers, which are the global pool's result. For a bias they are summed over the images in order.

#include <string.h>

#include "accelerators/cpu/cpu.h"

struct sums {
    struct td_strips s;
    const float *x;
    float *y; // (N,C)
    float scale;
};

static inline void sum_strip(const float *x, int64_t places, int64_t step, int64_t width,
                             float scale, float *y) {
    float sum[TD_LAYOUT_LANES] = {0};
    for (int64_t p = 0; p < places; p++) {
        for (int64_t l = 0; l < width; l++) {
            sum[l] += x[p * step + l];
        }
    }
    for (int64_t l = 0; l < width; l++) {
        y[l] = sum[l] * scale;
    }
}

TD_CLONES static void sum_whole(const struct sums *a, int64_t at, float *y) {
    sum_strip(a->x + at, a->s.places, a->s.step, TD_LAYOUT_LANES, a->scale, y);
}

TD_CLONES static void sum_part(const struct sums *a, int64_t at, int64_t width, float *y) {
    sum_strip(a->x + at, a->s.places, a->s.step, width, a->scale, y);
}

static void sums_range(const void *arg, int64_t begin, int64_t end) {
    const struct sums *a = arg;
    int64_t strips = td_strips_count(&a->s);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / strips, strip = i % strips, width = td_strip_width(&a->s, strip);
        float *y = a->y + n * a->s.channels + strip * a->s.width;
        int64_t at = td_strip_at(&a->s, n, strip);
        if (width == TD_LAYOUT_LANES)
            sum_whole(a, at, y);
        else
            sum_part(a, at, width, y);
    }
}

static bool keeps_images(const struct td_kernel *k) {
    return k->out_shape.n_dims == 4 && k->out_shape.dim[0] == k->shape[0].dim[0];
}

static td_status run_sums(const struct td_kernel *k, const struct td_run *r) {
    struct sums a = {.s = td_strips_of(&k->shape[0], k->layout),
                     .x = td_operand_at(&k->in[0], r),
                     .y = r->scratch,
                     .scale = 1};
    float *y = td_operand_at(&k->out[0], r);
    bool images = keeps_images(k) && !k->attrs.accumulate;
    if (images) a.y = y;
    if (k->op == TD_OP_REDUCE_MEAN) {
        a.scale = 1 / (float)(a.s.places * (keeps_images(k) ? 1 : TD_MAX(a.s.n, 1)));
    }
    td_parallel_units(k->n_threads, a.s.n * td_strips_count(&a.s), sums_range, &a);
    if (images) return TD_OK;
    if (!k->attrs.accumulate) memset(y, 0, (size_t)k->elems * sizeof *y);
    for (int64_t i = 0; i < a.s.n * a.s.channels; i++) {
        y[i % k->elems] += a.y[i];
    }
    return TD_OK;
}

// x summed down to (C,1,1), (1,C,1,1) or (N,C,1,1).
static bool sums_places(const struct td_shape *x, const struct td_shape *y) {
    if (x->n_dims != 4 || y->n_dims < 3) return false;
    int c = y->n_dims - 3;
    bool places = y->dim[c] == x->dim[1] && y->dim[c + 1] == 1 && y->dim[c + 2] == 1;
    return places && x->dim[1] && (!c || y->dim[0] == 1 || y->dim[0] == x->dim[0]);
}

td_status td_kernel_channel(struct td_kernel *k) {
    bool sums = k->op == TD_OP_REDUCE_SUM || k->op == TD_OP_REDUCE_MEAN;
    if (!sums || !td_kernel_all(k, TD_F32) || !sums_places(&k->shape[0], &k->out_shape)) {
        return TD_OK;
    }
    k->run = run_sums;
    k->need = TD_NEED_ANY;
    k->scratch_bytes = (size_t)(k->shape[0].dim[0] * k->shape[0].dim[1] + 1) * sizeof(float);
    return TD_OK;
}
