// Memory plan: one arena, sized before anything runs.
//
// 1. Liveness: a value lives from its node to its last reader; what a port reads lives to the end,
//    because segments may be run one by one and outputs are looked at after each. What a sum over
//    ranks reads lives until that is awaited.
// 2. Sharing: reshape always shares; a cast that the accelerator elides is where its operand is; an
//    elementwise op, or one that works row by row, takes the memory of an operand of the same bytes
//    that dies there (list in traind/graph.h). Values that share are one block.
// 3. Placing: blocks go into the arena one after another, each into the tightest gap between the
//    blocks that live at the same time, or on top. Which order of blocks gives the smallest arena
//    depends on the graph, so three are tried (large first, early first, size times life first)
//    and the first smallest is kept. Deterministic: ties go by the value's number.
// Cost: blocks squared, a few milliseconds for thousands. Rejected: an allocator that runs along
// with the nodes (ggml's way): it cannot see that a large block comes later.

#include "engine/graph/passes/passes.h"

#include <string.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"

enum { PLAN_ALIGN = 64 };

struct block {
    td_value value; // the one that has the place; others are aliases
    td_node birth, death;
    size_t bytes, offset;
};

struct plan {
    const struct td_graph *g;
    td_elides_fn *elides;  // NULL: every node is run
    td_value *home;        // by value: whose memory it uses (itself, if a block's own)
    td_node *death;        // by value; of the whole block where it is a home
    struct block *blocks;  // in order of birth
    struct block **placed; // by offset
    uint32_t n_blocks;
};

static size_t value_bytes(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    return (size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype);
}

static td_node start_of(const struct td_graph *g, const struct td_node_info *await) {
    return td_gv(g, await->inputs[0])->node;
}

// The node's operands live until `last`.
static void keep(struct plan *p, const struct td_node_info *node, td_node last) {
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        p->death[node->inputs[i]] = last;
    }
}

static void find_deaths(struct plan *p) {
    for (td_value v = 1; v <= p->g->n_values; v++) {
        p->home[v] = v;
        p->death[v] = td_gv(p->g, v)->node == (td_node)TD_NODE_NONE ? 0 : td_gv(p->g, v)->node;
    }
    for (td_node n = 0; n < p->g->n_nodes; n++) {
        const struct td_node_info *node = &p->g->nodes[n];
        keep(p, node, n);
        if (node->op == TD_OP_AWAIT) keep(p, &p->g->nodes[start_of(p->g, node)], n);
    }
    for (uint32_t i = 0; i < p->g->n_outputs; i++) {
        p->death[p->g->outputs[i].value] = p->g->n_nodes;
    }
    if (p->g->loss) p->death[p->g->loss] = p->g->n_nodes;
}

// Of an elementwise op any operand: the bool one of select never has the result's bytes.
static bool may_take_over(enum td_op op, uint32_t operand) {
    if (td_op_is(op, TD_OP_IS_ELEMENTWISE)) return true;
    if (op == TD_OP_ADD_LAYER_NORM || op == TD_OP_ADD_RMS_NORM) return operand < 2;
    if (op == TD_OP_LAYER_NORM_GRAD || op == TD_OP_RMS_NORM_GRAD) return operand != 1;
    return operand == 0 &&
           (op == TD_OP_SCALE || op == TD_OP_CAST || op == TD_OP_SOFTMAX_CE || op == TD_OP_ROPE);
}

// Results that are as large as what the op works on, and may lie there.
static bool may_lie_over(const struct td_node_info *node, td_value out) {
    if (node->op == TD_OP_SOFTMAX_CE) return out == node->outputs[1];
    bool sums = node->op == TD_OP_LAYER_NORM_GRAD || node->op == TD_OP_RMS_NORM_GRAD;
    return !sums || out == node->outputs[0];
}

// Lets output `out` of node n share memory where that is allowed.
static void share(struct plan *p, td_node n, td_value out) {
    const struct td_node_info *node = &p->g->nodes[n];
    if (p->elides && p->elides(p->g, n)) {
        p->home[out] = node->inputs[0];
        return;
    }
    if (td_op_is(node->op, TD_OP_IS_VIEW)) {
        td_value home = p->home[node->inputs[0]];
        if (!td_graph_stable(p->g, home, n, p->death[out])) return;
        p->home[out] = home;
        p->death[home] = TD_MAX(p->death[home], p->death[out]);
        return;
    }
    if (!may_lie_over(node, out)) return;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        td_value in = node->inputs[i], home = p->home[in];
        bool dies = td_gv(p->g, home)->kind == TD_VALUE_NODE && p->death[home] == n &&
                    (out == node->outputs[0] || p->home[node->outputs[0]] != home);
        bool fits =
            value_bytes(p->g, home) == value_bytes(p->g, out) &&
            td_shape_elems(&td_gv(p->g, in)->shape) == td_shape_elems(&td_gv(p->g, out)->shape);
        if (!may_take_over(node->op, i) || !dies || !fits) continue;
        p->home[out] = home;
        p->death[home] = p->death[out];
        return;
    }
}

static void make_blocks(struct plan *p) {
    for (td_node n = 0; n < p->g->n_nodes; n++) {
        for (uint32_t i = 0; i < p->g->nodes[n].n_outputs; i++) {
            share(p, n, p->g->nodes[n].outputs[i]);
        }
    }
    for (td_node n = 0; n < p->g->n_nodes; n++) {
        for (uint32_t i = 0; i < p->g->nodes[n].n_outputs; i++) {
            td_value v = p->g->nodes[n].outputs[i];
            if (p->home[v] != v) continue;
            size_t bytes = td_align_up(value_bytes(p->g, v), PLAN_ALIGN);
            p->blocks[p->n_blocks++] = (struct block){v, n, p->death[v], bytes, 0};
        }
    }
}

// ---- orders -------------------------------------------------------------------------------------
static int compare_sizes(size_t a, size_t b) {
    return a > b ? -1 : a < b;
}

static int by_birth(const void *pa, const void *pb) {
    const struct block *a = pa, *b = pb;
    if (a->birth != b->birth) return a->birth < b->birth ? -1 : 1;
    if (a->bytes != b->bytes) return compare_sizes(a->bytes, b->bytes);
    return a->value < b->value ? -1 : 1;
}

static int by_size(const void *pa, const void *pb) {
    const struct block *a = pa, *b = pb;
    return a->bytes != b->bytes ? compare_sizes(a->bytes, b->bytes) : by_birth(pa, pb);
}

static int by_area(const void *pa, const void *pb) {
    const struct block *a = pa, *b = pb;
    double sa = (double)a->bytes * (a->death - a->birth + 1);
    double sb = (double)b->bytes * (b->death - b->birth + 1);
    return sa != sb ? (sa > sb ? -1 : 1) : by_birth(pa, pb);
}

// ---- placing ------------------------------------------------------------------------------------
// The tightest gap among the n placed blocks that live together with b.
static size_t best_gap(const struct plan *p, uint32_t n, const struct block *b) {
    size_t top = 0, best = SIZE_MAX, best_room = SIZE_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct block *q = p->placed[i];
        if (q->death < b->birth || b->death < q->birth) continue;
        if (q->offset > top) {
            size_t room = q->offset - top;
            if (room >= b->bytes && room < best_room) {
                best = top;
                best_room = room;
            }
        }
        top = TD_MAX(top, q->offset + q->bytes);
    }
    return best == SIZE_MAX ? top : best;
}

static size_t place_all(struct plan *p, int (*order)(const void *, const void *)) {
    size_t arena = 0;
    if (p->n_blocks) qsort(p->blocks, p->n_blocks, sizeof *p->blocks, order);
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        struct block *b = &p->blocks[i];
        b->offset = best_gap(p, i, b);
        arena = TD_MAX(arena, b->offset + b->bytes);
        uint32_t at = i;
        while (at > 0 && p->placed[at - 1]->offset > b->offset) {
            p->placed[at] = p->placed[at - 1];
            at--;
        }
        p->placed[at] = b;
    }
    return arena;
}

static size_t place_best(struct plan *p) {
    int (*const orders[])(const void *, const void *) = {by_size, by_birth, by_area};
    size_t best = SIZE_MAX, winner = 0;
    for (size_t i = 0; i < TD_COUNTOF(orders); i++) {
        size_t arena = place_all(p, orders[i]);
        if (arena >= best) continue;
        best = arena;
        winner = i;
    }
    return place_all(p, orders[winner]);
}

static void write_placement(const struct plan *p, struct td_placement *out) {
    for (td_value v = 0; v <= p->g->n_values; v++) {
        out[v] = (struct td_placement){.offset = SIZE_MAX};
    }
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        out[p->blocks[i].value].offset = p->blocks[i].offset;
    }
    for (td_value v = 1; v <= p->g->n_values; v++) {
        if (p->home[v] == v) continue;
        out[v].alias = p->home[v];
        out[v].offset = out[p->home[v]].offset;
    }
}

td_status td_pass_memory(const struct td_graph *g, td_elides_fn *elides,
                         struct td_placement **out_placement, size_t *out_arena_bytes) {
    size_t n = (size_t)g->n_values + 1;
    TD_AUTO_FREE td_value *home = td_calloc(n, sizeof *home);
    TD_AUTO_FREE td_node *death = td_calloc(n, sizeof *death);
    TD_AUTO_FREE struct block *blocks = td_calloc(n, sizeof *blocks);
    TD_AUTO_FREE struct block **placed = td_calloc(n, sizeof *placed);
    struct td_placement *out = td_calloc(n, sizeof *out);
    if (!home || !death || !blocks || !placed || !out) {
        free(out);
        return td_fail_oom();
    }
    struct plan p = {
        .g = g, .elides = elides, .home = home, .death = death, .blocks = blocks, .placed = placed};
    find_deaths(&p);
    make_blocks(&p);
    *out_arena_bytes = place_best(&p);
    write_placement(&p, out);
    *out_placement = out;
    return TD_OK;
}
