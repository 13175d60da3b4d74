#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_VMATH_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_VMATH_H

// exp, log, tanh, erf and sqrt in plain C without branches or calls. So a loop over them vectorizes
// at every CPU level (libm's would be called once an element). That each does is checked by
// tests/tools/vectorized.py. For loops alone: what is needed once a row is <math.h>'s. fp32 with
// denormals as zero.
// Largest error against fp64 over the range: exp 1e-7, log 1e-7, tanh 1.5e-7, erf 5e-7, relative.
// Sources: the polynomials of Cephes (Moshier) for exp, log and tanh, Eigen's rational
// approximation for erf. NaN stays NaN; exp overflows to infinity where it should.

#include <math.h>
#include <stdint.h>

union vm_bits {
    float f;
    uint32_t u;
};

// The nearest whole number, of x below 2^22. SSE2 has no instruction for it, so that rintf would be
// a call: there, the sum with 1.5 * 2^23 has no room for a fraction. Same bits.
static inline float vm_nearest(float x) {
#if defined(__x86_64__) && !defined(__SSE4_1__)
    return (x + 12582912.0f) - 12582912.0f;
#else
    return rintf(x);
#endif
}

static inline float vm_sqrt(float x) {
    return sqrtf(x);
}

// 2^n r, with x = n ln 2 + r and ln 2 in two parts.
static inline float vm_exp(float x) {
    x = 89.0f < x ? 89.0f : x;
    x = -87.3f > x ? -87.3f : x;
    float n = vm_nearest(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    // One power of two less, times two: 2^128 is no float, exp(88.7) is one.
    union vm_bits half = {.u = (uint32_t)((int32_t)n + 126) << 23};
    return p * half.f * 2;
}

static inline float vm_sigmoid(float x) {
    return 1 / (1 + vm_exp(-x));
}

static inline float vm_tanh(float x) {
    float z = x * x, p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float large = copysignf(1 - 2 / (vm_exp(2 * fabsf(x)) + 1), x);
    return fabsf(x) < 0.625f ? p * z * x + x : large;
}

static inline float vm_erf(float x) {
    x = x > 4 ? 4 : x < -4 ? -4 : x;
    float z = x * x, p = -2.72614225801306e-10f, q = -1.45660718464996e-05f;
    p = p * z + 2.77068142495902e-08f;
    p = p * z - 2.10102402082508e-06f;
    p = p * z - 5.69250639462346e-05f;
    p = p * z - 7.34990630326855e-04f;
    p = p * z - 2.95459980854025e-03f;
    p = p * z - 1.60960333262415e-02f;
    q = q * z - 2.13374055278905e-04f;
    q = q * z - 1.68282697438203e-03f;
    q = q * z - 7.37332916720468e-03f;
    q = q * z - 1.42647390514189e-02f;
    return x * p / q;
}

// e ln 2 + ln m, with x = m 2^e and m in [sqrt(1/2), sqrt(2)).
static inline float vm_log(float x) {
    union vm_bits b = {.f = x};
    float e = (float)((int32_t)(b.u >> 23) - 126);
    b.u = (b.u & 0x7fffffu) | 0x3f000000u;
    float low = b.f < 0.707106781f ? 1.0f : 0.0f, m = b.f - 1 + low * b.f, z = m * m;
    e -= low;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = m + (p * m * z - e * 2.12194440e-4f - 0.5f * z) + e * 0.693359375f;
    y = x < 3.4e38f ? y : x; // infinity and NaN
    y = x < 1.17549435e-38f ? -INFINITY : y;
    return x < 0 ? NAN : y;
}

#endif
