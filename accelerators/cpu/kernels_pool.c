// Pools: maximum and mean over windows, and their gradients, in any layout of layout.h.
//
// Threads share out units: one strip of channels (layout.h) of one image. A window is walked with
// sixteen channels in one vector (gcc's and clang's vector types: left to itself, gcc turns the
// comparison of a maximum into branches, ten times slower). Where a strip has fewer channels, at
// the end of a channels-last image or in plain order, its places are copied into whole vectors
// first.
//
// A maximum remembers where in its window it was, a byte each. The gradient walks the windows:
// where they tile the image each of its elements is written once, where they overlap or leave gaps
// it is cleared first. bf16 is widened as it is read; a maximum and its gradient are exact in it.

#include <string.h>

#include "accelerators/cpu/cpu.h"
#include "lib/base/half.h"

enum { LANES = 8, STRIP = TD_LAYOUT_LANES };
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));

struct pool {
    struct td_strips x_strips, y_strips; // of the forward operand and result
    int64_t h, w, out_h, out_w;
    int kernel[2], stride[2], pad[2];
    const void *x;        // forward operand, or dy
    const uint8_t *where; // max_pool_grad
    void *y;              // forward result, or dx
    uint8_t *to_where;    // max_pool
    float scale;          // mean: 1 / window
    bool tiles;           // windows tile the image
    bool narrow;          // bf16
    bool by_two;          // windows of two by two, none at a border
};

// The part of a window along one dimension that lies in the image.
struct span {
    int begin, end; // of the window
    int64_t at;     // place in the image of the window's element 0
};

INLINE struct span span_at(const struct pool *p, int d, int64_t place) {
    int64_t n = d ? p->w : p->h, at = place * p->stride[d] - p->pad[d];
    struct span s = {.at = at, .begin = at < 0 ? (int)-at : 0, .end = p->kernel[d]};
    if (at + s.end > n) s.end = (int)(n - at);
    return s;
}

// ---- vectors of up to eight channels
INLINE void load(const void *x, int64_t at, int64_t width, bool narrow, vec *out) {
    float f[LANES] = {0};
    if (narrow) {
        const uint16_t *from = (const uint16_t *)x + at;
        for (int64_t l = 0; l < width; l++) {
            f[l] = td_f32_of_bf16(from[l]);
        }
    } else {
        memcpy(f, (const float *)x + at, (size_t)width * sizeof *f);
    }
    memcpy(out, f, sizeof *out);
}

INLINE void store(const vec *v, void *y, int64_t at, int64_t width, bool narrow) {
    float f[LANES];
    memcpy(f, v, sizeof f);
    uint16_t *to = (uint16_t *)y + at;
    for (int64_t l = 0; narrow && l < width; l++) {
        to[l] = td_bf16_of_f32(f[l]);
    }
    if (!narrow) memcpy((float *)y + at, f, (size_t)width * sizeof *f);
}

INLINE void load_bytes(const uint8_t *x, int64_t width, ivec *out) {
    int32_t i[LANES] = {0};
    for (int64_t l = 0; l < width; l++) {
        i[l] = x[l];
    }
    memcpy(out, i, sizeof *out);
}

INLINE void store_bytes(const ivec *v, uint8_t *y, int64_t width) {
    int32_t i[LANES];
    memcpy(i, v, sizeof i);
    for (int64_t l = 0; l < width; l++) {
        y[l] = (uint8_t)i[l];
    }
}

// ---- one window. x: offset of the strip in the image's tensor, y: of the window's result
INLINE void max_window(const struct pool *p, int64_t x, int64_t y, struct span a, struct span b,
                       int64_t width, bool narrow) {
    vec best = {0};
    ivec where = {0};
    bool seen = false;
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            vec v;
            ivec k = (ivec){0} + (i * p->kernel[1] + j);
            load(p->x, x + ((a.at + i) * p->w + b.at + j) * p->x_strips.step, width, narrow, &v);
            ivec take = (ivec)(v > best) | (ivec)(v != v);
            if (!seen) take = (ivec){0} - 1;
            best = (vec)((take & (ivec)v) | (~take & (ivec)best));
            where = (take & k) | (~take & where);
            seen = true;
        }
    }
    store(&best, p->y, y, width, narrow);
    store_bytes(&where, p->to_where + y, width);
}

INLINE void mean_window(const struct pool *p, int64_t x, int64_t y, struct span a, struct span b,
                        int64_t width, bool narrow) {
    vec sum = {0};
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            vec v;
            load(p->x, x + ((a.at + i) * p->w + b.at + j) * p->x_strips.step, width, narrow, &v);
            sum += v;
        }
    }
    sum *= p->scale;
    store(&sum, p->y, y, width, narrow);
}

INLINE void give_window(const struct pool *p, int64_t x, int64_t y, struct span a, struct span b,
                        int64_t width, bool narrow) {
    vec dy;
    ivec where = {0};
    load(p->x, y, width, narrow, &dy);
    if (p->where)
        load_bytes(p->where + y, width, &where);
    else
        dy *= p->scale;
    for (int i = a.begin; i < a.end; i++) {
        for (int j = b.begin; j < b.end; j++) {
            int64_t at = x + ((a.at + i) * p->w + b.at + j) * p->x_strips.step;
            ivec here = (ivec)(where == (p->where ? i * p->kernel[1] + j : 0));
            vec give = (vec)(here & (ivec)dy), old = {0};
            if (!p->tiles) load(p->y, at, width, narrow, &old);
            if (!p->tiles) give += old;
            store(&give, p->y, at, width, narrow);
        }
    }
}

// ---- units: all windows of a strip of an image
typedef void window_fn(const struct pool *p, int64_t x, int64_t y, struct span a, struct span b,
                       int64_t width, bool narrow);

INLINE void each_window(const struct pool *p, int64_t unit, int64_t width, bool narrow, bool by_two,
                        window_fn *fn) {
    int64_t strips = td_strips_count(&p->x_strips), n = unit / strips, strip = unit % strips;
    int64_t x = td_strip_at(&p->x_strips, n, strip), y = td_strip_at(&p->y_strips, n, strip);
    struct pool own = *p; // nobody writes into it, as the compiler sees
    if (by_two) own.kernel[0] = own.kernel[1] = 2;
    for (int64_t i = 0; i < own.out_h; i++) {
        struct span a = span_at(&own, 0, i);
        for (int64_t j = 0; j < own.out_w; j++) {
            int64_t at = y + (i * own.out_w + j) * own.y_strips.step;
            struct span b = span_at(&own, 1, j);
            if (by_two) a.begin = b.begin = 0, a.end = b.end = 2;
            for (int64_t c = 0; c < width; c += LANES) {
                fn(&own, x + c, at + c, a, b, TD_MIN(width - c, (int64_t)LANES), narrow);
            }
        }
    }
}

// The forms that speed matters for have their width and type as constants, and the window where it
// is two by two without padding.
typedef void unit_fn(const struct pool *p, int64_t unit);
#define FORM(name, form, width, narrow, by_two)                                                    \
    TD_CLONES static void name##_##form(const struct pool *p, int64_t unit) {                      \
        each_window(p, unit, width, narrow, by_two, name##_window);                                \
    }
#define UNITS(name)                                                                                \
    FORM(name, f32, STRIP, false, false)                                                           \
    FORM(name, f32_by_two, STRIP, false, true)                                                     \
    FORM(name, bf16, STRIP, true, false)                                                           \
    FORM(name, bf16_by_two, STRIP, true, true)                                                     \
    FORM(name, part, td_strip_width(&p->x_strips, unit % td_strips_count(&p->x_strips)),           \
         p->narrow, false)                                                                         \
    static void name##_range(const void *arg, int64_t begin, int64_t end) {                        \
        static unit_fn *const forms[] = {name##_f32, name##_f32_by_two, name##_bf16,               \
                                         name##_bf16_by_two};                                      \
        const struct pool *p = arg;                                                                \
        int64_t strips = td_strips_count(&p->x_strips);                                            \
        for (int64_t i = begin; i < end; i++) {                                                    \
            bool whole = td_strip_width(&p->x_strips, i % strips) == STRIP;                        \
            (whole ? forms[p->narrow * 2 + p->by_two] : name##_part)(p, i);                        \
        }                                                                                          \
    }
UNITS(max)
UNITS(mean)
UNITS(give)

// ---- entries
static struct pool pool_of(const struct td_kernel *k, const struct td_shape *x,
                           const struct td_shape *y) {
    const struct td_window_attrs *a = &k->attrs.window;
    bool grows = td_shape_elems(y) > td_shape_elems(x); // padding around one place
    struct pool p = {.x_strips = td_strips_of(grows ? y : x, k->layout),
                     .h = x->dim[2],
                     .w = x->dim[3],
                     .out_h = y->dim[2],
                     .out_w = y->dim[3],
                     .scale = 1,
                     .tiles = true,
                     .by_two = true,
                     .narrow = k->out_dtype[0] == TD_BF16};
    p.y_strips = p.x_strips;
    p.x_strips.places = p.h * p.w;
    p.y_strips.places = p.out_h * p.out_w;
    for (int d = 0; d < 2; d++) {
        p.kernel[d] = td_window_at_least_one(a->kernel[d]);
        p.stride[d] = td_window_at_least_one(a->stride[d]);
        p.pad[d] = a->pad[d];
        p.scale /= (float)p.kernel[d];
        p.by_two = p.by_two && p.kernel[d] == 2 && !p.pad[d];
        p.tiles = p.tiles && p.kernel[d] == p.stride[d] && !p.pad[d] &&
                  x->dim[2 + d] == y->dim[2 + d] * p.kernel[d];
    }
    return p;
}

static td_status run_pool(const struct td_kernel *k, const struct td_run *r) {
    bool max = k->n_out > 1;
    struct pool p = pool_of(k, &k->shape[0], &k->out_shape);
    p.x = td_operand_at(&k->in[0], r);
    p.y = td_operand_at(&k->out[0], r);
    if (max) p.to_where = td_operand_at(&k->out[1], r);
    td_parallel_units(k->n_threads, p.x_strips.n * td_strips_count(&p.x_strips),
                      max ? max_range : mean_range, &p);
    return TD_OK;
}

static void clear_range(const void *arg, int64_t begin, int64_t end) {
    const struct pool *p = arg;
    size_t bytes = p->narrow ? sizeof(uint16_t) : sizeof(float);
    memset((char *)p->y + (size_t)begin * bytes, 0, (size_t)(end - begin) * bytes);
}

static td_status run_pool_grad(const struct td_kernel *k, const struct td_run *r) {
    bool max = k->n_in > 1;
    struct pool p = pool_of(k, &k->out_shape, &k->shape[0]);
    if (max) p.where = td_operand_at(&k->in[0], r);
    p.x = td_operand_at(&k->in[max ? 1 : 0], r);
    p.y = td_operand_at(&k->out[0], r);
    if (!p.tiles) td_parallel(k->n_threads, k->elems, STRIP, clear_range, &p);
    td_parallel_units(k->n_threads, p.x_strips.n * td_strips_count(&p.x_strips), give_range, &p);
    return TD_OK;
}

td_status td_kernel_pool(struct td_kernel *k) {
    bool pool = k->op == TD_OP_MAX_POOL || k->op == TD_OP_AVG_POOL;
    bool grad = k->op == TD_OP_MAX_POOL_GRAD || k->op == TD_OP_AVG_POOL_GRAD;
    bool type = k->out_dtype[0] == TD_F32 || k->out_dtype[0] == TD_BF16;
    if ((!pool && !grad) || !type) return TD_OK;
    k->run = pool ? run_pool : run_pool_grad;
    k->need = TD_NEED_ANY;
    return TD_OK;
}
