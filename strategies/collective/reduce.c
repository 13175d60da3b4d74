// Slice reduction (see reduce.h).
//
// Sums run left to right over the ranks for each element, so the vector width changes nothing in
// the bits. Division: a world that is a power of two multiplies by its reciprocal, which is exact
// and so gives the same correctly rounded quotient; others divide. 16-bit
// floats: lib/base/half.h.

#include "strategies/collective/reduce.h"

#include <string.h>

#include "lib/base/half.h"

enum { BLOCK = 512 }; // elements of an accumulator on the stack; 2 KiB of fp32

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
    }
    return "unknown";
}

bool td_reduce_supports(enum td_dtype dtype, enum td_reduce_op op) {
    if ((unsigned)dtype >= TD_DTYPE_COUNT || (unsigned)op > TD_REDUCE_MIN) return false;
    return dtype != TD_BOOL || op == TD_REDUCE_MAX || op == TD_REDUCE_MIN;
}

// ---- fp32 sums and means -----------------------------------------------------------------------
// How the sum becomes the result: times a (1 or an exact reciprocal), or divided by a.
struct scaling {
    float by;
    bool divide;
};

static struct scaling scaling_of(int32_t world, enum td_reduce_op op) {
    if (op == TD_REDUCE_SUM) return (struct scaling){1.0f, false};
    bool power_of_two = (world & (world - 1)) == 0;
    return (struct scaling){power_of_two ? 1.0f / (float)world : (float)world, !power_of_two};
}

TD_CLONES static void pair_f32(float *restrict a, float *restrict b, int64_t n, float by) {
    for (; n >= 128; n -= 128, a += 128, b += 128) {
        for (int j = 0; j < 128; j++) {
            float s = (a[j] + b[j]) * by;
            a[j] = s;
            b[j] = s;
        }
    }
    for (int64_t j = 0; j < n; j++) {
        float s = (a[j] + b[j]) * by;
        a[j] = s;
        b[j] = s;
    }
}

TD_CLONES static void add_block_f32(float *restrict acc, const float *restrict x) {
    for (int j = 0; j < BLOCK; j++)
        acc[j] += x[j];
}

TD_CLONES static void scale_block_f32(float *restrict acc, struct scaling s) {
    if (s.divide) {
        for (int j = 0; j < BLOCK; j++)
            acc[j] /= s.by;
    } else {
        for (int j = 0; j < BLOCK; j++)
            acc[j] *= s.by;
    }
}

static void sum_f32(void *const *parts, int32_t world, int64_t lo, int64_t hi,
                    enum td_reduce_op op) {
    struct scaling s = scaling_of(world, op);
    if (world == 2) {
        pair_f32((float *)parts[0] + lo, (float *)parts[1] + lo, hi - lo, s.by);
        return;
    }
    _Alignas(64) float acc[BLOCK];
    int64_t i = lo;
    for (; hi - i >= BLOCK; i += BLOCK) {
        memcpy(acc, (const float *)parts[0] + i, sizeof acc);
        for (int32_t p = 1; p < world; p++)
            add_block_f32(acc, (const float *)parts[p] + i);
        scale_block_f32(acc, s);
        for (int32_t p = 0; p < world; p++)
            memcpy((float *)parts[p] + i, acc, sizeof acc);
    }
    for (; i < hi; i++) {
        float v = ((const float *)parts[0])[i];
        for (int32_t p = 1; p < world; p++)
            v += ((const float *)parts[p])[i];
        v = s.divide ? v / s.by : v * s.by;
        for (int32_t p = 0; p < world; p++)
            ((float *)parts[p])[i] = v;
    }
}

// ---- every other dtype and op -------------------------------------------------------------------
#define SAME(x) (x)
#define DEFINE_REDUCE(name, type, acc_type, LOAD, STORE)                                           \
    static void reduce_##name(void *const *parts, int32_t world, int64_t lo, int64_t hi,           \
                              enum td_reduce_op op) {                                              \
        for (int64_t i = lo; i < hi; i++) {                                                        \
            acc_type acc = LOAD(((const type *)parts[0])[i]);                                      \
            for (int32_t p = 1; p < world; p++) {                                                  \
                acc_type x = LOAD(((const type *)parts[p])[i]);                                    \
                if (op == TD_REDUCE_MAX) {                                                         \
                    acc = acc > x || acc != acc ? acc : x;                                         \
                } else if (op == TD_REDUCE_MIN) {                                                  \
                    acc = acc < x || acc != acc ? acc : x;                                         \
                } else {                                                                           \
                    acc += x;                                                                      \
                }                                                                                  \
            }                                                                                      \
            if (op == TD_REDUCE_MEAN) acc /= (acc_type)world;                                      \
            for (int32_t p = 0; p < world; p++)                                                    \
                ((type *)parts[p])[i] = (type)STORE(acc);                                          \
        }                                                                                          \
    }

DEFINE_REDUCE(f32, float, float, SAME, SAME)
DEFINE_REDUCE(f64, double, double, SAME, SAME)
DEFINE_REDUCE(bf16, uint16_t, float, td_f32_of_bf16, td_bf16_of_f32)
DEFINE_REDUCE(f16, uint16_t, float, td_f32_of_f16, td_f16_of_f32)
DEFINE_REDUCE(i32, int32_t, int64_t, SAME, SAME)
DEFINE_REDUCE(i64, int64_t, wide_int, SAME, SAME)
DEFINE_REDUCE(u8, uint8_t, int64_t, SAME, SAME)

void td_reduce(void *const *parts, int32_t world, int64_t lo, int64_t hi, enum td_dtype dtype,
               enum td_reduce_op op) {
    TD_CHECK(td_reduce_supports(dtype, op));
    switch (dtype) {
    case TD_F32:
        if (op == TD_REDUCE_SUM || op == TD_REDUCE_MEAN) {
            sum_f32(parts, world, lo, hi, op);
        } else {
            reduce_f32(parts, world, lo, hi, op);
        }
        return;
    case TD_F64:
        reduce_f64(parts, world, lo, hi, op);
        return;
    case TD_BF16:
        reduce_bf16(parts, world, lo, hi, op);
        return;
    case TD_F16:
        reduce_f16(parts, world, lo, hi, op);
        return;
    case TD_I32:
        reduce_i32(parts, world, lo, hi, op);
        return;
    case TD_I64:
        reduce_i64(parts, world, lo, hi, op);
        return;
    case TD_U8:
    case TD_BOOL:
        reduce_u8(parts, world, lo, hi, op);
        return;
    case TD_DTYPE_COUNT:
        return;
    }
}
