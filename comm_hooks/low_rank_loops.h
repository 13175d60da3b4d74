#ifndef TRAIND_COMM_HOOKS_LOW_RANK_LOOPS_H
#define TRAIND_COMM_HOOKS_LOW_RANK_LOOPS_H

// The loops of power_sgd over one matrix, compiled once per CPU level. M (n, m) is row-major; its
// factors are stored factor by factor: P (r, n) and Q (r, m), so that every loop runs along memory.
// The bits are the same at every level: a dot product has 16 sums of its own at any width. Pure;
// any thread; nothing fails. Arrays do not overlap.

#include "lib/base/cpu_level.h"

struct td_low_rank_loops {
    // M += E
    void (*add)(float *m, const float *e, int64_t n);
    // P = M Q': the part of each row on each factor of Q.
    void (*left)(const float *m, int64_t rows, int64_t cols, const float *q, int64_t rank,
                 float *p);
    // Q = M' P
    void (*right)(const float *m, int64_t rows, int64_t cols, const float *p, int64_t rank,
                  float *q);
    // M becomes P Q; error becomes what M was minus that; NULL: nobody wants it.
    void (*expand)(float *m, int64_t rows, int64_t cols, const float *p, const float *q,
                   int64_t rank, float *error);
};
TD_LEVELED_DECLARE(struct td_low_rank_loops, td_low_rank_loops);

#endif
