#ifndef TRAIND_ACCELERATORS_CPU_PARALLEL_H
#define TRAIND_ACCELERATORS_CPU_PARALLEL_H

// Work split over the rank's threads, in static ranges. Thread: the rank's training thread, but for
// td_parallel_index.

#include "lib/base/base.h"
#include "traind/types.h"

enum { TD_CPU_MAX_THREADS = 256 };

// Splits [0, n) into one static range a thread, borders at whole cache lines of fp32, none empty;
// at most n / grain threads. fn(arg, begin, end) runs on each; ranges do not depend on timing.
typedef void td_range_fn(const void *arg, int64_t begin, int64_t end);
void td_parallel(int32_t n_threads, int64_t n, int64_t grain, td_range_fn *fn, const void *arg);
// The same split, for kernels that keep one partial result a range. Returns how many ranges.
int32_t td_parallel_ranges(int32_t n_threads, int64_t n, int64_t grain);
// Splits n units as evenly as they go, wherever the borders are, over no more threads than their
// work pays for. `work` counts elements that are read once and written once, of all units.
void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg);
// The work of so many by so many inner products of length k.
static inline int64_t td_parallel_products(int64_t m, int64_t n, int64_t k) {
    enum { MULTIPLY_ADDS = 16 }; // in the time of an element
    return (m * n / MULTIPLY_ADDS + 1) * k;
}
// Inside fn: which range this is, to find the memory that belongs to it.
int32_t td_parallel_index(void);
// How many threads the team has.
int32_t td_parallel_threads(void);
// Sizes the team and sets flush-to-zero in each of its threads. FAILED_PRECONDITION, class
// bad_spec: the environment allows no team of that size.
TD_MUST_USE td_status td_parallel_open(int32_t n_threads);

#endif
