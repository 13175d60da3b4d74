// What a convolution is to oneDNN; contract in conv_shape.h.
//
// Images have the layouts that layout.c plans, the weights' layout is left to oneDNN (format any).

#include "accelerators/cpu/onednn/conv_shape.h"

#include "traind/op.h"
#include "accelerators/cpu/kernels/kernels.h"

struct td_conv_shape td_conv_shape_of(const struct td_kernel *k) {
    enum td_conv_kind kind = k->op == TD_OP_CONV2D          ? TD_CONV_FORWARD
                             : k->op == TD_OP_CONV2D_GRAD_X ? TD_CONV_GRAD_X
                                                            : TD_CONV_GRAD_W;
    const struct td_shape *x = kind == TD_CONV_GRAD_X ? &k->out_shape : &k->shape[0];
    const struct td_shape *w = kind == TD_CONV_GRAD_W ? &k->out_shape : &k->shape[1];
    const struct td_shape *y = kind == TD_CONV_FORWARD  ? &k->out_shape
                               : kind == TD_CONV_GRAD_X ? &k->shape[0]
                                                        : &k->shape[1];
    enum td_dtype w_dtype = kind == TD_CONV_GRAD_W ? k->out_dtype[0] : k->in_dtype[1];
    const bool native = td_conv_is_native(k->in_dtype[0]);
    return (struct td_conv_shape){
        .kind = kind,
        .n = k->part ? k->part : x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .o = y->dim[1],
        .out_h = y->dim[2],
        .out_w = y->dim[3],
        .kernel = {w->dim[2], w->dim[3]},
        .window = k->attrs.window,
        .dtype = native ? k->in_dtype[0] : TD_F32,
        .w_dtype = native ? w_dtype : TD_F32,
        .given = k->in_dtype[0],
        .w_given = w_dtype,
        .has_bias = k->n_in > 2,
        .accumulate = k->attrs.accumulate,
    };
}

bool td_conv_is_native(enum td_dtype t) {
    return t == TD_F32 || (t == TD_BF16 && td_cpu_level() >= TD_CPU_AVX512_BF16);
}

// ---- descriptors --------------------------------------------------------------------------------
static dnnl_data_type_t data_type(enum td_dtype t) {
    return t == TD_BF16 ? dnnl_bf16 : dnnl_f32;
}

// oneDNN's name of the blocked layout whose blocks the level's kernels have.
static dnnl_format_tag_t blocked_tag(void) {
    switch (td_kernels()->image_lanes) {
    case 4:
        return dnnl_nChw4c;
    case 8:
        return dnnl_nChw8c;
    case 16:
        return dnnl_nChw16c;
    }
    return dnnl_format_tag_undef; // refused by oneDNN
}

static dnnl_status_t image_desc(const struct td_conv_shape *s, enum td_image_layout layout,
                                const dnnl_dims_t dims, struct td_md **out_md) {
    const dnnl_format_tag_t tag[] = {dnnl_nchw, blocked_tag(), dnnl_nhwc};
    return td_md_create(4, dims, data_type(s->dtype), tag[layout], out_md);
}

dnnl_status_t td_conv_describe(const struct td_conv_shape *s, struct td_conv_descs *d) {
    int64_t groups = td_window_at_least_one(s->window.groups);
    dnnl_dims_t x = {s->n, s->c, s->h, s->w}, y = {s->n, s->o, s->out_h, s->out_w}, bias = {s->o};
    dnnl_dims_t w = {s->o, s->c, s->kernel[0], s->kernel[1]};
    dnnl_dims_t grouped = {groups, s->o / groups, s->c / groups, s->kernel[0], s->kernel[1]};
    bool one = groups == 1;
    const dnnl_dim_t *w_dims = one ? w : grouped;
    dnnl_data_type_t type = data_type(s->w_dtype);
    dnnl_format_tag_t plain = one ? dnnl_oihw : dnnl_goihw;
    int ndims = one ? 4 : 5;
    dnnl_status_t st = image_desc(s, s->x_layout, x, &d->x);
    if (!st) st = image_desc(s, s->y_layout, y, &d->y);
    if (!st) st = td_md_create(1, bias, data_type(s->dtype), dnnl_a, &d->bias);
    if (!st) st = td_md_create(ndims, w_dims, type, plain, &d->w_plain);
    return st ? st : td_md_create(ndims, w_dims, type, dnnl_format_tag_any, &d->w);
}

void td_conv_descs_finish(struct td_conv_descs *d) {
    td_md_destroy(d->x);
    td_md_destroy(d->w);
    td_md_destroy(d->w_plain);
    td_md_destroy(d->bias);
    td_md_destroy(d->y);
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *out_attr) {
    dnnl_status_t st = dnnl_primitive_attr_create(out_attr);
    return st ? st : dnnl_primitive_attr_set_scratchpad_mode(*out_attr, dnnl_scratchpad_mode_user);
}

dnnl_status_t td_conv_pd(const struct td_conv_shape *s, dnnl_engine_t engine,
                         const struct td_conv_descs *d, dnnl_alg_kind_t alg,
                         dnnl_primitive_desc_t *out_pd) {
    static const enum td_pass pass[] = {[TD_CONV_FORWARD] = TD_PASS_FORWARD,
                                        [TD_CONV_GRAD_X] = TD_PASS_GRAD_X,
                                        [TD_CONV_GRAD_W] = TD_PASS_GRAD_W};
    struct td_dnnl_window window = {0};
    for (int i = 0; i < 2; i++) {
        window.stride[i] = td_window_at_least_one(s->window.stride[i]);
        window.dilation[i] = td_window_at_least_one(s->window.dilation[i]) - 1;
        window.pad[i] = s->window.pad[i];
    }
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t st = make_attr(&attr);
    if (!st) {
        st = td_pd_convolution(engine, pass[s->kind], alg, d->x, d->w, s->has_bias ? d->bias : NULL,
                               d->y, &window, attr, out_pd);
    }
    dnnl_primitive_attr_destroy(attr);
    return st;
}
