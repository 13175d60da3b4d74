// Elementwise kernels of the reference: a scalar function per op, and one loop for each number of
// operands. A partner *_grad has the same loop as a sum: its operands just never broadcast.
// Everything is computed in double precision and rounded once, when it is stored. Where terms
// cancel or an exponent is large, that is too little for a result of fp64, and long double is used.
// It has 64 bits where it is cheap.

#include "accelerators/reference/kernels_elementwise.h"

#include <math.h>

#include "accelerators/reference/families.h"

typedef double scalar_fn(double a, double b, const struct td_attrs *at);

static const long double sqrt_half = 0.707106781186547524400844362104849039L; // 1 / sqrt(2)
// 1 / sqrt(2 pi), the density at 0
static const long double normal_top = 0.398942280401432677939946059934381868L;
static const long double gelu_slope = 0.797884560802865355879892119868763737L; // sqrt(2 / pi)
static const long double gelu_cubic = 0.044715L;

static double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

// Of x, and of -x, which is what it lacks to 1.
struct sigmoids {
    long double x, minus_x;
};
static struct sigmoids sigmoids_of(long double x) {
    const long double small = expl(-fabsl(x)), least = small / (1 + small), most = 1 / (1 + small);
    return x >= 0 ? (struct sigmoids){most, least} : (struct sigmoids){least, most};
}

#define SCALAR(name, expr)                                                                         \
    static double name(double a, double b, const struct td_attrs *at) {                            \
        (void)a, (void)b, (void)at;                                                                \
        return (expr);                                                                             \
    }
SCALAR(add, a + b)
SCALAR(mul, a *b)
SCALAR(sub, a - b)
SCALAR(divide, a / b)
SCALAR(axpby, at->scale *a + at->scale_y * b)
SCALAR(relu, td_ref_relu(a))
SCALAR(relu_grad, a > 0 ? b : 0)
SCALAR(leaky_relu, a > 0 ? a : at->scale * a)
SCALAR(leaky_relu_grad, a > 0 ? b : at->scale * b)
SCALAR(silu, a *sigmoid(a))
SCALAR(sigmoid_of, sigmoid(a))
SCALAR(sigmoid_grad, b *a *(1 - a))
SCALAR(tanh_of, tanh(a))
SCALAR(tanh_grad, b *((1 - a) * (1 + a)))
SCALAR(exp_of, exp(a))
SCALAR(log_of, log(a))
SCALAR(sqrt_of, sqrt(a))
SCALAR(clamp, a > at->scale ? at->scale : a < -at->scale ? -at->scale : a)

// 0.5 (1 + tanh(u)) is sigmoid(2 u): nothing cancels.
static long double gelu_inner(long double x) {
    return 2 * gelu_slope * (x + gelu_cubic * x * x * x);
}

static double silu_grad(double x, double dy, const struct td_attrs *at) {
    const struct sigmoids s = sigmoids_of(x);
    (void)at;
    return (double)(dy * s.x * (1 + x * s.minus_x));
}

static double gelu(double of, double unused, const struct td_attrs *at) {
    const long double x = of;
    (void)unused;
    if (!at->gelu_tanh) return (double)(0.5L * x * erfcl(-x * sqrt_half));
    return (double)(x * sigmoids_of(gelu_inner(x)).x);
}

static double gelu_grad(double of, double dy, const struct td_attrs *at) {
    const long double x = of;
    if (!at->gelu_tanh) {
        const long double density = normal_top * expl(-0.5L * x * x);
        return (double)(dy * (0.5L * erfcl(-x * sqrt_half) + x * density));
    }
    const struct sigmoids s = sigmoids_of(gelu_inner(x));
    const long double slope = 2 * gelu_slope * (1 + 3 * gelu_cubic * x * x);
    return (double)(dy * s.x * (1 + x * s.minus_x * slope));
}

static double compare(double a, double b, const struct td_attrs *at) {
    switch (at->compare) {
    case TD_CMP_EQ:
        return a == b;
    case TD_CMP_NE:
        return a != b;
    case TD_CMP_LT:
        return a < b;
    case TD_CMP_LE:
        return a <= b;
    case TD_CMP_GT:
        return a > b;
    case TD_CMP_GE:
        return a >= b;
    case TD_CMP_COUNT:
        break;
    }
    return 0;
}

static scalar_fn *const functions[TD_OP_COUNT] = {
    [TD_OP_ADD] = add,
    [TD_OP_MUL] = mul,
    [TD_OP_SUB] = sub,
    [TD_OP_DIV] = divide,
    [TD_OP_AXPBY] = axpby,
    [TD_OP_RELU] = relu,
    [TD_OP_RELU_GRAD] = relu_grad,
    [TD_OP_LEAKY_RELU] = leaky_relu,
    [TD_OP_LEAKY_RELU_GRAD] = leaky_relu_grad,
    [TD_OP_GELU] = gelu,
    [TD_OP_GELU_GRAD] = gelu_grad,
    [TD_OP_SILU] = silu,
    [TD_OP_SILU_GRAD] = silu_grad,
    [TD_OP_SIGMOID] = sigmoid_of,
    [TD_OP_SIGMOID_GRAD] = sigmoid_grad,
    [TD_OP_TANH] = tanh_of,
    [TD_OP_TANH_GRAD] = tanh_grad,
    [TD_OP_EXP] = exp_of,
    [TD_OP_LOG] = log_of,
    [TD_OP_SQRT] = sqrt_of,
    [TD_OP_CLAMP] = clamp,
    [TD_OP_COMPARE] = compare,
};

double td_ref_scalar(enum td_op op, double a, double b, const struct td_attrs *attrs) {
    return functions[op](a, b, attrs);
}

static double operand(const struct ref_call *c, uint32_t k, int64_t i) {
    const struct td_shape *x = c->in[k].shape, *y = c->out[0].shape;
    return c->in[k].x[td_shape_equal(x, y) ? i : td_ref_broadcast(y, x, i)];
}

static td_status run_unary(struct ref_call *c) {
    scalar_fn *f = functions[c->node->op];
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = f(c->in[0].x[i], 0, &c->node->attrs);
    }
    return TD_OK;
}

static td_status run_binary(struct ref_call *c) {
    scalar_fn *f = functions[c->node->op];
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = f(operand(c, 0, i), operand(c, 1, i), &c->node->attrs);
    }
    return TD_OK;
}

static td_status run_select(struct ref_call *c) {
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = operand(c, operand(c, 0, i) != 0 ? 1 : 2, i);
    }
    return TD_OK;
}

td_ref_kernel_fn *td_ref_elementwise(enum td_op op) {
    static const uint32_t arity[TD_OP_COUNT] = {
#define TD_OP(ID, name, min_in, ...) [TD_OP_##ID] = min_in,
#include "traind/ops.def"
#undef TD_OP
    };
    if (op == TD_OP_SELECT) return run_select;
    if (!functions[op]) return NULL;
    return arity[op] == 1 ? run_unary : run_binary;
}
