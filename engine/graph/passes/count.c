// Count: what the mean of the loss is over, as a value that is there before the loss.
//
// It is what the output after the loss says (TD_OUTPUT_WEIGHT), else the batch's samples. Autodiff
// makes the seed of the backward pass of it, and then gradients are those of a sum. The head writes
// gradients where the loss stood, so the seed has to be known there. What the count is made of
// after the loss is made once more before it. That is a look at the labels; where it depends on the
// loss itself, it stays where it is, and the head leaves such a graph alone.

#include "engine/graph/passes/passes.h"

#include "engine/graph/builder.h"
#include "engine/graph/graph.h"

// Output i is the loss, and a mean.
static td_status find_loss(const struct td_graph *g, uint32_t *out_i) {
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        td_value v;
        enum td_output_kind kind;
        td_graph_output_at(g, i, NULL, &v, &kind);
        if (v != g->loss || kind != TD_OUTPUT_MEAN) continue;
        *out_i = i;
        return TD_OK;
    }
    return td_fail(TD_INVALID_ARGUMENT,
                   "trainer.accumulate: tokens needs to know what the loss of step '%s' is a mean "
                   "over, and no output of kind mean is that loss; leave accumulate out",
                   g->step);
}

static bool weighs_nothing(const struct td_graph *g, td_value weights) {
    const struct td_value_info *info = td_gv(g, weights);
    const struct td_node_info *node = info->kind == TD_VALUE_NODE ? &g->nodes[info->node] : NULL;
    if (!node || node->op != TD_OP_CONSTANT) return true; // nobody knows
    for (int64_t i = 0; i < td_shape_elems(&info->shape); i++) {
        if (node->attrs.values[i] == 0) return true;
    }
    return false;
}

// Smoothing gives labels a loss that the mean does not count, where their class weighs nothing: a
// batch of such labels alone has a sum, but no gradient.
static td_status check_smoothing(const struct td_graph *g) {
    const struct td_value_info *loss = td_gv(g, g->loss);
    if (loss->kind != TD_VALUE_NODE) return TD_OK;
    const struct td_node_info *node = &g->nodes[loss->node];
    const bool smooths = node->op == TD_OP_SOFTMAX_CE && node->attrs.label_smoothing > 0;
    if (!smooths || node->n_inputs < 3 || !weighs_nothing(g, node->inputs[2])) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "trainer.accumulate: tokens beside label_smoothing and a class of weight 0: the "
                   "smoothed loss of such labels is not among what is counted; give the class a "
                   "weight, or leave label_smoothing or accumulate out");
}

// Is v there before the loss is computed? What the graph is given always is.
static bool is_before(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v), *loss = td_gv(g, g->loss);
    return info->kind != TD_VALUE_NODE || (loss->kind == TD_VALUE_NODE && info->node < loss->node);
}

// The same node before the loss, if its operands are there; else v as it is.
static td_status hoist(struct td_graph *g, td_value v, td_value *out_value) {
    td_value made[TD_MAX_OUT];
    *out_value = v;
    if (is_before(g, v)) return TD_OK;
    const struct td_value_info info = *td_gv(g, v);
    const struct td_node_info node = g->nodes[info.node];
    for (uint32_t i = 0; i < node.n_inputs; i++) {
        if (!is_before(g, node.inputs[i])) return TD_OK;
    }
    TD_TRY(td_graph_op(g, node.op, node.inputs, node.n_inputs, &node.attrs, made));
    *out_value = made[info.output];
    return TD_OK;
}

td_status td_pass_count(struct td_graph *g, int64_t batch, bool scaled, td_value *out_seed) {
    uint32_t i = 0;
    td_value window, count, scale;
    enum td_output_kind next = TD_OUTPUT_MEAN;
    TD_TRY(find_loss(g, &i));
    TD_TRY(check_smoothing(g));
    TD_TRY(td_graph_scalar(g, TD_SCALAR_WINDOW, &window));
    if (td_gv(g, g->loss)->kind == TD_VALUE_NODE) {
        TD_TRY(td_rewrite_insert_at(g, td_gv(g, g->loss)->node));
    }
    if (i + 1 < td_graph_n_outputs(g)) td_graph_output_at(g, i + 1, NULL, &count, &next);
    if (next == TD_OUTPUT_WEIGHT) {
        TD_TRY(hoist(g, count, &count));
    } else {
        const struct td_attrs samples = {.scale = (double)batch, .dtype = TD_F32};
        TD_TRY(td_graph_op(g, TD_OP_FILL, NULL, 0, &samples, &count));
    }
    if (!is_before(g, count)) TD_TRY(td_rewrite_insert_at(g, TD_REWRITE_END));
    TD_TRY(td_graph_op3(g, TD_OP_MUL, count, window, 0, NULL, out_seed));
    if (scaled) {
        TD_TRY(td_graph_scalar(g, TD_SCALAR_LOSS_SCALE, &scale));
        TD_TRY(td_graph_op3(g, TD_OP_MUL, *out_seed, scale, 0, NULL, out_seed));
    }
    return td_rewrite_insert_at(g, TD_REWRITE_END);
}
