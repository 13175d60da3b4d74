// One convolution; contract in conv_run.h.
//
// Weights and their gradient are plain for everybody else; inside, their layout is left to oneDNN
// (format any). A forward or data-gradient primitive reads a pack that is made again once a step. A
// weight-gradient primitive writes into memory of its own. That is then put into plain order, or
// added to what is there, which costs little beside the convolution. Where the weights are a
// parameter, primitives that want the same layout share the pack.

#include "accelerators/cpu/onednn/conv_run.h"

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/onednn/weights.h"
#include "accelerators/cpu/parallel.h"

enum { MAX_DNNL_ARGS = 6 };

// ---- create -------------------------------------------------------------------------------------
// A gradient of weights: oneDNN writes its own layout; what is plain already is written where it
// belongs.
static td_status make_unpack(struct td_conv *v, const struct td_conv_descs *d,
                             const struct td_md *layout) {
    dnnl_engine_t engine = v->engine->engine;
    if (!v->shape.accumulate && td_md_equal(layout, d->w_plain)) return TD_OK;
    v->own_bytes = td_md_bytes(layout);
    v->own = td_cpu_memory_alloc(v->engine->memory, v->own_bytes);
    if (!v->own) return td_fail_oom();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    if (!s) s = dnnl_post_ops_create(&ops);
    if (!s && v->shape.accumulate) s = td_post_ops_sum(ops);
    if (!s) s = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (!s) s = td_pd_reorder(engine, layout, d->w_plain, attr, &v->unpack.pd);
    if (!s) s = td_md_memory(d->w_plain, engine, DNNL_MEMORY_NONE, &v->w_plain);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return s ? td_dnnl_fail(s, "unpack a weight gradient") : TD_OK;
}

const struct td_md *td_conv_weights(const struct td_conv *v, const struct td_conv_descs *d) {
    const bool grad_w = v->shape.kind == TD_CONV_GRAD_W;
    if (v->is_own_winograd) return d->w_plain;
    return td_pd_borrow_md(v->primitive.pd,
                           grad_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
}

static size_t take(size_t *bytes, int64_t floats) {
    size_t at = td_align_up(*bytes, 64);
    *bytes = at + (size_t)floats * sizeof(float);
    return at;
}

// Widened operands are after what the primitive writes in the scratch.
static void lay_wide(struct td_conv *v, size_t *bytes) {
    const struct td_conv_shape *s = &v->shape;
    int64_t groups = td_window_at_least_one(s->window.groups);
    struct td_conv_widened *w = &v->wide;
    w->x = s->n * s->c * s->h * s->w;
    w->y = s->n * s->o * s->out_h * s->out_w;
    w->w = s->o * (s->c / groups) * s->kernel[0] * s->kernel[1];
    w->bias = s->has_bias ? s->o : 0;
    w->x_at = take(bytes, w->x);
    w->y_at = take(bytes, w->y);
    w->w_at = take(bytes, w->w);
    w->bias_at = take(bytes, w->bias);
}

static td_status make_operands(struct td_conv *v, const struct td_conv_descs *d) {
    dnnl_engine_t engine = v->engine->engine;
    const struct td_md *w = td_conv_weights(v, d);
    const struct td_md *scratch = td_pd_borrow_md(v->primitive.pd, dnnl_query_scratchpad_md);
    DNNL_TRY(td_md_memory(d->x, engine, DNNL_MEMORY_NONE, &v->x), "operand x");
    DNNL_TRY(td_md_memory(d->y, engine, DNNL_MEMORY_NONE, &v->y), "operand y");
    DNNL_TRY(td_md_memory(w, engine, DNNL_MEMORY_NONE, &v->w), "weights");
    DNNL_TRY(td_md_memory(scratch, engine, DNNL_MEMORY_NONE, &v->scratch), "scratch");
    if (v->shape.has_bias) {
        DNNL_TRY(td_md_memory(d->bias, engine, DNNL_MEMORY_NONE, &v->bias), "bias");
    }
    size_t bytes = td_md_bytes(scratch);
    if (v->shape.given != v->shape.dtype) lay_wide(v, &bytes);
    return td_cpu_memory_grow_scratch(v->engine->memory, bytes);
}

static td_status make_memories(struct td_conv *v, const struct td_conv_descs *d) {
    const struct td_md *w = td_conv_weights(v, d);
    TD_TRY(make_operands(v, d));
    if (v->shape.kind == TD_CONV_GRAD_W) return make_unpack(v, d, w);
    if (td_md_equal(w, d->w_plain)) return TD_OK;
    return td_dnnl_pack_get(v->engine, v->shape.param, d->w_plain, w, &v->pack);
}

// Makes v our own Winograd, and makes scratch for what it writes.
static td_status make_winograd(struct td_conv *v) {
    const struct td_conv_shape *s = &v->shape;
    const bool forward = s->kind == TD_CONV_FORWARD;
    v->is_own_winograd = true;
    v->winograd = (struct td_winograd){
        .n = s->n,
        .c = forward ? s->c : s->o,
        .h = forward ? s->h : s->out_h,
        .w = forward ? s->w : s->out_w,
        .o = forward ? s->o : s->c,
        .out_h = forward ? s->out_h : s->h,
        .out_w = forward ? s->out_w : s->w,
        .gradient = !forward,
        .n_threads = td_parallel_threads(),
    };
    for (int i = 0; i < 2; i++) {
        v->winograd.pad[i] = forward ? s->window.pad[i] : 2 - s->window.pad[i];
    }
    size_t bytes = td_kernels()->winograd_scratch_bytes(&v->winograd);
    if (s->given != s->dtype) lay_wide(v, &bytes);
    return td_cpu_memory_grow_scratch(v->engine->memory, bytes);
}

static td_status describe(struct td_conv *v, const struct td_conv_descs *d,
                          enum td_conv_algorithm algorithm) {
    static const dnnl_alg_kind_t kinds[] = {
        [TD_CONV_WINOGRAD] = dnnl_convolution_winograd, [TD_CONV_DIRECT] = dnnl_convolution_direct};
    DNNL_TRY(td_conv_pd(&v->shape, v->engine->engine, d, kinds[algorithm], &v->primitive.pd),
             "describe a convolution");
    return TD_OK;
}

td_status td_conv_init(struct td_conv *v, struct td_dnnl *e, const struct td_conv_shape *s,
                       const struct td_conv_descs *d, enum td_conv_algorithm algorithm) {
    *v = (struct td_conv){.engine = e, .shape = *s};
    if (algorithm == TD_CONV_OWN_WINOGRAD) return make_winograd(v);
    TD_TRY(describe(v, d, algorithm));
    v->slow = td_pd_is_reference(v->primitive.pd);
    return make_memories(v, d);
}

td_status td_conv_init_bare(struct td_conv *v, struct td_dnnl *e, const struct td_conv_shape *s,
                            const struct td_conv_descs *d, enum td_conv_algorithm algorithm) {
    struct td_pack *pack;
    *v = (struct td_conv){.engine = e, .shape = *s};
    if (algorithm == TD_CONV_OWN_WINOGRAD) return make_winograd(v);
    TD_TRY(describe(v, d, algorithm));
    TD_TRY(make_operands(v, d));
    if (s->kind == TD_CONV_GRAD_W || !s->param) return TD_OK;
    return td_dnnl_pack_get(e, s->param, d->w_plain, td_conv_weights(v, d), &pack);
}

void td_conv_finish(struct td_conv *v) {
    td_dnnl_primitive_finish(&v->primitive);
    td_dnnl_primitive_finish(&v->unpack);
    dnnl_memory_destroy(v->x);
    dnnl_memory_destroy(v->w);
    dnnl_memory_destroy(v->bias);
    dnnl_memory_destroy(v->y);
    dnnl_memory_destroy(v->scratch);
    dnnl_memory_destroy(v->w_plain);
    if (v->own) td_cpu_memory_free(v->engine->memory, v->own, v->own_bytes);
}

// ---- run ----------------------------------------------------------------------------------------
static td_status set_address(dnnl_memory_t m, const void *p) {
    // oneDNN's handles are not const; only the result is written.
    DNNL_TRY(dnnl_memory_set_data_handle(m, td_unconst(p)), "set an address");
    return TD_OK;
}

static int name_args(const struct td_conv *v, dnnl_exec_arg_t args[MAX_DNNL_ARGS]) {
    static const int role[][3] = {
        [TD_CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [TD_CONV_GRAD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [TD_CONV_GRAD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    int n = 0;
    args[n++] = (dnnl_exec_arg_t){role[v->shape.kind][0], v->x};
    args[n++] =
        (dnnl_exec_arg_t){role[v->shape.kind][1], v->pack ? td_dnnl_pack_memory(v->pack) : v->w};
    args[n++] = (dnnl_exec_arg_t){role[v->shape.kind][2], v->y};
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, v->scratch};
    if (v->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, v->bias};
    return n;
}

static td_status run_on(struct td_conv *v, const void *x, const void *w, const void *bias,
                        const void *y) {
    TD_TRY(set_address(v->x, x));
    TD_TRY(set_address(v->w, w));
    TD_TRY(set_address(v->y, y));
    TD_TRY(set_address(v->scratch, v->engine->memory->scratch));
    if (v->bias) TD_TRY(set_address(v->bias, bias));
    dnnl_exec_arg_t args[MAX_DNNL_ARGS];
    int n = name_args(v, args);
    return td_dnnl_primitive_run(&v->primitive, v->engine->stream, n, args, "run a convolution");
}

static td_status unpack(struct td_conv *v, const void *result) {
    TD_TRY(set_address(v->w_plain, result));
    dnnl_exec_arg_t put[] = {{DNNL_ARG_FROM, v->w}, {DNNL_ARG_TO, v->w_plain}};
    return td_dnnl_primitive_run(&v->unpack, v->engine->stream, 2, put, "unpack a gradient");
}

// By our own Winograd; weights are read where they are.
static void run_winograd(const struct td_conv *v, const struct td_conv_operands *p) {
    const bool forward = v->shape.kind == TD_CONV_FORWARD;
    td_kernels()->winograd_run(&v->winograd, forward ? p->x : p->y, p->w, forward ? p->bias : NULL,
                               td_unconst(forward ? p->y : p->x), v->engine->memory->scratch);
}

td_status td_conv_run_bare(struct td_conv *v, const struct td_conv_operands *p) {
    if (!v->is_own_winograd) return run_on(v, p->x, p->w, p->bias, p->y);
    run_winograd(v, p);
    return TD_OK;
}

td_status td_conv_run(struct td_conv *v, const struct td_conv_operands *p) {
    if (v->is_own_winograd) return td_conv_run_bare(v, p);
    const void *w = v->shape.kind != TD_CONV_GRAD_W ? p->w : v->own ? v->own : p->result;
    if (v->pack) TD_TRY(td_packs_read(v->engine->packs, v->pack, p->w));
    TD_TRY(run_on(v, p->x, w, p->bias, p->y));
    return v->unpack.pd ? unpack(v, p->result) : TD_OK;
}
