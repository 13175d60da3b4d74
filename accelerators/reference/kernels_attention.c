// Attention and rotary positions of the reference.
//
// Forward: a query's scores, their log-sum-exp, the weighted sum of values. Backward, from the
// saved log-sum-exp L: p = exp(s - L), dv += p do, ds = p (do.v - do.o), dq += ds k, dk += ds q,
// the last two times the scale. No probability matrix is ever stored. Dropped weights, m p instead
// of p: dv += m p do, ds = p (m do.v - do.o), m being 0 or 1/(1-drop); L and do.o are as before.

#include <math.h>
#include <string.h>

#include "accelerators/reference/families.h"
#include "traind/random.h"
#include "traind/rope.h"

enum { MASKED = 64 }; // keys whose mask is made at once

// Operands and results of an attention: of three tensors, or of the parts of one.
struct attention {
    const double *q, *k, *v;
    double *dq, *dk, *dv;
    int64_t q_step, k_step; // from a token to the next
    int64_t batch, tokens, keys, heads, groups, depth;
    double scale;
};

static struct attention attention_of(const struct ref_call *c) {
    enum td_op op = c->node->op;
    bool itself = op == TD_OP_SELF_ATTENTION || op == TD_OP_SELF_ATTENTION_GRAD;
    const struct td_shape *q = c->in[0].shape, *k = c->in[itself ? 0 : 1].shape;
    struct attention a = {.q = c->in[0].x,
                          .batch = q->dim[0],
                          .tokens = q->dim[1],
                          .keys = k->dim[1],
                          .heads = itself ? q->dim[2] - 2 * c->node->attrs.groups : q->dim[2],
                          .groups = itself ? c->node->attrs.groups : k->dim[2],
                          .depth = q->dim[3],
                          .q_step = q->dim[2] * q->dim[3],
                          .k_step = k->dim[2] * k->dim[3]};
    int64_t k_at = a.heads * a.depth, v_at = k_at + a.groups * a.depth;
    a.k = itself ? a.q + k_at : c->in[1].x;
    a.v = itself ? a.q + v_at : c->in[2].x;
    a.dq = c->out[0].x; // forward: the result
    a.dk = itself ? a.dq + k_at : c->out[1].x;
    a.dv = itself ? a.dq + v_at : c->out[2].x;
    a.scale = c->node->attrs.scale != 0 ? c->node->attrs.scale : 1 / sqrt((double)a.depth);
    return a;
}

struct head {          // one query: token t of head h in sample b
    int64_t q, o, lse; // elements
    int64_t k;         // element of its group's first key (and value)
    int64_t n_keys;
    int64_t sample, weight; // its first weight's number
};

static struct head head_of(const struct ref_call *c, const struct attention *a, int64_t i) {
    int64_t h = i % a->heads, t = i / a->heads % a->tokens, b = i / a->heads / a->tokens;
    int64_t group = h / (a->heads / a->groups);
    bool causal = c->node->attrs.causal;
    return (struct head){.q = (b * a->tokens + t) * a->q_step + h * a->depth,
                         .o = i * a->depth,
                         .lse = (b * a->heads + h) * a->tokens + t,
                         .k = b * a->keys * a->k_step + group * a->depth,
                         .sample = b,
                         .weight = (h * a->tokens + t) * ((a->keys + 3) / 4 * 4),
                         .n_keys = causal && t + 1 < a->keys ? t + 1 : a->keys};
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(double *y, const double *x, double by, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i] * by;
    }
}

static double score(const struct attention *a, const struct head *h, int64_t key) {
    return a->scale * dot(a->q + h->q, a->k + h->k + key * a->k_step, a->depth);
}

static double log_sum_of_scores(const struct attention *a, const struct head *h) {
    double top = -(double)INFINITY, sum = 0;
    for (int64_t key = 0; key < h->n_keys; key++) {
        top = fmax(top, score(a, h, key));
    }
    for (int64_t key = 0; key < h->n_keys; key++) {
        sum += exp(score(a, h, key) - top);
    }
    return top + log(sum);
}

// What the weights of MASKED keys from `key` on are multiplied with.
static void mask_keys(const struct ref_call *c, const struct head *h, int64_t key, double *out) {
    const struct td_attrs *a = &c->node->attrs;
    uint8_t keep[MASKED];
    memset(keep, 1, sizeof keep);
    if (a->drop != 0) {
        td_random_keep_from(c->random, a->stream, a->drop, h->sample, h->weight + key, MASKED,
                            keep);
    }
    for (int i = 0; i < MASKED; i++) {
        out[i] = keep[i] ? 1 / (1 - a->drop) : 0;
    }
}

static td_status run_attention(struct ref_call *c) {
    double mask[MASKED];
    struct attention a = attention_of(c);
    memset(c->out[0].x, 0, (size_t)c->out[0].n * sizeof(double));
    for (int64_t i = 0; i < a.batch * a.tokens * a.heads; i++) {
        struct head h = head_of(c, &a, i);
        double norm = log_sum_of_scores(&a, &h);
        c->out[1].x[h.lse] = norm;
        for (int64_t key = 0; key < h.n_keys; key++) {
            if (key % MASKED == 0) mask_keys(c, &h, key, mask);
            add_scaled(c->out[0].x + h.o, a.v + h.k + key * a.k_step,
                       mask[key % MASKED] * exp(score(&a, &h, key) - norm), a.depth);
        }
    }
    return TD_OK;
}

// Operands after the ones that the scores are made of: o, log-sum-exp, do.
static td_status run_attention_grad(struct ref_call *c) {
    struct attention a = attention_of(c);
    const struct ref_operand *result = &c->in[c->node->n_inputs - 3];
    double mask[MASKED];
    for (uint32_t i = 0; i < TD_MAX(c->node->n_outputs, 1u); i++) { // none: it writes into state
        memset(c->out[i].x, 0, (size_t)c->out[i].n * sizeof(double));
    }
    for (int64_t i = 0; i < a.batch * a.tokens * a.heads; i++) {
        struct head h = head_of(c, &a, i);
        const double *dy = result[2].x + h.o;
        double mean = dot(dy, result[0].x + h.o, a.depth);
        for (int64_t key = 0; key < h.n_keys; key++) {
            if (key % MASKED == 0) mask_keys(c, &h, key, mask);
            int64_t at = h.k + key * a.k_step;
            double p = exp(score(&a, &h, key) - result[1].x[h.lse]), m = mask[key % MASKED];
            double ds = p * (m * dot(dy, a.v + at, a.depth) - mean) * a.scale;
            add_scaled(a.dv + at, dy, m * p, a.depth);
            add_scaled(a.dq + h.q, a.k + at, ds, a.depth);
            add_scaled(a.dk + at, a.q + h.q, ds, a.depth);
        }
    }
    return TD_OK;
}

// Pair i of a head turns by (first + t) times the turn of a token.
static td_status run_rope(struct ref_call *c) {
    const struct td_shape *s = c->in[0].shape;
    const struct td_attrs *a = &c->node->attrs;
    int64_t depth = s->dim[3], half = depth / 2;
    for (int64_t row = 0; depth && row < c->in[0].n / depth; row++) {
        int64_t token = a->start[0] + row / s->dim[2] % s->dim[1];
        for (int64_t i = 0; i < half; i++) {
            double by = td_rope_turn(a, i, half), angle = (double)token * by;
            double lost = fma((double)token, by, -angle); // what rounding took from the angle
            double sine = sin(angle) + lost * cos(angle), cosine = cos(angle) - lost * sin(angle);
            double turn = a->reverse ? -sine : sine;
            int64_t first = row * depth + (a->interleaved ? 2 * i : i);
            int64_t second = a->interleaved ? first + 1 : first + half;
            double x = c->in[0].x[first], y = c->in[0].x[second];
            c->out[0].x[first] = x * cosine - y * turn;
            c->out[0].x[second] = y * cosine + x * turn;
        }
    }
    return TD_OK;
}

td_ref_kernel_fn *td_ref_attention(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_ATTENTION] = run_attention,
        [TD_OP_ATTENTION_GRAD] = run_attention_grad,
        [TD_OP_SELF_ATTENTION] = run_attention,
        [TD_OP_SELF_ATTENTION_GRAD] = run_attention_grad,
        [TD_OP_ROPE] = run_rope,
    };
    return table[op];
}
