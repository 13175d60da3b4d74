// Schedule: what is made of state and inputs alone is made where it is first read.
//
// Such a node frees nothing in the arena when it runs, so the later it runs, the less lives at any
// moment; no other order is touched. A mixed precision casts every parameter at the program's
// front, where all shadows would live at once. A node stays in its segment, and in front of
// whatever writes the state that it reads.
//
// Rejected: list scheduling by what a node makes and frees. On whole steps the order of autodiff is
// nowhere worse, because each gradient is stored as soon as it is complete. The step needs the most
// between forward and backward, where no order helps. A greedy choice keeps up to three times as
// much where values are made again.

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/rules/rules.h"

static bool made_of_state(const struct td_graph *g, const struct td_node_info *node) {
    bool so =
        node->n_outputs > 0 && !td_node_has_effect(node) && !td_op_is(node->op, TD_OP_IS_VIEW);
    for (uint32_t i = 0; so && i < node->n_inputs; i++) {
        so = td_gv(g, node->inputs[i])->kind != TD_VALUE_NODE &&
             !td_op_writes(node->op, &node->attrs, i);
    }
    return so;
}

static bool reads(const struct td_node_info *node, const struct td_node_info *maker) {
    bool found = false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        for (uint32_t k = 0; k < maker->n_outputs; k++) {
            found |= node->inputs[i] == maker->outputs[k];
        }
    }
    return found;
}

// The place before the first reader of node n, or n where it has to stay.
static td_node place_of(const struct td_graph *g, td_node n) {
    const struct td_node_info *node = &g->nodes[n];
    td_node r = n + 1;
    while (r < g->n_nodes && g->nodes[r].segment == node->segment && !reads(&g->nodes[r], node)) {
        r++;
    }
    bool moves = r < g->n_nodes && g->nodes[r].segment == node->segment;
    for (uint32_t i = 0; moves && i < node->n_inputs; i++) {
        moves = td_graph_stable(g, node->inputs[i], n, r);
    }
    return moves ? r - 1 : n;
}

static void move(struct td_graph *g, td_node from, td_node to) {
    const struct td_node_info node = g->nodes[from];
    for (td_node n = from; n < to; n++) {
        g->nodes[n] = g->nodes[n + 1];
    }
    g->nodes[to] = node;
    for (td_node n = from; n <= to; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_outputs; i++) {
            td_gv(g, g->nodes[n].outputs[i])->node = n;
        }
    }
}

td_status td_pass_schedule(struct td_graph *g) {
    TD_AUTO_FREE bool *moved = td_calloc(g->n_values + 1, sizeof *moved); // by first output
    if (!moved) return td_fail_oom();
    for (td_node n = 0; n < g->n_nodes;) {
        const struct td_node_info *node = &g->nodes[n];
        td_node to = n;
        if (made_of_state(g, node) && !moved[node->outputs[0]]) {
            moved[node->outputs[0]] = true;
            to = place_of(g, n);
        }
        if (to == n) {
            n++;
        } else {
            move(g, n, to); // and look at the one that comes up
        }
    }
    return TD_OK;
}
