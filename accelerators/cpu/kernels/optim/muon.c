// The two ends of Muon: the momentum and its direction before the matrix products, the step after
// them. The products and the blends between them are nodes of their own.
//
// The norm is the root of one sum over the matrix. Blocks of BLOCK elements keep their part in
// double precision, and the parts are added in order, so the bits do not depend on the number of
// threads. Tensors of 16 bits are computed in fp32 and rounded once: the direction, which is known
// before its norm is, waits in the scratch.

#include <math.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/kernels/optim/update.h"
#include "accelerators/cpu/parallel.h"

// LANES: partial sums of squares, which fix the order of a sum. The same at every CPU level: the
// vectors of each divide it.
enum { GRAIN = 8192, LANES = 16, BLOCK = 1024 };

struct momentum_arg {
    const void *g;
    void *buf, *y;
    enum td_dtype g_type, buf_type, y_type;
    float *wide; // y before it is scaled; y itself, where that is f32
    int64_t n;
    float clip, keep, ahead; // ahead: share of the buffer in the direction
    double *squares;         // of each block
    float scale;
};

// A block of at most BLOCK elements; its sum of squares.
static double momentum_update(const struct momentum_arg *a, const float *restrict g,
                              float *restrict buf, float *restrict y, int64_t n) {
    float lane[LANES] = {0};
    const float clip = a->clip, take = 1 - a->keep, ahead = a->ahead;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * clip, b = buf[i] + take * (gi - buf[i]);
        buf[i] = b;
        y[i] = gi + ahead * (b - gi);
    }
    for (int64_t i = 0; i < n; i++) {
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
    float g[BLOCK], buffer[BLOCK];
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * BLOCK, n = TD_MIN((int64_t)BLOCK, a->n - at);
        float *buf = td_cpu_result(a->buf_type, a->buf, at, buffer);
        if (buf == buffer) td_cpu_widen(a->buf_type, td_cpu_at(a->buf_type, a->buf, at), n, buffer);
        a->squares[b] =
            momentum_update(a, td_cpu_row(a->g_type, a->g, at, n, g), buf, a->wide + at, n);
        td_cpu_put(a->buf_type, buffer, n, a->buf, at);
    }
}

static void scale_chunk(float *x, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        x[i] *= scale;
    }
}

static void scale_range(const void *arg, int64_t begin, int64_t end) {
    const struct momentum_arg *a = arg;
    scale_chunk(a->wide + begin, a->scale, end - begin);
    td_cpu_put(a->y_type, a->wide + begin, end - begin, a->y, begin);
}

static int64_t blocks_of(int64_t n) {
    return (n + BLOCK - 1) / BLOCK;
}

static td_status run_momentum(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    float buffer;
    struct momentum_arg a = {
        .g = td_operand_at(&k->in[0], r),
        .buf = td_operand_at(&k->in[1], r),
        .y = td_operand_at(&k->out[0], r),
        .g_type = k->in_dtype[0],
        .buf_type = k->in_dtype[1],
        .y_type = k->out_dtype[0],
        .n = k->elems,
        .clip = 1,
        .keep = (float)o->momentum,
        .ahead = o->nesterov ? (float)o->momentum : 1,
        .squares = r->scratch,
    };
    int64_t blocks = blocks_of(a.n);
    if (k->n_in > 2) {
        a.clip = *td_cpu_row(k->in_dtype[2], td_operand_at(&k->in[2], r), 0, 1, &buffer);
    }
    a.wide = a.y_type == TD_F32 ? a.y : (float *)(a.squares + blocks);
    td_parallel(k->n_threads, blocks, GRAIN / BLOCK, momentum_range, &a);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += a.squares[b];
    }
    a.scale = (float)(1 / fmax(sqrt(sum), o->eps));
    td_parallel(k->n_threads, a.n, GRAIN, scale_range, &a);
    return TD_OK;
}

// ---- the step -----------------------------------------------------------------------------------
struct step_arg {
    const struct td_kernel *kernel;
    void *p;
    const void *x;
    float decay, step;
};

static void muon_update(const struct step_arg *a, float *p, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        p[i] = p[i] * a->decay - a->step * x[i];
    }
}

static void muon_update_range(const void *arg, int64_t begin, int64_t end) {
    const struct step_arg *a = arg;
    const enum td_dtype *type = a->kernel->in_dtype;
    float buffer[BLOCK], x[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = TD_MIN((int64_t)BLOCK, end - at);
        float *p = td_cpu_result(type[0], a->p, at, buffer);
        if (p == buffer) td_cpu_widen(type[0], td_cpu_at(type[0], a->p, at), n, buffer);
        muon_update(a, p, td_cpu_row(type[1], a->x, at, n, x), n);
        td_update_put(a->kernel, p, n, a->p, at);
    }
}

static td_status run_step(const struct td_kernel *k, const struct td_run *r) {
    const struct td_optim_attrs *o = &k->attrs.optim;
    double lr = td_optim_lr(o, k->scalars);
    double scale = o->update_scale != 0 ? o->update_scale : 1;
    struct step_arg a = {
        .kernel = k,
        .p = td_operand_at(&k->in[0], r),
        .x = td_operand_at(&k->in[1], r),
        .decay = (float)(1 - lr * o->weight_decay),
        .step = (float)(lr * scale),
    };
    td_update_run(k, r, 1, GRAIN, muon_update_range, &a);
    return TD_OK;
}

td_status td_kernel_muon(struct td_kernel *k) {
    if (!td_kernel_is(k, "muon") && !td_kernel_is(k, "muon_momentum")) return TD_OK;
    for (uint32_t i = 0; i < k->n_in; i++) {
        if (!td_cpu_is_narrow(k->in_dtype[i])) return TD_OK;
    }
    if (td_kernel_is(k, "muon")) {
        k->run = run_step;
        return TD_OK;
    }
    if (!td_cpu_is_narrow(k->out_dtype[0])) return TD_OK;
    k->run = run_momentum;
    k->scratch_bytes = (size_t)(blocks_of(k->elems) + 1) * sizeof(double);
    if (k->out_dtype[0] != TD_F32) k->scratch_bytes += (size_t)k->elems * sizeof(float);
    return TD_OK;
}
