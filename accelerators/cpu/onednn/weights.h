#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_WEIGHTS_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_WEIGHTS_H

// Weights in oneDNN's layouts: packs (packs.h) that are oneDNN's memory, too.

#include "accelerators/cpu/onednn/engine.h"
#include "accelerators/cpu/packs.h"

// The pack of `param`, stored as `plain`, in `layout`, created on first use. Without param: one of
// its own, for weights that a node computes.
TD_MUST_USE td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param,
                                       const struct td_md *plain, const struct td_md *layout,
                                       struct td_pack **out_pack);
// The packed weights as oneDNN's memory.
dnnl_memory_t td_dnnl_pack_memory(const struct td_pack *p);

#endif
