// The table of kernels; contract in kernels.h. One function per op, named as in ops.def, plain
// loops in a fixed order. The sums run over ascending indices, so the same inputs give the same
// bits. No state, no allocation. Families of ops have files of their own (kernels_*.c), asked
// first.

#include "accelerators/reference/kernels.h"

#include <math.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/families.h"
#include "accelerators/reference/kernels_elementwise.h"

// ---- linear algebra, copies ---------------------------------------------------------------------
static td_status run_matmul(struct ref_call *c) {
    const struct td_attrs *at = &c->node->attrs;
    const struct td_shape *sa = c->in[0].shape, *sb = c->in[1].shape;
    int64_t k_inner = sb->dim[at->trans_b ? 1 : 0], n_cols = sb->dim[at->trans_b ? 0 : 1];
    int64_t n_rows = at->trans_a ? sa->dim[1] : 1;
    for (int32_t d = 0; !at->trans_a && d + 1 < sa->n_dims; d++) {
        n_rows *= sa->dim[d];
    }
    enum td_dtype t = c->out[0].dtype;
    struct ref_dot d = {.b = c->in[1].x, .n_terms = k_inner};
    d.a_step = at->trans_a ? n_rows : 1;
    d.b_step = at->trans_b ? 1 : n_cols;
    d.b_next = at->trans_b ? k_inner : 1;
    const double *bias = c->node->n_inputs == 3 && !at->then ? c->in[2].x : NULL;
    for (int64_t m = 0; m < n_rows; m++) {
        double *y = c->out[0].x + m * n_cols;
        d.a = c->in[0].x + (at->trans_a ? m : m * k_inner);
        td_ref_dot(&d, n_cols, y);
        for (int64_t n = 0; n < n_cols; n++) {
            double v = td_ref_round(t, y[n]);
            if (bias) v = td_ref_round(t, v + bias[n]);
            if (at->then) v = td_ref_scalar(at->then, c->in[2].x[m * n_cols + n], v, at);
            y[n] = at->act == TD_ACT_RELU ? td_ref_relu(v) : v;
        }
    }
    return TD_OK;
}

static td_status run_cast(struct ref_call *c) {
    double factor = c->node->attrs.scale != 0 ? c->node->attrs.scale : 1;
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = c->in[0].x[i] * factor;
    }
    return TD_OK;
}

static td_status run_scale(struct ref_call *c) {
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = c->in[0].x[i] * c->in[1].x[0];
    }
    return TD_OK;
}

static td_status run_fill(struct ref_call *c) {
    double v = c->node->attrs.scale * (c->node->n_inputs ? c->in[0].x[0] : 1);
    for (int64_t i = 0; i < c->out[0].n; i++) {
        c->out[0].x[i] = v;
    }
    return TD_OK;
}

static td_status run_constant(struct ref_call *c) {
    memcpy(c->out[0].x, c->node->attrs.values, (size_t)c->out[0].n * sizeof(double));
    return TD_OK;
}

static td_status run_store(struct ref_call *c) {
    for (int64_t i = 0; i < c->in[0].n; i++) {
        c->in[0].x[i] = (c->node->attrs.accumulate ? c->in[0].x[i] : 0) + c->in[1].x[i];
    }
    c->written = 1;
    return TD_OK;
}

// ---- reductions ---------------------------------------------------------------------------------
static td_status run_mean(struct ref_call *c) {
    struct ref_sum sum = {0};
    for (int64_t i = 0; i < c->in[0].n; i++) {
        td_ref_add(&sum, c->in[0].x[i]);
    }
    c->out[0].x[0] = c->in[0].n ? td_ref_total(&sum) / (double)c->in[0].n : 0;
    return TD_OK;
}

static td_status run_sum_squares(struct ref_call *c) {
    struct ref_sum sum = {0};
    for (uint32_t k = 0; k < c->node->n_inputs; k++) {
        for (int64_t i = 0; i < c->in[k].n; i++) {
            td_ref_add(&sum, c->in[k].x[i] * c->in[k].x[i]);
        }
    }
    c->out[0].x[0] = td_ref_total(&sum);
    return TD_OK;
}

static td_status run_all_finite(struct ref_call *c) {
    bool finite = true;
    for (uint32_t k = 0; k < c->node->n_inputs; k++) {
        for (int64_t i = 0; i < c->in[k].n; i++) {
            finite &= (bool)isfinite(c->in[k].x[i]);
        }
    }
    c->out[0].x[0] = finite;
    return TD_OK;
}

// This rank's part; reference.c has it summed.
static td_status run_rank_sum(struct ref_call *c) {
    memcpy(c->out[0].x, c->in[0].x, (size_t)c->out[0].n * sizeof(double));
    return TD_OK;
}

static td_status run_clip_coef(struct ref_call *c) {
    double coef = c->node->attrs.max_norm / (sqrt(c->in[0].x[0]) + 1e-6);
    c->out[0].x[0] = coef > 1 ? 1 : coef;
    return TD_OK;
}

// ---- the table ----------------------------------------------------------------------------------
static td_ref_kernel_fn *const kernels[TD_OP_COUNT] = {
    [TD_OP_MATMUL] = run_matmul,
    [TD_OP_CAST] = run_cast,
    [TD_OP_MEAN] = run_mean,
    [TD_OP_SUM_SQUARES] = run_sum_squares,
    [TD_OP_ALL_FINITE] = run_all_finite,
    [TD_OP_SCALE] = run_scale,
    [TD_OP_STORE] = run_store,
    [TD_OP_RANK_SUM] = run_rank_sum,
    [TD_OP_CLIP_COEF] = run_clip_coef,
    [TD_OP_FILL] = run_fill,
    [TD_OP_CONSTANT] = run_constant,
    // sums over ranks, and their awaits, are the collective's: reference.c calls it
};

static td_ref_kernel_fn *kernel_of(enum td_op op) {
    static td_ref_family *const families[] = {
        td_ref_elementwise, td_ref_tensor,    td_ref_loss,  td_ref_nn,
        td_ref_conv,        td_ref_attention, td_ref_optim,
    };
    for (size_t i = 0; i < TD_COUNTOF(families); i++) {
        td_ref_kernel_fn *k = families[i](op);
        if (k) return k;
    }
    return kernels[op];
}

bool td_ref_has_kernel(td_op_id op) {
    if ((unsigned)op >= TD_OP_COUNT) return false;
    return td_op_is(op, TD_OP_IS_START) || op == TD_OP_AWAIT || kernel_of(op);
}

td_status td_ref_kernel(struct ref_call *c) {
    return kernel_of(c->node->op)(c);
}
