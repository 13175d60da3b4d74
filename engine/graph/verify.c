// See the header.

#include "engine/graph/verify.h"

#include <inttypes.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/rules/rules.h"

static td_status broken(const struct td_graph *g, td_node n, const char *what) {
    return td_fail(TD_INTERNAL, "step '%s' node %" PRIu32 " (%s): %s", g->step, n,
                   td_op_name(g->nodes[n].op), what);
}

static td_status verify_operands(const struct td_graph *g, td_node n) {
    const struct td_node_info *node = &g->nodes[n];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        td_value v = node->inputs[i];
        if (v < 1 || v > g->n_values) return broken(g, n, "an operand is no value");
        if (g->values[v].kind != TD_VALUE_NODE) continue;
        if (g->values[v].node >= n) return broken(g, n, "an operand is read before it is made");
    }
    return TD_OK;
}

static td_status verify_outputs(const struct td_graph *g, td_node n) {
    const struct td_node_info *node = &g->nodes[n];
    struct td_op_result r;
    TD_TRY_CTX(td_op_infer(g, node->op, node->inputs, node->n_inputs, &node->attrs, &r),
               "step '%s' node %" PRIu32, g->step, n);
    if (node->recomputes && (node->segment != TD_SEG_BACKWARD || td_node_has_effect(node))) {
        return broken(g, n, "what is no copy of a forward node is marked as one");
    }
    if (node->into) {
        const struct td_value_info *to = &g->values[node->into];
        bool same = node->op == TD_OP_REDUCE_SUM
                        ? td_shape_elems(&to->shape) == td_shape_elems(&r.shape[0])
                        : td_shape_equal(&to->shape, &r.shape[0]);
        bool fits = same && to->kind == TD_VALUE_STATE && to->dtype == r.dtype[0];
        bool may = node->op == TD_OP_MATMUL || node->op == TD_OP_REDUCE_SUM ||
                   node->op == TD_OP_CONV2D_GRAD_W || node->op == TD_OP_EMBEDDING_GRAD ||
                   (!node->attrs.accumulate && td_op_n_out(node->op) == 1);
        may &= !td_op_is(node->op, TD_OP_IS_START);
        return fits && may && !node->n_outputs ? TD_OK : broken(g, n, "a bad direct write");
    }
    if (node->n_outputs != td_op_n_out(node->op)) return broken(g, n, "a wrong number of outputs");
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct td_value_info *v = &g->values[node->outputs[i]];
        if (v->kind != TD_VALUE_NODE || v->node != n || v->output != i) {
            return broken(g, n, "an output is filed elsewhere");
        }
        if (v->dtype != r.dtype[i] || !td_shape_equal(&v->shape, &r.shape[i])) {
            return broken(g, n, "an output's shape does not follow from the operands");
        }
    }
    return TD_OK;
}

// ---- sums over ranks ----------------------------------------------------------------------------
struct under_way {
    const struct td_graph *g;
    td_node *by;   // by value: the start that has it as an operand, and one; 0: none
    bool *awaited; // by node
};

static td_status verify_touch(const struct under_way *u, td_node n, td_value v) {
    if (v && td_node_of_token(u->g, v) != (td_node)TD_NODE_NONE) {
        if (u->g->nodes[n].op == TD_OP_AWAIT) return TD_OK;
        return broken(u->g, n, "a token is read by what is no await");
    }
    if (!v || !u->by[v]) return TD_OK;
    if (td_node_writes(u->g, u->by[v] - 1, v)) {
        return broken(u->g, n, "it touches what a sum over ranks writes, before its await");
    }
    if (!td_node_writes(u->g, n, v)) return TD_OK;
    return broken(u->g, n, "it writes what a sum over ranks reads, before its await");
}

// Of all operands, and of what is another value of the same tensor.
static void set_by(const struct under_way *u, const struct td_node_info *node, td_node by) {
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const td_value v = node->inputs[i];
        u->by[v] = by;
        if (td_gv(u->g, v)->kind != TD_VALUE_STATE) continue;
        const struct td_state_values *of = &u->g->by_state[td_gv(u->g, v)->index];
        u->by[of->whole] = u->by[of->piece] = by; // [0] is no value's
    }
}

static td_status verify_await(const struct under_way *u, td_node n) {
    const td_node start = td_node_of_token(u->g, u->g->nodes[n].inputs[0]);
    const struct td_node_info *node = &u->g->nodes[start];
    if (u->awaited[start]) return broken(u->g, n, "a sum over ranks is awaited twice");
    if (node->segment != u->g->nodes[n].segment) {
        return broken(u->g, n, "a sum over ranks is awaited in another segment than it begins in");
    }
    u->awaited[start] = true;
    set_by(u, node, 0);
    return TD_OK;
}

static td_status verify_sum(const struct under_way *u, td_node n) {
    const struct td_node_info *node = &u->g->nodes[n];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        TD_TRY(verify_touch(u, n, node->inputs[i]));
    }
    TD_TRY(verify_touch(u, n, node->into));
    if (node->op == TD_OP_AWAIT) return verify_await(u, n);
    if (td_op_is(node->op, TD_OP_IS_START)) set_by(u, node, n + 1);
    return TD_OK;
}

static td_status verify_sums(const struct td_graph *g) {
    TD_AUTO_FREE td_node *by = td_calloc((size_t)g->n_values + 1, sizeof *by);
    TD_AUTO_FREE bool *awaited = td_calloc((size_t)g->n_nodes + 1, sizeof *awaited);
    const struct under_way u = {g, by, awaited};
    if (!by || !awaited) return td_fail_oom();
    for (td_node n = 0; n < g->n_nodes; n++) {
        TD_TRY(verify_sum(&u, n));
    }
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (awaited[n] || !td_op_is(g->nodes[n].op, TD_OP_IS_START)) continue;
        return broken(g, n, "a sum over ranks is never awaited");
    }
    return TD_OK;
}

td_status td_graph_verify(const struct td_graph *g) {
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (n && g->nodes[n].segment < g->nodes[n - 1].segment) {
            return broken(g, n, "the segment goes back");
        }
        TD_TRY(verify_operands(g, n));
        TD_TRY(verify_outputs(g, n));
    }
    TD_TRY(verify_sums(g));
    for (td_value v = 1; v <= g->n_values && g->as_stored; v++) {
        if (g->values[v].kind != TD_VALUE_STATE) continue;
        const struct td_state_info *s = td_state_at(g->state, g->values[v].index);
        if (s->dtype != g->values[v].dtype) {
            return td_fail(TD_INTERNAL, "step '%s': state '%s' is read in another type than stored",
                           g->step, s->name);
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct td_value_info *v = &g->values[g->outputs[i].value];
        if (v->kind == TD_VALUE_NODE && v->node >= g->n_nodes) {
            return td_fail(TD_INTERNAL, "step '%s': nobody makes output '%s'", g->step,
                           g->outputs[i].name);
        }
    }
    return TD_OK;
}
