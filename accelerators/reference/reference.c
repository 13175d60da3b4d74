// Reference accelerator: memory, compile and run around the kernels of kernels.c; see reference.h.
//
// compile resolves each operand once to an address (arena, region, scalar block) or to an input
// slot. run hands node after node its addresses (node.c), with one scratch area for all. Sums over
// ranks call the bindings. Without these there is one rank and nothing to do.
// Ownership: the accelerator frees what it allocated when it is closed; imported memory stays the
// caller's. An executable borrows its program. Failure: status; a run that failed half-way leaves
// state half-updated, which ends the attempt like on any accelerator. Thread: the training thread.

#include "accelerators/reference/reference.h"

#include <inttypes.h>
#include <string.h>

#include "accelerators/reference/convert.h"
#include "accelerators/reference/node.h"
#include "lib/base/base.h"
#include "traind/op.h"

enum { REF_ALIGN = 64, CONTROL_BYTES = TD_CONTROL_FLAGS * sizeof(float) };

struct ref_alloc {
    struct ref_alloc *next;
    void *data;
};

struct td_accelerator {
    bool detects_anomaly;
    struct ref_alloc *allocs;
    size_t scratch_bytes; // of all executables
};

// Where a value lives: memory, or (slot >= 0) what run is handed for that input.
struct ref_place {
    char *data;
    int32_t slot;
};

struct td_executable {
    struct td_accelerator *accel;
    const struct td_program *program;
    struct td_bindings bind;
    float rounded[TD_SCALAR_COUNT]; // step scalars, as values of f32 read them
    struct ref_place *place;        // by td_value
    void **in;                      // for the node with most operands
    struct ref_operand *operands;   // likewise
    char *control;                  // flags, at the end of GRAD
    double *scratch;                // for the node with most elements
    size_t scratch_bytes;
    struct td_sums *sums;
    void (*trace)(void *arg, td_node n);
    void *trace_arg;
};

// ---- device and memory --------------------------------------------------------------------------
static td_status ref_probe(struct td_accel_facts *out_facts) {
    struct td_accel_facts f = {.struct_bytes = sizeof f,
                               .n_devices = 1,
                               .device_name = "reference loops",
                               .build = "reference-1",
                               .detects_anomaly = true,
                               .whole_logits_bytes = 32 << 20,
                               .sums = (1u << TD_SUM_KINDS) - 1,
                               .dtypes = (1u << TD_DTYPE_COUNT) - 1};
    memcpy(out_facts, &f, TD_MIN(sizeof f, (size_t)out_facts->struct_bytes));
    return TD_OK;
}

static td_status ref_open(const struct td_accel_config *config, struct td_accelerator **out_accel) {
    if (config->device != 0) {
        return td_fail(TD_INVALID_ARGUMENT, "reference has one device, not one with index %" PRId32,
                       config->device);
    }
    struct td_accelerator *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->detects_anomaly = config->detect_anomaly;
    *out_accel = a;
    return TD_OK;
}

static void ref_close(struct td_accelerator *a) {
    if (!a) return;
    while (a->allocs) {
        struct ref_alloc *next = a->allocs->next;
        free(a->allocs->data);
        free(a->allocs);
        a->allocs = next;
    }
    free(a);
}

static td_status ref_mem_alloc(struct td_accelerator *a, size_t bytes,
                               struct td_buffer *out_buffer) {
    struct ref_alloc *link = td_calloc(1, sizeof *link);
    if (!link) return td_fail_oom();
    size_t rounded = bytes < SIZE_MAX / 2 ? td_align_up(TD_MAX(bytes, 1), REF_ALIGN) : 0;
    link->data = rounded ? aligned_alloc(REF_ALIGN, rounded) : NULL;
    if (!link->data) {
        free(link);
        return td_status_context(td_fail_oom(), "reference: %zu bytes", bytes);
    }
    memset(link->data, 0, rounded);
    link->next = a->allocs;
    a->allocs = link;
    *out_buffer = (struct td_buffer){TD_SPACE_HOST, (uint64_t)(uintptr_t)link->data, bytes};
    return TD_OK;
}

static void ref_mem_free(struct td_accelerator *a, struct td_buffer b) {
    for (struct ref_alloc **at = &a->allocs; *at; at = &(*at)->next) {
        struct ref_alloc *link = *at;
        if (link->data != td_buffer_host(b)) continue;
        *at = link->next;
        free(link->data);
        free(link);
        return;
    }
}

static td_status ref_mem_import(struct td_accelerator *a, void *host, size_t bytes,
                                struct td_buffer *out_buffer) {
    (void)a;
    *out_buffer = (struct td_buffer){TD_SPACE_HOST, (uint64_t)(uintptr_t)host, bytes};
    return TD_OK;
}

static td_status ref_copy(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                          struct td_buffer src, size_t src_offset, size_t bytes) {
    (void)a;
    char *to = td_buffer_host(dst);
    const char *from = td_buffer_host(src);
    bool fits = dst_offset <= dst.bytes && bytes <= dst.bytes - dst_offset &&
                src_offset <= src.bytes && bytes <= src.bytes - src_offset;
    if (!fits || !to || !from) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "reference: copy of %zu bytes from %zu to %zu leaves a buffer (%zu, %zu)",
                       bytes, src_offset, dst_offset, src.bytes, dst.bytes);
    }
    if (bytes) memmove(to + dst_offset, from + src_offset, bytes);
    return TD_OK;
}

static td_status ref_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    (void)a, (void)ticket, (void)timeout_ns;
    return TD_OK;
}

// ---- compile ------------------------------------------------------------------------------------
static td_status place_in(struct td_buffer b, size_t offset, size_t bytes, const char *what,
                          char **out_data) {
    char *base = td_buffer_host(b);
    if (!bytes) return TD_OK;
    if (!base || offset > b.bytes || bytes > b.bytes - offset) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "reference: %s at %zu + %zu bytes is outside its buffer of %zu", what,
                       offset, bytes, b.bytes);
    }
    *out_data = base + offset;
    return TD_OK;
}

static td_status resolve_value(struct td_executable *e, td_value v, struct ref_place *out_place) {
    const struct td_graph *g = e->program->graph;
    const struct td_placement *p = &e->program->placement[v];
    const struct td_value_info *info = td_graph_value(g, v);
    const td_value at = p->alias ? p->alias : v;
    const struct td_value_info *home = td_graph_value(g, at);
    size_t bytes = (size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype);
    out_place->slot = -1;
    switch (home->kind) {
    case TD_VALUE_INPUT:
        out_place->slot = (int32_t)home->index;
        return TD_OK;
    case TD_VALUE_SCALAR:
        out_place->data = home->dtype == TD_F64 ? (char *)&e->bind.scalars[home->index]
                                                : (char *)&e->rounded[home->index];
        return TD_OK;
    case TD_VALUE_STATE: {
        const struct td_state_info *s = td_state_at(td_graph_state(g), home->index);
        return place_in(e->bind.region[s->role], td_graph_state_offset(g, at), bytes, s->name,
                        &out_place->data);
    }
    case TD_VALUE_NODE:
        // Values that passes left over have no place, and nobody reads them.
        if (p->offset == SIZE_MAX) return TD_OK;
        return place_in(e->bind.arena, p->offset, bytes, "a value", &out_place->data);
    }
    return TD_OK;
}

static void ref_release(struct td_executable *e) {
    if (!e) return;
    e->accel->scratch_bytes -= e->scratch_bytes;
    free(e->place);
    free(e->in);
    free(e->operands);
    free(e->scratch);
    td_sums_destroy(e->sums);
    free(e);
}

// What the node with the most needs: fp64 elements, operands.
static td_status find_most(const struct td_graph *g, size_t *out_elems, size_t *out_operands) {
    size_t most_elems = 1, most_operands = 1;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        size_t elems = 0;
        TD_TRY(td_ref_node_check(g, n, &elems));
        most_elems = TD_MAX(most_elems, elems);
        most_operands = TD_MAX(most_operands, td_graph_node(g, n)->n_inputs);
    }
    *out_elems = most_elems;
    *out_operands = most_operands;
    return TD_OK;
}

static td_status build(struct td_executable *e) {
    const struct td_graph *g = e->program->graph;
    size_t most_elems, most_operands;
    TD_TRY(find_most(g, &most_elems, &most_operands));
    TD_TRY(td_sums_create(e->program, &e->bind, &e->sums));
    uint32_t n_values = td_graph_n_values(g);
    e->place = td_calloc(n_values + 1, sizeof *e->place);
    e->in = td_calloc(most_operands, sizeof *e->in);
    e->operands = td_calloc(most_operands, sizeof *e->operands);
    e->scratch = td_calloc(most_elems, sizeof *e->scratch);
    if (!e->place || !e->in || !e->operands || !e->scratch) return td_fail_oom();
    e->scratch_bytes = most_elems * sizeof *e->scratch;
    e->accel->scratch_bytes += e->scratch_bytes;
    for (td_value v = 1; v <= n_values; v++) {
        TD_TRY(resolve_value(e, v, &e->place[v]));
    }
    if (!e->bind.control) return TD_OK;
    return place_in(e->bind.region[TD_ROLE_GRAD], e->bind.control_offset, CONTROL_BYTES,
                    "the control flags", &e->control);
}

static td_status ref_compile(struct td_accelerator *a, const struct td_program *p,
                             const struct td_bindings *b, struct td_executable **out_exe) {
    struct td_executable *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->accel = a;
    e->program = p;
    e->bind = *b;
    td_status s = build(e);
    if (s) {
        ref_release(e);
        return td_status_context(s, "step '%s'", p->key.step);
    }
    *out_exe = e;
    return TD_OK;
}

// The memory in which nodes are computed; each executable has its own.
static td_status ref_program_bytes(struct td_accelerator *a,
                                   const struct td_program *const *programs, size_t n,
                                   size_t *out_bytes) {
    size_t bytes = n ? 0 : a->scratch_bytes, elems, operands;
    for (size_t i = 0; i < n; i++) {
        TD_TRY(find_most(programs[i]->graph, &elems, &operands));
        bytes += elems * sizeof(double);
    }
    *out_bytes = bytes;
    return TD_OK;
}

// ---- run ----------------------------------------------------------------------------------------
static const void *read_place(const struct td_executable *e, td_value v,
                              const struct td_buffer *inputs) {
    int32_t slot = e->place[v].slot;
    return slot >= 0 ? td_buffer_host(inputs[slot]) : e->place[v].data;
}

// A reshape that shares its operand's memory, which may be an input that nobody may write.
static bool is_view(const struct td_executable *e, const struct td_node_info *node) {
    const struct ref_place *x = &e->place[node->inputs[0]], *y = &e->place[node->outputs[0]];
    return x->slot == y->slot && x->data == y->data;
}

static td_status run_node(struct td_executable *e, td_node n, const struct td_buffer *inputs) {
    const struct td_node_info *node = td_graph_node(e->program->graph, n);
    const struct td_sum *sum = td_sums_at(e->sums, n);
    const struct td_bindings *b = &e->bind;
    if (node->op == TD_OP_AWAIT) return sum ? b->collective_wait(b->collective_arg, sum) : TD_OK;
    if (td_op_is(node->op, TD_OP_IS_START)) {
        return sum ? b->collective(b->collective_arg, sum) : TD_OK;
    }
    if (node->op == TD_OP_RESHAPE && is_view(e, node)) return TD_OK;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        e->in[i] = td_unconst(read_place(e, node->inputs[i], inputs));
    }
    void *out[TD_MAX_OUT] = {node->into ? e->place[node->into].data : NULL};
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        out[i] = e->place[node->outputs[i]].data;
    }
    struct td_ref_site site = {e->in,          out,         e->bind.scalars,
                               e->bind.random, e->operands, e->scratch};
    TD_TRY_CTX(td_ref_node_run(e->program->graph, n, &site), "step '%s': node %" PRIu32 " (%s)",
               e->program->key.step, n, td_op_name(node->op));
    if (!sum) return TD_OK; // a rank_sum, whose part is there
    TD_TRY(b->collective(b->collective_arg, sum));
    return b->collective_wait(b->collective_arg, sum);
}

static void give_outputs(struct td_executable *e, uint32_t segments,
                         const struct td_buffer *inputs) {
    const struct td_graph *g = e->program->graph;
    for (uint32_t i = 0; i < td_graph_n_outputs(g) && e->bind.outputs; i++) {
        td_value v;
        td_graph_output_at(g, i, NULL, &v, NULL);
        const struct td_value_info *info = td_graph_value(g, v);
        bool made =
            info->kind != TD_VALUE_NODE || (segments >> td_graph_node(g, info->node)->segment & 1);
        if (!made) continue;
        double x;
        td_ref_load(info->dtype, read_place(e, v, inputs), 1, &x);
        e->bind.outputs[i] = x;
    }
}

// What node n has written must be finite.
static td_status look_at(const struct td_executable *e, td_node n, const struct td_buffer *inputs) {
    const struct td_graph *g = e->program->graph;
    td_value v[TD_MAX_WATCHED];
    uint32_t count = td_graph_watched(g, n, v);
    for (uint32_t i = 0; i < count; i++) {
        TD_TRY(td_graph_check_finite(g, n, v[i], read_place(e, v[i], inputs)));
    }
    return TD_OK;
}

// Done when it returns.
static td_status ref_run(struct td_executable *e, uint32_t segments, const struct td_buffer *inputs,
                         td_ticket *out_ticket) {
    const struct td_graph *g = e->program->graph;
    TD_TRY(td_inputs_check_host(g, inputs));
    if (e->bind.scalars) td_scalars_round(e->bind.scalars, e->rounded);
    const bool carries = e->bind.control && td_run_carries_control(e->program, segments);
    if (carries) memcpy(e->control, e->bind.control, CONTROL_BYTES);
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        if (!(segments >> td_graph_node(g, n)->segment & 1)) continue;
        TD_TRY(run_node(e, n, inputs));
        if (e->accel->detects_anomaly) TD_TRY(look_at(e, n, inputs));
        if (e->trace) e->trace(e->trace_arg, n);
    }
    if (carries) memcpy(e->bind.control, e->control, CONTROL_BYTES);
    give_outputs(e, segments, inputs);
    *out_ticket = 0;
    return TD_OK;
}

void td_reference_trace(struct td_executable *e, void (*fn)(void *arg, td_node n), void *arg) {
    e->trace = fn;
    e->trace_arg = arg;
}

static const struct td_accelerator_ops reference_ops = {
    .struct_bytes = sizeof reference_ops,
    .probe = ref_probe,
    .open = ref_open,
    .close = ref_close,
    .mem_alloc = ref_mem_alloc,
    .mem_free = ref_mem_free,
    .mem_import = ref_mem_import,
    .copy = ref_copy,
    .compile = ref_compile,
    .run = ref_run,
    .wait = ref_wait,
    .release = ref_release,
    .program_bytes = ref_program_bytes,
};

const struct td_plugin_desc td_accelerator_reference = TD_PLUGIN_DESC(
    ACCELERATOR, "reference", "plain loops in fp64: the specification of every op", &reference_ops);
