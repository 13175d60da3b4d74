// Rewrite calls for precisions and strategies; contract in traind/rewrite.h.
//
// Buckets live in the state table, because every program of a job must agree on them. The first
// program that writes a gradient decides, in the order of its backward pass. The reduction of a
// bucket begins directly after the last write to it, but not before the backward pass, and never
// before the bucket ahead of it. So all ranks enter the collectives in one order whatever their
// programs look like. All are awaited when the backward pass is over.

#include "traind/rewrite.h"

#include <inttypes.h>
#include <string.h>

#include "engine/graph/builder.h"
#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "engine/graph/state.h"

enum { BUCKET_GRADIENTS = 4096 }; // that one all_reduce takes

td_status td_rewrite_insert_at(struct td_graph *g, td_node at) {
    if (at != (td_node)TD_REWRITE_END && at > g->n_nodes) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s' has %" PRIu32 " nodes, no place %" PRIu32,
                       g->step, g->n_nodes, at);
    }
    bool end = at >= g->n_nodes;
    g->cursor = end ? (td_node)TD_NODE_NONE : at;
    if (g->n_nodes) g->segment = g->nodes[end ? g->n_nodes - 1 : at].segment;
    return TD_OK;
}

td_status td_rewrite_node(struct td_graph *g, td_node n, const td_value *inputs,
                          const struct td_attrs *attrs) {
    if (n >= g->n_nodes) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s' has %" PRIu32 " nodes, no node %" PRIu32,
                       g->step, g->n_nodes, n);
    }
    struct td_node_info *node = &g->nodes[n];
    struct td_op_result result;
    TD_TRY_CTX(td_op_infer(g, node->op, inputs, node->n_inputs, attrs, &result), "step '%s'",
               g->step);
    td_value *copy = td_arena_array(g->arena, TD_MAX(node->n_inputs, 1), sizeof *copy);
    if (!copy) return td_fail_oom();
    if (node->n_inputs) memcpy(copy, inputs, node->n_inputs * sizeof *copy);
    node->inputs = copy;
    node->attrs = *attrs;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        td_gv(g, node->outputs[i])->dtype = result.dtype[i];
        td_gv(g, node->outputs[i])->shape = result.shape[i];
    }
    return TD_OK;
}

td_status td_rewrite_state(struct td_graph *g, td_value v, enum td_dtype dtype) {
    if (v < 1 || v > g->n_values || td_gv(g, v)->kind != TD_VALUE_STATE) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': only a state tensor is stored", g->step);
    }
    TD_TRY_CTX(td_state_retype(g->state, td_gv(g, v)->index, dtype), "step '%s'", g->step);
    td_gv(g, v)->dtype = dtype;
    g->as_stored = true;
    return TD_OK;
}

td_status td_rewrite_scalar(struct td_graph *g, td_value v, enum td_dtype dtype) {
    bool is_scalar = v >= 1 && v <= g->n_values && td_gv(g, v)->kind == TD_VALUE_SCALAR;
    if (!is_scalar || (dtype != TD_F32 && dtype != TD_F64)) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': only a step scalar is read as f32 or f64",
                       g->step);
    }
    td_gv(g, v)->dtype = dtype;
    return TD_OK;
}

struct fill {
    size_t bytes;
    uint32_t n; // gradients
};

static struct fill fill_of(const struct td_state_table *t, uint32_t bucket) {
    struct fill f = {0};
    for (uint32_t i = 0; i < td_state_count(t); i++) {
        uint32_t b;
        if (!td_state_bucket_of(t, i, &b) || b != bucket) continue;
        f.bytes += td_state_at(t, i)->bytes;
        f.n++;
    }
    return f;
}

// Does this graph write a gradient of that bucket?
static bool writes_bucket(const struct td_graph *g, uint32_t bucket) {
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad, b;
        bool is =
            td_node_gradient(g, &g->nodes[i], &grad) && td_state_bucket_of(g->state, grad, &b);
        if (is && b == bucket) return true;
    }
    return false;
}

td_status td_rewrite_assign_buckets(struct td_graph *g, size_t first_bytes, size_t cap_bytes) {
    struct td_state_table *t = g->state;
    uint32_t n = td_state_n_buckets(t), current = n ? n - 1 : 0;
    struct fill f = fill_of(t, current);
    // What another step of the module writes is not reduced with what this one writes.
    if (f.n && !writes_bucket(g, current)) {
        current++;
        f = (struct fill){0};
    }
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad, have;
        if (!td_node_gradient(g, &g->nodes[i], &grad)) continue;
        if (td_state_bucket_of(t, grad, &have)) continue;
        bool is_full = f.bytes && f.bytes >= (current ? cap_bytes : first_bytes);
        if (is_full || f.n == BUCKET_GRADIENTS) {
            current++;
            f = (struct fill){0};
        }
        TD_TRY(td_state_set_bucket(t, grad, current));
        f.bytes += td_state_at(t, grad)->bytes;
        f.n++;
    }
    return TD_OK;
}

static td_status insert_reduce(struct td_graph *g, uint32_t bucket, td_node after,
                               td_value *out_token) {
    uint32_t n = 0, n_state = td_state_count(g->state);
    TD_AUTO_FREE td_value *in = td_calloc(n_state + 1, sizeof *in);
    if (!in) return td_fail_oom();
    for (uint32_t i = 0; i < n_state; i++) {
        uint32_t b;
        if (!td_state_bucket_of(g->state, i, &b) || b != bucket) continue;
        TD_TRY(td_graph_state_value(g, i, &in[n++]));
    }
    struct td_attrs a = {.bucket = bucket};
    TD_TRY(td_rewrite_insert_at(g, after + 1));
    g->segment = TD_SEG_BACKWARD;
    return td_graph_op(g, TD_OP_ALL_REDUCE, in, n, &a, out_token);
}

// The first node of a later segment than s, or the end.
static td_node end_of(const struct td_graph *g, enum td_segment s) {
    td_node n = 0;
    while (n < g->n_nodes && g->nodes[n].segment <= s) {
        n++;
    }
    return n;
}

td_status td_rewrite_all_reduce(struct td_graph *g) {
    uint32_t n_buckets = td_state_n_buckets(g->state);
    TD_AUTO_FREE td_node *last = td_calloc(n_buckets + 1, sizeof *last);
    if (!last) return td_fail_oom();
    memset(last, 0xff, n_buckets * sizeof *last);
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad, b;
        if (!td_node_gradient(g, &g->nodes[i], &grad)) continue;
        if (!td_state_bucket_of(g->state, grad, &b)) {
            return td_fail(TD_FAILED_PRECONDITION,
                           "gradient '%s' has no bucket: call td_rewrite_assign_buckets first",
                           td_state_at(g->state, grad)->name);
        }
        last[b] = i;
    }
    td_node floor = end_of(g, TD_SEG_FORWARD);
    if (floor) floor--; // the last of it
    for (uint32_t b = 0; b < n_buckets; b++) {
        if (last[b] == UINT32_MAX) continue; // written by another step
        last[b] = floor = TD_MAX(last[b], floor);
    }
    TD_AUTO_FREE td_value *token = td_calloc(n_buckets + 1, sizeof *token);
    if (!token) return td_fail_oom();
    for (uint32_t b = n_buckets; b-- > 0;) {
        if (last[b] != UINT32_MAX) TD_TRY(insert_reduce(g, b, last[b], &token[b]));
    }
    TD_TRY(td_rewrite_insert_at(g, end_of(g, TD_SEG_BACKWARD)));
    g->segment = TD_SEG_BACKWARD;
    for (uint32_t b = 0; b < n_buckets; b++) {
        if (token[b]) TD_TRY(td_graph_op(g, TD_OP_AWAIT, &token[b], 1, NULL, NULL));
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}
