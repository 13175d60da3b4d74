// The two ends of Muon: the momentum and its direction before the matrix products, the step after
// them. The products and the blends between them are nodes of their own.
//
// The norm is the root of one sum over the matrix: blocks of BLOCK elements keep their part in
// double precision, and the parts are added in order, so the bits do not depend on the number of
// threads.

#include <math.h>

#include "accelerators/cpu/cpu.h"

enum { GRAIN = 8192, LANES = 16, BLOCK = 1024 };

struct momentum_arg {
    const float *g;
    float *buf, *y;
    int64_t n;
    float clip, keep, ahead; // ahead: share of the buffer in the direction
    double *squares;         // of each block
    float scale;
};

// Blocks are shorter than BLOCK only at the end.
TD_CLONES static double momentum_block(const struct momentum_arg *a, int64_t begin, int64_t end) {
    float lane[LANES] = {0};
    const float clip = a->clip, take = 1 - a->keep, ahead = a->ahead;
    const float *restrict g = a->g + begin;
    float *restrict buf = a->buf + begin;
    float *restrict y = a->y + begin;
    for (int64_t i = 0; i < end - begin; i++) {
        float gi = g[i] * clip, b = buf[i] + take * (gi - buf[i]);
        buf[i] = b;
        y[i] = gi + ahead * (b - gi);
    }
    for (int64_t i = 0; i < end - begin; i++) {
        lane[i % LANES] += y[i] * y[i];
    }
    double sum = 0;
    for (int l = 0; l < LANES; l++) {
        sum += (double)lane[l];
    }
    return sum;
}

static void momentum_range(const void *arg, int64_t begin, int64_t end) {
    const struct momentum_arg *a = arg;
    for (int64_t b = begin; b < end; b++) {
        a->squares[b] = momentum_block(a, b * BLOCK, TD_MIN((b + 1) * BLOCK, a->n));
    }
}

TD_CLONES static void scale_pass(const struct momentum_arg *a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        a->y[i] *= a->scale;
    }
}

static void scale_range(const void *arg, int64_t begin, int64_t end) {
    scale_pass(arg, begin, end);
}

static td_status run_momentum(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    struct momentum_arg a = {
        .g = td_operand_at(&k->in[0], r),
        .buf = td_operand_at(&k->in[1], r),
        .y = td_operand_at(&k->out[0], r),
        .n = k->elems,
        .clip = k->n_in > 2 ? *(const float *)td_operand_at(&k->in[2], r) : 1,
        .keep = (float)o->momentum,
        .ahead = o->nesterov ? (float)o->momentum : 1,
        .squares = r->scratch,
    };
    int64_t blocks = (a.n + BLOCK - 1) / BLOCK;
    td_parallel(k->n_threads, blocks, GRAIN / BLOCK, momentum_range, &a);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += a.squares[b];
    }
    a.scale = (float)(1 / fmax(sqrt(sum), o->eps));
    td_parallel(k->n_threads, a.n, GRAIN, scale_range, &a);
    return TD_OK;
}

struct step_arg {
    float *p;
    const float *x;
    float decay, step;
};

TD_CLONES static void step_pass(const struct step_arg *a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        a->p[i] = a->p[i] * a->decay - a->step * a->x[i];
    }
}

static void step_range(const void *arg, int64_t begin, int64_t end) {
    step_pass(arg, begin, end);
}

static td_status run_step(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars);
    double scale = o->update_scale != 0 ? o->update_scale : 1;
    struct step_arg a = {
        .p = td_operand_at(&k->in[0], r),
        .x = td_operand_at(&k->in[1], r),
        .decay = (float)(1 - lr * o->weight_decay),
        .step = (float)(lr * scale),
    };
    td_parallel(k->n_threads, td_shape_elems(&k->shape[0]), GRAIN, step_range, &a);
    return TD_OK;
}

td_status td_kernel_muon(struct td_kernel *k) {
    if (!td_kernel_all(k, TD_F32)) return TD_OK;
    if (k->op == TD_OP_MUON) k->run = run_step;
    if (k->op != TD_OP_MUON_MOMENTUM) return TD_OK;
    k->run = run_momentum;
    k->scratch_bytes = (size_t)(k->elems / BLOCK + 1) * sizeof(double);
    return TD_OK;
}
