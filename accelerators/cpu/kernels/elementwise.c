// Elementwise kernels: cast, add, mul, sub, div, axpby, scale, clamp, store, fill, reshape.
//
// 16-bit operands are widened to fp32 a chunk at a time, in L1; an f32 operand is used where it
// is. Fast paths: operands of one shape, a vector broadcast over rows, and one number a row (of
// an image's channel, say); every other broadcast walks an odometer over the dimensions. In-place
// use (output over an operand) is allowed everywhere, because an element is read before it is
// written. GRAIN keeps small tensors on one thread: a parallel region costs about half a
// microsecond.

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"

enum { GRAIN = 8192, CHUNK = 512 };

// ---- cast ---------------------------------------------------------------------------------------
struct cast_arg {
    const void *x;
    void *y;
    enum td_dtype from, to; // from: also u8
    float scale;
};

static void widen_u8(const uint8_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)x[i];
    }
}

static void scale_row(const float *x, float *y, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * scale;
    }
}

static void cast_range(const void *arg, int64_t begin, int64_t end) {
    const struct cast_arg *a = arg;
    float in[CHUNK], out[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, end - at);
        const float *x = in;
        if (a->from == TD_U8) {
            widen_u8((const uint8_t *)a->x + at, in, n);
        } else {
            x = td_cpu_row(a->from, a->x, at, n, in);
        }
        float *y = td_cpu_result(a->to, a->y, at, out);
        if (a->scale != 1 || y != out) scale_row(x, y, a->scale, n);
        td_cpu_put(a->to, a->scale != 1 ? out : x, n, a->y, at);
    }
}

static td_status run_cast(const struct td_kernel *k, const struct td_run *r) {
    double scale = k->attrs.scale == 0 ? 1 : k->attrs.scale;
    struct cast_arg a = {td_operand_at(&k->in[0], r), td_operand_at(&k->out[0], r), k->in_dtype[0],
                         k->out_dtype[0], (float)scale};
    td_parallel(k->n_threads, k->elems, GRAIN, cast_range, &a);
    return TD_OK;
}

// ---- add, mul, sub, div
// A row of BINARY is a whole kernel, but for the choice of the path.
struct binary_arg {
    const struct td_kernel *k;
    const void *a, *b;
    void *y;
    enum td_dtype type; // of all three
    int64_t each;       // elements of y that one of b is for
};

typedef float binary_fn(float a, float b);
typedef void binary_loop(const float *a, const float *b, float *y, int64_t n);
struct binary_paths {
    td_range_fn *same, *rows, *each;
    binary_fn *one;
};
static td_status run_binary(const struct td_kernel *k, const struct td_run *r,
                            const struct binary_paths *path);

// n elements of a, b and y, which begin at the places given.
static void binary_run(const struct binary_arg *x, int64_t a_at, int64_t b_at, int64_t y_at,
                       int64_t n, binary_loop *loop) {
    float a[CHUNK], b[CHUNK], y[CHUNK];
    int64_t step = x->type == TD_F32 ? n : CHUNK;
    for (int64_t at = 0; at < n; at += step) {
        int64_t some = TD_MIN(step, n - at);
        loop(td_cpu_row(x->type, x->a, a_at + at, some, a),
             td_cpu_row(x->type, x->b, b_at + at, some, b),
             td_cpu_result(x->type, x->y, y_at + at, y), some);
        td_cpu_put(x->type, y, some, x->y, y_at + at);
    }
}

// Rows [begin, end) of `each` elements with one of b.
static void binary_each(const struct binary_arg *x, int64_t begin, int64_t end, binary_loop *loop) {
    float a[CHUNK], b[CHUNK], y[CHUNK], buffer;
    for (int64_t i = begin; i < end; i++) {
        float one = *td_cpu_row(x->type, x->b, i, 1, &buffer);
        for (int64_t l = 0; l < TD_MIN(x->each, (int64_t)CHUNK); l++) {
            b[l] = one;
        }
        for (int64_t at = i * x->each; at < (i + 1) * x->each; at += CHUNK) {
            int64_t n = TD_MIN((int64_t)CHUNK, (i + 1) * x->each - at);
            loop(td_cpu_row(x->type, x->a, at, n, a), b, td_cpu_result(x->type, x->y, at, y), n);
            td_cpu_put(x->type, y, n, x->y, at);
        }
    }
}

#define BINARY(name, expr)                                                                         \
    static void name##_loop(const float *va, const float *vb, float *y, int64_t n) {               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float a = va[i], b = vb[i];                                                            \
            y[i] = (expr);                                                                         \
        }                                                                                          \
    }                                                                                              \
    static void name##_range(const void *arg, int64_t begin, int64_t end) {                        \
        binary_run(arg, begin, begin, begin, end - begin, name##_loop);                            \
    }                                                                                              \
    static void name##_rows(const void *arg, int64_t begin, int64_t end) {                         \
        const struct binary_arg *x = arg;                                                          \
        int64_t cols = x->k->cols;                                                                 \
        for (int64_t i = begin; i < end; i++) {                                                    \
            binary_run(x, i *cols, 0, i *cols, cols, name##_loop);                                 \
        }                                                                                          \
    }                                                                                              \
    static void name##_each(const void *arg, int64_t begin, int64_t end) {                         \
        binary_each(arg, begin, end, name##_loop);                                                 \
    }                                                                                              \
    static float name##_one(float a, float b) {                                                    \
        return (expr);                                                                             \
    }                                                                                              \
    static td_status run_##name(const struct td_kernel *k, const struct td_run *r) {               \
        static const struct binary_paths path = {name##_range, name##_rows, name##_each,           \
                                                 name##_one};                                      \
        return run_binary(k, r, &path);                                                            \
    }
BINARY(add, a + b)
BINARY(mul, a *b)
BINARY(sub, a - b)
BINARY(div, a / b)

// Element strides of an operand seen in the output's shape; 0 where it is broadcast.
static void broadcast_strides(const struct td_shape *in, const struct td_shape *out,
                              int64_t stride[TD_MAX_DIMS]) {
    int64_t run = 1;
    for (int i = out->n_dims - 1, j = in->n_dims - 1; i >= 0; i--, j--) {
        bool here = j >= 0 && in->dim[j] != 1;
        stride[i] = here ? run : 0;
        if (j >= 0) run *= in->dim[j];
    }
}

static void binary_any(const struct td_kernel *k, const struct binary_arg *x, binary_fn *one) {
    int64_t sa[TD_MAX_DIMS] = {0}, sb[TD_MAX_DIMS] = {0}, at[TD_MAX_DIMS] = {0};
    broadcast_strides(&k->shape[0], &k->out_shape, sa);
    broadcast_strides(&k->shape[1], &k->out_shape, sb);
    for (int64_t i = 0; i < k->elems; i++) {
        int64_t ia = 0, ib = 0;
        for (int d = 0; d < k->out_shape.n_dims; d++) {
            ia += at[d] * sa[d];
            ib += at[d] * sb[d];
        }
        float ra, rb, ry;
        *td_cpu_result(x->type, x->y, i, &ry) =
            one(*td_cpu_row(x->type, x->a, ia, 1, &ra), *td_cpu_row(x->type, x->b, ib, 1, &rb));
        td_cpu_put(x->type, &ry, 1, x->y, i);
        for (int d = k->out_shape.n_dims - 1; d >= 0 && ++at[d] == k->out_shape.dim[d]; d--) {
            at[d] = 0;
        }
    }
}

// b has y's first dimensions and then ones: for how many elements each of b is; or 0.
static int64_t elements_each(const struct td_shape *a, const struct td_shape *b,
                             const struct td_shape *y) {
    int64_t each = 1;
    int d = y->n_dims;
    if (b->n_dims != y->n_dims || !td_shape_equal(a, y)) return 0;
    for (; d > 0 && b->dim[d - 1] == 1; d--) {
        each *= y->dim[d - 1];
    }
    for (; d > 0; d--) {
        if (b->dim[d - 1] != y->dim[d - 1]) return 0;
    }
    return each;
}

static td_status run_binary(const struct td_kernel *k, const struct td_run *r,
                            const struct binary_paths *path) {
    const struct td_shape *a = &k->shape[0], *b = &k->shape[1];
    struct binary_arg x = {k,
                           td_operand_at(&k->in[0], r),
                           td_operand_at(&k->in[1], r),
                           td_operand_at(&k->out[0], r),
                           k->out_dtype[0],
                           elements_each(a, b, &k->out_shape)};
    bool vector = b->n_dims == 1 && td_shape_equal(a, &k->out_shape) && b->dim[0] == k->cols;
    if (td_shape_equal(a, b)) {
        td_parallel(k->n_threads, k->elems, GRAIN, path->same, &x);
    } else if (vector && k->cols > 0) {
        td_parallel(k->n_threads, k->rows, GRAIN / k->cols + 1, path->rows, &x);
    } else if (x.each > 0) {
        td_parallel(k->n_threads, k->elems / x.each, GRAIN / x.each + 1, path->each, &x);
    } else {
        binary_any(k, &x, path->one);
    }
    return TD_OK;
}

struct axpby_arg {
    const void *a, *b;
    void *y;
    enum td_dtype type;
    float scale_a, scale_b;
};

static void axpby_pass(const float *a, float sa, const float *b, float sb, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = sa * a[i] + sb * b[i];
    }
}

static void axpby_range(const void *arg, int64_t begin, int64_t end) {
    const struct axpby_arg *x = arg;
    float a[CHUNK], b[CHUNK], y[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, end - at);
        axpby_pass(td_cpu_row(x->type, x->a, at, n, a), x->scale_a,
                   td_cpu_row(x->type, x->b, at, n, b), x->scale_b,
                   td_cpu_result(x->type, x->y, at, y), n);
        td_cpu_put(x->type, y, n, x->y, at);
    }
}

static td_status run_axpby(const struct td_kernel *k, const struct td_run *r) {
    struct axpby_arg x = {td_operand_at(&k->in[0], r),  td_operand_at(&k->in[1], r),
                          td_operand_at(&k->out[0], r), k->out_dtype[0],
                          (float)k->attrs.scale,        (float)k->attrs.scale_y};
    td_parallel(k->n_threads, k->elems, GRAIN, axpby_range, &x);
    return TD_OK;
}

// ---- scale, store, fill, reshape ----------------------------------------------------------------
static td_status run_scale(const struct td_kernel *k, const struct td_run *r) {
    const float *s = td_operand_at(&k->in[1], r);
    struct cast_arg a = {td_operand_at(&k->in[0], r), td_operand_at(&k->out[0], r), k->in_dtype[0],
                         k->out_dtype[0], *s};
    td_parallel(k->n_threads, k->elems, GRAIN, cast_range, &a);
    return TD_OK;
}

// One number of f64, of a norm: plus another, or times a factor.
static td_status run_wide_scalar(const struct td_kernel *k, const struct td_run *r) {
    const double a = *(const double *)td_operand_at(&k->in[0], r);
    const void *in = td_operand_at(&k->in[1], r);
    double b = k->in_dtype[1] == TD_F64 ? *(const double *)in : (double)*(const float *)in;
    *(double *)td_operand_at(&k->out[0], r) = td_kernel_is(k, "add") ? a + b : a * b;
    return TD_OK;
}

static bool is_wide_scalar(const struct td_kernel *k) {
    bool known = td_kernel_is(k, "add") || td_kernel_is(k, "scale");
    return known && k->elems == 1 && k->in_dtype[0] == TD_F64 && k->out_dtype[0] == TD_F64 &&
           (k->in_dtype[1] == TD_F32 || k->in_dtype[1] == TD_F64) &&
           td_shape_elems(&k->shape[1]) == 1;
}

static void clamp_loop(const float *x, const float *bound, float *y, int64_t n) {
    const float most = *bound;
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
    }
}

static void clamp_range(const void *arg, int64_t begin, int64_t end) {
    const struct cast_arg *a = arg;
    float in[CHUNK], out[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, end - at);
        clamp_loop(td_cpu_row(a->from, a->x, at, n, in), &a->scale,
                   td_cpu_result(a->to, a->y, at, out), n);
        td_cpu_put(a->to, out, n, a->y, at);
    }
}

static td_status run_clamp(const struct td_kernel *k, const struct td_run *r) {
    struct cast_arg a = {td_operand_at(&k->in[0], r), td_operand_at(&k->out[0], r), k->in_dtype[0],
                         k->out_dtype[0], (float)k->attrs.scale};
    td_parallel(k->n_threads, k->elems, GRAIN, clamp_range, &a);
    return TD_OK;
}

static void copy_range(const void *arg, int64_t begin, int64_t end) {
    const struct binary_arg *x = arg;
    int64_t step = (int64_t)td_dtype_bytes(x->type);
    memcpy((char *)x->y + begin * step, (const char *)x->a + begin * step,
           (size_t)((end - begin) * step));
}

// (state, x): operand 0 is what is written.
static td_status run_store(const struct td_kernel *k, const struct td_run *r) {
    void *state = td_operand_at(&k->in[0], r);
    const void *x = td_operand_at(&k->in[1], r);
    struct binary_arg a = {k, k->attrs.accumulate ? state : x, x, state, k->in_dtype[0], 1};
    td_parallel(k->n_threads, td_shape_elems(&k->shape[0]), GRAIN,
                k->attrs.accumulate ? add_range : copy_range, &a);
    return TD_OK;
}

static td_status run_fill(const struct td_kernel *k, const struct td_run *r) {
    float v = (float)k->attrs.scale, row[CHUNK];
    if (k->n_in == 1) v *= *(const float *)td_operand_at(&k->in[0], r);
    void *y = td_operand_at(&k->out[0], r);
    for (int64_t i = 0; i < CHUNK; i++) {
        row[i] = v;
    }
    for (int64_t at = 0; at < k->elems; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, k->elems - at);
        td_cpu_narrow(k->out_dtype[0], row, n,
                      (char *)y + at * (int64_t)td_dtype_bytes(k->out_dtype[0]));
    }
    return TD_OK;
}

static td_status run_constant(const struct td_kernel *k, const struct td_run *r) {
    float row[CHUNK];
    for (int64_t at = 0; at < k->elems; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, k->elems - at);
        for (int64_t i = 0; i < n; i++) {
            row[i] = (float)k->attrs.values[at + i];
        }
        td_cpu_narrow(k->out_dtype[0], row, n,
                      (char *)td_operand_at(&k->out[0], r) +
                          at * (int64_t)td_dtype_bytes(k->out_dtype[0]));
    }
    return TD_OK;
}

static td_status run_reshape(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->in[0], r);
    void *y = td_operand_at(&k->out[0], r);
    if (x != y) memcpy(y, x, (size_t)k->elems * td_dtype_bytes(k->in_dtype[0]));
    return TD_OK;
}

// One narrow type, but for what a cast reads, and fp32 factors.
static bool types_fit(const struct td_kernel *k) {
    if (td_kernel_is(k, "reshape")) return true;
    if (td_kernel_is(k, "cast")) {
        return (k->in_dtype[0] == TD_U8 || td_cpu_is_narrow(k->in_dtype[0])) &&
               td_cpu_is_narrow(k->out_dtype[0]);
    }
    bool factor =
        td_kernel_is(k, "scale") || td_kernel_is(k, "fill") || td_kernel_is(k, "constant");
    if (!factor) return td_kernel_narrow(k);
    uint32_t n = k->n_in;
    return td_cpu_is_narrow(k->out_dtype[0]) && (!n || k->in_dtype[n - 1] == TD_F32) &&
           (!td_kernel_is(k, "scale") || k->in_dtype[0] == k->out_dtype[0]);
}

td_status td_kernel_elementwise(struct td_kernel *k) {
    static const struct td_kernel_row table[] = {
        {"cast", run_cast},   {"add", run_add},     {"mul", run_mul},
        {"sub", run_sub},     {"div", run_div},     {"scale", run_scale},
        {"store", run_store}, {"fill", run_fill},   {"reshape", run_reshape},
        {"axpby", run_axpby}, {"clamp", run_clamp}, {"constant", run_constant},
    };
    if (types_fit(k)) k->run = TD_KERNEL_OF(k, table);
    if (is_wide_scalar(k)) k->run = run_wide_scalar;
    return TD_OK;
}
