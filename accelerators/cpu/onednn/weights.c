// Weights in oneDNN's layouts; contract in weights.h. What kernels/matmul/pack.c does not write is
// packed by oneDNN's reorder.

#include "accelerators/cpu/onednn/weights.h"

#include "accelerators/cpu/onednn/pack_match.h"
#include "accelerators/cpu/onednn/primitive.h"

struct layout {
    struct td_md *md;
    dnnl_memory_t plain, packed;
    struct td_dnnl_primitive reorder;
    dnnl_stream_t stream;
};

static void layout_destroy(void *of) {
    struct layout *l = of;
    td_dnnl_primitive_finish(&l->reorder);
    dnnl_memory_destroy(l->plain);
    dnnl_memory_destroy(l->packed);
    td_md_destroy(l->md);
    free(l);
}

static td_status reorder(void *of, const void *weights) {
    struct layout *l = of;
    DNNL_TRY(dnnl_memory_set_data_handle(l->plain, td_unconst(weights)), "weights");
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, l->plain}, {DNNL_ARG_TO, l->packed}};
    return td_dnnl_primitive_run(&l->reorder, l->stream, 2, args, "pack weights");
}

static td_status layout_build(struct td_dnnl *e, struct layout *l, const struct td_md *plain,
                              const struct td_md *md) {
    l->stream = e->stream;
    DNNL_TRY(td_md_dup(md, &l->md), "keep a layout");
    DNNL_TRY(td_md_memory(plain, e->engine, DNNL_MEMORY_NONE, &l->plain), "plain weights");
    DNNL_TRY(td_md_memory(md, e->engine, DNNL_MEMORY_NONE, &l->packed), "packed weights");
    DNNL_TRY(td_pd_reorder(e->engine, plain, md, NULL, &l->reorder.pd), "describe a reorder");
    return TD_OK;
}

static td_status pack_add(struct td_dnnl *e, const void *param, const struct td_md *plain,
                          const struct td_md *md, struct layout *l, struct td_pack **out_pack) {
    struct td_md_view from = td_md_look(plain), to = td_md_look(md);
    const struct td_pack like = {.param = param,
                                 .shape = td_pack_shape_of(&from, &to),
                                 .bytes = td_md_bytes(md),
                                 .of = l,
                                 .make = reorder,
                                 .destroy_of = layout_destroy};
    TD_TRY(layout_build(e, l, plain, md));
    return td_packs_add(e->packs, &like, out_pack);
}

td_status td_dnnl_pack_get(struct td_dnnl *e, const void *param, const struct td_md *plain,
                           const struct td_md *md, struct td_pack **out_pack) {
    for (struct td_pack *p = NULL; param && (p = td_packs_next(e->packs, param, p));) {
        const struct layout *l = p->of;
        if (!l || !td_md_equal(l->md, md)) continue;
        *out_pack = p;
        return TD_OK;
    }
    struct layout *l = td_calloc(1, sizeof *l);
    struct td_pack *p;
    if (!l) return td_fail_oom();
    td_status failed = pack_add(e, param, plain, md, l, &p);
    if (failed) {
        layout_destroy(l);
        return failed;
    }
    *out_pack = p;
    if (e->memory->is_dry) return TD_OK;
    DNNL_TRY(dnnl_memory_set_data_handle(l->packed, p->data), "packed weights");
    return TD_OK;
}

dnnl_memory_t td_dnnl_pack_memory(const struct td_pack *p) {
    return ((const struct layout *)p->of)->packed;
}
