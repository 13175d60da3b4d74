// The questions, and what answers them. What a row of ops.def says is taken from there; everything
// else is asked of the families in turn until one has a row for the op. make lint sees to it that
// one has.

#include "engine/graph/rules/rules.h"

#include <inttypes.h>
#include <string.h>

#include "engine/graph/rules/shape.h"

static const struct {
    const char *name;
    uint32_t min_in, max_in, n_out;
    enum td_op_types types;
    enum td_op_gradient gradient;
    uint32_t is;
} op_rows[TD_OP_COUNT] = {
#define TD_OP(ID, NAME, MIN, MAX, OUT, TYPES, GRADIENT, IS)                                        \
    [TD_OP_##ID] = {NAME,                                                                          \
                    MIN,                                                                           \
                    MAX,                                                                           \
                    OUT,                                                                           \
                    TD_OP_TYPES_##TYPES,                                                           \
                    TD_OP_GRADIENT_##GRADIENT,                                                     \
                    (IS) | ((IS)&TD_OP_IS_ELEMENTWISE ? TD_OP_IS_CHEAP : 0)},
#include "traind/ops.def"
#undef TD_OP
};

// What columns of a row say of each other.
enum { ONE_TYPE = 1 << TD_OP_TYPES_ONE | 1 << TD_OP_TYPES_DELICATE };
#define HAS(IS, WHAT)     (((IS) & (WHAT)) != 0)
#define IF(a, b)          (!(a) || (b))
#define SAYS(GRADIENT, G) (TD_OP_GRADIENT_##GRADIENT == TD_OP_GRADIENT_##G)
#define TD_OP(ID, NAME, MIN, MAX, OUT, TYPES, GRADIENT, IS)                                        \
    _Static_assert(IF(HAS(IS, TD_OP_IS_ELEMENTWISE),                                               \
                      (ONE_TYPE | 1 << TD_OP_TYPES_ALIKE) >> TD_OP_TYPES_##TYPES & 1),             \
                   NAME ": operands of an elementwise op agree in type");                          \
    _Static_assert(IF(HAS(IS, TD_OP_IS_PRODUCT | TD_OP_IS_CONVOLUTION),                            \
                      TD_OP_TYPES_##TYPES == TD_OP_TYPES_PRODUCT),                                 \
                   NAME ": a product is computed in the type of products");                        \
    _Static_assert(IF(HAS(IS, TD_OP_IS_MADE), SAYS(GRADIENT, NONE) || SAYS(GRADIENT, THEN)),       \
                   NAME ": what passes and rules make has no gradient");                           \
    _Static_assert(IF(HAS(IS, TD_OP_IS_SERIES), HAS(IS, TD_OP_IS_ELEMENTWISE)),                    \
                   NAME ": only an elementwise op is a series");                                   \
    _Static_assert(IF(HAS(IS, TD_OP_IS_START), (OUT) > 0 && HAS(IS, TD_OP_IS_MADE)),               \
                   NAME ": what begins a sum has a token");                                        \
    _Static_assert(IF(SAYS(GRADIENT, OF_OPERAND) || SAYS(GRADIENT, OF_RESULT),                     \
                      HAS(IS, TD_OP_IS_ELEMENTWISE) && (MAX) == 1),                                \
                   NAME ": only a function of one operand has a <name>_grad by its row");          \
    _Static_assert(IF(SAYS(GRADIENT, THEN),                                                        \
                      HAS(IS, TD_OP_IS_ELEMENTWISE) && HAS(IS, TD_OP_IS_MADE) && (MIN) == 2),      \
                   NAME ": a product applies what is elementwise, of two operands");
#include "traind/ops.def"
#undef TD_OP

const char *td_op_name(enum td_op op) {
    return (unsigned)op < TD_OP_COUNT ? op_rows[op].name : "unknown";
}

bool td_op_is(enum td_op op, enum td_op_is what) {
    return op_rows[op].is & (uint32_t)what;
}

uint32_t td_op_n_out(enum td_op op) {
    return op_rows[op].n_out;
}

enum td_op_types td_op_types(enum td_op op) {
    return op_rows[op].types;
}

enum td_op_gradient td_op_gradient(enum td_op op) {
    return (unsigned)op < TD_OP_COUNT ? op_rows[op].gradient : TD_OP_GRADIENT_NONE;
}

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

static const struct td_op_rule *rule_of(enum td_op op) {
    const struct td_op_rule *r = td_op_rule_elementwise(op);
    if (!r) r = td_op_rule_tensor(op);
    if (!r) r = td_op_rule_nn(op);
    if (!r) r = td_op_rule_conv(op);
    if (!r) r = td_op_rule_attention(op);
    if (!r) r = td_op_rule_optim(op);
    return r ? r : td_op_rule_basic(op);
}

td_status td_op_infer(const struct td_graph *g, enum td_op op, const td_value *inputs,
                      uint32_t n_inputs, const struct td_attrs *attrs,
                      struct td_op_result *out_result) {
    if ((unsigned)op >= TD_OP_COUNT) {
        return td_fail(TD_INVALID_ARGUMENT, "op %d is unknown", (int)op);
    }
    if (n_inputs < op_rows[op].min_in || n_inputs > op_rows[op].max_in) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "%s takes %" PRIu32 " to %" PRIu32 " operands, not %" PRIu32, td_op_name(op),
                       op_rows[op].min_in, op_rows[op].max_in, n_inputs);
    }
    for (uint32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] < 1 || inputs[i] > g->n_values) {
            return td_fail(TD_INVALID_ARGUMENT, "%s: operand %" PRIu32 " is no value of this graph",
                           td_op_name(op), i);
        }
    }
    memset(out_result, 0, sizeof *out_result);
    struct td_op_call c = {g, op, inputs, n_inputs, attrs, out_result};
    if (ONE_TYPE >> op_rows[op].types & 1 && !same_float(&c)) {
        return td_op_reject(&c, n_inputs == 1 ? "the operand must be float"
                                              : "operands must have one float type");
    }
    TD_TRY_CTX(td_shape_check(attrs->dtype, &attrs->shape), "%s", td_op_name(op));
    TD_TRY(rule_of(op)->shape(&c));
    for (uint32_t i = 0; i < op_rows[op].n_out; i++) {
        td_status s = td_shape_check(out_result->dtype[i], &out_result->shape[i]);
        if (s) return td_status_context(s, "%s", td_op_name(op));
    }
    return TD_OK;
}

double td_op_flops(const struct td_graph *g, const struct td_node_info *node) {
    return rule_of(node->op)->cost(g, node);
}

struct td_head_operands td_head_operands_of(td_op_id op, const struct td_attrs *a,
                                            uint32_t n_inputs) {
    struct td_head_operands h = {0, 0, 0, 0, 0, 3};
    bool grads = op == TD_OP_LINEAR_CE_GRAD;
    if (grads) h.dw = h.n++;
    if (a->seeded) h.seed = h.n++;
    if (a->biased) h.bias = h.n++;
    if (a->biased && grads) h.dbias = h.n++;
    if (n_inputs > h.n) h.weights = h.n++;
    return h;
}

bool td_op_writes(td_op_id op, const struct td_attrs *attrs, uint32_t i) {
    if (op == TD_OP_STORE) return i == 0;
    if (td_op_is(op, TD_OP_IS_START)) return true; // in place
    if (op == TD_OP_BATCH_NORM) return i >= 3;
    if (op == TD_OP_LINEAR_CE_GRAD) {
        struct td_head_operands h = td_head_operands_of(op, attrs, 0);
        return i == h.dw || (i && i == h.dbias);
    }
    return td_op_optim_writes(op, attrs, i);
}

bool td_node_has_effect(const struct td_node_info *node) {
    return node->into != 0 || op_rows[node->op].n_out == 0 || td_op_is(node->op, TD_OP_IS_START);
}

td_node td_node_of_token(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    if (info->kind != TD_VALUE_NODE || info->node >= g->n_nodes) return TD_NODE_NONE;
    const struct td_node_info *node = &g->nodes[info->node];
    const bool is = td_op_is(node->op, TD_OP_IS_START) && info->output + 1 == node->n_outputs;
    return is ? info->node : (td_node)TD_NODE_NONE;
}

double td_graph_flops(const struct td_graph *g) {
    double sum = 0;
    for (td_node n = 0; n < g->n_nodes; n++) {
        sum += td_op_flops(g, &g->nodes[n]);
    }
    return sum;
}
