#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_PACK_MATCH_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_PACK_MATCH_H

// oneDNN's packed layouts, as kernels/matmul/pack.c knows them.

#include "accelerators/cpu/kernels/matmul/pack_shape.h"
#include "accelerators/cpu/onednn/dnnl.h"

// How kernels/matmul/pack.c writes `layout` of weights that are stored as `plain`; cols 0: it does
// not.
struct td_pack_shape td_pack_shape_of(const struct td_md_view *plain,
                                      const struct td_md_view *layout);

#endif
