// Pools: maximum and mean over windows, and their gradients, in any layout of layout.h.
//
// Threads share out units: one strip of channels (layout.h) of one image. A window is walked with
// eight or sixteen channels in one vector (gcc's and clang's vector types, of 32 bytes). Left to
// itself, gcc turns the comparison of a maximum into branches, ten times slower, and it takes
// comparisons of longer vectors apart. Where a strip has fewer channels, at the end of a
// channels-last image, its places are copied into whole vectors first. In plain order it has one,
// and maxima go by vectors of one.
//
// A maximum remembers where in its window it was, a byte each. It and its gradient move numbers and
// make none, so they work on their bits; a mean widens bf16 as it is read. The gradient walks the
// windows: where they tile the image each of its elements is written once, where they overlap or
// leave gaps it is cleared first.

#include <string.h>

#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/strips.h"
#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

enum { LANES = 8, STRIP = TD_LAYOUT_LANES };
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef int16_t hvec __attribute__((vector_size(STRIP * 2)));
typedef int16_t hvec_8 __attribute__((vector_size(16)));
typedef int16_t hvec_16 __attribute__((vector_size(32)));
typedef uint8_t bvec_16 __attribute__((vector_size(16)));
typedef int64_t qvec_2 __attribute__((vector_size(16)));
typedef float vec_1 __attribute__((vector_size(4))); // of plain order
typedef int32_t ivec_1 __attribute__((vector_size(4)));
typedef int16_t hvec_1 __attribute__((vector_size(2)));

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

// The part of a window along one dimension that is in the image.
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

// One window of one strip: offsets of the strip in the image's tensor, of the window's result.
struct window {
    int64_t x, y;
    struct span a, b;
};

// Where the place (i, j) of the window begins in the image's tensor.
INLINE int64_t place_at(const struct pool *p, const struct window *w, int i, int j) {
    return w->x + ((w->a.at + i) * p->w + w->b.at + j) * p->x_strips.step;
}

// ---- places in a window, a byte each in memory
// Step by step, each of a whole vector. From eight words to eight bytes at once gcc goes one by
// one.
INLINE void keep_bytes(const hvec_16 *where, uint8_t *to, int64_t n) {
    const bvec_16 bytes = __builtin_convertvector(*where, bvec_16);
    memcpy(to, &bytes, (size_t)n);
}

INLINE void keep_halves(const hvec *where, uint8_t *to, int64_t n) {
#if defined(__AVX512F__)
    keep_bytes(where, to, n);
#else
    const hvec_16 all =
        __builtin_shufflevector(*where, *where, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    keep_bytes(&all, to, n);
#endif
}

INLINE void keep_words(const ivec *where, uint8_t *to, int64_t n) {
    const hvec_8 w = __builtin_convertvector(*where, hvec_8);
    const hvec_16 all =
        __builtin_shufflevector(w, w, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    keep_bytes(&all, to, n);
}

INLINE void read_halves(const uint8_t *from, int64_t n, hvec *where) {
    bvec_16 bytes = {0};
    memcpy(&bytes, from, (size_t)n);
    const hvec_16 all = __builtin_convertvector(bytes, hvec_16);
    memcpy(where, &all, sizeof *where);
}

INLINE void read_words(const uint8_t *from, int64_t n, ivec *where) {
    int64_t eight = 0;
    memcpy(&eight, from, (size_t)n);
    const bvec_16 bytes = (bvec_16)(qvec_2){eight};
    const hvec_16 all = __builtin_convertvector(bytes, hvec_16);
    hvec_8 halves;
    memcpy(&halves, &all, sizeof halves);
    *where = __builtin_convertvector(halves, ivec);
}

// Of plain order: one.
#define ONE(word, ints)                                                                            \
    INLINE void keep_##word(const ints *where, uint8_t *to, int64_t n) {                           \
        (void)n;                                                                                   \
        *to = (uint8_t)(*where)[0];                                                                \
    }                                                                                              \
    INLINE void read_##word(const uint8_t *from, int64_t n, ints *where) {                         \
        (void)n;                                                                                   \
        (*where)[0] = *from;                                                                       \
    }
ONE(word, ivec_1)
ONE(half, hvec_1)

// ---- maxima: eight floats at a time, or sixteen bf16 by their bits
// Both take a NaN always, and then nothing but another. How a window's best is kept:
#define TAKE(best, take, other) (((take) & (other)) | (~(take) & (best)))

#define F32_MAX(name, floats, ints, keep)                                                          \
    INLINE void name(const struct pool *p, const struct window *w, int64_t c, int64_t n) {         \
        floats best = {0}, v = {0};                                                                \
        ints where = {0};                                                                          \
        bool seen = false;                                                                         \
        for (int i = w->a.begin; i < w->a.end; i++) {                                              \
            for (int j = w->b.begin; j < w->b.end; j++) {                                          \
                memcpy(&v, (const float *)p->x + place_at(p, w, i, j) + c,                         \
                       (size_t)n * sizeof(float));                                                 \
                ints take = (ints)(v > best) | (ints)(v != v);                                     \
                if (!seen) take = ~(ints){0};                                                      \
                best = (floats)TAKE((ints)best, take, (ints)v);                                    \
                where = TAKE(where, take, i * p->kernel[1] + j);                                   \
                seen = true;                                                                       \
            }                                                                                      \
        }                                                                                          \
        memcpy((float *)p->y + w->y + c, &best, (size_t)n * sizeof(float));                        \
        keep(&where, p->to_where + w->y + c, n);                                                   \
    }
F32_MAX(f32_max, vec, ivec, keep_words)
F32_MAX(f32_max_1, vec_1, ivec_1, keep_word)

// Words order like the numbers once the negative ones are mirrored.
#define BF16_MAX(name, words, keep)                                                                \
    INLINE void name(const struct pool *p, const struct window *w, int64_t n) {                    \
        words best = {0}, top = {0}, where = {0}, v = {0};                                         \
        bool seen = false;                                                                         \
        for (int i = w->a.begin; i < w->a.end; i++) {                                              \
            for (int j = w->b.begin; j < w->b.end; j++) {                                          \
                memcpy(&v, (const int16_t *)p->x + place_at(p, w, i, j),                           \
                       (size_t)n * sizeof(int16_t));                                               \
                words size = v & 0x7fff, sign = v >> 15, nan = size > 0x7f80;                      \
                words key = TAKE((size ^ sign) - sign, nan, size), take = nan | (key > top);       \
                if (!seen) take = ~(words){0};                                                     \
                best = TAKE(best, take, v);                                                        \
                top = TAKE(top, take, key);                                                        \
                where = TAKE(where, take, (int16_t)(i * p->kernel[1] + j));                        \
                seen = true;                                                                       \
            }                                                                                      \
        }                                                                                          \
        memcpy((int16_t *)p->y + w->y, &best, (size_t)n * sizeof(int16_t));                        \
        keep(&where, p->to_where + w->y, n);                                                       \
    }
BF16_MAX(bf16_max, hvec, keep_halves)
BF16_MAX(bf16_max_1, hvec_1, keep_half)

// The gradient where windows tile: each place gets the window's, or zero.
#define PUT(name, words, word, read)                                                               \
    INLINE void name(const struct pool *p, const struct window *w, int64_t c, int64_t n) {         \
        words dy = {0}, where = {0};                                                               \
        memcpy(&dy, (const word *)p->x + w->y + c, (size_t)n * sizeof(word));                      \
        read(p->where + w->y + c, n, &where);                                                      \
        for (int i = w->a.begin; i < w->a.end; i++) {                                              \
            for (int j = w->b.begin; j < w->b.end; j++) {                                          \
                words put = (words)(where == (word)(i * p->kernel[1] + j)) & dy;                   \
                memcpy((word *)p->y + place_at(p, w, i, j) + c, &put, (size_t)n * sizeof(word));   \
            }                                                                                      \
        }                                                                                          \
    }
PUT(f32_put, ivec, int32_t, read_words)
PUT(f32_put_1, ivec_1, int32_t, read_word)
PUT(bf16_put, hvec, int16_t, read_halves)
PUT(bf16_put_1, hvec_1, int16_t, read_half)

// ---- means, and gradients of windows that overlap: eight floats at a time
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

INLINE void mean_of(const struct pool *p, const struct window *w, int64_t c, int64_t n,
                    bool narrow) {
    vec sum = {0}, v;
    for (int i = w->a.begin; i < w->a.end; i++) {
        for (int j = w->b.begin; j < w->b.end; j++) {
            load(p->x, place_at(p, w, i, j) + c, n, narrow, &v);
            sum += v;
        }
    }
    sum *= p->scale;
    store(&sum, p->y, w->y + c, n, narrow);
}

INLINE void add_to(const struct pool *p, const struct window *w, int64_t c, int64_t n,
                   bool narrow) {
    vec dy, old = {0};
    ivec where = {0};
    load(p->x, w->y + c, n, narrow, &dy);
    if (p->where) read_words(p->where + w->y + c, n, &where);
    if (!p->where) dy *= p->scale;
    for (int i = w->a.begin; i < w->a.end; i++) {
        for (int j = w->b.begin; j < w->b.end; j++) {
            int64_t at = place_at(p, w, i, j) + c;
            ivec here = (ivec)(where == (p->where ? i * p->kernel[1] + j : 0));
            vec give = (vec)(here & (ivec)dy);
            if (!p->tiles) load(p->y, at, n, narrow, &old);
            give += old;
            store(&give, p->y, at, n, narrow);
        }
    }
}

// ---- windows
// The windows of the next row are fetched ahead: two rows at a time are more than the processor
// sees through.
INLINE void fetch_next(const struct pool *p, const struct window *w, bool narrow) {
    const int64_t next = p->stride[0] * p->w * p->x_strips.step;
    for (int i = w->a.begin; i < w->a.end; i++) {
        for (int j = w->b.begin; j < w->b.end; j++) {
            const uintptr_t at = (uintptr_t)(place_at(p, w, i, j) + next);
            __builtin_prefetch((const void *)((uintptr_t)p->x + at * (narrow ? 2 : 4)));
        }
    }
}

INLINE void max_window(const struct pool *p, const struct window *w, int64_t width, bool narrow) {
    if (width == 1) {
        narrow ? bf16_max_1(p, w, 1) : f32_max_1(p, w, 0, 1);
        return;
    }
    fetch_next(p, w, narrow);
    if (narrow) bf16_max(p, w, width);
    for (int64_t c = 0; !narrow && c < width; c += LANES) {
        f32_max(p, w, c, TD_MIN(width - c, (int64_t)LANES));
    }
}

INLINE void put_window(const struct pool *p, const struct window *w, int64_t width, bool narrow) {
    if (width == 1) {
        narrow ? bf16_put_1(p, w, 0, 1) : f32_put_1(p, w, 0, 1);
        return;
    }
    if (narrow) bf16_put(p, w, 0, width);
    for (int64_t c = 0; !narrow && c < width; c += LANES) {
        f32_put(p, w, c, TD_MIN(width - c, (int64_t)LANES));
    }
}

INLINE void mean_window(const struct pool *p, const struct window *w, int64_t width, bool narrow) {
    for (int64_t c = 0; c < width; c += LANES) {
        mean_of(p, w, c, TD_MIN(width - c, (int64_t)LANES), narrow);
    }
}

INLINE void give_window(const struct pool *p, const struct window *w, int64_t width, bool narrow) {
    for (int64_t c = 0; c < width; c += LANES) {
        add_to(p, w, c, TD_MIN(width - c, (int64_t)LANES), narrow);
    }
}

// ---- units: all windows of a strip of an image
typedef void window_fn(const struct pool *p, const struct window *w, int64_t width, bool narrow);

INLINE void each_window(const struct pool *p, int64_t unit, int64_t width, bool narrow, bool by_two,
                        window_fn *fn) {
    int64_t strips = td_strips_count(&p->x_strips), n = unit / strips, strip = unit % strips;
    struct window w = {.x = td_strip_at(&p->x_strips, n, strip)};
    int64_t y = td_strip_at(&p->y_strips, n, strip);
    struct pool own = *p; // nobody writes into it, as the compiler sees
    if (by_two) own.kernel[0] = own.kernel[1] = 2;
    for (int64_t i = 0; i < own.out_h; i++) {
        w.a = span_at(&own, 0, i);
        for (int64_t j = 0; j < own.out_w; j++) {
            w.y = y + (i * own.out_w + j) * own.y_strips.step;
            w.b = span_at(&own, 1, j);
            if (by_two) w.a.begin = w.b.begin = 0, w.a.end = w.b.end = 2;
            fn(&own, &w, width, narrow);
        }
    }
}

// The forms that speed matters for have their width and type as constants, and the window where it
// is two by two without padding.
typedef void unit_fn(const struct pool *p, int64_t unit);
#define FORM(name, form, width, narrow, by_two)                                                    \
    static void name##_##form(const struct pool *p, int64_t unit) {                                \
        each_window(p, unit, width, narrow, by_two, name##_window);                                \
    }
#define UNITS(name)                                                                                \
    FORM(name, f32, STRIP, false, false)                                                           \
    FORM(name, f32_by_two, STRIP, false, true)                                                     \
    FORM(name, bf16, STRIP, true, false)                                                           \
    FORM(name, bf16_by_two, STRIP, true, true)                                                     \
    FORM(name, f32_plain, 1, false, false)                                                         \
    FORM(name, f32_plain_by_two, 1, false, true)                                                   \
    FORM(name, bf16_plain, 1, true, false)                                                         \
    FORM(name, bf16_plain_by_two, 1, true, true)                                                   \
    FORM(name, part, td_strip_width(&p->x_strips, unit % td_strips_count(&p->x_strips)),           \
         p->narrow, false)                                                                         \
    static void name##_range(const void *arg, int64_t begin, int64_t end) {                        \
        static unit_fn *const forms[] = {name##_f32,        name##_f32_by_two,                     \
                                         name##_bf16,       name##_bf16_by_two,                    \
                                         name##_f32_plain,  name##_f32_plain_by_two,               \
                                         name##_bf16_plain, name##_bf16_plain_by_two};             \
        const struct pool *p = arg;                                                                \
        int64_t strips = td_strips_count(&p->x_strips);                                            \
        for (int64_t i = begin; i < end; i++) {                                                    \
            int64_t width = td_strip_width(&p->x_strips, i % strips);                              \
            int form = (width == 1) * 4 + p->narrow * 2 + p->by_two;                               \
            (width == 1 || width == STRIP ? forms[form] : name##_part)(p, i);                      \
        }                                                                                          \
    }
UNITS(max)
UNITS(mean)
UNITS(give)
UNITS(put)

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

static int64_t work_of(const struct pool *p) {
    return p->x_strips.n * p->x_strips.channels * p->x_strips.places;
}

static td_status run_pool(const struct td_kernel *k, const struct td_run *r) {
    bool max = k->n_out > 1;
    struct pool p = pool_of(k, &k->shape[0], &k->out_shape);
    const int64_t at = r->image * p.y_strips.channels * p.y_strips.places;
    if (k->part) p.x_strips.n = p.y_strips.n = k->part; // x is where every part is
    p.x = td_operand_at(&k->in[0], r);
    p.y = (char *)td_operand_at(&k->out[0], r) + (size_t)at * td_dtype_bytes(k->out_dtype[0]);
    if (max) p.to_where = (uint8_t *)td_operand_at(&k->out[1], r) + at;
    td_parallel_units(k->n_threads, p.x_strips.n * td_strips_count(&p.x_strips), work_of(&p),
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
    td_parallel_units(k->n_threads, p.x_strips.n * td_strips_count(&p.x_strips), work_of(&p),
                      max && p.tiles ? put_range : give_range, &p);
    return TD_OK;
}

td_status td_kernel_pool(struct td_kernel *k) {
    bool pool = td_kernel_is(k, "max_pool") || td_kernel_is(k, "avg_pool");
    bool grad = td_kernel_is(k, "max_pool_grad") || td_kernel_is(k, "avg_pool_grad");
    bool type = k->out_dtype[0] == TD_F32 || k->out_dtype[0] == TD_BF16;
    if ((!pool && !grad) || !type) return TD_OK;
    k->run = pool ? run_pool : run_pool_grad;
    k->need = TD_NEED_ANY;
    return TD_OK;
}
