// Fuse: several passes over memory become one.
//
// - matmul + add of a bias row + relu -> one matmul with a third operand and attrs.act.
// - a node whose only result is only stored into a state gradient -> it writes the gradient
//   directly (`into`), and the store goes away; where the store adds, those that can do so
//   (attrs.accumulate). A reshape between reduce_sum and store goes away, too.
// - a sum of two such results that is only stored -> one writes the gradient, the other adds to it
//   (a table that is the head's weight as well: neither (V,C) exists besides the gradient).
// Softmax cross entropy and its gradient are one op from the start; the gradients of activations
// join their products in dgrad.c.
// A fused node is where the matmul was. On `reference` fusing changes no bit, because its
// fused kernels round between their parts; elsewhere it may, within the tolerance of the type.

#include "engine/graph/passes/passes.h"

#include <string.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"

struct fuse {
    struct td_graph *g;
    uint32_t *uses;  // by value
    td_node *reader; // by value: its last reader
    bool *dead;      // by node
};

// The node that is the only reader of node n's only output, in the same segment; or NULL.
static struct td_node_info *only_reader(const struct fuse *f, td_node n) {
    const struct td_node_info *node = &f->g->nodes[n];
    if (node->n_outputs != 1 || f->uses[node->outputs[0]] != 1) return NULL;
    td_node r = f->reader[node->outputs[0]];
    if (r == (td_node)TD_NODE_NONE || f->dead[r]) return NULL; // read by a port
    struct td_node_info *reader = &f->g->nodes[r];
    return reader->segment == node->segment ? reader : NULL;
}

// The reader's output becomes the node's own; the reader goes away.
static void absorb(struct fuse *f, td_node n, struct td_node_info *reader) {
    struct td_graph *g = f->g;
    g->values[g->nodes[n].outputs[0]].node = TD_NODE_NONE;
    g->nodes[n].outputs[0] = reader->outputs[0];
    g->values[reader->outputs[0]].node = n;
    reader->n_outputs = 0; // or compacting would forget the value's maker
    f->dead[reader - g->nodes] = true;
}

static td_status fuse_bias(struct fuse *f, td_node n) {
    struct td_graph *g = f->g;
    struct td_node_info *node = &g->nodes[n], *add = only_reader(f, n);
    if (!add || add->op != TD_OP_ADD || node->n_inputs != 2 || node->attrs.act) return TD_OK;
    td_value z = node->outputs[0];
    td_value bias = add->inputs[add->inputs[0] == z ? 1 : 0];
    const struct td_shape *sz = &td_gv(g, z)->shape, *sb = &td_gv(g, bias)->shape;
    bool row = sb->n_dims == 1 && sb->dim[0] == sz->dim[sz->n_dims - 1] &&
               td_shape_equal(&td_gv(g, add->outputs[0])->shape, sz);
    bool early = td_gv(g, bias)->kind != TD_VALUE_NODE || td_gv(g, bias)->node < n;
    // A wide product of 16 bits is added to in f32, but its operands have one type.
    bool alike = td_gv(g, bias)->dtype == td_gv(g, node->inputs[0])->dtype;
    if (!row || !early || !alike || !td_graph_stable(g, bias, n, (td_node)(add - g->nodes))) {
        return TD_OK;
    }
    td_value *in = td_arena_array(g->arena, 3, sizeof *in);
    if (!in) return td_fail_oom();
    memcpy(in, node->inputs, 2 * sizeof *in);
    in[2] = bias;
    node->inputs = in;
    node->n_inputs = 3;
    absorb(f, n, add);
    return TD_OK;
}

static void fuse_relu(struct fuse *f, td_node n) {
    struct td_node_info *relu = only_reader(f, n);
    if (!relu || relu->op != TD_OP_RELU || f->g->nodes[n].attrs.act) return;
    f->g->nodes[n].attrs.act = TD_ACT_RELU;
    absorb(f, n, relu);
}

static bool touches(const struct td_node_info *node, td_value v) {
    bool found = node->into == v;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        found |= node->inputs[i] == v;
    }
    return found;
}

static bool adds(enum td_op op) {
    return op == TD_OP_MATMUL || op == TD_OP_REDUCE_SUM || op == TD_OP_CONV2D_GRAD_W ||
           op == TD_OP_EMBEDDING_GRAD;
}

// May node n write the gradient that `store` stores, where it is?
static bool may_write(const struct fuse *f, td_node n, const struct td_node_info *store) {
    const struct td_graph *g = f->g;
    const struct td_node_info *node = &g->nodes[n];
    td_value to = store->inputs[0];
    if (node->op == TD_OP_MATMUL && (node->n_inputs > 2 || node->attrs.act)) return false;
    if (td_gv(g, to)->dtype != td_gv(g, node->outputs[0])->dtype) return false;
    if (td_state_at(g->state, td_gv(g, to)->index)->role != TD_ROLE_GRAD) return false;
    for (td_node i = n; i < (td_node)(store - g->nodes); i++) {
        if (touches(&g->nodes[i], to)) return false;
    }
    return true;
}

static void write_into(struct fuse *f, td_node n, td_value to, bool accumulate) {
    struct td_node_info *node = &f->g->nodes[n];
    f->g->values[node->outputs[0]].node = TD_NODE_NONE;
    node->n_outputs = 0;
    node->outputs[0] = 0;
    node->into = to;
    node->attrs.accumulate = accumulate;
}

static void fuse_store(struct fuse *f, td_node n) {
    struct td_graph *g = f->g;
    struct td_node_info *node = &g->nodes[n], *store = only_reader(f, n), *view = NULL;
    if (store && store->op == TD_OP_RESHAPE && node->op == TD_OP_REDUCE_SUM) {
        view = store;
        store = only_reader(f, (td_node)(view - g->nodes));
    }
    if (!store || store->op != TD_OP_STORE || (store->attrs.accumulate && !adds(node->op))) return;
    if (!may_write(f, n, store)) return;
    write_into(f, n, store->inputs[0], store->attrs.accumulate);
    f->dead[store - g->nodes] = true;
    if (view) f->dead[view - g->nodes] = true;
}

// The node of this segment that makes operand i of `sum` for it alone and may write for `store`.
static bool part_of(const struct fuse *f, const struct td_node_info *sum, uint32_t i,
                    const struct td_node_info *store, td_node *out_node) {
    const struct td_value_info *v = td_gv(f->g, sum->inputs[i]);
    if (v->kind != TD_VALUE_NODE || f->uses[sum->inputs[i]] != 1) return false;
    const struct td_node_info *part = &f->g->nodes[v->node];
    *out_node = v->node;
    return adds(part->op) && part->segment == store->segment &&
           td_shape_equal(&v->shape, &td_gv(f->g, store->inputs[0])->shape) &&
           may_write(f, v->node, store);
}

static void fuse_sum(struct fuse *f, td_node n) {
    struct td_node_info *sum = &f->g->nodes[n], *store = only_reader(f, n);
    td_node a, b;
    if (!store || store->op != TD_OP_STORE) return;
    if (!part_of(f, sum, 0, store, &a) || !part_of(f, sum, 1, store, &b)) return;
    write_into(f, TD_MIN(a, b), store->inputs[0], store->attrs.accumulate);
    write_into(f, TD_MAX(a, b), store->inputs[0], true);
    f->dead[n] = f->dead[store - f->g->nodes] = true;
}

td_status td_pass_fuse(struct td_graph *g) {
    TD_AUTO_FREE uint32_t *uses = NULL;
    TD_TRY(td_graph_count_uses(g, &uses));
    TD_AUTO_FREE td_node *reader = td_calloc(g->n_values + 1, sizeof *reader);
    TD_AUTO_FREE bool *dead = td_calloc(g->n_nodes + 1, sizeof *dead);
    if (!reader || !dead) return td_fail_oom();
    struct fuse f = {.g = g, .uses = uses, .reader = reader, .dead = dead};
    for (td_value v = 0; v <= g->n_values; v++) {
        reader[v] = TD_NODE_NONE;
    }
    for (td_node n = 0; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_inputs; i++) {
            reader[g->nodes[n].inputs[i]] = n;
        }
    }
    for (td_node n = 0; n < g->n_nodes; n++) {
        if (dead[n]) continue;
        enum td_op op = g->nodes[n].op;
        if (op == TD_OP_MATMUL) {
            TD_TRY(fuse_bias(&f, n));
            fuse_relu(&f, n);
        }
        if (op == TD_OP_ADD) fuse_sum(&f, n);
        if (op != TD_OP_RESHAPE && !dead[n]) fuse_store(&f, n);
    }
    td_graph_compact(g, dead);
    return TD_OK;
}
