#ifndef TRAIND_ACCELERATORS_REFERENCE_KERNEL_H
#define TRAIND_ACCELERATORS_REFERENCE_KERNEL_H

// A call of a kernel: one node on operands that were widened to fp64, and what several kernels need
// for it. The caller (node.c) loads operands and stores results; a kernel only loops. Where a fused
// op does the work of several (matmul with bias, a direct write that accumulates), the kernel
// rounds to the element type between them. So fusing does not change a bit here.
//
// Sums keep what rounding takes from them, however many terms there are. So what an op says of fp64
// is within 4 eps of the sum of magnitudes; pointwise ops are within 4 units in the last place.
// Norms, softmax, attention and losses of classes are within 64 eps (conform_double*.c).

#include <math.h>

#include "lib/base/base.h"
#include "traind/graph.h"

struct ref_operand {
    double *x;    // n elements
    double *rest; // likewise, of a result that td_ref_sums_in_place; else NULL
    int64_t n;
    enum td_dtype dtype;
    const struct td_shape *shape;
};

struct ref_call {
    const struct td_node_info *node;
    struct ref_operand *in; // [node->n_inputs]
    struct ref_operand out[TD_MAX_OUT];
    const double *scalars;  // step scalars
    const uint32_t *random; // and random words
    uint32_t written;       // bit i: operand i was changed and must be stored
};

typedef td_status td_ref_kernel_fn(struct ref_call *c);

// Linear index into an operand that broadcasts to `wide`, for element i of the result.
int64_t td_ref_broadcast(const struct td_shape *wide, const struct td_shape *x, int64_t i);

// What every accelerator says of an index that is not in [0, bound): INVALID_ARGUMENT, class data.
// It speaks of one label and of many classes, or whatever they are; who runs the node names it.
TD_MUST_USE td_status td_ref_no_index(const char *one, int64_t index, int64_t row, int64_t bound,
                                      const char *many);

// Element i of an integer operand, which must be in [0, bound); else td_ref_no_index.
TD_MUST_USE td_status td_ref_index(const struct ref_call *c, uint32_t operand, int64_t i,
                                   int64_t bound, const char *one, const char *many,
                                   int64_t *out_index);

// A sum beside what rounding took from it (Neumaier 1974).
struct ref_sum {
    double x, rest;
};
static inline void td_ref_add(struct ref_sum *s, double v) {
    double x = s->x + v, part = x - s->x;
    s->rest += (s->x - (x - part)) + (v - part);
    s->x = x;
}
static inline double td_ref_total(const struct ref_sum *s) {
    return isfinite(s->x) ? s->x + s->rest : s->x;
}

// The same in the places of a result: begin, add to any place in any order, settle.
bool td_ref_sums_in_place(td_op_id op);
void td_ref_sums_begin(struct ref_operand *y);
static inline void td_ref_add_at(const struct ref_operand *y, int64_t i, double v) {
    struct ref_sum s = {y->x[i], y->rest[i]};
    td_ref_add(&s, v);
    y->x[i] = s.x;
    y->rest[i] = s.rest;
}
void td_ref_sums_settle(struct ref_operand *y);

// Terms of a product are summed four at a time as they are, which takes at most 2 eps of their
// magnitudes, and the fours without loss. All products do so, or fusing would change bits.
enum { TD_REF_TERMS = 4 };
static inline double td_ref_terms(const double v[TD_REF_TERMS], const double *b, int64_t b_step,
                                  int64_t n) {
    double sum = v[0] * b[0];
    if (n == TD_REF_TERMS) {
        const double *c = b + 2 * b_step;
        return (sum + v[1] * b[b_step]) + (v[2] * c[0] + v[3] * c[b_step]);
    }
    for (int64_t t = 1; t < n; t++) {
        sum += v[t] * b[t * b_step];
    }
    return sum;
}
// A row times columns, y[n_columns].
struct ref_dot {
    const double *a, *b;
    int64_t a_step, b_step, b_next; // from a term to the next; from a column to the next
    int64_t n_terms;
};
void td_ref_dot(const struct ref_dot *d, int64_t n_columns, double *y);

static inline double td_ref_relu(double v) {
    return v > 0 || v != v ? v : 0; // a NaN stays visible
}

#endif
