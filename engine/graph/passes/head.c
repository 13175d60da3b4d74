// Head: the last linear layer and its loss become one node, so that logits never exist whole.
//
// The logits of a language model are (tokens, vocabulary), by far its largest tensor, made only to
// be turned into a loss and, in place, into their own gradient. What fuse left of this,
//     z = matmul x w [bias] trans_b;  [z = cast z;]  loss, d = softmax_ce z labels;
//     [d = scale d seed;]  [d = cast d;]  dx = matmul d w;  matmul d x trans_a -> dw
//     [reduce_sum d -> dbias]
// becomes one linear_ce_grad where softmax_ce stood, which an accelerator runs a few rows at a
// time; without gradients it becomes linear_ce. dw is then written in the forward segment. That is
// sound because nothing touches dw between there and where it was written, and because the seed of
// the backward pass is known before. It is made of step scalars, or before the loss (count.c).
// A tied table is no exception: fuse has the head write the gradient and the embedding add to it.
// The casts are 16-mixed's, whose loss and its gradient, up to the seed, are f32 (attrs.wide). A
// count_correct of the same logits and labels is the head's second result.
//
// Left alone: logits that anybody else reads, and a weight stored (in, out). Logits up to the size
// that the caller names are left whole, because the product over all rows at once is faster. A
// gradient of 16 bits is rounded once, not every few rows, so that it is summed in f32 besides.
// There the logits must be larger than that sum, too, or nothing is saved. Rejected: making the
// logits again in the backward pass, which costs a third product.

#include "engine/graph/passes/passes.h"

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"

// The nodes of one head, in order; the gradient's only where there is one. TD_NODE_NONE: none.
struct head {
    td_node product, widen, loss, count, scale, narrow, dx, dw, dbias;
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

static bool is_cast(const struct td_node_info *n) {
    return n->op == TD_OP_CAST && (n->attrs.scale == 0 || n->attrs.scale == 1);
}

static td_node made_by(const struct pass *p, td_value v) {
    const struct td_value_info *info = td_gv(p->g, v);
    return info->kind == TD_VALUE_NODE ? info->node : (td_node)TD_NODE_NONE;
}

// z = x w^T [+ bias], two matrices.
static bool is_product(const struct pass *p, td_node at) {
    if (!is_there(at)) return false;
    const struct td_node_info *n = &p->g->nodes[at];
    return n->op == TD_OP_MATMUL && n->attrs.trans_b && !n->attrs.trans_a &&
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

// Finds the node that counts, if there is one; false: the logits, or their wider copy, have other
// readers.
static bool find_count(const struct pass *p, struct head *h) {
    const struct td_node_info *loss = &p->g->nodes[h->loss], *count;
    td_value z = p->g->nodes[h->product].outputs[0], read = loss->inputs[0], counted = 0;
    for (td_node n = h->loss + 1; n < p->g->n_nodes; n++) {
        count = &p->g->nodes[n];
        bool same = count->op == TD_OP_COUNT_CORRECT && count->inputs[1] == loss->inputs[1] &&
                    count->attrs.ignores == loss->attrs.ignores &&
                    count->attrs.ignore_index == loss->attrs.ignore_index;
        if (!same || (count->inputs[0] != z && count->inputs[0] != read)) continue;
        h->count = n;
        counted = count->inputs[0];
    }
    return p->uses[read] == 1u + (counted == read) &&
           (read == z || p->uses[z] == 1u + (counted == z));
}

// Nothing between the loss and the node that writes a gradient reads or writes it.
static bool may_move(const struct pass *p, const struct head *h, td_node writer) {
    td_value into = p->g->nodes[writer].into;
    if (!into) return false;
    for (td_node n = h->loss; n < writer; n++) {
        if (touches(&p->g->nodes[n], into)) return false;
    }
    return true;
}

// A step scalar, made of step scalars alone, or there before the loss.
static bool is_seed(const struct td_graph *g, td_value v, td_node loss) {
    const struct td_value_info *info = td_gv(g, v);
    if (info->kind != TD_VALUE_NODE) return info->kind == TD_VALUE_SCALAR;
    if (info->node < loss) return true;
    const struct td_node_info *n = &g->nodes[info->node];
    bool scalars = n->n_outputs == 1;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        scalars &= td_gv(g, n->inputs[i])->kind == TD_VALUE_SCALAR;
    }
    return scalars;
}

// The sum over rows: of (B,C) to (C).
static bool is_column_sum(const struct td_node_info *n, td_value d) {
    return n->op == TD_OP_REDUCE_SUM && n->inputs[0] == d && n->attrs.shape.n_dims == 1;
}

// Are all gradients there that the head has, and made of the same: dbias of d before it is narrow?
static bool is_complete(const struct pass *p, const struct head *h, td_value d) {
    const struct td_node_info *nodes = p->g->nodes;
    bool biased = nodes[h->product].n_inputs > 2;
    if (!is_there(h->dx) || !is_there(h->dw) || is_there(h->dbias) != biased) return false;
    if (nodes[h->dx].inputs[0] != d || nodes[h->dw].inputs[0] != d) return false;
    if (!may_move(p, h, h->dw)) return false;
    if (!biased) return true;
    td_value summed = is_there(h->narrow) ? nodes[h->narrow].inputs[0] : d;
    return nodes[h->dbias].inputs[0] == summed && may_move(p, h, h->dbias) &&
           nodes[h->dbias].attrs.accumulate == nodes[h->dw].attrs.accumulate;
}

// Which part of the head node n is, if it reads d: the gradient of the logits, or `before` it was
// narrow; NULL: none, or one that is there already.
static td_node *part_of(const struct pass *p, struct head *h, td_node n, td_value d,
                        td_value before) {
    const struct td_node_info *node = &p->g->nodes[n], *product = &p->g->nodes[h->product];
    td_value x = product->inputs[0], w = product->inputs[1];
    bool reads = node->n_inputs && node->inputs[0] == d;
    td_node *part = NULL;
    if (reads && node->op == TD_OP_SCALE && is_seed(p->g, node->inputs[1], h->loss)) {
        part = &h->scale;
    }
    if (reads && is_there(h->widen) && is_cast(node)) part = &h->narrow;
    if (is_plain_product(node, d, w, false) && node->n_outputs && !node->attrs.wide) part = &h->dx;
    if (is_plain_product(node, d, x, true)) part = &h->dw;
    if (is_column_sum(node, d) || is_column_sum(node, before)) part = &h->dbias;
    return part && !is_there(*part) ? part : NULL;
}

// Finds scale, narrow and what makes gradients among the readers of d, which must be all of them.
static bool find_gradients(const struct pass *p, struct head *h) {
    const struct td_graph *g = p->g;
    td_value d = g->nodes[h->loss].outputs[1], before = d;
    uint32_t readers = p->uses[d], known = 0;
    for (td_node n = h->loss + 1; n < g->n_nodes; n++) {
        td_node *part = part_of(p, h, n, d, before);
        if (!part) continue;
        *part = n;
        known++;
        if (part != &h->scale && part != &h->narrow) continue;
        before = d;
        d = g->nodes[n].outputs[0];
        readers += p->uses[d];
    }
    return known == readers && is_complete(p, h, d);
}

// What another node made becomes the head's i-th result.
static void give_output(struct td_graph *g, const struct head *h, uint32_t i, td_node from) {
    td_value v = g->nodes[from].outputs[0];
    g->nodes[from].n_outputs = 0; // or compacting would forget v's maker
    g->nodes[h->loss].outputs[i] = v;
    g->values[v].node = h->loss;
    g->values[v].output = i;
}

// The loss, the count, and dx if there are gradients. Where nobody counts, the value that was the
// gradient of the logits, and is none any more, becomes the count.
static void give_outputs(struct td_graph *g, const struct head *h) {
    struct td_node_info *loss = &g->nodes[h->loss];
    struct td_value_info *d = td_gv(g, loss->outputs[1]);
    if (is_there(h->count)) {
        d->node = TD_NODE_NONE;
        give_output(g, h, 1, h->count);
    } else {
        d->dtype = TD_F32;
        d->shape = (struct td_shape){0};
    }
    if (is_there(h->dx)) give_output(g, h, 2, h->dx);
    loss->n_outputs = is_there(h->dx) ? 3 : 2;
}

// The node that makes the seed comes after the loss: it takes the place of the product, which goes.
static void move_seed(struct pass *p, const struct head *h, td_value seed) {
    struct td_graph *g = p->g;
    if (td_gv(g, seed)->kind == TD_VALUE_SCALAR) return;
    td_node from = td_gv(g, seed)->node;
    if (from < h->loss) return; // another head's, too
    g->values[g->nodes[h->product].outputs[0]].node = TD_NODE_NONE;
    enum td_segment segment = g->nodes[h->product].segment;
    g->nodes[h->product] = g->nodes[from];
    g->nodes[h->product].segment = segment;
    g->values[seed].node = h->product;
    g->nodes[from].n_outputs = 0;
    p->dead[h->product] = false;
    p->dead[from] = true;
}

// The loss's node becomes the head; its operands are as td_head_operands_of says.
static td_status put_head(struct pass *p, const struct head *h) {
    struct td_graph *g = p->g;
    struct td_node_info *loss = &g->nodes[h->loss];
    const struct td_node_info *product = &g->nodes[h->product];
    td_value *in = td_arena_array(g->arena, 8, sizeof *in);
    td_value seed = is_there(h->scale) ? g->nodes[h->scale].inputs[1] : 0;
    uint32_t n = 0;
    if (!in) return td_fail_oom();
    in[n++] = product->inputs[0];
    in[n++] = product->inputs[1];
    in[n++] = loss->inputs[1];
    if (is_there(h->dw)) {
        in[n++] = g->nodes[h->dw].into;
        loss->attrs.accumulate = g->nodes[h->dw].attrs.accumulate;
        loss->attrs.wide = is_there(h->widen);
    }
    if (seed) in[n++] = seed;
    if (product->n_inputs > 2) in[n++] = product->inputs[2];
    if (is_there(h->dbias)) in[n++] = g->nodes[h->dbias].into;
    loss->attrs.seeded = seed != 0;
    loss->attrs.biased = product->n_inputs > 2;
    if (loss->n_inputs > 2) in[n++] = loss->inputs[2];
    loss->op = is_there(h->dw) ? TD_OP_LINEAR_CE_GRAD : TD_OP_LINEAR_CE;
    loss->inputs = in;
    loss->n_inputs = n;
    give_outputs(g, h);
    const td_node gone[] = {h->product, h->widen, h->count, h->scale,
                            h->narrow,  h->dx,    h->dw,    h->dbias};
    for (size_t i = 0; i < TD_COUNTOF(gone); i++) {
        if (is_there(gone[i])) p->dead[gone[i]] = true;
    }
    if (seed) move_seed(p, h, seed);
    return TD_OK;
}

// Does it save memory? See the top.
static bool pays(const struct td_graph *g, const struct head *h, size_t whole_bytes) {
    size_t sum_bytes = 0;
    if (is_there(h->dw)) {
        const struct td_value_info *dw = td_gv(g, g->nodes[h->dw].into);
        bool narrow = td_dtype_bytes(dw->dtype) < sizeof(float);
        if (narrow) sum_bytes = (size_t)td_shape_elems(&dw->shape) * sizeof(float);
    }
    return bytes_of(g, g->nodes[h->product].outputs[0]) > whole_bytes + sum_bytes;
}

static td_status visit(struct pass *p, td_node n, size_t whole_bytes) {
    const td_node none = TD_NODE_NONE;
    struct td_graph *g = p->g;
    const struct td_node_info *loss = &g->nodes[n];
    if (p->dead[n] || loss->op != TD_OP_SOFTMAX_CE) return TD_OK;
    struct head h = {made_by(p, loss->inputs[0]), none, n, none, none, none, none, none, none};
    if (is_there(h.product) && is_cast(&g->nodes[h.product])) {
        h.widen = h.product;
        h.product = made_by(p, g->nodes[h.widen].inputs[0]);
    }
    if (!is_product(p, h.product) || !find_count(p, &h)) return TD_OK;
    if (p->uses[loss->outputs[1]] && !find_gradients(p, &h)) return TD_OK;
    return pays(g, &h, whole_bytes) ? put_head(p, &h) : TD_OK;
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
