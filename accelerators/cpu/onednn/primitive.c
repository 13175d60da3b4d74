// Primitives and the statuses of calls; contract in primitive.h.

#include "accelerators/cpu/onednn/primitive.h"

td_status td_dnnl_fail(dnnl_status_t s, const char *what) {
    static const char *const text[] = {"success",       "out of memory", "invalid arguments",
                                       "unimplemented", "iterator ends", "runtime error",
                                       "not required"};
    const char *name = (size_t)s < TD_COUNTOF(text) ? text[s] : "unknown";
    if (s == dnnl_out_of_memory) return td_fail_oom();
    return td_status_with_class(td_fail(s == dnnl_unimplemented ? TD_UNIMPLEMENTED : TD_INTERNAL,
                                        "oneDNN: %s: %s", what, name),
                                TD_CLASS_DEVICE);
}

void td_dnnl_primitive_finish(struct td_dnnl_primitive *p) {
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->pd);
    *p = (struct td_dnnl_primitive){0};
}

td_status td_dnnl_primitive_run(struct td_dnnl_primitive *p, dnnl_stream_t stream, int n,
                                const dnnl_exec_arg_t *args, const char *what) {
    if (!p->primitive) DNNL_TRY(dnnl_primitive_create(&p->primitive, p->pd), what);
    DNNL_TRY(dnnl_primitive_execute(p->primitive, stream, n, args), what);
    return TD_OK;
}
