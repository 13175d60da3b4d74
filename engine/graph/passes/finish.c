// Finish: complete gradients become what the optimizer is to see.
//
// In this order, each only where it is asked for: unscale, finite check, norm (output "grad_norm",
// before clipping), clip. Unscaling and clipping by norm are factors, and so one scalar that the
// optimizers multiply with: no pass over the gradients. The loss scale is a power of two, so this
// gives the same bits as dividing first. So is the division of sums by what a window counted, which
// is no power of two: there the bits are those of the factor. The norm's square is f64, which holds
// the square of every f32. Clipping by value is no factor: it writes the clipped gradients back.
// The finite check looks at the gradients after the all-reduce, which has carried an infinity of
// one rank to all: every rank decides alike without asking.

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

// One op over all gradients; more than its operands are combined by `combine`.
static td_status over_all(const struct finish *f, enum td_op op, enum td_op combine,
                          const struct td_attrs *attrs, td_value *out_value) {
    td_value in[OPERANDS], total = 0;
    for (uint32_t begin = 0; begin < f->n; begin += OPERANDS) {
        uint32_t some = TD_MIN(f->n - begin, OPERANDS);
        for (uint32_t i = 0; i < some; i++) {
            TD_TRY(td_graph_state_value(f->g, f->grads[begin + i], &in[i]));
        }
        td_value part;
        TD_TRY(td_graph_op(f->g, op, in, some, attrs, &part));
        if (total) TD_TRY(td_graph_op3(f->g, combine, total, part, 0, NULL, &part));
        total = part;
    }
    *out_value = total;
    return TD_OK;
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
    TD_TRY(over_all(f, TD_OP_ALL_FINITE, TD_OP_MUL, NULL, &v));
    return td_graph_output(f->g, "finite", v, TD_OUTPUT_GATE);
}

// The square of the unscaled gradients' norm.
static td_status add_norm(const struct finish *f, td_value *out_squares) {
    const struct td_attrs wide = {.wide = true};
    td_value v;
    TD_TRY(over_all(f, TD_OP_SUM_SQUARES, TD_OP_ADD, &wide, &v));
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
        TD_TRY(td_graph_state_value(f->g, f->grads[i], &in[0]));
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
