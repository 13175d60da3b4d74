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
    const uint32_t index = td_gv(g, v)->index;
    const struct td_state_values *of = &g->by_state[index];
    TD_TRY_CTX(td_state_retype(g->state, index, dtype), "step '%s'", g->step);
    if (of->whole) td_gv(g, of->whole)->dtype = dtype;
    if (of->piece) td_gv(g, of->piece)->dtype = dtype;
    g->as_stored = true;
    return TD_OK;
}

static bool is_used(const struct td_graph *g, td_value v) {
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].into == v) return true;
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            if (g->nodes[n].inputs[i] == v) return true;
        }
    }
    return false;
}

td_status td_rewrite_split(struct td_graph *g, uint32_t state_index, bool alone) {
    if (state_index >= td_state_count(g->state)) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': no state tensor has index %" PRIu32,
                       g->step, state_index);
    }
    const td_value whole = state_index < g->cap_by_state ? g->by_state[state_index].whole : 0;
    if (alone && whole && is_used(g, whole)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "step '%s' uses all of state '%s', of which a rank would have a piece alone",
                       g->step, td_state_at(g->state, state_index)->name);
    }
    return td_status_context(td_state_split(g->state, state_index, td_graph_world_size(g), alone),
                             "step '%s'", g->step);
}

td_status td_rewrite_split_gradients(struct td_graph *g) {
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad;
        if (!td_node_gradient(g, &g->nodes[i], &grad)) continue;
        TD_TRY(td_rewrite_split(g, grad, false));
        TD_TRY(td_rewrite_split(g, td_state_at(g->state, grad)->param, false));
    }
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

// ---- sums over ranks ----------------------------------------------------------------------------

// Appends the start of a bucket's sum after a node, in its segment.
static td_status insert_start(struct td_graph *g, enum td_op op, uint32_t bucket,
                              const td_value *in, uint32_t n, td_node after,
                              enum td_segment segment, td_value *out_token) {
    const struct td_attrs a = {.bucket = bucket};
    TD_TRY(td_rewrite_insert_at(g, after + 1));
    g->segment = segment;
    return td_graph_op(g, op, in, n, &a, out_token);
}

static td_status insert_reduce(struct td_graph *g, enum td_op op, uint32_t bucket, td_node after,
                               td_value *out_token) {
    uint32_t n = 0, n_state = td_state_count(g->state);
    TD_AUTO_FREE td_value *in = td_calloc(n_state + 1, sizeof *in);
    if (!in) return td_fail_oom();
    for (uint32_t i = 0; i < n_state; i++) {
        uint32_t b;
        if (!td_state_bucket_of(g->state, i, &b) || b != bucket) continue;
        TD_TRY(td_graph_state_value(g, i, &in[n++]));
    }
    return insert_start(g, op, bucket, in, n, after, TD_SEG_BACKWARD, out_token);
}

// The first node of a later segment than s, or the end.
static td_node end_of(const struct td_graph *g, enum td_segment s) {
    td_node n = 0;
    while (n < g->n_nodes && g->nodes[n].segment <= s) {
        n++;
    }
    return n;
}

// Awaits tokens at the end of a segment, in their order; 0: there is none.
static td_status await_all(struct td_graph *g, const td_value *tokens, uint32_t n,
                           enum td_segment segment) {
    TD_TRY(td_rewrite_insert_at(g, end_of(g, segment)));
    g->segment = segment;
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i]) TD_TRY(td_graph_op(g, TD_OP_AWAIT, &tokens[i], 1, NULL, NULL));
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}

// By bucket: the last write to one of its gradients; UINT32_MAX: another step writes it.
static td_status find_last_writes(const struct td_graph *g, td_node *out_last) {
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad, b;
        if (!td_node_gradient(g, &g->nodes[i], &grad)) continue;
        if (!td_state_bucket_of(g->state, grad, &b)) {
            return td_fail(TD_FAILED_PRECONDITION,
                           "gradient '%s' has no bucket: call td_rewrite_assign_buckets first",
                           td_state_at(g->state, grad)->name);
        }
        out_last[b] = i;
    }
    return TD_OK;
}

static td_status reduce_buckets(struct td_graph *g, enum td_op op) {
    const uint32_t n_buckets = td_state_n_buckets(g->state);
    TD_AUTO_FREE td_node *last = td_calloc(n_buckets + 1, sizeof *last);
    TD_AUTO_FREE td_value *token = td_calloc(n_buckets + 1, sizeof *token);
    if (!last || !token) return td_fail_oom();
    memset(last, 0xff, n_buckets * sizeof *last);
    TD_TRY(find_last_writes(g, last));
    td_node floor = end_of(g, TD_SEG_FORWARD);
    if (floor) floor--; // the last of it
    for (uint32_t b = 0; b < n_buckets; b++) {
        if (last[b] != UINT32_MAX) last[b] = floor = TD_MAX(last[b], floor);
    }
    for (uint32_t b = n_buckets; b-- > 0;) {
        if (last[b] != UINT32_MAX) TD_TRY(insert_reduce(g, op, b, last[b], &token[b]));
    }
    return await_all(g, token, n_buckets, TD_SEG_BACKWARD);
}

td_status td_rewrite_all_reduce(struct td_graph *g) {
    return reduce_buckets(g, TD_OP_ALL_REDUCE);
}

td_status td_rewrite_reduce_scatter(struct td_graph *g) {
    return reduce_buckets(g, TD_OP_REDUCE_SCATTER);
}

// What apply writes of pieces: of each parameter the last node, and one; 0: none.
static void find_updates(const struct td_graph *g, td_node *out_by_state) {
    for (td_node n = end_of(g, TD_SEG_FINISH); n < g->n_nodes; n++) {
        const struct td_node_info *node = &g->nodes[n];
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            const struct td_value_info *v = td_gv(g, node->inputs[i]);
            if (!v->is_piece || !td_op_writes(node->op, &node->attrs, i)) continue;
            const struct td_state_info *s = td_state_at(g->state, v->index);
            if (s->role == TD_ROLE_PARAM && !s->has_piece_alone) out_by_state[v->index] = n + 1;
        }
    }
}

// The gather of the updated parameters of a bucket, where there are some.
static td_status insert_gather(struct td_graph *g, uint32_t bucket, const td_node *updates,
                               td_value *out_token) {
    uint32_t n = 0, n_state = td_state_count(g->state);
    td_node last = 0;
    TD_AUTO_FREE td_value *in = td_calloc(n_state + 1, sizeof *in);
    if (!in) return td_fail_oom();
    for (uint32_t i = 0; i < n_state; i++) {
        uint32_t b;
        if (!td_state_bucket_of(g->state, i, &b) || b != bucket) continue;
        const uint32_t param = td_state_at(g->state, i)->param;
        if (!updates[param]) continue;
        TD_TRY(td_graph_state_value(g, param, &in[n++]));
        last = TD_MAX(last, updates[param] - 1);
    }
    if (!n) return TD_OK;
    return insert_start(g, TD_OP_ALL_GATHER, bucket, in, n, last, TD_SEG_APPLY, out_token);
}

td_status td_rewrite_all_gather(struct td_graph *g) {
    const uint32_t n_buckets = td_state_n_buckets(g->state), n_state = td_state_count(g->state);
    TD_AUTO_FREE td_value *token = td_calloc(n_buckets + 1, sizeof *token);
    TD_AUTO_FREE td_node *updates = td_calloc(n_state + 1, sizeof *updates);
    if (!token || !updates) return td_fail_oom();
    for (uint32_t b = 0; b < n_buckets; b++) {
        memset(updates, 0, n_state * sizeof *updates); // a start moves what is after it
        find_updates(g, updates);
        TD_TRY(insert_gather(g, b, updates, &token[b]));
    }
    return await_all(g, token, n_buckets, TD_SEG_APPLY);
}
