// Attention and rotary positions of the reference.
//
// Forward: a query's scores, their log-sum-exp, the weighted sum of values. Backward, from the
// saved log-sum-exp L: p = exp(s - L), dv += p do, ds = p (do.v - do.o), dq += ds k, dk += ds q,
// the last two times the scale. No probability matrix is ever stored.

#include <math.h>
#include <string.h>

#include "accelerators/reference/kernels.h"

struct head {       // one query: token t of head h in sample b
    int64_t q, lse; // elements
    int64_t k;      // element of its group's first key (and value)
    int64_t step;   // from a key to the next
    int64_t n_keys, depth;
    double scale;
};

static struct head head_of(const struct ref_call *c, int64_t i) {
    const struct td_shape *q = c->in[0].shape, *k = c->in[1].shape;
    int64_t h = i % q->dim[2], t = i / q->dim[2] % q->dim[1], b = i / q->dim[2] / q->dim[1];
    int64_t group = h / (q->dim[2] / k->dim[2]), depth = q->dim[3];
    bool causal = c->node->attrs.causal;
    double scale = c->node->attrs.scale;
    return (struct head){.q = i * depth,
                         .lse = (b * q->dim[2] + h) * q->dim[1] + t,
                         .k = (b * k->dim[1] * k->dim[2] + group) * depth,
                         .step = k->dim[2] * depth,
                         .n_keys = causal && t + 1 < k->dim[1] ? t + 1 : k->dim[1],
                         .depth = depth,
                         .scale = scale != 0 ? scale : 1 / sqrt((double)depth)};
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

static double score(const struct ref_call *c, const struct head *h, int64_t key) {
    return h->scale * dot(c->in[0].x + h->q, c->in[1].x + h->k + key * h->step, h->depth);
}

static double log_sum_of_scores(const struct ref_call *c, const struct head *h) {
    double top = -(double)INFINITY, sum = 0;
    for (int64_t key = 0; key < h->n_keys; key++) {
        top = fmax(top, score(c, h, key));
    }
    for (int64_t key = 0; key < h->n_keys; key++) {
        sum += exp(score(c, h, key) - top);
    }
    return top + log(sum);
}

static int64_t n_queries(const struct ref_call *c) {
    return c->in[0].n / c->in[0].shape->dim[3];
}

static td_status run_attention(struct ref_call *c) {
    memset(c->out[0].x, 0, (size_t)c->out[0].n * sizeof(double));
    for (int64_t i = 0; i < n_queries(c); i++) {
        struct head h = head_of(c, i);
        double norm = log_sum_of_scores(c, &h);
        c->out[1].x[h.lse] = norm;
        for (int64_t key = 0; key < h.n_keys; key++) {
            add_scaled(c->out[0].x + h.q, c->in[2].x + h.k + key * h.step,
                       exp(score(c, &h, key) - norm), h.depth);
        }
    }
    return TD_OK;
}

static td_status run_attention_grad(struct ref_call *c) {
    double *dq = c->out[0].x, *dk = c->out[1].x, *dv = c->out[2].x;
    for (uint32_t i = 0; i < 3; i++) {
        memset(c->out[i].x, 0, (size_t)c->out[i].n * sizeof(double));
    }
    for (int64_t i = 0; i < n_queries(c); i++) {
        struct head h = head_of(c, i);
        const double *dy = c->in[5].x + h.q;
        double mean = dot(dy, c->in[3].x + h.q, h.depth);
        for (int64_t key = 0; key < h.n_keys; key++) {
            int64_t at = h.k + key * h.step;
            double p = exp(score(c, &h, key) - c->in[4].x[h.lse]);
            double ds = p * (dot(dy, c->in[2].x + at, h.depth) - mean) * h.scale;
            add_scaled(dv + at, dy, p, h.depth);
            add_scaled(dq + h.q, c->in[1].x + at, ds, h.depth);
            add_scaled(dk + at, c->in[0].x + h.q, ds, h.depth);
        }
    }
    return TD_OK;
}

// Pair i of a head turns by (first + t) base^(-2i/D).
static td_status run_rope(struct ref_call *c) {
    const struct td_shape *s = c->in[0].shape;
    const struct td_attrs *a = &c->node->attrs;
    int64_t depth = s->dim[3], half = depth / 2;
    double base = a->base != 0 ? a->base : 10000;
    for (int64_t row = 0; depth && row < c->in[0].n / depth; row++) {
        int64_t token = a->start[0] + row / s->dim[2] % s->dim[1];
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)token * pow(base, -2 * (double)i / (double)depth);
            double turn = a->reverse ? -sin(angle) : sin(angle);
            int64_t first = row * depth + (a->interleaved ? 2 * i : i);
            int64_t second = a->interleaved ? first + 1 : first + half;
            double x = c->in[0].x[first], y = c->in[0].x[second];
            c->out[0].x[first] = x * cos(angle) - y * turn;
            c->out[0].x[second] = y * cos(angle) + x * turn;
        }
    }
    return TD_OK;
}

td_ref_kernel_fn *td_ref_attention(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_ATTENTION] = run_attention,
        [TD_OP_ATTENTION_GRAD] = run_attention_grad,
        [TD_OP_ROPE] = run_rope,
    };
    return table[op];
}
