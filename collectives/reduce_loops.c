// Blocks of gradients: added, scaled, widened and narrowed; contract in reduce_loops.h. A block is
// an accumulator on the stack. It stays in the first cache while all ranks are added to it. Sums of
// two ranks, the most usual, need none: both rows stay in registers.

#include "collectives/reduce_loops.h"

#include "lib/base/floats/half.h"

enum { N = TD_REDUCE_BLOCK };

static void pair_f32(float *restrict a, float *restrict b, int64_t n, float by) {
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

static void add_f32(float *restrict acc, const void *restrict x) {
    const float *v = x;
    for (int j = 0; j < N; j++) {
        acc[j] += v[j];
    }
}

#define DEFINE_HALF(name)                                                                          \
    static void add_##name(float *restrict acc, const void *restrict x) {                          \
        const uint16_t *v = x;                                                                     \
        for (int j = 0; j < N; j++) {                                                              \
            acc[j] += td_f32_of_##name(v[j]);                                                      \
        }                                                                                          \
    }                                                                                              \
    static void widen_##name(float *restrict acc, const void *restrict x) {                        \
        const uint16_t *v = x;                                                                     \
        for (int j = 0; j < N; j++) {                                                              \
            acc[j] = td_f32_of_##name(v[j]);                                                       \
        }                                                                                          \
    }                                                                                              \
    static void narrow_##name(const float *restrict acc, void *restrict y) {                       \
        uint16_t *v = y;                                                                           \
        for (int j = 0; j < N; j++) {                                                              \
            v[j] = td_##name##_of_f32(acc[j]);                                                     \
        }                                                                                          \
    }

DEFINE_HALF(bf16)
DEFINE_HALF(f16)

static void multiply(float *restrict acc, float by) {
    for (int j = 0; j < N; j++) {
        acc[j] *= by;
    }
}

static void divide(float *restrict acc, float by) {
    for (int j = 0; j < N; j++) {
        acc[j] /= by;
    }
}

const struct td_reduce_loops TD_LEVELED(td_reduce_loops) = {
    .pair_f32 = pair_f32,
    .add_f32 = add_f32,
    .add_bf16 = add_bf16,
    .add_f16 = add_f16,
    .widen_bf16 = widen_bf16,
    .widen_f16 = widen_f16,
    .narrow_bf16 = narrow_bf16,
    .narrow_f16 = narrow_f16,
    .multiply = multiply,
    .divide = divide,
};
