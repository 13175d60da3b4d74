// Tensors of 16-bit floats, converted and checked; half_loops.h has the contract. A checkpoint is
// checked for what is not finite while the next step waits, and a restored one may be converted.
// Both pass over every weight. No loop ends early, which would keep it from vectors.

#include "lib/base/floats/half_loops.h"

#include <string.h>

#include "lib/base/floats/half.h"

#define DEFINE_CONVERSION(to, to_type, from, from_type)                                            \
    static void to##_of_##from(const void *restrict x, int64_t n, void *restrict y) {              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from_type v;                                                                           \
            memcpy(&v, (const char *)x + i * (int64_t)sizeof v, sizeof v);                         \
            to_type w = td_##to##_of_##from(v);                                                    \
            memcpy((char *)y + i * (int64_t)sizeof w, &w, sizeof w);                               \
        }                                                                                          \
    }

DEFINE_CONVERSION(bf16, uint16_t, f32, float)
DEFINE_CONVERSION(f16, uint16_t, f32, float)
DEFINE_CONVERSION(f32, float, bf16, uint16_t)
DEFINE_CONVERSION(f32, float, f16, uint16_t)

#define DEFINE_FINITE(bits, type)                                                                  \
    static bool finite_##bits(const void *x, int64_t n, type exponent) {                           \
        type found = 0;                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type v;                                                                                \
            memcpy(&v, (const char *)x + i * (int64_t)sizeof v, sizeof v);                         \
            found |= (v & exponent) == exponent;                                                   \
        }                                                                                          \
        return !found;                                                                             \
    }

DEFINE_FINITE(16, uint16_t)
DEFINE_FINITE(32, uint32_t)

const struct td_half_loops TD_LEVELED(td_half_loops) = {
    .bf16_of_f32 = bf16_of_f32,
    .f16_of_f32 = f16_of_f32,
    .f32_of_bf16 = f32_of_bf16,
    .f32_of_f16 = f32_of_f16,
    .finite_16 = finite_16,
    .finite_32 = finite_32,
};
