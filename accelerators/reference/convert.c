// Element types of the reference: every kernel computes in fp64; here operands are widened and
// results rounded once, to nearest even (lib/base/floats/half.h). i64 beyond 2^53 loses bits; only
// labels and indices are integers. Pure functions.

#include "accelerators/reference/convert.h"

#include <math.h>

#include "lib/base/floats/half.h"

// Integers saturate; NaN becomes 0. A cast must not be undefined behaviour.
static double clamp(double v, double low, double high) {
    if (isnan(v)) return 0;
    return v < low ? low : v > high ? high : v;
}

#define LOAD_LOOP(type, expr)                                                                      \
    {                                                                                              \
        const type *p = from;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            to[i] = (double)(expr);                                                                \
        }                                                                                          \
        return;                                                                                    \
    }

void td_ref_load(enum td_dtype dtype, const void *from, int64_t n, double *to) {
    switch (dtype) {
    case TD_F32:
        LOAD_LOOP(float, p[i])
    case TD_F64:
        LOAD_LOOP(double, p[i])
    case TD_BF16:
        LOAD_LOOP(uint16_t, td_f32_of_bf16(p[i]))
    case TD_F16:
        LOAD_LOOP(uint16_t, td_f32_of_f16(p[i]))
    case TD_I32:
        LOAD_LOOP(int32_t, p[i])
    case TD_I64:
        LOAD_LOOP(int64_t, p[i])
    case TD_U8:
        LOAD_LOOP(uint8_t, p[i])
    case TD_BOOL:
        LOAD_LOOP(uint8_t, p[i] != 0)
    case TD_DTYPE_COUNT:
        break;
    }
    TD_CHECK(false && "element type has no kernel");
}

#define STORE_LOOP(type, expr)                                                                     \
    {                                                                                              \
        type *p = to;                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            p[i] = (type)(expr);                                                                   \
        }                                                                                          \
        return;                                                                                    \
    }

void td_ref_store(enum td_dtype dtype, const double *from, int64_t n, void *to) {
    switch (dtype) {
    case TD_F32:
        STORE_LOOP(float, from[i])
    case TD_F64:
        STORE_LOOP(double, from[i])
    case TD_BF16:
        STORE_LOOP(uint16_t, td_bf16_of_f64(from[i]))
    case TD_F16:
        STORE_LOOP(uint16_t, td_f16_of_f64(from[i]))
    case TD_I32:
        STORE_LOOP(int32_t, clamp(from[i], INT32_MIN, INT32_MAX))
    case TD_I64:
        STORE_LOOP(int64_t, clamp(from[i], -0x1p53, 0x1p53))
    case TD_U8:
        STORE_LOOP(uint8_t, clamp(from[i], 0, UINT8_MAX))
    case TD_BOOL:
        STORE_LOOP(uint8_t, from[i] != 0)
    case TD_DTYPE_COUNT:
        break;
    }
    TD_CHECK(false && "element type has no kernel");
}

double td_ref_round(enum td_dtype dtype, double v) {
    if (dtype == TD_F64) return v;
    if (dtype == TD_F32) return (double)(float)v;
    double back;
    uint64_t word;
    td_ref_store(dtype, &v, 1, &word);
    td_ref_load(dtype, &word, 1, &back);
    return back;
}
