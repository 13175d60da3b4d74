#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_PRIMITIVE_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_PRIMITIVE_H

// A primitive that is created when it first runs. To create one generates its code, some 0.2 ms:
// the start of a rank does not pay for programs that run later (validation, the last batch) or
// never.

#include "accelerators/cpu/onednn/dnnl.h"
#include "lib/base/base.h"

// A oneDNN status as ours: UNIMPLEMENTED, or INTERNAL of class device.
TD_MUST_USE td_status td_dnnl_fail(dnnl_status_t s, const char *what);

#define DNNL_TRY(expr, what)                                                                       \
    do {                                                                                           \
        dnnl_status_t dnnl_status_ = (expr);                                                       \
        if (dnnl_status_ != dnnl_success) return td_dnnl_fail(dnnl_status_, what);                 \
    } while (0)

// It owns both; zeroes are an empty one.
struct td_dnnl_primitive {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive; // NULL: it has not run yet
};
void td_dnnl_primitive_finish(struct td_dnnl_primitive *p);
TD_MUST_USE td_status td_dnnl_primitive_run(struct td_dnnl_primitive *p, dnnl_stream_t stream,
                                            int n, const dnnl_exec_arg_t *args, const char *what);

#endif
