// Kernels of the reference that rearrange or reduce. Everything goes by coordinates: an element's
// number becomes a position, the position is changed, and becomes a number of the other tensor.
// Slow, and nothing to get wrong: what a fast kernel must agree with.

#include <math.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/families.h"

static void position_of(const struct td_shape *s, int64_t i, int64_t at[TD_MAX_DIMS]) {
    for (int32_t d = s->n_dims - 1; d >= 0; d--) {
        at[d] = i % s->dim[d];
        i /= s->dim[d];
    }
}

static int64_t number_of(const struct td_shape *s, const int64_t at[TD_MAX_DIMS]) {
    int64_t i = 0;
    for (int32_t d = 0; d < s->n_dims; d++) {
        i = i * s->dim[d] + at[d];
    }
    return i;
}

static td_status run_reshape(struct ref_call *c) { // reshape
    memcpy(c->out[0].x, c->in[0].x, (size_t)c->out[0].n * sizeof(double));
    return TD_OK;
}

static td_status run_transpose(struct ref_call *c) {
    int64_t at[TD_MAX_DIMS], from[TD_MAX_DIMS] = {0};
    for (int64_t i = 0; i < c->out[0].n; i++) {
        position_of(c->out[0].shape, i, at);
        for (int32_t d = 0; d < c->out[0].shape->n_dims; d++) {
            from[c->node->attrs.perm[d]] = at[d];
        }
        c->out[0].x[i] = c->in[0].x[number_of(c->in[0].shape, from)];
    }
    return TD_OK;
}

static td_status run_concat(struct ref_call *c) {
    int64_t at[TD_MAX_DIMS], begin = 0;
    int32_t axis = c->node->attrs.axis;
    for (uint32_t k = 0; k < c->node->n_inputs; k++) {
        for (int64_t i = 0; i < c->in[k].n; i++) {
            position_of(c->in[k].shape, i, at);
            at[axis] += begin;
            c->out[0].x[number_of(c->out[0].shape, at)] = c->in[k].x[i];
        }
        begin += c->in[k].shape->dim[axis];
    }
    return TD_OK;
}

// Walks the smaller tensor: the box that begins at attrs.start of the larger one.
static td_status run_slice_pad(struct ref_call *c) { // slice, pad
    bool slices = c->node->op == TD_OP_SLICE;
    const struct ref_operand *part = slices ? &c->out[0] : &c->in[0];
    const struct ref_operand *whole = slices ? &c->in[0] : &c->out[0];
    int64_t at[TD_MAX_DIMS];
    for (int64_t i = 0; i < whole->n && !slices; i++) {
        whole->x[i] = c->node->attrs.scale;
    }
    for (int64_t i = 0; i < part->n; i++) {
        position_of(part->shape, i, at);
        for (int32_t d = 0; d < part->shape->n_dims; d++) {
            at[d] += c->node->attrs.start[d];
        }
        int64_t k = number_of(whole->shape, at);
        if (slices) {
            part->x[i] = whole->x[k];
        } else {
            whole->x[k] = part->x[i];
        }
    }
    return TD_OK;
}

static void round_result(struct ref_operand *y) {
    for (int64_t i = 0; i < y->n; i++) {
        y->x[i] = td_ref_round(y->dtype, y->x[i]);
    }
}

// gather: (x, index) -> y;  gather_grad: (index, dy) -> dx, x's place in the walk.
static td_status run_gather(struct ref_call *c) {
    bool reads = c->node->op == TD_OP_GATHER;
    uint32_t by = reads ? 1 : 0;
    struct ref_operand *x = reads ? &c->in[0] : &c->out[0];
    struct ref_operand *y = reads ? &c->out[0] : &c->in[1];
    int32_t axis = c->node->attrs.axis;
    int64_t at[TD_MAX_DIMS];
    if (!reads) td_ref_sums_begin(x);
    for (int64_t i = 0; i < y->n; i++) {
        position_of(y->shape, i, at);
        TD_TRY(td_ref_index(c, by, i, x->shape->dim[axis], "index", "elements", &at[axis]));
        int64_t k = number_of(x->shape, at);
        if (reads) {
            y->x[i] = x->x[k];
        } else {
            td_ref_add_at(x, k, y->x[i]);
        }
    }
    if (!reads) td_ref_sums_settle(x);
    return TD_OK;
}

// embedding: (table, ids) -> y;  embedding_grad: (ids, dy) -> dtable.
static td_status run_embedding(struct ref_call *c) {
    bool reads = c->node->op == TD_OP_EMBEDDING;
    uint32_t ids = reads ? 1 : 0;
    struct ref_operand *table = reads ? &c->in[0] : &c->out[0];
    double *y = reads ? c->out[0].x : c->in[1].x;
    int64_t n_cols = table->shape->dim[1], id = 0;
    if (!reads) td_ref_sums_begin(table);
    for (int64_t i = 0; i < c->in[ids].n; i++) {
        TD_TRY(td_ref_index(c, ids, i, table->shape->dim[0], "token id", "tokens", &id));
        for (int64_t k = 0; k < n_cols; k++) {
            if (reads) {
                y[i * n_cols + k] = table->x[id * n_cols + k];
            } else {
                td_ref_add_at(table, id * n_cols + k, y[i * n_cols + k]);
            }
        }
    }
    if (!reads) td_ref_sums_settle(table);
    return TD_OK;
}

static td_status run_reduce_sum(struct ref_call *c) { // and reduce_mean
    struct ref_operand *y = &c->out[0];
    bool mean = c->node->op == TD_OP_REDUCE_MEAN;
    td_ref_sums_begin(y);
    for (int64_t i = 0; i < c->in[0].n; i++) {
        td_ref_add_at(y, td_ref_broadcast(c->in[0].shape, y->shape, i), c->in[0].x[i]);
    }
    td_ref_sums_settle(y);
    for (int64_t i = 0; i < y->n && mean && c->in[0].n; i++) {
        y->x[i] /= (double)(c->in[0].n / y->n);
    }
    round_result(y);
    return TD_OK;
}

static td_status run_reduce_max(struct ref_call *c) {
    struct ref_operand *y = &c->out[0];
    for (int64_t i = 0; i < y->n; i++) {
        y->x[i] = (double)-INFINITY;
    }
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double *top = &y->x[td_ref_broadcast(c->in[0].shape, y->shape, i)], x = c->in[0].x[i];
        if (x > *top || x != x) *top = x; // a NaN stays visible: nothing is above it
    }
    return TD_OK;
}

td_ref_kernel_fn *td_ref_tensor(enum td_op op) {
    static td_ref_kernel_fn *const table[TD_OP_COUNT] = {
        [TD_OP_RESHAPE] = run_reshape,        [TD_OP_TRANSPOSE] = run_transpose,
        [TD_OP_CONCAT] = run_concat,          [TD_OP_SLICE] = run_slice_pad,
        [TD_OP_PAD] = run_slice_pad,          [TD_OP_GATHER] = run_gather,
        [TD_OP_GATHER_GRAD] = run_gather,     [TD_OP_EMBEDDING] = run_embedding,
        [TD_OP_REDUCE_SUM] = run_reduce_sum,  [TD_OP_EMBEDDING_GRAD] = run_embedding,
        [TD_OP_REDUCE_MEAN] = run_reduce_sum, [TD_OP_REDUCE_MAX] = run_reduce_max,
    };
    return table[op];
}
