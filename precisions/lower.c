// See lower.h. One walk backward finds what ends in gradients, one forward retypes node by node:
// when a node is looked at, everything in front of it is settled. A cast is made once per value and
// type and shared by all later readers, because parameters do not change before the update.

#include "precisions/lower.h"

#include <string.h>

#include "lib/base/base.h"
#include "lib/base/floats/floats.h"
#include "traind/rewrite.h"

struct lower {
    struct td_graph *g;
    const struct td_lowering *how;
    td_value n_values; // as recorded
    bool *is_gradient; // by value: ends in stored gradients only
    td_value *copy;    // by value and type: its cast
    td_node n_front;   // casts of parameters
};

static enum td_op_types types_of(enum td_op op, const struct td_lowering *how) {
    static const enum td_op_types rows[TD_OP_COUNT] = {
#define TD_OP(ID, name, min_in, max_in, n_out, types, ...) [TD_OP_##ID] = TD_OP_TYPES_##types,
#include "traind/ops.def"
#undef TD_OP
    };
    if (op == TD_OP_SOFTMAX_CE && how->wide_loss) return TD_OP_TYPES_DELICATE;
    if (rows[op] == TD_OP_TYPES_DELICATE && !how->mixed) return TD_OP_TYPES_ONE;
    return rows[op];
}

static enum td_dtype type_of(const struct lower *l, td_value v) {
    return td_graph_value(l->g, v)->dtype;
}

static enum td_dtype scalar_type(const struct lower *l) {
    return l->how->compute == TD_F64 ? TD_F64 : TD_F32;
}

// ---- what ends in gradients ---------------------------------------------------------------------
static bool carries(enum td_op op) {
    return op == TD_OP_ADD || op == TD_OP_RESHAPE || op == TD_OP_TRANSPOSE || op == TD_OP_SCALE ||
           op == TD_OP_CAST || op == TD_OP_SLICE || op == TD_OP_PAD || op == TD_OP_CONCAT;
}

static enum td_role role_of(const struct lower *l, td_value state) {
    return td_state_at(td_graph_state(l->g), td_graph_value(l->g, state)->index)->role;
}

static bool stores_gradient(const struct lower *l, const struct td_node_info *node, uint32_t i) {
    return node->op == TD_OP_STORE && i == 1 && role_of(l, node->inputs[0]) == TD_ROLE_GRAD;
}

static void find_gradients(struct lower *l, bool *is_read) {
    memset(l->is_gradient, 1, l->n_values + 1);
    for (td_node n = td_graph_n_nodes(l->g); n-- > 0;) {
        const struct td_node_info *node = td_graph_node(l->g, n);
        td_value y = node->n_outputs ? node->outputs[0] : 0;
        bool onward = y && carries(node->op) && l->is_gradient[y];
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            l->is_gradient[node->inputs[i]] &= onward || stores_gradient(l, node, i);
            is_read[node->inputs[i]] = true;
        }
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            // Made here and read later: all its readers were seen.
            l->is_gradient[node->outputs[i]] &= is_read[node->outputs[i]];
        }
    }
}

// ---- casts --------------------------------------------------------------------------------------
// A buffer may be written in the middle of a program.
static bool changes(const struct lower *l, td_value v) {
    const struct td_value_info *info = td_graph_value(l->g, v);
    return info->kind == TD_VALUE_STATE &&
           td_state_at(td_graph_state(l->g), info->index)->role != TD_ROLE_PARAM;
}

// v as t, by a cast in front of node *n, which moves on. Parameters are cast at the program's
// front, where a bias is there before the product that it may be fused into.
static td_status as_type(struct lower *l, td_value v, enum td_dtype t, td_node *n,
                         td_value *out_value) {
    *out_value = v;
    if (type_of(l, v) == t) return TD_OK;
    td_value *copy = &l->copy[(size_t)v * TD_DTYPE_COUNT + (size_t)t];
    if (!*copy || changes(l, v)) {
        struct td_attrs a = {.dtype = t};
        bool state = td_graph_value(l->g, v)->kind == TD_VALUE_STATE && !changes(l, v);
        TD_TRY(td_rewrite_insert_at(l->g, state ? l->n_front++ : *n));
        TD_TRY(td_graph_op(l->g, TD_OP_CAST, &v, 1, &a, copy));
        ++*n;
    }
    *out_value = *copy;
    return TD_OK;
}

// ---- types of one node --------------------------------------------------------------------------
// The type that operands must share, when they do not have one already.
static enum td_dtype shared_type(const struct lower *l, const struct td_node_info *node) {
    enum td_dtype first = TD_DTYPE_COUNT;
    bool same = true;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        enum td_dtype t = type_of(l, node->inputs[i]);
        if (!td_is_float(t)) continue;
        if (first == TD_DTYPE_COUNT) first = t;
        same &= t == first;
    }
    if (same) return first;
    td_value y = node->outputs[0];
    if (td_graph_value(l->g, y)->shape.n_dims == 0) return scalar_type(l);
    return l->is_gradient[y] ? l->how->gradient : l->how->compute;
}

static bool is_log_sum_exp(const struct td_node_info *node, uint32_t i) {
    return (node->op == TD_OP_ATTENTION_GRAD && i == 4) ||
           (node->op == TD_OP_SELF_ATTENTION_GRAD && i == 2);
}

// Inputs come as f32 unless the dataset has them as f64. What comes before the first product would
// follow them.
static bool widens(const struct lower *l, td_value v) {
    return l->how->compute == TD_F64 && td_graph_value(l->g, v)->kind != TD_VALUE_STATE;
}

// What operand i becomes, if it is float; TD_DTYPE_COUNT: stays.
static enum td_dtype operand_type(const struct lower *l, const struct td_node_info *node,
                                  enum td_op_types types, uint32_t i) {
    const bool converts = types == TD_OP_TYPES_GIVEN || types == TD_OP_TYPES_STATE;
    if (!converts && widens(l, node->inputs[i])) return TD_F64;
    switch (types) {
    case TD_OP_TYPES_PRODUCT:
        return is_log_sum_exp(node, i) ? TD_DTYPE_COUNT : l->how->compute;
    case TD_OP_TYPES_ONE:
    case TD_OP_TYPES_ALIKE:
        return shared_type(l, node);
    case TD_OP_TYPES_DELICATE:
        return TD_F32;
    case TD_OP_TYPES_NORM_GRAD: // x and dy
        return i == 2 ? type_of(l, node->inputs[0]) : TD_DTYPE_COUNT;
    case TD_OP_TYPES_STATE:
        return i == 1 ? type_of(l, node->inputs[0]) : TD_DTYPE_COUNT;
    case TD_OP_TYPES_FIRST:
    case TD_OP_TYPES_GIVEN:
        return TD_DTYPE_COUNT;
    }
    return TD_DTYPE_COUNT;
}

static bool knows_wide(enum td_op op) {
    return op == TD_OP_MATMUL || op == TD_OP_CONV2D_GRAD_W || op == TD_OP_REDUCE_SUM ||
           op == TD_OP_EMBEDDING_GRAD || op == TD_OP_GATHER_GRAD;
}

static void set_attrs(const struct lower *l, const struct td_node_info *node, struct td_attrs *a) {
    td_value y = node->n_outputs ? node->outputs[0] : 0;
    if (y && knows_wide(node->op)) a->wide = l->is_gradient[y] && l->how->gradient == TD_F32;
    // Weights of classes: a loss is a scalar, and they belong to it.
    if (node->op == TD_OP_CONSTANT && a->dtype == TD_F32) a->dtype = scalar_type(l);
    const bool given = node->op == TD_OP_CAST || node->op == TD_OP_FILL;
    if (!given || a->dtype != TD_F32 || l->how->mixed) return;
    bool scalar = td_graph_value(l->g, y)->shape.n_dims == 0;
    a->dtype = scalar ? scalar_type(l) : l->how->compute;
}

static td_status lower_node(struct lower *l, td_node *n) {
    const struct td_node_info node = *td_graph_node(l->g, *n);
    enum td_op_types types = types_of(node.op, l->how);
    TD_AUTO_FREE td_value *in = td_calloc(TD_MAX(node.n_inputs, 1), sizeof *in);
    if (!in) return td_fail_oom();
    for (uint32_t i = 0; i < node.n_inputs; i++) {
        in[i] = node.inputs[i];
        enum td_dtype t = operand_type(l, &node, types, i);
        if (t == TD_DTYPE_COUNT || !td_is_float(type_of(l, in[i]))) continue;
        TD_TRY(as_type(l, in[i], t, n, &in[i]));
    }
    struct td_attrs a = node.attrs;
    set_attrs(l, &node, &a);
    return td_rewrite_node(l->g, *n, in, &a);
}

// State that steps name as f32 is stored as the precision says, but for results: whoever reads
// those knows no precision.
static td_status lower_state(struct lower *l) {
    for (td_value v = 1; v <= l->n_values; v++) {
        const struct td_value_info *info = td_graph_value(l->g, v);
        if (info->kind != TD_VALUE_STATE || info->dtype != TD_F32) continue;
        enum td_role role = role_of(l, v);
        enum td_dtype to = role == TD_ROLE_GRAD ? l->how->gradient : l->how->param;
        if (role != TD_ROLE_RESULT && to != TD_F32) TD_TRY(td_rewrite_state(l->g, v, to));
    }
    return TD_OK;
}

// Steps name their scalars as f32, too.
static td_status lower_scalars(struct lower *l) {
    for (td_value v = 1; v <= l->n_values && scalar_type(l) != TD_F32; v++) {
        if (td_graph_value(l->g, v)->kind != TD_VALUE_SCALAR) continue;
        TD_TRY(td_rewrite_scalar(l->g, v, scalar_type(l)));
    }
    return TD_OK;
}

td_status td_precision_lower(struct td_graph *g, const struct td_lowering *how) {
    size_t n = (size_t)td_graph_n_values(g) + 1;
    TD_AUTO_FREE bool *is_gradient = td_calloc(n, sizeof *is_gradient);
    TD_AUTO_FREE bool *is_read = td_calloc(n, sizeof *is_read);
    TD_AUTO_FREE td_value *copy = td_calloc(n * TD_DTYPE_COUNT, sizeof *copy);
    if (!is_gradient || !is_read || !copy) return td_fail_oom();
    struct lower l = {g, how, (td_value)(n - 1), is_gradient, copy, 0};
    find_gradients(&l, is_read);
    TD_TRY(lower_state(&l));
    TD_TRY(lower_scalars(&l));
    for (td_node i = 0; i < td_graph_n_nodes(g); i++) {
        TD_TRY(lower_node(&l, &i));
    }
    return TD_OK;
}
