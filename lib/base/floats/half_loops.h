#ifndef TRAIND_LIB_BASE_FLOATS_HALF_LOOPS_H
#define TRAIND_LIB_BASE_FLOATS_HALF_LOOPS_H

// The loops of half.h over whole tensors, compiled once per CPU level; the same bits at every one.
// Elements may be at any address; x and y do not overlap. Pure; any thread; nothing fails.

#include "lib/base/cpu_level.h"

struct td_half_loops {
    void (*bf16_of_f32)(const void *x, int64_t n, void *y);
    void (*f16_of_f32)(const void *x, int64_t n, void *y);
    void (*f32_of_bf16)(const void *x, int64_t n, void *y);
    void (*f32_of_f16)(const void *x, int64_t n, void *y);
    // Has no element all bits of `exponent`?
    bool (*finite_16)(const void *x, int64_t n, uint16_t exponent);
    bool (*finite_32)(const void *x, int64_t n, uint32_t exponent);
};
TD_LEVELED_DECLARE(struct td_half_loops, td_half_loops);

#endif
