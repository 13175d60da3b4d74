#ifndef TRAIND_COLLECTIVES_REDUCE_H
#define TRAIND_COLLECTIVES_REDUCE_H

// Reduction of the same slice on all ranks: the arithmetic of the shared-memory collective.
//
// parts[p] is rank p's copy of a buffer. Elements [lo, hi) of all parts are combined in the order
// of the ranks and the result is written back into every part. The caller is the only one who
// touches that slice meanwhile. collectives.h has the rules per dtype. Sums and means of fp32,
// which are the gradients, have loops of their own for 2 ranks (both rows stay in registers) and
// for any number. Those of bf16 and f16 have one for any number (reduce_loops.h). The other dtypes
// and ops share one plain loop, made from a macro. Pure; any thread; nothing fails.

#include "lib/base/base.h"
#include "traind/collective.h"

// False for bool sums and means, and for values outside the enums.
bool td_reduce_supports(enum td_dtype dtype, enum td_reduce_op op);
void td_reduce(void *const *parts, int32_t world, int64_t lo, int64_t hi, enum td_dtype dtype,
               enum td_reduce_op op);
// The same for parts that are sums themselves: a mean is their sum divided by `divisor`. Only part
// `only` gets the result, the others stay as they are; -1: all get it.
struct td_reduce_how {
    enum td_reduce_op op;
    int32_t divisor, only;
};
void td_reduce_as(void *const *parts, int32_t n_parts, int64_t lo, int64_t hi, enum td_dtype dtype,
                  struct td_reduce_how how);
const char *td_reduce_op_name(enum td_reduce_op op); // "mean"; "unknown" outside the enum

#endif
