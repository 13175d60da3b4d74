// The sums of a program (traind/sum.h): a list by node, each with the ranges of its operands.
//
// A bucket is one range of the GRAD region, padding included, as the state table has laid it out. A
// rank_sum is where its result is: the accelerator puts the operand there first.

#include "traind/sum.h"

#include <string.h>

#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "traind/accelerator.h"

struct entry {
    struct td_sum sum;
    struct td_sum_range range;
};

struct td_sums {
    uint32_t n, n_nodes;
    uint32_t *of; // by node: its entry, and one; 0: none. After the entries
    struct entry entry[];
};

static const enum td_op starts[TD_SUM_KINDS] = {
    [TD_SUM_ALL_REDUCE] = TD_OP_ALL_REDUCE,
    [TD_SUM_RANK_SUM] = TD_OP_RANK_SUM,
};

const char *td_sum_kind_name(enum td_sum_kind k) {
    return (unsigned)k < TD_SUM_KINDS ? td_op_name(starts[k]) : "unknown";
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

static struct td_sum_range range_of_value(const struct td_program *p, const struct td_bindings *b,
                                          td_value v) {
    const struct td_value_info *info = td_graph_value(p->graph, v);
    struct td_sum_range r = {.buffer = b->arena, .n = td_shape_elems(&info->shape)};
    if (info->kind == TD_VALUE_STATE) {
        const struct td_state_info *s = td_state_at(td_graph_state(p->graph), info->index);
        r.buffer = b->region[s->role];
        r.offset = s->offset;
    } else if (p->placement) {
        r.offset = p->placement[v].offset;
    }
    return r;
}

static void fill(struct entry *e, const struct td_program *p, const struct td_bindings *b,
                 td_node n, enum td_sum_kind kind) {
    const struct td_node_info *node = td_graph_node(p->graph, n);
    e->sum = (struct td_sum){.struct_bytes = sizeof e->sum,
                             .kind = kind,
                             .node = n,
                             .in = &e->range,
                             .out = &e->range,
                             .n_in = 1,
                             .n_out = 1,
                             .on_host = b->sums_on_host >> kind & 1,
                             .recordable = b->sums_recordable >> kind & 1};
    if (kind == TD_SUM_ALL_REDUCE) {
        e->sum.index = node->attrs.bucket;
        e->sum.op = TD_REDUCE_MEAN;
        e->range = range_of_bucket(p, b, node->attrs.bucket, &e->sum.dtype);
        return;
    }
    const td_value y = node->into ? node->into : node->outputs[0];
    e->sum.dtype = td_graph_value(p->graph, y)->dtype;
    e->range = range_of_value(p, b, y);
}

static uint32_t count(const struct td_graph *g) {
    uint32_t n = 0;
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        n += kind_of(td_graph_node(g, i)->op) < TD_SUM_KINDS;
    }
    return n;
}

td_status td_sums_create(const struct td_program *p, const struct td_bindings *b,
                         struct td_sums **out_sums) {
    const uint32_t n = b->collective ? count(p->graph) : 0;
    const uint32_t n_nodes = n ? td_graph_n_nodes(p->graph) : 0;
    struct td_sums *s = td_calloc(1, sizeof *s + n * sizeof s->entry[0] + n_nodes * sizeof *s->of);
    if (!s) return td_fail_oom();
    s->n_nodes = n_nodes;
    s->of = (uint32_t *)(s->entry + n);
    for (td_node i = 0; i < n_nodes; i++) {
        const struct td_node_info *node = td_graph_node(p->graph, i);
        const enum td_sum_kind kind = kind_of(node->op);
        if (node->op == TD_OP_AWAIT) s->of[i] = s->of[td_node_of_token(p->graph, node->inputs[0])];
        if (kind == TD_SUM_KINDS) continue;
        fill(&s->entry[s->n++], p, b, i, kind);
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
    const struct entry *e = &s->entry[s->of[n] - 1];
    return td_unconst(&e->sum);
}
