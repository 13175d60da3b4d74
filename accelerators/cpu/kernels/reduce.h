#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_REDUCE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_REDUCE_H

// Sums of columns, as reduce_sum makes them, for kernels of other ops.

#include "lib/base/base.h"
#include "traind/types.h"

// y (cols) = the sum of the rows of x (rows, cols), or y += that.
struct td_columns {
    const void *x;
    void *y;
    enum td_dtype from, to;
    int64_t rows, cols;
    bool accumulate;
};
void td_columns_sum(const struct td_columns *a, int32_t n_threads);

#endif
