// A product that is timed; contract in peak_product.h.

#include "accelerators/cpu/onednn/peak_product.h"

#include <string.h>

#include "accelerators/cpu/onednn/dnnl.h"
#include "lib/base/base.h"

struct td_dnnl_peak_product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, weights, y;
    void *data[3]; // x, weights, y
};

// Zeros everywhere: the cores' units take as long for them as for any number.
static dnnl_status_t place(struct td_dnnl_peak_product *p, const_dnnl_primitive_desc_t pd,
                           dnnl_query_t what, void **out_data, dnnl_memory_t *out_memory) {
    const struct td_md *md = td_pd_borrow_md(pd, what);
    const size_t bytes = td_align_up(td_md_bytes(md), 64);
    *out_data = aligned_alloc(64, bytes);
    if (!*out_data) return dnnl_out_of_memory;
    memset(*out_data, 0, bytes);
    return td_md_memory(md, p->engine, *out_data, out_memory);
}

static dnnl_status_t make(struct td_dnnl_peak_product *p, dnnl_data_type_t type, int64_t rows,
                          int64_t width) {
    struct td_md *x = NULL, *w = NULL, *y = NULL;
    dnnl_dims_t x_dims = {rows, width}, w_dims = {width, width};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = dnnl_engine_create(&p->engine, dnnl_cpu, 0);
    if (!s) s = dnnl_stream_create(&p->stream, p->engine, dnnl_stream_in_order);
    if (!s) s = td_md_create(2, x_dims, type, dnnl_ab, &x);
    if (!s) s = td_md_create(2, w_dims, type, dnnl_format_tag_any, &w);
    if (!s) s = td_md_create(2, x_dims, dnnl_f32, dnnl_ab, &y);
    if (!s) s = td_pd_inner_product(p->engine, TD_PASS_FORWARD, x, w, NULL, y, NULL, &pd);
    if (!s) s = dnnl_primitive_create(&p->primitive, pd);
    if (!s) s = place(p, pd, dnnl_query_src_md, &p->data[0], &p->x);
    if (!s) s = place(p, pd, dnnl_query_weights_md, &p->data[1], &p->weights);
    if (!s) s = place(p, pd, dnnl_query_dst_md, &p->data[2], &p->y);
    dnnl_primitive_desc_destroy(pd);
    td_md_destroy(x);
    td_md_destroy(w);
    td_md_destroy(y);
    return s;
}

bool td_dnnl_peak_product_create(enum td_dtype type, int64_t rows, int64_t width,
                                 struct td_dnnl_peak_product **out_product) {
    struct td_dnnl_peak_product *p = td_calloc(1, sizeof *p);
    if (!p) return false;
    if (make(p, type == TD_F32 ? dnnl_f32 : dnnl_bf16, rows, width) != dnnl_success) {
        td_dnnl_peak_product_destroy(p);
        return false;
    }
    *out_product = p;
    return true;
}

void td_dnnl_peak_product_destroy(struct td_dnnl_peak_product *p) {
    if (!p) return;
    dnnl_primitive_destroy(p->primitive);
    dnnl_memory_destroy(p->x);
    dnnl_memory_destroy(p->weights);
    dnnl_memory_destroy(p->y);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
    for (size_t i = 0; i < TD_COUNTOF(p->data); i++) {
        free(p->data[i]);
    }
    free(p);
}

bool td_dnnl_peak_product_run(struct td_dnnl_peak_product *p) {
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->weights}, {DNNL_ARG_DST, p->y}};
    return !dnnl_primitive_execute(p->primitive, p->stream, TD_COUNTOF(args), args);
}
