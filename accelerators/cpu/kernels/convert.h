#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_CONVERT_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_CONVERT_H

// Rows of any float type as rows of fp32: kernels compute in fp32 on a row that is in L1,
// whatever type the tensors have. An f32 row is used where it is, others pass through `buffer` (n
// floats). f64 is not taken: td_cpu_is_narrow says which are. Pure functions; any thread.

#include "lib/base/base.h"
#include "traind/types.h"

// f32 and the 16-bit floats.
static inline bool td_cpu_is_narrow(enum td_dtype t) {
    return t == TD_F32 || t == TD_BF16 || t == TD_F16;
}

void td_cpu_widen(enum td_dtype t, const void *src, int64_t n, float *dst);
void td_cpu_narrow(enum td_dtype t, const float *src, int64_t n, void *dst);
// All n elements of x as another type, on n_threads threads; x and y do not overlap.
void td_cpu_convert(int32_t n_threads, enum td_dtype from, const void *x, enum td_dtype to, void *y,
                    int64_t n);

static inline const void *td_cpu_at(enum td_dtype t, const void *x, int64_t at) {
    return (const char *)x + at * (int64_t)td_dtype_bytes(t);
}

// n elements of x from element `at` on, to be read.
static inline const float *td_cpu_row(enum td_dtype t, const void *x, int64_t at, int64_t n,
                                      float *buffer) {
    if (t == TD_F32) return (const float *)x + at;
    td_cpu_widen(t, td_cpu_at(t, x, at), n, buffer);
    return buffer;
}

// Where n elements of y from element `at` on are to be written; td_cpu_put then brings them home.
static inline float *td_cpu_result(enum td_dtype t, void *y, int64_t at, float *buffer) {
    return t == TD_F32 ? (float *)y + at : buffer;
}

static inline void td_cpu_put(enum td_dtype t, const float *buffer, int64_t n, void *y,
                              int64_t at) {
    if (t == TD_F32) return;
    td_cpu_narrow(t, buffer, n, (char *)y + at * (int64_t)td_dtype_bytes(t));
}

#endif
