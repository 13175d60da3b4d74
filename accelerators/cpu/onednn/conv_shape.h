#ifndef TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_SHAPE_H
#define TRAIND_ACCELERATORS_CPU_ONEDNN_CONV_SHAPE_H

// A convolution as oneDNN is asked for it: sizes and types, descriptors of its operands. Thread:
// the training thread.

#include "accelerators/cpu/kernel.h"
#include "accelerators/cpu/onednn/dnnl.h"

enum td_conv_kind { TD_CONV_FORWARD, TD_CONV_GRAD_X, TD_CONV_GRAD_W };

struct td_conv_shape {
    enum td_conv_kind kind;
    int64_t n, c, h, w;      // of the operand; n > 0
    int64_t o, out_h, out_w; // of the result
    int64_t kernel[2];
    struct td_window_attrs window;
    enum td_image_layout x_layout, y_layout;
    enum td_dtype dtype, w_dtype; // of the images; of the weights or their gradient
    enum td_dtype given, w_given; // the node's own types, where these were widened
    bool has_bias, accumulate;
    const void *param; // address of the parameter that the weights are, or NULL
};

// Layouts and parameter are left to the caller.
struct td_conv_shape td_conv_shape_of(const struct td_kernel *k);
// Are images of this type convolved as they are? Others are widened.
bool td_conv_is_native(enum td_dtype t);

// w: in whatever layout oneDNN likes best; w_plain: as everybody else sees weights.
struct td_conv_descs {
    struct td_md *x, *w, *w_plain, *bias, *y;
};

// What was made of d is the caller's to finish, also after a failure.
dnnl_status_t td_conv_describe(const struct td_conv_shape *s, struct td_conv_descs *d);
void td_conv_descs_finish(struct td_conv_descs *d);

// unimplemented: oneDNN has no such convolution by this algorithm.
dnnl_status_t td_conv_pd(const struct td_conv_shape *s, dnnl_engine_t engine,
                         const struct td_conv_descs *d, dnnl_alg_kind_t alg,
                         dnnl_primitive_desc_t *out_pd);

#endif
