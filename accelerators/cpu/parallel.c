// The one OpenMP loop of the plugin. A range belongs to a thread by its number alone (static
// split). So the same thread count gives the same bits, and a rank's data stays in the caches of
// the core that made it. Kernels of a level are called from inside the region and start no threads.
//
// Denormals: flushed in every thread of the team, as torch's scripts do; oneDNN leaves the mode as
// it finds it. The team is sized by omp_set_num_threads of the training thread, the only caller. A
// range that no thread is there for would not be computed, so a smaller team is refused at once.

#include "accelerators/cpu/parallel.h"

#include <omp.h>

#include "lib/base/machine/machine.h"

// A parallel region costs about half a microsecond, as much as a thousand elements.
enum { RANGE_ALIGN = TD_LINE_BYTES / sizeof(float), WORK_OF_A_THREAD = 4096 };

static int64_t step_of(int64_t n, int64_t ranges) {
    int64_t step = (n + ranges - 1) / ranges;
    return (step + RANGE_ALIGN - 1) / RANGE_ALIGN * RANGE_ALIGN;
}

// Few elements and many threads: rounding the step up may leave nothing for the last ones.
int32_t td_parallel_ranges(int32_t n_threads, int64_t n, int64_t grain) {
    int64_t most = TD_MIN((int64_t)n_threads, n / TD_MAX(grain, 1));
    if (most <= 1) return 1;
    int64_t step = step_of(n, most);
    return (int32_t)((n + step - 1) / step);
}

static int64_t border(int64_t n, int32_t ranges, int32_t i) {
    return TD_MIN(n, step_of(n, ranges) * i);
}

void td_parallel(int32_t n_threads, int64_t n, int64_t grain, td_range_fn *fn, const void *arg) {
    int32_t ranges = td_parallel_ranges(n_threads, n, grain);
    if (ranges == 1) {
        fn(arg, 0, n);
        return;
    }
#pragma omp parallel num_threads(ranges)
    {
        int32_t i = omp_get_thread_num();
        fn(arg, border(n, ranges, i), border(n, ranges, i + 1));
    }
}

static int64_t unit_border(int64_t n, int32_t ranges, int32_t i) {
    return n / ranges * i + TD_MIN(n % ranges, (int64_t)i);
}

void td_parallel_units(int32_t n_threads, int64_t n, int64_t work, td_range_fn *fn,
                       const void *arg) {
    int64_t most = TD_MIN(n, work / WORK_OF_A_THREAD);
    int32_t ranges = (int32_t)TD_MIN((int64_t)n_threads, most);
    if (ranges <= 1) {
        fn(arg, 0, n);
        return;
    }
#pragma omp parallel num_threads(ranges)
    {
        int32_t i = omp_get_thread_num();
        fn(arg, unit_border(n, ranges, i), unit_border(n, ranges, i + 1));
    }
}

int32_t td_parallel_threads(void) {
    return omp_get_max_threads();
}

int32_t td_parallel_index(void) {
    return omp_get_thread_num();
}

td_status td_parallel_open(int32_t n_threads) {
    int32_t team = 0;
    omp_set_dynamic(0);
    omp_set_num_threads(n_threads);
#pragma omp parallel num_threads(n_threads)
    {
        if (omp_get_thread_num() == 0) team = omp_get_num_threads();
        td_denormals_flush();
    }
    if (team == n_threads) return TD_OK;
    return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                        "OpenMP gives %d of %d threads; unset OMP_THREAD_LIMIT and "
                                        "OMP_MAX_ACTIVE_LEVELS, or ask for fewer threads",
                                        team, n_threads),
                                TD_CLASS_BAD_SPEC);
}
