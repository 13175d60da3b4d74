// A program becomes a list of kernels: operands resolved to addresses, shapes and sizes worked out,
// matrix products created. What this accelerator cannot run is refused here, naming the node; a
// kernel that runs can only fail by oneDNN, by the collective or by bad labels.
//
// An output of the graph is copied to the host block right after the kernel that makes it, because
// the memory plan may give its bytes to somebody else later in the step.

#include <string.h>

#include "accelerators/cpu/cpu.h"

struct compiler {
    struct td_accelerator *accel;
    const struct td_program *program;
    const struct td_graph *graph;
    const struct td_bindings *bindings;
    struct td_executable *exe;
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
        o.base = (char *)(c->bindings->scalars + info->index);
        break;
    case TD_VALUE_STATE: {
        const struct td_state_info *s = td_state_at(td_graph_state(c->graph), info->index);
        o.base = (char *)td_buffer_host(c->bindings->region[s->role]) + s->offset;
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

static td_status refuse(const struct compiler *c, td_node n, const char *why) {
    return td_fail(TD_UNIMPLEMENTED,
                   "the cpu accelerator cannot run node %u (%s): %s. Use `accelerator: reference`",
                   n, td_op_name(td_graph_node(c->graph, n)->op), why);
}

static bool type_fits(enum td_op op, uint32_t operand, enum td_dtype t) {
    if (t == TD_F32) return true;
    if (op == TD_OP_CAST) return t == TD_U8;
    if (op == TD_OP_RESHAPE) return true;
    return t == TD_I32 && operand == 1 && (op == TD_OP_SOFTMAX_CE || op == TD_OP_COUNT_CORRECT);
}

// ---- kernels ------------------------------------------------------------------------------------
static td_status run_gemm(const struct td_kernel *k, const struct td_run *r) {
    const void *bias = k->n_in > 2 ? td_operand_at(&k->in[2], r) : NULL;
    return td_gemm_run(k->gemm, td_operand_at(&k->in[0], r), td_operand_at(&k->in[1], r), bias,
                       td_operand_at(&k->out[0], r));
}

// A product with an empty dimension: oneDNN has none. k = 0 leaves act(bias).
static td_status run_empty_gemm(const struct td_kernel *k, const struct td_run *r) {
    float *y = td_operand_at(&k->out[0], r);
    const float *bias = k->n_in > 2 ? td_operand_at(&k->in[2], r) : NULL;
    int64_t cols = k->out_shape.n_dims ? k->out_shape.dim[k->out_shape.n_dims - 1] : 1;
    for (int64_t i = 0; i < k->elems; i++) {
        float v = bias ? bias[i % cols] : 0;
        if (k->attrs.act == TD_ACT_RELU && v < 0) v = 0;
        y[i] = k->attrs.accumulate ? y[i] + v : v;
    }
    return TD_OK;
}

static td_status run_all_reduce(const struct td_kernel *k, const struct td_run *r) {
    (void)r;
    if (!k->all_reduce) return TD_OK; // a world of one
    return k->all_reduce(k->all_reduce_arg, k->attrs.bucket);
}

static td_status run_output(const struct td_kernel *k, const struct td_run *r) {
    *(float *)td_operand_at(&k->out[0], r) = *(const float *)td_operand_at(&k->in[0], r);
    return TD_OK;
}

static td_status add_gemm(const struct compiler *c, const struct td_node_info *n,
                          struct td_kernel *k) {
    const struct td_shape *a = &k->shape[0], *b = &k->shape[1];
    const struct td_value_info *bv = td_graph_value(c->graph, n->inputs[1]);
    int64_t a_cols = a->dim[a->n_dims - 1];
    int64_t a_rows = a_cols ? td_shape_elems(a) / a_cols : 0;
    struct td_gemm_spec s = {
        .m = n->attrs.trans_a ? a_cols : a_rows,
        .k = n->attrs.trans_a ? a_rows : a_cols,
        .n = b->dim[n->attrs.trans_b ? 0 : 1],
        .trans_a = n->attrs.trans_a,
        .trans_b = n->attrs.trans_b,
        .has_bias = n->n_inputs > 2,
        .accumulate = n->attrs.accumulate,
        .act = n->attrs.act,
    };
    bool is_param = bv->kind == TD_VALUE_STATE &&
                    td_state_at(td_graph_state(c->graph), bv->index)->role == TD_ROLE_PARAM;
    if (is_param) s.param = k->in[1].base;
    if (!s.m || !s.n || !s.k) {
        k->run = run_empty_gemm;
        return TD_OK;
    }
    k->run = run_gemm;
    return td_gemm_create(c->accel->dnnl, &s, &k->gemm);
}

static td_status add_operands(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    bool many = n->op == TD_OP_SUM_SQUARES || n->op == TD_OP_ALL_FINITE;
    k->n_in = n->n_inputs;
    if (many) {
        k->many = td_calloc(n->n_inputs, sizeof *k->many);
        k->many_elems = td_calloc(n->n_inputs, sizeof *k->many_elems);
        if (!k->many || !k->many_elems) return td_fail_oom();
    }
    for (uint32_t i = 0; i < n->n_inputs && n->op != TD_OP_ALL_REDUCE; i++) {
        const struct td_value_info *v = td_graph_value(c->graph, n->inputs[i]);
        if (!type_fits(n->op, i, v->dtype)) return refuse(c, node, td_dtype_name(v->dtype));
        if (many) {
            TD_TRY(resolve(c, n->inputs[i], &k->many[i]));
            k->many_elems[i] = td_shape_elems(&v->shape);
            continue;
        }
        TD_CHECK(i < TD_CPU_MAX_IN);
        TD_TRY(resolve(c, n->inputs[i], &k->in[i]));
        k->shape[i] = v->shape;
        if (i == 0) k->in_dtype = v->dtype;
    }
    return TD_OK;
}

static td_status add_results(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    td_value first = n->into ? n->into : n->n_outputs ? n->outputs[0] : 0;
    if (n->into) TD_TRY(resolve(c, n->into, &k->out[0]));
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        const struct td_value_info *v = td_graph_value(c->graph, n->outputs[i]);
        bool any_type = n->op == TD_OP_RESHAPE;
        if (v->dtype != TD_F32 && !any_type) return refuse(c, node, td_dtype_name(v->dtype));
        TD_TRY(resolve(c, n->outputs[i], &k->out[i]));
    }
    if (first) {
        k->out_shape = td_graph_value(c->graph, first)->shape;
        k->elems = td_shape_elems(&k->out_shape);
    }
    return TD_OK;
}

static void set_rows(struct td_kernel *k) {
    const struct td_shape *s = &k->shape[0];
    int64_t elems = td_shape_elems(s);
    k->cols = s->n_dims ? s->dim[s->n_dims - 1] : 1;
    k->rows = k->cols ? elems / k->cols : s->n_dims > 1 ? s->dim[0] : 0;
}

static td_kernel_fn *find_kernel(enum td_op op) {
    td_kernel_fn *const found[] = {td_kernel_elementwise(op), td_kernel_activation(op),
                                   td_kernel_reduce(op), td_kernel_optim(op)};
    for (size_t i = 0; i < TD_COUNTOF(found); i++) {
        if (found[i]) return found[i];
    }
    return NULL;
}

static td_status choose_kernel(const struct compiler *c, td_node node, struct td_kernel *k) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    if (n->op == TD_OP_MATMUL) return add_gemm(c, n, k);
    if (n->op == TD_OP_ALL_REDUCE) {
        k->run = run_all_reduce;
        return TD_OK;
    }
    k->run = find_kernel(n->op);
    return TD_OK;
}

static td_status add_kernel(struct compiler *c, td_node node) {
    const struct td_node_info *n = td_graph_node(c->graph, node);
    bool special = n->op == TD_OP_MATMUL || n->op == TD_OP_ALL_REDUCE;
    if (!special && !find_kernel(n->op)) return refuse(c, node, "no kernel");
    struct td_kernel *k = &c->exe->kernel[c->exe->n_kernels++];
    k->segment = n->segment;
    k->n_threads = c->accel->n_threads;
    k->attrs = n->attrs;
    k->scalars = c->bindings->scalars;
    k->all_reduce = c->bindings->all_reduce;
    k->all_reduce_arg = c->bindings->all_reduce_arg;
    TD_TRY(add_operands(c, node, k));
    TD_TRY(add_results(c, node, k));
    set_rows(k);
    TD_TRY_CTX(choose_kernel(c, node, k), "node %u (%s)", node, td_op_name(n->op));
    size_t scratch = td_kernel_scratch_bytes(n->op, k->rows);
    if (scratch) {
        k->scratch = td_calloc(1, scratch);
        if (!k->scratch) return td_fail_oom();
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
        struct td_kernel *k = &c->exe->kernel[c->exe->n_kernels++];
        k->segment = td_graph_node(c->graph, node)->segment;
        k->run = run_output;
        TD_TRY(resolve(c, v, &k->in[0]));
        k->out[0].base = (char *)(c->bindings->outputs + i);
    }
    return TD_OK;
}

static td_status compile_nodes(struct compiler *c) {
    uint32_t n = td_graph_n_nodes(c->graph);
    size_t most = (size_t)n + td_graph_n_outputs(c->graph);
    c->exe->kernel = td_calloc(most ? most : 1, sizeof *c->exe->kernel);
    if (!c->exe->kernel) return td_fail_oom();
    td_dnnl_new_program(c->accel->dnnl);
    for (td_node i = 0; i < n; i++) {
        TD_TRY(add_kernel(c, i));
        TD_TRY(add_outputs(c, i));
    }
    return TD_OK;
}

td_status td_cpu_compile(struct td_accelerator *a, const struct td_program *p,
                         const struct td_bindings *b, struct td_executable **out_exe) {
    struct td_executable *e = td_calloc(1, sizeof *e);
    if (!e) return td_fail_oom();
    e->magic = td_executable_magic;
    e->accel = a;
    struct compiler c = {.accel = a, .program = p, .graph = p->graph, .bindings = b, .exe = e};
    td_status failed = compile_nodes(&c);
    if (failed) {
        td_cpu_release(e);
        return td_status_context(failed, "compile step '%s' for %lld samples", p->key.step,
                                 (long long)p->key.batch);
    }
    *out_exe = e;
    return TD_OK;
}

void td_cpu_release(struct td_executable *e) {
    if (!e) return;
    for (uint32_t i = 0; i < e->n_kernels; i++) {
        td_gemm_destroy(e->kernel[i].gemm);
        free(e->kernel[i].scratch);
        free(e->kernel[i].many);
        free(e->kernel[i].many_elems);
    }
    free(e->kernel);
    e->magic = 0;
    free(e);
}
