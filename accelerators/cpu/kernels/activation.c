// Elementwise functions and their gradients: relu, leaky_relu, gelu, silu, sigmoid, tanh, exp, log,
// sqrt.
//
// A row of UNARY or PAIR is a whole kernel: a loop that the compiler clones and vectorizes (the
// functions of vmath.h inline into it), its range and its entry. In-place use is allowed: an
// element is read before it is written.

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"

enum { GRAIN = 4096, CHUNK = 512 };

struct pass {
    const void *a, *b; // b: dy, NULL for a function of one operand
    void *y;
    enum td_dtype type; // of all
    float slope;        // attrs.scale
};

typedef void pass_loop(const float *a, const float *b, float slope, float *out, int64_t n);

// 16-bit operands go through fp32 a chunk at a time.
static void walk(const struct pass *p, int64_t begin, int64_t end, pass_loop *loop) {
    float a[CHUNK], b[CHUNK], y[CHUNK];
    int64_t step = p->type == TD_F32 ? end - begin : CHUNK;
    for (int64_t at = begin; at < end; at += step) {
        int64_t n = TD_MIN(step, end - at);
        loop(td_cpu_row(p->type, p->a, at, n, a), p->b ? td_cpu_row(p->type, p->b, at, n, b) : NULL,
             p->slope, td_cpu_result(p->type, p->y, at, y), n);
        td_cpu_put(p->type, y, n, p->y, at);
    }
}

static td_status run_pass(const struct td_kernel *k, const struct td_run *r, td_range_fn *range) {
    struct pass p = {.a = td_operand_at(&k->in[0], r),
                     .y = td_operand_at(&k->out[0], r),
                     .type = k->out_dtype[0],
                     .slope = (float)k->attrs.scale};
    if (k->n_in > 1) p.b = td_operand_at(&k->in[1], r);
    td_parallel(k->n_threads, k->elems, GRAIN, range, &p);
    return TD_OK;
}

#define ENTRY(name)                                                                                \
    static void name##_range(const void *arg, int64_t begin, int64_t end) {                        \
        walk(arg, begin, end, name##_loop);                                                        \
    }                                                                                              \
    static td_status run_##name(const struct td_kernel *k, const struct td_run *r) {               \
        return run_pass(k, r, name##_range);                                                       \
    }

#define UNARY(name, expr)                                                                          \
    static void name##_loop(const float *a, const float *none, float slope, float *out,            \
                            int64_t n) {                                                           \
        (void)none, (void)slope;                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                      \
            float x = a[i];                                                                        \
            out[i] = (expr);                                                                       \
        }                                                                                          \
    }                                                                                              \
    ENTRY(name)

// x: operand or result of the function, dy: its gradient.
#define PAIR(name, expr)                                                                           \
    static void name##_loop(const float *a, const float *b, float slope, float *out, int64_t n) {  \
        (void)slope;                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                      \
            float x = a[i], dy = b[i];                                                             \
            out[i] = (expr);                                                                       \
        }                                                                                          \
    }                                                                                              \
    ENTRY(name)

// x Phi(x); sqrt(1/2), and the normal density at 0.
static inline float normal_cdf(float x) {
    return 0.5f * (1 + vm_erf(x * 0.707106781f));
}

static inline float normal_density(float x) {
    return 0.398942280f * vm_exp(-0.5f * x * x);
}

// Of the tanh form: sqrt(2/pi) (x + 0.044715 x^3).
static inline float gelu_inner(float x) {
    return 0.797884561f * (x + 0.044715f * x * x * x);
}

// The tanh form is x sigmoid(2 inner): (1 + tanh(u)) / 2 = sigmoid(2 u), at half the price.
static inline float gelu_tanh(float x) {
    return x * vm_sigmoid(2 * gelu_inner(x));
}

static inline float gelu_tanh_slope(float x) {
    float s = vm_sigmoid(2 * gelu_inner(x));
    return s + x * s * (1 - s) * 1.59576912f * (1 + 0.134145f * x * x);
}

static inline float silu_slope(float x) {
    float s = vm_sigmoid(x);
    return s * (1 + x * (1 - s));
}

UNARY(relu, x <= 0 ? 0 : x) // a NaN stays visible
UNARY(leaky_relu, x > 0 ? x : slope * x)
UNARY(gelu_erf, x *normal_cdf(x))
UNARY(gelu_tanh, gelu_tanh(x))
UNARY(silu, x *vm_sigmoid(x))
UNARY(sigmoid, vm_sigmoid(x))
UNARY(tanh, vm_tanh(x))
UNARY(exp, vm_exp(x))
UNARY(log, vm_log(x))
UNARY(sqrt, vm_sqrt(x))
PAIR(relu_grad, x > 0 ? dy : 0)
PAIR(leaky_relu_grad, x > 0 ? dy : slope * dy)
PAIR(gelu_erf_grad, dy *(normal_cdf(x) + x * normal_density(x)))
PAIR(gelu_tanh_grad, dy *gelu_tanh_slope(x))
PAIR(silu_grad, dy *silu_slope(x))
PAIR(sigmoid_grad, dy *x *(1 - x))
PAIR(tanh_grad, dy *(1 - x * x))

static td_status run_gelu(const struct td_kernel *k, const struct td_run *r) {
    return k->attrs.gelu_tanh ? run_gelu_tanh(k, r) : run_gelu_erf(k, r);
}

static td_status run_gelu_grad(const struct td_kernel *k, const struct td_run *r) {
    return k->attrs.gelu_tanh ? run_gelu_tanh_grad(k, r) : run_gelu_erf_grad(k, r);
}

// On the bits: a bf16 number is above 0 from the smallest one to infinity, and not above it from -0
// down to minus infinity.
static void relu_bits(const uint16_t *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = (uint16_t)(x[i] - 0x8000) <= 0x7f80 ? 0 : x[i];
    }
}

static void relu_grad_bits(const uint16_t *y, const uint16_t *dy, uint16_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        // All bits or none: a choice would read dy only where it is wanted, which is no vector.
        uint16_t open = (uint16_t) - ((uint16_t)(y[i] - 1) < 0x7f80);
        out[i] = dy[i] & open;
    }
}

static void relu_bf16_range(const void *arg, int64_t begin, int64_t end) {
    const struct pass *p = arg;
    relu_bits((const uint16_t *)p->a + begin, (uint16_t *)p->y + begin, end - begin);
}

static td_status run_relu_bf16(const struct td_kernel *k, const struct td_run *r) {
    return run_pass(k, r, relu_bf16_range);
}

static void relu_grad_bf16_range(const void *arg, int64_t begin, int64_t end) {
    const struct pass *p = arg;
    relu_grad_bits((const uint16_t *)p->a + begin, (const uint16_t *)p->b + begin,
                   (uint16_t *)p->y + begin, end - begin);
}

static td_status run_relu_grad_bf16(const struct td_kernel *k, const struct td_run *r) {
    return run_pass(k, r, relu_grad_bf16_range);
}

td_status td_kernel_activation(struct td_kernel *k) {
    static const struct td_kernel_row table[] = {
        {"relu", run_relu},
        {"relu_grad", run_relu_grad},
        {"leaky_relu", run_leaky_relu},
        {"leaky_relu_grad", run_leaky_relu_grad},
        {"gelu", run_gelu},
        {"gelu_grad", run_gelu_grad},
        {"silu", run_silu},
        {"silu_grad", run_silu_grad},
        {"sigmoid", run_sigmoid},
        {"sigmoid_grad", run_sigmoid_grad},
        {"tanh", run_tanh},
        {"tanh_grad", run_tanh_grad},
        {"exp", run_exp},
        {"log", run_log},
        {"sqrt", run_sqrt},
    };
    if (td_kernel_narrow(k)) k->run = TD_KERNEL_OF(k, table);
    bool halves = k->run && k->out_dtype[0] == TD_BF16;
    if (halves && td_kernel_is(k, "relu")) k->run = run_relu_bf16;
    if (halves && td_kernel_is(k, "relu_grad")) k->run = run_relu_grad_bf16;
    return TD_OK;
}
