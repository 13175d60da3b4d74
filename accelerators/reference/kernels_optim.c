// Optimizers of the reference: torch's formulas, written in torch's order. A kernel marks the
// operands that it changed; the caller rounds and stores them. Step and learning rate come from the
// step scalars, everything else from the node.

#include <math.h>

#include "accelerators/reference/kernels.h"

// The clip coefficient, when the operand behind the n tensors is there.
static double clip_of(const struct ref_call *c, uint32_t n_tensors) {
    return c->node->n_inputs > n_tensors ? c->in[n_tensors].x[0] : 1;
}

static td_status run_sgd(struct ref_call *c) {
    const struct td_optim_attrs *o = &c->node->attrs.optim;
    double mu = (double)o->momentum, wd = (double)o->weight_decay;
    double lr = td_optim_lr(o, c->scalars);
    bool has_buf = mu != 0, first = c->scalars[TD_SCALAR_STEP] <= 1;
    double clip = clip_of(c, has_buf ? 3 : 2);
    double *p = c->in[0].x, *buf = has_buf ? c->in[2].x : NULL;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double g = c->in[1].x[i] * clip + wd * p[i];
        if (has_buf) {
            buf[i] = first ? g : mu * buf[i] + (1 - (double)o->dampening) * g;
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
    double lr = td_optim_lr(o, c->scalars), t = (double)c->scalars[TD_SCALAR_STEP];
    double b1 = (double)o->beta1, b2 = (double)o->beta2, eps = (double)o->eps;
    double wd = (double)o->weight_decay, clip = clip_of(c, 4);
    double step_size = lr / (1 - pow(b1, t)), root_bc2 = sqrt(1 - pow(b2, t));
    double *p = c->in[0].x, *m = c->in[2].x, *v = c->in[3].x;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double g = c->in[1].x[i] * clip;
        if (decoupled)
            p[i] *= 1 - lr * wd;
        else
            g += wd * p[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= step_size * m[i] / (sqrt(v[i]) / root_bc2 + eps);
    }
    c->written = 1 | 4 | 8;
    return TD_OK;
}

td_ref_kernel_fn *td_ref_optim(enum td_op op) {
    static td_ref_kernel_fn *const kernels[TD_OP_COUNT] = {
        [TD_OP_SGD] = run_sgd,
        [TD_OP_ADAM] = run_adam,
        [TD_OP_ADAMW] = run_adam,
    };
    return kernels[op];
}
