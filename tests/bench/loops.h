#ifndef TRAIND_TESTS_BENCH_LOOPS_H
#define TRAIND_TESTS_BENCH_LOOPS_H

// Loops that the bench compares with, compiled once per CPU level as kernels are
// (lib/base/cpu_level.h). They show what the cores can do at best, and what a compiler makes of a
// plain product.

#include <stdlib.h>

#include "lib/base/cpu_level.h"

struct td_bench_loops {
    // n rounds of multiply-adds on registers alone; flops of one round. Returns a sum, so that
    // none is left out.
    float (*fma)(int64_t n, float b, float c);
    double fma_flops;
    // The same of dot products of bf16 pairs; NULL: the level's objects have none. Only where the
    // level in use is avx512_bf16 or above.
    float (*dot)(int64_t n);
    double dot_flops;
    // c (m, n) = a (m, k) b (k, n): three loops, as a C programmer writes them first.
    void (*product)(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);
};
TD_LEVELED_DECLARE(struct td_bench_loops, td_bench_loops);

static inline const struct td_bench_loops *td_bench_loops(void) {
    return TD_LEVELED_TABLE(td_bench_loops);
}

// TRAIND_CPU_ISA holds a program of the bench to a lower CPU level, as it does a worker.
TD_MUST_USE static inline td_status bench_hold_level(void) {
    const char *name = getenv("TRAIND_CPU_ISA");
    enum td_cpu_level level;
    if (!name || !*name) return TD_OK;
    if (!td_cpu_level_parse(name, &level)) {
        return td_fail(TD_INVALID_ARGUMENT, "TRAIND_CPU_ISA: '%s' is no CPU level", name);
    }
    return td_cpu_level_hold(level);
}

#endif
