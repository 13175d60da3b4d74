#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_DNNL_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_DNNL_H

// oneDNN's C interface as its versions 2 and 3 share it. Version 3 made memory descriptors opaque.
// It made one call of "fill in an op descriptor, then create a primitive descriptor", and turned
// iterators over implementations into a step of the primitive descriptor. dnnl.c hides that; all
// else of the interface (engine, stream, memory, attributes, primitives) is the same in both and is
// called as it is.
//
// Memory descriptors are owned by whoever created them. oneDNN copies what it is given, so they may
// be destroyed as soon as a memory or a primitive descriptor is made of them. Which version was
// found is DNNL_VERSION_MAJOR, at build time: the sizes of its structs differ, one program cannot
// run with both.
//
// Statuses are oneDNN's own; callers turn them into ours (onednn.h).

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// ---- memory descriptors -------------------------------------------------------------------------
struct td_md; // dnnl_memory_desc_t, never looked into

dnnl_status_t td_md_create(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag, struct td_md **out_md);
dnnl_status_t td_md_create_strided(int ndims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                   const dnnl_dims_t strides, struct td_md **out_md);
dnnl_status_t td_md_dup(const struct td_md *md, struct td_md **out_md);
void td_md_destroy(struct td_md *md); // accepts NULL
size_t td_md_bytes(const struct td_md *md);
bool td_md_equal(const struct td_md *a, const struct td_md *b);
dnnl_status_t td_md_memory(const struct td_md *md, dnnl_engine_t engine, void *data,
                           dnnl_memory_t *out_memory);

// What a memory descriptor says. Blocks are the innermost ones, as oneDNN counts them: block i has
// inner_blks[i] elements along dimension inner_idxs[i]; strides are those of the outer blocks.
struct td_md_view {
    int ndims;
    dnnl_data_type_t type;
    bool any;     // left to oneDNN
    bool blocked; // strides and blocks are known
    dnnl_dims_t dims, strides;
    int inner_nblks;
    dnnl_dims_t inner_blks, inner_idxs;
};
struct td_md_view td_md_look(const struct td_md *md);

// ---- primitive descriptors ----------------------------------------------------------------------
// Which of its operands a primitive writes.
enum td_pass { TD_PASS_FORWARD, TD_PASS_GRAD_X, TD_PASS_GRAD_W };

// y = x w^T + bias and its gradients. bias: forward alone, or NULL. Where a gradient of the weights
// is wider than the images, the weights themselves are of y's type.
dnnl_status_t td_pd_inner_product(dnnl_engine_t engine, enum td_pass pass, const struct td_md *x,
                                  const struct td_md *w, const struct td_md *bias,
                                  const struct td_md *y, const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *out_pd);

// y = a b + bias. impl: the first implementation whose name begins so, if there is one; NULL: the
// first that oneDNN offers.
dnnl_status_t td_pd_matmul(dnnl_engine_t engine, const struct td_md *a, const struct td_md *b,
                           const struct td_md *bias, const struct td_md *y,
                           const_dnnl_primitive_attr_t attr, const char *impl,
                           dnnl_primitive_desc_t *out_pd);

struct td_dnnl_window {
    dnnl_dims_t stride, dilation, pad; // dilation 0: none
};
// The same as td_pd_inner_product, of a convolution.
dnnl_status_t td_pd_convolution(dnnl_engine_t engine, enum td_pass pass, dnnl_alg_kind_t alg,
                                const struct td_md *x, const struct td_md *w,
                                const struct td_md *bias, const struct td_md *y,
                                const struct td_dnnl_window *window,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out_pd);

dnnl_status_t td_pd_reorder(dnnl_engine_t engine, const struct td_md *from, const struct td_md *to,
                            const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out_pd);

// A memory descriptor of a primitive, which owns it.
const struct td_md *td_pd_borrow_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what);
// "jit:avx2", "ref:any", ...; "" if oneDNN does not say.
const char *td_pd_name(const_dnnl_primitive_desc_t pd);
// Is that the name of oneDNN's reference loops, which it offers where it has nothing else?
static inline bool td_is_reference_name(const char *name) {
    return strncmp(name, "ref", 3) == 0;
}
bool td_pd_is_reference(const_dnnl_primitive_desc_t pd);

// ---- attributes ---------------------------------------------------------------------------------
// The result is added to what is there.
dnnl_status_t td_post_ops_sum(dnnl_post_ops_t ops);
dnnl_status_t td_post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t alg, float alpha,
                                  float beta);

#endif
