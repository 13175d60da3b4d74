// The ops of networks on every accelerator, against the reference: losses with their options,
// softmax, norms, dropout. See conform_ops.c.

#include "tests/conform/op_bench.h"

static void cases_cross_entropy(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows) * TD_COUNTOF(sizes); i++) {
        int64_t n = rows[i % TD_COUNTOF(rows)], classes = sizes[i / TD_COUNTOF(rows)];
        struct op_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = 2};
        c.in[0] = tensor(mat(n, classes));
        c.in[1] = (struct operand){TD_I32, vec(n), TD_ROLE_PARAM, 0, (double)classes};
        c.in[2] = (struct operand){ANY, vec(classes), TD_ROLE_PARAM, 0.5, 2};
        for (int form = 1; form < 8; form++) {
            c.n_in = form & 1 ? 3 : 2;
            c.attrs.label_smoothing = form & 2 ? 0.1 : 0;
            c.attrs.ignores = form & 4;
            c.attrs.ignore_index = (int32_t)classes / 2; // all rows, where there is one class
            check(s, &c);
        }
        c.in[2].low = c.in[2].high = 0; // nothing to divide by
        check(s, &c);
        c.op = TD_OP_COUNT_CORRECT;
        c.n_in = 2;
        check(s, &c);
        c.in[1].low = -100; // ignored labels need not be classes
        c.in[1].high = -99;
        c.attrs.ignore_index = -100;
        check(s, &c);
        c.op = TD_OP_SOFTMAX_CE;
        check(s, &c);
    }
}

// What the mean divides by: all labels, some, by weight; none of them.
static void cases_count_labels(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct op_case c = {.op = TD_OP_COUNT_LABELS};
        c.in[0] = (struct operand){TD_I32, vec(rows[i]), TD_ROLE_PARAM, 0, 5};
        c.in[1] = (struct operand){WIDE, vec(5), TD_ROLE_PARAM, 0.5, 2};
        for (int form = 0; form < 8; form++) {
            c.n_in = form & 1 ? 2 : 1;
            c.attrs = (struct td_attrs){.ignores = form & 2, .ignore_index = form & 4 ? -100 : 3};
            check(s, &c);
        }
        c.in[0].low = -100;
        c.in[0].high = -99;
        c.attrs = (struct td_attrs){.ignores = true, .ignore_index = -100};
        check(s, &c);
    }
}

static void more(struct op_case *c, enum td_dtype t, struct td_shape shape, enum td_role role,
                 double low, double high) {
    c->in[c->n_in++] = (struct operand){t, shape, role, low, high};
}

// Bit by bit: a seed, weights of classes, smoothing, ignored labels, gradients that are added to,
// gradients of f32 beside 16 bits, a bias.
static struct op_case head_case(enum td_op op, int form, int64_t n, int64_t inner,
                                int64_t classes) {
    struct op_case c = {.op = op, .n_in = 2};
    bool grads = op == TD_OP_LINEAR_CE_GRAD;
    enum td_dtype to = form & 32 ? WIDE : ANY;
    c.attrs = (struct td_attrs){.seeded = grads && form & 1,
                                .label_smoothing = form & 4 ? 0.1 : 0,
                                .ignores = form & 8,
                                .ignore_index = (int32_t)classes / 2,
                                .accumulate = form & 16,
                                .biased = form & 64};
    c.in[0] = tensor(mat(n, inner));
    c.in[1] = tensor(mat(classes, inner));
    more(&c, TD_I32, vec(n), TD_ROLE_PARAM, 0, (double)classes);
    if (grads) more(&c, to, mat(classes, inner), TD_ROLE_GRAD, -1, 1);
    if (c.attrs.seeded) more(&c, WIDE, rig_shape(0, 0, 0, 0), TD_ROLE_PARAM, 3, 5);
    if (c.attrs.biased) more(&c, ANY, vec(classes), TD_ROLE_PARAM, -1, 1);
    if (c.attrs.biased && grads) more(&c, to, vec(classes), TD_ROLE_GRAD, -1, 1);
    if (form & 2) more(&c, WIDE, vec(classes), TD_ROLE_PARAM, 0.5, 2);
    return c;
}

// The last layer with its loss. Rows are taken in turns where they are many: some that fill a turn,
// some that are left over. These cost nearly all of this program's time, and the bits of a form do
// not depend on the width: each form has one width there, under TD_FULL every one.
static void cases_head(struct subject *s) {
    static const int64_t n_rows[] = {0, 1, 5, 31, 70, 1024, 2100};
    const bool full = getenv("TD_FULL");
    for (size_t i = 0; i < TD_COUNTOF(n_rows) * 3; i++) {
        int64_t n = n_rows[i / 3], inner = 2 + (int64_t)(i % 3) * 4, classes = 13 - inner;
        for (int form = 0; form < 128; form++) {
            if (n > 1000 && !full && ((size_t)form + i / 3) % 3 != i % 3) continue;
            struct op_case c = head_case(TD_OP_LINEAR_CE_GRAD, form, n, inner, classes);
            check(s, &c);
            if (form & 49) continue;
            c = head_case(TD_OP_LINEAR_CE, form, n, inner, classes);
            check(s, &c);
        }
    }
}

static void cases_pair_losses(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        struct op_case c = {.op = TD_OP_MSE, .n_in = 2};
        c.in[0] = c.in[1] = tensor(mat(rows[i], 117));
        check(s, &c);
        c.op = TD_OP_BCE;
        c.in[0] = (struct operand){ANY, mat(rows[i], 117), TD_ROLE_PARAM, -100, 100};
        c.in[1].low = 0;
        check(s, &c);
        c.op = TD_OP_COUNT_CORRECT;
        check(s, &c);
        c.in[1].dtype = WIDE; // logits of 16 bits beside targets of f32
        check(s, &c);
    }
}

static void cases_softmax(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_SOFTMAX, TD_OP_LOG_SOFTMAX, TD_OP_SOFTMAX_GRAD,
                                     TD_OP_LOG_SOFTMAX_GRAD};
    for (size_t i = 0; i < TD_COUNTOF(rows) * TD_COUNTOF(sizes); i++) {
        for (size_t o = 0; o < TD_COUNTOF(ops); o++) {
            struct op_case c = {.op = ops[o], .n_in = o < 2 ? 1 : 2};
            c.in[0] = c.in[1] =
                tensor(rig_shape(3, 2, rows[i % TD_COUNTOF(rows)], sizes[i / TD_COUNTOF(rows)]));
            check(s, &c);
            if (o > 1) continue;
            c.in[0].low = -300; // large operands must not overflow
            c.in[0].high = 300;
            check(s, &c);
        }
    }
}

static void norm(struct subject *s, enum td_op op, uint32_t n_in, struct td_shape x,
                 int64_t channels) {
    bool grad =
        op == TD_OP_LAYER_NORM_GRAD || op == TD_OP_RMS_NORM_GRAD || op == TD_OP_BATCH_NORM_GRAD;
    struct op_case c = {.op = op, .n_in = n_in, .attrs = {.eps = 1e-3, .momentum = 0.1}};
    for (int wide = 0; wide < 2; wide++) { // scales in f32, as under bf16-mixed
        for (uint32_t i = 1; i < n_in; i++) {
            c.in[i] = (struct operand){wide ? WIDE : ANY, vec(channels), TD_ROLE_PARAM, 0.5, 2};
        }
        c.in[0] = tensor(x);
        if (grad) c.in[2] = tensor(x);
        if (grad && n_in > 3) c.in[3] = tensor(x);
        if (op == TD_OP_ADD_LAYER_NORM || op == TD_OP_ADD_RMS_NORM) c.in[1] = tensor(x);
        check(s, &c);
    }
}

static void cases_norms(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows) * TD_COUNTOF(sizes); i++) {
        int64_t n = rows[i % TD_COUNTOF(rows)], channels = sizes[i / TD_COUNTOF(rows)];
        struct td_shape x = rig_shape(3, 2, n, channels);
        norm(s, TD_OP_LAYER_NORM, 2, x, channels);
        norm(s, TD_OP_LAYER_NORM, 3, x, channels);
        norm(s, TD_OP_LAYER_NORM_GRAD, 3, x, channels);
        norm(s, TD_OP_RMS_NORM, 2, x, channels);
        norm(s, TD_OP_RMS_NORM_GRAD, 3, x, channels);
        norm(s, TD_OP_LAYER_NORM_GRAD, 4, x, channels);
        norm(s, TD_OP_RMS_NORM_GRAD, 4, x, channels);
        norm(s, TD_OP_ADD_LAYER_NORM, 3, x, channels);
        norm(s, TD_OP_ADD_LAYER_NORM, 4, x, channels);
        norm(s, TD_OP_ADD_RMS_NORM, 3, x, channels);
        struct td_shape images = {4, {n, channels, 3, 5}}, flat = mat(n, channels);
        for (int form = 0; form < 2; form++) {
            norm(s, TD_OP_BATCH_NORM, 5, form ? images : flat, channels);
            norm(s, TD_OP_BATCH_NORM_EVAL, 5, form ? images : flat, channels);
            norm(s, TD_OP_BATCH_NORM_GRAD, 3, form ? images : flat, channels);
        }
    }
}

// Elements that are close to each other, and far from 0: a mean that was rounded to fp32 is off by
// much of what is left of them without it.
static void cases_norms_of_close_elements(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_LAYER_NORM, TD_OP_LAYER_NORM_GRAD, TD_OP_ADD_LAYER_NORM,
                                     TD_OP_BATCH_NORM, TD_OP_BATCH_NORM_GRAD};
    static const uint32_t operands[] = {3, 3, 4, 5, 3};
    static const int64_t widths[] = {2, 3, 17, 300};
    for (size_t i = 0; i < TD_COUNTOF(widths) * TD_COUNTOF(ops); i++) {
        const int64_t width = widths[i / TD_COUNTOF(ops)];
        const enum td_op op = ops[i % TD_COUNTOF(ops)];
        const bool batch = op == TD_OP_BATCH_NORM || op == TD_OP_BATCH_NORM_GRAD;
        const struct td_shape rows_first =
            batch ? (struct td_shape){4, {2, 5, width, 1}} : rig_shape(3, 2, 5, width);
        struct op_case c = {.op = op, .n_in = operands[i % TD_COUNTOF(ops)]};
        c.attrs = (struct td_attrs){.eps = 1e-5, .momentum = 0.1};
        for (uint32_t k = 1; k < c.n_in; k++) {
            c.in[k] = (struct operand){ANY, vec(batch ? 5 : width), TD_ROLE_PARAM, 0.5, 2};
        }
        c.in[0] = (struct operand){ANY, rows_first, TD_ROLE_PARAM, 1000, 1001};
        if (op == TD_OP_LAYER_NORM_GRAD || batch) c.in[2] = tensor(rows_first);
        if (op == TD_OP_BATCH_NORM) c.in[2] = c.in[1];
        // The sum is rounded when it is stored: that of nothing loses nothing.
        if (op == TD_OP_ADD_LAYER_NORM) {
            c.in[1] = (struct operand){ANY, rows_first, TD_ROLE_PARAM, 0, 0};
        }
        check(s, &c);
    }
}

static void cases_dropout(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(rows) * TD_COUNTOF(sizes); i++) {
        struct op_case c = {.op = TD_OP_DROPOUT, .n_in = 1};
        c.in[0] = tensor(rig_shape(3, rows[i % TD_COUNTOF(rows)], 3, sizes[i / TD_COUNTOF(rows)]));
        c.attrs.stream = td_stream_of("h.0.dropout");
        check(s, &c);
        c.attrs.drop = 0.3;
        check(s, &c);
    }
    struct op_case c = {.op = TD_OP_DROPOUT, .n_in = 1, .in = {tensor(mat(3, 1701))}};
    c.attrs.drop = 0.5;
    check(s, &c);
}

// A convolution's shapes, from which those of its gradients follow.
static const struct {
    struct td_shape x, w, y;
    struct td_window_attrs a;
} convs[] = {
    {{4, {2, 3, 7, 9}}, {4, {5, 3, 3, 3}}, {4, {2, 5, 5, 7}}, {{0}, {0}, {0}, {0}, 0}},
    {{4, {2, 3, 7, 9}}, {4, {5, 3, 3, 3}}, {4, {2, 5, 7, 9}}, {{0}, {1, 1}, {1, 1}, {1, 1}, 1}},
    {{4, {1, 4, 9, 8}}, {4, {6, 2, 3, 2}}, {4, {1, 6, 4, 5}}, {{0}, {2, 2}, {0, 1}, {0}, 2}},
    {{4, {3, 4, 9, 9}}, {4, {4, 1, 3, 3}}, {4, {3, 4, 7, 5}}, {{0}, {1, 1}, {1, 0}, {2, 2}, 4}},
    {{4, {2, 17, 5, 5}}, {4, {16, 17, 1, 1}}, {4, {2, 16, 3, 3}}, {{0}, {2, 2}, {0}, {0}, 0}},
    {{4, {1, 1, 1, 1}}, {4, {1, 1, 1, 1}}, {4, {1, 1, 1, 1}}, {{0}, {0}, {0}, {0}, 0}},
    {{4, {0, 3, 5, 5}}, {4, {2, 3, 3, 3}}, {4, {0, 2, 3, 3}}, {{0}, {0}, {0}, {0}, 0}},
    {{4, {2, 16, 9, 7}}, {4, {32, 16, 3, 3}}, {4, {2, 32, 9, 7}}, {{0}, {0}, {1, 1}, {0}, 0}},
    {{4, {1, 3, 9, 9}}, {4, {16, 3, 5, 5}}, {4, {1, 16, 4, 4}}, {{0}, {2, 2}, {1, 1}, {0}, 0}},
    {{4, {2, 32, 8, 5}}, {4, {32, 16, 3, 3}}, {4, {2, 32, 6, 3}}, {{0}, {0}, {0}, {0}, 2}},
    {{4, {2, 32, 7, 7}}, {4, {32, 1, 3, 3}}, {4, {2, 32, 3, 3}}, {{0}, {1, 1}, {0}, {2, 2}, 32}},
};

static void cases_convolutions(struct subject *s) {
    for (size_t i = 0; i < TD_COUNTOF(convs); i++) {
        struct op_case c = {.op = TD_OP_CONV2D, .n_in = 2, .attrs = {.window = convs[i].a}};
        c.in[0] = tensor(convs[i].x);
        c.in[1] = tensor(convs[i].w);
        c.in[2] = tensor(vec(convs[i].w.dim[0]));
        check(s, &c);
        c.n_in = 3;
        check(s, &c);
        c.n_in = 2;
        c.op = TD_OP_CONV2D_GRAD_W;
        c.in[1] = tensor(convs[i].y);
        c.attrs.shape = convs[i].w;
        check(s, &c);
        c.store = true;
        check(s, &c);
        c.attrs.accumulate = true;
        check(s, &c);
        c.store = c.attrs.accumulate = false;
        c.op = TD_OP_CONV2D_GRAD_X;
        c.in[0] = tensor(convs[i].y);
        c.in[1] = tensor(convs[i].w);
        c.attrs.shape = convs[i].x;
        check(s, &c);
    }
}

static void cases_pools(struct subject *s) {
    static const struct {
        struct td_shape x, y;
        struct td_window_attrs a;
    } pools[] = {
        {{4, {2, 3, 8, 6}}, {4, {2, 3, 4, 3}}, {{2, 2}, {2, 2}, {0}, {0}, 0}},
        {{4, {2, 3, 7, 9}}, {4, {2, 3, 4, 5}}, {{3, 3}, {2, 2}, {1, 1}, {0}, 0}},
        {{4, {1, 17, 5, 5}}, {4, {1, 17, 1, 1}}, {{5, 5}, {1, 1}, {0}, {0}, 0}},
        {{4, {2, 1, 6, 7}}, {4, {2, 1, 5, 3}}, {{2, 3}, {1, 2}, {0}, {0}, 1}},
        {{4, {0, 3, 4, 4}}, {4, {0, 3, 2, 2}}, {{2, 2}, {2, 2}, {0}, {0}, 0}},
    };
    for (size_t i = 0; i < TD_COUNTOF(pools); i++) {
        const struct td_window_attrs *a = &pools[i].a;
        struct op_case c = {.op = TD_OP_MAX_POOL, .n_in = 1, .attrs = {.window = *a}};
        c.in[0] = tensor(pools[i].x);
        c.in[0].low = c.in[0].high; // equals: the first wins
        check(s, &c);
        c.in[0] = tensor(pools[i].x);
        check(s, &c);
        c.op = TD_OP_AVG_POOL;
        check(s, &c);
        c.op = TD_OP_AVG_POOL_GRAD;
        c.in[0] = tensor(pools[i].y);
        c.attrs.shape = pools[i].x;
        check(s, &c);
        c.op = TD_OP_MAX_POOL_GRAD;
        c.n_in = 2;
        c.in[1] = c.in[0];
        double n = (double)(a->kernel[0] * a->kernel[1]);
        c.in[0] = (struct operand){TD_U8, pools[i].y, TD_ROLE_PARAM, 0, n};
        check(s, &c);
    }
}

// About those of the scores below; f32 beside 16 bits, as attention gives them.
static struct operand log_sum_exp(int64_t batch, int64_t heads, int64_t tokens) {
    return (struct operand){WIDE, rig_shape(3, batch, heads, tokens), TD_ROLE_PARAM, 1, 4};
}

static void cases_attention(struct subject *s) {
    static const struct {
        struct td_shape q, k;
    } a[] = {
        {{4, {2, 5, 3, 4}}, {4, {2, 5, 3, 4}}},     {{4, {1, 17, 4, 16}}, {4, {1, 17, 2, 16}}},
        {{4, {2, 3, 6, 5}}, {4, {2, 7, 1, 5}}},     {{4, {1, 1, 1, 1}}, {4, {1, 1, 1, 1}}},
        {{4, {1, 9, 2, 8}}, {4, {1, 4, 2, 8}}},     {{4, {0, 5, 2, 4}}, {4, {0, 5, 2, 4}}},
        {{4, {1, 33, 1, 33}}, {4, {1, 33, 1, 33}}},
    };
    for (size_t i = 0; i < TD_COUNTOF(a) * 4; i++) {
        const struct td_shape *q = &a[i / 4].q, *k = &a[i / 4].k;
        struct op_case c = {.op = TD_OP_ATTENTION, .n_in = 3, .attrs = {.causal = i % 2}};
        c.attrs.drop = i & 2 ? 0.3 : 0;
        c.attrs.stream = td_stream_of("attn_dropout");
        c.in[0] = c.in[3] = c.in[5] = tensor(*q);
        c.in[1] = c.in[2] = tensor(*k);
        check(s, &c);
        c.attrs.scale = 0.7;
        check(s, &c);
        c.op = TD_OP_ATTENTION_GRAD;
        c.n_in = 6;
        c.in[4] = log_sum_exp(q->dim[0], q->dim[2], q->dim[1]);
        check(s, &c);
    }
}

// Queries of nothing weigh all keys alike, and values of one count what is left of the weights: the
// mask is the one that ops.def says, forward.
static void cases_dropped_weights(struct subject *s) {
    enum { B = 2, T = 5, H = 2, S = 7, S4 = 8, D = 3 };
    static struct result got;
    struct op_case c = {.op = TD_OP_ATTENTION, .n_in = 3, .attrs = {.drop = 0.5, .stream = 11}};
    c.in[0] = c.in[1] = c.in[2] = tensor((struct td_shape){4, {B, S, H, D}});
    c.in[0] = (struct operand){ANY, {4, {B, T, H, D}}, TD_ROLE_PARAM, 0, 0};
    c.in[2].low = c.in[2].high = 1;
    run_on(s->ops, &c, TD_F32, false, &got);
    uint32_t words[TD_RANDOM_WORDS] = {0};
    bench_random(words);
    for (int64_t row = 0; row < B * T * H * D; row++) {
        int64_t h = row / D % H, t = row / D / H % T, b = row / D / H / T;
        uint8_t keep[H * T * S4];
        double kept = 0;
        td_random_keep(words, 11, 0.5, b, H * T * S4, keep);
        for (int64_t key = 0; key < S; key++) {
            kept += keep[(h * T + t) * S4 + key];
        }
        assert_true(fabs(got.x[row] - kept / (int)S / 0.5) < 1e-6);
    }
    s->n_cases++;
}

static void cases_self_attention(struct subject *s) {
    static const struct {
        struct td_shape qkv;
        int32_t groups;
    } a[] = {
        {{4, {2, 5, 9, 4}}, 3},  {{4, {1, 17, 8, 16}}, 2},  {{4, {2, 3, 8, 5}}, 1},
        {{4, {1, 1, 3, 1}}, 1},  {{4, {0, 5, 6, 4}}, 2},    {{4, {1, 70, 3, 33}}, 1},
        {{4, {1, 64, 6, 8}}, 2}, {{4, {2, 129, 4, 20}}, 1}, {{4, {1, 33, 3, 100}}, 1},
    };
    for (size_t i = 0; i < TD_COUNTOF(a) * 4; i++) {
        struct td_shape qkv = a[i / 4].qkv, o = qkv;
        struct op_case c = {.op = TD_OP_SELF_ATTENTION, .n_in = 1};
        c.attrs = (struct td_attrs){.causal = i % 2, .groups = a[i / 4].groups, .scale = 0.1};
        c.attrs.drop = i & 2 ? 0.6 : 0;
        c.attrs.stream = td_stream_of("attn_dropout");
        o.dim[2] -= 2 * c.attrs.groups;
        c.in[0] = tensor(qkv);
        c.in[1] = c.in[3] = tensor(o);
        check(s, &c);
        c.op = TD_OP_SELF_ATTENTION_GRAD;
        c.n_in = 4;
        c.in[2] = log_sum_exp(o.dim[0], o.dim[2], o.dim[1]);
        check(s, &c);
    }
}

static void cases_rope(struct subject *s) {
    static const struct td_rope_scaling scalings[] = {{0}, {3, 0, 0, 0}, {8, 20, 0.3, 1}};
    for (int form = 0; form < 24; form++) {
        struct op_case c = {
            .op = TD_OP_ROPE, .n_in = 1, .in = {tensor((struct td_shape){4, {2, 7, 3, 10}})}};
        c.attrs.interleaved = form & 1;
        c.attrs.reverse = form & 2;
        c.attrs.base = form & 4 ? 500 : 0;
        c.attrs.start[0] = form & 4 ? 5 : 0;
        c.attrs.rope = scalings[form / 8];
        check(s, &c);
        c.in[0] = tensor((struct td_shape){4, {3, 131, 2, 6}});
        check(s, &c);
    }
}

static const struct suite suites[] = {
    {"cross_entropy", cases_cross_entropy},
    {"head", cases_head},
    {"pair_losses", cases_pair_losses},
    {"count_labels", cases_count_labels},
    {"softmax", cases_softmax},
    {"norms", cases_norms},
    {"norms_of_close_elements", cases_norms_of_close_elements},
    {"dropout", cases_dropout},
    {"convolutions", cases_convolutions},
    {"pools", cases_pools},
    {"attention", cases_attention},
    {"dropped_weights", cases_dropped_weights},
    {"self_attention", cases_self_attention},
    {"rope", cases_rope},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_ops_nn", suites, TD_COUNTOF(suites));
}
