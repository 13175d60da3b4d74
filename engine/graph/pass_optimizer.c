// Optimizer pass: what happens to the gradients once they are complete.
//
// finish: unscale, norm, clip (pass_finish.c). apply: one node per parameter that has a gradient in
// this graph, which does decay, moments, clip and update in one pass over memory. A parameter that
// the step does not reach keeps its value and its moments, as in torch (its grad is None there).
// The optimizer's state is created here, next to the parameter and in the type that this is stored
// in, as in torch: "<param>:exp_avg" and so on.

#include "engine/graph/passes.h"

#include <stdio.h>

#include "engine/graph/graph_impl.h"
#include "traind/random.h"

struct update {
    struct td_graph *g;
    const struct td_optimizer_options *o;
    td_value factor; // of every gradient, 0: none
};

// Gradients written in this graph, in the order of their parameters' registration.
static td_status list_gradients(const struct td_graph *g, uint32_t **out_grads, uint32_t *out_n) {
    uint32_t n_state = td_state_count(g->state), n = 0;
    TD_AUTO_FREE uint32_t *by_param = td_calloc(n_state + 1, sizeof *by_param);
    TD_AUTO_FREE uint32_t *grads = td_calloc(n_state + 1, sizeof *grads);
    if (!by_param || !grads) return td_fail_oom();
    for (td_node i = 0; i < g->n_nodes; i++) {
        uint32_t grad;
        if (!td_node_gradient(g, &g->nodes[i], &grad)) continue;
        by_param[td_state_at(g->state, grad)->param] = grad + 1;
    }
    for (uint32_t i = 0; i < n_state; i++) {
        if (by_param[i]) grads[n++] = by_param[i] - 1;
    }
    *out_grads = td_steal(grads);
    *out_n = n;
    return TD_OK;
}

static td_status add_moment(struct update *u, uint32_t param, const char *suffix,
                            td_value *out_value) {
    const struct td_state_info *p = td_state_at(u->g->state, param);
    struct td_init zero = {.kind = TD_INIT_ZERO};
    uint32_t index;
    char name[512];
    snprintf(name, sizeof name, "%s:%s", p->name, suffix);
    TD_TRY(
        td_state_add(u->g->state, name, TD_ROLE_OPTIM, p->dtype, &p->shape, zero, param, &index));
    return td_graph_state_value(u->g, index, out_value);
}

static td_status add_update(struct update *u, uint32_t grad) {
    uint32_t param = td_state_at(u->g->state, grad)->param, n = 2;
    struct td_optim_choice choice = {.op = u->o->op, .attrs = u->o->attrs};
    if (u->o->choose) u->o->choose(u->o->choose_arg, td_state_at(u->g->state, param), &choice);
    if (choice.frozen) return TD_OK;
    const struct td_state_info *p = td_state_at(u->g->state, param);
    struct td_attrs a = {.optim = choice.attrs};
    if (u->o->stochastic && td_dtype_bytes(p->dtype) < sizeof(float)) {
        a.optim.stochastic = true;
        a.stream = td_stream_of(p->name);
    }
    td_value in[5];
    TD_TRY(td_graph_state_value(u->g, param, &in[0]));
    TD_TRY(td_graph_state_value(u->g, grad, &in[1]));
    if (choice.op == TD_OP_SGD) {
        if (a.optim.momentum != 0.0f) TD_TRY(add_moment(u, param, "momentum_buffer", &in[n++]));
    } else {
        TD_TRY(add_moment(u, param, "exp_avg", &in[n++]));
        TD_TRY(add_moment(u, param, "exp_avg_sq", &in[n++]));
    }
    if (u->factor) in[n++] = u->factor;
    return td_graph_op(u->g, choice.op, in, n, &a, NULL);
}

td_status td_pass_optimizer(struct td_graph *g, const struct td_optimizer_options *o) {
    if (o->op != TD_OP_SGD && o->op != TD_OP_ADAM && o->op != TD_OP_ADAMW) {
        return td_fail(TD_INVALID_ARGUMENT, "'%s' is no optimizer", td_op_name(o->op));
    }
    struct update u = {.g = g, .o = o};
    TD_AUTO_FREE uint32_t *grads = NULL;
    uint32_t n = 0;
    TD_TRY(list_gradients(g, &grads, &n));
    TD_TRY(td_pass_finish(g, o, grads, n, &u.factor));
    td_graph_set_segment(g, TD_SEG_APPLY);
    for (uint32_t i = 0; i < n; i++) {
        TD_TRY(add_update(&u, grads[i]));
    }
    return TD_OK;
}
