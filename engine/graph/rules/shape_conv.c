// Rules of convolutions and pools, all in (N,C,H,W). An accelerator may keep
// another order inside, the graph speaks this one. The output has (in + 2 pad - dilation (kernel -
// 1) - 1) / stride + 1 places, which must be at least one.

#include "engine/graph/rules/shape.h"

// Places along one dimension; false where the window does not fit or an attribute makes no sense.
static bool places(const struct td_window_attrs *w, int d, int64_t in, int64_t kernel,
                   int64_t *out_n) {
    int64_t stride = td_window_at_least_one(w->stride[d]), pad = w->pad[d];
    int64_t dilation = td_window_at_least_one(w->dilation[d]), limit = INT32_MAX;
    if (stride < 1 || pad < 0 || dilation < 1 || kernel < 1 || kernel > limit || in > limit * 2) {
        return false;
    }
    int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
    *out_n = room / stride + 1;
    return room >= 0;
}

static bool is_image(const struct td_shape *s) {
    return s->n_dims == 4;
}

// Fills *out_y; false where x and w do not go together.
static bool conv_shape(const struct td_window_attrs *a, const struct td_shape *x,
                       const struct td_shape *w, struct td_shape *out_y) {
    int64_t groups = td_window_at_least_one(a->groups);
    if (!is_image(x) || !is_image(w) || groups < 1 || w->dim[0] % groups) return false;
    if (x->dim[1] % groups || x->dim[1] / groups != w->dim[1]) return false;
    *out_y = (struct td_shape){4, {x->dim[0], w->dim[0]}};
    return places(a, 0, x->dim[2], w->dim[2], &out_y->dim[2]) &&
           places(a, 1, x->dim[3], w->dim[3], &out_y->dim[3]);
}

static td_status shape_conv2d(const struct td_op_call *c) {
    struct td_shape y;
    if (!same_float(c)) return td_op_reject(c, "operands must have one float type");
    if (!conv_shape(&c->attrs->window, shape_of(c, 0), shape_of(c, 1), &y)) {
        return td_op_reject(c, "needs x (N,C,H,W) and w (O,C/groups,kh,kw) that fits into it");
    }
    if (c->n_in > 2 && (shape_of(c, 2)->n_dims != 1 || shape_of(c, 2)->dim[0] != y.dim[1])) {
        return td_op_reject(c, "bias must have one element per channel");
    }
    return give(c, 0, arg(c, 0)->dtype, &y);
}

static td_status shape_conv2d_grad(const struct td_op_call *c) {
    bool of_x = c->op == TD_OP_CONV2D_GRAD_X;
    const struct td_shape *x = of_x ? &c->attrs->shape : shape_of(c, 0);
    const struct td_shape *w = of_x ? shape_of(c, 1) : &c->attrs->shape;
    struct td_shape y;
    if (!same_float(c) || !conv_shape(&c->attrs->window, x, w, &y) ||
        !td_shape_equal(&y, shape_of(c, of_x ? 0 : 1))) {
        return td_op_reject(c, "shapes are not those of a convolution");
    }
    enum td_dtype t = arg(c, 0)->dtype;
    return give(c, 0, of_x ? t : result_dtype(c, t), &c->attrs->shape);
}

// Padding is at most half the kernel, so that no window is in the padding alone.
static bool pool_shape(const struct td_window_attrs *a, const struct td_shape *x,
                       struct td_shape *out_y) {
    if (!is_image(x) || a->dilation[0] > 1 || a->dilation[1] > 1 || a->groups > 1) return false;
    int64_t kernel[2];
    for (int d = 0; d < 2; d++) {
        kernel[d] = td_window_at_least_one(a->kernel[d]);
        if (a->pad[d] > kernel[d] / 2) return false;
    }
    *out_y = *x;
    return places(a, 0, x->dim[2], kernel[0], &out_y->dim[2]) &&
           places(a, 1, x->dim[3], kernel[1], &out_y->dim[3]) && kernel[0] * kernel[1] <= 256;
}

static td_status shape_pool(const struct td_op_call *c) {
    struct td_shape y;
    if (!pool_shape(&c->attrs->window, shape_of(c, 0), &y)) {
        return td_op_reject(c, "needs float (N,C,H,W), a kernel of at most 256 elements that fits "
                               "into it, and a padding of at most half of it");
    }
    if (c->op == TD_OP_MAX_POOL) TD_TRY(give(c, 1, TD_U8, &y));
    return give(c, 0, arg(c, 0)->dtype, &y);
}

static td_status shape_pool_grad(const struct td_op_call *c) {
    struct td_shape y;
    uint32_t dy = c->n_in - 1;
    bool fits = pool_shape(&c->attrs->window, &c->attrs->shape, &y);
    for (uint32_t i = 0; i < c->n_in; i++) {
        fits = fits && td_shape_equal(&y, shape_of(c, i));
    }
    if (!fits || !td_is_float(arg(c, dy)->dtype) || (dy && arg(c, 0)->dtype != TD_U8)) {
        return td_op_reject(c, "shapes are not those of a pool");
    }
    return give(c, 0, arg(c, dy)->dtype, &c->attrs->shape);
}

// Two FLOPs for each element of the filter that an output (of the forward convolution) sees.
static double cost_conv(const struct td_graph *g, const struct td_node_info *node) {
    bool of_x = node->op == TD_OP_CONV2D_GRAD_X, of_w = node->op == TD_OP_CONV2D_GRAD_W;
    const struct td_shape *w = of_w ? &node->attrs.shape : &td_gv(g, node->inputs[1])->shape;
    td_value y = of_x ? node->inputs[0] : of_w ? node->inputs[1] : node->outputs[0];
    double filter = (double)w->dim[1] * (double)w->dim[2] * (double)w->dim[3];
    return td_op_elems(g, y) * (2 * filter + (node->op == TD_OP_CONV2D && node->n_inputs > 2));
}

static double cost_pool(const struct td_graph *g, const struct td_node_info *node) {
    const struct td_window_attrs *a = &node->attrs.window;
    return td_op_cost_output(g, node) * (double)td_window_at_least_one(a->kernel[0]) *
           (double)td_window_at_least_one(a->kernel[1]);
}

static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_CONV2D] = {shape_conv2d, cost_conv},
    [TD_OP_CONV2D_GRAD_X] = {shape_conv2d_grad, cost_conv},
    [TD_OP_CONV2D_GRAD_W] = {shape_conv2d_grad, cost_conv},
    [TD_OP_MAX_POOL] = {shape_pool, cost_pool},
    [TD_OP_MAX_POOL_GRAD] = {shape_pool_grad, td_op_cost_inputs},
    [TD_OP_AVG_POOL] = {shape_pool, cost_pool},
    [TD_OP_AVG_POOL_GRAD] = {shape_pool_grad, td_op_cost_output},
};

const struct td_op_rule *td_op_rule_conv(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
