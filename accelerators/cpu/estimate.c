// How long nodes take here; contract in estimate.h. Arithmetic goes at a share of the rate that
// products usually reach, a rule by op, calibrated once. docs/measurements.md says how far off
// predicted steps were. Bytes go at the measured bandwidth. What takes longer counts, and the fixed
// cost of starting a kernel on all threads. Nodes on plain loops go by what those reach: one
// thread, in fp64. Pure functions.

#include "accelerators/cpu/estimate.h"

#include "traind/op.h"
#include "lib/base/base.h"
#include "lib/base/cpu_level.h"

// Convolutions of 3x3 at stride 1 in fp32 whose result is an image, and those of the weights'
// gradient.
enum { WINOGRAD_IMAGES = 1, WINOGRAD_WEIGHTS = 2 };
enum { NARROW = 64 };               // a product's narrowest side
enum { SHALLOW = 16 };              // a convolution's channels
static const double START_S = 3e-6; // of a kernel: its threads meet
// Plain loops on one thread: FLOP/s of products, of convolutions, of all else, and seconds for each
// element that is read or written. They are of a machine that does 118 GFLOP/s in fp32 products on
// one thread.
static const double PLAIN_PRODUCT = 3e9, PLAIN_CONV = 0.6e9, PLAIN_OTHER = 1e9, PLAIN_ELEM_S = 2e-9;

static size_t bytes_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_graph_value(g, v);
    return (size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype);
}

static double traffic(const struct td_graph *g, const struct td_node_info *node) {
    double bytes = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        bool both = td_op_writes(node->op, &node->attrs, i);
        bytes += (double)bytes_of(g, node->inputs[i]) * (both ? 2 : 1);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        bytes += (double)bytes_of(g, node->outputs[i]);
    }
    return bytes + (node->into ? (double)bytes_of(g, node->into) : 0);
}

static int64_t last_dim(const struct td_graph *g, td_value v) {
    const struct td_shape *s = &td_graph_value(g, v)->shape;
    return s->n_dims ? s->dim[s->n_dims - 1] : 1;
}

// Rates, and which convolutions go Winograd's way.
struct machine {
    struct td_accel_rates rates;
    uint32_t winograd; // WINOGRAD_*, together
};

// ---- shares of a peak ---------------------------------------------------------------------------
// What an op's arithmetic reaches of what large products usually reach (docs/engine.md).
static double share_of_matmul(const struct td_graph *g, const struct td_node_info *node) {
    double n = (double)last_dim(g, node->into ? node->into : node->outputs[0]);
    double k = (double)last_dim(g, node->inputs[0]); // or rows, if that is transposed
    double rest = td_op_flops(g, node) / (2 * n * k), least = TD_MIN(TD_MIN(n, k), rest);
    return least < (int)NARROW ? 0.42 : 0.93;
}

// Does this one go Winograd's way? It needs fewer multiplications than count.
static bool is_winograd(const struct td_node_info *node, const struct td_shape *kernel,
                        uint32_t winograd) {
    const struct td_window_attrs *a = &node->attrs.window;
    bool three = kernel->dim[2] == 3 && kernel->dim[3] == 3;
    bool weights = node->op == TD_OP_CONV2D_GRAD_W;
    return three && a->stride[0] <= 1 && a->stride[1] <= 1 &&
           winograd & (weights ? WINOGRAD_WEIGHTS : WINOGRAD_IMAGES);
}

// half: of bf16.
static double share_of_conv(const struct td_graph *g, const struct td_node_info *node,
                            uint32_t winograd, bool half) {
    td_value w = node->op == TD_OP_CONV2D_GRAD_W ? 0 : node->inputs[1];
    const struct td_shape *kernel = w ? &td_graph_value(g, w)->shape : &node->attrs.shape;
    bool quick = !half && is_winograd(node, kernel, winograd);
    if (kernel->dim[0] < SHALLOW || kernel->dim[1] < SHALLOW) return 0.35;
    if (node->op == TD_OP_CONV2D_GRAD_W) return quick ? 1.4 : half ? 0.65 : 0.85;
    if (node->op == TD_OP_CONV2D_GRAD_X) return quick ? 1.65 : 0.9;
    return quick ? 1.75 : 0.9;
}

// Of the peak in fp32, whatever the type, because these widen what they read; pools do not.
static double share_of_kernel(const struct td_node_info *node, bool half) {
    const struct td_shape *to = &node->attrs.shape;
    switch ((int)node->op) { // a few of many
    case TD_OP_ATTENTION:
    case TD_OP_SELF_ATTENTION:
        return 0.37;
    case TD_OP_ATTENTION_GRAD:
    case TD_OP_SELF_ATTENTION_GRAD:
        return 0.5;
    case TD_OP_LAYER_NORM:
    case TD_OP_LAYER_NORM_GRAD:
    case TD_OP_RMS_NORM:
    case TD_OP_RMS_NORM_GRAD:
    case TD_OP_ADD_LAYER_NORM:
    case TD_OP_ADD_RMS_NORM:
        return 0.09;
    case TD_OP_BATCH_NORM:
    case TD_OP_BATCH_NORM_GRAD:
        return 0.03;
    case TD_OP_MAX_POOL:
        return half ? 0.055 : 0.028;
    case TD_OP_REDUCE_SUM: // over images it runs along rows, as fast as memory
        return to->n_dims && to->dim[to->n_dims - 1] > 1 ? 0.1 : 0;
    case TD_OP_MAX_POOL_GRAD:
        return half ? 0.028 : 0.014;
    default: // else arithmetic is not what takes its time
        return td_op_is(node->op, TD_OP_IS_SERIES) ? 0.09 : 0;
    }
}

static bool reads_bf16(const struct td_graph *g, const struct td_node_info *node) {
    bool any = false; // a pool's gradient reads places first
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        any |= td_graph_value(g, node->inputs[i])->dtype == TD_BF16;
    }
    return any;
}

// Convolutions without instructions for bf16 are those of fp32 and widen what they read; products
// have a rate of their own. bf16 multiplies no faster than fp32 then.
static bool widens(const struct td_accel_rates *p) {
    return p->bf16 < 1.25 * p->f32;
}

static double conv_seconds(const struct td_graph *g, const struct td_node_info *node,
                           const struct machine *m) {
    bool narrow = reads_bf16(g, node), half = narrow && !widens(&m->rates);
    double share = share_of_conv(g, node, m->winograd, half) * (narrow && !half ? 0.88 : 1);
    return td_op_flops(g, node) / (share * (half ? m->rates.bf16 : m->rates.f32));
}

static double arithmetic_seconds(const struct td_graph *g, const struct td_node_info *node,
                                 const struct machine *m) {
    const struct td_accel_rates *p = &m->rates;
    bool narrow = reads_bf16(g, node);
    double rate = narrow && p->bf16 > 0 ? p->bf16 : p->f32, share;
    switch ((int)node->op) { // the products
    case TD_OP_MATMUL:
        share = share_of_matmul(g, node);
        break;
    case TD_OP_LINEAR_CE:
    case TD_OP_LINEAR_CE_GRAD:
        share = 0.85;
        break;
    case TD_OP_CONV2D:
    case TD_OP_CONV2D_GRAD_X:
    case TD_OP_CONV2D_GRAD_W:
        return conv_seconds(g, node, m);
    default:
        share = share_of_kernel(node, narrow);
        rate = p->f32;
    }
    return share > 0 ? td_op_flops(g, node) / (rate * share) : 0;
}

// ---- seconds ------------------------------------------------------------------------------------
// The parameter that v is, or is the narrow copy of; else 0.
static td_value parameter_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_graph_value(g, v);
    if (info->kind == TD_VALUE_STATE) return v;
    if (info->kind != TD_VALUE_NODE || td_graph_node(g, info->node)->op != TD_OP_CAST) return 0;
    td_value from = td_graph_node(g, info->node)->inputs[0];
    return td_graph_value(g, from)->kind == TD_VALUE_STATE ? from : 0;
}

// Bytes of a weight's packs, the layout of their own in which products read it: every optimizer
// writes them as it updates. Narrow copies of weights are part of them.
static double packed(const struct td_graph *g, const struct td_node_info *node) {
    if (!node->n_inputs || !td_op_writes(node->op, &node->attrs, 0)) return 0;
    td_value w = node->inputs[0];
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *other = td_graph_node(g, n);
        bool reads =
            td_op_is(other->op, TD_OP_IS_PRODUCT) && parameter_of(g, other->inputs[1]) == w;
        if (reads) return (double)bytes_of(g, other->inputs[1]);
    }
    return 0;
}

static double op_seconds(const struct td_graph *g, const struct td_node_info *node,
                         const struct machine *m) {
    const bool is_of_ranks = td_op_is(node->op, TD_OP_IS_START) || node->op == TD_OP_AWAIT;
    if (td_op_is(node->op, TD_OP_IS_VIEW) || is_of_ranks) return 0;
    double moved = traffic(g, node), more = packed(g, node), bandwidth = m->rates.bandwidth;
    return TD_MAX(arithmetic_seconds(g, node, m), moved / bandwidth) + more / bandwidth + START_S;
}

static double loops_seconds(const struct td_graph *g, const struct td_node_info *node) {
    double rate = td_op_is(node->op, TD_OP_IS_CONVOLUTION) ? PLAIN_CONV
                  : td_op_is(node->op, TD_OP_IS_PRODUCT)   ? PLAIN_PRODUCT
                                                           : PLAIN_OTHER;
    double elems = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        elems += (double)td_shape_elems(&td_graph_value(g, node->inputs[i])->shape);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        elems += (double)td_shape_elems(&td_graph_value(g, node->outputs[i])->shape);
    }
    return td_op_flops(g, node) / rate + elems * PLAIN_ELEM_S + START_S;
}

// A product with a gradient after it takes as long as the two.
static double node_seconds(const struct td_graph *g, const struct td_node_info *node,
                           const struct machine *m) {
    if (!node->attrs.then) return op_seconds(g, node, m);
    struct td_node_info product = *node, grad = *node;
    const td_value in[] = {node->inputs[2], node->outputs[0]};
    product.n_inputs = 2;
    product.attrs.then = (enum td_op)0;
    grad.op = node->attrs.then;
    grad.inputs = in;
    grad.n_inputs = 2;
    return op_seconds(g, &product, m) + op_seconds(g, &grad, m);
}

// oneDNN's Winograd with AVX-512, our own below, which leaves the weights' gradient.
static uint32_t winograd_here(void) {
    return td_cpu_level() >= TD_CPU_AVX512 ? WINOGRAD_IMAGES | WINOGRAD_WEIGHTS
           : td_cpu_level() == TD_CPU_AVX2 ? WINOGRAD_IMAGES
                                           : 0;
}

double td_cpu_node_seconds(const struct td_graph *g, td_node n, const struct td_accel_rates *rates,
                           bool is_slow) {
    const struct td_node_info *node = td_graph_node(g, n);
    const struct machine m = {*rates, winograd_here()};
    return is_slow ? loops_seconds(g, node) : node_seconds(g, node, &m);
}
