// The prediction. Rejected: running the step once with memory of its own, which is exact and takes
// as much time and memory as the job, on a node that others use.

#include "engine/train/estimate.h"

#include "engine/graph/graph_impl.h"

enum { NARROW = 64 };               // a product's narrowest side
enum { SHALLOW = 16 };              // a convolution's channels
static const double START_S = 3e-6; // of a kernel: its threads meet
enum { MOMENTS = 3 };               // to measure rates in

static size_t bytes_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
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
    const struct td_shape *s = &td_gv(g, v)->shape;
    return s->n_dims ? s->dim[s->n_dims - 1] : 1;
}

// ---- shares of a peak ---------------------------------------------------------------------------
// What an op's arithmetic reaches of what large products usually reach. Measured on the cpu
// accelerator.
static double share_of_matmul(const struct td_graph *g, const struct td_node_info *node) {
    double n = (double)last_dim(g, node->into ? node->into : node->outputs[0]);
    double k = (double)last_dim(g, node->inputs[0]); // or rows, if that is transposed
    double rest = td_op_flops(g, node) / (2 * n * k), least = TD_MIN(TD_MIN(n, k), rest);
    return least < NARROW ? 0.42 : 0.93;
}

// Winograd's way needs fewer multiplications than count: 3x3 at stride 1 in fp32.
static double share_of_conv(const struct td_graph *g, const struct td_node_info *node, bool half) {
    td_value w = node->op == TD_OP_CONV2D_GRAD_W ? 0 : node->inputs[1];
    const struct td_shape *kernel = w ? &td_gv(g, w)->shape : &node->attrs.shape;
    const struct td_window_attrs *a = &node->attrs.window;
    bool three = kernel->dim[2] == 3 && kernel->dim[3] == 3;
    bool winograd = three && a->stride[0] <= 1 && a->stride[1] <= 1 && !half;
    if (kernel->dim[0] < SHALLOW || kernel->dim[1] < SHALLOW) return 0.35;
    if (node->op == TD_OP_CONV2D_GRAD_W) return half ? 0.65 : 0.85;
    if (node->op == TD_OP_CONV2D_GRAD_X) return winograd ? 0.95 : 0.9;
    return winograd ? 1.15 : 0.9;
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
    case TD_OP_GELU:
    case TD_OP_GELU_GRAD:
    case TD_OP_SILU:
    case TD_OP_SILU_GRAD:
    case TD_OP_TANH:
    case TD_OP_SIGMOID:
    case TD_OP_EXP:
    case TD_OP_LOG:
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
    default:
        return 0; // arithmetic is not what takes its time
    }
}

static bool reads_bf16(const struct td_graph *g, const struct td_node_info *node) {
    bool any = false; // a pool's gradient reads places first
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        any |= td_gv(g, node->inputs[i])->dtype == TD_BF16;
    }
    return any;
}

static double arithmetic_seconds(const struct td_graph *g, const struct td_node_info *node,
                                 const struct td_accel_rates *p) {
    bool half = reads_bf16(g, node) && p->bf16 > 0;
    double rate = half ? p->bf16 : p->f32, share;
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
        share = share_of_conv(g, node, half);
        break;
    default:
        share = share_of_kernel(node, half);
        rate = p->f32;
    }
    return share > 0 ? td_op_flops(g, node) / (rate * share) : 0;
}

// ---- seconds ------------------------------------------------------------------------------------
// The parameter that v is, or is the narrow copy of; else 0.
static td_value parameter_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    if (info->kind == TD_VALUE_STATE) return v;
    if (info->kind != TD_VALUE_NODE || g->nodes[info->node].op != TD_OP_CAST) return 0;
    td_value from = g->nodes[info->node].inputs[0];
    return td_gv(g, from)->kind == TD_VALUE_STATE ? from : 0;
}

static bool multiplies(const struct td_node_info *node) {
    return node->op == TD_OP_MATMUL || node->op == TD_OP_LINEAR_CE ||
           node->op == TD_OP_LINEAR_CE_GRAD;
}

// Bytes of a weight's packs, the layout of their own in which products read it: every optimizer
// writes them as it updates. Narrow copies of weights are part of them.
static double packed(const struct td_graph *g, const struct td_node_info *node) {
    if (!node->n_inputs || !td_op_writes(node->op, &node->attrs, 0)) return 0;
    td_value w = node->inputs[0];
    for (td_node n = 0; n < g->n_nodes; n++) {
        const struct td_node_info *other = &g->nodes[n];
        bool reads = multiplies(other) && parameter_of(g, other->inputs[1]) == w;
        if (reads) return (double)bytes_of(g, other->inputs[1]);
    }
    return 0;
}

static double plain_seconds(const struct td_graph *g, const struct td_node_info *node,
                            const struct td_accel_rates *p) {
    if (node->op == TD_OP_RESHAPE || node->op == TD_OP_ALL_REDUCE) return 0;
    double moved = traffic(g, node) / p->bandwidth;
    return TD_MAX(arithmetic_seconds(g, node, p), moved) + packed(g, node) / p->bandwidth + START_S;
}

// A product with a gradient behind it takes as long as the two.
static double node_seconds(const struct td_graph *g, const struct td_node_info *node,
                           const struct td_accel_rates *p) {
    if (!node->attrs.then) return plain_seconds(g, node, p);
    struct td_node_info product = *node, grad = *node;
    const td_value in[] = {node->inputs[2], node->outputs[0]};
    product.n_inputs = 2;
    product.attrs.then = (enum td_op)0;
    grad.op = node->attrs.then;
    grad.inputs = in;
    grad.n_inputs = 2;
    return plain_seconds(g, &product, p) + plain_seconds(g, &grad, p);
}

// skips: the accelerator's, NULL: it runs every node.
static double program_seconds(const struct td_compiled *c, td_skips_fn *skips,
                              const struct td_accel_rates *p) {
    double seconds = 0;
    for (td_node n = 0; n < td_graph_n_nodes(c->graph); n++) {
        if (skips && skips(c->graph, n)) continue;
        seconds += node_seconds(c->graph, td_graph_node(c->graph, n), p);
    }
    return seconds;
}

// A program that trains on whole batches; NULL: another one.
static const struct td_compiled *step_at(const struct td_rank *r, size_t i) {
    const struct td_compiled *c = td_programs_at(r->programs, i);
    bool whole = c->program.key.batch == r->config->batch_size;
    return c->program.key.mode == TD_MODE_TRAIN && whole ? c : NULL;
}

// What a step goes through: how fast that is depends on the caches that hold it.
static size_t bytes_of_step(const struct td_rank *r) {
    size_t bytes = 0, arena = 0;
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        bytes += td_state_region_bytes(r->state, (enum td_role)role);
    }
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = step_at(r, i);
        if (c) arena = TD_MAX(arena, c->program.arena_bytes);
    }
    return bytes + arena;
}

// The usual rates of the best of some moments: a neighbour who was there in one need not come back.
static td_status measure_rates(const struct td_rank *r, struct td_accel_rates *out) {
    const size_t bytes = bytes_of_step(r);
    *out = (struct td_accel_rates){0};
    for (int i = 0; i < MOMENTS; i++) {
        struct td_accel_rates best, usual;
        TD_TRY(r->accel_ops->measure_peak(r->accel, bytes, &best, &usual));
        out->f32 = TD_MAX(out->f32, usual.f32);
        out->bf16 = TD_MAX(out->bf16, usual.bf16);
        out->bandwidth = TD_MAX(out->bandwidth, usual.bandwidth);
    }
    return TD_OK;
}

td_status td_estimate_step(const struct td_rank *r, double *out_seconds) {
    struct td_accel_rates p = {0};
    double last = 0, before = 0;
    *out_seconds = 0;
    if (!r->accel_ops->measure_peak) return TD_OK;
    TD_TRY(measure_rates(r, &p));
    if (p.f32 <= 0 || p.bandwidth <= 0) return TD_OK;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = step_at(r, i);
        if (!c) continue;
        double s = program_seconds(c, r->accel_ops->skips, &p);
        if (c->program.key.apply) {
            last = TD_MAX(last, s);
        } else {
            before = TD_MAX(before, s);
        }
    }
    *out_seconds = last + before * (double)(r->config->limits.accumulate - 1);
    return TD_OK;
}
