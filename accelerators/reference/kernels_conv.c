// Convolutions and pools of the reference. The convolution and both of its gradients are one walk
// over the terms y[n,o,p,q] += x[n,c,h,w] * f[o,c,i,j]: which of the three tensors a term is added
// to is all that differs. Pools walk the same windows.

#include <math.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/families.h"

// The place in the operand that place `out` of the output sees with element `k` of the filter.
static int64_t seen(const struct td_window_attrs *a, int d, int64_t out, int64_t k) {
    return out * td_window_at_least_one(a->stride[d]) - a->pad[d] +
           k * td_window_at_least_one(a->dilation[d]);
}

static int64_t at4(const struct td_shape *s, int64_t n, int64_t c, int64_t h, int64_t w) {
    return ((n * s->dim[1] + c) * s->dim[2] + h) * s->dim[3] + w;
}

struct conv {
    const struct td_window_attrs *a;
    struct ref_operand *x, *f, *y, *to; // to: which of them is the result
};

static void add_product(const struct conv *v, int64_t ix, int64_t jf, int64_t ky) {
    if (v->to == v->y) td_ref_add_at(v->y, ky, v->x->x[ix] * v->f->x[jf]);
    if (v->to == v->x) td_ref_add_at(v->x, ix, v->y->x[ky] * v->f->x[jf]);
    if (v->to == v->f) td_ref_add_at(v->f, jf, v->y->x[ky] * v->x->x[ix]);
}

// All terms of one output place.
static void conv_element(const struct conv *v, int64_t n, int64_t o, int64_t p, int64_t q) {
    const struct td_shape *sf = v->f->shape, *sx = v->x->shape, *sy = v->y->shape;
    int64_t per_group = sf->dim[0] / td_window_at_least_one(v->a->groups);
    int64_t first = per_group ? o / per_group * sf->dim[1] : 0;
    for (int64_t c = 0; c < sf->dim[1]; c++) {
        for (int64_t i = 0; i < sf->dim[2]; i++) {
            int64_t h = seen(v->a, 0, p, i);
            if (h < 0 || h >= sx->dim[2]) continue;
            for (int64_t j = 0; j < sf->dim[3]; j++) {
                int64_t w = seen(v->a, 1, q, j);
                if (w < 0 || w >= sx->dim[3]) continue;
                add_product(v, at4(sx, n, first + c, h, w), at4(sf, o, c, i, j),
                            at4(sy, n, o, p, q));
            }
        }
    }
}

static td_status run_conv(struct ref_call *c) {
    struct ref_operand *out = &c->out[0];
    struct conv v = {&c->node->attrs.window, &c->in[0], &c->in[1], out, out};
    if (c->node->op == TD_OP_CONV2D_GRAD_X) {
        v = (struct conv){v.a, out, &c->in[1], &c->in[0], out};
    } else if (c->node->op == TD_OP_CONV2D_GRAD_W) {
        v = (struct conv){v.a, &c->in[0], out, &c->in[1], out};
    }
    td_ref_sums_begin(out);
    const struct td_shape *sy = v.y->shape;
    for (int64_t i = 0; i < v.y->n; i++) {
        int64_t q = i % sy->dim[3], p = i / sy->dim[3] % sy->dim[2];
        int64_t o = i / sy->dim[3] / sy->dim[2] % sy->dim[1];
        conv_element(&v, i / sy->dim[3] / sy->dim[2] / sy->dim[1], o, p, q);
    }
    td_ref_sums_settle(out);
    for (int64_t i = 0; i < out->n && c->node->op == TD_OP_CONV2D && c->node->n_inputs > 2; i++) {
        const double bias = c->in[2].x[i / sy->dim[3] / sy->dim[2] % sy->dim[1]];
        out->x[i] = td_ref_round(out->dtype, out->x[i]) + bias;
    }
    return TD_OK;
}

// ---- pools: fn is called for each element of the operand that a place of the output sees
typedef void pool_fn(struct ref_call *c, int64_t place, int64_t element, int64_t in_window);

static void walk_pool(struct ref_call *c, const struct td_shape *x, const struct td_shape *y,
                      pool_fn *fn) {
    const struct td_window_attrs *a = &c->node->attrs.window;
    int64_t kh = td_window_at_least_one(a->kernel[0]), kw = td_window_at_least_one(a->kernel[1]);
    for (int64_t place = 0; place < td_shape_elems(y); place++) {
        int64_t q = place % y->dim[3], p = place / y->dim[3] % y->dim[2];
        int64_t image = place / y->dim[3] / y->dim[2];
        for (int64_t k = 0; k < kh * kw; k++) {
            int64_t h = seen(a, 0, p, k / kw), w = seen(a, 1, q, k % kw);
            if (h < 0 || h >= x->dim[2] || w < 0 || w >= x->dim[3]) continue;
            fn(c, place, (image * x->dim[2] + h) * x->dim[3] + w, k);
        }
    }
}

static void max_pool_element(struct ref_call *c, int64_t place, int64_t element, int64_t k) {
    double x = c->in[0].x[element], *y = &c->out[0].x[place];
    if (c->out[1].x[place] >= 0 && !(x > *y || x != x)) return;
    *y = x;
    c->out[1].x[place] = (double)k;
}

static void max_pool_grad_element(struct ref_call *c, int64_t place, int64_t element, int64_t k) {
    if (c->in[0].x[place] == (double)k) td_ref_add_at(&c->out[0], element, c->in[1].x[place]);
}

static double window_size(const struct ref_call *c) {
    const struct td_window_attrs *a = &c->node->attrs.window;
    return (double)td_window_at_least_one(a->kernel[0]) *
           (double)td_window_at_least_one(a->kernel[1]);
}

static void avg_pool_element(struct ref_call *c, int64_t place, int64_t element, int64_t k) {
    (void)k;
    td_ref_add_at(&c->out[0], place, c->in[0].x[element] / window_size(c));
}

static void avg_pool_grad_element(struct ref_call *c, int64_t place, int64_t element, int64_t k) {
    (void)k;
    td_ref_add_at(&c->out[0], element, c->in[0].x[place] / window_size(c));
}

static td_status run_max_pool(struct ref_call *c) {
    memset(c->out[0].x, 0, (size_t)c->out[0].n * sizeof(double));
    for (int64_t i = 0; i < c->out[1].n; i++) {
        c->out[1].x[i] = -1; // nothing was seen yet
    }
    walk_pool(c, c->in[0].shape, c->out[0].shape, max_pool_element);
    return TD_OK;
}

static td_status run_avg_pool(struct ref_call *c) {
    td_ref_sums_begin(&c->out[0]);
    walk_pool(c, c->in[0].shape, c->out[0].shape, avg_pool_element);
    td_ref_sums_settle(&c->out[0]);
    return TD_OK;
}

static td_status run_pool_grad(struct ref_call *c) {
    td_ref_sums_begin(&c->out[0]);
    walk_pool(c, c->out[0].shape, c->in[0].shape,
              c->node->op == TD_OP_MAX_POOL_GRAD ? max_pool_grad_element : avg_pool_grad_element);
    td_ref_sums_settle(&c->out[0]);
    return TD_OK;
}

td_ref_kernel_fn *td_ref_conv(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_CONV2D] = run_conv,
        [TD_OP_CONV2D_GRAD_X] = run_conv,
        [TD_OP_CONV2D_GRAD_W] = run_conv,
        [TD_OP_MAX_POOL] = run_max_pool,
        [TD_OP_MAX_POOL_GRAD] = run_pool_grad,
        [TD_OP_AVG_POOL] = run_avg_pool,
        [TD_OP_AVG_POOL_GRAD] = run_pool_grad,
    };
    return table[op];
}
