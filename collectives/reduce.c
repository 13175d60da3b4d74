// Slice reduction (see reduce.h).
//
// Sums run left to right over the ranks for each element, so the vector width changes nothing in
// the bits. Division: a world that is a power of two multiplies by its reciprocal, which is exact
// and so gives the same correctly rounded quotient; others divide. 16-bit
// floats: lib/base/floats/half.h.

#include "collectives/reduce.h"

#include <string.h>

#include "collectives/reduce_loops.h"
#include "lib/base/floats/half.h"

__extension__ typedef __int128 wide_int;

const char *td_reduce_op_name(enum td_reduce_op op) {
    switch (op) {
    case TD_REDUCE_SUM:
        return "sum";
    case TD_REDUCE_MEAN:
        return "mean";
    case TD_REDUCE_MAX:
        return "max";
    case TD_REDUCE_MIN:
        return "min";
    case TD_REDUCE_PRODUCT:
        return "product";
    }
    return "unknown";
}

bool td_reduce_supports(enum td_dtype dtype, enum td_reduce_op op) {
    if ((unsigned)dtype >= TD_DTYPE_COUNT || (unsigned)op > TD_REDUCE_PRODUCT) return false;
    return dtype != TD_BOOL || op == TD_REDUCE_MAX || op == TD_REDUCE_MIN;
}

// ---- sums and means of fp32 and the 16-bit floats -----------------------------------------------
// How the sum becomes the result: times a (1 or an exact reciprocal), or divided by a.
struct scaling {
    float by;
    bool divide;
};

static struct scaling scaling_of(struct td_reduce_how how) {
    if (how.op == TD_REDUCE_SUM) return (struct scaling){1.0f, false};
    const bool power_of_two = (how.divisor & (how.divisor - 1)) == 0;
    const float by = (float)how.divisor;
    return (struct scaling){power_of_two ? 1.0f / by : by, !power_of_two};
}

// The parts that get the result: from the first to before the last of these.
struct receivers {
    int32_t from, to;
};

static struct receivers receivers_of(int32_t n_parts, struct td_reduce_how how) {
    if (how.only < 0) return (struct receivers){0, n_parts};
    return (struct receivers){how.only, how.only + 1};
}

static void scale_block(const struct td_reduce_loops *loops, float *acc, struct scaling s) {
    if (s.divide) {
        loops->divide(acc, s.by);
    } else if (s.by != 1.0f) {
        loops->multiply(acc, s.by);
    }
}

static void sum_f32(void *const *parts, int32_t world, int64_t lo, int64_t hi,
                    struct td_reduce_how how) {
    const struct td_reduce_loops *loops = TD_LEVELED_TABLE(td_reduce_loops);
    const struct scaling s = scaling_of(how);
    const struct receivers get = receivers_of(world, how);
    if (world == 2 && how.only < 0 && !s.divide) {
        loops->pair_f32((float *)parts[0] + lo, (float *)parts[1] + lo, hi - lo, s.by);
        return;
    }
    _Alignas(64) float acc[TD_REDUCE_BLOCK];
    int64_t i = lo;
    for (; hi - i >= TD_REDUCE_BLOCK; i += TD_REDUCE_BLOCK) {
        memcpy(acc, (const float *)parts[0] + i, sizeof acc);
        for (int32_t p = 1; p < world; p++) {
            loops->add_f32(acc, (const float *)parts[p] + i);
        }
        scale_block(loops, acc, s);
        for (int32_t p = get.from; p < get.to; p++) {
            memcpy((float *)parts[p] + i, acc, sizeof acc);
        }
    }
    for (; i < hi; i++) {
        float v = ((const float *)parts[0])[i];
        for (int32_t p = 1; p < world; p++) {
            v += ((const float *)parts[p])[i];
        }
        v = s.divide ? v / s.by : v * s.by;
        for (int32_t p = get.from; p < get.to; p++) {
            ((float *)parts[p])[i] = v;
        }
    }
}

// Whole blocks of a 16-bit float, summed in fp32 and rounded once. Returns where they end.
static int64_t sum_half(void *const *parts, int32_t world, int64_t lo, int64_t hi, bool bf16,
                        struct td_reduce_how how) {
    const struct td_reduce_loops *loops = TD_LEVELED_TABLE(td_reduce_loops);
    const struct scaling s = scaling_of(how);
    const struct receivers get = receivers_of(world, how);
    _Alignas(64) float acc[TD_REDUCE_BLOCK];
    uint16_t out[TD_REDUCE_BLOCK];
    int64_t i = lo;
    for (; hi - i >= TD_REDUCE_BLOCK; i += TD_REDUCE_BLOCK) {
        (bf16 ? loops->widen_bf16 : loops->widen_f16)(acc, (const uint16_t *)parts[0] + i);
        for (int32_t p = 1; p < world; p++) {
            (bf16 ? loops->add_bf16 : loops->add_f16)(acc, (const uint16_t *)parts[p] + i);
        }
        scale_block(loops, acc, s);
        (bf16 ? loops->narrow_bf16 : loops->narrow_f16)(acc, out);
        for (int32_t p = get.from; p < get.to; p++) {
            memcpy((uint16_t *)parts[p] + i, out, sizeof out);
        }
    }
    return i;
}

// ---- every other dtype and op -------------------------------------------------------------------
// Integers are multiplied without a sign, where products wrap: the low bits are the same.
#define SAME(x) (x)
#define DEFINE_REDUCE(name, type, acc_type, product_type, LOAD, STORE)                             \
    static void reduce_##name(void *const *parts, int32_t world, int64_t lo, int64_t hi,           \
                              struct td_reduce_how how) {                                          \
        const struct receivers get = receivers_of(world, how);                                     \
        const enum td_reduce_op op = how.op;                                                       \
        for (int64_t i = lo; i < hi; i++) {                                                        \
            acc_type acc = LOAD(((const type *)parts[0])[i]);                                      \
            for (int32_t p = 1; p < world; p++) {                                                  \
                acc_type x = LOAD(((const type *)parts[p])[i]);                                    \
                if (op == TD_REDUCE_MAX) {                                                         \
                    acc = acc > x || acc != acc ? acc : x;                                         \
                } else if (op == TD_REDUCE_MIN) {                                                  \
                    acc = acc < x || acc != acc ? acc : x;                                         \
                } else if (op == TD_REDUCE_PRODUCT) {                                              \
                    acc = (acc_type)((product_type)acc * (product_type)x);                         \
                } else {                                                                           \
                    acc += x;                                                                      \
                }                                                                                  \
            }                                                                                      \
            if (op == TD_REDUCE_MEAN) acc /= (acc_type)how.divisor;                                \
            for (int32_t p = get.from; p < get.to; p++) {                                          \
                ((type *)parts[p])[i] = (type)STORE(acc);                                          \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_REDUCE(f32, float, float, float, SAME, SAME)
DEFINE_REDUCE(f64, double, double, double, SAME, SAME)
DEFINE_REDUCE(bf16, uint16_t, float, float, td_f32_of_bf16, td_bf16_of_f32)
DEFINE_REDUCE(f16, uint16_t, float, float, td_f32_of_f16, td_f16_of_f32)
DEFINE_REDUCE(i32, int32_t, int64_t, uint64_t, SAME, SAME)
DEFINE_REDUCE(i64, int64_t, wide_int, uint64_t, SAME, SAME)
DEFINE_REDUCE(u8, uint8_t, int64_t, uint64_t, SAME, SAME)

void td_reduce(void *const *parts, int32_t world, int64_t lo, int64_t hi, enum td_dtype dtype,
               enum td_reduce_op op) {
    td_reduce_as(parts, world, lo, hi, dtype, (struct td_reduce_how){op, world, -1});
}

void td_reduce_as(void *const *parts, int32_t world, int64_t lo, int64_t hi, enum td_dtype dtype,
                  struct td_reduce_how how) {
    TD_CHECK(td_reduce_supports(dtype, how.op));
    const bool adds = how.op == TD_REDUCE_SUM || how.op == TD_REDUCE_MEAN;
    switch (dtype) {
    case TD_F32:
        if (adds) {
            sum_f32(parts, world, lo, hi, how);
        } else {
            reduce_f32(parts, world, lo, hi, how);
        }
        return;
    case TD_F64:
        reduce_f64(parts, world, lo, hi, how);
        return;
    case TD_BF16:
        if (adds) lo = sum_half(parts, world, lo, hi, true, how);
        reduce_bf16(parts, world, lo, hi, how);
        return;
    case TD_F16:
        if (adds) lo = sum_half(parts, world, lo, hi, false, how);
        reduce_f16(parts, world, lo, hi, how);
        return;
    case TD_I32:
        reduce_i32(parts, world, lo, hi, how);
        return;
    case TD_I64:
        reduce_i64(parts, world, lo, hi, how);
        return;
    case TD_U8:
    case TD_BOOL:
        reduce_u8(parts, world, lo, hi, how);
        return;
    case TD_DTYPE_COUNT:
        return;
    }
}
