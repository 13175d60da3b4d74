// Finish: complete gradients become what the optimizer is to see.
//
// In this order, each only where it is asked for: unscale, finite check, norm (output "grad_norm",
// before clipping), clip. Unscaling and clipping by norm are factors, and so one scalar that the
// optimizers multiply with: no pass over the gradients. The loss scale is a power of two, so this
// gives the same bits as dividing first. So is the division of sums by what a window counted, which
// is no power of two: there the bits are those of the factor. The norm's square is f64, which holds
// the square of every f32. Clipping by value is no factor: it writes the clipped gradients back.
// The finite check looks at the gradients after the all-reduce, which has carried an infinity of
// one rank to all: every rank decides alike without asking. Of gradients in pieces each rank looks
// at its own, and what they found is summed over the ranks.

#include "engine/graph/builder.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"

enum { OPERANDS = 4096 }; // of one sum_squares or all_finite

struct finish {
    struct td_graph *g;
    const struct td_optimizer_options *o;
    const uint32_t *grads;
    uint32_t n;
    td_value unscale; // 1 / loss scale, 1 / divisor, or 1 / both; 0: none
};

static bool is_split(const struct finish *f, uint32_t i) {
    return td_state_at(f->g->state, f->grads[i])->n_pieces != 0;
}

static td_status operand(const struct finish *f, uint32_t i, td_value *out_value) {
    return is_split(f, i) ? td_graph_state_piece(f->g, f->grads[i], out_value)
                          : td_graph_state_value(f->g, f->grads[i], out_value);
}

// One op over all gradients that are whole, or over the pieces of the others. More than its
// operands are combined by `combine`. 0: there are none.
static td_status over_all(const struct finish *f, bool split, enum td_op op, enum td_op combine,
                          const struct td_attrs *attrs, td_value *out_value) {
    td_value in[OPERANDS], total = 0, part;
    for (uint32_t i = 0, n = 0; i <= f->n; i++) {
        if (n == OPERANDS || (i == f->n && n)) {
            TD_TRY(td_graph_op(f->g, op, in, n, attrs, &part));
            if (total) TD_TRY(td_graph_op3(f->g, combine, total, part, 0, NULL, &part));
            total = part;
            n = 0;
        }
        if (i < f->n && is_split(f, i) == split) TD_TRY(operand(f, i, &in[n++]));
    }
    *out_value = total;
    return TD_OK;
}

// The same of both, where there are some of each.
static td_status join(const struct finish *f, enum td_op combine, td_value whole, td_value pieces,
                      td_value *out_value) {
    if (whole && pieces) return td_graph_op3(f->g, combine, whole, pieces, 0, NULL, out_value);
    *out_value = whole ? whole : pieces;
    return TD_OK;
}

// 1 if that is so on all ranks, else 0, of `holds`, which is 1 or 0 on each: how many ranks more
// than all but one.
static td_status on_all_ranks(const struct finish *f, td_value holds, td_value *out_value) {
    struct td_attrs others = {.scale = td_graph_world_size(f->g) - 1};
    td_value n;
    others.dtype = td_gv(f->g, holds)->dtype;
    TD_TRY(td_graph_op3(f->g, TD_OP_RANK_SUM, holds, 0, 0, NULL, &holds));
    TD_TRY(td_graph_op(f->g, TD_OP_FILL, NULL, 0, &others, &n));
    TD_TRY(td_graph_op3(f->g, TD_OP_SUB, holds, n, 0, NULL, &holds));
    return td_graph_op3(f->g, TD_OP_RELU, holds, 0, 0, NULL, out_value);
}

static td_status all_finite(const struct finish *f, td_value *out_value) {
    td_value whole, pieces;
    TD_TRY(over_all(f, false, TD_OP_ALL_FINITE, TD_OP_MUL, NULL, &whole));
    TD_TRY(over_all(f, true, TD_OP_ALL_FINITE, TD_OP_MUL, NULL, &pieces));
    if (pieces) TD_TRY(on_all_ranks(f, pieces, &pieces));
    return join(f, TD_OP_MUL, whole, pieces, out_value);
}

static td_status sum_squares(const struct finish *f, td_value *out_value) {
    const struct td_attrs wide = {.wide = true};
    td_value whole, pieces;
    TD_TRY(over_all(f, false, TD_OP_SUM_SQUARES, TD_OP_ADD, &wide, &whole));
    TD_TRY(over_all(f, true, TD_OP_SUM_SQUARES, TD_OP_ADD, &wide, &pieces));
    if (pieces) TD_TRY(td_graph_op3(f->g, TD_OP_RANK_SUM, pieces, 0, 0, NULL, &pieces));
    return join(f, TD_OP_ADD, whole, pieces, out_value);
}

// Of the gradients' precision.
static td_status read_divisor(const struct finish *f, td_value *out_value) {
    TD_TRY(td_graph_scalar(f->g, TD_SCALAR_DIVISOR, out_value));
    if (td_state_at(f->g->state, f->grads[0])->dtype != TD_F64) return TD_OK;
    return td_rewrite_scalar(f->g, *out_value, TD_F64);
}

// 1 over the loss scale, the divisor, or both.
static td_status add_unscale(struct finish *f) {
    struct td_attrs one = {.scale = 1};
    td_value scale = 0, divisor = 0, v;
    if (f->o->unscale) TD_TRY(td_graph_scalar(f->g, TD_SCALAR_LOSS_SCALE, &scale));
    if (f->o->divides) TD_TRY(read_divisor(f, &divisor));
    if (scale && divisor) {
        TD_TRY(td_graph_op3(f->g, TD_OP_MUL, scale, divisor, 0, NULL, &scale));
    } else if (divisor) {
        scale = divisor;
    }
    one.dtype = td_gv(f->g, scale)->dtype;
    TD_TRY(td_graph_op(f->g, TD_OP_FILL, NULL, 0, &one, &v));
    TD_TRY(td_graph_op3(f->g, TD_OP_DIV, v, scale, 0, NULL, &f->unscale));
    if (!f->o->unscale) return TD_OK;
    TD_TRY(all_finite(f, &v));
    return td_graph_output(f->g, "finite", v, TD_OUTPUT_GATE);
}

// The square of the unscaled gradients' norm.
static td_status add_norm(const struct finish *f, td_value *out_squares) {
    td_value v;
    TD_TRY(sum_squares(f, &v));
    for (int twice = 0; twice < 2 && f->unscale; twice++) {
        TD_TRY(td_graph_op3(f->g, TD_OP_SCALE, v, f->unscale, 0, NULL, &v));
    }
    *out_squares = v;
    return td_graph_output(f->g, "grad_norm", v, TD_OUTPUT_NORM);
}

static td_status clip_values(const struct finish *f) {
    struct td_attrs bound = {.scale = f->o->clip_value};
    for (uint32_t i = 0; i < f->n; i++) {
        td_value in[2];
        TD_TRY(operand(f, i, &in[0]));
        in[1] = in[0];
        if (f->unscale) {
            TD_TRY(td_graph_op3(f->g, TD_OP_SCALE, in[1], f->unscale, 0, NULL, &in[1]));
        }
        TD_TRY(td_graph_op3(f->g, TD_OP_CLAMP, in[1], 0, 0, &bound, &in[1]));
        TD_TRY(td_graph_op(f->g, TD_OP_STORE, in, 2, NULL, NULL));
    }
    return TD_OK;
}

td_status td_pass_finish(struct td_graph *g, const struct td_optimizer_options *o,
                         const uint32_t *grads, uint32_t n, td_value *out_factor) {
    struct finish f = {.g = g, .o = o, .grads = grads, .n = n};
    td_value squares = 0;
    *out_factor = 0;
    if (!n) return TD_OK;
    td_graph_set_segment(g, TD_SEG_FINISH);
    if (o->unscale || o->divides) TD_TRY(add_unscale(&f));
    if (o->clip_norm > 0 || o->clip_value > 0 || o->report_norm) TD_TRY(add_norm(&f, &squares));
    if (o->clip_value > 0) return clip_values(&f); // unscaled by now
    *out_factor = f.unscale;
    if (!(o->clip_norm > 0)) return TD_OK;
    struct td_attrs a = {.max_norm = o->clip_norm};
    if (td_state_at(g->state, grads[0])->dtype == TD_F64) a.dtype = TD_F64;
    TD_TRY(td_graph_op3(g, TD_OP_CLIP_COEF, squares, 0, 0, &a, out_factor));
    if (!f.unscale) return TD_OK;
    return td_graph_op3(g, TD_OP_SCALE, *out_factor, f.unscale, 0, NULL, out_factor);
}
