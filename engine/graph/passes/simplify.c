// Simplify: nodes that compute nothing, or nothing new.
//
// One walk forward replaces what a node's readers can read instead. Reshape, cast and transpose to
// the same, reshape of a reshape and transpose of a transpose go. So do cast of a wider cast (also
// after a view of it), cast of a constant and multiplication by a constant one. A matrix that is
// transposed for a product becomes a flag of the product. The sum of a max pool's gradient is that
// of what was pooled. What was computed already a little earlier in the segment is not computed
// again; across segments it would be kept for long. One walk backward marks what nobody reads. A
// view of a state tensor is only replaced by the tensor while nothing writes it up to the last
// reader, because a state value means "what is there now". Rejected: pattern tables; a few rules do
// not pay for one.

#include "engine/graph/passes/passes.h"

#include <string.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "lib/base/floats/floats.h"

enum { LOOK_BACK = 256 }; // nodes among which the same one is looked for

struct simplify {
    struct td_graph *g;
    td_value *instead; // by value: what to read instead, 0: itself
    td_node *last;     // by value: its last reader
};

static const struct td_node_info *maker(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    return info->kind == TD_VALUE_NODE && info->node < g->n_nodes ? &g->nodes[info->node] : NULL;
}

static bool is_one(const struct td_graph *g, td_value v) {
    const struct td_node_info *m = maker(g, v);
    return m && m->op == TD_OP_FILL && !m->n_inputs && m->attrs.scale == 1.0;
}

static bool same_type(const struct td_graph *g, td_value a, td_value b) {
    return td_gv(g, a)->dtype == td_gv(g, b)->dtype &&
           td_shape_equal(&td_gv(g, a)->shape, &td_gv(g, b)->shape);
}

static bool keeps_order(const struct td_node_info *node, int32_t n_dims) {
    for (int32_t i = 0; i < n_dims; i++) {
        if (node->attrs.perm[i] != i) return false;
    }
    return true;
}

// The operand that the node merely repeats, or 0.
static td_value repeats(const struct td_graph *g, const struct td_node_info *node) {
    if (node->n_outputs != 1) return 0;
    td_value y = node->outputs[0], a = node->inputs[0];
    td_value b = node->n_inputs > 1 ? node->inputs[1] : 0;
    bool plain = node->op == TD_OP_RESHAPE ||
                 (node->op == TD_OP_CAST && (node->attrs.scale == 0 || node->attrs.scale == 1.0));
    if (plain && same_type(g, a, y)) return a;
    if (node->op == TD_OP_TRANSPOSE && keeps_order(node, td_gv(g, a)->shape.n_dims)) return a;
    if (node->op == TD_OP_SCALE && is_one(g, b)) return a;
    if (node->op == TD_OP_MUL && is_one(g, b) && same_type(g, a, y)) return a;
    if (node->op == TD_OP_MUL && is_one(g, a) && same_type(g, b, y)) return b;
    return 0;
}

// ---- casts --------------------------------------------------------------------------------------
// Two casts are one, where the first was to a float at least as wide. What was widened comes back
// as it was, and pixels go to their type in one step. The factor of both.
static bool join_casts(const struct td_attrs *first, const struct td_attrs *second,
                       double *out_scale) {
    enum td_dtype middle = first->dtype, to = second->dtype;
    double a = first->scale, b = second->scale;
    *out_scale = a != 0 && b != 0 ? a * b : a != 0 ? a : b;
    return (middle == TD_F32 || middle == TD_F64) && td_is_float(to) &&
           td_dtype_bytes(to) <= td_dtype_bytes(middle);
}

static bool read_once(const struct simplify *s, td_value v) {
    const struct td_graph *g = s->g;
    int n = g->loss == v;
    for (td_node i = 0; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_inputs; k++) {
            td_value in = g->nodes[i].inputs[k];
            n += in == v || s->instead[in] == v;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        n += g->outputs[i].value == v;
    }
    return n == 1;
}

// A cast that node n alone reads, through a view: it gives the later type at once, and n is left to
// repeat what it reads.
static void join_through_view(struct simplify *s, td_node n) {
    struct td_graph *g = s->g;
    const td_value seen = g->nodes[n].inputs[0], made = maker(g, seen)->inputs[0];
    struct td_attrs *second = &g->nodes[n].attrs, *first;
    const struct td_node_info *cast = maker(g, made);
    double scale;
    if (!cast || cast->op != TD_OP_CAST || !join_casts(&cast->attrs, second, &scale)) return;
    if (!read_once(s, seen) || !read_once(s, made)) return;
    first = &g->nodes[td_gv(g, made)->node].attrs;
    first->scale = scale;
    first->dtype = td_gv(g, made)->dtype = td_gv(g, seen)->dtype = second->dtype;
    second->scale = 0;
}

// A constant of another type is a constant.
static void fold_constant(struct td_graph *g, td_node n, const struct td_node_info *fill) {
    struct td_node_info *node = &g->nodes[n];
    double v = fill->attrs.dtype == TD_F32 ? (double)(float)fill->attrs.scale : fill->attrs.scale;
    double scale = node->attrs.scale != 0 ? node->attrs.scale : 1;
    node->op = TD_OP_FILL;
    node->n_inputs = 0;
    node->attrs = (struct td_attrs){
        .dtype = node->attrs.dtype, .shape = fill->attrs.shape, .scale = v * scale};
}

static td_status visit_cast(struct simplify *s, td_node n) {
    struct td_graph *g = s->g;
    struct td_attrs *a = &g->nodes[n].attrs;
    const struct td_node_info *below = maker(g, g->nodes[n].inputs[0]);
    double scale;
    if (!below) return TD_OK;
    if (below->op == TD_OP_RESHAPE) join_through_view(s, n);
    bool joins = join_casts(&below->attrs, a, &scale);
    if (below->op == TD_OP_FILL && !below->n_inputs && joins) fold_constant(g, n, below);
    if (below->op != TD_OP_CAST || !joins) return TD_OK;
    td_value root = below->inputs[0];
    if (!td_graph_stable(g, root, td_gv(g, g->nodes[n].inputs[0])->node, n)) return TD_OK;
    a->scale = scale;
    return td_graph_set_operand(g, n, 0, root);
}

// ---- transposes, products, sums -----------------------------------------------------------------

// The transpose that makes operand i, and may as well be read through at node n; or NULL.
static const struct td_node_info *transposed(const struct td_graph *g, td_node n, uint32_t i) {
    td_value v = g->nodes[n].inputs[i];
    const struct td_node_info *below = maker(g, v);
    if (!below || below->op != TD_OP_TRANSPOSE) return NULL;
    return td_graph_stable(g, below->inputs[0], td_gv(g, v)->node, n) ? below : NULL;
}

static td_status visit_transpose(struct td_graph *g, td_node n) {
    const struct td_node_info *below = transposed(g, n, 0);
    if (!below) return TD_OK;
    struct td_attrs *a = &g->nodes[n].attrs;
    for (int32_t i = 0; i < td_gv(g, below->inputs[0])->shape.n_dims; i++) {
        a->perm[i] = below->attrs.perm[a->perm[i]];
    }
    return td_graph_set_operand(g, n, 0, below->inputs[0]);
}

static td_status visit_product(struct td_graph *g, td_node n) {
    for (uint32_t i = 0; i < 2; i++) {
        const struct td_node_info *below = transposed(g, n, i);
        if (!below || td_gv(g, below->inputs[0])->shape.n_dims != 2) continue;
        if (keeps_order(below, 2)) continue;
        bool *flag = i ? &g->nodes[n].attrs.trans_b : &g->nodes[n].attrs.trans_a;
        *flag = !*flag;
        TD_TRY(td_graph_set_operand(g, n, i, below->inputs[0]));
    }
    return TD_OK;
}

// A maximum gives its gradient to one place of each window: the sum over all places is that of what
// was given, which is smaller.
static td_status visit_sum(struct td_graph *g, td_node n) {
    const struct td_node_info *below = maker(g, g->nodes[n].inputs[0]);
    const struct td_shape *y = &g->nodes[n].attrs.shape;
    if (!below || below->op != TD_OP_MAX_POOL_GRAD || y->n_dims < 3) return TD_OK;
    bool all = y->dim[y->n_dims - 1] == 1 && y->dim[y->n_dims - 2] == 1;
    return all ? td_graph_set_operand(g, n, 0, below->inputs[1]) : TD_OK;
}

static bool equal(const struct td_graph *g, const struct td_node_info *a, td_node at, td_node n) {
    const struct td_node_info *b = &g->nodes[n];
    bool same = a->op == b->op && a->segment == b->segment && a->n_inputs == b->n_inputs &&
                memcmp(&a->attrs, &b->attrs, sizeof a->attrs) == 0;
    for (uint32_t i = 0; same && i < a->n_inputs; i++) {
        same = a->inputs[i] == b->inputs[i] && !td_op_writes(a->op, &a->attrs, i) &&
               td_graph_stable(g, a->inputs[i], at, n);
    }
    return same;
}

// What an earlier node computes already.
static void visit_same(struct simplify *s, td_node n) {
    const struct td_graph *g = s->g;
    const struct td_node_info *node = &g->nodes[n];
    if (td_node_has_effect(node)) return;
    for (td_node m = n > LOOK_BACK ? n - LOOK_BACK : 0; m < n; m++) {
        // What stands for a state tensor does so for its own readers only.
        if (!equal(g, &g->nodes[m], m, n) || s->instead[g->nodes[m].outputs[0]]) continue;
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            td_value y = node->outputs[i], earlier = g->nodes[m].outputs[i];
            s->instead[y] = earlier;
            s->last[earlier] = TD_MAX(s->last[earlier], s->last[y]);
        }
        return;
    }
}

static td_status visit(struct simplify *s, td_node n) {
    struct td_graph *g = s->g;
    for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
        td_value to = s->instead[g->nodes[n].inputs[i]];
        if (to) TD_TRY(td_graph_set_operand(g, n, i, to));
    }
    const struct td_node_info *node = &g->nodes[n];
    if (!node->n_inputs || !node->n_outputs) return TD_OK;
    if (node->op == TD_OP_CAST) TD_TRY(visit_cast(s, n));
    if (!node->n_inputs) return TD_OK; // a constant by now
    if (node->op == TD_OP_TRANSPOSE) TD_TRY(visit_transpose(g, n));
    if (node->op == TD_OP_MATMUL) TD_TRY(visit_product(g, n));
    if (node->op == TD_OP_REDUCE_SUM) TD_TRY(visit_sum(g, n));
    const struct td_node_info *below = maker(g, node->inputs[0]);
    if (node->op == TD_OP_RESHAPE && below && below->op == TD_OP_RESHAPE) {
        td_value root = below->inputs[0];
        if (td_graph_stable(g, root, td_gv(g, node->inputs[0])->node, n)) {
            TD_TRY(td_graph_set_operand(g, n, 0, root));
        }
    }
    td_value same = repeats(g, &g->nodes[n]), y = g->nodes[n].outputs[0];
    if (same && td_graph_stable(g, same, n, s->last[y])) {
        s->instead[y] = same;
        s->last[same] = TD_MAX(s->last[same], s->last[y]);
    } else if (!same) {
        visit_same(s, n);
    }
    return TD_OK;
}

// A port may be read after the last node: as if by one more node there.
static void find_last_readers(struct simplify *s) {
    for (td_node n = 0; n < s->g->n_nodes; n++) {
        for (uint32_t i = 0; i < s->g->nodes[n].n_inputs; i++) {
            s->last[s->g->nodes[n].inputs[i]] = n;
        }
    }
    for (uint32_t i = 0; i < s->g->n_outputs; i++) {
        s->last[s->g->outputs[i].value] = s->g->n_nodes;
    }
}

static void rename_ports(struct simplify *s) {
    for (uint32_t i = 0; i < s->g->n_outputs; i++) {
        td_value to = s->instead[s->g->outputs[i].value];
        if (to) s->g->outputs[i].value = to;
    }
    if (s->g->loss && s->instead[s->g->loss]) s->g->loss = s->instead[s->g->loss];
}

static td_status drop_dead(struct td_graph *g) {
    TD_AUTO_FREE bool *live = td_calloc(g->n_values + 1, sizeof *live);
    TD_AUTO_FREE bool *dead = td_calloc(g->n_nodes + 1, sizeof *dead);
    if (!live || !dead) return td_fail_oom();
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        live[g->outputs[i].value] = true;
    }
    if (g->loss) live[g->loss] = true;
    for (td_node n = g->n_nodes; n-- > 0;) {
        const struct td_node_info *node = &g->nodes[n];
        bool wanted = td_node_has_effect(node);
        for (uint32_t i = 0; i < node->n_outputs; i++) {
            wanted |= live[node->outputs[i]];
        }
        dead[n] = !wanted;
        for (uint32_t i = 0; i < node->n_inputs && wanted; i++) {
            live[node->inputs[i]] = true;
        }
    }
    td_graph_compact(g, dead);
    return TD_OK;
}

td_status td_pass_simplify(struct td_graph *g) {
    TD_AUTO_FREE td_value *instead = td_calloc(g->n_values + 1, sizeof *instead);
    TD_AUTO_FREE td_node *last = td_calloc(g->n_values + 1, sizeof *last);
    if (!instead || !last) return td_fail_oom();
    struct simplify s = {.g = g, .instead = instead, .last = last};
    find_last_readers(&s);
    for (td_node n = 0; n < g->n_nodes; n++) {
        TD_TRY(visit(&s, n));
    }
    rename_ports(&s);
    return drop_dead(g);
}
