// Ops in fp64 on every accelerator that has it, against long double. Sums and products are within 4
// eps of the sum of magnitudes, however long; pointwise ops within 4 units in the last place. The
// ops of networks have a program of their own, conform_double_nn.c.

#include "tests/conform/double_bench.h"

enum { SUMS = 4, POINTWISE = 4 }; // eps

static const real pi = 3.14159265358979323846264338327950288L;

// ---- pointwise ----------------------------------------------------------------------------------
static real sigmoid(real x) {
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}
static real bend(real x) { // of gelu's tanh form, twice its argument
    return 2 * sqrtl(2 / pi) * (x + 0.044715L * x * x * x);
}
static real normal(real x) {
    return erfcl(-x / sqrtl(2)) / 2;
}

static real function_of(const struct op_case *c, real x, real y) {
    const real scale = c->attrs.scale, b = bend(x);
    switch ((int)c->op) {
    case TD_OP_RELU:
        return x > 0 ? x : 0;
    case TD_OP_RELU_GRAD:
        return x > 0 ? y : 0;
    case TD_OP_LEAKY_RELU:
        return x > 0 ? x : scale * x;
    case TD_OP_LEAKY_RELU_GRAD:
        return x > 0 ? y : scale * y;
    case TD_OP_GELU:
        return c->attrs.gelu_tanh ? x * sigmoid(b) : x * normal(x);
    case TD_OP_GELU_GRAD:
        if (!c->attrs.gelu_tanh) return y * (normal(x) + x * expl(-x * x / 2) / sqrtl(2 * pi));
        return y * sigmoid(b) *
               (1 + x * sigmoid(-b) * 2 * sqrtl(2 / pi) * (1 + 3 * 0.044715L * x * x));
    case TD_OP_SILU:
        return x * sigmoid(x);
    case TD_OP_SILU_GRAD:
        return y * sigmoid(x) * (1 + x * sigmoid(-x));
    case TD_OP_SIGMOID:
        return sigmoid(x);
    case TD_OP_SIGMOID_GRAD:
        return y * x * (1 - x);
    case TD_OP_TANH:
        return tanhl(x);
    case TD_OP_TANH_GRAD:
        return y * (1 - x) * (1 + x);
    case TD_OP_EXP:
        return expl(x);
    case TD_OP_LOG:
        return logl(x);
    case TD_OP_SQRT:
        return sqrtl(x);
    case TD_OP_CLAMP:
        return x > scale ? scale : x < -scale ? -scale : x;
    case TD_OP_ADD:
        return x + y;
    case TD_OP_SUB:
        return x - y;
    case TD_OP_MUL:
    case TD_OP_SCALE:
        return x * y;
    case TD_OP_DIV:
        return x / y;
    case TD_OP_CAST:
        return x / 255;
    }
    fail();
    return 0;
}

static void pointwise(const struct op_case *c, struct wanted *out) {
    for (int64_t i = 0; i < elems(c, 0); i++) {
        const bool one = c->n_in < 2 || elems(c, 1) == 1;
        const real y = function_of(c, at(c, 0, i), c->n_in > 1 ? at(c, 1, one ? 0 : i) : 0);
        want(out, y, fabsl(y));
    }
}

static void cases_pointwise(struct subject *s) {
    static const struct {
        enum td_op op;
        double low, high;
    } f[] = {
        {TD_OP_RELU, -1.1, 1.3},        {TD_OP_LEAKY_RELU, -1.1, 1.3},
        {TD_OP_GELU, -5.3, 5.1},        {TD_OP_GELU, -37.1, 30.7},
        {TD_OP_SILU, -9.7, 9.1},        {TD_OP_SILU, -700.3, 600.1},
        {TD_OP_SIGMOID, -9.7, 9.1},     {TD_OP_SIGMOID, -700.3, 600.1},
        {TD_OP_TANH, -3.1, 3.3},        {TD_OP_TANH, -1e-3, 1.1e-3},
        {TD_OP_EXP, -700.1, 700.3},     {TD_OP_LOG, 0.3, 1.7},
        {TD_OP_LOG, 1e-300, 1.1e300},   {TD_OP_SQRT, 0, 1.1e3},
        {TD_OP_CLAMP, -1.1, 1.3},       {TD_OP_RELU_GRAD, -1.1, 1.3},
        {TD_OP_GELU_GRAD, -5.3, 5.1},   {TD_OP_GELU_GRAD, -37.1, 30.7},
        {TD_OP_SILU_GRAD, -9.7, 9.1},   {TD_OP_SILU_GRAD, -700.3, 600.1},
        {TD_OP_SIGMOID_GRAD, 0, 1},     {TD_OP_TANH_GRAD, -1, 1},
        {TD_OP_TANH_GRAD, 0.9999, 1},   {TD_OP_LEAKY_RELU_GRAD, -1.1, 1.3},
        {TD_OP_ADD, -1.1, 1.3},         {TD_OP_SUB, -1.1, 1.3},
        {TD_OP_MUL, -1.1e150, 1.3e150}, {TD_OP_DIV, -1.1e150, 1.3e150},
    };
    for (size_t i = 0; i < TD_COUNTOF(f) * 2; i++) {
        struct op_case c = {.op = f[i / 2].op, .n_in = 1, .attrs = {.gelu_tanh = i % 2}};
        if (td_op_is(c.op, TD_OP_IS_MADE) || c.op == TD_OP_ADD || c.op == TD_OP_SUB ||
            c.op == TD_OP_MUL || c.op == TD_OP_DIV) {
            c.n_in = 2;
        }
        if (c.op == TD_OP_CLAMP || !strncmp(td_op_name(c.op), "leaky", 5)) c.attrs.scale = 0.3;
        c.in[0] = c.in[1] = doubles(vec(2003), f[i / 2].low, f[i / 2].high);
        check_double(s, &c, POINTWISE, pointwise);
    }
    struct op_case c = {.op = TD_OP_SCALE, .n_in = 2};
    c.in[0] = doubles(vec(999), -1.1, 1.3);
    c.in[1] = doubles(rig_shape(0, 0, 0, 0), 0.3, 3.1);
    check_double(s, &c, POINTWISE, pointwise);
    c = (struct op_case){.op = TD_OP_CAST, .n_in = 1};
    c.attrs = (struct td_attrs){.dtype = TD_F64, .scale = 1.0 / 255};
    c.in[0] = (struct operand){TD_U8, vec(999), TD_ROLE_PARAM, 0, 256};
    check_double(s, &c, POINTWISE, pointwise);
}

// ---- sums ---------------------------------------------------------------------------------------
static void weighted(const struct op_case *c, struct wanted *out) { // axpby
    for (int64_t i = 0; i < elems(c, 0); i++) {
        struct sum y = {0};
        add(&y, c->attrs.scale * at(c, 0, i));
        add(&y, c->attrs.scale_y * at(c, 1, i));
        want(out, y.x, y.magnitude);
    }
}

static void product(const struct op_case *c, struct wanted *out) {
    const bool ta = c->attrs.trans_a, tb = c->attrs.trans_b;
    const int64_t *a = c->in[0].shape.dim, *b = c->in[1].shape.dim;
    const int64_t m = a[ta], inner = a[!ta], n = b[!tb];
    for (int64_t i = 0; i < m * n; i++) {
        struct sum y = {0};
        for (int64_t k = 0; k < inner; k++) {
            const int64_t row = i / n, col = i % n;
            add(&y, at(c, 0, ta ? k * m + row : row * inner + k) *
                        at(c, 1, tb ? col * inner + k : k * n + col));
        }
        if (c->n_in > 2) add(&y, at(c, 2, i % n));
        want(out, y.x, y.magnitude);
    }
}

// Of all elements, or of columns; their mean, or the sum of their squares.
static void sums(const struct op_case *c, struct wanted *out) {
    const int64_t n = td_shape_elems(&c->attrs.shape), all = elems(c, 0);
    const bool means = c->op == TD_OP_MEAN || c->op == TD_OP_REDUCE_MEAN;
    for (int64_t column = 0; column < n; column++) {
        struct sum y = {0};
        for (int64_t i = column; i < all; i += n) {
            const real x = at(c, 0, i);
            add(&y, c->op == TD_OP_SUM_SQUARES ? x * x : x);
        }
        const real by = means ? (real)(all / n) : 1;
        want(out, y.x / by, y.magnitude / by);
    }
}

// (index, dy): each row of dy goes where its index says.
static void gathered(const struct op_case *c, struct wanted *out) {
    const int64_t *to = c->attrs.shape.dim, n = to[1];
    for (int64_t i = 0; i < to[0] * n; i++) {
        struct sum y = {0};
        for (int64_t k = 0; k < elems(c, 1); k++) {
            const int64_t row = label_at(c, 0, c->op == TD_OP_GATHER_GRAD ? k : k / n);
            if (row == i / n && k % n == i % n) add(&y, at(c, 1, k));
        }
        want(out, y.x, y.magnitude);
    }
}

static void cases_sums(struct subject *s) {
    static const int64_t inner[] = {1, 100, 5001};
    for (size_t i = 0; i < TD_COUNTOF(inner) * 8; i++) {
        const int64_t k = inner[i / 8], m = 3, n = 7;
        struct op_case c = {.op = TD_OP_MATMUL, .n_in = i & 4 ? 3 : 2};
        c.attrs = (struct td_attrs){.trans_a = i & 1, .trans_b = i & 2};
        c.in[0] = doubles(i & 1 ? mat(k, m) : mat(m, k), i & 4 ? -1.1 : 0, 1.3);
        c.in[1] = doubles(i & 2 ? mat(n, k) : mat(k, n), 0.1, 1.7);
        c.in[2] = doubles(vec(n), -1.1, 1.3);
        check_double(s, &c, SUMS, product);
    }
    static const enum td_op ops[] = {TD_OP_MEAN, TD_OP_SUM_SQUARES, TD_OP_REDUCE_SUM,
                                     TD_OP_REDUCE_MEAN};
    for (size_t i = 0; i < TD_COUNTOF(ops) * 2; i++) {
        struct op_case c = {.op = ops[i / 2], .n_in = 1};
        c.in[0] = doubles(mat(9001, 3), i & 1 ? -1.1 : 0, 1.3);
        if (i / 2 > 1) c.attrs.shape = vec(3);
        check_double(s, &c, SUMS, sums);
    }
    for (int i = 0; i < 2; i++) {
        struct op_case c = {.op = i ? TD_OP_GATHER_GRAD : TD_OP_EMBEDDING_GRAD, .n_in = 2};
        c.attrs = (struct td_attrs){.shape = mat(3, 4)};
        c.in[0] = (struct operand){TD_I32, i ? mat(5003, 4) : vec(5003), TD_ROLE_PARAM, 0, 2};
        c.in[1] = doubles(mat(5003, 4), 0, 1.3);
        check_double(s, &c, SUMS, gathered);
    }
    struct op_case c = {.op = TD_OP_AXPBY, .n_in = 2, .attrs = {.scale = 1.1, .scale_y = -0.7}};
    c.in[0] = c.in[1] = doubles(vec(999), -1.1, 1.3);
    check_double(s, &c, SUMS, weighted);
}

// ---- windows ------------------------------------------------------------------------------------
// A convolution of 3 x 3 with a border of 1, or a mean over 3 x 3: stride 2. Both are one walk over
// the terms y += x f, of which a gradient sums those of x, or of f. A window_of NULL: all are 1/9.
enum { IMAGES = 3, IN = 2, OUT = 4, SIDE = 9, TO = 5 };

static void windows(const struct op_case *c, struct wanted *out) {
    static struct sum y[IMAGES * OUT * SIDE * SIDE];
    const bool pools = c->op == TD_OP_AVG_POOL || c->op == TD_OP_AVG_POOL_GRAD;
    const bool to_x = c->op == TD_OP_CONV2D_GRAD_X || c->op == TD_OP_AVG_POOL_GRAD;
    const bool to_f = c->op == TD_OP_CONV2D_GRAD_W;
    const int64_t n_to = td_shape_elems(&c->attrs.shape);
    memset(y, 0, sizeof y);
    for (int64_t t = 0; t < (int64_t)IMAGES * OUT * IN * TO * TO * 9; t++) {
        const int64_t j = t % 3, i = t / 3 % 3, q = t / 9 % TO, p = t / 9 / TO % TO;
        const int64_t in = t / 9 / TO / TO % IN, o = t / 9 / TO / TO / IN % OUT;
        const int64_t n = t / 9 / TO / TO / IN / OUT, h = 2 * p - 1 + i, w = 2 * q - 1 + j;
        if (h < 0 || h >= SIDE || w < 0 || w >= SIDE || (pools && o != in)) continue;
        const int64_t channels = pools ? IN : OUT;
        const int64_t x = ((n * IN + in) * SIDE + h) * SIDE + w,
                      f = ((o * IN + in) * 3 + i) * 3 + j;
        const int64_t at_y = ((n * channels + o) * TO + p) * TO + q;
        if (to_x) add(&y[x], at(c, 0, at_y) * (pools ? 1 / 9.0L : at(c, 1, f)));
        if (to_f) add(&y[f], at(c, 0, x) * at(c, 1, at_y));
        if (!to_x && !to_f) add(&y[at_y], at(c, 0, x) * (pools ? 1 / 9.0L : at(c, 1, f)));
    }
    for (int64_t i = 0; i < n_to; i++) {
        if (c->n_in > 2) add(&y[i], at(c, 2, i / TO / TO % OUT));
        want(out, y[i].x, y[i].magnitude);
    }
}

static void cases_windows(struct subject *s) {
    const struct td_shape x = {4, {IMAGES, IN, SIDE, SIDE}}, f = {4, {OUT, IN, 3, 3}};
    const struct td_shape y = {4, {IMAGES, OUT, TO, TO}}, pooled = {4, {IMAGES, IN, TO, TO}};
    const struct {
        enum td_op op;
        uint32_t n_in;
        struct td_shape in[2], to;
    } w[] = {{TD_OP_CONV2D, 3, {x, f}, y},
             {TD_OP_CONV2D_GRAD_X, 2, {y, f}, x},
             {TD_OP_CONV2D_GRAD_W, 2, {x, y}, f},
             {TD_OP_AVG_POOL, 1, {x, x}, pooled},
             {TD_OP_AVG_POOL_GRAD, 1, {pooled, x}, x}};
    for (size_t i = 0; i < TD_COUNTOF(w); i++) {
        struct op_case c = {.op = w[i].op, .n_in = w[i].n_in};
        c.attrs.shape = w[i].to;
        c.attrs.window = (struct td_window_attrs){.stride = {2, 2}, .pad = {1, 1}};
        if (i > 2) c.attrs.window.kernel[0] = c.attrs.window.kernel[1] = 3;
        c.in[0] = doubles(w[i].in[0], 0, 1.3);
        c.in[1] = doubles(w[i].in[1], 0.1, 1.7);
        c.in[2] = doubles(vec(OUT), -1.1, 1.3);
        check_double(s, &c, SUMS, windows);
    }
}

static const struct suite suites[] = {
    {"fp64_of_pointwise_ops", cases_pointwise},
    {"fp64_of_sums", cases_sums},
    {"fp64_of_windows", cases_windows},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_double", suites, TD_COUNTOF(suites));
}
