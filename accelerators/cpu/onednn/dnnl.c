// The one file that knows what differs between oneDNN 2 and 3; contract in dnnl.h.
//
// A td_md is oneDNN's own descriptor under another name: of version 3 the object it hands out, of
// version 2 a copy of its struct. The first part holds what each version does its own way, the rest
// is written once upon it. Thread: any; it keeps nothing.

#include "accelerators/cpu/onednn/dnnl.h"

#include <string.h>

#include "lib/base/base.h"

#if DNNL_VERSION_MAJOR >= 3

// ---- version 3 ----------------------------------------------------------------------------------
static const struct dnnl_memory_desc *desc_of(const struct td_md *md) {
    return (const struct dnnl_memory_desc *)md;
}

static dnnl_status_t hand_out(dnnl_status_t s, dnnl_memory_desc_t md, struct td_md **out_md) {
    if (!s) *out_md = (struct td_md *)md;
    return s;
}

dnnl_status_t td_md_create(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag, struct td_md **out_md) {
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t s = dnnl_memory_desc_create_with_tag(&md, ndims, dims, type, tag);
    return hand_out(s, md, out_md);
}

dnnl_status_t td_md_create_strided(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                   const dnnl_dims_t strides, struct td_md **out_md) {
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t s = dnnl_memory_desc_create_with_strides(&md, ndims, dims, type, strides);
    return hand_out(s, md, out_md);
}

dnnl_status_t td_md_dup(const struct td_md *md, struct td_md **out_md) {
    dnnl_memory_desc_t dup = NULL;
    dnnl_status_t s = dnnl_memory_desc_clone(&dup, desc_of(md));
    return hand_out(s, dup, out_md);
}

void td_md_destroy(struct td_md *md) {
    if (md) (void)dnnl_memory_desc_destroy((dnnl_memory_desc_t)md);
}

static int look_int(const struct td_md *md, dnnl_query_t what) {
    int n = 0;
    return dnnl_memory_desc_query(desc_of(md), what, &n) ? 0 : n;
}

static void look_dims(const struct td_md *md, dnnl_query_t what, dnnl_dims_t out_dims) {
    const dnnl_dims_t *dims = NULL;
    if (dnnl_memory_desc_query(desc_of(md), what, &dims) || !dims) return;
    memcpy(out_dims, dims, sizeof *dims);
}

struct td_md_view td_md_look(const struct td_md *md) {
    struct td_md_view v = {.ndims = look_int(md, dnnl_query_ndims_s32)};
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    (void)dnnl_memory_desc_query(desc_of(md), dnnl_query_data_type, &v.type);
    (void)dnnl_memory_desc_query(desc_of(md), dnnl_query_format_kind, &kind);
    v.any = kind == dnnl_format_kind_any;
    v.blocked = kind == dnnl_blocked;
    look_dims(md, dnnl_query_dims, v.dims);
    if (!v.blocked) return v;
    look_dims(md, dnnl_query_strides, v.strides);
    v.inner_nblks = look_int(md, dnnl_query_inner_nblks_s32);
    look_dims(md, dnnl_query_inner_blks, v.inner_blks);
    look_dims(md, dnnl_query_inner_idxs, v.inner_idxs);
    return v;
}

dnnl_status_t td_post_ops_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

dnnl_status_t td_post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha,
                                  float beta) {
    return dnnl_post_ops_append_eltwise(ops, alg, alpha, beta);
}

static dnnl_status_t product_forward(dnnl_engine_t engine, const struct td_md *x,
                                     const struct td_md *w, const struct td_md *bias,
                                     const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                     dnnl_primitive_desc_t *out_pd) {
    return dnnl_inner_product_forward_primitive_desc_create(out_pd, engine, dnnl_forward_training,
                                                            desc_of(x), desc_of(w), desc_of(bias),
                                                            desc_of(y), attr);
}

static dnnl_status_t product_backward(dnnl_engine_t engine, enum td_pass pass,
                                      const struct td_md *x, const struct td_md *w,
                                      const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                      const_dnnl_primitive_desc_t hint,
                                      dnnl_primitive_desc_t *out_pd) {
    return pass == TD_PASS_GRAD_X
               ? dnnl_inner_product_backward_data_primitive_desc_create(
                     out_pd, engine, desc_of(x), desc_of(w), desc_of(y), hint, attr)
               : dnnl_inner_product_backward_weights_primitive_desc_create(
                     out_pd, engine, desc_of(x), desc_of(w), NULL, desc_of(y), hint, attr);
}

static dnnl_status_t convolution_forward(dnnl_engine_t engine, dnnl_alg_kind_t alg,
                                         const struct td_md *x, const struct td_md *w,
                                         const struct td_md *bias, const struct td_md *y,
                                         const struct td_dnnl_window *v,
                                         const_dnnl_primitive_attr_t attr,
                                         dnnl_primitive_desc_t *out_pd) {
    return dnnl_convolution_forward_primitive_desc_create(
        out_pd, engine, dnnl_forward_training, alg, desc_of(x), desc_of(w), desc_of(bias),
        desc_of(y), v->stride, v->dilation, v->pad, v->pad, attr);
}

static dnnl_status_t
convolution_backward(dnnl_engine_t engine, enum td_pass pass, dnnl_alg_kind_t alg,
                     const struct td_md *x, const struct td_md *w, const struct td_md *y,
                     const struct td_dnnl_window *v, const_dnnl_primitive_attr_t attr,
                     const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out_pd) {
    return pass == TD_PASS_GRAD_X
               ? dnnl_convolution_backward_data_primitive_desc_create(
                     out_pd, engine, alg, desc_of(x), desc_of(w), desc_of(y), v->stride,
                     v->dilation, v->pad, v->pad, hint, attr)
               : dnnl_convolution_backward_weights_primitive_desc_create(
                     out_pd, engine, alg, desc_of(x), desc_of(w), NULL, desc_of(y), v->stride,
                     v->dilation, v->pad, v->pad, hint, attr);
}

static dnnl_status_t first_matmul(dnnl_engine_t engine, const struct td_md *a,
                                  const struct td_md *b, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out_pd) {
    return dnnl_matmul_primitive_desc_create(out_pd, engine, desc_of(a), desc_of(b), desc_of(bias),
                                             desc_of(y), attr);
}

// NULL if none has that name.
static dnnl_status_t named_matmul(dnnl_engine_t engine, const struct td_md *a,
                                  const struct td_md *b, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  const char *impl, dnnl_primitive_desc_t *out_pd) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = first_matmul(engine, a, b, bias, y, attr, &pd);
    if (s) return s;
    while (!s && strncmp(td_pd_name(pd), impl, strlen(impl)) != 0) {
        s = dnnl_primitive_desc_next_impl(pd);
    }
    if (s) {
        dnnl_primitive_desc_destroy(pd);
        pd = NULL;
    }
    *out_pd = pd;
    return dnnl_success;
}

#else

// ---- version 2 ----------------------------------------------------------------------------------
static const dnnl_memory_desc_t *desc_of(const struct td_md *md) {
    return (const dnnl_memory_desc_t *)md;
}

dnnl_status_t td_md_dup(const struct td_md *md, struct td_md **out_md) {
    dnnl_memory_desc_t *dup = td_calloc(1, sizeof *dup);
    if (!dup) return dnnl_out_of_memory;
    *dup = *desc_of(md);
    *out_md = (struct td_md *)dup;
    return dnnl_success;
}

dnnl_status_t td_md_create(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag, struct td_md **out_md) {
    dnnl_memory_desc_t md;
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(&md, ndims, dims, type, tag);
    return s ? s : td_md_dup((const struct td_md *)&md, out_md);
}

dnnl_status_t td_md_create_strided(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                   const dnnl_dims_t strides, struct td_md **out_md) {
    dnnl_memory_desc_t md;
    dnnl_status_t s = dnnl_memory_desc_init_by_strides(&md, ndims, dims, type, strides);
    return s ? s : td_md_dup((const struct td_md *)&md, out_md);
}

void td_md_destroy(struct td_md *md) {
    free(md);
}

struct td_md_view td_md_look(const struct td_md *md) {
    const dnnl_memory_desc_t *d = desc_of(md);
    struct td_md_view v = {.ndims = d->ndims,
                           .type = d->data_type,
                           .any = d->format_kind == dnnl_format_kind_any,
                           .blocked = d->format_kind == dnnl_blocked};
    memcpy(v.dims, d->dims, sizeof v.dims);
    if (!v.blocked) return v;
    const dnnl_blocking_desc_t *b = &d->format_desc.blocking;
    v.inner_nblks = b->inner_nblks;
    memcpy(v.strides, b->strides, sizeof v.strides);
    memcpy(v.inner_blks, b->inner_blks, sizeof v.inner_blks);
    memcpy(v.inner_idxs, b->inner_idxs, sizeof v.inner_idxs);
    return v;
}

dnnl_status_t td_post_ops_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1);
}

dnnl_status_t td_post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha,
                                  float beta) {
    return dnnl_post_ops_append_eltwise(ops, 1, alg, alpha, beta);
}

static dnnl_status_t product_forward(dnnl_engine_t engine, const struct td_md *x,
                                     const struct td_md *w, const struct td_md *bias,
                                     const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                     dnnl_primitive_desc_t *out_pd) {
    dnnl_inner_product_desc_t d;
    dnnl_status_t s = dnnl_inner_product_forward_desc_init(&d, dnnl_forward_training, desc_of(x),
                                                           desc_of(w), desc_of(bias), desc_of(y));
    return s ? s : dnnl_primitive_desc_create(out_pd, &d, attr, engine, NULL);
}

static dnnl_status_t product_backward(dnnl_engine_t engine, enum td_pass pass,
                                      const struct td_md *x, const struct td_md *w,
                                      const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                      const_dnnl_primitive_desc_t hint,
                                      dnnl_primitive_desc_t *out_pd) {
    dnnl_inner_product_desc_t d;
    dnnl_status_t s =
        pass == TD_PASS_GRAD_X
            ? dnnl_inner_product_backward_data_desc_init(&d, desc_of(x), desc_of(w), desc_of(y))
            : dnnl_inner_product_backward_weights_desc_init(&d, desc_of(x), desc_of(w), NULL,
                                                            desc_of(y));
    return s ? s : dnnl_primitive_desc_create(out_pd, &d, attr, engine, hint);
}

static dnnl_status_t convolution_forward(dnnl_engine_t engine, dnnl_alg_kind_t alg,
                                         const struct td_md *x, const struct td_md *w,
                                         const struct td_md *bias, const struct td_md *y,
                                         const struct td_dnnl_window *v,
                                         const_dnnl_primitive_attr_t attr,
                                         dnnl_primitive_desc_t *out_pd) {
    dnnl_convolution_desc_t d;
    dnnl_status_t s = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, alg, desc_of(x), desc_of(w), desc_of(bias), desc_of(y),
        v->stride, v->dilation, v->pad, v->pad);
    return s ? s : dnnl_primitive_desc_create(out_pd, &d, attr, engine, NULL);
}

static dnnl_status_t
convolution_backward(dnnl_engine_t engine, enum td_pass pass, dnnl_alg_kind_t alg,
                     const struct td_md *x, const struct td_md *w, const struct td_md *y,
                     const struct td_dnnl_window *v, const_dnnl_primitive_attr_t attr,
                     const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out_pd) {
    dnnl_convolution_desc_t d;
    dnnl_status_t s =
        pass == TD_PASS_GRAD_X
            ? dnnl_dilated_convolution_backward_data_desc_init(&d, alg, desc_of(x), desc_of(w),
                                                               desc_of(y), v->stride, v->dilation,
                                                               v->pad, v->pad)
            : dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, desc_of(x), desc_of(w),
                                                                  NULL, desc_of(y), v->stride,
                                                                  v->dilation, v->pad, v->pad);
    return s ? s : dnnl_primitive_desc_create(out_pd, &d, attr, engine, hint);
}

static dnnl_status_t matmul_desc(const struct td_md *a, const struct td_md *b,
                                 const struct td_md *bias, const struct td_md *y,
                                 dnnl_matmul_desc_t *out_desc) {
    return dnnl_matmul_desc_init(out_desc, desc_of(a), desc_of(b), desc_of(bias), desc_of(y));
}

static dnnl_status_t first_matmul(dnnl_engine_t engine, const struct td_md *a,
                                  const struct td_md *b, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out_pd) {
    dnnl_matmul_desc_t d;
    dnnl_status_t s = matmul_desc(a, b, bias, y, &d);
    return s ? s : dnnl_primitive_desc_create(out_pd, &d, attr, engine, NULL);
}

// NULL if none has that name.
static dnnl_status_t named_matmul(dnnl_engine_t engine, const struct td_md *a,
                                  const struct td_md *b, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  const char *impl, dnnl_primitive_desc_t *out_pd) {
    dnnl_matmul_desc_t d;
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = matmul_desc(a, b, bias, y, &d);
    if (!s) s = dnnl_primitive_desc_iterator_create(&it, &d, attr, engine, NULL);
    if (s) return s;
    while (!s) {
        pd = dnnl_primitive_desc_iterator_fetch(it);
        if (strncmp(td_pd_name(pd), impl, strlen(impl)) == 0) break;
        dnnl_primitive_desc_destroy(pd);
        pd = NULL;
        s = dnnl_primitive_desc_iterator_next(it);
    }
    dnnl_primitive_desc_iterator_destroy(it);
    *out_pd = pd;
    return dnnl_success;
}

#endif

// ---- both ---------------------------------------------------------------------------------------
size_t td_md_bytes(const struct td_md *md) {
    return dnnl_memory_desc_get_size(desc_of(md));
}

bool td_md_equal(const struct td_md *a, const struct td_md *b) {
    return dnnl_memory_desc_equal(desc_of(a), desc_of(b));
}

dnnl_status_t td_md_memory(const struct td_md *md, dnnl_engine_t engine, void *data,
                           dnnl_memory_t *out_memory) {
    return dnnl_memory_create(out_memory, desc_of(md), engine, data);
}

const struct td_md *td_pd_borrow_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return (const struct td_md *)dnnl_primitive_desc_query_md(pd, what, 0);
}

const char *td_pd_name(const_dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    dnnl_status_t s = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    return s || !name ? "" : name;
}

bool td_pd_is_reference(const_dnnl_primitive_desc_t pd) {
    return td_is_reference_name(td_pd_name(pd));
}

// The same dimensions and order, of another type. What has inner blocks is made for one type.
static dnnl_status_t dup_as(const struct td_md *md, dnnl_data_type_t type, struct td_md **out_md) {
    struct td_md_view v = td_md_look(md);
    if (v.type == type) return td_md_dup(md, out_md);
    if (v.any) return td_md_create(v.ndims, v.dims, type, dnnl_format_tag_any, out_md);
    if (!v.blocked || v.inner_nblks) return dnnl_unimplemented;
    return td_md_create_strided(v.ndims, v.dims, type, v.strides, out_md);
}

// Backward descriptors want the forward one they belong to as a hint. Its weights are of the type
// that they are multiplied in, also where their gradient is wider.
dnnl_status_t td_pd_inner_product(dnnl_engine_t engine, enum td_pass pass, const struct td_md *x,
                                  const struct td_md *w, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out_pd) {
    if (pass == TD_PASS_FORWARD) return product_forward(engine, x, w, bias, y, attr, out_pd);
    struct td_md *multiplied = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dup_as(w, td_md_look(y).type, &multiplied);
    if (!s) s = product_forward(engine, x, multiplied, NULL, y, NULL, &hint);
    if (!s) s = product_backward(engine, pass, x, w, y, attr, hint, out_pd);
    dnnl_primitive_desc_destroy(hint);
    td_md_destroy(multiplied);
    return s;
}

dnnl_status_t td_pd_convolution(dnnl_engine_t engine, enum td_pass pass, dnnl_alg_kind_t alg,
                                const struct td_md *x, const struct td_md *w,
                                const struct td_md *bias, const struct td_md *y,
                                const struct td_dnnl_window *window,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out_pd) {
    if (pass == TD_PASS_FORWARD) {
        return convolution_forward(engine, alg, x, w, bias, y, window, attr, out_pd);
    }
    struct td_md *multiplied = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dup_as(w, td_md_look(y).type, &multiplied);
    if (!s) s = convolution_forward(engine, alg, x, multiplied, NULL, y, window, NULL, &hint);
    if (!s) s = convolution_backward(engine, pass, alg, x, w, y, window, attr, hint, out_pd);
    dnnl_primitive_desc_destroy(hint);
    td_md_destroy(multiplied);
    return s;
}

dnnl_status_t td_pd_matmul(dnnl_engine_t engine, const struct td_md *a, const struct td_md *b,
                           const struct td_md *bias, const struct td_md *y,
                           const_dnnl_primitive_attr_t attr, const char *impl,
                           dnnl_primitive_desc_t *out_pd) {
    dnnl_primitive_desc_t named = NULL;
    dnnl_status_t s = impl ? named_matmul(engine, a, b, bias, y, attr, impl, &named) : dnnl_success;
    if (!s && !named) return first_matmul(engine, a, b, bias, y, attr, out_pd);
    if (!s) *out_pd = named;
    return s;
}

dnnl_status_t td_pd_reorder(dnnl_engine_t engine, const struct td_md *from, const struct td_md *to,
                            const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out_pd) {
    return dnnl_reorder_primitive_desc_create(out_pd, desc_of(from), engine, desc_of(to), engine,
                                              attr);
}
