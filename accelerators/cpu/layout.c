// Which image is in which layout; contract in layout.h.
//
// Values that meet in a node which works in any layout form a group (union-find), and get one
// layout. A convolution votes for what it wants, a node that wants plain votes for plain, each with
// the bytes that a reorder would move. The most bytes win, plain where they are equal. Values that
// must be plain are in no group. A node that works in any layout takes the one that most bytes of
// its values are in; the others are bridged.

#include "accelerators/cpu/layout.h"
#include "traind/op.h"

struct planner {
    const struct td_graph *g;
    struct td_layout_plan *plan;
    td_value *group;                  // by value: parent in the union-find; 0: in no group
    double (*votes)[TD_LAYOUT_COUNT]; // by value, of the group's root
};

// ---- what a value or node is --------------------------------------------------------------------
// False for what is no image, and where all orders are the same.
static bool has_order(const struct td_graph *g, td_value v) {
    const struct td_shape *s = &td_graph_value(g, v)->shape;
    return s->n_dims == 4 && s->dim[1] > 1 && s->dim[2] * s->dim[3] > 1;
}

static double bytes_of(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_graph_value(g, v);
    return (double)td_shape_elems(&info->shape) * (double)td_dtype_bytes(info->dtype);
}

void td_conv_images(const struct td_node_info *n, td_value *out_x, td_value *out_y) {
    td_value first = n->inputs[0];
    *out_x = n->op == TD_OP_CONV2D_GRAD_X ? n->outputs[0] : first;
    *out_y = n->op == TD_OP_CONV2D          ? n->outputs[0]
             : n->op == TD_OP_CONV2D_GRAD_X ? first
                                            : n->inputs[1];
}

// What is no image (weights) is plain.
static enum td_image_layout conv_wants(const struct td_graph *g, const struct td_layout_plan *plan,
                                       td_node n, td_value v) {
    td_value x, y;
    td_conv_images(td_graph_node(g, n), &x, &y);
    return v == x   ? (enum td_image_layout)plan->conv[n].x
           : v == y ? (enum td_image_layout)plan->conv[n].y
                    : TD_LAYOUT_PLAIN;
}

static bool same_shapes(const struct td_graph *g, const struct td_node_info *n) {
    if (n->n_outputs == 0) return false; // it writes state, which is plain
    const struct td_shape *y = &td_graph_value(g, n->outputs[0])->shape;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const struct td_shape *x = &td_graph_value(g, n->inputs[i])->shape;
        if (td_shape_elems(x) != 1 && !td_shape_equal(x, y)) return false;
    }
    return true;
}

static bool works_in_any(const struct planner *p, td_node node) {
    const struct td_node_info *n = td_graph_node(p->g, node);
    if (p->plan->need[node] == TD_NEED_ANY || n->op == TD_OP_FILL) return true;
    bool elementwise = td_op_is(n->op, TD_OP_IS_ELEMENTWISE);
    if (!elementwise && n->op != TD_OP_CAST && n->op != TD_OP_SCALE) return false;
    return same_shapes(p->g, n);
}

// ---- groups
static td_value root_of(struct planner *p, td_value v) {
    while (p->group[v] != v) {
        p->group[v] = p->group[p->group[v]];
        v = p->group[v];
    }
    return v;
}

static void join(struct planner *p, td_value a, td_value b) {
    if (!p->group[a] || !p->group[b]) return;
    td_value ra = root_of(p, a), rb = root_of(p, b);
    p->group[TD_MAX(ra, rb)] = TD_MIN(ra, rb);
}

// Everything that nodes make and that has an order, but for what a reshape sees.
static void find_members(struct planner *p) {
    for (td_value v = 1; v <= td_graph_n_values(p->g); v++) {
        bool made = td_graph_value(p->g, v)->kind == TD_VALUE_NODE;
        p->group[v] = made && has_order(p->g, v) ? v : 0;
    }
    for (td_node n = 0; n < td_graph_n_nodes(p->g); n++) {
        const struct td_node_info *node = td_graph_node(p->g, n);
        if (!td_op_is(node->op, TD_OP_IS_VIEW)) continue;
        p->group[node->inputs[0]] = 0;
        p->group[node->outputs[0]] = 0;
    }
}

// Calls fn for each value of the node that may be in a group.
typedef void edge_fn(struct planner *p, td_node n, td_value v, void *arg);
static void each_edge(struct planner *p, td_node n, edge_fn *fn, void *arg) {
    const struct td_node_info *node = td_graph_node(p->g, n);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (p->group[node->inputs[i]]) fn(p, n, node->inputs[i], arg);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (p->group[node->outputs[i]]) fn(p, n, node->outputs[i], arg);
    }
}

static void join_edge(struct planner *p, td_node n, td_value v, void *first) {
    (void)n;
    td_value *one = first;
    if (*one) join(p, *one, v);
    *one = v;
}

static void vote_edge(struct planner *p, td_node n, td_value v, void *arg) {
    (void)arg;
    bool conv = p->plan->need[n] == TD_NEED_CONV;
    enum td_image_layout wanted = conv ? conv_wants(p->g, p->plan, n, v) : TD_LAYOUT_PLAIN;
    p->votes[root_of(p, v)][wanted] += bytes_of(p->g, v);
}

static enum td_image_layout elect(const double votes[TD_LAYOUT_COUNT]) {
    enum td_image_layout best = TD_LAYOUT_PLAIN;
    for (int l = 0; l < TD_LAYOUT_COUNT; l++) {
        if (votes[l] > votes[best]) best = (enum td_image_layout)l;
    }
    return best;
}

// The layout that most bytes of the node's values are in; a value that its readers alone made plain
// (a reshape sees it) counts like any other.
static enum td_image_layout least_moved(const struct planner *p, td_node n) {
    const struct td_node_info *node = td_graph_node(p->g, n);
    double bytes[TD_LAYOUT_COUNT] = {0};
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        td_value v = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        if (has_order(p->g, v)) bytes[p->plan->of_value[v]] += bytes_of(p->g, v);
    }
    return elect(bytes);
}

static void decide(struct planner *p) {
    uint32_t n_nodes = td_graph_n_nodes(p->g);
    find_members(p);
    for (td_node n = 0; n < n_nodes; n++) {
        td_value first = 0;
        if (works_in_any(p, n)) each_edge(p, n, join_edge, &first);
    }
    for (td_node n = 0; n < n_nodes; n++) {
        if (!works_in_any(p, n)) each_edge(p, n, vote_edge, NULL);
    }
    for (td_value v = 1; v <= td_graph_n_values(p->g); v++) {
        if (p->group[v]) p->plan->of_value[v] = (uint8_t)elect(p->votes[root_of(p, v)]);
    }
    for (td_node n = 0; n < n_nodes; n++) {
        if (works_in_any(p, n)) p->plan->of_node[n] = (uint8_t)least_moved(p, n);
    }
}

// ---- bridges
enum td_image_layout td_layout_wanted(const struct td_graph *g, const struct td_layout_plan *plan,
                                      td_node n, td_value v) {
    // Also of an image whose orders are all the same: oneDNN distinguishes them.
    if (plan->need[n] == TD_NEED_CONV) return conv_wants(g, plan, n, v);
    if (!has_order(g, v)) return (enum td_image_layout)plan->of_value[v];
    return (enum td_image_layout)plan->of_node[n];
}

bool td_layout_bridged(const struct td_graph *g, const struct td_layout_plan *plan, td_node n,
                       td_value v) {
    return has_order(g, v) && td_layout_wanted(g, plan, n, v) != plan->of_value[v];
}

static void count_bridges(struct planner *p, td_node n) {
    const struct td_node_info *node = td_graph_node(p->g, n);
    size_t bytes = 0;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        td_value v = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        if (!td_layout_bridged(p->g, p->plan, n, v)) continue;
        bytes += td_align_up((size_t)bytes_of(p->g, v), 64);
        p->plan->n_bridges++;
    }
    p->plan->bridge_bytes = TD_MAX(p->plan->bridge_bytes, bytes);
}

td_status td_layout_plan_make(const struct td_graph *g, const uint8_t *need,
                              const struct td_conv_layouts *conv, struct td_layout_plan *out_plan) {
    size_t n_values = (size_t)td_graph_n_values(g) + 1;
    struct td_layout_plan plan = {.need = need,
                                  .conv = conv,
                                  .of_value = td_calloc(n_values, 1),
                                  .of_node = td_calloc((size_t)td_graph_n_nodes(g) + 1, 1)};
    struct planner p = {.g = g, .plan = &plan};
    TD_AUTO_FREE td_value *group = p.group = td_calloc(n_values, sizeof *group);
    TD_AUTO_FREE void *votes = p.votes = td_calloc(n_values, sizeof *p.votes);
    if (!plan.of_value || !plan.of_node || !group || !votes) {
        td_layout_plan_finish(&plan);
        return td_fail_oom();
    }
    decide(&p);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        count_bridges(&p, n);
    }
    *out_plan = plan;
    return TD_OK;
}

void td_layout_plan_finish(struct td_layout_plan *plan) {
    free(plan->of_value);
    free(plan->of_node);
    *plan = (struct td_layout_plan){0};
}
