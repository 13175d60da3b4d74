// Rules of attention and of the rotation of its operands, token-major (B,T,H,D).
// Token-major because a product gives (B,T,3C) and takes (B,T,C): slices and reshapes lead in and
// out, and no transpose; self_attention spares the slices too. Rejected: head-major as in torch,
// four transposes a layer.

#include "engine/graph/rules/shape.h"
#include "traind/random.h"

// q (B,T,H,D) and k, v (B,S,G,D) with H a multiple of G.
static bool attends(const struct td_op_call *c) {
    const struct td_shape *q = shape_of(c, 0), *k = shape_of(c, 1);
    if (q->n_dims != 4 || k->n_dims != 4 || !td_shape_equal(k, shape_of(c, 2))) return false;
    bool heads = k->dim[2] > 0 && q->dim[2] % k->dim[2] == 0;
    return heads && q->dim[0] == k->dim[0] && q->dim[3] == k->dim[3] && q->dim[3] > 0 &&
           (k->dim[1] > 0 || q->dim[1] == 0);
}

static struct td_shape statistics_of(const struct td_shape *q) {
    return (struct td_shape){3, {q->dim[0], q->dim[2], q->dim[1]}};
}

// Of qkv (B,T,H+2G,D) the queries' shape (B,T,H,D).
static bool attends_itself(const struct td_op_call *c, struct td_shape *out_q) {
    int64_t groups = c->attrs->groups;
    *out_q = *shape_of(c, 0);
    out_q->dim[2] -= 2 * groups;
    return out_q->n_dims == 4 && groups > 0 && out_q->dim[2] > 0 && out_q->dim[3] > 0 &&
           out_q->dim[2] % groups == 0;
}

// Of queries q over so many keys: every weight of a sample needs a number of its own.
static bool can_drop(const struct td_op_call *c, const struct td_shape *q, int64_t keys) {
    double weights = (double)q->dim[1] * (double)q->dim[2] * (double)(keys + 3);
    double drop = c->attrs->drop;
    return drop == 0 || (drop > 0 && drop < 1 && weights <= (double)TD_RANDOM_ELEMS);
}

static td_status reject_drop(const struct td_op_call *c) {
    return td_op_reject(c, "drop must be in [0, 1), and of at most 2^34 weights of a sample");
}

static td_status shape_attention(const struct td_op_call *c) {
    const struct td_shape *q = shape_of(c, 0);
    if (!same_float(c) || !attends(c)) {
        return td_op_reject(c,
                            "needs q (B,T,H,D) and k, v (B,S,G,D) of one float type, H a multiple "
                            "of G");
    }
    if (!can_drop(c, q, shape_of(c, 1)->dim[1])) return reject_drop(c);
    struct td_shape lse = statistics_of(q);
    TD_TRY(give(c, 1, scalar_dtype(arg(c, 0)->dtype), &lse));
    return give(c, 0, arg(c, 0)->dtype, q);
}

static td_status shape_attention_grad(const struct td_op_call *c) {
    if (!attends(c)) return td_op_reject(c, "operands are not those of an attention");
    struct td_shape lse = statistics_of(shape_of(c, 0));
    bool fits = like_first(c, 3) && like_first(c, 5) && td_shape_equal(&lse, shape_of(c, 4)) &&
                arg(c, 1)->dtype == arg(c, 0)->dtype && arg(c, 2)->dtype == arg(c, 0)->dtype;
    if (!fits || !td_is_float(arg(c, 0)->dtype) || !td_is_float(arg(c, 4)->dtype)) {
        return td_op_reject(c, "results and gradient are not those of this attention");
    }
    if (!can_drop(c, shape_of(c, 0), shape_of(c, 1)->dim[1])) return reject_drop(c);
    for (uint32_t i = 0; i < 3; i++) {
        TD_TRY(give(c, i, arg(c, i)->dtype, shape_of(c, i)));
    }
    return TD_OK;
}

static td_status shape_self_attention(const struct td_op_call *c) {
    struct td_shape q;
    if (!same_float(c) || !attends_itself(c, &q)) {
        return td_op_reject(c, "needs float (B,T,H+2G,D) with attrs.groups G, H a multiple of G");
    }
    if (!can_drop(c, &q, q.dim[1])) return reject_drop(c);
    struct td_shape lse = statistics_of(&q);
    TD_TRY(give(c, 1, scalar_dtype(arg(c, 0)->dtype), &lse));
    return give(c, 0, arg(c, 0)->dtype, &q);
}

static td_status shape_self_attention_grad(const struct td_op_call *c) {
    struct td_shape q;
    if (!attends_itself(c, &q)) return td_op_reject(c, "the operand is not a self_attention's");
    struct td_shape lse = statistics_of(&q);
    enum td_dtype t = arg(c, 0)->dtype;
    bool fits = td_shape_equal(&q, shape_of(c, 1)) && td_shape_equal(&q, shape_of(c, 3)) &&
                td_shape_equal(&lse, shape_of(c, 2)) && arg(c, 1)->dtype == t &&
                arg(c, 3)->dtype == t;
    if (!fits || !td_is_float(t) || !td_is_float(arg(c, 2)->dtype)) {
        return td_op_reject(c, "results and gradient are not those of this attention");
    }
    if (!can_drop(c, &q, q.dim[1])) return reject_drop(c);
    return give(c, 0, t, shape_of(c, 0));
}

static td_status shape_rope(const struct td_op_call *c) {
    const struct td_shape *x = shape_of(c, 0);
    if (x->n_dims != 4 || x->dim[3] % 2) {
        return td_op_reject(c, "needs (B,T,H,D) with an even D");
    }
    if (!(c->attrs->base >= 0) || c->attrs->start[0] < 0) {
        return td_op_reject(c, "base and first token must not be negative");
    }
    const struct td_rope_scaling *s = &c->attrs->rope;
    if (!(s->factor >= 0) || s->original < 0 ||
        (s->original && !(s->low > 0 && s->high > s->low))) {
        return td_op_reject(c, "scaling needs a positive factor, and of an original length "
                               "0 < low < high");
    }
    return give(c, 0, arg(c, 0)->dtype, x);
}

// Two products forward, five backward (the scores are computed again), halved where half is hidden.
static double cost_attention(const struct td_graph *g, const struct td_node_info *node) {
    bool itself = node->op == TD_OP_SELF_ATTENTION || node->op == TD_OP_SELF_ATTENTION_GRAD;
    bool forward = node->op == TD_OP_ATTENTION || node->op == TD_OP_SELF_ATTENTION;
    const struct td_shape *q = &td_gv(g, node->inputs[0])->shape;
    double keys = (double)td_gv(g, node->inputs[itself ? 0 : 1])->shape.dim[1];
    double share = itself ? 1 - 2.0 * node->attrs.groups / (double)q->dim[2] : 1;
    double elems = td_op_elems(g, node->inputs[0]) * share; // of q
    return elems * keys * 2 * (forward ? 2 : 5) / (node->attrs.causal ? 2 : 1);
}

static double cost_rope(const struct td_graph *g, const struct td_node_info *node) {
    return 3 * td_op_cost_output(g, node);
}

static const struct td_op_rule rules[TD_OP_COUNT] = {
    [TD_OP_ATTENTION] = {shape_attention, cost_attention},
    [TD_OP_ATTENTION_GRAD] = {shape_attention_grad, cost_attention},
    [TD_OP_SELF_ATTENTION] = {shape_self_attention, cost_attention},
    [TD_OP_SELF_ATTENTION_GRAD] = {shape_self_attention_grad, cost_attention},
    [TD_OP_ROPE] = {shape_rope, cost_rope},
};

const struct td_op_rule *td_op_rule_attention(enum td_op op) {
    return rules[op].shape ? &rules[op] : NULL;
}
