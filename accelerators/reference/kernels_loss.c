// Losses of the reference: cross entropy of classes (weights, smoothing, ignored labels) with its
// gradient, counting of hits and of labels, mean-squared error and binary cross entropy with
// theirs.
//
// Smoothing and weights make a row's target a distribution t over the classes:
// t[c] = (1 - s) w[label] [c is the label] + s w[c] / C. Its loss is -sum t[c] log p[c], and the
// mean divides by the sum of w[label] over the rows that count, which is torch's definition. Where
// all these labels weigh 0, smoothing still leaves a sum: a mean over batches needs it, and nothing
// to divide it by. A linear layer with its loss takes memory for a few rows of logits, the only
// kernel here that takes any.

#include <math.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/families.h"

// Where an op of classes has its labels and the weights of classes, if any.
struct classes {
    const struct ref_call *c;
    uint32_t labels, weights;
    int64_t n;
};

static struct td_head_operands head_of(const struct ref_call *c) {
    return td_head_operands_of(c->node->op, &c->node->attrs, c->node->n_inputs);
}

static struct classes classes_of(const struct ref_call *c) {
    bool head = c->node->op == TD_OP_LINEAR_CE || c->node->op == TD_OP_LINEAR_CE_GRAD;
    if (!head) return (struct classes){c, 1, 2, c->in[0].shape->dim[1]};
    struct td_head_operands h = head_of(c);
    return (struct classes){c, 2, h.weights ? h.weights : h.n, c->in[1].shape->dim[0]};
}

// The label of a row; *out_counts is false where it is to be ignored.
static td_status label_of(const struct classes *k, int64_t row, int64_t *out_label,
                          bool *out_counts) {
    const struct td_attrs *a = &k->c->node->attrs;
    *out_counts = !(a->ignores && k->c->in[k->labels].x[row] == (double)a->ignore_index);
    if (!*out_counts) return TD_OK;
    return td_ref_index(k->c, k->labels, row, k->n, "label", "classes", out_label);
}

static double weight_of(const struct classes *k, int64_t class) {
    return k->c->node->n_inputs > k->weights ? k->c->in[k->weights].x[class] : 1;
}

static td_status sum_of_weights(const struct classes *k, double *out_sum) {
    int64_t label = 0;
    bool counts;
    struct ref_sum sum = {0};
    for (int64_t r = 0; r < k->c->in[k->labels].n; r++) {
        TD_TRY(label_of(k, r, &label, &counts));
        if (counts) td_ref_add(&sum, weight_of(k, label));
    }
    *out_sum = td_ref_total(&sum);
    return TD_OK;
}

// A row's loss; dx: of the mean.
static double softmax_ce_row(const struct classes *k, const double *x, int64_t label, double share,
                             double *dx) {
    int64_t n = k->n;
    double smoothing = k->c->node->attrs.label_smoothing, top = x[0];
    struct ref_sum exps = {0}, loss = {0}, total = {0};
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > top) top = x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        td_ref_add(&exps, exp(x[i] - top));
    }
    const double sum = td_ref_total(&exps), norm = log(sum);
    for (int64_t i = 0; i < n; i++) {
        double t = smoothing * weight_of(k, i) / (double)n;
        if (i == label) t += (1 - smoothing) * weight_of(k, label);
        if (t != 0) td_ref_add(&loss, t * (norm + (top - x[i])));
        td_ref_add(&total, t);
        dx[i] = -t * share;
    }
    for (int64_t i = 0; i < n; i++) {
        dx[i] += td_ref_total(&total) * exp(x[i] - top) / sum * share;
    }
    return td_ref_total(&loss);
}

static td_status run_softmax_ce(struct ref_call *c) {
    const struct classes k = classes_of(c);
    int64_t label = 0;
    double weights;
    struct ref_sum loss = {0};
    bool counts;
    TD_TRY(sum_of_weights(&k, &weights));
    double share = weights > 0 ? 1 / weights : 0;
    memset(c->out[1].x, 0, (size_t)c->out[1].n * sizeof(double));
    for (int64_t r = 0; r < c->in[1].n; r++) {
        TD_TRY(label_of(&k, r, &label, &counts));
        if (!counts) continue;
        td_ref_add(&loss,
                   softmax_ce_row(&k, c->in[0].x + r * k.n, label, share, c->out[1].x + r * k.n));
    }
    c->out[0].x[0] = td_ref_total(&loss) * (weights > 0 ? share : 1);
    return TD_OK;
}

// ---- the last linear layer with its loss --------------------------------------------------------
// What gradients d (rows, classes) of the logits from `first` on give to dx and dw: up to
// TD_REF_TERMS rows.
static void linear_grad_rows(const struct ref_call *c, int64_t first, const double *d, int64_t rows,
                             int64_t n) {
    const struct td_head_operands h = head_of(c);
    const int64_t cols = c->in[1].shape->dim[1];
    const double *x = c->in[0].x + first * cols;
    for (int64_t r = 0; r < rows; r++) {
        const struct ref_dot dot = {d + r * n, c->in[1].x, 1, cols, 1, n};
        td_ref_dot(&dot, cols, c->out[2].x + (first + r) * cols);
    }
    for (int64_t i = 0; i < n * cols; i++) {
        double v[TD_REF_TERMS] = {0};
        for (int64_t r = 0; r < rows; r++) {
            v[r] = d[r * n + i / cols];
        }
        td_ref_add_at(&c->in[h.dw], i, td_ref_terms(v, x + i % cols, cols, rows));
    }
}

// A row of logits, rounded as the product would have rounded them.
static void logits_row(const struct ref_call *c, int64_t row, double *z, int64_t n) {
    const uint32_t bias = head_of(c).bias;
    const int64_t cols = c->in[1].shape->dim[1];
    const enum td_dtype t = c->in[0].dtype;
    const struct ref_dot dot = {c->in[0].x + row * cols, c->in[1].x, 1, 1, cols, cols};
    td_ref_dot(&dot, n, z);
    for (int64_t i = 0; i < n; i++) {
        z[i] = td_ref_round(t, z[i]);
        if (bias) z[i] = td_ref_round(t, z[i] + c->in[bias].x[i]);
    }
}

// Is the label the row's largest, or the first of the largest?
static bool is_argmax(const double *x, int64_t n, int64_t label) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > x[best]) best = i;
    }
    return best == label;
}

// One row of logits, and its gradient d.
static td_status linear_ce_row(struct ref_call *c, const struct classes *k, int64_t row,
                               double share, double *z, double *d, struct ref_sum *loss) {
    const struct td_head_operands h = head_of(c);
    const enum td_dtype t = c->in[0].dtype, first = c->node->attrs.wide ? TD_F32 : t;
    int64_t label = 0;
    bool counts;
    memset(d, 0, (size_t)k->n * sizeof *d);
    TD_TRY(label_of(k, row, &label, &counts));
    if (!counts) return TD_OK;
    logits_row(c, row, z, k->n);
    td_ref_add(loss, softmax_ce_row(k, z, label, share, d));
    c->out[1].x[0] += is_argmax(z, k->n, label);
    for (int64_t i = 0; i < k->n && h.dw; i++) {
        d[i] = td_ref_round(first, d[i]);
        if (h.seed) d[i] = td_ref_round(first, d[i] * c->in[h.seed].x[0]);
        if (h.dbias) td_ref_add_at(&c->in[h.dbias], i, d[i]);
        d[i] = td_ref_round(t, d[i]);
    }
    return TD_OK;
}

// As many rows at a time as a product sums.
static td_status linear_ce_rows(struct ref_call *c, const struct classes *k, double share,
                                double *z, double *d, struct ref_sum *loss) {
    const int64_t n_rows = c->in[2].n;
    for (int64_t r = 0; r < n_rows; r += TD_REF_TERMS) {
        const int64_t n = TD_MIN((int64_t)TD_REF_TERMS, n_rows - r);
        for (int64_t i = 0; i < n; i++) {
            TD_TRY(linear_ce_row(c, k, r + i, share, z, d + i * k->n, loss));
        }
        if (head_of(c).dw) linear_grad_rows(c, r, d, n, k->n);
    }
    return TD_OK;
}

// A gradient that the op writes begins at zero, unless it is added to.
static void init_gradient(struct ref_call *c, uint32_t i) {
    struct ref_operand *y = &c->in[i];
    if (!c->node->attrs.accumulate) td_ref_sums_begin(y);
    memset(y->rest, 0, (size_t)y->n * sizeof(double));
    c->written |= 1u << i;
}

static td_status run_linear_ce(struct ref_call *c) {
    const struct classes k = classes_of(c);
    const struct td_head_operands h = head_of(c);
    double weights;
    struct ref_sum loss = {0};
    TD_TRY(sum_of_weights(&k, &weights));
    double share = weights > 0 ? 1 / weights : 0;
    TD_AUTO_FREE double *row = td_calloc((size_t)k.n * (1 + TD_REF_TERMS), sizeof *row);
    if (!row) return td_fail_oom();
    if (h.dw) init_gradient(c, h.dw);
    if (h.dbias) init_gradient(c, h.dbias);
    c->out[1].x[0] = 0;
    TD_TRY(linear_ce_rows(c, &k, share, row, row + k.n, &loss));
    if (h.dw) td_ref_sums_settle(&c->in[h.dw]);
    if (h.dbias) td_ref_sums_settle(&c->in[h.dbias]);
    c->out[0].x[0] = td_ref_total(&loss) * (weights > 0 ? share : 1);
    return TD_OK;
}

static td_status count_same_sign(struct ref_call *c) {
    int64_t count = 0;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        count += (c->in[0].x[i] > 0) == (c->in[1].x[i] > 0.5);
    }
    c->out[0].x[0] = (double)count;
    return TD_OK;
}

static td_status run_count_labels(struct ref_call *c) {
    bool weighs = c->node->n_inputs > 1;
    const struct classes k = {c, 0, 1, weighs ? c->in[1].shape->dim[0] : INT64_MAX};
    return sum_of_weights(&k, c->out[0].x);
}

static td_status run_count_correct(struct ref_call *c) {
    if (c->in[1].dtype != TD_I32) return count_same_sign(c);
    const struct classes k = classes_of(c);
    int64_t n_rows = c->in[0].shape->dim[0], label = 0, count = 0;
    bool counts;
    for (int64_t r = 0; r < n_rows; r++) {
        TD_TRY(label_of(&k, r, &label, &counts));
        count += counts && is_argmax(c->in[0].x + r * k.n, k.n, label);
    }
    c->out[0].x[0] = (double)count;
    return TD_OK;
}

static double squared_error(double x, double t, double *dx) {
    *dx = 2 * (x - t);
    return (x - t) * (x - t);
}

// -t log p - (1 - t) log(1 - p) with p = sigmoid(x), without overflow.
static double binary_cross_entropy(double x, double t, double *dx) {
    double small = exp(-fabs(x));
    *dx = (x > 0 ? 1 : small) / (1 + small) - t;
    return (x > 0 ? x : 0) - x * t + log1p(small);
}

static td_status run_pair_loss(struct ref_call *c) {
    double (*loss)(double, double, double *) =
        c->node->op == TD_OP_MSE ? squared_error : binary_cross_entropy;
    double *dx = c->out[1].x, n = (double)c->in[0].n;
    struct ref_sum sum = {0};
    for (int64_t i = 0; i < c->in[0].n; i++) {
        td_ref_add(&sum, loss(c->in[0].x[i], c->in[1].x[i], &dx[i]));
        dx[i] /= n;
    }
    c->out[0].x[0] = c->in[0].n ? td_ref_total(&sum) / n : 0;
    return TD_OK;
}

td_ref_kernel_fn *td_ref_loss(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_SOFTMAX_CE] = run_softmax_ce,
        [TD_OP_LINEAR_CE] = run_linear_ce,
        [TD_OP_LINEAR_CE_GRAD] = run_linear_ce,
        [TD_OP_COUNT_CORRECT] = run_count_correct,
        [TD_OP_COUNT_LABELS] = run_count_labels,
        [TD_OP_MSE] = run_pair_loss,
        [TD_OP_BCE] = run_pair_loss,
    };
    return table[op];
}
