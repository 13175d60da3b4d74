// Op rules: what each op of ops.def takes and makes, and what it costs.
//
// One table row per op: a shape rule (checks operands and attributes, infers dtype and shape of the
// outputs), a cost rule (FLOPs; 0 where the op only moves bytes) and a mask of the operands that
// the op writes. Here are the ops of linear algebra and state; a family of ops has its own file and
// table (shape_*.c), asked first. Gradient rules stand in rules/gradient*.c,
// reference kernels in accelerators/reference; tests/conform visits every row. A rule fails with
// INVALID_ARGUMENT that names op and operand shapes; it never aborts, because what it judges is a
// user's module. Pure functions.

#include "engine/graph/rules/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/graph_text.h"

static const struct {
    const char *name;
    uint32_t min_in, max_in, n_out;
} op_arity[TD_OP_COUNT] = {
#define TD_OP(ID, NAME, MIN, MAX, OUT) [TD_OP_##ID] = {NAME, MIN, MAX, OUT},
#include "traind/ops.def"
#undef TD_OP
};

const char *td_op_name(enum td_op op) {
    return (unsigned)op < TD_OP_COUNT ? op_arity[op].name : "unknown";
}

uint32_t td_op_n_out(enum td_op op) {
    return op_arity[op].n_out;
}

// ---- shapes -------------------------------------------------------------------------------------
td_status td_shape_check(enum td_dtype dtype, const struct td_shape *s) {
    if ((unsigned)dtype >= TD_DTYPE_COUNT) {
        return td_fail(TD_INVALID_ARGUMENT, "element type %d is unknown", (int)dtype);
    }
    if (s->n_dims < 0 || s->n_dims > TD_MAX_DIMS) {
        return td_fail(TD_INVALID_ARGUMENT, "%" PRId32 " dimensions; at most %d are supported",
                       s->n_dims, TD_MAX_DIMS);
    }
    int64_t bytes = (int64_t)td_dtype_bytes(dtype);
    for (int32_t i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 0) {
            return td_fail(TD_INVALID_ARGUMENT, "dimension %" PRId32 " is negative", i);
        }
        // A zero elsewhere must not hide an overflow: count it as one.
        if (__builtin_mul_overflow(bytes, TD_MAX(s->dim[i], 1), &bytes) ||
            bytes > (INT64_C(1) << 46)) {
            return td_fail(TD_INVALID_ARGUMENT, "the tensor would exceed 64 TiB");
        }
    }
    return TD_OK;
}

bool td_shape_broadcast(const struct td_shape *a, const struct td_shape *b, struct td_shape *out) {
    struct td_shape r = {.n_dims = TD_MAX(a->n_dims, b->n_dims)};
    for (int32_t i = 0; i < r.n_dims; i++) {
        int32_t ia = i - (r.n_dims - a->n_dims), ib = i - (r.n_dims - b->n_dims);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1) return false;
        r.dim[i] = da == 1 ? db : da;
    }
    *out = r;
    return true;
}

// ---- what the families' rules share (shape.h) ------------------------------------------------
// "matmul(f32(128,784), f32(100,10)): <why>"; long operand lists are cut.
td_status td_op_reject(const struct td_op_call *c, const char *why) {
    char text[512];
    size_t at = 0;
    for (uint32_t i = 0; i < c->n_in && i < 5; i++) {
        char one[96];
        td_shape_text(arg(c, i)->dtype, shape_of(c, i), one, sizeof one);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", one);
    }
    text[at] = '\0';
    return td_fail(TD_INVALID_ARGUMENT, "%s(%s%s): %s", td_op_name(c->op), text,
                   c->n_in > 5 ? ", ..." : "", why);
}

double td_op_cost_output(const struct td_graph *g, const struct td_node_info *node) {
    return td_op_elems(g, node->into ? node->into : node->outputs[0]);
}

double td_op_cost_inputs(const struct td_graph *g, const struct td_node_info *node) {
    double sum = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        sum += td_op_elems(g, node->inputs[i]);
    }
    return node->op == TD_OP_SUM_SQUARES ? 2 * sum : sum;
}

double td_op_cost_free(const struct td_graph *g, const struct td_node_info *node) {
    (void)g, (void)node;
    return 0;
}

// ---- shape rules --------------------------------------------------------------------------------
static td_status check_bias(const struct td_op_call *c, const struct td_shape *y) {
    const struct td_shape *bias = shape_of(c, 2);
    if (bias->n_dims == 1 && bias->dim[0] == y->dim[y->n_dims - 1]) return TD_OK;
    return td_op_reject(c, "bias must have one element per column");
}

static td_status check_then(const struct td_op_call *c, const struct td_shape *y) {
    const struct td_attrs *a = c->attrs;
    if (!td_op_is_activation_grad(a->then) || a->act != TD_ACT_NONE || a->accumulate) {
        return td_op_reject(c, "attrs.then must be an activation's gradient, alone");
    }
    bool fits = c->n_in == 3 && td_shape_equal(shape_of(c, 2), y) &&
                result_dtype(c, arg(c, 0)->dtype) == arg(c, 2)->dtype;
    return fits ? TD_OK : td_op_reject(c, "attrs.then reads a third operand like the result");
}

static td_status shape_matmul(const struct td_op_call *c) {
    const struct td_shape *a = &arg(c, 0)->shape, *b = &arg(c, 1)->shape;
    if (!same_float(c)) return td_op_reject(c, "operands must have one float type");
    if (b->n_dims != 2) return td_op_reject(c, "b must have 2 dimensions");
    if (a->n_dims < 1) return td_op_reject(c, "a must have a dimension");
    if (c->attrs->trans_a && a->n_dims != 2) {
        return td_op_reject(c, "a must have 2 dimensions to be transposed");
    }
    struct td_shape y = *a;
    int64_t inner = a->dim[a->n_dims - 1];
    if (c->attrs->trans_a) {
        inner = a->dim[0];
        y.dim[0] = a->dim[1];
    }
    y.dim[y.n_dims - 1] = b->dim[c->attrs->trans_b ? 0 : 1];
    if (inner != b->dim[c->attrs->trans_b ? 1 : 0])
        return td_op_reject(c, "inner dimensions differ");
    if (c->attrs->then) {
        TD_TRY(check_then(c, &y));
    } else if (c->n_in == 3) {
        TD_TRY(check_bias(c, &y));
    }
    return give(c, 0, result_dtype(c, arg(c, 0)->dtype), &y);
}

static td_status shape_cast(const struct td_op_call *c) {
    return give(c, 0, c->attrs->dtype, &arg(c, 0)->shape);
}

static td_status shape_to_scalar(const struct td_op_call *c) {
    if (!same_float(c)) return td_op_reject(c, "operands must have one float type");
    bool wide = c->op == TD_OP_SUM_SQUARES && c->attrs->wide;
    return give_scalar(c, 0, wide ? TD_F64 : arg(c, 0)->dtype);
}

static td_status shape_scale(const struct td_op_call *c) {
    if (!td_is_float(arg(c, 0)->dtype) || !is_float_scalar(arg(c, 1))) {
        return td_op_reject(c, "needs a float tensor and a float scalar");
    }
    return give(c, 0, arg(c, 0)->dtype, &arg(c, 0)->shape);
}

static td_status shape_store(const struct td_op_call *c) {
    if (!is_state(c, 0)) return td_op_reject(c, "only a state tensor can be written");
    if (!like_first(c, 1)) return td_op_reject(c, "type and shape must be the state tensor's");
    return TD_OK;
}

static td_status shape_all_reduce(const struct td_op_call *c) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!is_state(c, i) || td_state_at(c->g->state, arg(c, i)->index)->role != TD_ROLE_GRAD) {
            return td_op_reject(c, "only gradients are reduced");
        }
    }
    return TD_OK;
}

static td_status shape_clip_coef(const struct td_op_call *c) {
    if (!is_float_scalar(arg(c, 0))) return td_op_reject(c, "needs a float scalar");
    if (!(c->attrs->max_norm > 0)) return td_op_reject(c, "max_norm must be above 0");
    return give_scalar(c, 0, c->attrs->dtype == TD_F64 ? TD_F64 : TD_F32);
}

static td_status shape_fill(const struct td_op_call *c) {
    if (c->n_in == 1 && !is_float_scalar(arg(c, 0))) return td_op_reject(c, "needs a float scalar");
    if (!td_is_float(c->attrs->dtype)) return td_op_reject(c, "attrs.dtype must be float");
    return give(c, 0, c->attrs->dtype, &c->attrs->shape);
}

static td_status shape_constant(const struct td_op_call *c) {
    if (!td_is_float(c->attrs->dtype)) return td_op_reject(c, "attrs.dtype must be float");
    if (!c->attrs->values) return td_op_reject(c, "attrs.values are missing");
    return give(c, 0, c->attrs->dtype, &c->attrs->shape);
}

// ---- cost rules: FLOPs --------------------------------------------------------------------------
static double cost_matmul(const struct td_graph *g, const struct td_node_info *node) {
    const struct td_shape *a = &td_gv(g, node->inputs[0])->shape;
    double inner = (double)a->dim[node->attrs.trans_a ? 0 : a->n_dims - 1];
    td_value y = node->into ? node->into : node->outputs[0];
    double product = td_op_elems(g, y) * 2 * inner;
    if (node->attrs.then) return product + td_op_rule_elementwise(node->attrs.then)->cost(g, node);
    return product + td_op_elems(g, y) * ((node->n_inputs == 3) + (node->attrs.act != TD_ACT_NONE));
}

static double cost_store(const struct td_graph *g, const struct td_node_info *node) {
    return node->attrs.accumulate ? td_op_elems(g, node->inputs[0]) : 0;
}

// ---- the table ----------------------------------------------------------------------------------
static const struct td_op_rule op_rules[TD_OP_COUNT] = {
    [TD_OP_MATMUL] = {shape_matmul, cost_matmul},
    [TD_OP_CAST] = {shape_cast, td_op_cost_output},
    [TD_OP_MEAN] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_SUM_SQUARES] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_ALL_FINITE] = {shape_to_scalar, td_op_cost_inputs},
    [TD_OP_SCALE] = {shape_scale, td_op_cost_output},
    [TD_OP_STORE] = {shape_store, cost_store},
    [TD_OP_ALL_REDUCE] = {shape_all_reduce, td_op_cost_free},
    [TD_OP_CLIP_COEF] = {shape_clip_coef, td_op_cost_free},
    [TD_OP_FILL] = {shape_fill, td_op_cost_free},
    [TD_OP_CONSTANT] = {shape_constant, td_op_cost_free},
};

static const struct td_op_rule *rule_of(enum td_op op) {
    const struct td_op_rule *r = td_op_rule_elementwise(op);
    if (!r) r = td_op_rule_tensor(op);
    if (!r) r = td_op_rule_nn(op);
    if (!r) r = td_op_rule_conv(op);
    if (!r) r = td_op_rule_attention(op);
    if (!r) r = td_op_rule_optim(op);
    return r ? r : &op_rules[op];
}

td_status td_op_infer(const struct td_graph *g, enum td_op op, const td_value *inputs,
                      uint32_t n_inputs, const struct td_attrs *attrs,
                      struct td_op_result *out_result) {
    if ((unsigned)op >= TD_OP_COUNT) {
        return td_fail(TD_INVALID_ARGUMENT, "op %d is unknown", (int)op);
    }
    if (n_inputs < op_arity[op].min_in || n_inputs > op_arity[op].max_in) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "%s takes %" PRIu32 " to %" PRIu32 " operands, not %" PRIu32, td_op_name(op),
                       op_arity[op].min_in, op_arity[op].max_in, n_inputs);
    }
    for (uint32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] < 1 || inputs[i] > g->n_values) {
            return td_fail(TD_INVALID_ARGUMENT, "%s: operand %" PRIu32 " is no value of this graph",
                           td_op_name(op), i);
        }
    }
    memset(out_result, 0, sizeof *out_result);
    struct td_op_call c = {g, op, inputs, n_inputs, attrs, out_result};
    TD_TRY_CTX(td_shape_check(attrs->dtype, &attrs->shape), "%s", td_op_name(op));
    TD_TRY(rule_of(op)->shape(&c));
    for (uint32_t i = 0; i < op_arity[op].n_out; i++) {
        td_status s = td_shape_check(out_result->dtype[i], &out_result->shape[i]);
        if (s) return td_status_context(s, "%s", td_op_name(op));
    }
    return TD_OK;
}

double td_op_flops(const struct td_graph *g, const struct td_node_info *node) {
    return rule_of(node->op)->cost(g, node);
}

bool td_op_writes(enum td_op op, const struct td_attrs *attrs, uint32_t i) {
    if (op == TD_OP_STORE) return i == 0;
    if (op == TD_OP_ALL_REDUCE) return true;
    if (op == TD_OP_BATCH_NORM) return i >= 3;
    if (op == TD_OP_LINEAR_CE_GRAD) {
        struct td_head_operands h = td_head_operands(op, attrs, 0);
        return i == h.dw || (i && i == h.dbias);
    }
    return td_op_optim_writes(op, attrs, i);
}

bool td_node_has_effect(const struct td_node_info *node) {
    return node->into != 0 || op_arity[node->op].n_out == 0;
}
