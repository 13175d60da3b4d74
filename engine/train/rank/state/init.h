#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_INIT_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_INIT_H

// Initial values of state tensors, keyed by (seed, name, element) through Philox: the same bits for
// any order, world size, number of threads, layout or set of other parameters.
//
//   uniform  a + (b - a) * u, u the element's number in [0, 1); never b itself
//   normal   Box-Muller over the element's own pair of numbers, in double, rounded once
// Pure; any thread.

#include "lib/base/base.h"
#include "traind/graph.h"

// Fills out with the td_shape_elems(&info->shape) values, as fp32 whatever the tensor's dtype.
// INVALID_ARGUMENT when the range or the deviation makes no sense; out is then untouched.
TD_MUST_USE td_status td_init_fill(uint64_t seed, const struct td_state_info *info, float *out);

#endif
