// One pass over samples or tokens; contract in scan_loops.h. No loop ends early: a test an element
// keeps compilers from vectors, and bad files are rare. Who finds a block that has a bad element
// looks for it alone.

#include "workloads/datasets/scan_loops.h"

#include <string.h>

static bool all_within(const float *x, int64_t n, float least, float most) {
    bool all = true;
    for (int64_t i = 0; i < n; i++) {
        all &= (x[i] >= least) & (x[i] <= most);
    }
    return all;
}

static bool all_within_f64(const double *x, int64_t n, double least, double most) {
    bool all = true;
    for (int64_t i = 0; i < n; i++) {
        all &= (x[i] >= least) & (x[i] <= most);
    }
    return all;
}

static uint32_t most_u16(const void *data, int64_t n) {
    const char *p = data;
    uint16_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, p + 2 * i, sizeof v);
        most = TD_MAX(most, v);
    }
    return most;
}

static uint32_t most_u32(const void *data, int64_t n) {
    const char *p = data;
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + 4 * i, sizeof v);
        most = TD_MAX(most, v);
    }
    return most;
}

static uint64_t most_u64(const void *data, int64_t n) {
    const char *p = data;
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v;
        memcpy(&v, p + 8 * i, sizeof v);
        most = TD_MAX(most, v);
    }
    return most;
}

const struct td_scan_loops TD_LEVELED(td_scan_loops) = {
    .all_within = all_within,
    .all_within_f64 = all_within_f64,
    .most_u16 = most_u16,
    .most_u32 = most_u32,
    .most_u64 = most_u64,
};
