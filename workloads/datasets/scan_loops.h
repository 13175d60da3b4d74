#ifndef TRAIND_WORKLOADS_DATASETS_SCAN_LOOPS_H
#define TRAIND_WORKLOADS_DATASETS_SCAN_LOOPS_H

// The loops that look at every element of a file when it is opened, compiled once per CPU level.
// Their answers do not depend on the level. Pure; any thread; nothing fails.

#include "lib/base/cpu_level.h"

struct td_scan_loops {
    // Are all of [least, most]? NaN is not.
    bool (*all_within)(const float *x, int64_t n, float least, float most);
    bool (*all_within_f64)(const double *x, int64_t n, double least, double most);
    // The largest of n numbers of 2, 4 and 8 bytes, at any address; 0 of none.
    uint32_t (*most_u16)(const void *data, int64_t n);
    uint32_t (*most_u32)(const void *data, int64_t n);
    uint64_t (*most_u64)(const void *data, int64_t n);
};
TD_LEVELED_DECLARE(struct td_scan_loops, td_scan_loops);

#endif
