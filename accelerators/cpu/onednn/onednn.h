#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H

// What all users of oneDNN share: engine and stream, errors, and packed weights.
//
// A pack is a parameter in the layout that primitives like best; primitives that want the same
// layout of the same parameter share it. It is made by the first of them that runs after the
// parameter was written, or by who wrote it: optimizers pack as they update (update.h).
// Who else may have written is known by TD_RUN_STEADY, or its absence.

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/kernels/pack.h"
#include "accelerators/cpu/onednn/dnnl.h"

struct td_pack {
    const void *param;
    struct td_md *layout;
    dnnl_memory_t plain, packed;
    struct td_pack_shape rows; // cols 0: oneDNN packs
    dnnl_primitive_t reorder;
    void *data;
    uint64_t era;  // in which it was made; good if that is the engine's
    bool was_read; // since it was made
    struct td_pack *next;
};

struct td_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct td_room *room; // these two are the accelerator's
    struct td_tune *tune;
    struct td_pack *packs;
    uint64_t era; // of parameters that only programs write
};

// True if oneDNN has bf16 primitives for this processor.
bool td_dnnl_has_bf16(void);
// A oneDNN status as ours: UNIMPLEMENTED, or INTERNAL of class device.
TD_MUST_USE td_status td_dnnl_fail(dnnl_status_t s, const char *what);

#define DNNL_TRY(expr, what)                                                                       \
    do {                                                                                           \
        dnnl_status_t dnnl_status_ = (expr);                                                       \
        if (dnnl_status_ != dnnl_success) return td_dnnl_fail(dnnl_status_, what);                 \
    } while (0)

// The pack of `param` (stored as `plain`) in `layout`, created on first use. Without param: one of
// its own, for weights that a node computes.
TD_MUST_USE td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param,
                                       const struct td_md *plain, const struct td_md *layout,
                                       struct td_pack **out_pack);
// Before a primitive reads the pack: makes it of the weights, unless it is good.
TD_MUST_USE td_status td_dnnl_pack_read(struct td_dnnl *e, struct td_pack *p, const void *weights);

// How kernels/pack.c writes `layout` of weights that lie as `plain`; cols 0: it does not.
struct td_pack_shape td_pack_shape_of(const struct td_md_view *plain,
                                      const struct td_md_view *layout);

#endif
