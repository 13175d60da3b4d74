// Optimizers of the reference: torch's formulas, written in torch's order. A kernel marks the
// operands that it changed; the caller rounds and stores them. Step and learning rate come from the
// step scalars, everything else from the node.

#include <math.h>

#include "accelerators/reference/families.h"

// The clip coefficient, when the operand after the n tensors is there.
static double clip_of(const struct ref_call *c, uint32_t n_tensors) {
    return c->node->n_inputs > n_tensors ? c->in[n_tensors].x[0] : 1;
}

static td_status run_sgd(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double mu = o->momentum, wd = o->weight_decay;
    double lr = td_optim_lr(o, c->scalars);
    bool has_buf = mu != 0, first = c->scalars[TD_SCALAR_STEP] <= 1;
    double clip = clip_of(c, has_buf ? 3 : 2);
    double *p = c->in[0].x, *buf = has_buf ? c->in[2].x : NULL;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double g = c->in[1].x[i] * clip + wd * p[i];
        if (has_buf) {
            buf[i] = first ? g : mu * buf[i] + (1 - o->dampening) * g;
            g = o->nesterov ? g + mu * buf[i] : buf[i];
        }
        p[i] -= lr * g;
    }
    c->written = has_buf ? 1 | 4 : 1;
    return TD_OK;
}

static td_status run_adam(struct ref_call *c) { // and adamw
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    bool decoupled = c->node->op == TD_OP_ADAMW;
    double lr = td_optim_lr(o, c->scalars), t = c->scalars[TD_SCALAR_STEP];
    double b1 = o->beta1, b2 = o->beta2, eps = o->eps;
    double wd = o->weight_decay, clip = clip_of(c, 4);
    double step_size = lr / (1 - pow(b1, t)), root_bc2 = sqrt(1 - pow(b2, t));
    double *p = c->in[0].x, *m = c->in[2].x, *v = c->in[3].x;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double g = c->in[1].x[i] * clip;
        if (decoupled) {
            p[i] *= 1 - lr * wd;
        } else {
            g += wd * p[i];
        }
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= step_size * m[i] / (sqrt(v[i]) / root_bc2 + eps);
    }
    c->written = 1 | 4 | 8;
    return TD_OK;
}

static td_status run_lion(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double lr = td_optim_lr(o, c->scalars), clip = clip_of(c, 3);
    double b1 = o->beta1, b2 = o->beta2, wd = o->weight_decay;
    double *p = c->in[0].x, *m = c->in[2].x;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double g = c->in[1].x[i] * clip, u = b1 * m[i] + (1 - b1) * g;
        p[i] = p[i] * (1 - lr * wd) - lr * ((u > 0) - (u < 0));
        m[i] = b2 * m[i] + (1 - b2) * g;
    }
    c->written = 1 | 4;
    return TD_OK;
}

// ---- adafactor ----------------------------------------------------------------------------------
// v (outer, inner) moves towards the mean of squares of grad (outer, n, inner) over n.
static void ema_of_means(const double *grad, double take, int64_t outer, int64_t n, int64_t inner,
                         double *v) {
    for (int64_t i = 0; i < outer * inner; i++) {
        struct ref_sum sum = {0};
        for (int64_t k = 0; k < n; k++) {
            double g = grad[(i / inner * n + k) * inner + i % inner];
            td_ref_add(&sum, g * g);
        }
        v[i] += take * (td_ref_total(&sum) / (double)n - v[i]);
    }
}

static double mean_of(const double *x, int64_t n) {
    struct ref_sum sum = {0};
    for (int64_t i = 0; i < n; i++) {
        td_ref_add(&sum, x[i]);
    }
    return td_ref_total(&sum) / (double)n;
}

// u (rows, cols) over the root of the second moment: the product of row and column over their mean.
static void divide_by_factored_root(const double *row, const double *col, int64_t rows,
                                    int64_t cols, double eps, double *u) {
    double mean = fmax(mean_of(row, rows), eps);
    for (int64_t i = 0; i < rows * cols; i++) {
        u[i] /= sqrt(fmax(row[i / cols] * col[i % cols] / mean, eps * eps));
    }
}

static double root_mean_square(const double *x, int64_t n) {
    struct ref_sum sum = {0};
    for (int64_t i = 0; i < n; i++) {
        td_ref_add(&sum, x[i] * x[i]);
    }
    return n ? sqrt(td_ref_total(&sum) / (double)n) : 0;
}

// Moves the second moment towards the gradient's, and divides the gradient by its root.
static void divide_by_root(struct ref_call *c, double take, double *u) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    const struct td_shape *s = c->in[0].shape;
    double eps = o->eps, *v = c->in[2].x;
    int64_t n = c->in[0].n;
    if (!o->factored) {
        ema_of_means(u, take, n, 1, 1, v);
        for (int64_t i = 0; i < n; i++) {
            u[i] /= sqrt(fmax(v[i], eps * eps));
        }
        return;
    }
    int64_t rows = s->dim[s->n_dims - 2], cols = s->dim[s->n_dims - 1];
    if (!n) return;
    ema_of_means(u, take, n / cols, cols, 1, v);
    ema_of_means(u, take, n / (rows * cols), rows, cols, c->in[3].x);
    for (int64_t m = 0; m < n / (rows * cols); m++) {
        divide_by_factored_root(v + m * rows, c->in[3].x + m * cols, rows, cols, eps,
                                u + m * rows * cols);
    }
}

static td_status run_adafactor(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double lr = td_optim_lr(o, c->scalars), t = c->scalars[TD_SCALAR_STEP];
    double clip = clip_of(c, o->factored ? 4 : 3),
           step = o->fixed_step ? lr : fmin(lr, 1 / sqrt(t));
    double *p = c->in[0].x, *u = c->in[1].x; // the gradient's copy becomes the update
    int64_t n = c->in[0].n;
    if (!o->unscaled) step *= fmax(o->eps2, root_mean_square(p, n));
    for (int64_t i = 0; i < n; i++) {
        u[i] *= clip;
    }
    divide_by_root(c, pow(t, o->beta2_decay), u);
    step /= fmax(1, root_mean_square(u, n) / o->threshold);
    for (int64_t i = 0; i < n; i++) {
        p[i] = p[i] * (1 - lr * o->weight_decay) - step * u[i];
    }
    c->written = o->factored ? 1 | 4 | 8 : 1 | 4;
    return TD_OK;
}

// ---- muon ---------------------------------------------------------------------------------------
static td_status run_muon_momentum(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double mu = o->momentum, clip = clip_of(c, 2), norm;
    double *buf = c->in[1].x, *y = c->out[0].x;
    int64_t n = c->in[0].n;
    for (int64_t i = 0; i < n; i++) {
        double g = c->in[0].x[i] * clip;
        buf[i] += (1 - mu) * (g - buf[i]);
        y[i] = o->nesterov ? g + mu * (buf[i] - g) : buf[i];
    }
    norm = root_mean_square(y, n) * sqrt((double)n);
    for (int64_t i = 0; i < n; i++) {
        y[i] /= fmax(norm, o->eps);
    }
    c->written = 2;
    return TD_OK;
}

static td_status run_muon(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double lr = td_optim_lr(o, c->scalars), *p = c->in[0].x;
    double step = lr * (o->update_scale != 0 ? o->update_scale : 1);
    for (int64_t i = 0; i < c->in[0].n; i++) {
        p[i] = p[i] * (1 - lr * o->weight_decay) - step * c->in[1].x[i];
    }
    c->written = 1;
    return TD_OK;
}

// ---- the table ----------------------------------------------------------------------------------
td_ref_kernel_fn *td_ref_optim(enum td_op op) {
    static td_ref_kernel_fn *const kernels[TD_OP_COUNT] = {
        [TD_OP_SGD] = run_sgd,
        [TD_OP_ADAM] = run_adam,
        [TD_OP_ADAMW] = run_adam,
        [TD_OP_LION] = run_lion,
        [TD_OP_ADAFACTOR] = run_adafactor,
        [TD_OP_MUON_MOMENTUM] = run_muon_momentum,
        [TD_OP_MUON] = run_muon,
    };
    return kernels[op];
}
