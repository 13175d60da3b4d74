#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_ONEDNN_H

// What all users of oneDNN share: engine and stream, errors, and weights in its layouts.

#include "accelerators/cpu/cpu.h"
#include "accelerators/cpu/onednn/dnnl.h"
#include "accelerators/cpu/packs.h"

struct td_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct td_room *room; // these three are the accelerator's
    struct td_tune *tune;
    struct td_packs *packs;
};

// A oneDNN status as ours: UNIMPLEMENTED, or INTERNAL of class device.
TD_MUST_USE td_status td_dnnl_fail(dnnl_status_t s, const char *what);

#define DNNL_TRY(expr, what)                                                                       \
    do {                                                                                           \
        dnnl_status_t dnnl_status_ = (expr);                                                       \
        if (dnnl_status_ != dnnl_success) return td_dnnl_fail(dnnl_status_, what);                 \
    } while (0)

// A primitive that is created when it first runs. To create one generates its code, some 0.2 ms:
// the start of a rank does not pay for programs that run later (validation, the last batch) or
// never. It owns both; zeroes are an empty one.
struct td_dnnl_primitive {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive; // NULL: it has not run yet
};
void td_dnnl_primitive_finish(struct td_dnnl_primitive *p);
TD_MUST_USE td_status td_dnnl_primitive_run(struct td_dnnl_primitive *p, dnnl_stream_t stream,
                                            int n, const dnnl_exec_arg_t *args, const char *what);

// The pack (packs.h) of `param`, stored as `plain`, in `layout`, created on first use. Without
// param: one of its own, for weights that a node computes.
TD_MUST_USE td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param,
                                       const struct td_md *plain, const struct td_md *layout,
                                       struct td_pack **out_pack);
// The packed weights as oneDNN's memory.
dnnl_memory_t td_dnnl_pack_memory(const struct td_pack *p);

// How kernels/pack.c writes `layout` of weights that lie as `plain`; cols 0: it does not.
struct td_pack_shape td_pack_shape_of(const struct td_md_view *plain,
                                      const struct td_md_view *layout);

#endif
