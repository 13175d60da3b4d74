// Initial values (see init.h).
//
// Element i of a tensor uses number i of the stream (seed, name) when it is uniform, and numbers 2i
// and 2i + 1 when it is normal: so an element can be made alone, and a shard of a tensor is the
// slice of the whole. Rejected: torch's sequential generator, which ties every parameter to the
// order in which all others were made. A bad range is the module's fault and named with the tensor.

#include "engine/train/init.h"

#include <math.h>
#include <string.h>

#include "lib/base/rng.h"

static void fill_constant(float *out, int64_t n, float v) {
    for (int64_t i = 0; i < n; i++)
        out[i] = v;
}

// The sum may round up to b, which the range excludes.
static void fill_uniform(struct td_philox_key key, double a, double b, float *out, int64_t n) {
    const float top = nextafterf((float)b, (float)a);
    td_philox_uniforms(key, 0, (size_t)n, out);
    for (int64_t i = 0; i < n; i++) {
        float v = (float)(a + (b - a) * (double)out[i]);
        out[i] = v < (float)b ? v : top;
    }
}

// Box and Muller in fp32: log and cosine by polynomials, in loops that become vectors, because a
// gpt has ten millions of these to make before its first step. No product is contracted (ISO mode),
// so every processor gets the same bits.
enum { NORMALS = 64 };

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

// u: 2 * NORMALS numbers in [0, 1).
TD_CLONES static void normals(const float *restrict u, float mean, float deviation,
                              float *restrict out) {
    float square[NORMALS];
    for (int i = 0; i < NORMALS; i++)
        square[i] = -2 * log_of(1 - u[2 * i]);
    for (int i = 0; i < NORMALS; i++)
        out[i] = mean + deviation * (sqrtf(square[i]) * cos_of_turn(u[2 * i + 1]));
}

static void fill_normal(struct td_philox_key key, double mean, double deviation, float *out,
                        int64_t n) {
    float u[2 * NORMALS], some[NORMALS];
    for (int64_t i = 0; i < n; i += NORMALS) {
        td_philox_uniforms(key, 2 * (uint64_t)i, TD_COUNTOF(u), u);
        normals(u, (float)mean, (float)deviation, some);
        memcpy(out + i, some, (size_t)TD_MIN(n - i, (int64_t)NORMALS) * sizeof *some);
    }
}

td_status td_init_fill(uint64_t seed, const struct td_state_info *info, float *out) {
    const double a = info->init.a, b = info->init.b;
    const int64_t n = td_shape_elems(&info->shape);
    const struct td_philox_key key = td_philox_key_of(seed, info->name);
    switch (info->init.kind) {
    case TD_INIT_ZERO:
        fill_constant(out, n, 0.0f);
        return TD_OK;
    case TD_INIT_CONST:
        fill_constant(out, n, (float)a);
        return TD_OK;
    case TD_INIT_UNIFORM:
        if (!isfinite(a) || !isfinite(b) || (float)a >= (float)b) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "init of '%s': uniform in [%g, %g) is no range of fp32", info->name, a,
                           b);
        }
        fill_uniform(key, a, b, out, n);
        return TD_OK;
    case TD_INIT_NORMAL:
        if (!isfinite(a) || !isfinite(b) || b < 0) {
            return td_fail(TD_INVALID_ARGUMENT, "init of '%s': mean %g, deviation %g", info->name,
                           a, b);
        }
        fill_normal(key, a, b, out, n);
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT, "init of '%s': unknown kind %d", info->name,
                   (int)info->init.kind);
}
