#ifndef TRAIND_ACCELERATORS_REFERENCE_CONVERT_H
#define TRAIND_ACCELERATORS_REFERENCE_CONVERT_H

// Element types of the reference as fp64, and back. Pure functions.

#include "lib/base/base.h"
#include "traind/types.h"

// Widening and narrowing of n elements.
void td_ref_load(enum td_dtype dtype, const void *from, int64_t n, double *to);
void td_ref_store(enum td_dtype dtype, const double *from, int64_t n, void *to);
// Rounds to the element type, and back.
double td_ref_round(enum td_dtype dtype, double v);

#endif
