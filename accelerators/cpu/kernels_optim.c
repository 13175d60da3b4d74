// Optimizers: one pass over parameter, gradient and moments, with clip and weight decay inside.
//
// The formulas are torch's (adamw: decoupled decay; adam and sgd: decay added to the gradient); the
// bias corrections are computed once a step in double precision. A pass moves 4 reads and 3 writes
// of the parameter's size, which is all it costs: the arithmetic hides behind memory.

#include <math.h>

#include "accelerators/cpu/cpu.h"

enum { GRAIN = 8192 };

struct adam_arg {
    float *p, *m, *v;
    const float *g;
    float clip, decay, l2, step_size, inv_correction, eps;
    float keep1, take1, keep2, take2; // beta1, 1 - beta1, ...: rounded each by itself, as in torch
};

// decay multiplies the parameter (adamw, else 1); l2 joins the gradient (adam, else 0).
TD_CLONES static void adam_pass(const struct adam_arg *a, int64_t begin, int64_t end) {
    float *restrict p = a->p;
    float *restrict m = a->m;
    float *restrict v = a->v;
    const float *restrict g = a->g;
    const float clip = a->clip, decay = a->decay, l2 = a->l2, keep1 = a->keep1, take1 = a->take1;
    const float keep2 = a->keep2, take2 = a->take2;
    const float step = a->step_size, inv = a->inv_correction, eps = a->eps;
    for (int64_t i = begin; i < end; i++) {
        float gi = g[i] * clip + l2 * p[i];
        float mi = keep1 * m[i] + take1 * gi;
        float vi = keep2 * v[i] + take2 * gi * gi;
        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * decay - step * mi / (sqrtf(vi) * inv + eps);
    }
}

static void adam_range(const void *arg, int64_t begin, int64_t end) {
    adam_pass(arg, begin, end);
}

static td_status run_adam_kind(const struct td_kernel *k, const struct td_run *r, bool decoupled) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars), t = (double)k->scalars[TD_SCALAR_STEP];
    double c1 = 1 - pow(o->beta1, t), c2 = 1 - pow(o->beta2, t);
    struct adam_arg a = {
        .p = td_operand_at(&k->in[0], r),
        .g = td_operand_at(&k->in[1], r),
        .m = td_operand_at(&k->in[2], r),
        .v = td_operand_at(&k->in[3], r),
        .clip = k->n_in > 4 ? *(const float *)td_operand_at(&k->in[4], r) : 1,
        .decay = decoupled ? (float)(1 - lr * o->weight_decay) : 1,
        .l2 = decoupled ? 0 : (float)o->weight_decay,
        .keep1 = (float)o->beta1,
        .take1 = (float)(1 - o->beta1),
        .keep2 = (float)o->beta2,
        .take2 = (float)(1 - o->beta2),
        .step_size = (float)(lr / c1),
        .inv_correction = (float)(1 / sqrt(c2)),
        .eps = (float)o->eps,
    };
    td_parallel(k->n_threads, td_shape_elems(&k->shape[0]), GRAIN, adam_range, &a);
    return TD_OK;
}

static td_status run_adam(const struct td_kernel *k, const struct td_run *r) {
    return run_adam_kind(k, r, false);
}

static td_status run_adamw(const struct td_kernel *k, const struct td_run *r) {
    return run_adam_kind(k, r, true);
}

struct lion_arg {
    float *p, *m;
    const float *g;
    float clip, decay, lr;
    float keep1, take1, keep2, take2; // beta1, 1 - beta1, ...
};

TD_CLONES static void lion_pass(const struct lion_arg *a, int64_t begin, int64_t end) {
    float *restrict p = a->p;
    float *restrict m = a->m;
    const float *restrict g = a->g;
    const float clip = a->clip, decay = a->decay, lr = a->lr, keep1 = a->keep1;
    const float take1 = a->take1, keep2 = a->keep2, take2 = a->take2;
    for (int64_t i = begin; i < end; i++) {
        float gi = g[i] * clip, u = keep1 * m[i] + take1 * gi;
        p[i] = p[i] * decay - (u > 0 ? lr : u < 0 ? -lr : 0);
        m[i] = keep2 * m[i] + take2 * gi;
    }
}

static void lion_range(const void *arg, int64_t begin, int64_t end) {
    lion_pass(arg, begin, end);
}

static td_status run_lion(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars);
    struct lion_arg a = {
        .p = td_operand_at(&k->in[0], r),
        .g = td_operand_at(&k->in[1], r),
        .m = td_operand_at(&k->in[2], r),
        .clip = k->n_in > 3 ? *(const float *)td_operand_at(&k->in[3], r) : 1,
        .decay = (float)(1 - lr * o->weight_decay),
        .keep1 = (float)o->beta1,
        .take1 = (float)(1 - o->beta1),
        .keep2 = (float)o->beta2,
        .take2 = (float)(1 - o->beta2),
        .lr = (float)lr,
    };
    td_parallel(k->n_threads, td_shape_elems(&k->shape[0]), GRAIN, lion_range, &a);
    return TD_OK;
}

struct sgd_arg {
    float *p, *buf;
    const float *g;
    float clip, l2, lr, momentum, one_minus_dampening;
    bool nesterov, first;
};

TD_CLONES static void sgd_plain(const struct sgd_arg *a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        a->p[i] -= a->lr * (a->g[i] * a->clip + a->l2 * a->p[i]);
    }
}

TD_CLONES static void sgd_momentum(const struct sgd_arg *a, int64_t begin, int64_t end) {
    const float keep = a->first ? 0 : a->momentum, take = a->first ? 1 : a->one_minus_dampening;
    for (int64_t i = begin; i < end; i++) {
        float gi = a->g[i] * a->clip + a->l2 * a->p[i];
        float b = a->first ? gi : keep * a->buf[i] + take * gi;
        a->buf[i] = b;
        a->p[i] -= a->lr * (a->nesterov ? gi + a->momentum * b : b);
    }
}

static void sgd_plain_range(const void *arg, int64_t begin, int64_t end) {
    sgd_plain(arg, begin, end);
}

static void sgd_momentum_range(const void *arg, int64_t begin, int64_t end) {
    sgd_momentum(arg, begin, end);
}

// Operands: param, grad, momentum buffer if there is momentum, clip if one is left.
static td_status run_sgd(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    bool momentum = o->momentum != 0;
    uint32_t clip_at = momentum ? 3 : 2;
    struct sgd_arg a = {
        .p = td_operand_at(&k->in[0], r),
        .g = td_operand_at(&k->in[1], r),
        .buf = momentum ? td_operand_at(&k->in[2], r) : NULL,
        .clip = k->n_in > clip_at ? *(const float *)td_operand_at(&k->in[clip_at], r) : 1,
        .l2 = (float)o->weight_decay,
        .lr = (float)td_optim_lr(o, k->scalars),
        .momentum = (float)o->momentum,
        .one_minus_dampening = (float)(1 - o->dampening),
        .nesterov = o->nesterov,
        .first = k->scalars[TD_SCALAR_STEP] <= 1,
    };
    td_parallel(k->n_threads, td_shape_elems(&k->shape[0]), GRAIN,
                momentum ? sgd_momentum_range : sgd_plain_range, &a);
    return TD_OK;
}

td_status td_kernel_optim(struct td_kernel *k) {
    static td_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_SGD] = run_sgd,
        [TD_OP_ADAM] = run_adam,
        [TD_OP_ADAMW] = run_adamw,
        [TD_OP_LION] = run_lion,
    };
    if (td_kernel_all(k, TD_F32)) k->run = table[k->op];
    return TD_OK;
}
