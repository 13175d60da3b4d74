// Box and Muller in fp32; contract in init_loops.h.
//
// Log and cosine are polynomials, in loops that become vectors, because a gpt has ten millions of
// these to make before its first step. No product is contracted, so every processor gets the same
// bits. Rejected: libm's functions, whose bits are another library's to change.

#include "engine/train/rank/state/init_loops.h"

#include <math.h>
#include <string.h>

// log(u) of u in [2^-24, 1] (Moshier's Cephes, single precision).
static inline float log_of(float u) {
    int32_t bits, exponent;
    memcpy(&bits, &u, sizeof bits);
    exponent = (bits - 0x3f3504f3) >> 23; // so that what is left is in [sqrt(1/2), sqrt(2))
    bits -= (int32_t)((uint32_t)exponent << 23);
    float x, e = (float)exponent;
    memcpy(&x, &bits, sizeof x);
    x -= 1;
    float z = x * x, y = 7.0376836292e-2f;
    y = y * x - 1.1514610310e-1f;
    y = y * x + 1.1676998740e-1f;
    y = y * x - 1.2420140846e-1f;
    y = y * x + 1.4249322787e-1f;
    y = y * x - 1.6668057665e-1f;
    y = y * x + 2.0000714765e-1f;
    y = y * x - 2.4999993993e-1f;
    y = y * x + 3.3333331174e-1f;
    y = y * x * z - 2.12194440e-4f * e - 0.5f * z;
    return x + y + 0.693359375f * e;
}

// cos(2 pi v) of v in [0, 1): minus the sine of a quarter turn less the distance from the half.
static inline float cos_of_turn(float v) {
    float b = 0.25f - fabsf(v - 0.5f), x = 6.2831853072f * b, z = x * x;
    float y = 1.6059044e-10f; // 1/13!, -1/11!, ...
    y = y * z - 2.5052108e-8f;
    y = y * z + 2.7557319e-6f;
    y = y * z - 1.9841270e-4f;
    y = y * z + 8.3333333e-3f;
    y = y * z - 1.6666667e-1f;
    return -(x + x * z * y);
}

static void normals(const float *restrict u, float mean, float deviation, float *restrict out) {
    float square[TD_INIT_NORMALS];
    for (int i = 0; i < TD_INIT_NORMALS; i++) {
        square[i] = -2 * log_of(1 - u[2 * i]);
    }
    for (int i = 0; i < TD_INIT_NORMALS; i++) {
        out[i] = mean + deviation * (sqrtf(square[i]) * cos_of_turn(u[2 * i + 1]));
    }
}

// The sum may round up to b, which the range excludes.
static void to_range(double a, double b, float top, int64_t n, float *v) {
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(a + (b - a) * (double)v[i]);
        v[i] = x < (float)b ? x : top;
    }
}

const struct td_init_loops TD_LEVELED(td_init_loops) = {
    .normals = normals,
    .to_range = to_range,
};
