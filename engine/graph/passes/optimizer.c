// Optimizer pass: what happens to the gradients once they are complete.
//
// finish: unscale, norm, clip (finish.c). apply: one node per parameter that has a gradient in this
// graph, which does decay, moments, clip and update in one pass over memory. Muon's update is a
// function of the whole matrix: it is several nodes, so that its products run and are placed in
// memory like all others. A parameter that the step does not reach keeps its value and its moments,
// as in torch (its grad is None there). The optimizer's state is created here, next to the
// parameter: "<param>:exp_avg" and so on. Its type is the one that the parameter is stored in, as
// in torch, or f32. Of a parameter that is split, this rank's piece is updated, and the optimizer's
// state has that piece alone.

#include "engine/graph/passes/passes.h"

#include <stdio.h>

#include "engine/graph/builder.h"
#include "engine/graph/graph.h"
#include "traind/random.h"
#include "traind/rewrite.h"

struct update {
    struct td_graph *g;
    const struct td_optimizer_options *o;
    td_value factor;    // of every gradient, 0: none
    const bool *in_out; // by tensor: td_optim_choice.in_out
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

// ---- how a weight is stored ---------------------------------------------------------------------
// The parameter whose elements v has, cast or turned round; 0: none.
static td_value weight_of(const struct td_graph *g, td_value v, bool *out_turned) {
    *out_turned = false;
    for (;;) {
        const struct td_value_info *info = td_gv(g, v);
        if (info->kind != TD_VALUE_NODE) break;
        const struct td_node_info *node = &g->nodes[info->node];
        if (node->op == TD_OP_TRANSPOSE && info->shape.n_dims == 2) {
            *out_turned ^= node->attrs.perm[0] == 1;
        } else if (node->op != TD_OP_CAST) {
            break;
        }
        v = node->inputs[0];
    }
    const struct td_value_info *info = td_gv(g, v);
    bool is_param =
        info->kind == TD_VALUE_STATE && td_state_at(g->state, info->index)->role == TD_ROLE_PARAM;
    return is_param ? v : 0;
}

// A product of x by a weight sums over what the weight takes in. One of two weights says nothing.
static td_status find_in_out(const struct td_graph *g, bool **out_in_out) {
    const size_t n_state = td_state_count(g->state);
    TD_AUTO_FREE bool *in_out = td_calloc(n_state + 1, sizeof *in_out);
    TD_AUTO_FREE bool *out_in = td_calloc(n_state + 1, sizeof *out_in);
    if (!in_out || !out_in) return td_fail_oom();
    for (td_node n = 0; n < g->n_nodes; n++) {
        const struct td_node_info *node = &g->nodes[n];
        bool turned, unused;
        if (node->op != TD_OP_MATMUL || node->segment != TD_SEG_FORWARD) continue;
        td_value w = weight_of(g, node->inputs[1], &turned);
        if (!w || weight_of(g, node->inputs[0], &unused)) continue;
        (node->attrs.trans_b == turned ? in_out : out_in)[td_gv(g, w)->index] = true;
    }
    for (size_t i = 0; i < n_state; i++) {
        in_out[i] &= !out_in[i]; // read both ways: as it is stored
    }
    *out_in_out = td_steal(in_out);
    return TD_OK;
}

// An optimizer's buffer that belongs to a parameter: "<param>:<suffix>".
static td_status add_buffer(struct update *u, uint32_t param, const char *suffix,
                            const struct td_shape *shape, td_value *out_value) {
    const struct td_state_info *p = td_state_at(u->g->state, param);
    struct td_init zero = {.kind = TD_INIT_ZERO};
    bool widens = u->o->wide && td_dtype_bytes(p->dtype) < sizeof(float);
    enum td_dtype t = widens ? TD_F32 : p->dtype;
    uint32_t index;
    char name[512];
    snprintf(name, sizeof name, "%s:%s", p->name, suffix);
    TD_TRY(td_state_add(u->g->state, name, TD_ROLE_OPTIM, t, shape, zero, param, &index));
    if (!p->n_pieces) return td_graph_state_value(u->g, index, out_value);
    TD_TRY(td_rewrite_split(u->g, index, true));
    return td_graph_state_piece(u->g, index, out_value);
}

// The whole tensor, or this rank's piece of it.
static td_status add_operand(struct update *u, uint32_t index, td_value *out_value) {
    return td_state_at(u->g->state, index)->n_pieces ? td_graph_state_piece(u->g, index, out_value)
                                                     : td_graph_state_value(u->g, index, out_value);
}

// Each element by itself: then a piece is updated as the whole would be.
static td_status check_takes_pieces(const struct td_state_info *param, enum td_op op) {
    const bool takes = op == TD_OP_SGD || op == TD_OP_ADAM || op == TD_OP_ADAMW || op == TD_OP_LION;
    if (takes || !param->n_pieces) return TD_OK;
    return td_bad_spec("optimizer %s updates whole tensors, but the strategy splits '%s' among the "
                       "ranks; use sgd, adam, adamw or lion, or another strategy",
                       td_op_name(op), param->name);
}

// ---- one update ---------------------------------------------------------------------------------
struct operands {
    uint32_t param;
    struct td_shape shape; // of the parameter
    struct td_attrs attrs;
    td_value in[6];
    uint32_t n;
};

static td_status add_moment(struct update *u, struct operands *o, const char *suffix) {
    return add_buffer(u, o->param, suffix, &o->shape, &o->in[o->n++]);
}

static td_status add_factors(struct update *u, struct operands *o) {
    struct td_shape row = o->shape, col = o->shape;
    o->attrs.optim.factored = row.n_dims > 1;
    if (row.n_dims < 2) return add_moment(u, o, "variance");
    row.dim[row.n_dims - 1] = 1;
    col.dim[col.n_dims - 2] = 1;
    TD_TRY(add_buffer(u, o->param, "row_var", &row, &o->in[o->n++]));
    return add_buffer(u, o->param, "col_var", &col, &o->in[o->n++]);
}

// One step of Newton and Schulz towards the nearest orthogonal matrix: a x + (b g + c g g) x, where
// g is x times its transpose. Of a tall x it is the other way round, so that g is the smaller one.
static td_status add_newton_schulz(struct update *u, bool tall, const double abc[3], td_value *x) {
    struct td_attrs gram = {.trans_a = tall, .trans_b = !tall};
    struct td_attrs square = {.scale = abc[1], .scale_y = abc[2]};
    struct td_attrs step = {.scale = abc[0], .scale_y = 1};
    td_value g, gg, y;
    TD_TRY(td_graph_op3(u->g, TD_OP_MATMUL, *x, *x, 0, &gram, &g));
    TD_TRY(td_graph_op3(u->g, TD_OP_MATMUL, g, g, 0, NULL, &gg));
    TD_TRY(td_graph_op3(u->g, TD_OP_AXPBY, g, gg, 0, &square, &g));
    TD_TRY(td_graph_op3(u->g, TD_OP_MATMUL, tall ? *x : g, tall ? g : *x, 0, NULL, &y));
    return td_graph_op3(u->g, TD_OP_AXPBY, *x, y, 0, &step, x);
}

static td_status add_muon(struct update *u, struct operands *o, const struct td_optim_choice *c) {
    td_value x, in[3] = {o->in[1], 0, u->factor};
    const bool exact = td_gv(u->g, o->in[0])->dtype == TD_F64; // else of fp32, on any accelerator
    double abc[3];
    for (int i = 0; i < 3; i++) {
        abc[i] = exact ? c->ns_coefficients[i] : (double)(float)c->ns_coefficients[i];
    }
    TD_TRY(add_buffer(u, o->param, "momentum_buffer", &o->shape, &in[1]));
    TD_TRY(td_graph_op(u->g, TD_OP_MUON_MOMENTUM, in, u->factor ? 3 : 2, &o->attrs, &x));
    for (int i = 0; i < c->ns_steps; i++) {
        TD_TRY(add_newton_schulz(u, o->shape.dim[0] > o->shape.dim[1], abc, &x));
    }
    in[0] = o->in[0];
    in[1] = x;
    return td_graph_op(u->g, TD_OP_MUON, in, 2, &o->attrs, NULL);
}

static td_status add_buffers(struct update *u, enum td_op op, struct operands *o) {
    switch ((int)op) {
    case TD_OP_SGD:
        return o->attrs.optim.momentum != 0 ? add_moment(u, o, "momentum_buffer") : TD_OK;
    case TD_OP_LION:
        return add_moment(u, o, "exp_avg");
    case TD_OP_ADAFACTOR:
        return add_factors(u, o);
    case TD_OP_ADAM:
    case TD_OP_ADAMW:
        TD_TRY(add_moment(u, o, "exp_avg"));
        return add_moment(u, o, "exp_avg_sq");
    default:
        return td_fail(TD_INVALID_ARGUMENT, "'%s' is no optimizer", td_op_name(op));
    }
}

static struct td_optim_choice choose(const struct update *u, uint32_t grad) {
    const uint32_t index = td_state_at(u->g->state, grad)->param;
    const struct td_state_info *param = td_state_at(u->g->state, index);
    struct td_optim_choice choice = {
        .op = u->o->op, .attrs = u->o->attrs, .in_out = u->in_out[index]};
    if (u->o->choose) u->o->choose(u->o->choose_arg, param, &choice);
    return choice;
}

// Those of parameters that move: what is frozen counts in no norm and skips no step.
static uint32_t keep_moving(const struct update *u, uint32_t *grads, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!choose(u, grads[i]).frozen) grads[kept++] = grads[i];
    }
    return kept;
}

static td_status add_update(struct update *u, uint32_t grad) {
    struct operands o = {.param = td_state_at(u->g->state, grad)->param, .n = 2};
    const struct td_state_info *param = td_state_at(u->g->state, o.param);
    const struct td_optim_choice choice = choose(u, grad);
    o.shape = param->shape;
    o.attrs.optim = choice.attrs;
    if (u->o->stochastic && td_dtype_bytes(param->dtype) < sizeof(float)) {
        o.attrs.optim.stochastic = true;
        o.attrs.stream = td_stream_of(param->name);
    }
    TD_TRY(check_takes_pieces(param, choice.op));
    TD_TRY(add_operand(u, o.param, &o.in[0]));
    TD_TRY(add_operand(u, grad, &o.in[1]));
    if (choice.op == TD_OP_MUON) return add_muon(u, &o, &choice);
    TD_TRY(add_buffers(u, choice.op, &o));
    if (u->factor) o.in[o.n++] = u->factor;
    return td_graph_op(u->g, choice.op, o.in, o.n, &o.attrs, NULL);
}

td_status td_pass_optimizer(struct td_graph *g, const struct td_optimizer_options *o) {
    struct update u = {.g = g, .o = o};
    TD_AUTO_FREE uint32_t *grads = NULL;
    TD_AUTO_FREE bool *in_out = NULL;
    uint32_t n = 0;
    TD_TRY(list_gradients(g, &grads, &n));
    TD_TRY(find_in_out(g, &in_out));
    u.in_out = in_out;
    n = keep_moving(&u, grads, n);
    TD_TRY(td_pass_finish(g, o, grads, n, &u.factor));
    td_graph_set_segment(g, TD_SEG_APPLY);
    for (uint32_t i = 0; i < n; i++) {
        TD_TRY(add_update(&u, grads[i]));
    }
    return TD_OK;
}
