// What several kernels need to find their operands; contract in kernel.h.

#include "accelerators/reference/kernel.h"

#include <inttypes.h>
#include <string.h>

#include "traind/op.h"

int64_t td_ref_broadcast(const struct td_shape *wide, const struct td_shape *x, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int32_t d = wide->n_dims - 1, dx = x->n_dims - 1; dx >= 0; d--, dx--) {
        int64_t pos = i % wide->dim[d];
        i /= wide->dim[d];
        if (x->dim[dx] != 1) at += pos * stride;
        stride *= x->dim[dx];
    }
    return at;
}

td_status td_ref_no_index(const char *one, int64_t index, int64_t row, int64_t bound,
                          const char *many) {
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "%s %" PRId64 " in row %" PRId64
                                        " is outside the model's %" PRId64 " %s",
                                        one, index, row, bound, many),
                                TD_CLASS_DATA);
}

td_status td_ref_index(const struct ref_call *c, uint32_t operand, int64_t i, int64_t bound,
                       const char *one, const char *many, int64_t *out_index) {
    int64_t index = (int64_t)c->in[operand].x[i];
    if (index < 0 || index >= bound) return td_ref_no_index(one, index, i, bound, many);
    *out_index = index;
    return TD_OK;
}

// ---- sums ---------------------------------------------------------------------------------------
bool td_ref_sums_in_place(td_op_id op) {
    static const bool sums[TD_OP_COUNT] = {
        [TD_OP_GATHER_GRAD] = true,     [TD_OP_EMBEDDING_GRAD] = true,
        [TD_OP_REDUCE_SUM] = true,      [TD_OP_REDUCE_MEAN] = true,
        [TD_OP_LAYER_NORM_GRAD] = true, [TD_OP_RMS_NORM_GRAD] = true,
        [TD_OP_BATCH_NORM_GRAD] = true, [TD_OP_LINEAR_CE_GRAD] = true,
        [TD_OP_CONV2D] = true,          [TD_OP_CONV2D_GRAD_X] = true,
        [TD_OP_CONV2D_GRAD_W] = true,   [TD_OP_AVG_POOL] = true,
        [TD_OP_AVG_POOL_GRAD] = true,   [TD_OP_MAX_POOL_GRAD] = true,
    };
    return sums[op];
}

void td_ref_sums_begin(struct ref_operand *y) {
    memset(y->x, 0, (size_t)y->n * sizeof(double));
    memset(y->rest, 0, (size_t)y->n * sizeof(double));
}

void td_ref_sums_settle(struct ref_operand *y) {
    for (int64_t i = 0; i < y->n; i++) {
        y->x[i] = td_ref_total(&(struct ref_sum){y->x[i], y->rest[i]});
    }
}

// ---- products -----------------------------------------------------------------------------------
enum { DOT_COLUMNS = 64 };

// Columns from `first` on whose sums fit the cache.
static void dot_columns(const struct ref_dot *d, int64_t first, int64_t n, double *y) {
    double sum[DOT_COLUMNS] = {0}, rest[DOT_COLUMNS] = {0};
    for (int64_t k = 0; k < d->n_terms; k += TD_REF_TERMS) {
        const int64_t terms = TD_MIN((int64_t)TD_REF_TERMS, d->n_terms - k);
        double v[TD_REF_TERMS] = {0};
        for (int64_t t = 0; t < terms; t++) {
            v[t] = d->a[(k + t) * d->a_step];
        }
        for (int64_t i = 0; i < n; i++) {
            const double *b = d->b + (first + i) * d->b_next + k * d->b_step;
            struct ref_sum s = {sum[i], rest[i]};
            td_ref_add(&s, td_ref_terms(v, b, d->b_step, terms));
            sum[i] = s.x;
            rest[i] = s.rest;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        y[first + i] = td_ref_total(&(struct ref_sum){sum[i], rest[i]});
    }
}

void td_ref_dot(const struct ref_dot *d, int64_t n_columns, double *y) {
    for (int64_t n = 0; n < n_columns; n += DOT_COLUMNS) {
        dot_columns(d, n, TD_MIN((int64_t)DOT_COLUMNS, n_columns - n), y);
    }
}
