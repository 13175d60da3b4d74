// The ops of networks in fp64 on every accelerator that has it, against long double. Losses of
// classes, softmax, norms and attention are within 64 eps of what they are made of, rotations and
// updates within 4. See conform_double.c.

#include "tests/conform/double_bench.h"
#include "traind/rope.h"

enum { NETWORKS = 64, SUMS = 4 }; // eps

// ---- losses -------------------------------------------------------------------------------------
static real weight_at(const struct op_case *c, int64_t class) {
    return c->n_in > 2 ? at(c, 2, class) : 1;
}

// What a row should be, class by class.
static real target_of(const struct op_case *c, int64_t label, int64_t i, int64_t n) {
    const real s = c->attrs.label_smoothing;
    return s * weight_at(c, i) / n + (i == label ? (1 - s) * weight_at(c, i) : 0);
}

static void cross_entropy(const struct op_case *c, struct wanted *out) {
    const int64_t n_rows = c->in[0].shape.dim[0], n = c->in[0].shape.dim[1];
    struct sum loss = {0}, weights = {0};
    for (int64_t r = 0; r < n_rows; r++) {
        add(&weights, weight_at(c, label_at(c, 1, r)));
    }
    const size_t first = out->n;
    want(out, 0, 0);
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t label = label_at(c, 1, r);
        real all = 0, total = 0;
        for (int64_t i = 0; i < n; i++) {
            all += expl(at(c, 0, r * n + i));
            total += target_of(c, label, i, n);
        }
        for (int64_t i = 0; i < n; i++) {
            const real x = at(c, 0, r * n + i), t = target_of(c, label, i, n), p = expl(x) / all;
            add(&loss, t * logl(all));
            add(&loss, -t * x);
            want(out, (total * p - t) / weights.x, (total * p + t) / weights.x);
        }
    }
    out->x[first] = loss.x / weights.x;
    out->magnitude[first] = loss.magnitude / weights.x;
}

static void pair_loss(const struct op_case *c, struct wanted *out) {
    const int64_t n = elems(c, 0);
    struct sum loss = {0};
    const size_t first = out->n;
    want(out, 0, 0);
    for (int64_t i = 0; i < n; i++) {
        const real x = at(c, 0, i), t = at(c, 1, i), e = x - t, p = 1 / (1 + expl(-x));
        if (c->op == TD_OP_MSE) {
            add(&loss, e * e);
            want(out, 2 * e / n, 2 * fabsl(e) / n);
            continue;
        }
        add(&loss, x > 0 ? x : 0);
        add(&loss, -x * t);
        add(&loss, log1pl(expl(-fabsl(x))));
        want(out, (p - t) / n, (p + t) / n);
    }
    out->x[first] = loss.x / n;
    out->magnitude[first] = loss.magnitude / n;
}

static void cases_losses(struct subject *s) {
    for (int form = 0; form < 4; form++) {
        struct op_case c = {.op = TD_OP_SOFTMAX_CE, .n_in = form & 1 ? 3 : 2};
        c.attrs.label_smoothing = form & 2 ? 0.1 : 0;
        c.in[0] = doubles(mat(301, 17), -9.1, 9.7);
        c.in[1] = (struct operand){TD_I32, vec(301), TD_ROLE_PARAM, 0, 17};
        c.in[2] = doubles(vec(17), 0.3, 2.1);
        check_double(s, &c, NETWORKS, cross_entropy);
    }
    struct op_case c = {.op = TD_OP_MSE, .n_in = 2};
    c.in[0] = doubles(mat(3001, 3), -1.1, 1.3);
    c.in[1] = doubles(mat(3001, 3), -0.3, 1.7);
    check_double(s, &c, SUMS, pair_loss);
    c.op = TD_OP_BCE;
    c.in[0] = doubles(mat(3001, 3), -9.1, 9.7);
    c.in[1] = doubles(mat(3001, 3), 0, 1);
    check_double(s, &c, SUMS, pair_loss);
}

// ---- softmax ------------------------------------------------------------------------------------
static void softmax(const struct op_case *c, struct wanted *out) {
    const int64_t n = c->in[0].shape.dim[1];
    for (int64_t r = 0; r < elems(c, 0); r += n) {
        real top = at(c, 0, r), all = 0;
        for (int64_t i = 1; i < n; i++) {
            top = fmaxl(top, at(c, 0, r + i));
        }
        for (int64_t i = 0; i < n; i++) {
            all += expl(at(c, 0, r + i) - top);
        }
        for (int64_t i = 0; i < n; i++) {
            const real d = at(c, 0, r + i) - top, y = expl(d) / all;
            if (c->op == TD_OP_SOFTMAX) want(out, y, y);
            if (c->op == TD_OP_LOG_SOFTMAX) want(out, d - logl(all), fabsl(d) + logl(all));
        }
    }
}

static void softmax_grad(const struct op_case *c, struct wanted *out) {
    const int64_t n = c->in[0].shape.dim[1];
    const bool log = c->op == TD_OP_LOG_SOFTMAX_GRAD;
    for (int64_t r = 0; r < elems(c, 0); r += n) {
        struct sum all = {0};
        for (int64_t i = r; i < r + n; i++) {
            add(&all, (log ? 1 : at(c, 0, i)) * at(c, 1, i));
        }
        for (int64_t i = r; i < r + n; i++) {
            const real y = at(c, 0, i), dy = at(c, 1, i), a = log ? 1 : y, b = log ? expl(y) : y;
            want(out, a * dy - b * all.x, fabsl(a * dy) + fabsl(b) * all.magnitude);
        }
    }
}

static void cases_softmax(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_SOFTMAX, TD_OP_LOG_SOFTMAX, TD_OP_SOFTMAX_GRAD,
                                     TD_OP_LOG_SOFTMAX_GRAD};
    static const int64_t widths[] = {3, 1001};
    for (size_t i = 0; i < TD_COUNTOF(ops) * TD_COUNTOF(widths); i++) {
        struct op_case c = {.op = ops[i % 4], .n_in = i % 4 < 2 ? 1 : 2};
        const double wide = i % 4 < 2 ? 300.1 : i % 4 == 3 ? -9.7 : 0;
        c.in[0] = doubles(mat(5, widths[i / 4]), wide != 0 ? -300.3 : 0, wide < 0 ? 0 : wide + 1);
        if (i % 4 == 3) c.in[0].low = -9.7;
        c.in[1] = doubles(mat(5, widths[i / 4]), -1.1, 1.3);
        check_double(s, &c, NETWORKS, i % 4 < 2 ? softmax : softmax_grad);
    }
}

// ---- norms --------------------------------------------------------------------------------------
// x is (OUTER, CHANNELS, INNER): of a batch norm a channel is normalized, else a row.
enum { OUTER = 5, CHANNELS = 7, INNER = 11, ALL = OUTER * CHANNELS * INNER };

struct group {
    int64_t first, outer_step, outer, inner; // elements
    real mean, var;                          // of an RMS norm: 0, and the mean square
};

static bool is_batch(enum td_op op) {
    return op == TD_OP_BATCH_NORM || op == TD_OP_BATCH_NORM_GRAD;
}
static bool is_rms(enum td_op op) {
    return op == TD_OP_RMS_NORM || op == TD_OP_RMS_NORM_GRAD || op == TD_OP_ADD_RMS_NORM;
}
static int64_t element(const struct group *g, int64_t i) {
    return g->first + i / g->inner * g->outer_step + i % g->inner;
}
static real normed(const struct op_case *c, int64_t k) {
    const bool adds = c->op == TD_OP_ADD_LAYER_NORM || c->op == TD_OP_ADD_RMS_NORM;
    return adds ? (real)(double)(at(c, 0, k) + at(c, 1, k)) : at(c, 0, k);
}

static struct group group_at(const struct op_case *c, int64_t i) {
    struct group g = is_batch(c->op)
                         ? (struct group){i * INNER, CHANNELS * INNER, OUTER, INNER, 0, 0}
                         : (struct group){i * INNER, 0, 1, INNER, 0, 0};
    const int64_t n = g.outer * g.inner;
    for (int64_t k = 0; k < n && !is_rms(c->op); k++) {
        g.mean += normed(c, element(&g, k)) / n;
    }
    for (int64_t k = 0; k < n; k++) {
        const real d = normed(c, element(&g, k)) - g.mean;
        g.var += d * d / n;
    }
    return g;
}

static int64_t n_groups(enum td_op op) {
    return is_batch(op) ? CHANNELS : OUTER * CHANNELS;
}

static void norm(const struct op_case *c, struct wanted *out) {
    const bool adds = c->op == TD_OP_ADD_LAYER_NORM || c->op == TD_OP_ADD_RMS_NORM;
    const size_t first = out->n;
    out->n += ALL;
    for (int64_t i = 0; i < n_groups(c->op); i++) {
        const struct group g = group_at(c, i);
        for (int64_t k = 0; k < g.outer * g.inner; k++) {
            const int64_t e = element(&g, k), scale = is_batch(c->op) ? i : k;
            const real h = (normed(c, e) - g.mean) / sqrtl(g.var + (real)c->attrs.eps);
            const real y = h * at(c, adds ? 2 : 1, scale);
            const real beta = is_rms(c->op) ? 0 : at(c, adds ? 3 : 2, scale);
            out->x[first + (size_t)e] = y + beta;
            out->magnitude[first + (size_t)e] = fabsl(y) + fabsl(beta);
        }
    }
    for (int64_t e = 0; e < ALL && adds; e++) {
        want(out, normed(c, e), fabsl(normed(c, e)));
    }
}

// What a batch norm leaves in its running statistics, after its five operands as they were.
static void batch_norm(const struct op_case *c, struct wanted *out) {
    norm(c, out);
    for (uint32_t i = 0; i < 3; i++) {
        for (int64_t k = 0; k < elems(c, i); k++) {
            want(out, at(c, i, k), 0);
        }
    }
    for (uint32_t i = 3; i < 5; i++) {
        for (int64_t k = 0; k < CHANNELS; k++) {
            const struct group g = group_at(c, k);
            const int64_t n = g.outer * g.inner;
            const real to = i == 3 ? g.mean : g.var * n / (n - 1), by = c->attrs.momentum;
            want(out, (1 - by) * at(c, i, k) + by * to, fabsl(at(c, i, k)) + fabsl(by * to));
        }
    }
}

static void norm_grad(const struct op_case *c, struct wanted *out) {
    const int64_t n_scales = is_batch(c->op) ? CHANNELS : INNER;
    static struct sum dgamma[INNER], dbeta[INNER];
    const size_t first = out->n;
    memset(dgamma, 0, sizeof dgamma);
    memset(dbeta, 0, sizeof dbeta);
    out->n += ALL;
    for (int64_t i = 0; i < n_groups(c->op); i++) {
        const struct group g = group_at(c, i);
        const int64_t n = g.outer * g.inner;
        const real rstd = 1 / sqrtl(g.var + (real)c->attrs.eps);
        struct sum d = {0}, dh = {0};
        for (int64_t k = 0; k < n; k++) {
            const int64_t e = element(&g, k), scale = is_batch(c->op) ? i : k;
            const real h = (at(c, 0, e) - g.mean) * rstd, dy = at(c, 2, e);
            if (!is_rms(c->op)) add(&d, dy * at(c, 1, scale) / n);
            add(&dh, dy * at(c, 1, scale) * h / n);
            add(&dgamma[scale], dy * h);
            add(&dbeta[scale], dy);
        }
        for (int64_t k = 0; k < n; k++) {
            const int64_t e = element(&g, k), scale = is_batch(c->op) ? i : k;
            const real h = (at(c, 0, e) - g.mean) * rstd, own = at(c, 2, e) * at(c, 1, scale);
            const real all = fabsl(own) + d.magnitude + fabsl(h) * dh.magnitude;
            out->x[first + (size_t)e] = rstd * (own - d.x - h * dh.x);
            out->magnitude[first + (size_t)e] = rstd * all;
        }
    }
    for (int64_t k = 0; k < n_scales; k++) {
        want(out, dgamma[k].x, dgamma[k].magnitude);
    }
    for (int64_t k = 0; k < n_scales && c->op == TD_OP_LAYER_NORM_GRAD; k++) {
        want(out, dbeta[k].x, dbeta[k].magnitude);
    }
}

// About 0, and close to each other beside a large mean.
static void cases_norms(struct subject *s) {
    static const struct {
        enum td_op op;
        uint32_t n_in, gamma;
        oracle_fn *oracle;
    } n[] = {
        {TD_OP_LAYER_NORM, 3, 1, norm},         {TD_OP_RMS_NORM, 2, 1, norm},
        {TD_OP_ADD_LAYER_NORM, 4, 2, norm},     {TD_OP_ADD_RMS_NORM, 3, 2, norm},
        {TD_OP_BATCH_NORM, 5, 1, batch_norm},   {TD_OP_LAYER_NORM_GRAD, 3, 1, norm_grad},
        {TD_OP_RMS_NORM_GRAD, 3, 1, norm_grad}, {TD_OP_BATCH_NORM_GRAD, 3, 1, norm_grad},
    };
    for (size_t i = 0; i < TD_COUNTOF(n) * 2; i++) {
        struct op_case c = {.op = n[i / 2].op, .n_in = n[i / 2].n_in};
        const struct td_shape x = rig_shape(3, OUTER, CHANNELS, INNER);
        const int64_t n_scales = is_batch(c.op) ? CHANNELS : INNER;
        const bool is_grad = n[i / 2].oracle == norm_grad;
        c.attrs = (struct td_attrs){.eps = 1e-5, .momentum = 0.1};
        for (uint32_t k = 1; k < c.n_in; k++) {
            c.in[k] = doubles(vec(n_scales), 0.3, 1.9);
        }
        c.in[0] = i % 2 ? doubles(x, 1000.1, 1001.3) : doubles(x, -1.1, 1.3);
        if (n[i / 2].gamma == 2) c.in[1] = doubles(x, -0.7, 1.1);
        if (is_grad) c.in[2] = doubles(x, -1.1, 1.3);
        check_double(s, &c, NETWORKS, n[i / 2].oracle);
    }
}

// ---- attention ----------------------------------------------------------------------------------
enum { BATCH = 2, TOKENS = 9, HEADS = 4, GROUPS = 2, DEPTH = 5 };

// Number of element d of token t of head h, of `heads` heads.
static int64_t place_of(int64_t b, int64_t t, int64_t h, int64_t d, int64_t heads) {
    return ((b * TOKENS + t) * heads + h) * DEPTH + d;
}

static real score(const struct op_case *c, int64_t b, int64_t t, int64_t h, int64_t key) {
    real sum = 0;
    for (int64_t d = 0; d < DEPTH; d++) {
        sum += at(c, 0, place_of(b, t, h, d, HEADS)) *
               at(c, 1, place_of(b, key, h / (HEADS / GROUPS), d, GROUPS));
    }
    return sum * (real)c->attrs.scale;
}

static real log_sum(const struct op_case *c, int64_t b, int64_t t, int64_t h) {
    real all = 0;
    for (int64_t key = 0; key <= t; key++) {
        all += expl(score(c, b, t, h, key));
    }
    return logl(all);
}

static void attention(const struct op_case *c, struct wanted *out) {
    for (int64_t i = 0; i < BATCH * TOKENS * HEADS * DEPTH; i++) {
        const int64_t d = i % DEPTH, h = i / DEPTH % HEADS, t = i / DEPTH / HEADS % TOKENS;
        const int64_t b = i / DEPTH / HEADS / TOKENS;
        struct sum y = {0};
        for (int64_t key = 0; key <= t; key++) {
            add(&y, expl(score(c, b, t, h, key) - log_sum(c, b, t, h)) *
                        at(c, 2, place_of(b, key, h / (HEADS / GROUPS), d, GROUPS)));
        }
        want(out, y.x, y.magnitude);
    }
    for (int64_t i = 0; i < BATCH * HEADS * TOKENS; i++) {
        const real y = log_sum(c, i / TOKENS / HEADS, i % TOKENS, i / TOKENS % HEADS);
        want(out, y, 1 + fabsl(y));
    }
}

// By the log-sum-exp and the result that are given, whatever they are.
static void attention_grad(const struct op_case *c, struct wanted *out) {
    static struct sum dq[BATCH * TOKENS * HEADS * DEPTH], dk[BATCH * TOKENS * GROUPS * DEPTH],
        dv[BATCH * TOKENS * GROUPS * DEPTH];
    const real scale = c->attrs.scale;
    memset(dq, 0, sizeof dq);
    memset(dk, 0, sizeof dk);
    memset(dv, 0, sizeof dv);
    for (int64_t i = 0; i < BATCH * TOKENS * HEADS * TOKENS; i++) {
        const int64_t key = i % TOKENS, h = i / TOKENS % HEADS, t = i / TOKENS / HEADS % TOKENS;
        const int64_t b = i / TOKENS / HEADS / TOKENS, g = h / (HEADS / GROUPS);
        if (key > t) continue;
        const real lse = at(c, 4, (b * HEADS + h) * TOKENS + t);
        const real p = expl(score(c, b, t, h, key) - lse);
        struct sum ds = {0};
        for (int64_t d = 0; d < DEPTH; d++) {
            const real dy = at(c, 5, place_of(b, t, h, d, HEADS));
            add(&ds, dy * at(c, 2, place_of(b, key, g, d, GROUPS)));
            add(&ds, -dy * at(c, 3, place_of(b, t, h, d, HEADS)));
        }
        for (int64_t d = 0; d < DEPTH; d++) {
            const int64_t q = place_of(b, t, h, d, HEADS), k = place_of(b, key, g, d, GROUPS);
            add(&dv[k], p * at(c, 5, q));
            dq[q].x += p * ds.x * scale * at(c, 1, k);
            dq[q].magnitude += fabsl(p * ds.magnitude * scale * at(c, 1, k));
            dk[k].x += p * ds.x * scale * at(c, 0, q);
            dk[k].magnitude += fabsl(p * ds.magnitude * scale * at(c, 0, q));
        }
    }
    const struct sum *const all[] = {dq, dk, dv};
    const size_t n[] = {TD_COUNTOF(dq), TD_COUNTOF(dk), TD_COUNTOF(dv)};
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        for (size_t k = 0; k < n[i]; k++) {
            want(out, all[i][k].x, all[i][k].magnitude);
        }
    }
}

static void cases_attention(struct subject *s) {
    const struct td_shape q = {4, {BATCH, TOKENS, HEADS, DEPTH}};
    const struct td_shape k = {4, {BATCH, TOKENS, GROUPS, DEPTH}};
    struct op_case c = {.op = TD_OP_ATTENTION, .n_in = 3};
    c.attrs = (struct td_attrs){.causal = true, .scale = 0.7};
    c.in[0] = c.in[3] = c.in[5] = doubles(q, -2.1, 2.3);
    c.in[1] = doubles(k, -2.1, 2.7);
    c.in[2] = doubles(k, 0.1, 1.3);
    c.in[4] = doubles(rig_shape(3, BATCH, HEADS, TOKENS), 1.1, 4.7);
    check_double(s, &c, NETWORKS, attention);
    c.op = TD_OP_ATTENTION_GRAD;
    c.n_in = 6;
    check_double(s, &c, NETWORKS, attention_grad);
}

// ---- rotations, dropout -------------------------------------------------------------------------
static void rotation(const struct op_case *c, struct wanted *out) {
    const int64_t depth = c->in[0].shape.dim[3], half = depth / 2, heads = c->in[0].shape.dim[2];
    for (int64_t i = 0; i < elems(c, 0); i++) {
        const int64_t d = i % depth, token = c->attrs.start[0] + i / depth / heads;
        const real turn = td_rope_turn(&c->attrs, d % half, half), angle = token * turn;
        const real own = at(c, 0, i), other = at(c, 0, d < half ? i + half : i - half);
        struct sum y = {0};
        add(&y, own * cosl(angle));
        add(&y, (d < half ? -other : other) * sinl(angle));
        want(out, y.x, fabsl(own) + fabsl(other));
    }
}

static void dropped(const struct op_case *c, struct wanted *out) {
    const int64_t n_rows = c->in[0].shape.dim[0], n = elems(c, 0) / n_rows;
    uint32_t words[TD_RANDOM_WORDS] = {0};
    uint8_t keep[4096];
    bench_random(words);
    for (int64_t r = 0; r < n_rows; r++) {
        td_random_keep(words, c->attrs.stream, c->attrs.drop, r, n, keep);
        for (int64_t i = 0; i < n; i++) {
            const real y = keep[i] ? at(c, 0, r * n + i) / (1 - (real)c->attrs.drop) : 0;
            want(out, y, fabsl(y));
        }
    }
}

static void cases_rotations_and_dropout(struct subject *s) {
    struct op_case c = {.op = TD_OP_ROPE, .n_in = 1};
    c.in[0] = doubles((struct td_shape){4, {1, 700, 2, 10}}, -1.1, 1.3);
    c.attrs.start[0] = 3000;
    check_double(s, &c, SUMS, rotation);
    c = (struct op_case){.op = TD_OP_DROPOUT, .n_in = 1, .attrs = {.drop = 0.3, .stream = 11}};
    c.in[0] = doubles(mat(5, 1001), -1.1, 1.3);
    check_double(s, &c, SUMS, dropped);
}

// ---- updates ------------------------------------------------------------------------------------
// The weights alone, which are operand 0; the bench's rate is (float)0.01, its step 3.
static void update(const struct op_case *c, struct wanted *out) {
    const struct td_optim_attrs *o = &c->attrs.optim;
    const real lr = 0.01f, wd = o->weight_decay, b1 = o->beta1, b2 = o->beta2;
    const bool coupled = c->op == TD_OP_SGD || c->op == TD_OP_ADAM;
    for (int64_t i = 0; i < elems(c, 0); i++) {
        const real p = at(c, 0, i), g = at(c, 1, i) + (coupled ? wd * p : 0);
        struct sum y = {0};
        add(&y, coupled ? p : p * (1 - lr * wd));
        if (c->op == TD_OP_SGD) {
            add(&y, -lr * (o->momentum * at(c, 2, i) + (1 - (real)o->dampening) * g));
        } else if (c->op == TD_OP_LION) {
            const real u = b1 * at(c, 2, i) + (1 - b1) * g;
            add(&y, -lr * (real)((u > 0) - (u < 0)));
        } else {
            const real m = (b1 * at(c, 2, i) + (1 - b1) * g) / (1 - powl(b1, 3));
            const real v = (b2 * at(c, 3, i) + (1 - b2) * g * g) / (1 - powl(b2, 3));
            add(&y, -lr * m / (sqrtl(v) + (real)o->eps));
        }
        want(out, y.x, y.magnitude);
    }
}

static void cases_updates(struct subject *s) {
    static const enum td_op ops[] = {TD_OP_SGD, TD_OP_ADAM, TD_OP_ADAMW, TD_OP_LION};
    for (size_t i = 0; i < TD_COUNTOF(ops); i++) {
        const bool is_adam = ops[i] == TD_OP_ADAM || ops[i] == TD_OP_ADAMW;
        struct op_case c = {.op = ops[i], .n_in = is_adam ? 4 : 3};
        c.attrs.optim = (struct td_optim_attrs){.beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .weight_decay = 0.1,
                                                .momentum = ops[i] == TD_OP_SGD ? 0.9 : 0,
                                                .dampening = 0.3};
        for (uint32_t k = 0; k < c.n_in; k++) {
            c.in[k] = doubles(vec(999), k == 3 ? 0.01 : -1.1, 1.3);
            if (k) c.in[k].role = k == 1 ? TD_ROLE_GRAD : TD_ROLE_OPTIM;
        }
        check_double(s, &c, SUMS, update);
    }
}

static const struct suite suites[] = {
    {"fp64_of_losses", cases_losses},
    {"fp64_of_softmax", cases_softmax},
    {"fp64_of_norms", cases_norms},
    {"fp64_of_attention", cases_attention},
    {"fp64_of_rotations_and_dropout", cases_rotations_and_dropout},
    {"fp64_of_updates", cases_updates},
};

int main(int argc, char **argv) {
    (void)argc;
    return run_suites(argv[0], "conform_double_nn", suites, TD_COUNTOF(suites));
}
