// Autodiff: reverse mode over a recorded step.
//
// Walks the forward nodes backwards and gives each operand that depends on a parameter its share of
// the adjoint (rules: rules/gradient.h). Where a value is read more than once, it adds the shares.
// A parameter's adjoint is complete when its first reader was visited. There its gradient is stored
// at once into the state tensor "<param>:grad". So gradients are written in backward order, and a
// strategy can start to reduce a bucket while the rest is still being computed. Within a node,
// operands go from the last to the first: bias, weight, and only then the data gradient that later
// nodes wait for.
//
// Only values that depend on a parameter get gradients; the first layer's input costs nothing.
// Parameters that the step does not train are constants, too. The parameters of the state table
// that get no gradient are listed in the graph.

#include "engine/graph/rules/gradient.h"

#include <stdio.h>
#include <string.h>

#include "engine/graph/builder.h"
#include "engine/graph/passes/passes.h"
#include "lib/base/floats/floats.h"

struct walk {
    struct td_graph *g;
    const struct td_autodiff_options *o;
    uint32_t n_values; // of the forward part
    td_value *adjoint; // by value; 0: none yet
    bool *needs;       // by value: depends on a parameter
    td_node *first;    // by value: its first reader
    bool *stored;      // by state index: has a gradient
    td_value counted;  // the seed (count.c); 0: it is made of scalars
};

// One that this step trains; any other is a constant.
static bool is_param(const struct walk *w, td_value v) {
    const struct td_value_info *info = td_gv(w->g, v);
    if (info->kind != TD_VALUE_STATE || !td_is_float(info->dtype)) return false;
    const struct td_state_info *t = td_state_at(w->g->state, info->index);
    if (t->role != TD_ROLE_PARAM) return false;
    return !w->o->trains || w->o->trains(w->o->trains_arg, w->o->key, t->name);
}

static void find_dependents(struct walk *w) {
    for (td_value v = 1; v <= w->n_values; v++) {
        w->needs[v] = is_param(w, v);
        w->first[v] = TD_NODE_NONE;
    }
    for (td_node n = w->g->n_nodes; n-- > 0;) {
        for (uint32_t i = 0; i < w->g->nodes[n].n_inputs; i++) {
            w->first[w->g->nodes[n].inputs[i]] = n;
        }
    }
    for (td_node n = 0; n < w->g->n_nodes; n++) {
        const struct td_node_info *node = &w->g->nodes[n];
        bool any = false;
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            any |= w->needs[node->inputs[i]];
        }
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            w->needs[node->outputs[i]] = any && td_is_float(td_gv(w->g, node->outputs[i])->dtype);
        }
    }
}

static td_status add_share(struct walk *w, td_value v, td_value share) {
    if (!w->adjoint[v]) {
        w->adjoint[v] = share;
        return TD_OK;
    }
    td_value sum, old;
    TD_TRY(td_grad_value(w->g, w->adjoint[v], td_gv(w->g, v)->dtype, &old));
    TD_TRY(td_graph_op3(w->g, TD_OP_ADD, old, share, 0, NULL, &sum));
    w->adjoint[v] = sum;
    return TD_OK;
}

static td_status store_gradient(struct walk *w, td_value param) {
    if (!w->adjoint[param]) return TD_OK;
    struct td_graph *g = w->g;
    uint32_t index = td_gv(g, param)->index, grad_index;
    const struct td_state_info *p = td_state_at(g->state, index);
    enum td_dtype dtype = td_gv(g, param)->dtype; // as recorded
    char name[512];
    snprintf(name, sizeof name, "%s:grad", p->name);
    struct td_init zero = {.kind = TD_INIT_ZERO};
    TD_TRY(td_state_add(g->state, name, TD_ROLE_GRAD, dtype, &p->shape, zero, index, &grad_index));
    td_value in[2];
    TD_TRY(td_graph_state_value(g, grad_index, &in[0]));
    TD_TRY(td_grad_value(g, w->adjoint[param], dtype, &in[1]));
    struct td_attrs a = {.accumulate = w->o->accumulate};
    TD_TRY(td_graph_op(g, TD_OP_STORE, in, 2, &a, NULL));
    w->stored[index] = true;
    return TD_OK;
}

// Is operand i where the walk sees this value for the last time?
static bool last_seen(const struct walk *w, const struct td_node_info *node, td_node n,
                      uint32_t i) {
    if (w->first[node->inputs[i]] != n) return false;
    for (uint32_t k = 0; k < i; k++) {
        if (node->inputs[k] == node->inputs[i]) return false;
    }
    return true;
}

static td_status visit(struct walk *w, td_node n) {
    struct td_node_info node = w->g->nodes[n]; // a copy: the array grows
    td_value dy = node.n_outputs ? w->adjoint[node.outputs[0]] : 0;
    bool any = false;
    for (uint32_t i = 0; i < node.n_inputs; i++) {
        any |= w->needs[node.inputs[i]];
    }
    if (node.n_outputs > 1 && w->adjoint[node.outputs[1]] && any) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the loss depends on parameters through the second output of '%s', which "
                       "has no gradient",
                       td_op_name(node.op));
    }
    bool active = dy && any;
    td_value made[TD_MAX_OUT] = {0};
    if (active) TD_TRY(td_grad_prologue(w->g, &node, &dy));
    for (uint32_t i = node.n_inputs; i-- > 0;) {
        td_value in = node.inputs[i], share = 0;
        if (active && w->needs[in]) {
            struct td_grad_call c = {w->g, &node, i, dy, &share, made};
            TD_TRY(td_grad_rule(&c));
            TD_TRY(add_share(w, in, share));
        }
        if (is_param(w, in) && last_seen(w, &node, n, i)) TD_TRY(store_gradient(w, in));
    }
    return TD_OK;
}

static td_status seed(struct walk *w) {
    td_value one = TD_ADJOINT_ONE, scale;
    if (w->o->accumulate || w->o->windowed) TD_TRY(td_graph_scalar(w->g, TD_SCALAR_WINDOW, &one));
    if (w->counted) {
        one = w->counted;
    } else if (w->o->scaled) {
        TD_TRY(td_graph_scalar(w->g, TD_SCALAR_LOSS_SCALE, &scale));
        if (one == TD_ADJOINT_ONE) {
            one = scale;
        } else {
            TD_TRY(td_graph_op3(w->g, TD_OP_MUL, one, scale, 0, NULL, &one));
        }
    }
    if (one != TD_ADJOINT_ONE) {
        enum td_dtype dtype = td_gv(w->g, w->g->loss)->dtype;
        struct td_attrs a = {.dtype = dtype};
        if (dtype != TD_F32) TD_TRY(td_graph_op3(w->g, TD_OP_CAST, one, 0, 0, &a, &one));
    }
    w->adjoint[w->g->loss] = one;
    return is_param(w, w->g->loss) && w->first[w->g->loss] == TD_NODE_NONE
               ? store_gradient(w, w->g->loss)
               : TD_OK;
}

static td_status list_unreached(struct walk *w, uint32_t n_state) {
    struct td_graph *g = w->g;
    g->n_unreached = 0;
    g->unreached = td_arena_array(g->arena, n_state + 1, sizeof *g->unreached);
    if (!g->unreached) return td_fail_oom();
    for (uint32_t i = 0; i < n_state; i++) {
        bool param = td_state_at(g->state, i)->role == TD_ROLE_PARAM;
        if (param && !w->stored[i]) g->unreached[g->n_unreached++] = i;
    }
    return TD_OK;
}

td_status td_pass_autodiff(struct td_graph *g, const struct td_autodiff_options *o) {
    if (!g->loss) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "step '%s' is recorded for training but names no loss: call td_graph_loss",
                       g->step);
    }
    td_value counted = 0;
    if (o->counted) TD_TRY(td_pass_count(g, o->key->batch, o->scaled, &counted));
    uint32_t n = g->n_values + 1, n_state = td_state_count(g->state);
    TD_AUTO_FREE td_value *adjoint = td_calloc(n, sizeof *adjoint);
    TD_AUTO_FREE bool *needs = td_calloc(n, sizeof *needs);
    TD_AUTO_FREE td_node *first = td_calloc(n, sizeof *first);
    TD_AUTO_FREE bool *stored = td_calloc(n_state + 1, sizeof *stored);
    if (!adjoint || !needs || !first || !stored) return td_fail_oom();
    struct walk w = {.g = g,
                     .o = o,
                     .n_values = g->n_values,
                     .adjoint = adjoint,
                     .needs = needs,
                     .first = first,
                     .stored = stored,
                     .counted = counted};
    find_dependents(&w);
    td_graph_set_segment(g, TD_SEG_BACKWARD);
    td_node n_forward = g->n_nodes;
    TD_TRY_CTX(seed(&w), "step '%s'", g->step);
    for (td_node i = n_forward; i-- > 0;) {
        TD_TRY_CTX(visit(&w, i), "step '%s'", g->step);
    }
    return list_unreached(&w, n_state);
}
