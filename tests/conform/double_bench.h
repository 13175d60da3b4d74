#ifndef TRAIND_TESTS_CONFORM_DOUBLE_BENCH_H
#define TRAIND_TESTS_CONFORM_DOUBLE_BENCH_H

// The bench of the conform_double programs: a case of op_bench.h in fp64 on one accelerator,
// against an oracle in long double. An oracle says of each number that the op gives, in their
// order, what it is, and the sum of the magnitudes that it is made of. How many eps of that it may
// be off is the case's.

#include <float.h>

#include "tests/conform/op_bench.h"

typedef long double real;

// What is expected so far. In a pointwise op the magnitude is that of the number itself.
struct wanted {
    size_t n;
    real x[N_FLOATS], magnitude[N_FLOATS];
};

static inline void want(struct wanted *w, real x, real magnitude) {
    w->x[w->n] = x;
    w->magnitude[w->n++] = magnitude;
}

typedef void oracle_fn(const struct op_case *c, struct wanted *out);

// Element k of operand i.
static inline real at(const struct op_case *c, uint32_t i, int64_t k) {
    return operand_value(&c->in[i], i, k);
}
static inline int64_t elems(const struct op_case *c, uint32_t i) {
    return td_shape_elems(&c->in[i].shape);
}
static inline int64_t label_at(const struct op_case *c, uint32_t i, int64_t k) {
    return (int64_t)operand_value(&c->in[i], i, k);
}

static inline struct operand doubles(struct td_shape shape, double low, double high) {
    return (struct operand){TD_F64, shape, TD_ROLE_PARAM, low, high};
}

// A sum of terms beside that of their magnitudes.
struct sum {
    real x, magnitude;
};
static inline void add(struct sum *s, real v) {
    s->x += v;
    s->magnitude += fabsl(v);
}

static inline void check_double(struct subject *s, const struct op_case *c, real eps,
                                oracle_fn *oracle) {
    static struct result got;
    static struct wanted wanted;
    bool writes = false;
    if (!(s->dtypes >> TD_F64 & 1)) return;
    for (uint32_t i = 0; i < c->n_in; i++) {
        writes |= td_op_writes(c->op, &c->attrs, i);
    }
    wanted.n = 0;
    oracle(c, &wanted);
    for (int copied = 0; copied < (writes ? 1 : 2); copied++) {
        run_on(s->ops, c, TD_F64, copied, &got);
        assert_true(got.n >= wanted.n);
        for (size_t i = 0; i < wanted.n; i++) {
            const real off = fabsl((real)got.x[i] - wanted.x[i]), unit = (real)DBL_EPSILON;
            if (off <= eps * unit * wanted.magnitude[i] + (real)0x1p-1070) continue;
            if (isinf(got.x[i]) && (double)wanted.x[i] == got.x[i]) continue;
            describe(c, s, TD_F64);
            fail_msg("number %zu is %.17g, not %.21Lg: off by %.3Lg eps", i, got.x[i], wanted.x[i],
                     off / unit / wanted.magnitude[i]);
        }
    }
    s->n_cases++;
}

#endif
