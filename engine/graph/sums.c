// The sums of a program (traind/sum.h): a list by node, each with the ranges of its operands.
//
// A bucket is one range of the GRAD region, padding included, as the state table has laid it out.
// Of pieces each tensor is a range, with what is past its end. A rank_sum is where its result is:
// the accelerator puts the operand there first.

#include "traind/sum.h"

#include <string.h>

#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "traind/accelerator.h"

struct td_sums {
    uint32_t n, n_nodes, n_ranges;
    uint32_t *of;               // by node: its sum, and one; 0: none
    struct td_sum_range *range; // of all sums; these two are after the sums
    struct td_sum sum[];
};

static const enum td_op starts[TD_SUM_KINDS] = {
    [TD_SUM_ALL_REDUCE] = TD_OP_ALL_REDUCE,
    [TD_SUM_REDUCE_SCATTER] = TD_OP_REDUCE_SCATTER,
    [TD_SUM_ALL_GATHER] = TD_OP_ALL_GATHER,
    [TD_SUM_RANK_SUM] = TD_OP_RANK_SUM,
};

const char *td_sum_kind_name(enum td_sum_kind k) {
    return (unsigned)k < TD_SUM_KINDS ? td_op_name(starts[k]) : "unknown";
}

td_op_id td_sum_kind_op(enum td_sum_kind k) {
    TD_CHECK((unsigned)k < TD_SUM_KINDS);
    return starts[k];
}

// The kind that nodes of an op begin; TD_SUM_KINDS: they begin none.
static enum td_sum_kind kind_of(td_op_id op) {
    unsigned k = 0;
    while (k < TD_SUM_KINDS && starts[k] != op) {
        k++;
    }
    return (enum td_sum_kind)k;
}

static struct td_sum_range range_of_bucket(const struct td_program *p, const struct td_bindings *b,
                                           uint32_t bucket, enum td_dtype *out_dtype) {
    size_t offset, bytes;
    td_state_bucket(td_graph_state(p->graph), bucket, &offset, &bytes, out_dtype);
    return (struct td_sum_range){.buffer = b->region[TD_ROLE_GRAD],
                                 .offset = offset,
                                 .n = (int64_t)(bytes / td_dtype_bytes(*out_dtype))};
}

// All that memory has of the value.
static struct td_sum_range range_of_value(const struct td_program *p, const struct td_bindings *b,
                                          td_value v) {
    const struct td_value_info *info = td_graph_value(p->graph, v);
    struct td_sum_range r = {.buffer = b->arena, .n = td_shape_elems(&info->shape)};
    if (info->kind == TD_VALUE_STATE) {
        const struct td_state_info *s = td_state_at(td_graph_state(p->graph), info->index);
        r.buffer = b->region[s->role];
        r.offset = td_graph_state_offset(p->graph, v);
        if (!info->is_piece) r.n = (int64_t)(s->bytes / td_dtype_bytes(s->dtype));
    } else if (p->placement) {
        r.offset = p->placement[v].offset;
    }
    return r;
}

static uint32_t n_ranges_of(const struct td_node_info *node, enum td_sum_kind kind) {
    return kind == TD_SUM_REDUCE_SCATTER || kind == TD_SUM_ALL_GATHER ? node->n_inputs : 1;
}

static void fill(struct td_sums *s, const struct td_program *p, const struct td_bindings *b,
                 td_node n, enum td_sum_kind kind) {
    const struct td_node_info *node = td_graph_node(p->graph, n);
    const bool is_mean = kind == TD_SUM_ALL_REDUCE || kind == TD_SUM_REDUCE_SCATTER;
    struct td_sum_range *range = s->range + s->n_ranges;
    struct td_sum *sum = &s->sum[s->n++];
    const uint32_t n_ranges = n_ranges_of(node, kind);
    const td_value y = kind != TD_SUM_RANK_SUM ? node->inputs[0]
                       : node->into            ? node->into
                                               : node->outputs[0];
    *sum = (struct td_sum){.struct_bytes = sizeof *sum,
                           .kind = kind,
                           .node = n,
                           .index = node->attrs.bucket,
                           .in = range,
                           .out = range,
                           .n_in = n_ranges,
                           .n_out = n_ranges,
                           .n_pieces = kind == TD_SUM_RANK_SUM ? 0 : td_graph_world_size(p->graph),
                           .dtype = td_graph_value(p->graph, y)->dtype,
                           .op = is_mean ? TD_REDUCE_MEAN : TD_REDUCE_SUM,
                           .on_host = b->sums_on_host >> kind & 1,
                           .recordable = b->sums_recordable >> kind & 1};
    s->n_ranges += n_ranges;
    for (uint32_t i = 0; i < n_ranges; i++) {
        range[i] = range_of_value(p, b, kind == TD_SUM_RANK_SUM ? y : node->inputs[i]);
    }
    if (kind != TD_SUM_ALL_REDUCE) return;
    sum->n_pieces = 0;
    *range = range_of_bucket(p, b, node->attrs.bucket, &sum->dtype);
}

static uint32_t count(const struct td_graph *g, uint32_t *out_ranges) {
    uint32_t n = 0;
    *out_ranges = 0;
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        const struct td_node_info *node = td_graph_node(g, i);
        const enum td_sum_kind kind = kind_of(node->op);
        if (kind == TD_SUM_KINDS) continue;
        n++;
        *out_ranges += n_ranges_of(node, kind);
    }
    return n;
}

td_status td_sums_create(const struct td_program *p, const struct td_bindings *b,
                         struct td_sums **out_sums) {
    uint32_t n_ranges = 0;
    const uint32_t n = b->collective ? count(p->graph, &n_ranges) : 0;
    const uint32_t n_nodes = n ? td_graph_n_nodes(p->graph) : 0;
    struct td_sums *s = td_calloc(1, sizeof *s + n * sizeof s->sum[0] +
                                         n_ranges * sizeof *s->range + n_nodes * sizeof *s->of);
    if (!s) return td_fail_oom();
    s->n_nodes = n_nodes;
    s->range = (struct td_sum_range *)(s->sum + n);
    s->of = (uint32_t *)(s->range + n_ranges);
    for (td_node i = 0; i < n_nodes; i++) {
        const struct td_node_info *node = td_graph_node(p->graph, i);
        const enum td_sum_kind kind = kind_of(node->op);
        if (node->op == TD_OP_AWAIT) s->of[i] = s->of[td_node_of_token(p->graph, node->inputs[0])];
        if (kind == TD_SUM_KINDS) continue;
        fill(s, p, b, i, kind);
        s->of[i] = s->n;
    }
    *out_sums = s;
    return TD_OK;
}

void td_sums_destroy(struct td_sums *s) {
    free(s);
}

struct td_sum *td_sums_at(const struct td_sums *s, td_node n) {
    if (n >= s->n_nodes || !s->of[n]) return NULL;
    return td_unconst(&s->sum[s->of[n] - 1]);
}
