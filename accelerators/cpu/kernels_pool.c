// Pools: maximum and mean over windows, and their gradients, in any layout of layout.h.
//
// A plane is what one block of channels of one image takes: (H, W, lanes). Planes are independent,
// so they are what threads share out; the inner loops run over the lanes. Sixteen lanes, a constant
// that the compiler unrolls into one vector, are a form of their own; another number of lanes (one
// in plain order, all channels in last) takes the same loops.
//
// A maximum remembers where in its window it was, a byte each. The gradient walks the windows:
// where they tile the image each of its elements is written once, where they overlap or leave gaps
// it is cleared first.

#include <string.h>

#include "accelerators/cpu/cpu.h"

struct pool {
    int64_t lanes, h, w, out_h, out_w; // h, w: of the operand of the forward pool
    int kernel[2], stride[2], pad[2];
    const float *x;       // forward operand, or dy
    const uint8_t *where; // max_pool_grad
    float *y;             // forward result, or dx
    uint8_t *to_where;    // max_pool
    float scale;          // mean: 1 / window
    bool tiles;           // windows tile the image
};

// The part of a window along one dimension that lies in the image.
struct span {
    int begin, end; // of the window
    int64_t at;     // place in the image of the window's element 0
};

static struct span span_at(const struct pool *p, int d, int64_t place) {
    int64_t n = d ? p->w : p->h, at = place * p->stride[d] - p->pad[d];
    struct span s = {.at = at, .begin = at < 0 ? (int)-at : 0, .end = p->kernel[d]};
    if (at + s.end > n) s.end = (int)(n - at);
    return s;
}

// ---- one window, all lanes
static inline void max_lanes(const float *x, int k, float *y, uint8_t *where, int64_t lanes) {
    for (int64_t l = 0; l < lanes; l++) {
        bool take = x[l] > y[l] || x[l] != x[l];
        y[l] = take ? x[l] : y[l];
        where[l] = take ? (uint8_t)k : where[l];
    }
}

static inline void max_window(const struct pool *p, const float *x, float *y, uint8_t *where,
                              struct span a, struct span b, int64_t lanes) {
    int first = a.begin * p->kernel[1] + b.begin;
    memcpy(y, x + ((a.at + a.begin) * p->w + b.at + b.begin) * lanes, (size_t)lanes * sizeof *y);
    memset(where, first, (size_t)lanes);
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            int k = i * p->kernel[1] + j;
            if (k == first) continue;
            max_lanes(x + ((a.at + i) * p->w + b.at + j) * lanes, k, y, where, lanes);
        }
    }
}

static inline void mean_window(const struct pool *p, const float *x, float *y, struct span a,
                               struct span b, int64_t lanes) {
    memset(y, 0, (size_t)lanes * sizeof *y);
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            const float *from = x + ((a.at + i) * p->w + b.at + j) * lanes;
            for (int64_t l = 0; l < lanes; l++) {
                y[l] += from[l] * p->scale;
            }
        }
    }
}

static inline void give_window(const struct pool *p, const float *dy, const uint8_t *where,
                               float *dx, struct span a, struct span b, int64_t lanes) {
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            int k = i * p->kernel[1] + j;
            float *to = dx + ((a.at + i) * p->w + b.at + j) * lanes;
            for (int64_t l = 0; l < lanes; l++) {
                float give = !where ? dy[l] * p->scale : where[l] == k ? dy[l] : 0;
                to[l] = p->tiles ? give : to[l] + give;
            }
        }
    }
}

// ---- planes
static inline void max_planes(const struct pool *p, int64_t begin, int64_t end, int64_t lanes) {
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->x + i * p->h * p->w * lanes;
        for (int64_t o = 0; o < p->out_h * p->out_w; o++) {
            int64_t at = (i * p->out_h * p->out_w + o) * lanes;
            struct span a = span_at(p, 0, o / p->out_w), b = span_at(p, 1, o % p->out_w);
            max_window(p, x, p->y + at, p->to_where + at, a, b, lanes);
        }
    }
}

static inline void mean_planes(const struct pool *p, int64_t begin, int64_t end, int64_t lanes) {
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->x + i * p->h * p->w * lanes;
        for (int64_t o = 0; o < p->out_h * p->out_w; o++) {
            int64_t at = (i * p->out_h * p->out_w + o) * lanes;
            struct span a = span_at(p, 0, o / p->out_w), b = span_at(p, 1, o % p->out_w);
            mean_window(p, x, p->y + at, a, b, lanes);
        }
    }
}

static inline void grad_planes(const struct pool *p, int64_t begin, int64_t end, int64_t lanes) {
    size_t plane = (size_t)(p->h * p->w * lanes);
    for (int64_t i = begin; i < end; i++) {
        float *dx = p->y + (size_t)i * plane;
        if (!p->tiles) memset(dx, 0, plane * sizeof *dx);
        for (int64_t o = 0; o < p->out_h * p->out_w; o++) {
            int64_t at = (i * p->out_h * p->out_w + o) * lanes;
            struct span a = span_at(p, 0, o / p->out_w), b = span_at(p, 1, o % p->out_w);
            give_window(p, p->x + at, p->where ? p->where + at : NULL, dx, a, b, lanes);
        }
    }
}

#define PLANES(name)                                                                               \
    TD_CLONES static void name##_16(const struct pool *p, int64_t begin, int64_t end) {            \
        name##_planes(p, begin, end, TD_LAYOUT_LANES);                                             \
    }                                                                                              \
    TD_CLONES static void name##_any(const struct pool *p, int64_t begin, int64_t end) {           \
        name##_planes(p, begin, end, p->lanes);                                                    \
    }                                                                                              \
    static void name##_range(const void *arg, int64_t begin, int64_t end) {                        \
        const struct pool *p = arg;                                                                \
        if (p->lanes == TD_LAYOUT_LANES)                                                           \
            name##_16(p, begin, end);                                                              \
        else                                                                                       \
            name##_any(p, begin, end);                                                             \
    }
PLANES(max)
PLANES(mean)
PLANES(grad)

// ---- entries
static struct pool pool_of(const struct td_kernel *k, const struct td_shape *x,
                           const struct td_shape *y) {
    const struct td_window_attrs *a = &k->attrs.window;
    struct pool p = {.lanes = td_layout_lanes(k->layout, x->dim[1]),
                     .h = x->dim[2],
                     .w = x->dim[3],
                     .out_h = y->dim[2],
                     .out_w = y->dim[3],
                     .scale = 1,
                     .tiles = true};
    for (int d = 0; d < 2; d++) {
        p.kernel[d] = td_window_at_least_one(a->kernel[d]);
        p.stride[d] = td_window_at_least_one(a->stride[d]);
        p.pad[d] = a->pad[d];
        p.scale /= (float)p.kernel[d];
        p.tiles = p.tiles && p.kernel[d] == p.stride[d] && !p.pad[d] &&
                  x->dim[2 + d] == y->dim[2 + d] * p.kernel[d];
    }
    return p;
}

static void run_planes(const struct td_kernel *k, const struct pool *p, const struct td_shape *x,
                       td_range_fn *range) {
    int64_t plane = p->h * p->w * p->lanes;
    int64_t planes = plane ? td_shape_elems(x) / plane : 0;
    td_parallel_units(k->n_threads, planes, range, p);
}

static td_status run_pool(const struct td_kernel *k, const struct td_run *r) {
    bool max = k->n_out > 1;
    struct pool p = pool_of(k, &k->shape[0], &k->out_shape);
    p.x = td_operand_at(&k->in[0], r);
    p.y = td_operand_at(&k->out[0], r);
    if (max) p.to_where = td_operand_at(&k->out[1], r);
    run_planes(k, &p, &k->shape[0], max ? max_range : mean_range);
    return TD_OK;
}

static td_status run_pool_grad(const struct td_kernel *k, const struct td_run *r) {
    bool max = k->n_in > 1;
    struct pool p = pool_of(k, &k->out_shape, &k->shape[0]);
    if (max) p.where = td_operand_at(&k->in[0], r);
    p.x = td_operand_at(&k->in[max ? 1 : 0], r);
    p.y = td_operand_at(&k->out[0], r);
    run_planes(k, &p, &k->out_shape, grad_range);
    return TD_OK;
}

td_status td_kernel_pool(struct td_kernel *k) {
    bool pool = k->op == TD_OP_MAX_POOL || k->op == TD_OP_AVG_POOL;
    bool grad = k->op == TD_OP_MAX_POOL_GRAD || k->op == TD_OP_AVG_POOL_GRAD;
    if ((!pool && !grad) || k->out_dtype[0] != TD_F32) return TD_OK;
    k->run = pool ? run_pool : run_pool_grad;
    k->need = TD_NEED_ANY;
    return TD_OK;
}
