// Layouts of a convolution's images; contract in conv_layout.h.
//
// Of those that may suit it the first is preferred for which oneDNN does not name its reference
// loops, which are hundreds of times slower. Where it has nothing else, the kernel is reported as
// slow.

#include "accelerators/cpu/onednn/conv_layout.h"

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/onednn/conv_shape.h"
#include "accelerators/cpu/onednn/engine.h"
#include "accelerators/cpu/onednn/primitive.h"

enum { MOST_LAYOUTS = 3 };

// What may suit, the best first: blocked where both sides have whole blocks in each group, or one
// channel a group; a first layer's few channels as they come. Below AVX2 oneDNN's gradients have no
// blocks, and plain images need no reorders.
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
    *out_fast = !st && !td_pd_is_reference(pd);
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
