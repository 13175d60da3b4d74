// Losses of the reference: cross entropy of classes (weights, smoothing, ignored labels) with its
// gradient, counting of hits, mean-squared error, binary cross entropy.
//
// Smoothing and weights make a row's target a distribution t over the classes:
// t[c] = (1 - s) w[label] [c is the label] + s w[c] / C. Its loss is -sum t[c] log p[c], and the
// mean divides by the sum of w[label] over the rows that count, which is torch's definition.

#include <math.h>
#include <string.h>

#include "accelerators/reference/kernels.h"

// The label of a row; *out_counts is false where it is to be ignored.
static td_status label_of(const struct ref_call *c, int64_t row, int64_t *out_label,
                          bool *out_counts) {
    const struct td_attrs *a = &c->node->attrs;
    *out_counts = !(a->ignores && c->in[1].x[row] == (double)a->ignore_index);
    if (!*out_counts) return TD_OK;
    return td_ref_index(c, 1, row, c->in[0].shape->dim[1], "label", "classes", out_label);
}

static double weight_of(const struct ref_call *c, int64_t class) {
    return c->node->n_inputs > 2 ? c->in[2].x[class] : 1;
}

static td_status sum_of_weights(const struct ref_call *c, double *out_sum) {
    int64_t label = 0;
    bool counts;
    *out_sum = 0;
    for (int64_t r = 0; r < c->in[1].n; r++) {
        TD_TRY(label_of(c, r, &label, &counts));
        if (counts) *out_sum += weight_of(c, label);
    }
    return TD_OK;
}

// A row's loss; dx: of the mean.
static double run_row(const struct ref_call *c, const double *x, int64_t label, double share,
                      double *dx) {
    int64_t n = c->in[0].shape->dim[1];
    double smoothing = c->node->attrs.label_smoothing, top = x[0], sum = 0, loss = 0, total = 0;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > top) top = x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i] - top);
    }
    for (int64_t i = 0; i < n; i++) {
        double t = smoothing * weight_of(c, i) / (double)n;
        if (i == label) t += (1 - smoothing) * weight_of(c, label);
        if (t != 0) loss += t * (log(sum) + top - x[i]);
        total += t;
        dx[i] = -t * share;
    }
    for (int64_t i = 0; i < n; i++) {
        dx[i] += total * exp(x[i] - top) / sum * share;
    }
    return loss;
}

static td_status run_softmax_ce(struct ref_call *c) {
    int64_t n_classes = c->in[0].shape->dim[1], label = 0;
    double loss = 0, weights;
    bool counts;
    TD_TRY(sum_of_weights(c, &weights));
    double share = weights > 0 ? 1 / weights : 0;
    memset(c->out[1].x, 0, (size_t)c->out[1].n * sizeof(double));
    for (int64_t r = 0; r < c->in[1].n; r++) {
        TD_TRY(label_of(c, r, &label, &counts));
        if (!counts) continue;
        loss += run_row(c, c->in[0].x + r * n_classes, label, share, c->out[1].x + r * n_classes);
    }
    c->out[0].x[0] = loss * share;
    return TD_OK;
}

static td_status run_count_correct(struct ref_call *c) {
    int64_t n_rows = c->in[0].shape->dim[0], n_classes = c->in[0].shape->dim[1], label = 0;
    int64_t count = 0;
    bool counts;
    for (int64_t r = 0; r < n_rows; r++) {
        const double *x = c->in[0].x + r * n_classes;
        int64_t best = 0;
        TD_TRY(label_of(c, r, &label, &counts));
        for (int64_t i = 1; i < n_classes; i++) {
            if (x[i] > x[best]) best = i;
        }
        count += counts && best == label;
    }
    c->out[0].x[0] = (double)count;
    return TD_OK;
}

static double squared_error(double x, double t) {
    return (x - t) * (x - t);
}

// -t log p - (1 - t) log(1 - p) with p = sigmoid(x), without overflow.
static double binary_cross_entropy(double x, double t) {
    return (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x)));
}

static td_status run_pair_loss(struct ref_call *c) {
    double (*loss)(double, double) =
        c->node->op == TD_OP_MSE ? squared_error : binary_cross_entropy;
    double sum = 0;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        sum += loss(c->in[0].x[i], c->in[1].x[i]);
    }
    c->out[0].x[0] = c->in[0].n ? sum / (double)c->in[0].n : 0;
    return TD_OK;
}

td_ref_kernel_fn *td_ref_loss(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_SOFTMAX_CE] = run_softmax_ce,
        [TD_OP_COUNT_CORRECT] = run_count_correct,
        [TD_OP_MSE] = run_pair_loss,
        [TD_OP_BCE] = run_pair_loss,
    };
    return table[op];
}
