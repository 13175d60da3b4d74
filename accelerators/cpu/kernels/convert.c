// Widening and narrowing of rows; see the header. The arithmetic is lib/base/floats/half.h's, in
// loops that vectorize.

#include "accelerators/cpu/kernels/convert.h"

#include <string.h>

#include "accelerators/cpu/parallel.h"
#include "lib/base/floats/half.h"

enum { CHUNK = 1024, GRAIN = 8192 };

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

struct conversion {
    enum td_dtype from, to;
    const void *x;
    void *y;
};

static void convert_range(const void *arg, int64_t begin, int64_t end) {
    const struct conversion *c = arg;
    for (int64_t i = begin; i < end; i += CHUNK) {
        const int64_t n = TD_MIN(end - i, (int64_t)CHUNK);
        float buffer[CHUNK];
        const float *x = td_cpu_row(c->from, c->x, i, n, buffer);
        td_cpu_narrow(c->to, x, n, (char *)c->y + i * (int64_t)td_dtype_bytes(c->to));
    }
}

void td_cpu_convert(int32_t n_threads, enum td_dtype from, const void *x, enum td_dtype to, void *y,
                    int64_t n) {
    struct conversion c = {from, to, x, y};
    td_parallel(n_threads, n, GRAIN, convert_range, &c);
}
