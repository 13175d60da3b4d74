#ifndef TRAIND_COLLECTIVES_REDUCE_LOOPS_H
#define TRAIND_COLLECTIVES_REDUCE_LOOPS_H

// The loops of sums and means of gradients, compiled once per CPU level. The bits are the same at
// every one, because each element's sum runs over the ranks in order and the width of a vector
// changes nothing in it. Blocks have a constant length, which compilers unroll; x is any address of
// that many elements, acc is aligned to 64 bytes. Pure; any thread; nothing fails.

#include "lib/base/cpu_level.h"

enum { TD_REDUCE_BLOCK = 512 }; // elements of an accumulator on the stack; 2 KiB of fp32

struct td_reduce_loops {
    // Both become (a + b) * by.
    void (*pair_f32)(float *a, float *b, int64_t n, float by);
    // acc += a block of x, in its type.
    void (*add_f32)(float *acc, const void *x);
    void (*add_bf16)(float *acc, const void *x);
    void (*add_f16)(float *acc, const void *x);
    // acc of a block of x, and a block y of acc, rounded to its type.
    void (*widen_bf16)(float *acc, const void *x);
    void (*widen_f16)(float *acc, const void *x);
    void (*narrow_bf16)(const float *acc, void *y);
    void (*narrow_f16)(const float *acc, void *y);
    // acc *= by, acc /= by
    void (*multiply)(float *acc, float by);
    void (*divide)(float *acc, float by);
};
TD_LEVELED_DECLARE(struct td_reduce_loops, td_reduce_loops);

#endif
