// Optimizers: one pass over parameter, gradient and moments, with clip and weight decay inside.
//
// The formulas are torch's (adamw: decoupled decay; adam and sgd: decay added to the gradient); the
// bias corrections are computed once a step in double precision. A pass moves 4 reads and 3 writes
// of the parameter's size, which is all it costs: the arithmetic is done while memory is read.
//
// A pass computes in fp32. Tensors of 16 bits go through it a few rows at a time, which fit L1,
// and are rounded once when they go home. How a parameter is written is update.c's.
//
// The room:
//
//   optim.c adafactor.c muon.c update.c  how they write a parameter

#include <math.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/optim/update.h"
#include "accelerators/cpu/kernels/vmath.h"
#include "accelerators/cpu/parallel.h"

enum { GRAIN = 8192, ROW = 512 };
enum { PARAM, GRAD, FIRST, SECOND, TENSORS }; // operands; what follows them is the clip factor

struct update;
// n elements: parameter, gradient, and the tensors of the optimizer's own, NULL: it has none.
typedef void pass_fn(const struct update *u, float *p, const float *g, float *m, float *v,
                     int64_t n);

struct update {
    pass_fn *pass;
    void *tensor[TENSORS]; // NULL: none
    enum td_dtype type[TENSORS];
    bool narrow; // one of them is not f32
    const struct td_kernel *kernel;
    float clip, decay, l2, lr; // decay multiplies the parameter, l2 joins the gradient
    // beta1, 1 - beta1, ...: rounded each by itself, as in torch
    float keep1, take1, keep2, take2, inv_correction, eps;
    bool first;
};

// ---- the passes ---------------------------------------------------------------------------------
static void adam_update(const struct update *u, float *restrict p, const float *restrict g,
                        float *restrict m, float *restrict v, int64_t n) {
    const float clip = u->clip, decay = u->decay, l2 = u->l2, keep1 = u->keep1, take1 = u->take1;
    const float keep2 = u->keep2, take2 = u->take2;
    const float step = u->lr, inv = u->inv_correction, eps = u->eps;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * clip + l2 * p[i];
        float mi = keep1 * m[i] + take1 * gi;
        float vi = keep2 * v[i] + take2 * gi * gi;
        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * decay - step * mi / (vm_sqrt(vi) * inv + eps);
    }
}

static void lion_update(const struct update *u, float *restrict p, const float *restrict g,
                        float *restrict m, float *restrict v, int64_t n) {
    (void)v;
    const float clip = u->clip, decay = u->decay, lr = u->lr, keep1 = u->keep1, take1 = u->take1;
    const float keep2 = u->keep2, take2 = u->take2;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * clip, d = keep1 * m[i] + take1 * gi;
        p[i] = p[i] * decay - (d > 0 ? lr : d < 0 ? -lr : 0);
        m[i] = keep2 * m[i] + take2 * gi;
    }
}

static void sgd_update(const struct update *u, float *restrict p, const float *restrict g,
                       float *restrict m, float *restrict v, int64_t n) {
    (void)m, (void)v;
    const float clip = u->clip, l2 = u->l2, lr = u->lr;
    for (int64_t i = 0; i < n; i++) {
        p[i] -= lr * (g[i] * clip + l2 * p[i]);
    }
}

// keep1 is the momentum, take1 what dampening leaves.
static void momentum_update(const struct update *u, float *restrict p, const float *restrict g,
                            float *restrict m, float *restrict v, int64_t n) {
    (void)v;
    const float clip = u->clip, l2 = u->l2, lr = u->lr, keep = u->keep1, take = u->take1;
    const bool nesterov = u->kernel->attrs.optim.nesterov, first = u->first;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * clip + l2 * p[i];
        float b = first ? gi : keep * m[i] + take * gi;
        m[i] = b;
        p[i] -= lr * (nesterov ? gi + keep * b : b);
    }
}

// ---- tensors of any type ------------------------------------------------------------------------
static void update_row(const struct update *u, int64_t at, int64_t n) {
    float buffer[TENSORS][ROW], *x[TENSORS] = {0};
    for (int i = 0; i < TENSORS; i++) {
        if (!u->tensor[i]) continue;
        x[i] = td_cpu_result(u->type[i], u->tensor[i], at, buffer[i]);
        if (x[i] == buffer[i]) td_cpu_row(u->type[i], u->tensor[i], at, n, buffer[i]);
    }
    u->pass(u, x[PARAM], x[GRAD], x[FIRST], x[SECOND], n);
    td_update_put(u->kernel, x[PARAM], n, u->tensor[PARAM], at);
    for (int i = FIRST; i < TENSORS; i++) {
        if (x[i]) td_cpu_put(u->type[i], x[i], n, u->tensor[i], at);
    }
}

static void update_range(const void *arg, int64_t begin, int64_t end) {
    const struct update *u = arg;
    if (u->narrow) {
        for (int64_t at = begin; at < end; at += ROW) {
            update_row(u, at, TD_MIN(end - at, (int64_t)ROW));
        }
        return;
    }
    float *x[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        x[i] = u->tensor[i] ? (float *)u->tensor[i] + begin : NULL;
    }
    u->pass(u, x[PARAM], x[GRAD], x[FIRST], x[SECOND], end - begin);
}

// ---- the optimizers -----------------------------------------------------------------------------
// Tensors that the optimizer keeps.
static uint32_t n_states(const struct td_kernel *k) {
    if (td_kernel_is(k, "sgd")) return k->attrs.optim.momentum != 0 ? 1 : 0;
    return td_kernel_is(k, "lion") ? 1 : 2;
}

// Operands: param, grad, its own tensors, clip if one is left.
static struct update update_of(const struct td_kernel *k, const struct td_run *r) {
    uint32_t n = FIRST + n_states(k);
    struct update u = {.kernel = k, .clip = 1};
    for (uint32_t i = 0; i < n; i++) {
        u.tensor[i] = td_operand_at(&k->in[i], r);
        u.type[i] = k->in_dtype[i];
        u.narrow |= u.type[i] != TD_F32;
    }
    float buffer;
    if (k->n_in > n) {
        u.clip = *td_cpu_row(k->in_dtype[n], td_operand_at(&k->in[n], r), 0, 1, &buffer);
    }
    return u;
}

static void set_adam(const struct td_kernel *k, struct update *u) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    const bool decoupled = td_kernel_is(k, "adamw");
    double lr = td_optim_lr(o, k->scalars), t = k->scalars[TD_SCALAR_STEP];
    u->pass = adam_update;
    u->decay = decoupled ? (float)(1 - lr * o->weight_decay) : 1;
    u->l2 = decoupled ? 0 : (float)o->weight_decay;
    u->keep1 = (float)o->beta1;
    u->take1 = (float)(1 - o->beta1);
    u->keep2 = (float)o->beta2;
    u->take2 = (float)(1 - o->beta2);
    u->lr = (float)(lr / (1 - pow(o->beta1, t)));
    u->inv_correction = (float)(1 / sqrt(1 - pow(o->beta2, t)));
    u->eps = (float)o->eps;
}

static void set_lion(const struct td_kernel *k, struct update *u) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars);
    u->pass = lion_update;
    u->decay = (float)(1 - lr * o->weight_decay);
    u->keep1 = (float)o->beta1;
    u->take1 = (float)(1 - o->beta1);
    u->keep2 = (float)o->beta2;
    u->take2 = (float)(1 - o->beta2);
    u->lr = (float)lr;
}

static void set_sgd(const struct td_kernel *k, struct update *u) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    u->pass = o->momentum != 0 ? momentum_update : sgd_update;
    u->l2 = (float)o->weight_decay;
    u->lr = (float)td_optim_lr(o, k->scalars);
    u->keep1 = (float)o->momentum;
    u->take1 = (float)(1 - o->dampening);
    u->first = k->scalars[TD_SCALAR_STEP] <= 1;
}

static td_status run_update(const struct td_kernel *k, const struct td_run *r) {
    struct update u = update_of(k, r);
    if (td_kernel_is(k, "sgd")) {
        set_sgd(k, &u);
    } else if (td_kernel_is(k, "lion")) {
        set_lion(k, &u);
    } else {
        set_adam(k, &u);
    }
    td_update_run(k, r, 1, GRAIN, update_range, &u);
    return TD_OK;
}

td_status td_kernel_optim(struct td_kernel *k) {
    if (!td_kernel_is(k, "sgd") && !td_kernel_is(k, "adam") && !td_kernel_is(k, "adamw") &&
        !td_kernel_is(k, "lion")) {
        return TD_OK;
    }
    for (uint32_t i = 0; i < k->n_in; i++) {
        if (!td_cpu_is_narrow(k->in_dtype[i])) return TD_OK;
    }
    k->run = run_update;
    return TD_OK;
}
