// Recompute: values that the backward pass reads are made again there instead of being kept.
//
// A copy of the node that made a value comes right before the first backward node that reads it.
// Copies of what that node needs come before it, down to values that are kept. A copy computes the
// same bits: kernels are deterministic, state does not change between forward and backward, and a
// dropout's mask comes from its key. Nodes that write state (batch norm) are never copied.
//
// selective  cheap nodes (elementwise, norms, dropout, casts, parts) with operands that are there
//            anyway: a norm of the residual stream, the gelu of what its own gradient needs. A
//            value is given up only if that frees more than its operands then hold.
// full       the forward pass is cut where a single value crosses, which finds the blocks of a
//            transformer or a ResNet without a mark by the module; only the values that cross are
//            kept. How many cuts: those for which what is kept and the largest part between two
//            together are smallest. The last part is not made again: backward begins with it.
//
// Rejected: marks in modules (one more thing to forget), and an optimal search. Cuts by threshold
// are within a few percent of such a search on chains, and all that is trained here is nearly a
// chain.

#include <string.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/rules/rules.h"

struct remake {
    struct td_graph *g;
    td_node n_forward; // nodes of the forward segment: [0, n_forward)
    bool *again;       // by forward node: a copy in the backward pass makes its values
    bool *read;        // by value: the backward pass, or a copy in it, reads it
    td_node *last;     // by value: its last reader in the forward segment
    td_value *copy;    // by value: what the backward pass reads instead; 0: not made yet
    bool *fixed;       // by value: of parameters alone, such as their copies in a narrow type
};

static size_t bytes_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    return (size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype);
}

// The node of the forward segment that makes v, or TD_NODE_NONE.
static td_node maker(const struct remake *r, td_value v) {
    const struct td_value_info *info = td_gv(r->g, v);
    bool here = info->kind == TD_VALUE_NODE && info->node < r->n_forward;
    return here ? info->node : (td_node)TD_NODE_NONE;
}

enum { MAX_IN = 8 }; // operands of a node that is copied

static bool may_copy(const struct td_node_info *node) {
    bool writes = td_node_has_effect(node) || node->n_inputs > MAX_IN;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        writes |= td_op_writes(node->op, &node->attrs, i);
    }
    return !writes;
}

// ---- selective ----------------------------------------------------------------------------------
// Held for the backward pass only because of this node's copy?
static size_t price(const struct remake *r, td_value v) {
    td_node m = maker(r, v);
    return m == (td_node)TD_NODE_NONE || r->read[v] ? 0 : bytes_of(r->g, v);
}

static void choose_cheap(struct remake *r) {
    for (td_node n = 0; n < r->n_forward; n++) {
        const struct td_node_info *node = &r->g->nodes[n];
        if (!td_op_is(node->op, TD_OP_IS_CHEAP) || !may_copy(node) || node->n_outputs != 1 ||
            !r->read[node->outputs[0]] || r->fixed[node->outputs[0]]) {
            continue;
        }
        size_t costs = 0;
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            costs += price(r, node->inputs[i]);
        }
        if (costs >= bytes_of(r->g, node->outputs[0])) continue;
        r->again[n] = true;
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            r->read[node->inputs[i]] = true;
        }
    }
}

// ---- full ---------------------------------------------------------------------------------------
// A place between two forward nodes that a single value crosses.
struct cut {
    td_node before; // the first node after it
    td_value value;
    size_t kept; // bytes of the value
    size_t part; // and of what is made between the cut before and this one
};

// Views cross for what they show.
static td_value root_of(const struct remake *r, td_value v) {
    td_node m = maker(r, v);
    while (m != (td_node)TD_NODE_NONE && td_op_is(r->g->nodes[m].op, TD_OP_IS_VIEW)) {
        v = r->g->nodes[m].inputs[0];
        m = maker(r, v);
    }
    return v;
}

static td_status find_cuts(const struct remake *r, struct cut *cuts, uint32_t *out_n) {
    TD_AUTO_FREE td_node *last = td_calloc(r->g->n_values + 1, sizeof *last);
    if (!last) return td_fail_oom();
    for (td_value v = 1; v <= r->g->n_values; v++) {
        td_value root = root_of(r, v);
        last[root] = TD_MAX(last[root], r->last[v]);
    }
    uint32_t n = 0, crossing = 0;
    size_t made = 0;
    TD_AUTO_FREE uint32_t *ends = td_calloc(r->n_forward + 1, sizeof *ends);
    if (!ends) return td_fail_oom();
    td_value newest = 0;
    for (td_node i = 0; i + 1 < r->n_forward; i++) {
        const struct td_node_info *node = &r->g->nodes[i];
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            td_value v = node->outputs[k];
            if (r->read[v] && !r->fixed[v]) made += bytes_of(r->g, v);
            if (root_of(r, v) != v || last[v] <= i || r->fixed[v]) continue;
            crossing++;
            ends[last[v]]++;
            newest = v;
        }
        crossing -= ends[i];
        bool copied = !td_op_is(node->op, TD_OP_IS_VIEW) && may_copy(node);
        if (crossing != 1 || !copied || td_gv(r->g, newest)->node != i) continue;
        cuts[n++] = (struct cut){i + 1, newest, bytes_of(r->g, newest), made};
        made = 0;
    }
    cuts[n++] = (struct cut){.before = r->n_forward, .part = made}; // the end
    *out_n = n;
    return TD_OK;
}

// Takes cuts so that each part holds at least `least` bytes; marks them, and returns what is then
// kept and held at the worst moment.
static size_t take_cuts(const struct cut *cuts, uint32_t n, size_t least, bool *taken) {
    size_t kept = 0, part = 0, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        part += cuts[i].part;
        taken[i] = i + 1 == n || part >= least;
        if (!taken[i]) continue;
        kept += cuts[i].kept;
        largest = TD_MAX(largest, part);
        part = 0;
    }
    return kept + largest;
}

static void keep_value(struct remake *r, td_value v) {
    for (td_node m = maker(r, v); m != (td_node)TD_NODE_NONE; m = maker(r, v)) {
        r->again[m] = false;
        if (!td_op_is(r->g->nodes[m].op, TD_OP_IS_VIEW)) return;
        v = r->g->nodes[m].inputs[0];
    }
}

static td_status choose_blocks(struct remake *r) {
    TD_AUTO_FREE struct cut *cuts = td_calloc((size_t)r->n_forward + 1, sizeof *cuts);
    TD_AUTO_FREE bool *taken = td_calloc((size_t)r->n_forward + 1, sizeof *taken);
    if (!cuts || !taken) return td_fail_oom();
    uint32_t n = 0;
    TD_TRY(find_cuts(r, cuts, &n));
    size_t total = take_cuts(cuts, n, SIZE_MAX, taken), best = total, least = SIZE_MAX;
    for (size_t t = total; t > total / 4096; t -= TD_MAX(t / 16, 1)) {
        size_t bytes = take_cuts(cuts, n, t, taken);
        if (bytes >= best) continue;
        best = bytes;
        least = t;
    }
    take_cuts(cuts, n, least, taken);
    td_node end = 0; // nodes after the last cut are not made again
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (taken[i]) end = cuts[i].before;
    }
    for (td_node i = 0; i < end; i++) {
        const struct td_node_info *node = &r->g->nodes[i];
        r->again[i] = may_copy(node) && !r->fixed[node->outputs[0]];
    }
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (taken[i]) keep_value(r, cuts[i].value);
    }
    return TD_OK;
}

// ---- rewriting ----------------------------------------------------------------------------------
// Puts copies of node `m`, and of what it needs, before *at, which they push along.
static td_status copy_node(struct remake *r, td_node m, td_node *at) {
    struct td_graph *g = r->g;
    td_value in[MAX_IN], out[TD_MAX_OUT];
    uint32_t n_in = g->nodes[m].n_inputs;
    for (uint32_t i = 0; i < n_in; i++) {
        td_value v = g->nodes[m].inputs[i];
        td_node below = maker(r, v);
        if (below != (td_node)TD_NODE_NONE && r->again[below]) {
            if (!r->copy[v]) TD_TRY(copy_node(r, below, at));
            v = r->copy[v];
        }
        in[i] = v;
    }
    struct td_attrs attrs = g->nodes[m].attrs;
    TD_TRY(td_rewrite_insert_at(g, *at));
    TD_TRY(td_graph_op(g, g->nodes[m].op, in, n_in, &attrs, out));
    g->nodes[(*at)++].recomputes = true;
    for (uint32_t i = 0; i < g->nodes[m].n_outputs; i++) {
        r->copy[g->nodes[m].outputs[i]] = out[i];
    }
    return TD_OK;
}

static td_status rewrite_backward(struct remake *r) {
    struct td_graph *g = r->g;
    for (td_node n = r->n_forward; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            td_value v = g->nodes[n].inputs[i];
            td_node m = maker(r, v);
            if (m == (td_node)TD_NODE_NONE || !r->again[m]) continue;
            if (!r->copy[v]) TD_TRY(copy_node(r, m, &n));
            TD_TRY(td_graph_set_operand(g, n, i, r->copy[v]));
        }
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}

// What is made of state alone crosses everything, is as large as the parameters whatever the batch,
// and is kept.
static void find_fixed(struct remake *r) {
    for (td_node n = 0; n < r->n_forward; n++) {
        const struct td_node_info *node = &r->g->nodes[n];
        bool fixed = may_copy(node);
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            const struct td_value_info *v = td_gv(r->g, node->inputs[i]);
            fixed &= v->kind == TD_VALUE_STATE || r->fixed[node->inputs[i]];
        }
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            r->fixed[node->outputs[i]] = fixed;
        }
    }
}

static void find_readers(struct remake *r) {
    const struct td_graph *g = r->g;
    for (td_node n = 0; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            td_value v = g->nodes[n].inputs[i];
            if (n < r->n_forward) {
                r->last[v] = n;
            } else {
                r->read[v] = true;
            }
        }
    }
}

td_status td_pass_recompute(struct td_graph *g, enum td_recompute level) {
    td_node n = 0;
    while (n < g->n_nodes && g->nodes[n].segment == TD_SEG_FORWARD) {
        n++;
    }
    if (level == TD_RECOMPUTE_NONE || n == g->n_nodes) return TD_OK;
    size_t n_values = (size_t)g->n_values + 1;
    TD_AUTO_FREE bool *again = td_calloc((size_t)n + 1, sizeof *again);
    TD_AUTO_FREE bool *read = td_calloc(n_values, sizeof *read);
    TD_AUTO_FREE td_node *last = td_calloc(n_values, sizeof *last);
    TD_AUTO_FREE td_value *copy = td_calloc(n_values, sizeof *copy);
    TD_AUTO_FREE bool *fixed = td_calloc(n_values, sizeof *fixed);
    if (!again || !read || !last || !copy || !fixed) return td_fail_oom();
    struct remake r = {g, n, again, read, last, copy, fixed};
    find_readers(&r);
    find_fixed(&r);
    if (level == TD_RECOMPUTE_FULL) {
        TD_TRY(choose_blocks(&r));
    } else {
        choose_cheap(&r);
    }
    return rewrite_backward(&r);
}
