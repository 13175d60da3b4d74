// Widening and narrowing of rows; see the header. The arithmetic is lib/base/half.h's, in loops
// that vectorize.

#include "accelerators/cpu/kernels/convert.h"

#include <string.h>

#include "lib/base/half.h"

static void widen_bf16(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = td_f32_of_bf16(x[i]);
    }
}

static void widen_f16(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = td_f32_of_f16(x[i]);
    }
}

static void narrow_bf16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = td_bf16_of_f32(x[i]);
    }
}

static void narrow_f16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = td_f16_of_f32(x[i]);
    }
}

void td_cpu_widen(enum td_dtype t, const void *src, int64_t n, float *dst) {
    if (t == TD_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (t == TD_BF16) {
        widen_bf16(src, n, dst);
    } else {
        TD_DCHECK(t == TD_F16);
        widen_f16(src, n, dst);
    }
}

void td_cpu_narrow(enum td_dtype t, const float *src, int64_t n, void *dst) {
    if (t == TD_F32) {
        memcpy(dst, src, (size_t)n * sizeof *src);
    } else if (t == TD_BF16) {
        narrow_bf16(src, n, dst);
    } else {
        TD_DCHECK(t == TD_F16);
        narrow_f16(src, n, dst);
    }
}
