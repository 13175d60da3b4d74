// Every op on every accelerator, against the reference: generated shapes with odd sizes, ones,
// empty rows and sizes off every vector width, and whole training programs. The ops of networks
// (softmax to attention) have a program of their own, conform_ops_nn.c.

#include "tests/conform/op_bench.h"

// ---- cases, by op -------------------------------------------------------------------------------
static void matmul_forms(struct subject *s, int64_t m, int64_t k, int64_t n) {
    for (int form = 0; form < 16; form++) {
        bool ta = form & 1, tb = form & 2, bias = form & 4, act = form & 8;
        struct op_case c = {.op = TD_OP_MATMUL, .n_in = bias ? 3 : 2};
        c.in[0] = tensor(ta ? mat(k, m) : mat(m, k));
        c.in[1] = tensor(tb ? mat(n, k) : mat(k, n));
        c.in[2] = tensor(vec(n));
        c.attrs.trans_a = ta;
        c.attrs.trans_b = tb;
        c.attrs.act = act ? TD_ACT_RELU : TD_ACT_NONE;
        check(s, &c);
        if (bias || act) continue;
        c.store = true;
        for (int how = 0; how < 4; how++) {
            c.attrs.accumulate = how & 1;
            c.attrs.wide = how & 2;
            check(s, &c);
        }
    }
}

// After it the gradient of an activation, from values that it is made of.
static void matmul_then(struct subject *s, int64_t m, int64_t k, int64_t n) {
    static const struct {
        enum td_op then;
        double low, high;
        struct td_attrs attrs;
    } then[] = {
        {TD_OP_RELU_GRAD, -1, 1, {0}}, {TD_OP_LEAKY_RELU_GRAD, -1, 1, {.scale = 0.1}},
        {TD_OP_GELU_GRAD, -4, 4, {0}}, {TD_OP_GELU_GRAD, -4, 4, {.gelu_tanh = true}},
        {TD_OP_SILU_GRAD, -4, 4, {0}}, {TD_OP_SIGMOID_GRAD, 0, 1, {0}},
        {TD_OP_TANH_GRAD, -1, 1, {0}},
    };
    bool is_there[TD_OP_COUNT] = {0};
    for (size_t i = 0; i < TD_COUNTOF(then); i++) {
        is_there[then[i].then] = true;
    }
    for (int op = 0; op < TD_OP_COUNT; op++) {
        const bool applied = td_op_gradient((enum td_op)op) == TD_OP_GRADIENT_THEN;
        if (applied != is_there[op]) fail_msg("%s after a product", td_op_name((enum td_op)op));
    }
    for (size_t i = 0; i < 4 * TD_COUNTOF(then); i++) {
        bool ta = i & 1, tb = i & 2;
        struct op_case c = {.op = TD_OP_MATMUL, .n_in = 3, .attrs = then[i / 4].attrs};
        c.in[0] = tensor(ta ? mat(k, m) : mat(m, k));
        c.in[1] = tensor(tb ? mat(n, k) : mat(k, n));
        c.in[2] =
            (struct operand){ANY, mat(m, n), TD_ROLE_PARAM, then[i / 4].low, then[i / 4].high};
        c.attrs.then = then[i / 4].then;
        c.attrs.trans_a = ta;
        c.attrs.trans_b = tb;
        check(s, &c);
    }
}

static void cases_matmul(struct subject *s) {
    static const int64_t mkn[][3] = {
        {1, 1, 1},     {3, 5, 7}, {16, 16, 16}, {17, 33, 15}, {2, 1, 9},    {1, 64, 3},  {5, 3, 1},
        {31, 100, 10}, {0, 4, 3}, {3, 0, 4},    {4, 3, 0},    {33, 65, 17}, {64, 48, 32}};
    for (size_t i = 0; i < TD_COUNTOF(mkn); i++) {
        matmul_forms(s, mkn[i][0], mkn[i][1], mkn[i][2]);
        matmul_then(s, mkn[i][0], mkn[i][1], mkn[i][2]);
    }
    struct op_case c = {.op = TD_OP_MATMUL, .n_in = 3};
    c.in[0] = tensor(rig_shape(3, 2, 3, 5)); // leading dimensions are rows
    c.in[1] = tensor(mat(7, 5));
    c.in[2] = tensor(vec(7));
    c.attrs.trans_b = true;
    check(s, &c);
    c.in[2] = tensor(rig_shape(3, 2, 3, 7));
    c.attrs.then = TD_OP_RELU_GRAD;
    check(s, &c);
    c.in[0] = tensor((struct td_shape){4, {2, 3, 4, 5}}); // images, in any order
    c.in[2] = tensor((struct td_shape){4, {2, 3, 4, 7}});
    check(s, &c);
}

static void binary(struct subject *s, enum td_op op) {
    const struct td_shape pairs[][2] = {
        {vec(1), vec(1)},
        {mat(5, 17), mat(5, 17)},
        {mat(5, 17), vec(17)},
        {vec(33), mat(3, 33)},
        {mat(4, 1), mat(1, 6)},
        {mat(0, 3), vec(3)},
        {rig_shape(3, 2, 3, 4), mat(3, 4)},
        {rig_shape(3, 2, 1, 4), mat(3, 1)},
        {mat(3, 3), rig_shape(0, 0, 0, 0)},
        {mat(65, 129), mat(65, 129)},
        {mat(129, 33), mat(129, 1)},
        {{4, {2, 3, 5, 7}}, {4, {2, 3, 1, 1}}},
        {{3, {2, 2, 700}}, {3, {2, 2, 1}}},
    };
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct op_case c = {.op = op, .n_in = 2};
        c.in[0] = tensor(pairs[i][0]);
        c.in[1] = tensor(pairs[i][1]);
        check(s, &c);
    }
}

static void cases_binary(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_ADD, TD_OP_MUL, TD_OP_SUB, TD_OP_DIV};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        binary(s, ops[i]);
    }
}

// The op's value at one place, which another source gives.
static void check_value(struct subject *s, struct op_case c, double at, double value) {
    static struct result got;
    c.in[0] = (struct operand){ANY, vec(1), TD_ROLE_PARAM, at, at};
    run_on(s->ops, &c, TD_F32, false, &got);
    if (fabs(got.x[0] - value) <= s->tolerance * (1 + fabs(value))) return;
    fail_msg("%s of %g is %.9g, not %.9g", td_op_name(c.op), at, got.x[0], value);
}

// Functions of one operand, over the range where they bend, and their partners (from, dy).
static void cases_functions(struct subject *s) {
    static const struct {
        enum td_op op, partner;
        double low, high, at, value;
    } f[] = {
        {TD_OP_RELU, TD_OP_RELU_GRAD, -1, 1, -2, 0},
        {TD_OP_GELU, TD_OP_GELU_GRAD, -5, 5, 2, 1.954499736},
        {TD_OP_SILU, TD_OP_SILU_GRAD, -9, 9, 2, 1.761594156},
        {TD_OP_TANH, TD_OP_TANH_GRAD, -3, 3, 1, 0.761594156},
        {TD_OP_SIGMOID, TD_OP_SIGMOID_GRAD, -9, 9, 2, 0.880797078},
        {TD_OP_EXP, TD_OP_COUNT, -9, 9, 1, 2.718281828},
        {TD_OP_EXP, TD_OP_COUNT, -120, 85, 10, 22026.46579},
        {TD_OP_LOG, TD_OP_COUNT, 1e-3, 9, 2, 0.693147181},
        {TD_OP_LOG, TD_OP_COUNT, 0, 1e30, 1e30, 69.07755279},
        {TD_OP_SQRT, TD_OP_COUNT, 0, 100, 2, 1.414213562},
        {TD_OP_CLAMP, TD_OP_COUNT, -1, 1, 2, 0.5},
        {TD_OP_LEAKY_RELU, TD_OP_LEAKY_RELU_GRAD, -1, 1, -2, -1},
    };
    for (size_t i = 0; i < TD_COUNTOF(f) * 2; i++) {
        for (size_t j = 0; j < TD_COUNTOF(rows) * TD_COUNTOF(sizes); j++) {
            struct td_shape shape = mat(rows[j % TD_COUNTOF(rows)], sizes[j / TD_COUNTOF(rows)]);
            struct op_case c = {.op = f[i / 2].op, .n_in = 1, .attrs = {.gelu_tanh = i % 2}};
            if (c.op == TD_OP_CLAMP || c.op == TD_OP_LEAKY_RELU) c.attrs.scale = 0.5;
            if (j + i % 2 == 0) check_value(s, c, f[i / 2].at, f[i / 2].value);
            c.in[0] = c.in[1] =
                (struct operand){ANY, shape, TD_ROLE_PARAM, f[i / 2].low, f[i / 2].high};
            check(s, &c);
            c.op = f[i / 2].partner;
            c.n_in = 2;
            if (c.op != TD_OP_COUNT) check(s, &c);
        }
    }
}

static void cases_choice(struct subject *s) {
    const struct td_shape shapes[][3] = {
        {vec(1), vec(1), vec(1)},
        {mat(5, 17), mat(5, 17), mat(5, 17)},
        {mat(5, 1), mat(5, 17), rig_shape(0, 0, 0, 0)},
        {vec(4), mat(3, 1), rig_shape(3, 2, 1, 4)},
        {mat(0, 3), vec(3), vec(1)},
    };
    for (size_t i = 0; i < TD_COUNTOF(shapes); i++) {
        struct op_case c = {.op = TD_OP_COMPARE, .n_in = 2};
        for (int how = 0; how < TD_CMP_COUNT; how++) {
            c.attrs.compare = (enum td_compare)how;
            c.in[0] = tensor(shapes[i][0]);
            c.in[1] = tensor(shapes[i][1]);
            check(s, &c);
            c.in[0] = (struct operand){TD_I32, shapes[i][0], TD_ROLE_PARAM, 0, 3};
            c.in[1] = (struct operand){TD_I32, shapes[i][1], TD_ROLE_PARAM, 0, 3};
            check(s, &c);
        }
        c = (struct op_case){.op = TD_OP_SELECT, .n_in = 3};
        c.in[0] = (struct operand){TD_BOOL, shapes[i][0], TD_ROLE_PARAM, 0, 2};
        c.in[1] = tensor(shapes[i][1]);
        c.in[2] = tensor(shapes[i][2]);
        check(s, &c);
    }
}

static void cases_elementwise(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
            struct td_shape shape = mat(rows[i], sizes[j]);
            struct op_case c = {.op = TD_OP_CAST, .n_in = 1, .in = {tensor(shape)}};
            c.attrs = (struct td_attrs){.dtype = ANY, .scale = 0.25};
            check(s, &c);
            c.op = TD_OP_RESHAPE;
            c.attrs = (struct td_attrs){.shape = vec(rows[i] * sizes[j])};
            check(s, &c);
            c.op = TD_OP_SCALE;
            c.n_in = 2;
            c.attrs = (struct td_attrs){0};
            c.in[1] = tensor(rig_shape(0, 0, 0, 0));
            check(s, &c);
        }
    }
}

static void cases_cast_of_pixels(struct subject *s) {
    struct op_case c = {.op = TD_OP_CAST, .n_in = 1, .attrs = {.dtype = ANY, .scale = 1.0 / 255.0}};
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        c.in[0] = (struct operand){TD_U8, mat(5, sizes[j]), TD_ROLE_PARAM, 0, 256};
        check(s, &c);
    }
}

// A view of an input must leave it alone; labels (B,1) are reshaped before the loss.
static void cases_view_of_input(struct subject *s) {
    struct op_case c = {.op = TD_OP_RESHAPE, .n_in = 1, .attrs = {.shape = vec(15)}};
    c.in[0] = (struct operand){TD_I32, mat(5, 3), TD_ROLE_PARAM, 0, 256};
    check(s, &c);
}

static void cases_fill(struct subject *s) {
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        struct op_case c = {.op = TD_OP_FILL};
        c.attrs = (struct td_attrs){.shape = mat(3, sizes[j]), .scale = -1.5};
        check(s, &c);
        c.n_in = 1;
        c.in[0] = tensor(rig_shape(0, 0, 0, 0));
        check(s, &c);
    }
}

static void cases_constant(struct subject *s) {
    double values[1200];
    for (size_t i = 0; i < TD_COUNTOF(values); i++) {
        values[i] = (double)i / 7 - 50;
    }
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        struct op_case c = {.op = TD_OP_CONSTANT};
        c.attrs = (struct td_attrs){.shape = vec(sizes[j]), .values = values};
        check(s, &c);
    }
    struct op_case c = {.op = TD_OP_CONSTANT};
    c.attrs = (struct td_attrs){.shape = mat(3, 400), .values = values};
    check(s, &c);
}

static void cases_classifier(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
            struct op_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2};
            c.in[0] = tensor(mat(rows[i], sizes[j]));
            c.in[1] = (struct operand){TD_I32, vec(rows[i]), TD_ROLE_PARAM, 0, (double)sizes[j]};
            check(s, &c);
            c.op = TD_OP_COUNT_CORRECT;
            check(s, &c);
            c.op = TD_OP_SOFTMAX_CE; // large logits must not overflow
            c.in[0].low = -300;
            c.in[0].high = 300;
            check(s, &c);
        }
    }
}

static void cases_reduce_sum(struct subject *s) {
    const struct td_shape pairs[][2] = {
        {mat(5, 17), vec(17)},
        {mat(0, 3), vec(3)},
        {mat(129, 33), vec(33)},
        {mat(7, 1), vec(1)},
        {rig_shape(3, 3, 5, 4), vec(4)},
        {rig_shape(3, 3, 5, 4), mat(5, 4)},
        {mat(6, 5), rig_shape(0, 0, 0, 0)},
        {mat(6, 5), mat(6, 1)},
        {rig_shape(3, 3, 5, 4), rig_shape(3, 1, 5, 1)},
    };
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        struct op_case c = {.op = TD_OP_REDUCE_SUM, .n_in = 1, .in = {tensor(pairs[i][0])}};
        c.attrs.shape = pairs[i][1];
        check(s, &c);
        c.attrs.wide = true;
        check(s, &c);
        c.attrs.wide = false;
        c.store = true;
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
    }
}

// The same three for every reduction; only the sum also goes straight into a gradient.
static void cases_means_and_maxima(struct subject *s) {
    const struct td_shape pairs[][2] = {
        {mat(5, 17), vec(17)},
        {mat(129, 33), mat(129, 1)},
        {{4, {2, 3, 5, 7}}, {4, {2, 3, 1, 1}}},
        {{4, {2, 3, 5, 7}}, {0}},
        {mat(3, 0), vec(0)},
    };
    for (size_t i = 0; i < 2 * TD_COUNTOF(pairs); i++) {
        struct op_case c = {.op = i % 2 ? TD_OP_REDUCE_MAX : TD_OP_REDUCE_MEAN, .n_in = 1};
        c.in[0] = tensor(pairs[i / 2][0]);
        c.attrs.shape = pairs[i / 2][1];
        check(s, &c);
    }
}

static void cases_transpose(struct subject *s) {
    static const struct {
        struct td_shape x;
        int32_t perm[4];
    } t[] = {
        {{2, {5, 17}}, {1, 0}},
        {{2, {0, 3}}, {1, 0}},
        {{2, {33, 65}}, {1, 0}},
        {{4, {2, 3, 5, 7}}, {0, 2, 1, 3}},
        {{3, {4, 1, 6}}, {2, 0, 1}},
        {{4, {2, 3, 5, 7}}, {3, 1, 0, 2}},
        {{1, {9}}, {0}},
        {{4, {2, 3, 5, 7}}, {0, 1, 3, 2}},
    };
    for (size_t i = 0; i < TD_COUNTOF(t); i++) {
        struct op_case c = {.op = TD_OP_TRANSPOSE, .n_in = 1, .in = {tensor(t[i].x)}};
        memcpy(c.attrs.perm, t[i].perm, sizeof t[i].perm);
        check(s, &c);
    }
}

static void cases_boxes(struct subject *s) {
    static const struct {
        struct td_shape whole, part;
        int64_t start[3];
    } b[] = {
        {{1, {17}}, {1, {5}}, {3}},
        {{2, {5, 17}}, {2, {5, 16}}, {0, 1}},
        {{2, {5, 17}}, {2, {1, 17}}, {4}},
        {{3, {3, 4, 33}}, {3, {2, 1, 31}}, {1, 2, 1}},
        {{2, {5, 17}}, {2, {0, 17}}, {5}},
        {{2, {3, 4}}, {2, {3, 4}}, {0}},
        {{3, {2, 7, 48}}, {3, {2, 7, 16}}, {0, 0, 16}},
    };
    for (size_t i = 0; i < TD_COUNTOF(b); i++) {
        struct op_case c = {.op = TD_OP_SLICE, .n_in = 1, .in = {tensor(b[i].whole)}};
        memcpy(c.attrs.start, b[i].start, sizeof b[i].start);
        c.attrs.shape = b[i].part;
        check(s, &c);
        c.op = TD_OP_PAD;
        c.in[0] = tensor(b[i].part);
        c.attrs.shape = b[i].whole;
        check(s, &c);
        c.attrs.scale = -2.5;
        check(s, &c);
    }
}

static void cases_concat(struct subject *s) {
    for (int32_t axis = 0; axis < 3; axis++) {
        struct op_case c = {.op = TD_OP_CONCAT, .attrs = {.axis = axis}};
        for (int64_t n = 0; n < 5; n++) { // the first is empty
            struct td_shape x = rig_shape(3, 3, 5, 7);
            x.dim[axis] = n * 3;
            c.in[c.n_in++] = tensor(x);
            check(s, &c);
        }
    }
}

static void indexed(struct subject *s, enum td_op op, struct td_shape x, struct td_shape index,
                    int64_t bound, struct td_attrs attrs) {
    struct op_case c = {.op = op, .n_in = 2, .attrs = attrs};
    struct operand by = {TD_I32, index, TD_ROLE_PARAM, 0, (double)bound};
    bool reads = op == TD_OP_GATHER || op == TD_OP_EMBEDDING;
    c.in[reads ? 0 : 1] = tensor(x);
    c.in[reads ? 1 : 0] = by;
    check(s, &c);
    if (op != TD_OP_EMBEDDING_GRAD) return;
    c.store = true;
    check(s, &c);
    c.attrs.accumulate = true;
    check(s, &c);
}

static void cases_indexed(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
            struct td_attrs a = {.shape = mat(11, sizes[j])};
            struct td_shape ids = mat(rows[i], 3), picks = mat(rows[i], sizes[j]);
            indexed(s, TD_OP_EMBEDDING, a.shape, ids, 11, (struct td_attrs){0});
            indexed(s, TD_OP_EMBEDDING_GRAD, rig_shape(3, rows[i], 3, sizes[j]), ids, 11, a);
            indexed(s, TD_OP_GATHER, a.shape, picks, 11, (struct td_attrs){0});
            indexed(s, TD_OP_GATHER_GRAD, picks, picks, 11, a);
            a = (struct td_attrs){.axis = 1, .shape = mat(rows[i], 11)};
            indexed(s, TD_OP_GATHER, a.shape, picks, 11, (struct td_attrs){.axis = 1});
            indexed(s, TD_OP_GATHER_GRAD, picks, picks, 11, a);
        }
    }
}

static void cases_reductions(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct op_case c = {.op = TD_OP_MEAN, .n_in = 1, .in = {tensor(mat(rows[i], 17))}};
        check(s, &c);
        c.n_in = 3;
        c.in[1] = tensor(vec(1));
        c.in[2] = tensor(vec(1000));
        c.op = TD_OP_SUM_SQUARES;
        check(s, &c);
        c.op = TD_OP_ALL_FINITE;
        check(s, &c);
        c.in[2].high = (double)INFINITY;
        check(s, &c);
    }
    for (int i = 0; i < 3; i++) {
        struct op_case c = {.op = TD_OP_CLIP_COEF, .n_in = 1};
        c.in[0] = (struct operand){ANY, rig_shape(0, 0, 0, 0), TD_ROLE_PARAM, i, i};
        c.attrs.max_norm = 1.2;
        check(s, &c);
    }
}

// The square of a norm is f64: of f32 it would end at 1.8e19.
static void cases_norms(struct subject *s) {
    static const double largest[] = {1, 1e18, 1e19, 3e38}, squares[] = {0, 1.3, 1e40, 1e77, NAN};
    const struct td_shape scalar = rig_shape(0, 0, 0, 0);
    for (size_t i = 0; i < TD_COUNTOF(largest); i++) {
        struct op_case c = {.op = TD_OP_SUM_SQUARES, .n_in = 2, .attrs.wide = true};
        c.in[0] = (struct operand){WIDE, vec(1000), TD_ROLE_PARAM, -largest[i], largest[i]};
        c.in[1] = (struct operand){WIDE, mat(3, 17), TD_ROLE_PARAM, 0, 1};
        check(s, &c);
    }
    for (size_t i = 0; i < TD_COUNTOF(squares); i++) {
        struct op_case c = {.op = TD_OP_CLIP_COEF, .n_in = 1, .attrs.max_norm = 1.2};
        c.in[0] = (struct operand){TD_F64, scalar, TD_ROLE_PARAM, squares[i], squares[i]};
        check(s, &c);
        c.op = TD_OP_SCALE;
        c.n_in = 2;
        c.in[1] = (struct operand){WIDE, scalar, TD_ROLE_PARAM, 0.25, 0.25};
        check(s, &c);
        c.op = TD_OP_ADD;
        c.in[1] = c.in[0];
        check(s, &c);
    }
}

static void cases_state(struct subject *s) {
    for (size_t j = 0; j < TD_COUNTOF(sizes); j++) {
        struct op_case c = {.op = TD_OP_STORE, .n_in = 2};
        c.in[0] = tensor(mat(3, sizes[j]));
        c.in[1] = tensor(mat(3, sizes[j]));
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
    }
}

// ---- whole programs -----------------------------------------------------------------------------
static td_status sync_all(void *arg, struct td_graph *g, const struct td_program_key *key) {
    (void)arg, (void)key;
    TD_TRY(td_rewrite_assign_buckets(g, 1024, 4096));
    return td_rewrite_all_reduce(g);
}

// A parameter of one element times a step scalar, which a precision reads in the parameter's type.
static td_status record_scaled(void *arg, struct td_graph *g, int64_t batch) {
    const enum td_dtype dtype = *(const enum td_dtype *)arg;
    const struct td_shape one = {0};
    const struct td_init init = {0};
    td_value in[2], y;
    (void)batch;
    TD_TRY(td_graph_param(g, "p", dtype, &one, init, &in[0]));
    TD_TRY(td_graph_scalar(g, TD_SCALAR_WINDOW, &in[1]));
    TD_TRY(td_rewrite_scalar(g, in[1], dtype));
    TD_TRY(td_graph_op(g, TD_OP_SCALE, in, 2, NULL, &y));
    return td_graph_output(g, "y", y, TD_OUTPUT_MEAN);
}

// f64 has every digit of a step scalar, f32 what fp32 holds; of the block as it is at each run.
static void cases_step_scalars(struct subject *s) {
    static enum td_dtype types[] = {TD_F32, TD_F64};
    static const double windows[] = {1.0 / 3, 0.1};
    for (size_t i = 0; i < TD_COUNTOF(types); i++) {
        struct td_compile_options o = {.key = rig_key(TD_MODE_EVAL, 1, false),
                                       .record = record_scaled,
                                       .record_arg = &types[i]};
        struct rig r;
        rig_open_on(&r, s->ops, bench_threads);
        const int p = rig_add(&r, &o);
        rig_place(&r);
        rig_set(types[i], rig_named(&r, "p"), 0, 1);
        for (size_t k = 0; k < TD_COUNTOF(windows); k++) {
            const double rounded = (double)(float)windows[k];
            r.scalars[TD_SCALAR_WINDOW] = windows[k];
            rig_run(&r, p, TD_SEGS_ALL, NULL);
            assert_true(r.program[p].outputs[0] == (types[i] == TD_F64 ? windows[k] : rounded));
        }
        rig_close(&r);
    }
    s->n_cases++;
}

enum { STEPS = 4, SAMPLES = 19 };

static void train(const struct td_accelerator_ops *ops, bool one_by_one, struct result *out) {
    struct rig_mlp m = {.dtype = TD_F32, .n_widths = 4, .width = {50, 33, 16, 10}};
    struct td_optimizer_options opt = {
        .op = TD_OP_ADAMW,
        .attrs = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
        .clip_norm = 0.5};
    struct td_compile_options o = {.key = rig_key(TD_MODE_TRAIN, SAMPLES, true),
                                   .record = rig_record_mlp,
                                   .record_arg = &m,
                                   .strategy = sync_all,
                                   .optimizer = &opt};
    struct rig r;
    rig_open_on(&r, ops, bench_threads);
    int p = rig_add(&r, &o);
    rig_place(&r);
    float x[SAMPLES * 50];
    int32_t y[SAMPLES];
    const void *in[] = {x, y};
    for (int step = 1; step <= STEPS; step++) {
        rig_batch(&m, step * SAMPLES, SAMPLES, x, y);
        r.scalars[TD_SCALAR_STEP] = step;
        r.scalars[TD_SCALAR_LR] = 1e-3f;
        rig_raise(&r, step);
        for (int g = 0; g < TD_SEG_COUNT && one_by_one; g++) {
            rig_run(&r, p, 1u << g, in);
        }
        if (!one_by_one) rig_run(&r, p, TD_SEGS_ALL, in);
        rig_expect_agreed(&r, step);
    }
    assert_int_equal(r.n_reduced, STEPS * (int)td_state_n_buckets(r.state));
    out->n = 0;
    for (uint32_t i = 0; i < td_state_count(r.state); i++) {
        const struct td_state_info *s = td_state_at(r.state, i);
        append(out, s->dtype, rig_state(&r, i), td_shape_elems(&s->shape));
    }
    append(out, TD_F64, r.program[p].outputs, 2);
    rig_close(&r);
}

static void cases_training(struct subject *s) {
    static struct result fused, parts, want;
    train(s->ops, false, &fused);
    train(s->ops, true, &parts);
    train(td_accelerator_reference.ops, false, &want);
    assert_int_equal(fused.n, parts.n);
    assert_memory_equal(fused.x, parts.x, fused.n * sizeof *fused.x); // same bits
    for (size_t i = 0; i < fused.n; i++) {
        assert_true(fabs(fused.x[i] - want.x[i]) <= 1e-4 * (1 + fabs(want.x[i])));
    }
}

// ---- the programs of this file ------------------------------------------------------------------
static const struct suite suites[] = {
    {"matmul", cases_matmul},
    {"binary", cases_binary},
    {"functions", cases_functions},
    {"choice", cases_choice},
    {"elementwise", cases_elementwise},
    {"pixels", cases_cast_of_pixels},
    {"view_of_input", cases_view_of_input},
    {"fill", cases_fill},
    {"constant", cases_constant},
    {"classifier", cases_classifier},
    {"reduce_sum", cases_reduce_sum},
    {"means_and_maxima", cases_means_and_maxima},
    {"reductions", cases_reductions},
    {"norms", cases_norms},
    {"transpose", cases_transpose},
    {"boxes", cases_boxes},
    {"concat", cases_concat},
    {"indexed", cases_indexed},
    {"state", cases_state},
    {"step_scalars", cases_step_scalars},
    {"training", cases_training},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_ops", suites, TD_COUNTOF(suites));
}
