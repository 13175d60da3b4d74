// Conversion between the float types. Between fp32 and the 16-bit ones it is by the loops of
// half_loops.h; this is what checkpoints need. Between any other two it is by way of fp64, which
// holds all of them: one rounding.

#include "lib/base/floats/floats.h"

#include <math.h>
#include <string.h>

#include "lib/base/base.h"
#include "lib/base/floats/half.h"
#include "lib/base/floats/half_loops.h"

// A tensor of a file may be at any address.
static double load(enum td_dtype t, const void *x, int64_t i) {
    double v;
    float f;
    uint16_t h;
    const char *at = (const char *)x + (size_t)i * td_dtype_bytes(t);
    if (t == TD_F64) {
        memcpy(&v, at, sizeof v);
        return v;
    }
    if (t == TD_F32) {
        memcpy(&f, at, sizeof f);
        return (double)f;
    }
    memcpy(&h, at, sizeof h);
    return (double)(t == TD_BF16 ? td_f32_of_bf16(h) : td_f32_of_f16(h));
}

static void store(enum td_dtype t, void *y, int64_t i, double v) {
    char *at = (char *)y + (size_t)i * td_dtype_bytes(t);
    float f = (float)v;
    uint16_t h = t == TD_BF16 ? td_bf16_of_f64(v) : td_f16_of_f64(v);
    if (t == TD_F64) {
        memcpy(at, &v, sizeof v);
    } else if (t == TD_F32) {
        memcpy(at, &f, sizeof f);
    } else {
        memcpy(at, &h, sizeof h);
    }
}

bool td_is_float(enum td_dtype t) {
    return t == TD_F32 || t == TD_F64 || t == TD_BF16 || t == TD_F16;
}

void td_float_convert(enum td_dtype from, const void *x, int64_t n, enum td_dtype to, void *y) {
    TD_CHECK(td_is_float(from) && td_is_float(to));
    const struct td_half_loops *loops = TD_LEVELED_TABLE(td_half_loops);
    if (from == to) {
        memcpy(y, x, (size_t)n * td_dtype_bytes(to));
    } else if (from == TD_F32 && to == TD_BF16) {
        loops->bf16_of_f32(x, n, y);
    } else if (from == TD_F32 && to == TD_F16) {
        loops->f16_of_f32(x, n, y);
    } else if (from == TD_BF16 && to == TD_F32) {
        loops->f32_of_bf16(x, n, y);
    } else if (from == TD_F16 && to == TD_F32) {
        loops->f32_of_f16(x, n, y);
    } else {
        for (int64_t i = 0; i < n; i++) {
            store(to, y, i, load(from, x, i));
        }
    }
}

bool td_float_all_finite(enum td_dtype t, const void *x, int64_t n) {
    TD_CHECK(td_is_float(t));
    const struct td_half_loops *loops = TD_LEVELED_TABLE(td_half_loops);
    if (t == TD_F32) return loops->finite_32(x, n, 0x7f800000u);
    if (t == TD_BF16) return loops->finite_16(x, n, 0x7f80u);
    if (t == TD_F16) return loops->finite_16(x, n, 0x7c00u);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(load(t, x, i))) return false;
    }
    return true;
}
