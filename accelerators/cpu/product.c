// From a matmul node to a product of gemm.c: sizes, types, and where a weight really is.
//
// Under a mixed precision a program casts each parameter once, at its front, and products read the
// cast. Here products look through it: a weight that is packed anyway is packed from the parameter,
// a bias is read in the parameter's type. A cast that nobody else reads is then not run at all
// (td_product_absorbs) and takes no memory, so that mixed precision costs no pass over the weights.
//
// An activation's gradient after a product (attrs.then) is the kernel that would run by itself,
// over the product's result: no bits differ. Rejected, because slower: products in blocks of rows
// whose result is still in the cache, and forward products with a post-op (docs/engine.md).

#include "accelerators/cpu/product.h"

#include "traind/op.h"
#include "accelerators/cpu/gemm.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "lib/base/floats/floats.h"

// ---- where a weight is --------------------------------------------------------------------------
const char *td_product_param(const struct td_product_site *s, td_value v,
                             enum td_dtype *out_dtype) {
    const struct td_graph *g = s->program->graph;
    const struct td_value_info *info = td_graph_value(g, v);
    if (info->kind == TD_VALUE_NODE) {
        const struct td_node_info *cast = td_graph_node(g, info->node);
        bool plain = cast->attrs.scale == 0 || cast->attrs.scale == 1;
        if (cast->op != TD_OP_CAST || !plain) return NULL;
        info = td_graph_value(g, cast->inputs[0]);
    }
    if (info->kind != TD_VALUE_STATE) return NULL;
    const struct td_state_info *t = td_state_at(td_graph_state(g), info->index);
    if (t->role != TD_ROLE_PARAM || t->dtype == TD_F64) return NULL;
    *out_dtype = t->dtype;
    return (const char *)td_buffer_host(s->bindings->region[TD_ROLE_PARAM]) + t->offset;
}

static const struct td_value_info *value_of(const struct td_product_site *s, td_value v) {
    return td_graph_value(s->program->graph, v);
}

static struct td_gemm_spec spec_of(const struct td_product_site *s, const struct td_node_info *n) {
    const struct td_shape *a = &value_of(s, n->inputs[0])->shape;
    const struct td_shape *b = &value_of(s, n->inputs[1])->shape;
    int64_t a_cols = a->dim[a->n_dims - 1];
    int64_t a_rows = a_cols ? td_shape_elems(a) / a_cols : 0;
    struct td_gemm_spec spec = {
        .m = n->attrs.trans_a ? a_cols : a_rows,
        .k = n->attrs.trans_a ? a_rows : a_cols,
        .n = b->dim[n->attrs.trans_b ? 0 : 1],
        .trans_a = n->attrs.trans_a,
        .trans_b = n->attrs.trans_b,
        .has_bias = n->n_inputs > 2 && !n->attrs.then,
        .accumulate = n->attrs.accumulate,
        .act = n->attrs.act,
        .operands = value_of(s, n->inputs[0])->dtype,
        .result = value_of(s, n->into ? n->into : n->outputs[0])->dtype,
    };
    spec.param = td_product_param(s, n->inputs[1], &spec.stored);
    return spec;
}

static bool is_empty(const struct td_gemm_spec *spec) {
    return !spec->m || !spec->n || !spec->k;
}

// Does this node read v only through the parameter that it is cast from?
static bool reads_param(const struct td_product_site *s, td_node at, td_value v) {
    const struct td_node_info *n = td_graph_node(s->program->graph, at);
    bool head = n->op == TD_OP_LINEAR_CE || n->op == TD_OP_LINEAR_CE_GRAD;
    if (head) return n->inputs[1] == v && n->inputs[0] != v && td_kernels()->linear_ce_packs(s, at);
    if (n->op != TD_OP_MATMUL || n->inputs[0] == v) return false;
    struct td_gemm_spec spec = spec_of(s, n);
    if (!td_gemm_takes(spec.operands, spec.result) || is_empty(&spec)) return false;
    if (n->attrs.then && n->inputs[2] == v) return false;
    return n->inputs[1] != v || td_gemm_packs(&spec);
}

bool td_product_absorbs(const struct td_product_site *site, td_node cast) {
    const struct td_graph *g = site->program->graph;
    const struct td_node_info *node = td_graph_node(g, cast);
    enum td_dtype stored;
    if (node->op != TD_OP_CAST || !node->n_outputs) return false; // none: it writes a gradient
    if (!td_product_param(site, node->outputs[0], &stored)) return false;
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *reader = td_graph_node(g, n);
        for (uint32_t i = 0; i < reader->n_inputs; i++) {
            if (reader->inputs[i] != node->outputs[0]) continue;
            if (!reads_param(site, n, node->outputs[0])) return false;
        }
    }
    return !td_kernel_is_output(g, node->outputs[0]);
}

// ---- kernels ------------------------------------------------------------------------------------
static const void *bias_of(const struct td_kernel *k, const struct td_run *r) {
    return k->n_in > 2 && !k->attrs.then ? td_operand_at(&k->in[2], r) : NULL;
}

static td_status run_product(const struct td_kernel *k, const struct td_run *r) {
    return td_gemm_run(k->gemm, td_operand_at(&k->in[0], r), td_operand_at(&k->in[1], r),
                       bias_of(k, r), td_operand_at(&k->out[0], r));
}

static float bias_at(enum td_dtype t, const void *bias, int64_t i) {
    float v;
    td_float_convert(t, (const char *)bias + i * (int64_t)td_dtype_bytes(t), 1, TD_F32, &v);
    return v;
}

// A product with an empty dimension: oneDNN has none. k = 0 leaves act(bias).
static td_status run_empty(const struct td_kernel *k, const struct td_run *r) {
    void *y = td_operand_at(&k->out[0], r);
    const void *bias = bias_of(k, r);
    int64_t cols = k->out_shape.n_dims ? k->out_shape.dim[k->out_shape.n_dims - 1] : 1;
    for (int64_t i = 0; i < k->elems; i++) {
        float old, v = 0;
        char *to = (char *)y + i * (int64_t)td_dtype_bytes(k->out_dtype[0]);
        if (bias) v = bias_at(k->in_dtype[2], bias, i % cols);
        if (k->attrs.act == TD_ACT_RELU && v < 0) v = 0;
        td_float_convert(k->out_dtype[0], to, 1, TD_F32, &old);
        if (k->attrs.accumulate) v += old;
        td_float_convert(TD_F32, &v, 1, k->out_dtype[0], to);
    }
    return TD_OK;
}

// The gradient after a product: a kernel of kernels/activation.c, owned by the product's.
struct then {
    struct td_kernel kernel;
    struct td_operand in[2]; // from, and the product's result
    enum td_dtype dtype[2];
};

static td_status run_product_then(const struct td_kernel *k, const struct td_run *r) {
    struct then *t = k->own;
    TD_TRY(run_product(k, r));
    t->in[0] = k->in[2]; // only now is it known where an image is
    t->in[1] = t->kernel.out[0] = k->out[0];
    return t->kernel.run(&t->kernel, r);
}

static td_status take_then(struct td_kernel *k) {
    struct then *t = td_calloc(1, sizeof *t);
    if (!t) return td_fail_oom();
    k->own = t;
    k->destroy_own = free;
    k->run = run_product_then;
    t->dtype[0] = t->dtype[1] = k->out_dtype[0];
    t->kernel = (struct td_kernel){
        .op = k->attrs.then,
        .name = td_op_name(k->attrs.then),
        .n_threads = k->n_threads,
        .n_in = 2,
        .n_out = 1,
        .in = t->in,
        .in_dtype = t->dtype,
        .out_dtype = {k->out_dtype[0]},
        .attrs = k->attrs,
        .elems = k->elems,
    };
    return td_kernels()->activation(&t->kernel);
}

td_status td_product_take(struct td_kernel *k, const struct td_product_site *site, td_node n) {
    const struct td_node_info *node = td_graph_node(site->program->graph, n);
    struct td_gemm_spec spec = spec_of(site, node);
    if (!td_gemm_takes(spec.operands, spec.result)) return TD_OK;
    if (is_empty(&spec)) {
        k->run = run_empty;
        return TD_OK;
    }
    if (!td_gemm_packs(&spec)) spec.param = NULL;
    if (spec.param) k->in[1] = (struct td_operand){.base = td_unconst(spec.param)};
    if (spec.has_bias) {
        const char *bias = td_product_param(site, node->inputs[2], &k->in_dtype[2]);
        if (bias) k->in[2] = (struct td_operand){.base = td_unconst(bias)};
        spec.bias = k->in_dtype[2];
    }
    k->run = run_product;
    if (k->attrs.then) TD_TRY(take_then(k));
    return td_gemm_create(site->accel, &spec, &k->gemm);
}
