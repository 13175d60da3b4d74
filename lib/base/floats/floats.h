#ifndef TRAIND_LIB_BASE_FLOATS_FLOATS_H
#define TRAIND_LIB_BASE_FLOATS_FLOATS_H

// The float types over whole tensors: f64, f32, and the 16-bit ones of half.h. Elements may be at
// any address. Pure; any thread.
//
// The room:
//
//   half.h        one 16-bit float
//   half_loops.h  tensors of them
//   floats.h      of all float types, converted
//   exact_sum.h   sums of doubles whose order does not show

#include "traind/types.h"

bool td_is_float(enum td_dtype t);
// n elements of one float type as another; x and y do not overlap.
void td_float_convert(enum td_dtype from, const void *x, int64_t n, enum td_dtype to, void *y);
bool td_float_all_finite(enum td_dtype t, const void *x, int64_t n);

#endif
