// Softmax, norms and dropout of the reference.
//
// All norms are one: elements that share statistics form a group, numbered so that the elements of
// group g are (outer, g, inner). Layer and RMS norm have a group a row and a scale for each place
// in it; batch norm has a group and a scale a channel.

#include <math.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/families.h"
#include "traind/random.h"

// ---- softmax
static int64_t row_length(const struct td_shape *s) {
    return s->dim[s->n_dims - 1];
}

// exp(x - top), of the difference before it is rounded.
static double exp_of_difference(double x, double top) {
    double d = x - top, part = d - x, rest = (x - (d - part)) - (top + part);
    double y = exp(d);
    return rest != 0 && isfinite(d) ? y + y * rest : y;
}

static double max_of(const double *x, int64_t n) {
    double top = x[0];
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > top) top = x[i];
    }
    return top;
}

static td_status run_softmax(struct ref_call *c) {
    int64_t n = row_length(c->in[0].shape);
    for (int64_t r = 0; n && r < c->in[0].n; r += n) {
        const double *x = c->in[0].x + r, top = max_of(x, n);
        struct ref_sum sum = {0};
        for (int64_t i = 0; i < n; i++) {
            td_ref_add(&sum, exp_of_difference(x[i], top));
        }
        double all = td_ref_total(&sum), norm = log(all);
        for (int64_t i = 0; i < n; i++) {
            c->out[0].x[r + i] = c->node->op == TD_OP_SOFTMAX ? exp_of_difference(x[i], top) / all
                                                              : (x[i] - top) - norm;
        }
    }
    return TD_OK;
}

// softmax: y (dy - sum(y dy));  log_softmax: dy - exp(y) sum(dy)
static td_status run_softmax_grad(struct ref_call *c) {
    int64_t n = row_length(c->in[0].shape);
    bool log = c->node->op == TD_OP_LOG_SOFTMAX_GRAD;
    for (int64_t r = 0; n && r < c->in[0].n; r += n) {
        const double *y = c->in[0].x + r, *dy = c->in[1].x + r;
        struct ref_sum all = {0};
        for (int64_t i = 0; i < n; i++) {
            td_ref_add(&all, log ? dy[i] : y[i] * dy[i]);
        }
        double sum = td_ref_total(&all);
        for (int64_t i = 0; i < n; i++) {
            c->out[0].x[r + i] = log ? dy[i] - exp(y[i]) * sum : y[i] * (dy[i] - sum);
        }
    }
    return TD_OK;
}

// ---- norms
struct groups {
    int64_t outer, n, inner; // the tensor's shape, folded
    bool by_channel;         // a scale a group; else one a place
};

static struct groups groups_of(const struct ref_call *c) {
    const struct td_shape *x = c->in[0].shape;
    bool rows = c->node->op == TD_OP_LAYER_NORM || c->node->op == TD_OP_LAYER_NORM_GRAD ||
                c->node->op == TD_OP_RMS_NORM || c->node->op == TD_OP_RMS_NORM_GRAD;
    struct groups s = {.outer = 1, .n = 1, .inner = 1, .by_channel = !rows};
    if (!rows) s.outer = x->dim[0];
    for (int32_t d = 0; d < x->n_dims; d++) {
        bool in_group = rows ? d == x->n_dims - 1 : d > 1;
        if (in_group) s.inner *= x->dim[d];
        if (rows ? !in_group : d == 1) s.n *= x->dim[d];
    }
    return s;
}

static int64_t element(const struct groups *s, int64_t g, int64_t i) {
    return (i / s->inner * s->n + g) * s->inner + i % s->inner;
}

// A mean is rounded; where it is large, what that takes is not small beside the deviations.
struct moments {
    double mean, rest; // their sum is the mean
    double var;        // of RMS norm: the mean square
};

static double deviation(const struct moments *m, double x) {
    return (x - m->mean) - m->rest;
}

static double mean_deviation(const struct ref_call *c, const struct groups *s, int64_t g,
                             const struct moments *m) {
    int64_t n = s->outer * s->inner;
    struct ref_sum sum = {0};
    for (int64_t i = 0; i < n; i++) {
        td_ref_add(&sum, deviation(m, c->in[0].x[element(s, g, i)]));
    }
    return td_ref_total(&sum) / (double)n;
}

static struct moments moments_of(const struct ref_call *c, const struct groups *s, int64_t g) {
    const double *x = c->in[0].x;
    int64_t n = s->outer * s->inner;
    bool centred = c->node->op != TD_OP_RMS_NORM && c->node->op != TD_OP_RMS_NORM_GRAD;
    struct moments m = {0};
    struct ref_sum squares = {0};
    if (centred) m.mean = mean_deviation(c, s, g, &m);
    if (centred) m.rest = mean_deviation(c, s, g, &m);
    for (int64_t i = 0; i < n; i++) {
        double d = deviation(&m, x[element(s, g, i)]);
        td_ref_add(&squares, d * d);
    }
    m.var = td_ref_total(&squares) / (double)n;
    return m;
}

// Towards the batch's statistics; the variance without bias, as torch keeps it.
static void update_running_statistics(struct ref_call *c, int64_t g, int64_t n, struct moments m) {
    double by = c->node->attrs.momentum;
    if (n > 1) m.var *= (double)n / (double)(n - 1);
    c->in[3].x[g] += by * (m.mean - c->in[3].x[g]);
    c->in[4].x[g] += by * (m.var - c->in[4].x[g]);
}

static td_status run_norm(struct ref_call *c) {
    struct groups s = groups_of(c);
    int64_t n = s.outer * s.inner;
    bool given = c->node->op == TD_OP_BATCH_NORM_EVAL, learns = c->node->op == TD_OP_BATCH_NORM;
    for (int64_t g = 0; g < s.n && n; g++) {
        struct moments m =
            given ? (struct moments){c->in[3].x[g], 0, c->in[4].x[g]} : moments_of(c, &s, g);
        double rstd = 1 / sqrt(m.var + c->node->attrs.eps);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element(&s, g, i), k = s.by_channel ? g : i;
            double beta = c->node->n_inputs > 2 ? c->in[2].x[k] : 0;
            c->out[0].x[at] = deviation(&m, c->in[0].x[at]) * rstd * c->in[1].x[k] + beta;
        }
        if (learns) update_running_statistics(c, g, n, m);
    }
    if (learns) c->written = 1 << 3 | 1 << 4;
    return TD_OK;
}

// The sum is rounded before it is normalized, as if it were a node of its own.
static td_status run_add_norm(struct ref_call *c) {
    const struct ref_operand *x = &c->in[0], *r = &c->in[1], *sum = &c->out[1];
    for (int64_t i = 0; i < sum->n; i++) {
        sum->x[i] = td_ref_round(sum->dtype, x->x[i] + r->x[i]);
    }
    struct td_node_info plain = *c->node;
    struct ref_operand in[3] = {*sum, c->in[2]};
    plain.op = c->node->op == TD_OP_ADD_LAYER_NORM ? TD_OP_LAYER_NORM : TD_OP_RMS_NORM;
    plain.n_inputs--;
    if (plain.n_inputs > 2) in[2] = c->in[3];
    struct ref_call norm = {.node = &plain, .in = in, .out = {c->out[0]}};
    return run_norm(&norm);
}

// With h = (x - mean) rstd and d = dy gamma: dx = rstd (d - mean(d) - h mean(d h)), without mean(d)
// where no mean was taken; dgamma sums dy h, dbeta dy.
static td_status run_norm_grad(struct ref_call *c) {
    struct groups s = groups_of(c);
    int64_t n = s.outer * s.inner;
    bool centred = c->node->op != TD_OP_RMS_NORM_GRAD;
    const double *x = c->in[0].x, *gamma = c->in[1].x, *dy = c->in[2].x;
    bool shifts = c->node->op == TD_OP_LAYER_NORM_GRAD;
    td_ref_sums_begin(&c->out[1]);
    if (shifts) td_ref_sums_begin(&c->out[2]);
    for (int64_t g = 0; g < s.n && n; g++) {
        struct moments m = moments_of(c, &s, g);
        struct ref_sum d = {0}, dh = {0};
        double rstd = 1 / sqrt(m.var + c->node->attrs.eps);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element(&s, g, i), k = s.by_channel ? g : i;
            double h = deviation(&m, x[at]) * rstd;
            if (centred) td_ref_add(&d, dy[at] * gamma[k]);
            td_ref_add(&dh, dy[at] * gamma[k] * h);
            td_ref_add_at(&c->out[1], k, dy[at] * h);
            if (shifts) td_ref_add_at(&c->out[2], k, dy[at]);
        }
        double mean_d = td_ref_total(&d) / (double)n, mean_dh = td_ref_total(&dh) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = element(&s, g, i), k = s.by_channel ? g : i;
            double h = deviation(&m, x[at]) * rstd;
            c->out[0].x[at] = rstd * (dy[at] * gamma[k] - mean_d - h * mean_dh);
        }
    }
    td_ref_sums_settle(&c->out[1]);
    if (shifts) td_ref_sums_settle(&c->out[2]);
    for (int64_t i = 0; i < c->out[0].n && c->node->n_inputs > 3; i++) {
        c->out[0].x[i] = td_ref_round(c->out[0].dtype, c->out[0].x[i]) + c->in[3].x[i];
    }
    return TD_OK;
}

// ---- dropout ------------------------------------------------------------------------------------
// A row's mask is in the last bytes of its results: byte i is read before result i, which is the
// first that may overwrite it, is written.
static td_status run_dropout(struct ref_call *c) {
    const struct td_attrs *a = &c->node->attrs;
    int64_t n_rows = c->in[0].shape->dim[0], n = n_rows ? c->in[0].n / n_rows : 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const double *x = c->in[0].x + r * n;
        double *y = c->out[0].x + r * n;
        uint8_t *keep = (uint8_t *)(y + n) - n;
        td_random_keep(c->random, a->stream, a->drop, r, n, keep);
        for (int64_t i = 0; i < n; i++) {
            y[i] = keep[i] ? x[i] / (1 - a->drop) : 0;
        }
    }
    return TD_OK;
}

td_ref_kernel_fn *td_ref_nn(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_SOFTMAX] = run_softmax,
        [TD_OP_SOFTMAX_GRAD] = run_softmax_grad,
        [TD_OP_LOG_SOFTMAX] = run_softmax,
        [TD_OP_LOG_SOFTMAX_GRAD] = run_softmax_grad,
        [TD_OP_LAYER_NORM] = run_norm,
        [TD_OP_LAYER_NORM_GRAD] = run_norm_grad,
        [TD_OP_RMS_NORM] = run_norm,
        [TD_OP_RMS_NORM_GRAD] = run_norm_grad,
        [TD_OP_ADD_LAYER_NORM] = run_add_norm,
        [TD_OP_ADD_RMS_NORM] = run_add_norm,
        [TD_OP_BATCH_NORM] = run_norm,
        [TD_OP_BATCH_NORM_EVAL] = run_norm,
        [TD_OP_BATCH_NORM_GRAD] = run_norm_grad,
        [TD_OP_DROPOUT] = run_dropout,
    };
    return table[op];
}
