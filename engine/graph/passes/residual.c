// Residual: a sum and the norm beside it become one trip through memory.
//
// - h = x + r, y = norm(h): one node makes both, where the sum stood, if the norm is the first to
//   read h.
// - dx of a norm, and the sum that adds to it what came along the residual stream: one node.
// Both at once leave four of seven trips over a value of the stream and its gradient.
//
// It runs after recompute, which needs sum and norm apart: the norm of a sum that is kept is cheap
// to make again, sum and all it is not. On `reference` no bit changes, because what was rounded
// between the parts still is; `cpu` rounds the forward sum, and so makes the same norm of it again.

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"

struct residual {
    struct td_graph *g;
    td_node *first; // by value: its first reader
    uint32_t *uses; // by value
    bool *dead;     // by node
};

// Do both have the very type and shape of v?
static bool all_like(const struct td_graph *g, const td_value *in, td_value v) {
    bool alike = true;
    for (int i = 0; i < 2; i++) {
        alike &= td_gv(g, in[i])->dtype == td_gv(g, v)->dtype &&
                 td_shape_equal(&td_gv(g, in[i])->shape, &td_gv(g, v)->shape);
    }
    return alike;
}

static bool is_plain_add(const struct residual *r, const struct td_node_info *node) {
    return node->op == TD_OP_ADD && node->n_outputs == 1 &&
           all_like(r->g, node->inputs, node->outputs[0]);
}

// Output i of node n is v from now on.
static void give_output(struct td_graph *g, td_node n, uint32_t i, td_value v) {
    g->nodes[n].outputs[i] = v;
    g->values[v].node = n;
    g->values[v].output = i;
}

// Node n with operands of its own.
static td_status set_operands(struct td_graph *g, td_node n, const td_value *in, uint32_t n_in) {
    td_value *copy = td_arena_array(g->arena, n_in, sizeof *copy);
    if (!copy) return td_fail_oom();
    for (uint32_t i = 0; i < n_in; i++) {
        copy[i] = in[i];
    }
    g->nodes[n].inputs = copy;
    g->nodes[n].n_inputs = n_in;
    return TD_OK;
}

// ---- forward ------------------------------------------------------------------------------------
static bool is_there(const struct td_graph *g, td_value v, td_node at, td_node until) {
    const struct td_value_info *info = td_gv(g, v);
    return (info->kind != TD_VALUE_NODE || info->node < at) && td_graph_stable(g, v, at, until);
}

static td_status join_forward(struct residual *r, td_node n) {
    struct td_graph *g = r->g;
    const td_value sum = g->nodes[n].outputs[0];
    const td_node m = r->first[sum];
    if (m == (td_node)TD_NODE_NONE || r->dead[m]) return TD_OK;
    struct td_node_info *norm = &g->nodes[m];
    const bool layer = norm->op == TD_OP_LAYER_NORM;
    if ((!layer && norm->op != TD_OP_RMS_NORM) || norm->inputs[0] != sum ||
        norm->segment != g->nodes[n].segment || norm->n_outputs != 1) {
        return TD_OK;
    }
    td_value in[4] = {g->nodes[n].inputs[0], g->nodes[n].inputs[1]};
    for (uint32_t i = 1; i < norm->n_inputs; i++) {
        in[i + 1] = norm->inputs[i];
        if (!is_there(g, in[i + 1], n, m)) return TD_OK;
    }
    TD_TRY(set_operands(g, n, in, norm->n_inputs + 1));
    g->nodes[n].op = layer ? TD_OP_ADD_LAYER_NORM : TD_OP_ADD_RMS_NORM;
    g->nodes[n].attrs = norm->attrs;
    g->nodes[n].n_outputs = 2;
    give_output(g, n, 0, norm->outputs[0]);
    give_output(g, n, 1, sum);
    norm->n_outputs = 0; // or compacting would forget the values' maker
    r->dead[m] = true;
    return TD_OK;
}

// ---- backward -----------------------------------------------------------------------------------
static td_status join_backward(struct residual *r, td_node n) {
    struct td_graph *g = r->g;
    struct td_node_info *grad = &g->nodes[n];
    const td_value dx = grad->outputs[0];
    const td_node m = r->first[dx];
    if (grad->n_inputs != 3 || r->uses[dx] != 1 || m == (td_node)TD_NODE_NONE) return TD_OK;
    struct td_node_info *add = &g->nodes[m];
    if (!is_plain_add(r, add) || add->segment != grad->segment) return TD_OK;
    const td_value more = add->inputs[add->inputs[0] == dx];
    if (!is_there(g, more, n, m)) return TD_OK;
    const td_value in[4] = {grad->inputs[0], grad->inputs[1], grad->inputs[2], more};
    TD_TRY(set_operands(g, n, in, 4));
    g->values[dx].node = TD_NODE_NONE;
    give_output(g, n, 0, add->outputs[0]);
    add->n_outputs = 0;
    r->dead[m] = true;
    return TD_OK;
}

static void find_readers(struct residual *r) {
    for (td_value v = 0; v <= r->g->n_values; v++) {
        r->first[v] = TD_NODE_NONE;
    }
    for (td_node n = r->g->n_nodes; n-- > 0;) {
        for (uint32_t i = 0; i < r->g->nodes[n].n_inputs; i++) {
            r->first[r->g->nodes[n].inputs[i]] = n;
        }
    }
}

td_status td_pass_residual(struct td_graph *g) {
    TD_AUTO_FREE uint32_t *uses = NULL;
    TD_TRY(td_graph_count_uses(g, &uses));
    TD_AUTO_FREE td_node *first = td_calloc(g->n_values + 1, sizeof *first);
    TD_AUTO_FREE bool *dead = td_calloc(g->n_nodes + 1, sizeof *dead);
    if (!first || !dead) return td_fail_oom();
    struct residual r = {.g = g, .first = first, .uses = uses, .dead = dead};
    find_readers(&r);
    for (td_node n = 0; n < g->n_nodes; n++) {
        enum td_op op = g->nodes[n].op;
        if (dead[n]) continue;
        if (is_plain_add(&r, &g->nodes[n])) TD_TRY(join_forward(&r, n));
        if (op == TD_OP_LAYER_NORM_GRAD || op == TD_OP_RMS_NORM_GRAD) TD_TRY(join_backward(&r, n));
    }
    td_graph_compact(g, dead);
    return TD_OK;
}
