#ifndef TRAIND_LIB_BASE_FLOATS_HALF_H
#define TRAIND_LIB_BASE_FLOATS_HALF_H

// The 16-bit floats, by their bits: bf16 (8 bits of exponent, 7 of fraction) and f16 (5 and 10).
//
// Widening is exact. Narrowing rounds once, to nearest with ties to even; what is too large becomes
// infinity, NaN stays NaN, subnormals are kept. From fp64 the value passes through fp32 rounded to
// odd, which keeps the second rounding from seeing a tie where there was none. The stochastic form
// rounds up with the probability of what is cut off, so that its mean is the value. Integer
// arithmetic throughout: neither gcc's _Float16 nor the processor's flags come into the bits, and
// loops over the functions vectorize (floats.h has those over whole tensors). Pure; any thread.

#include <string.h>

#include "traind/types.h"

static inline uint32_t td_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float td_f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

// ---- widening -----------------------------------------------------------------------------------
static inline float td_f32_of_bf16(uint16_t h) {
    return td_f32_of_bits((uint32_t)h << 16);
}

static inline float td_f32_of_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, frac = h & 0x3ffu;
    if (exp == 31) return td_f32_of_bits(sign | 0x7f800000u | (frac << 13));
    if (exp) return td_f32_of_bits(sign | ((exp + 112) << 23) | (frac << 13));
    float tiny = (float)frac * 0x1p-24f; // zero and subnormals, exact
    return sign ? -tiny : tiny;
}

// ---- narrowing ----------------------------------------------------------------------------------
static inline uint16_t td_bf16_of_f32(float f) {
    uint32_t u = td_f32_bits(f), rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)(((u & 0x7fffffffu) > 0x7f800000u ? u | 0x400000u : rounded) >> 16);
}

static inline uint16_t td_f16_of_f32(float f) {
    uint32_t u = td_f32_bits(f), sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and up round to infinity
    if (mag < 0x38800000u) { // below 2^-14: fp32's own rounding at the ulp of f16 subnormals
        return (uint16_t)(sign | (td_f32_bits(td_f32_of_bits(mag) + 0.5f) - td_f32_bits(0.5f)));
    }
    uint32_t r = mag + 0xfffu + ((mag >> 13) & 1u);
    return (uint16_t)(sign | ((r - (112u << 23)) >> 13));
}

// fp64 -> fp32 rounded to odd: an inexact result has its last bit set.
static inline float td_f32_odd_of_f64(double v) {
    float f = (float)v;
    if ((double)f == v || v != v) return f;
    uint32_t u = td_f32_bits(f);
    double size = v < 0 ? -v : v, rounded = (double)(f < 0 ? -f : f);
    return td_f32_of_bits((rounded > size ? u - 1 : u) | 1u);
}

static inline uint16_t td_bf16_of_f64(double v) {
    return td_bf16_of_f32(td_f32_odd_of_f64(v));
}

static inline uint16_t td_f16_of_f64(double v) {
    return td_f16_of_f32(td_f32_odd_of_f64(v));
}

// Rounds away from zero where `random`, of 16 bits, is at least what is missing to the next number.
static inline uint16_t td_bf16_of_f32_random(float f, uint32_t random) {
    uint32_t u = td_f32_bits(f);
    if ((u & 0x7f800000u) == 0x7f800000u) return td_bf16_of_f32(f);
    return (uint16_t)((u + (random & 0xffffu)) >> 16);
}

#endif
