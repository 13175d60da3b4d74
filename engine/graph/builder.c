// The builder and the view: what a module calls to record a step, and what everybody may ask of a
// graph afterwards (traind/graph.h).

#include "engine/graph/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/graph.h"
#include "engine/graph/rules/rules.h"
#include "engine/graph/state.h"
#include "lib/base/floats/floats.h"

static const char *const segment_names[TD_SEG_COUNT] = {
    [TD_SEG_FORWARD] = "forward",
    [TD_SEG_BACKWARD] = "backward",
    [TD_SEG_FINISH] = "finish",
    [TD_SEG_APPLY] = "apply",
};
static const char *const mode_names[] = {
    [TD_MODE_TRAIN] = "train",
    [TD_MODE_EVAL] = "eval",
    [TD_MODE_PREDICT] = "predict",
};
static const char *const output_kind_names[] = {[TD_OUTPUT_MEAN] = "mean",
                                                [TD_OUTPUT_SUM] = "sum",
                                                [TD_OUTPUT_NORM] = "norm",
                                                [TD_OUTPUT_GATE] = "gate",
                                                [TD_OUTPUT_WEIGHT] = "weight"};

const char *td_segment_name(enum td_segment s) {
    return (unsigned)s < TD_SEG_COUNT ? segment_names[s] : "unknown";
}

const char *td_compare_name(enum td_compare c) {
    static const char *const names[TD_CMP_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
    return (unsigned)c < TD_CMP_COUNT ? names[c] : "unknown";
}

const char *td_mode_name(enum td_mode m) {
    return (unsigned)m < TD_COUNTOF(mode_names) ? mode_names[m] : "unknown";
}

const char *td_output_kind_name(enum td_output_kind k) {
    return (unsigned)k < TD_COUNTOF(output_kind_names) ? output_kind_names[k] : "unknown";
}

// ---- life ---------------------------------------------------------------------------------------
td_status td_graph_create(const char *step, enum td_mode mode, struct td_state_table *state,
                          struct td_graph **out_graph) {
    TD_AUTO(td_graph) *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    TD_TRY(td_arena_create((size_t)256 << 20, &g->arena));
    g->step = td_arena_strdup(g->arena, step);
    if (!g->step) return td_fail_oom();
    g->mode = mode;
    g->state = state;
    g->cursor = TD_NODE_NONE;
    *out_graph = td_steal(g);
    return TD_OK;
}

void td_graph_destroy(struct td_graph *g) {
    if (!g) return;
    td_arena_destroy(g->arena);
    free(g->values);
    free(g->nodes);
    free(g->by_state);
    free(g);
}

// ---- values -------------------------------------------------------------------------------------
static td_status graph_add_value(struct td_graph *g, enum td_value_kind kind, enum td_dtype dtype,
                                 const struct td_shape *shape, td_value *out_value) {
    if (g->n_values + 2 > g->cap_values) {
        uint32_t cap = g->cap_values ? g->cap_values * 2 : 128;
        struct td_value_info *grown = td_realloc(g->values, cap * sizeof *grown);
        if (!grown) return td_fail_oom();
        if (!g->values) memset(&grown[0], 0, sizeof grown[0]);
        g->values = grown;
        g->cap_values = cap;
    }
    td_value v = ++g->n_values;
    g->values[v] =
        (struct td_value_info){.kind = kind, .dtype = dtype, .shape = *shape, .node = TD_NODE_NONE};
    *out_value = v;
    return TD_OK;
}

td_status td_graph_input(struct td_graph *g, const char *name, enum td_dtype dtype,
                         const struct td_shape *shape, td_value *out_value) {
    if (g->n_inputs == TD_GRAPH_MAX_PORTS) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': more than %d inputs", g->step,
                       TD_GRAPH_MAX_PORTS);
    }
    if (!name || !*name) return td_fail(TD_INVALID_ARGUMENT, "step '%s': nameless input", g->step);
    TD_TRY_CTX(td_shape_check(dtype, shape), "step '%s' input '%s'", g->step, name);
    const char *copy = td_arena_strdup(g->arena, name);
    if (!copy) return td_fail_oom();
    td_value v;
    TD_TRY(graph_add_value(g, TD_VALUE_INPUT, dtype, shape, &v));
    g->values[v].name = copy;
    g->values[v].index = g->n_inputs;
    g->inputs[g->n_inputs++] = (struct td_graph_port){.name = copy, .value = v};
    *out_value = v;
    return TD_OK;
}

td_status td_graph_param(struct td_graph *g, const char *name, enum td_dtype dtype,
                         const struct td_shape *shape, struct td_init init, td_value *out_value) {
    uint32_t index;
    TD_TRY_CTX(td_state_add(g->state, name, TD_ROLE_PARAM, dtype, shape, init, 0, &index),
               "step '%s'", g->step);
    return td_graph_state_value(g, index, out_value);
}

td_status td_graph_mark(struct td_graph *g, td_value param, unsigned marks) {
    const struct td_value_info *v = param >= 1 && param <= g->n_values ? td_gv(g, param) : NULL;
    if (!v || v->kind != TD_VALUE_STATE || td_state_at(g->state, v->index)->role != TD_ROLE_PARAM) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': only a parameter can be marked", g->step);
    }
    td_state_mark(g->state, v->index, marks);
    return TD_OK;
}

static td_status grow_by_state(struct td_graph *g, uint32_t state_index) {
    if (state_index >= td_state_count(g->state)) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': no state tensor has index %" PRIu32,
                       g->step, state_index);
    }
    if (state_index < g->cap_by_state) return TD_OK;
    uint32_t cap = TD_MAX(td_state_count(g->state), 64);
    cap = TD_MAX(cap, g->cap_by_state * 2);
    struct td_state_values *grown = td_realloc(g->by_state, cap * sizeof *grown);
    if (!grown) return td_fail_oom();
    memset(grown + g->cap_by_state, 0, (cap - g->cap_by_state) * sizeof *grown);
    g->by_state = grown;
    g->cap_by_state = cap;
    return TD_OK;
}

static td_status add_state_value(struct td_graph *g, uint32_t state_index,
                                 const struct td_shape *shape, td_value *out_value) {
    const struct td_state_info *info = td_state_at(g->state, state_index);
    enum td_dtype dtype = g->as_stored ? info->dtype : td_state_recorded(g->state, state_index);
    td_value v;
    TD_TRY(graph_add_value(g, TD_VALUE_STATE, dtype, shape, &v));
    g->values[v].name = info->name;
    g->values[v].index = state_index;
    *out_value = v;
    return TD_OK;
}

td_status td_graph_state_value(struct td_graph *g, uint32_t state_index, td_value *out_value) {
    TD_TRY(grow_by_state(g, state_index));
    td_value *v = &g->by_state[state_index].whole;
    if (!*v) TD_TRY(add_state_value(g, state_index, &td_state_at(g->state, state_index)->shape, v));
    *out_value = *v;
    return TD_OK;
}

td_status td_graph_state_piece(struct td_graph *g, uint32_t state_index, td_value *out_value) {
    TD_TRY(grow_by_state(g, state_index));
    const struct td_state_info *info = td_state_at(g->state, state_index);
    td_value *v = &g->by_state[state_index].piece;
    if (!info->n_pieces) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': state '%s' is whole, and has no pieces",
                       g->step, info->name);
    }
    const int64_t each = td_piece_length(td_shape_elems(&info->shape), info->n_pieces);
    const struct td_shape shape = {1, {each}};
    if (!*v) {
        TD_TRY(add_state_value(g, state_index, &shape, v));
        g->values[*v].is_piece = true;
    }
    *out_value = *v;
    return TD_OK;
}

size_t td_graph_state_offset(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    TD_CHECK(info->kind == TD_VALUE_STATE);
    const struct td_state_info *s = td_state_at(g->state, info->index);
    if (!info->is_piece || s->has_piece_alone) return s->offset;
    return s->offset + s->bytes / (size_t)s->n_pieces * (size_t)td_state_rank(g->state);
}

int64_t td_graph_state_first(const struct td_graph *g, td_value v) {
    const struct td_value_info *info = td_gv(g, v);
    TD_CHECK(info->kind == TD_VALUE_STATE);
    return info->is_piece ? td_state_at(g->state, info->index)->piece.first : 0;
}

td_status td_graph_result(struct td_graph *g, const char *name, td_value v) {
    const struct td_value_info *info = v >= 1 && v <= g->n_values ? td_gv(g, v) : NULL;
    if (!info || info->shape.n_dims < 1) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': result '%s' has no leading dimension",
                       g->step, name);
    }
    char path[64];
    uint32_t index;
    td_value state, value = v;
    const struct td_shape shape = info->shape;
    const struct td_init zero = {.kind = TD_INIT_ZERO};
    const struct td_attrs f32 = {.dtype = TD_F32};
    if (info->dtype != TD_F32) TD_TRY(td_graph_op(g, TD_OP_CAST, &v, 1, &f32, &value));
    snprintf(path, sizeof path, "%.40s:%" PRId64, name, shape.dim[0]);
    TD_TRY(td_state_add(g->state, path, TD_ROLE_RESULT, TD_F32, &shape, zero, 0, &index));
    TD_TRY(td_graph_state_value(g, index, &state));
    return td_graph_op(g, TD_OP_STORE, (td_value[]){state, value}, 2, NULL, NULL);
}

td_status td_graph_scalar(struct td_graph *g, enum td_scalar s, td_value *out_value) {
    if ((unsigned)s >= TD_SCALAR_COUNT) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': step scalar %d is unknown", g->step,
                       (int)s);
    }
    if (!g->scalars[s]) {
        struct td_shape shape = {0};
        td_value v;
        TD_TRY(graph_add_value(g, TD_VALUE_SCALAR, TD_F32, &shape, &v));
        g->values[v].index = (uint32_t)s;
        g->scalars[s] = v;
    }
    *out_value = g->scalars[s];
    return TD_OK;
}

// ---- nodes --------------------------------------------------------------------------------------
// Makes room for a node at the cursor and renumbers what moves.
static td_status graph_open_slot(struct td_graph *g, td_node *out_at) {
    if (g->n_nodes >= TD_GRAPH_MAX_NODES) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "step '%s': more than %d nodes", g->step,
                       TD_GRAPH_MAX_NODES);
    }
    if (g->n_nodes == g->cap_nodes) {
        uint32_t cap = g->cap_nodes ? g->cap_nodes * 2 : 64;
        void *grown = td_realloc(g->nodes, cap * sizeof *g->nodes);
        if (!grown) return td_fail_oom();
        g->nodes = grown;
        g->cap_nodes = cap;
    }
    td_node at = TD_MIN(g->cursor, g->n_nodes);
    memmove(&g->nodes[at + 1], &g->nodes[at], (g->n_nodes - at) * sizeof *g->nodes);
    g->n_nodes++;
    for (td_node n = at + 1; n < g->n_nodes; n++) {
        for (uint32_t i = 0; i < g->nodes[n].n_outputs; i++) {
            g->values[g->nodes[n].outputs[i]].node = n;
        }
    }
    if (g->cursor != TD_NODE_NONE) g->cursor++;
    *out_at = at;
    return TD_OK;
}

// The numbers of a constant live as long as the graph.
static td_status keep_values(struct td_graph *g, struct td_attrs *a) {
    size_t n = (size_t)td_shape_elems(&a->shape);
    double *copy = td_arena_array(g->arena, TD_MAX(n, 1), sizeof *copy);
    if (!copy) return td_fail_oom();
    if (n) memcpy(copy, a->values, n * sizeof *copy);
    a->values = copy;
    return TD_OK;
}

td_status td_graph_op(struct td_graph *g, td_op_id op, const td_value *inputs, uint32_t n_inputs,
                      const struct td_attrs *attrs, td_value *out_values) {
    struct td_attrs none = {0};
    if (!attrs) attrs = &none;
    struct td_op_result result;
    TD_TRY_CTX(td_op_infer(g, op, inputs, n_inputs, attrs, &result), "step '%s'", g->step);
    if (g->cursor == TD_NODE_NONE && g->n_nodes && g->nodes[g->n_nodes - 1].segment > g->segment) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': %s is added to %s after %s", g->step,
                       td_op_name(op), td_segment_name(g->segment),
                       td_segment_name(g->nodes[g->n_nodes - 1].segment));
    }
    struct td_node_info node = {
        .op = op, .segment = g->segment, .n_inputs = n_inputs, .attrs = *attrs};
    td_value *copy = td_arena_array(g->arena, TD_MAX(n_inputs, 1), sizeof *copy);
    if (!copy) return td_fail_oom();
    if (n_inputs) memcpy(copy, inputs, n_inputs * sizeof *copy);
    node.inputs = copy;
    if (attrs->values) TD_TRY(keep_values(g, &node.attrs));
    node.n_outputs = td_op_n_out(op);
    for (uint32_t i = 0; i < node.n_outputs; i++) {
        TD_TRY(
            graph_add_value(g, TD_VALUE_NODE, result.dtype[i], &result.shape[i], &node.outputs[i]));
    }
    td_node at = 0;
    TD_TRY(graph_open_slot(g, &at));
    g->nodes[at] = node;
    for (uint32_t i = 0; i < node.n_outputs; i++) {
        g->values[node.outputs[i]].node = at;
        g->values[node.outputs[i]].output = i;
        if (out_values) out_values[i] = node.outputs[i];
    }
    return TD_OK;
}

td_status td_graph_op3(struct td_graph *g, td_op_id op, td_value a, td_value b, td_value c,
                       const struct td_attrs *attrs, td_value *out_value) {
    const td_value in[3] = {a, b, c};
    uint32_t n = (a != 0) + (b != 0) + (c != 0);
    return td_graph_op(g, op, in, n, attrs, out_value);
}

void td_graph_set_segment(struct td_graph *g, enum td_segment s) {
    TD_CHECK((unsigned)s < TD_SEG_COUNT);
    g->segment = s;
}

td_status td_graph_output(struct td_graph *g, const char *name, td_value v,
                          enum td_output_kind kind) {
    if (!name || !*name) return td_fail(TD_INVALID_ARGUMENT, "step '%s': nameless output", g->step);
    if (v < 1 || v > g->n_values) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': output '%s' is no value of this graph",
                       g->step, name);
    }
    const struct td_value_info *info = td_gv(g, v);
    if (td_shape_elems(&info->shape) != 1 || !td_is_float(info->dtype)) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': output '%s' must be one float", g->step,
                       name);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (!strcmp(g->outputs[i].name, name)) {
            return td_fail(TD_INVALID_ARGUMENT, "step '%s': two outputs are named '%s'", g->step,
                           name);
        }
    }
    if (g->n_outputs == TD_GRAPH_MAX_PORTS) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': more than %d outputs", g->step,
                       TD_GRAPH_MAX_PORTS);
    }
    const char *copy = td_arena_strdup(g->arena, name);
    if (!copy) return td_fail_oom();
    g->outputs[g->n_outputs++] = (struct td_graph_port){.name = copy, .value = v, .kind = kind};
    return TD_OK;
}

td_status td_graph_loss(struct td_graph *g, td_value v) {
    if (g->loss) return td_fail(TD_INVALID_ARGUMENT, "step '%s': a second loss", g->step);
    if (v < 1 || v > g->n_values || td_gv(g, v)->shape.n_dims != 0 ||
        !td_is_float(td_gv(g, v)->dtype)) {
        return td_fail(TD_INVALID_ARGUMENT, "step '%s': the loss must be a float scalar", g->step);
    }
    g->loss = v;
    return TD_OK;
}

// ---- reading ------------------------------------------------------------------------------------
int32_t td_graph_world_size(const struct td_graph *g) {
    return TD_MAX(g->world_size, 1);
}

const char *td_graph_step(const struct td_graph *g) {
    return g->step;
}
enum td_mode td_graph_mode(const struct td_graph *g) {
    return g->mode;
}
struct td_state_table *td_graph_state(const struct td_graph *g) {
    return g->state;
}
uint32_t td_graph_n_nodes(const struct td_graph *g) {
    return g->n_nodes;
}
const struct td_node_info *td_graph_node(const struct td_graph *g, td_node n) {
    TD_CHECK(n < g->n_nodes);
    return &g->nodes[n];
}
uint32_t td_graph_n_values(const struct td_graph *g) {
    return g->n_values;
}
const struct td_value_info *td_graph_value(const struct td_graph *g, td_value v) {
    TD_CHECK(v >= 1 && v <= g->n_values);
    return &g->values[v];
}
uint32_t td_graph_n_inputs(const struct td_graph *g) {
    return g->n_inputs;
}
td_value td_graph_input_at(const struct td_graph *g, uint32_t slot) {
    TD_CHECK(slot < g->n_inputs);
    return g->inputs[slot].value;
}
uint32_t td_graph_n_outputs(const struct td_graph *g) {
    return g->n_outputs;
}
void td_graph_output_at(const struct td_graph *g, uint32_t i, const char **out_name,
                        td_value *out_value, enum td_output_kind *out_kind) {
    TD_CHECK(i < g->n_outputs);
    if (out_name) *out_name = g->outputs[i].name;
    if (out_value) *out_value = g->outputs[i].value;
    if (out_kind) *out_kind = g->outputs[i].kind;
}
td_value td_graph_loss_value(const struct td_graph *g) {
    return g->loss;
}
uint32_t td_graph_n_unreached(const struct td_graph *g) {
    return g->n_unreached;
}
uint32_t td_graph_unreached_at(const struct td_graph *g, uint32_t i) {
    TD_CHECK(i < g->n_unreached);
    return g->unreached[i];
}

bool td_node_gradient(const struct td_graph *g, const struct td_node_info *node,
                      uint32_t *out_state) {
    td_value v = node->into ? node->into : node->op == TD_OP_STORE ? node->inputs[0] : 0;
    if (!v || td_state_at(g->state, td_gv(g, v)->index)->role != TD_ROLE_GRAD) return false;
    *out_state = td_gv(g, v)->index;
    return true;
}
