// Graph text; see the header. The form:
//
//   graph train mode=train
//   input x f32(4,8)
//   state @fc.weight param f32(2,8)
//   forward:
//     %1 = matmul x @fc.weight trans_b : f32(4,2)
//   backward:
//     matmul %3 x trans_a -> @fc.weight:grad accumulate
//     all_reduce @fc.weight:grad bucket=0
//     await all_reduce bucket=0
//   output loss mean %2 (loss)
//
// Attributes print only where they differ from zero and mean something to the op. A token has no
// number: its await says what it completes.

#include "engine/graph/graph_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/base/base.h"
#include "traind/op.h"

struct writer {
    const struct td_graph *g;
    const struct td_placement *placement; // NULL: graph only
    struct td_buf *out;
    uint32_t *number;   // by value: n of %n
    td_node_note *note; // NULL: none
    void *note_arg;
};

void td_shape_text(enum td_dtype dtype, const struct td_shape *shape, char *out, size_t bytes) {
    size_t at = (size_t)snprintf(out, bytes, "%s(", td_dtype_name(dtype));
    for (int32_t i = 0; i < shape->n_dims && i < TD_MAX_DIMS && at < bytes; i++) {
        at += (size_t)snprintf(out + at, bytes - at, "%s%" PRId64, i ? "," : "", shape->dim[i]);
    }
    if (at < bytes) snprintf(out + at, bytes - at, ")");
}

static const char *const scalar_names[TD_SCALAR_COUNT] = {
    [TD_SCALAR_LR] = "lr",         [TD_SCALAR_STEP] = "step", [TD_SCALAR_LOSS_SCALE] = "loss_scale",
    [TD_SCALAR_WINDOW] = "window", [TD_SCALAR_RANK] = "rank", [TD_SCALAR_DIVISOR] = "divisor",
};

static td_status write_value(const struct writer *w, td_value v) {
    const struct td_value_info *info = td_graph_value(w->g, v);
    switch (info->kind) {
    case TD_VALUE_INPUT:
        return td_buf_printf(w->out, " %s", info->name);
    case TD_VALUE_STATE:
        return td_buf_printf(w->out, " @%s%s", info->name, info->is_piece ? "[piece]" : "");
    case TD_VALUE_SCALAR:
        return td_buf_printf(w->out, " $%s",
                             scalar_names[info->index] ? scalar_names[info->index] : "?");
    case TD_VALUE_NODE:
        return td_buf_printf(w->out, " %%%" PRIu32, w->number[v]);
    }
    return TD_OK;
}

static td_status write_adafactor(const struct writer *w, const struct td_optim_attrs *o) {
    return td_buf_printf(w->out, " decay=%g eps=%g,%g threshold=%g wd=%g%s%s%s", o->beta2_decay,
                         o->eps, o->eps2, o->threshold, o->weight_decay,
                         o->factored ? " factored" : "", o->fixed_step ? " fixed_step" : "",
                         o->unscaled ? " unscaled" : "");
}

// Nothing for what is no optimizer.
static td_status write_optim(const struct writer *w, enum td_op op,
                             const struct td_optim_attrs *o) {
    if (o->lr_scale != 0) TD_TRY(td_buf_printf(w->out, " lr_scale=%g", o->lr_scale));
    if (o->stochastic) TD_TRY(td_buf_str(w->out, " stochastic"));
    const double wd = o->weight_decay;
    const char *nesterov = o->nesterov ? " nesterov" : "";
    if (op == TD_OP_SGD) {
        return td_buf_printf(w->out, " momentum=%g dampening=%g wd=%g%s", o->momentum, o->dampening,
                             wd, nesterov);
    }
    if (op == TD_OP_ADAM || op == TD_OP_ADAMW) {
        return td_buf_printf(w->out, " beta1=%g beta2=%g eps=%g wd=%g", o->beta1, o->beta2, o->eps,
                             wd);
    }
    if (op == TD_OP_LION) {
        return td_buf_printf(w->out, " beta1=%g beta2=%g wd=%g", o->beta1, o->beta2, wd);
    }
    if (op == TD_OP_ADAFACTOR) return write_adafactor(w, o);
    if (op == TD_OP_MUON_MOMENTUM) {
        return td_buf_printf(w->out, " momentum=%g eps=%g%s", o->momentum, o->eps, nesterov);
    }
    if (op == TD_OP_MUON) return td_buf_printf(w->out, " wd=%g scale=%g", wd, o->update_scale);
    return TD_OK;
}

// Where a part is, or how axes are exchanged: as many numbers as the operand has dimensions.
static td_status write_layout(const struct writer *w, const struct td_node_info *node) {
    const struct td_attrs *a = &node->attrs;
    int32_t n = td_graph_value(w->g, node->inputs[0])->shape.n_dims;
    bool permutes = node->op == TD_OP_TRANSPOSE;
    TD_TRY(td_buf_str(w->out, permutes ? " perm=" : " start="));
    for (int32_t i = 0; i < n; i++) {
        TD_TRY(td_buf_printf(w->out, "%s%" PRId64, i ? "," : "",
                             permutes ? (int64_t)a->perm[i] : a->start[i]));
    }
    return TD_OK;
}

static td_status write_window(const struct writer *w, const struct td_window_attrs *a) {
    const struct {
        const char *name;
        const int32_t *pair;
    } rows[] = {
        {"kernel", a->kernel}, {"stride", a->stride}, {"pad", a->pad}, {"dilation", a->dilation}};
    for (size_t i = 0; i < TD_COUNTOF(rows); i++) {
        if (!rows[i].pair[0] && !rows[i].pair[1]) continue;
        TD_TRY(td_buf_printf(w->out, " %s=%" PRId32 ",%" PRId32, rows[i].name, rows[i].pair[0],
                             rows[i].pair[1]));
    }
    return a->groups > 1 ? td_buf_printf(w->out, " groups=%" PRId32, a->groups) : TD_OK;
}

// The first few are enough to keep two constants apart.
static td_status write_values(const struct writer *w, const struct td_attrs *a) {
    enum { SHOWN = 8 };
    int64_t n = td_shape_elems(&a->shape);
    for (int64_t i = 0; i < TD_MIN(n, (int64_t)SHOWN); i++) {
        TD_TRY(td_buf_printf(w->out, "%s%.9g", i ? "," : " values=", a->values[i]));
    }
    return n > SHOWN ? td_buf_str(w->out, ",...") : TD_OK;
}

static td_status write_attrs(const struct writer *w, const struct td_node_info *node) {
    const struct td_attrs *a = &node->attrs;
    if (a->trans_a) TD_TRY(td_buf_str(w->out, " trans_a"));
    if (a->trans_b) TD_TRY(td_buf_str(w->out, " trans_b"));
    if (a->act == TD_ACT_RELU) TD_TRY(td_buf_str(w->out, " act=relu"));
    if (a->then) TD_TRY(td_buf_printf(w->out, " then=%s", td_op_name(a->then)));
    if (a->wide) TD_TRY(td_buf_str(w->out, " wide"));
    if (a->gelu_tanh) TD_TRY(td_buf_str(w->out, " form=tanh"));
    if (node->op == TD_OP_COMPARE) {
        TD_TRY(td_buf_printf(w->out, " %s", td_compare_name(a->compare)));
    }
    if (a->label_smoothing != 0) {
        TD_TRY(td_buf_printf(w->out, " label_smoothing=%g", a->label_smoothing));
    }
    if (a->ignores) TD_TRY(td_buf_printf(w->out, " ignore_index=%" PRId32, a->ignore_index));
    if (a->eps != 0) TD_TRY(td_buf_printf(w->out, " eps=%g", a->eps));
    if (a->momentum != 0) TD_TRY(td_buf_printf(w->out, " momentum=%g", a->momentum));
    if (node->op == TD_OP_DROPOUT || a->drop != 0) {
        TD_TRY(td_buf_printf(w->out, " drop=%g stream=%016" PRIx64, a->drop, a->stream));
    }
    TD_TRY(write_window(w, &a->window));
    if (a->biased) TD_TRY(td_buf_str(w->out, " biased"));
    if (a->seeded) TD_TRY(td_buf_str(w->out, " seeded"));
    if (a->causal) TD_TRY(td_buf_str(w->out, " causal"));
    if (a->interleaved) TD_TRY(td_buf_str(w->out, " interleaved"));
    if (a->reverse) TD_TRY(td_buf_str(w->out, " reverse"));
    if (a->base != 0) TD_TRY(td_buf_printf(w->out, " base=%g", a->base));
    if (a->rope.factor != 0) {
        TD_TRY(td_buf_printf(w->out, " rope=%g/%g,%g,%" PRId64, a->rope.factor, a->rope.low,
                             a->rope.high, a->rope.original));
    }
    if (a->groups) TD_TRY(td_buf_printf(w->out, " groups=%" PRId32, a->groups));
    if (a->axis) TD_TRY(td_buf_printf(w->out, " axis=%" PRId32, a->axis));
    if (node->op == TD_OP_TRANSPOSE || node->op == TD_OP_SLICE || node->op == TD_OP_PAD) {
        TD_TRY(write_layout(w, node));
    }
    const bool scales = a->scale != 0 && node->op != TD_OP_AXPBY;
    if (scales) TD_TRY(td_buf_printf(w->out, " scale=%.9g", a->scale));
    if (a->values) TD_TRY(write_values(w, a));
    if (node->op == TD_OP_CLIP_COEF) TD_TRY(td_buf_printf(w->out, " max_norm=%g", a->max_norm));
    if (td_op_is(node->op, TD_OP_IS_START)) {
        TD_TRY(td_buf_printf(w->out, " bucket=%" PRIu32, a->bucket));
    }
    if (node->op == TD_OP_AXPBY) TD_TRY(td_buf_printf(w->out, " %g,%g", a->scale, a->scale_y));
    TD_TRY(write_optim(w, node->op, &a->optim));
    if (node->into) {
        TD_TRY(td_buf_str(w->out, " ->"));
        TD_TRY(write_value(w, node->into));
    }
    return a->accumulate ? td_buf_str(w->out, " accumulate") : TD_OK;
}

static td_status write_place(const struct writer *w, td_value v) {
    const struct td_placement *p = &w->placement[v];
    if (p->offset != SIZE_MAX) TD_TRY(td_buf_printf(w->out, " at %zu", p->offset));
    if (!p->alias) return TD_OK;
    TD_TRY(td_buf_str(w->out, " over"));
    return write_value(w, p->alias);
}

// What completes a sum is called by what began it.
static td_status write_await(const struct writer *w, const struct td_node_info *node) {
    const struct td_value_info *token = td_graph_value(w->g, node->inputs[0]);
    const struct td_node_info *start = td_graph_node(w->g, token->node);
    TD_TRY(td_buf_printf(w->out, "  await %s", td_op_name(start->op)));
    TD_TRY(write_attrs(w, start));
    return td_buf_str(w->out, "\n");
}

static td_status write_node(struct writer *w, const struct td_node_info *node, uint32_t *next) {
    const uint32_t n_shown = node->n_outputs - (td_op_is(node->op, TD_OP_IS_START) ? 1 : 0);
    if (node->op == TD_OP_AWAIT) return write_await(w, node);
    TD_TRY(td_buf_str(w->out, " "));
    for (uint32_t i = 0; i < n_shown; i++) {
        w->number[node->outputs[i]] = (*next)++;
        TD_TRY(write_value(w, node->outputs[i]));
    }
    TD_TRY(td_buf_printf(w->out, "%s %s", n_shown ? " =" : "", td_op_name(node->op)));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        TD_TRY(write_value(w, node->inputs[i]));
    }
    TD_TRY(write_attrs(w, node));
    for (uint32_t i = 0; i < n_shown; i++) {
        const struct td_value_info *v = td_graph_value(w->g, node->outputs[i]);
        char text[160];
        td_shape_text(v->dtype, &v->shape, text, sizeof text);
        TD_TRY(td_buf_printf(w->out, "%s%s", i ? ", " : " : ", text));
        if (w->placement) TD_TRY(write_place(w, node->outputs[i]));
    }
    return td_buf_str(w->out, "\n");
}

static td_status write_ports(const struct writer *w) {
    char text[160];
    for (uint32_t i = 0; i < td_graph_n_inputs(w->g); i++) {
        const struct td_value_info *v = td_graph_value(w->g, td_graph_input_at(w->g, i));
        td_shape_text(v->dtype, &v->shape, text, sizeof text);
        TD_TRY(td_buf_printf(w->out, "input %s %s\n", v->name, text));
    }
    for (td_value i = 1; i <= td_graph_n_values(w->g); i++) {
        const struct td_value_info *v = td_graph_value(w->g, i);
        if (v->kind != TD_VALUE_STATE) continue;
        const struct td_state_info *s = td_state_at(td_graph_state(w->g), v->index);
        td_shape_text(v->dtype, &v->shape, text, sizeof text);
        TD_TRY(td_buf_printf(w->out, "state @%s%s %s %s", s->name, v->is_piece ? "[piece]" : "",
                             td_role_name(s->role), text));
        if (v->is_piece) TD_TRY(td_buf_printf(w->out, " of %" PRId32, s->n_pieces));
        TD_TRY(td_buf_str(w->out, "\n"));
    }
    return TD_OK;
}

static td_status write_outputs(const struct writer *w) {
    for (uint32_t i = 0; i < td_graph_n_outputs(w->g); i++) {
        const char *name;
        td_value v;
        enum td_output_kind kind;
        td_graph_output_at(w->g, i, &name, &v, &kind);
        TD_TRY(td_buf_printf(w->out, "output %s %s", name, td_output_kind_name(kind)));
        TD_TRY(write_value(w, v));
        TD_TRY(td_buf_str(w->out, v == td_graph_loss_value(w->g) ? " (loss)\n" : "\n"));
    }
    return TD_OK;
}

static td_status write_graph(struct writer *w) {
    TD_TRY(td_buf_printf(w->out, "graph %s mode=%s\n", td_graph_step(w->g),
                         td_mode_name(td_graph_mode(w->g))));
    TD_TRY(write_ports(w));
    uint32_t next = 1;
    int segment = -1;
    for (td_node n = 0; n < td_graph_n_nodes(w->g); n++) {
        const struct td_node_info *node = td_graph_node(w->g, n);
        if ((int)node->segment != segment) {
            segment = (int)node->segment;
            TD_TRY(td_buf_printf(w->out, "%s:\n", td_segment_name(node->segment)));
        }
        TD_TRY(write_node(w, node, &next));
        if (w->note) TD_TRY(w->note(w->note_arg, n, w->out));
    }
    return write_outputs(w);
}

static td_status write_all(struct writer *w) {
    TD_AUTO_FREE uint32_t *number = td_calloc(td_graph_n_values(w->g) + 1, sizeof *number);
    if (!number) return td_fail_oom();
    w->number = number;
    return write_graph(w);
}

td_status td_graph_text(const struct td_graph *g, struct td_buf *out) {
    struct writer w = {.g = g, .out = out};
    return write_all(&w);
}

td_status td_program_text(const struct td_program *p, struct td_buf *out) {
    return td_program_text_noted(p, NULL, NULL, out);
}

td_status td_program_text_noted(const struct td_program *p, td_node_note *note, void *arg,
                                struct td_buf *out) {
    const struct td_program_key *k = &p->key;
    TD_TRY(td_buf_printf(out, "program batch=%" PRId64 " accumulate=%d sync=%d apply=%d", k->batch,
                         k->accumulate, k->sync, k->apply));
    if (p->placement) TD_TRY(td_buf_printf(out, " arena=%zu", p->arena_bytes));
    TD_TRY(td_buf_str(out, "\n"));
    struct writer w = {
        .g = p->graph, .placement = p->placement, .out = out, .note = note, .note_arg = arg};
    return write_all(&w);
}
