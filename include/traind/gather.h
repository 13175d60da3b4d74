#ifndef TRAIND_GATHER_H
#define TRAIND_GATHER_H

// Gather: what all ranks have of a value, in the middle of a program, and the gradient of it. It is
// for a loss over the samples of all ranks, as contrastive ones are. Lightning calls it all_gather
// with sync_grads. It is made of other ops: each rank puts its part where its number says, and all
// are summed (td_build_rank_sum). A collection is gathered value by value.
// Values and errors are those of traind/build.h. Thread: the one that records.

#include "traind/build.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_BUILD_MAX_WORLD = 1024 };

// Not for modules: td_build_all_gather, of floats alone.
TD_MUST_USE static inline td_status td_build_all_gather_floats(struct td_graph *g, td_value x,
                                                               td_value *out_y) {
    const struct td_value_info *info = td_graph_value(g, x);
    const int32_t world = td_graph_world_size(g);
    double numbers[TD_BUILD_MAX_WORLD];
    struct td_shape one = info->shape, places;
    td_value rank, place, own, none, y;
    if (world > TD_BUILD_MAX_WORLD || one.n_dims == TD_MAX_DIMS) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "all_gather of %d dimensions over %d ranks; there may be %d of the one, and "
                       "%d of the other",
                       one.n_dims, world, TD_MAX_DIMS - 1, TD_BUILD_MAX_WORLD);
    }
    memmove(one.dim + 1, one.dim, (size_t)one.n_dims++ * sizeof *one.dim);
    one.dim[0] = 1;
    TD_TRY(td_build_reshape(g, x, &one, &y));
    *out_y = y;
    if (world == 1) return TD_OK;
    places = one;
    for (int32_t d = 0; d < places.n_dims; d++) {
        places.dim[d] = d ? 1 : world;
    }
    for (int32_t i = 0; i < world; i++) {
        numbers[i] = i;
    }
    // Nobody's number is in the program: it is the same on all ranks.
    TD_TRY(td_graph_scalar(g, TD_SCALAR_RANK, &rank));
    TD_TRY(td_build_constant(g, TD_F32, &places, numbers, &place));
    TD_TRY(td_build_compare(g, TD_CMP_EQ, place, rank, &own));
    TD_TRY(td_build_fill(g, info->dtype, &one, 0, &none));
    TD_TRY(td_build_select(g, own, y, none, &y));
    return td_build_rank_sum(g, y, out_y);
}

// x (...) -> (world size, ...): x of each rank, in the order of ranks; (1, ...) where there is one.
// x has the same shape on all ranks. So it is for training: the last batches of an evaluation may
// differ in size, and then a job whose x does is refused when it is planned. Of floats with a
// gradient: of dy, summed over all ranks, what is this rank's. Of integers, such as labels,
// without; they travel as fp64, whatever the precision, so those below 2^53 are exact. Errors:
// INVALID_ARGUMENT for more than TD_BUILD_MAX_WORLD ranks.
TD_MUST_USE static inline td_status td_build_all_gather(struct td_graph *g, td_value x,
                                                        td_value *out_y) {
    const enum td_dtype dtype = td_graph_value(g, x)->dtype;
    const bool is_float = dtype == TD_F32 || dtype == TD_F64 || dtype == TD_BF16 || dtype == TD_F16;
    td_value y;
    if (is_float || td_graph_world_size(g) == 1) return td_build_all_gather_floats(g, x, out_y);
    TD_TRY(td_build_cast(g, x, TD_F64, 0, &y));
    TD_TRY(td_build_all_gather_floats(g, y, &y));
    return td_build_cast(g, y, dtype, 0, out_y);
}

#ifdef __cplusplus
}
#endif
#endif
