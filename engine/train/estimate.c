// The prediction. Rejected: running the step once with memory of its own, which is exact and takes
// as much time and memory as the job, on a node that others use.

#include "engine/train/estimate.h"

#include "engine/graph/graph_impl.h"

enum { SMALL = 64, SHALLOW = 16 };    // a product's narrowest side; a convolution's channels
static const double LARGE = 1e9;      // FLOPs of a product that fills the threads
static const double START_S = 2e-6;   // of a kernel
static const size_t CACHE = 24 << 20; // programs that live in the last cache move bytes faster
static const double CACHED = 2.0;

struct peak {
    double f32, bf16, bandwidth;
};

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

// Share of the GEMM peak that the op's arithmetic reaches; 0: arithmetic is not what takes its
// time.
static double share_of(const struct td_graph *g, const struct td_node_info *node) {
    switch ((int)node->op) { // a few of many
    case TD_OP_MATMUL: {
        td_value y = node->into ? node->into : node->outputs[0];
        bool narrow = last_dim(g, y) < SMALL || last_dim(g, node->inputs[0]) < SMALL;
        return narrow ? 0.4 : td_op_flops(g, node) < LARGE ? 0.75 : 0.88;
    }
    case TD_OP_CONV2D:
    case TD_OP_CONV2D_GRAD_X:
    case TD_OP_CONV2D_GRAD_W: {
        const struct td_shape *x = &td_gv(g, node->inputs[0])->shape;
        return x->dim[1] < SHALLOW ? 0.35 : 0.9;
    }
    case TD_OP_ATTENTION:
    case TD_OP_ATTENTION_GRAD:
    case TD_OP_SELF_ATTENTION:
    case TD_OP_SELF_ATTENTION_GRAD:
        return 0.35;
    default:
        return 0;
    }
}

static double node_seconds(const struct td_graph *g, const struct td_node_info *node,
                           const struct peak *p, double bandwidth) {
    if (node->op == TD_OP_RESHAPE || node->op == TD_OP_ALL_REDUCE) return 0;
    double share = share_of(g, node), arithmetic = 0;
    if (share > 0) {
        enum td_dtype t = td_gv(g, node->inputs[0])->dtype;
        double rate = (t == TD_BF16 && p->bf16 > 0 ? p->bf16 : p->f32) * share;
        arithmetic = td_op_flops(g, node) / rate;
    }
    double packing = 0; // of weights, which change every step
    if (node->op == TD_OP_MATMUL && td_gv(g, node->inputs[1])->kind == TD_VALUE_STATE) {
        packing = 2 * (double)bytes_of(g, node->inputs[1]) / bandwidth;
    }
    return TD_MAX(arithmetic, traffic(g, node) / bandwidth) + packing + START_S;
}

static double program_seconds(const struct td_rank *r, const struct td_compiled *c,
                              const struct peak *p) {
    size_t state = 0;
    for (int role = 0; role < TD_ROLE_COUNT; role++) {
        state += td_state_region_bytes(r->state, (enum td_role)role);
    }
    bool cached = state + c->program.arena_bytes <= CACHE;
    double seconds = 0, bandwidth = p->bandwidth * (cached ? CACHED : 1);
    for (td_node n = 0; n < td_graph_n_nodes(c->graph); n++) {
        seconds += node_seconds(c->graph, td_graph_node(c->graph, n), p, bandwidth);
    }
    return seconds;
}

td_status td_estimate_step(const struct td_rank *r, double *out_seconds) {
    struct peak p;
    double last = 0, before = 0;
    *out_seconds = 0;
    if (!r->accel_ops->measure_peak) return TD_OK;
    TD_TRY(r->accel_ops->measure_peak(r->accel, &p.f32, &p.bf16, &p.bandwidth));
    if (p.f32 <= 0 || p.bandwidth <= 0) return TD_OK;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = td_programs_at(r->programs, i);
        const struct td_program_key *k = &c->program.key;
        if (k->mode != TD_MODE_TRAIN || k->batch != r->config->batch_size) continue;
        double s = program_seconds(r, c, &p);
        if (k->apply) {
            last = TD_MAX(last, s);
        } else {
            before = TD_MAX(before, s);
        }
    }
    *out_seconds = last + before * (double)(r->config->limits.accumulate - 1);
    return TD_OK;
}
