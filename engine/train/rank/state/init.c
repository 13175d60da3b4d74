// Initial values (see init.h).
//
// Element i of a tensor uses number i of the stream (seed, name) when it is uniform, and numbers 2i
// and 2i + 1 when it is normal. So an element can be made alone, and a shard of a tensor is the
// slice of the whole. Rejected: torch's sequential generator, which ties every parameter to the
// order in which all others were made. A bad range is the module's fault and named with the tensor.

#include "engine/train/rank/state/init.h"

#include <math.h>
#include <string.h>

#include "engine/train/rank/state/init_loops.h"
#include "lib/base/rng.h"

static void fill_constant(float *out, int64_t n, float v) {
    for (int64_t i = 0; i < n; i++) {
        out[i] = v;
    }
}

static void fill_uniform(struct td_philox_key key, double a, double b, float *out, int64_t n) {
    const float top = nextafterf((float)b, (float)a);
    const struct td_init_loops *loops = TD_LEVELED_TABLE(td_init_loops);
    enum { N = 4096 }; // stays in the cache between the two
    for (int64_t i = 0; i < n; i += N) {
        const int64_t some = TD_MIN(n - i, (int64_t)N);
        td_philox_uniforms(key, (uint64_t)i, (size_t)some, out + i);
        loops->to_range(a, b, top, some, out + i);
    }
}

static void fill_normal(struct td_philox_key key, double mean, double deviation, float *out,
                        int64_t n) {
    enum { N = TD_INIT_NORMALS };
    const struct td_init_loops *loops = TD_LEVELED_TABLE(td_init_loops);
    float u[2 * N], some[N];
    for (int64_t i = 0; i < n; i += N) {
        td_philox_uniforms(key, 2 * (uint64_t)i, TD_COUNTOF(u), u);
        loops->normals(u, (float)mean, (float)deviation, some);
        memcpy(out + i, some, (size_t)TD_MIN(n - i, (int64_t)N) * sizeof *some);
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
