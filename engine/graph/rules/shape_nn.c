// Rules of the ops that networks are made of: losses, softmax, norms, dropout.
// Norms take x and its scale in types of their own, because a half-precision x may keep an fp32
// scale. Costs count an exponential as one.

#include "engine/graph/rules/rules.h"
#include "engine/graph/rules/shape.h"

// ---- losses -------------------------------------------------------------------------------------
static bool is_classifier(const struct td_op_call *c) {
    const struct td_value_info *logits = arg(c, 0), *labels = arg(c, 1);
    return td_is_float(logits->dtype) && labels->dtype == TD_I32 && logits->shape.n_dims == 2 &&
           labels->shape.n_dims == 1 && logits->shape.dim[0] == labels->shape.dim[0] &&
           logits->shape.dim[1] >= 1;
}

static bool is_row(const struct td_op_call *c, uint32_t i, int64_t n) {
    return td_is_float(arg(c, i)->dtype) && shape_of(c, i)->n_dims == 1 &&
           shape_of(c, i)->dim[0] == n;
}

static td_status shape_softmax_ce(const struct td_op_call *c) {
    if (!is_classifier(c)) return td_op_reject(c, "needs float logits (B,C) and i32 labels (B)");
    if (c->n_in > 2 && !is_row(c, 2, shape_of(c, 0)->dim[1])) {
        return td_op_reject(c, "needs a weight for each class");
    }
    double smoothing = c->attrs->label_smoothing;
    if (!(smoothing >= 0 && smoothing <= 1)) {
        return td_op_reject(c, "label_smoothing must be in [0, 1]");
    }
    TD_TRY(give_scalar(c, 0, arg(c, 0)->dtype));
    return give(c, 1, arg(c, 0)->dtype, shape_of(c, 0));
}

// x, w, labels: the logits would be (B,C).
static bool is_linear_classifier(const struct td_op_call *c) {
    const struct td_shape *x = shape_of(c, 0), *w = shape_of(c, 1), *labels = shape_of(c, 2);
    return td_is_float(arg(c, 0)->dtype) && arg(c, 1)->dtype == arg(c, 0)->dtype &&
           arg(c, 2)->dtype == TD_I32 && x->n_dims == 2 && w->n_dims == 2 && labels->n_dims == 1 &&
           x->dim[1] == w->dim[1] && x->dim[0] == labels->dim[0] && w->dim[0] >= 1;
}

// A state tensor for the gradient of operand i, of its type or f32.
static bool is_gradient_of(const struct td_op_call *c, uint32_t grad, uint32_t i) {
    enum td_dtype to = arg(c, grad)->dtype;
    return is_state(c, grad) && td_shape_equal(shape_of(c, grad), shape_of(c, i)) &&
           (to == arg(c, i)->dtype || to == TD_F32);
}

static td_status shape_linear_ce(const struct td_op_call *c) {
    struct td_head_operands h = td_head_operands_of(c->op, c->attrs, c->n_in);
    if (!is_linear_classifier(c)) {
        return td_op_reject(c, "needs x (B,K) and w (C,K) of one float type and i32 labels (B)");
    }
    int64_t classes = shape_of(c, 1)->dim[0];
    if (c->n_in != h.n || (h.seed && (!h.dw || !is_float_scalar(arg(c, h.seed))))) {
        return td_op_reject(c, "needs the operands that its attributes name");
    }
    if (h.bias && (!is_row(c, h.bias, classes) || arg(c, h.bias)->dtype != arg(c, 0)->dtype)) {
        return td_op_reject(c, "needs a bias of x's type for each class");
    }
    if (h.weights && !is_row(c, h.weights, classes)) {
        return td_op_reject(c, "needs a weight for each class");
    }
    double smoothing = c->attrs->label_smoothing;
    if (!(smoothing >= 0 && smoothing <= 1)) {
        return td_op_reject(c, "label_smoothing must be in [0, 1]");
    }
    TD_TRY(give_scalar(c, 0, arg(c, 0)->dtype));
    TD_TRY(give_scalar(c, 1, TD_F32));
    if (!h.dw) return TD_OK;
    if (!is_gradient_of(c, h.dw, 1) || (h.dbias && !is_gradient_of(c, h.dbias, h.bias))) {
        return td_op_reject(c, "dw must be a state tensor like w, dbias one like the bias");
    }
    return give(c, 2, arg(c, 0)->dtype, shape_of(c, 0));
}

static td_status shape_count_correct(const struct td_op_call *c) {
    bool targets = td_is_float(arg(c, 0)->dtype) && td_is_float(arg(c, 1)->dtype) &&
                   td_shape_equal(shape_of(c, 0), shape_of(c, 1));
    if (!targets && !is_classifier(c)) {
        return td_op_reject(c, "needs float logits (B,C) and i32 labels (B), or float targets "
                               "(B,C)");
    }
    return give_scalar(c, 0, TD_F32);
}

static td_status shape_count_labels(const struct td_op_call *c) {
    if (arg(c, 0)->dtype != TD_I32 || shape_of(c, 0)->n_dims != 1) {
        return td_op_reject(c, "needs i32 labels (B)");
    }
    if (c->n_in < 2) return give_scalar(c, 0, TD_F32);
    if (shape_of(c, 1)->n_dims != 1 || !is_row(c, 1, shape_of(c, 1)->dim[0])) {
        return td_op_reject(c, "needs a weight for each class");
    }
    return give_scalar(c, 0, arg(c, 1)->dtype);
}

static td_status shape_pair_loss(const struct td_op_call *c) { // mse, bce
    if (!like_first(c, 1)) {
        return td_op_reject(c, "operand and target must have one float type and shape");
    }
    TD_TRY(give_scalar(c, 0, arg(c, 0)->dtype));
    return give(c, 1, arg(c, 0)->dtype, shape_of(c, 0));
}

// ---- softmax, norms, dropout --------------------------------------------------------------------
// Also of softmax_grad and log_softmax_grad, whose operands are alike.
static td_status shape_softmax(const struct td_op_call *c) {
    const struct td_shape *x = shape_of(c, 0);
    if (c->n_in > 1 && !like_first(c, 1)) {
        return td_op_reject(c, "operands must have one float type and shape");
    }
    if (x->n_dims < 1) return td_op_reject(c, "the operand needs an axis");
    return give(c, 0, arg(c, 0)->dtype, x);
}

static bool is_batch_norm(enum td_op op) {
    return op == TD_OP_BATCH_NORM || op == TD_OP_BATCH_NORM_EVAL || op == TD_OP_BATCH_NORM_GRAD;
}

// The scale's length: that of the last axis, or for batch norms of axis 1.
static bool norm_channels(const struct td_op_call *c, int64_t *out_n) {
    const struct td_shape *x = shape_of(c, 0);
    int32_t axis = is_batch_norm(c->op) ? 1 : x->n_dims - 1;
    if (axis < 0 || axis >= x->n_dims || !td_is_float(arg(c, 0)->dtype)) return false;
    *out_n = x->dim[axis];
    return true;
}

static td_status shape_norm(const struct td_op_call *c) {
    int64_t n;
    if (!norm_channels(c, &n)) {
        return td_op_reject(c, "the operand must be float and have channels");
    }
    bool adds = c->op == TD_OP_ADD_LAYER_NORM || c->op == TD_OP_ADD_RMS_NORM;
    if (adds && !like_first(c, 1)) return td_op_reject(c, "what is added must be of one kind");
    for (uint32_t i = adds ? 2 : 1; i < c->n_in; i++) {
        if (!is_row(c, i, n) || arg(c, i)->dtype != arg(c, adds ? 2 : 1)->dtype) {
            return td_op_reject(c, "needs one float a channel, all of one type");
        }
        if (td_op_writes(c->op, c->attrs, i) && !is_state(c, i)) {
            return td_op_reject(c, "only a state tensor can be written");
        }
    }
    if (!(c->attrs->eps >= 0)) return td_op_reject(c, "eps must not be negative");
    if (adds) TD_TRY(give(c, 1, arg(c, 0)->dtype, shape_of(c, 0)));
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 0));
}

static td_status shape_norm_grad(const struct td_op_call *c) {
    int64_t n;
    if (!norm_channels(c, &n) || !like_first(c, 2) || (c->n_in > 3 && !like_first(c, 3))) {
        return td_op_reject(c, "x and dy must have one float type and shape");
    }
    if (!is_row(c, 1, n)) return td_op_reject(c, "needs one float a channel");
    TD_TRY(give(c, 0, arg(c, 0)->dtype, shape_of(c, 0)));
    if (c->op == TD_OP_LAYER_NORM_GRAD) TD_TRY(give(c, 2, arg(c, 1)->dtype, shape_of(c, 1)));
    return give(c, 1, arg(c, 1)->dtype, shape_of(c, 1));
}

static td_status shape_dropout(const struct td_op_call *c) {
    if (shape_of(c, 0)->n_dims < 1) {
        return td_op_reject(c, "the operand must have samples");
    }
    if (!(c->attrs->drop >= 0 && c->attrs->drop < 1)) {
        return td_op_reject(c, "drop must be in [0, 1)");
    }
    return give(c, 0, arg(c, 0)->dtype, shape_of(c, 0));
}

// ---- costs --------------------------------------------------------------------------------------
static double cost_five(const struct td_graph *g, const struct td_node_info *node) {
    return 5 * td_op_elems(g, node->inputs[0]);
}

static double cost_six(const struct td_graph *g, const struct td_node_info *node) {
    return 6 * td_op_elems(g, node->inputs[0]);
}

static double cost_ten(const struct td_graph *g, const struct td_node_info *node) {
    return 10 * td_op_elems(g, node->inputs[0]);
}

// One product forward, two more for the gradients.
static double cost_linear_ce(const struct td_graph *g, const struct td_node_info *node) {
    double logits = (double)td_gv(g, node->inputs[0])->shape.dim[0] *
                    (double)td_gv(g, node->inputs[1])->shape.dim[0];
    double inner = (double)td_gv(g, node->inputs[1])->shape.dim[1];
    double products = node->op == TD_OP_LINEAR_CE_GRAD ? 3 : 1;
    return logits * (2 * products * inner + 5);
}

static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_SOFTMAX_CE] = {shape_softmax_ce, cost_five},
    [TD_OP_LINEAR_CE] = {shape_linear_ce, cost_linear_ce},
    [TD_OP_LINEAR_CE_GRAD] = {shape_linear_ce, cost_linear_ce},
    [TD_OP_COUNT_CORRECT] = {shape_count_correct, td_op_cost_inputs},
    [TD_OP_COUNT_LABELS] = {shape_count_labels, td_op_cost_inputs},
    [TD_OP_MSE] = {shape_pair_loss, td_op_cost_inputs},
    [TD_OP_BCE] = {shape_pair_loss, cost_ten},
    [TD_OP_SOFTMAX] = {shape_softmax, cost_five},
    [TD_OP_SOFTMAX_GRAD] = {shape_softmax, cost_five},
    [TD_OP_LOG_SOFTMAX] = {shape_softmax, cost_five},
    [TD_OP_LOG_SOFTMAX_GRAD] = {shape_softmax, cost_five},
    [TD_OP_LAYER_NORM] = {shape_norm, cost_five},
    [TD_OP_LAYER_NORM_GRAD] = {shape_norm_grad, cost_ten},
    [TD_OP_RMS_NORM] = {shape_norm, cost_five},
    [TD_OP_RMS_NORM_GRAD] = {shape_norm_grad, cost_ten},
    [TD_OP_ADD_LAYER_NORM] = {shape_norm, cost_six},
    [TD_OP_ADD_RMS_NORM] = {shape_norm, cost_six},
    [TD_OP_BATCH_NORM] = {shape_norm, cost_five},
    [TD_OP_BATCH_NORM_EVAL] = {shape_norm, cost_five},
    [TD_OP_BATCH_NORM_GRAD] = {shape_norm_grad, cost_ten},
    [TD_OP_DROPOUT] = {shape_dropout, td_op_cost_output},
};

const struct td_op_rule *td_op_rule_nn(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
