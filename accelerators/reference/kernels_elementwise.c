// Elementwise kernels of the reference: a scalar function per op, and one loop for each number of
// operands. A partner *_grad has the same loop as a sum: its operands just never broadcast.
// Everything is computed in double precision and rounded once, when it is stored.

#include "accelerators/reference/kernels_elementwise.h"

#include <math.h>

#include "accelerators/reference/families.h"

typedef double scalar_fn(double a, double b, const struct td_attrs *at);

static const double sqrt_half = 0.70710678118654752440;  // 1 / sqrt(2)
static const double normal_top = 0.39894228040143267794; // 1 / sqrt(2 pi), the density at 0
static const double gelu_slope = 0.79788456080286535588; // sqrt(2 / pi)
static const double gelu_cubic = 0.044715;

static double sigmoid(double x) {
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
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
SCALAR(silu_grad, b *sigmoid(a) * (1 + a * (1 - sigmoid(a))))
SCALAR(sigmoid_of, sigmoid(a))
SCALAR(sigmoid_grad, b *a *(1 - a))
SCALAR(tanh_of, tanh(a))
SCALAR(tanh_grad, b *(1 - a * a))
SCALAR(exp_of, exp(a))
SCALAR(log_of, log(a))
SCALAR(sqrt_of, sqrt(a))
SCALAR(clamp, a > at->scale ? at->scale : a < -at->scale ? -at->scale : a)

static double gelu(double x, double unused, const struct td_attrs *at) {
    (void)unused;
    if (!at->gelu_tanh) return 0.5 * x * erfc(-x * sqrt_half);
    return 0.5 * x * (1 + tanh(gelu_slope * (x + gelu_cubic * x * x * x)));
}

static double gelu_grad(double x, double dy, const struct td_attrs *at) {
    if (!at->gelu_tanh) {
        return dy * (0.5 * erfc(-x * sqrt_half) + x * normal_top * exp(-0.5 * x * x));
    }
    double t = tanh(gelu_slope * (x + gelu_cubic * x * x * x));
    double inner = gelu_slope * (1 + 3 * gelu_cubic * x * x);
    return dy * 0.5 * (1 + t + x * (1 - t * t) * inner);
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
#define TD_OP(ID, name, min_in, max_in, n_out, is) [TD_OP_##ID] = min_in,
#include "traind/ops.def"
#undef TD_OP
    };
    if (op == TD_OP_SELECT) return run_select;
    if (!functions[op]) return NULL;
    return arity[op] == 1 ? run_unary : run_binary;
}
