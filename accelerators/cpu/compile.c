// A program becomes a list of kernels: operands resolved to addresses, shapes and sizes worked out,
// matrix products created. Each family of kernels is asked whether it takes the node; the last one
// asked are the reference's loops. A kernel that runs can only fail by oneDNN, by the collective or
// by bad labels.
//
// When all families were asked it is known which nodes take images in which layouts. Then layout.c
// plans them, convolutions are built, and reorders (bridges) are put where a node wants another
// order than a value has. They go through memory of the executable that is as large as the worst
// node wants.
//
// An output of the graph is copied to the host block right after the kernel that makes it. It
// cannot wait: later in the step the memory plan may give its bytes to another value.

#include "accelerators/cpu/compile.h"

#include <string.h>

#include "traind/op.h"
#include "accelerators/cpu/accelerator.h"
#include "accelerators/cpu/fallback.h"
#include "accelerators/cpu/gemm.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/onednn/conv.h"
#include "accelerators/cpu/onednn/conv_layout.h"
#include "accelerators/cpu/parts.h"
#include "accelerators/cpu/product.h"
#include "accelerators/cpu/tune.h"

struct compiler {
    struct td_accelerator *accel;
    const struct td_program *program;
    const struct td_graph *graph;
    const struct td_bindings *bindings;
    struct td_executable *exe; // its first kernels are those of the nodes, while they are made
    struct td_layout_plan layout;
    uint8_t *need; // of node i, as the plan reads it
    struct td_conv_layouts *conv;
    struct td_kernel *list; // what will be run
    uint32_t n_list;
};

// ---- operands -----------------------------------------------------------------------------------
static td_status resolve(const struct compiler *c, td_value v, struct td_operand *out) {
    const struct td_placement *place = &c->program->placement[v];
    if (place->alias) return resolve(c, place->alias, out);
    const struct td_value_info *info = td_graph_value(c->graph, v);
    struct td_operand o = {0};
    switch (info->kind) {
    case TD_VALUE_INPUT:
        o.slot = info->index;
        break;
    case TD_VALUE_SCALAR:
        o.base = info->dtype == TD_F64 ? (char *)&c->bindings->scalars[info->index]
                                       : (char *)&c->exe->rounded[info->index];
        break;
    case TD_VALUE_STATE: {
        const struct td_state_info *s = td_state_at(td_graph_state(c->graph), info->index);
        o.base = (char *)td_buffer_host(c->bindings->region[s->role]) +
                 td_graph_state_offset(c->graph, v);
        break;
    }
    case TD_VALUE_NODE:
        if (place->offset == SIZE_MAX) {
            return td_fail(TD_INTERNAL, "value %u of the program has no place in the arena", v);
        }
        o.base = (char *)td_buffer_host(c->bindings->arena) + place->offset;
        break;
    }
    *out = o;
    return TD_OK;
}

static bool is_param(const struct compiler *c, td_value v) {
    const struct td_value_info *info = td_graph_value(c->graph, v);
    return info->kind == TD_VALUE_STATE &&
           td_state_at(td_graph_state(c->graph), info->index)->role == TD_ROLE_PARAM;
}

// ---- kernels ------------------------------------------------------------------------------------
// What a node does that others do for it: nothing.
static td_status run_nothing(const struct td_kernel *k, const struct td_run *r) {
    (void)k, (void)r;
    return TD_OK;
}

// Sums over ranks. Without one the world has one rank, and there is nothing to do.
static td_status run_start(const struct td_kernel *k, const struct td_run *r) {
    (void)r;
    return k->sum ? k->collective(k->collective_arg, k->sum) : TD_OK;
}

static td_status run_await(const struct td_kernel *k, const struct td_run *r) {
    (void)r;
    return k->sum ? k->collective_wait(k->collective_arg, k->sum) : TD_OK;
}

static td_status run_rank_sum(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->in[0], r);
    void *y = td_operand_at(&k->out[0], r);
    const enum td_dtype t = k->out_dtype[0];
    if (x != y) memcpy(y, x, (size_t)k->elems * td_dtype_bytes(t));
    TD_TRY(run_start(k, r));
    return run_await(k, r);
}

// out[0]: the host block; out[1]: the value.
static td_status run_output(const struct td_kernel *k, const struct td_run *r) {
    const void *x = td_operand_at(&k->out[1], r);
    double *y = td_operand_at(&k->out[0], r);
    *y = k->out_dtype[1] == TD_F64 ? *(const double *)x : (double)*(const float *)x;
    return TD_OK;
}

static td_status add_operands(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    k->n_in = td_op_is(n->op, TD_OP_IS_START) || n->op == TD_OP_AWAIT ? 0 : n->n_inputs; // its sum
    size_t each = sizeof *k->shape + sizeof *k->in + sizeof *k->in_dtype;
    k->shape = td_calloc(TD_MAX(k->n_in, 1), each);
    if (!k->shape) return td_fail_oom();
    k->in = (struct td_operand *)(k->shape + k->n_in);
    k->in_dtype = (enum td_dtype *)(k->in + k->n_in);
    for (uint32_t i = 0; i < k->n_in; i++) {
        const struct td_value_info *v = td_graph_value(c->graph, n->inputs[i]);
        TD_TRY(resolve(c, n->inputs[i], &k->in[i]));
        k->shape[i] = v->shape;
        k->in_dtype[i] = v->dtype;
    }
    return TD_OK;
}

static td_status add_results(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    k->n_out = n->into ? 1 : n->n_outputs;
    for (uint32_t i = 0; i < k->n_out; i++) {
        td_value y = n->into ? n->into : n->outputs[i];
        const struct td_value_info *v = td_graph_value(c->graph, y);
        TD_TRY(resolve(c, y, &k->out[i]));
        k->out_dtype[i] = v->dtype;
        if (i) continue;
        k->out_shape = n->op == TD_OP_REDUCE_SUM ? n->attrs.shape : v->shape;
        k->elems = td_shape_elems(&v->shape);
    }
    return TD_OK;
}

static void set_rows(struct td_kernel *k) {
    if (!k->n_in) return;
    const struct td_shape *s = &k->shape[0];
    int64_t elems = td_shape_elems(s);
    k->cols = s->n_dims ? s->dim[s->n_dims - 1] : 1;
    k->rows = k->cols ? elems / k->cols : s->n_dims > 1 ? s->dim[0] : 0;
}

// A broadcast over whole leading dimensions is one over rows: kernels know (rows, cols) by (cols).
static void fold_broadcast(struct td_kernel *k) {
    bool binary = td_op_is(k->op, TD_OP_IS_ELEMENTWISE) && k->n_in == 2;
    bool reduces = k->op == TD_OP_REDUCE_SUM || k->op == TD_OP_REDUCE_MEAN;
    if (!binary && !reduces) return;
    struct td_shape *wide = &k->shape[0], *row = binary ? &k->shape[1] : &k->out_shape;
    int32_t lead = wide->n_dims - row->n_dims;
    bool fits = lead > 0 && row->n_dims > 1 && (reduces || td_shape_equal(wide, &k->out_shape));
    for (int32_t d = 0; fits && d < row->n_dims; d++) {
        fits = row->dim[d] == wide->dim[lead + d];
    }
    int64_t cols = fits ? td_shape_elems(row) : 0;
    if (!cols) return;
    *wide = (struct td_shape){2, {td_shape_elems(wide) / cols, cols}};
    *row = (struct td_shape){1, {cols}};
    if (binary) k->out_shape = *wide;
    set_rows(k);
}

static td_status choose_kernel(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_kernel_table *kernels = td_kernels();
    const bool starts = td_op_is(k->op, TD_OP_IS_START);
    if (starts || k->op == TD_OP_AWAIT) {
        k->run = starts ? run_start : run_await;
        return TD_OK;
    }
    if (k->op == TD_OP_RANK_SUM) k->run = run_rank_sum;
    struct td_product_site site = {c->program, c->bindings, c->accel};
    if (k->op == TD_OP_MATMUL) TD_TRY(td_product_take(k, &site, node));
    if (k->op == TD_OP_LINEAR_CE || k->op == TD_OP_LINEAR_CE_GRAD) {
        TD_TRY(kernels->linear_ce_take(k, &site, node));
    }
    if (k->op == TD_OP_CAST && td_product_absorbs(&site, node)) k->run = run_nothing;
    for (size_t i = 0; i < kernels->n_families && !k->run; i++) {
        TD_TRY(kernels->family[i](k));
    }
    if (!k->run) TD_TRY(td_conv_take(k));
    if (!k->run) TD_TRY(td_fallback_take(k, c->graph, node));
    return td_cpu_memory_grow_scratch(&c->accel->memory, k->scratch_bytes);
}

// The parameter that a node writes: its result, or the first operand of a node that has none.
static td_status find_written(const struct compiler *c, const struct td_node_info *n,
                              struct td_kernel *k) {
    td_value v = n->into ? n->into : n->n_inputs && !n->n_outputs ? n->inputs[0] : 0;
    struct td_operand at;
    k->writes_pieces = n->op == TD_OP_AWAIT && k->sum && k->sum->kind == TD_SUM_ALL_GATHER;
    if (!v || !is_param(c, v)) return TD_OK;
    if (td_graph_value(c->graph, v)->is_piece) {
        k->writes_pieces = true;
        k->first = td_graph_state_first(c->graph, v);
        return TD_OK;
    }
    TD_TRY(resolve(c, v, &at));
    k->param = at.base;
    return TD_OK;
}

static td_status make_kernel(struct compiler *c, td_node node) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    struct td_kernel *k = &c->exe->kernel[c->exe->n_kernels++];
    c->accel->compiles = k->node = node;
    k->op = n->op;
    k->name = td_op_name(n->op);
    k->segment = n->segment;
    k->n_threads = c->accel->n_threads;
    k->attrs = n->attrs;
    k->scalars = c->bindings->scalars;
    k->random = c->bindings->random;
    k->sum = td_sums_at(c->exe->sums, node);
    k->collective = c->bindings->collective;
    k->collective_wait = c->bindings->collective_wait;
    k->collective_arg = c->bindings->collective_arg;
    TD_TRY(add_operands(c, node, k));
    TD_TRY(add_results(c, node, k));
    TD_TRY(find_written(c, n, k));
    set_rows(k);
    fold_broadcast(k);
    return td_status_context(choose_kernel(c, node, k), "node %u (%s)", node, td_op_name(n->op));
}

// ---- layouts ------------------------------------------------------------------------------------
static td_status build_conv(struct compiler *c, td_node node) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    struct td_kernel *k = &c->exe->kernel[node];
    td_value x, y;
    c->accel->compiles = node;
    td_conv_images(n, &x, &y);
    const void *param =
        k->op != TD_OP_CONV2D_GRAD_W && is_param(c, n->inputs[1]) ? k->in[1].base : NULL;
    td_status s = td_conv_build(k, c->accel->dnnl, td_layout_wanted(c->graph, &c->layout, node, x),
                                td_layout_wanted(c->graph, &c->layout, node, y), param);
    return td_status_context(s, "node %u (%s)", node, td_op_name(k->op));
}

static td_status plan_layouts(struct compiler *c) {
    uint32_t n = td_graph_n_nodes(c->graph);
    uint8_t *need = c->need = td_calloc((size_t)n + 1, 1);
    if (!need) return td_fail_oom();
    c->conv = td_calloc((size_t)n + 1, sizeof *c->conv);
    if (!c->conv) return td_fail_oom();
    for (td_node i = 0; i < n; i++) {
        const struct td_kernel *k = &c->exe->kernel[i];
        need[i] = (uint8_t)k->need;
        if (k->need == TD_NEED_CONV) TD_TRY(td_conv_prefer(k, c->accel->dnnl, &c->conv[i]));
    }
    TD_TRY(td_layout_plan_make(c->graph, need, c->conv, &c->layout));
    c->exe->bridge_bytes = c->layout.bridge_bytes;
    c->exe->bridge = td_cpu_memory_alloc(&c->accel->memory, c->exe->bridge_bytes);
    if (!c->exe->bridge) return td_fail_oom();
    // Who looks at every value has to find all of it.
    if (!c->accel->detects_anomaly) td_parts_plan(c->graph, &c->layout, c->exe->kernel);
    for (td_node i = 0; i < n; i++) {
        c->exe->kernel[i].layout = (enum td_image_layout)c->layout.of_node[i];
        if (need[i] == TD_NEED_CONV) TD_TRY(build_conv(c, i));
    }
    return TD_OK;
}

static td_status run_bridge(const struct td_kernel *k, const struct td_run *r) {
    td_kernels()->reorder(&k->reorder, k->n_threads, td_operand_at(&k->out[1], r),
                          td_operand_at(&k->out[0], r));
    return TD_OK;
}

// Puts a reorder between a value and its node, whose operand `o` is at *bytes of the bridge then.
static void add_bridge(struct compiler *c, td_node node, td_value v, struct td_operand *o,
                       size_t *bytes) {
    if (!td_layout_bridged(c->graph, &c->layout, node, v)) return;
    const struct td_value_info *info = td_graph_value(c->graph, v);
    enum td_image_layout value = (enum td_image_layout)c->layout.of_value[v];
    enum td_image_layout wanted = td_layout_wanted(c->graph, &c->layout, node, v);
    bool made = info->kind == TD_VALUE_NODE && info->node == node;
    struct td_kernel *k = &c->list[c->n_list++];
    struct td_operand bridge = {.base = c->exe->bridge + *bytes};
    k->run = run_bridge;
    k->op = TD_OP_TRANSPOSE; // another order of the same
    k->segment = td_graph_node(c->graph, node)->segment;
    k->n_threads = c->accel->n_threads;
    k->out_dtype[0] = k->out_dtype[1] = info->dtype;
    k->out[0] = made ? *o : bridge;
    k->out[1] = made ? bridge : *o;
    k->reorder = (struct td_reorder){info->shape, made ? wanted : value, made ? value : wanted,
                                     td_dtype_bytes(info->dtype)};
    *o = bridge;
    *bytes += td_align_up((size_t)td_shape_elems(&info->shape) * td_dtype_bytes(info->dtype), 64);
}

// The node's kernel with what comes before and after it.
static void list_kernel(struct compiler *c, td_node node) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    struct td_kernel *k = &c->exe->kernel[node];
    size_t bytes = 0;
    for (uint32_t i = 0; i < k->n_in; i++) {
        add_bridge(c, node, n->inputs[i], &k->in[i], &bytes);
    }
    struct td_kernel *own = &c->list[c->n_list++];
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        add_bridge(c, node, n->outputs[i], &k->out[i], &bytes);
    }
    *own = *k;
}

// A look at one value that a node has written.
struct watch {
    const struct td_graph *graph;
    td_node node;
    td_value value;
};

static td_status run_watch(const struct td_kernel *k, const struct td_run *r) {
    const struct watch *w = k->own;
    return td_graph_check_finite(w->graph, w->node, w->value, td_operand_at(&k->out[0], r));
}

// Where a node does nothing there is nothing to look at: other values have been in that memory.
static td_status add_watches(struct compiler *c, td_node node) {
    td_value v[TD_MAX_WATCHED];
    bool looks = c->accel->detects_anomaly && c->exe->kernel[node].run != run_nothing;
    uint32_t n = looks ? td_graph_watched(c->graph, node, v) : 0;
    for (uint32_t i = 0; i < n; i++) {
        struct watch *w = td_calloc(1, sizeof *w);
        if (!w) return td_fail_oom();
        *w = (struct watch){c->graph, node, v[i]};
        struct td_kernel *k = &c->list[c->n_list++];
        k->segment = td_graph_node(c->graph, node)->segment;
        k->run = run_watch;
        k->node = UINT32_MAX;
        k->op = TD_OP_ALL_FINITE;
        k->own = w;
        k->destroy_own = free;
        TD_TRY(resolve(c, v[i], &k->out[0]));
    }
    return TD_OK;
}

// Copies of those outputs that this node makes.
static td_status add_outputs(struct compiler *c, td_node node) {
    for (uint32_t i = 0; i < td_graph_n_outputs(c->graph); i++) {
        const char *name;
        td_value v;
        enum td_output_kind kind;
        td_graph_output_at(c->graph, i, &name, &v, &kind);
        const struct td_value_info *info = td_graph_value(c->graph, v);
        if (info->kind != TD_VALUE_NODE || info->node != node) continue;
        struct td_kernel *k = &c->list[c->n_list++];
        k->segment = td_graph_node(c->graph, node)->segment;
        k->run = run_output;
        k->node = UINT32_MAX;
        k->op = TD_OP_RESHAPE; // the same value elsewhere
        k->out_dtype[1] = info->dtype;
        TD_TRY(resolve(c, v, &k->out[1]));
        k->out[0].base = (char *)(c->bindings->outputs + i);
    }
    return TD_OK;
}

static td_status list_kernels(struct compiler *c) {
    const uint32_t n = td_graph_n_nodes(c->graph);
    for (td_node i = 0; i < n; i++) {
        list_kernel(c, i);
        TD_TRY(add_watches(c, i));
        TD_TRY(add_outputs(c, i));
    }
    return TD_OK;
}

static td_status compile_nodes(struct compiler *c) {
    struct td_executable *e = c->exe;
    uint32_t n = td_graph_n_nodes(c->graph);
    e->kernel = td_calloc((size_t)n + 1, sizeof *e->kernel);
    if (!e->kernel) return td_fail_oom();
    TD_TRY(td_sums_create(c->program, c->bindings, &e->sums));
    for (td_node i = 0; i < n; i++) {
        TD_TRY(make_kernel(c, i));
    }
    TD_TRY(plan_layouts(c));
    size_t most = (size_t)n + td_graph_n_outputs(c->graph) + c->layout.n_bridges;
    if (c->accel->detects_anomaly) most += (size_t)n * TD_MAX_WATCHED;
    c->list = td_calloc(most + 1, sizeof *c->list);
    if (!c->list) return td_fail_oom();
    TD_TRY(list_kernels(c));
    free(e->kernel); // the list owns what they own
    e->kernel = c->list;
    e->n_kernels = c->n_list;
    c->list = NULL;
    return TD_OK;
}

td_status td_cpu_compile(struct td_accelerator *a, const struct td_program *p,
                         const struct td_bindings *b, struct td_executable **out_exe) {
    struct td_executable *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->magic = td_executable_magic;
    e->accel = a;
    e->scalars = b->scalars;
    e->program = p;
    e->control = b->control;
    e->control_tail = (char *)td_buffer_host(b->region[TD_ROLE_GRAD]) + b->control_offset;
    struct compiler c = {.accel = a, .program = p, .graph = p->graph, .bindings = b, .exe = e};
    td_status failed = compile_nodes(&c);
    for (uint32_t i = 0; c.list && i < c.n_list; i++) { // of a failed one; it owns its watches only
        if (c.list[i].run == run_watch) free(c.list[i].own);
    }
    free(c.list);
    td_layout_plan_finish(&c.layout);
    free(c.need);
    free(c.conv);
    if (failed) {
        td_cpu_release(e);
        return td_status_context(failed, "compile step '%s' for %lld samples", p->key.step,
                                 (long long)p->key.batch);
    }
    td_tune_save(a->tune);
    *out_exe = e;
    return TD_OK;
}

void td_cpu_release(struct td_executable *e) {
    if (!e) return;
    for (uint32_t i = 0; i < e->n_kernels; i++) {
        td_gemm_destroy(e->kernel[i].gemm);
        if (e->kernel[i].own) e->kernel[i].destroy_own(e->kernel[i].own);
        free(e->kernel[i].shape);
    }
    free(e->kernel);
    td_sums_destroy(e->sums);
    td_cpu_memory_free(&e->accel->memory, e->bridge, e->bridge_bytes);
    e->magic = 0;
    free(e);
}
