// Head: the last linear layer and its loss become one node, so that logits never exist whole.
//
// The logits of a language model are (tokens, vocabulary), by far its largest tensor, made only to
// be turned into a loss and, in place, into their own gradient. What fuse left of this,
//     z = matmul x w trans_b;  loss, d = softmax_ce z labels;  [d = scale d seed;]
//     dx = matmul d w;  matmul d x trans_a -> dw
// becomes one linear_ce_grad where softmax_ce stood, which an accelerator runs a few rows at a
// time; without gradients it becomes linear_ce. dw is then written in the forward segment: that is
// sound because the seed of the backward pass is a step scalar, known before, and because nothing
// touches dw between there and where it was written. A tied table is no exception: fuse has the
// head write the gradient and the embedding add to it.
//
// Left alone: logits that anybody else reads (accuracy), a bias, a weight stored (in, out), and
// gradients of 16 bits, which would be rounded once every few rows instead of once. Logits below
// the size that the caller names are left whole, because the product over all rows at once is
// faster. Rejected: making the logits again in the backward pass, which costs a third product.

#include "engine/graph/passes.h"

#include "engine/graph/graph_impl.h"

// The nodes of one head; the gradient's only where there is one.
struct head {
    td_node product, loss, scale, dx, dw; // TD_NODE_NONE: none
};

struct pass {
    struct td_graph *g;
    uint32_t *uses; // by value
    bool *dead;     // by node
};

static bool is_there(td_node n) {
    return n != (td_node)TD_NODE_NONE;
}

static size_t bytes_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    return (size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype);
}

// z = x w^T, two matrices, read by the loss alone.
static bool is_product(const struct pass *p, td_value z) {
    const struct td_value_info *info = td_gv(p->g, z);
    if (info->kind != TD_VALUE_NODE || p->uses[z] != 1) return false;
    const struct td_node_info *n = &p->g->nodes[info->node];
    return n->op == TD_OP_MATMUL && n->n_inputs == 2 && n->attrs.trans_b && !n->attrs.trans_a &&
           n->attrs.act == TD_ACT_NONE && !n->attrs.wide &&
           td_gv(p->g, n->inputs[0])->shape.n_dims == 2;
}

static bool is_plain_product(const struct td_node_info *n, td_value a, td_value b, bool trans_a) {
    return n->op == TD_OP_MATMUL && n->n_inputs == 2 && n->inputs[0] == a && n->inputs[1] == b &&
           n->attrs.trans_a == trans_a && !n->attrs.trans_b && n->attrs.act == TD_ACT_NONE;
}

static bool touches(const struct td_node_info *n, td_value v) {
    bool found = n->into == v;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        found |= n->inputs[i] == v;
    }
    return found;
}

// Nothing between the loss and the node that writes dw reads or writes it.
static bool dw_may_move(const struct pass *p, const struct head *h) {
    const struct td_node_info *dw = &p->g->nodes[h->dw];
    if (!dw->into || td_dtype_bytes(td_gv(p->g, dw->into)->dtype) < sizeof(float)) return false;
    for (td_node n = h->loss; n < h->dw; n++) {
        if (touches(&p->g->nodes[n], dw->into)) return false;
    }
    return true;
}

// The step scalar that v is, or is a wider copy of; 0: neither.
static td_value scalar_behind(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    if (info->kind == TD_VALUE_NODE && g->nodes[info->node].op == TD_OP_CAST) {
        const struct td_node_info *cast = &g->nodes[info->node];
        bool wider = info->dtype == TD_F64 && (cast->attrs.scale == 0 || cast->attrs.scale == 1);
        if (wider) v = cast->inputs[0];
    }
    return td_gv(g, v)->kind == TD_VALUE_SCALAR ? v : 0;
}

// Finds scale, dx and dw among the readers of d, which must be all of them.
static bool find_gradients(const struct pass *p, struct head *h) {
    const struct td_graph *g = p->g;
    td_value d = g->nodes[h->loss].outputs[1];
    td_value x = g->nodes[h->product].inputs[0], w = g->nodes[h->product].inputs[1];
    for (td_node n = h->loss + 1; n < g->n_nodes; n++) {
        const struct td_node_info *node = &g->nodes[n];
        if (node->op == TD_OP_SCALE && node->inputs[0] == d && p->uses[d] == 1 &&
            scalar_behind(g, node->inputs[1])) {
            h->scale = n;
            d = node->outputs[0];
        } else if (is_plain_product(node, d, w, false) && node->n_outputs && !node->attrs.wide) {
            h->dx = n;
        } else if (is_plain_product(node, d, x, true)) {
            h->dw = n;
        }
    }
    return is_there(h->dx) && is_there(h->dw) && p->uses[d] == 2 && dw_may_move(p, h);
}

// dx is what the head makes besides the loss now; without gradients it makes nothing else.
static void give_outputs(struct td_graph *g, const struct head *h) {
    struct td_node_info *loss = &g->nodes[h->loss];
    g->values[loss->outputs[1]].node = TD_NODE_NONE;
    loss->n_outputs = is_there(h->dx) ? 2 : 1;
    loss->outputs[1] = is_there(h->dx) ? g->nodes[h->dx].outputs[0] : 0;
    if (!is_there(h->dx)) return;
    g->values[loss->outputs[1]].node = h->loss;
    g->values[loss->outputs[1]].output = 1;
    g->nodes[h->dx].n_outputs = 0; // or compacting would forget the value's maker
}

// The loss's node becomes the head: (x, w, labels[, dw[, seed]][, weights of classes]).
static td_status put_head(struct pass *p, const struct head *h) {
    struct td_graph *g = p->g;
    struct td_node_info *loss = &g->nodes[h->loss];
    td_value *in = td_arena_array(g->arena, 6, sizeof *in);
    uint32_t n = 0;
    if (!in) return td_fail_oom();
    in[n++] = g->nodes[h->product].inputs[0];
    in[n++] = g->nodes[h->product].inputs[1];
    in[n++] = loss->inputs[1];
    if (is_there(h->dw)) {
        in[n++] = g->nodes[h->dw].into;
        loss->attrs.accumulate = g->nodes[h->dw].attrs.accumulate;
    }
    if (is_there(h->scale)) in[n++] = scalar_behind(g, g->nodes[h->scale].inputs[1]);
    if (loss->n_inputs > 2) in[n++] = loss->inputs[2];
    loss->op = is_there(h->dw) ? TD_OP_LINEAR_CE_GRAD : TD_OP_LINEAR_CE;
    loss->inputs = in;
    loss->n_inputs = n;
    give_outputs(g, h);
    const td_node gone[] = {h->product, h->scale, h->dx, h->dw};
    for (size_t i = 0; i < TD_COUNTOF(gone); i++) {
        if (is_there(gone[i])) p->dead[gone[i]] = true;
    }
    td_value seed = is_there(h->scale) ? g->nodes[h->scale].inputs[1] : 0;
    bool copy = seed && td_gv(g, seed)->kind == TD_VALUE_NODE && p->uses[seed] == 1;
    if (copy) p->dead[td_gv(g, seed)->node] = true;
    return TD_OK;
}

static td_status visit(struct pass *p, td_node n, size_t whole_bytes) {
    struct td_graph *g = p->g;
    const struct td_node_info *loss = &g->nodes[n];
    if (loss->op != TD_OP_SOFTMAX_CE || !is_product(p, loss->inputs[0])) return TD_OK;
    if (bytes_of(g, loss->inputs[0]) <= whole_bytes) return TD_OK;
    struct head h = {td_gv(g, loss->inputs[0])->node, n, TD_NODE_NONE, TD_NODE_NONE, TD_NODE_NONE};
    if (p->uses[loss->outputs[1]] && !find_gradients(p, &h)) return TD_OK;
    return put_head(p, &h);
}

td_status td_pass_head(struct td_graph *g, size_t whole_bytes) {
    TD_AUTO_FREE uint32_t *uses = NULL;
    TD_TRY(td_graph_count_uses(g, &uses));
    TD_AUTO_FREE bool *dead = td_calloc(g->n_nodes + 1, sizeof *dead);
    if (!dead) return td_fail_oom();
    struct pass p = {g, uses, dead};
    for (td_node n = 0; n < g->n_nodes; n++) {
        TD_TRY(visit(&p, n, whole_bytes));
    }
    td_graph_compact(g, dead);
    return TD_OK;
}
