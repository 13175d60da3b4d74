// What a convolution is to oneDNN; contract in conv_shape.h.
//
// Images have the layouts that layout.c plans, the weights' layout is left to oneDNN (format any).
// Layouts: of those that may suit a convolution the first is preferred for which oneDNN does not
// name its reference loops, which are hundreds of times slower. Where it has nothing else, the
// kernel is reported as slow.

#include "accelerators/cpu/onednn/conv_shape.h"

#include <string.h>

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
        .n = x->dim[0],
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

static dnnl_status_t image_desc(const struct td_conv_shape *s, enum td_image_layout layout,
                                const dnnl_dims_t dims, struct td_md **out_md) {
    const dnnl_format_tag_t blocked = td_kernels()->image_lanes == 16 ? dnnl_nChw16c : dnnl_nChw8c;
    const dnnl_format_tag_t tag[] = {dnnl_nchw, blocked, dnnl_nhwc};
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

bool td_conv_is_reference(const_dnnl_primitive_desc_t pd) {
    return strncmp(td_pd_name(pd), "ref", 3) == 0;
}

// ---- layouts ------------------------------------------------------------------------------------
enum { MOST_LAYOUTS = 3 };

// What may suit, the best first: blocked where both sides have whole blocks in each group, or one
// channel a group; a first layer's few channels as they come. Below AVX2 oneDNN's gradients have no
// blocks, and images that lie plain need no reorders.
static int layouts_of(const struct td_conv_shape *s, struct td_conv_layouts out[MOST_LAYOUTS]) {
    int64_t groups = td_window_at_least_one(s->window.groups);
    int64_t per = groups == s->c && groups == s->o ? 1 : groups; // depthwise
    int64_t block = td_kernels()->image_lanes;
    bool whole = s->o % (per * block) == 0 && s->c % (per * block) == 0;
    bool first = groups == 1 && s->c <= 3 && s->o % block == 0 && s->kind != TD_CONV_GRAD_X;
    const struct td_conv_layouts plain = {TD_LAYOUT_PLAIN, TD_LAYOUT_PLAIN};
    int n = 0;
    if (td_cpu_level() == TD_CPU_GENERIC) out[n++] = plain;
    if (whole) {
        out[n++] = (struct td_conv_layouts){TD_LAYOUT_BLOCKED, TD_LAYOUT_BLOCKED};
    } else if (first) {
        out[n++] = (struct td_conv_layouts){TD_LAYOUT_PLAIN, TD_LAYOUT_BLOCKED};
    }
    out[n++] = (struct td_conv_layouts){TD_LAYOUT_LAST, TD_LAYOUT_LAST};
    if (n < MOST_LAYOUTS && td_cpu_level() != TD_CPU_GENERIC) out[n++] = plain;
    return n;
}

static td_status is_fast(const struct td_conv_shape *s, struct td_dnnl *e, bool *out_fast) {
    struct td_conv_descs d = {0};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = td_conv_describe(s, &d);
    if (!st) st = td_conv_pd(s, e->engine, &d, dnnl_convolution_direct, &pd);
    td_conv_descs_finish(&d);
    if (st && st != dnnl_unimplemented) return td_dnnl_fail(st, "describe a convolution");
    *out_fast = !st && !td_conv_is_reference(pd);
    dnnl_primitive_desc_destroy(pd);
    return TD_OK;
}

td_status td_conv_prefer(const struct td_kernel *k, struct td_dnnl *e,
                         struct td_conv_layouts *out_layouts) {
    struct td_conv_layouts some[MOST_LAYOUTS];
    struct td_conv_shape s = td_conv_shape_of(k);
    int n = layouts_of(&s, some);
    *out_layouts = some[0];
    for (int i = 0; i < n; i++) {
        bool fast = false;
        s.x_layout = (enum td_image_layout)some[i].x;
        s.y_layout = (enum td_image_layout)some[i].y;
        TD_TRY(is_fast(&s, e, &fast));
        if (!fast) continue;
        *out_layouts = some[i];
        break;
    }
    return TD_OK;
}
