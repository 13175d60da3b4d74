// See the header.

#include "engine/graph/edit.h"

#include <string.h>

#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "traind/rewrite.h"

td_status td_graph_count_uses(const struct td_graph *g, uint32_t **out_uses) {
    uint32_t *uses = td_calloc(g->n_values + 1, sizeof *uses);
    if (!uses) return td_fail_oom();
    for (td_node n = 0; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            uses[g->nodes[n].inputs[i]]++;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uses[g->outputs[i].value]++;
    }
    if (g->loss) uses[g->loss]++;
    *out_uses = uses;
    return TD_OK;
}

// A piece of a tensor is part of the whole.
static bool overlap(const struct td_graph *g, td_value a, td_value b) {
    const struct td_value_info *x = td_gv(g, a), *y = td_gv(g, b);
    if (a == b) return true;
    return x->kind == TD_VALUE_STATE && y->kind == TD_VALUE_STATE && x->index == y->index;
}

// An await completes what its start writes.
bool td_node_writes(const struct td_graph *g, td_node n, td_value v) {
    const struct td_node_info *node = &g->nodes[n];
    if (node->op == TD_OP_AWAIT) return td_node_writes(g, td_node_of_token(g, node->inputs[0]), v);
    bool writes = node->into && overlap(g, node->into, v);
    for (uint32_t i = 0; i < node->n_inputs && !writes; i++) {
        writes = overlap(g, node->inputs[i], v) && td_op_writes(node->op, &node->attrs, i);
    }
    return writes;
}

bool td_graph_stable(const struct td_graph *g, td_value v, td_node after, td_node until) {
    if (td_gv(g, v)->kind != TD_VALUE_STATE) return true;
    for (td_node n = after + 1; n < until && n < g->n_nodes; n++) {
        if (td_node_writes(g, n, v)) return false;
    }
    return true;
}

void td_graph_compact(struct td_graph *g, const bool *dead) {
    td_node to = 0;
    for (td_node n = 0; n < g->n_nodes; n++) {
        const struct td_node_info *node = &g->nodes[n];
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            g->values[node->outputs[i]].node = dead[n] ? (td_node)TD_NODE_NONE : to;
        }
        if (!dead[n]) g->nodes[to++] = *node;
    }
    g->n_nodes = to;
    g->cursor = TD_NODE_NONE;
}

td_status td_graph_set_operand(struct td_graph *g, td_node n, uint32_t i, td_value v) {
    struct td_node_info *node = &g->nodes[n];
    td_value *copy = td_arena_array(g->arena, node->n_inputs, sizeof *copy);
    if (!copy) return td_fail_oom();
    memcpy(copy, node->inputs, node->n_inputs * sizeof *copy);
    copy[i] = v;
    node->inputs = copy;
    return TD_OK;
}

static bool reads_plainly(const struct td_node_info *node, uint32_t i, td_value v) {
    return node->inputs[i] == v && node->op != TD_OP_CAST;
}

td_status td_graph_retype_input(struct td_graph *g, uint32_t slot, enum td_dtype dtype) {
    const td_value v = td_graph_input_at(g, slot);
    const struct td_attrs recorded = {.dtype = td_gv(g, v)->dtype};
    td_value cast = 0;
    if (recorded.dtype == dtype) return TD_OK;
    td_gv(g, v)->dtype = dtype;
    for (td_node n = 0; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            if (!reads_plainly(&g->nodes[n], i, v)) continue;
            if (!cast) {
                TD_TRY(td_rewrite_insert_at(g, n++));
                TD_TRY(td_graph_op(g, TD_OP_CAST, &v, 1, &recorded, &cast));
            }
            TD_TRY(td_graph_set_operand(g, n, i, cast));
        }
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}
