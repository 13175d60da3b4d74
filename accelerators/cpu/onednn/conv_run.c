// Convolutions and the gradients of their operands, by oneDNN.
//
// Images come and go in the layouts that layout.c chose. Weights and their gradient are plain for
// everybody else; inside, their layout is left to oneDNN (format any): a forward or data-gradient
// primitive reads a pack that is made again once a step, a weight-gradient primitive writes into
// memory of its own that is then put into plain order, or added to what is there, which costs
// little beside the convolution. Where the weights are a parameter, primitives that want the same
// layout share the pack.
//
// Algorithm: Winograd multiplies less (up to 2.25 times here), transforms and rounds more. It is
// for 3x3 filters of stride 1 in fp32, where both sides have whole blocks: oneDNN's where it has
// one (with AVX-512), else our own (kernels/winograd.c) for all but the gradient of weights. There
// it races with the direct one (tune.h), everything else is direct. The plan's bytes do not depend
// on who wins: the scratch is large enough for both, and the packs of both are held.
//
// Types: fp32, and bf16 where the CPU multiplies it. Elsewhere images and weights of 16 bits are
// widened into scratch, convolved in fp32, and the result is rounded once: at AVX-512 that takes
// half of the time of oneDNN's own convolutions of bf16, which widen in their innermost loop.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/winograd.h"
#include "accelerators/cpu/onednn/conv_shape.h"
#include "accelerators/cpu/onednn/onednn.h"
#include "accelerators/cpu/tune.h"

enum { MAX_DNNL_ARGS = 6 };

// Places in the scratch for operands and result as fp32, and their elements.
struct widened {
    bool used;
    size_t x_at, w_at, bias_at, y_at;
    int64_t x, w, bias, y;
};

struct conv {
    struct td_dnnl *engine;
    struct td_conv_shape spec;
    struct td_dnnl_primitive primitive;
    dnnl_memory_t x, w, bias, y, scratch;
    struct td_pack *pack; // NULL: weights are read where they lie
    // Of a gradient of weights: from own memory to the plain gradient; NULL: written where it lies.
    struct td_dnnl_primitive unpack;
    dnnl_memory_t w_plain;
    void *own; // memory of w
    size_t own_bytes;
    bool slow;            // oneDNN has nothing but its reference loops
    bool is_own_winograd; // no primitive, then
    struct td_winograd winograd;
    struct widened wide; // where the node's types are not the primitive's
};

// ---- create -------------------------------------------------------------------------------------
// A gradient of weights: oneDNN writes its own layout; what is plain already is written where it
// belongs.
static td_status make_unpack(struct conv *v, const struct td_conv_descs *d,
                             const struct td_md *layout) {
    dnnl_engine_t engine = v->engine->engine;
    if (!v->spec.accumulate && td_md_equal(layout, d->w_plain)) return TD_OK;
    v->own_bytes = td_md_bytes(layout);
    v->own = td_room_take(v->engine->room, v->own_bytes);
    if (!v->own) return td_fail_oom();
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    if (!s) s = dnnl_post_ops_create(&ops);
    if (!s && v->spec.accumulate) s = td_post_ops_sum(ops);
    if (!s) s = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (!s) s = td_pd_reorder(engine, layout, d->w_plain, attr, &v->unpack.pd);
    if (!s) s = td_md_memory(d->w_plain, engine, DNNL_MEMORY_NONE, &v->w_plain);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return s ? td_dnnl_fail(s, "unpack a weight gradient") : TD_OK;
}

// As the primitive wants its weights or their gradient.
static const struct td_md *weights_of(const struct conv *v) {
    bool grad_w = v->spec.kind == TD_CONV_GRAD_W;
    return td_pd_borrow_md(v->primitive.pd,
                           grad_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
}

static size_t take(size_t *bytes, int64_t floats) {
    size_t at = td_align_up(*bytes, 64);
    *bytes = at + (size_t)floats * sizeof(float);
    return at;
}

// Widened operands lie after what the primitive writes in the scratch.
static void lay_wide(struct conv *v, size_t *bytes) {
    const struct td_conv_shape *s = &v->spec;
    int64_t groups = td_window_at_least_one(s->window.groups);
    struct widened *w = &v->wide;
    w->used = true;
    w->x = s->n * s->c * s->h * s->w;
    w->y = s->n * s->o * s->out_h * s->out_w;
    w->w = s->o * (s->c / groups) * s->kernel[0] * s->kernel[1];
    w->bias = s->has_bias ? s->o : 0;
    w->x_at = take(bytes, w->x);
    w->y_at = take(bytes, w->y);
    w->w_at = take(bytes, w->w);
    w->bias_at = take(bytes, w->bias);
}

static td_status make_operands(struct conv *v, const struct td_conv_descs *d) {
    dnnl_engine_t engine = v->engine->engine;
    const struct td_md *w = weights_of(v);
    const struct td_md *scratch = td_pd_borrow_md(v->primitive.pd, dnnl_query_scratchpad_md);
    DNNL_TRY(td_md_memory(d->x, engine, DNNL_MEMORY_NONE, &v->x), "operand x");
    DNNL_TRY(td_md_memory(d->y, engine, DNNL_MEMORY_NONE, &v->y), "operand y");
    DNNL_TRY(td_md_memory(w, engine, DNNL_MEMORY_NONE, &v->w), "weights");
    DNNL_TRY(td_md_memory(scratch, engine, DNNL_MEMORY_NONE, &v->scratch), "scratch");
    if (v->spec.has_bias) {
        DNNL_TRY(td_md_memory(d->bias, engine, DNNL_MEMORY_NONE, &v->bias), "bias");
    }
    size_t bytes = td_md_bytes(scratch);
    if (v->spec.given != v->spec.dtype) lay_wide(v, &bytes);
    return td_room_want(v->engine->room, bytes);
}

static td_status make_memories(struct conv *v, const struct td_conv_descs *d) {
    const struct td_md *w = weights_of(v);
    TD_TRY(make_operands(v, d));
    if (v->spec.kind == TD_CONV_GRAD_W) return make_unpack(v, d, w);
    if (td_md_equal(w, d->w_plain)) return TD_OK;
    return td_dnnl_pack_get(v->engine, v->spec.param, d->w_plain, w, &v->pack);
}

static void finish(struct conv *v) {
    td_dnnl_primitive_finish(&v->primitive);
    td_dnnl_primitive_finish(&v->unpack);
    dnnl_memory_destroy(v->x);
    dnnl_memory_destroy(v->w);
    dnnl_memory_destroy(v->bias);
    dnnl_memory_destroy(v->y);
    dnnl_memory_destroy(v->scratch);
    dnnl_memory_destroy(v->w_plain);
    if (v->own) td_room_give(v->engine->room, v->own, v->own_bytes);
}

static void destroy(void *own) {
    finish(own);
    free(own);
}

// ---- run ----------------------------------------------------------------------------------------
static td_status set_address(dnnl_memory_t m, const void *p) {
    // oneDNN's handles are not const; only the result is written.
    DNNL_TRY(dnnl_memory_set_data_handle(m, (void *)(uintptr_t)p), "set an address");
    return TD_OK;
}

static int name_args(const struct conv *v, dnnl_exec_arg_t args[MAX_DNNL_ARGS]) {
    static const int role[][3] = {
        [TD_CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [TD_CONV_GRAD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [TD_CONV_GRAD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    int n = 0;
    args[n++] = (dnnl_exec_arg_t){role[v->spec.kind][0], v->x};
    args[n++] =
        (dnnl_exec_arg_t){role[v->spec.kind][1], v->pack ? td_dnnl_pack_memory(v->pack) : v->w};
    args[n++] = (dnnl_exec_arg_t){role[v->spec.kind][2], v->y};
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, v->scratch};
    if (v->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, v->bias};
    return n;
}

static td_status run_on(struct conv *v, const void *x, const void *w, const void *bias,
                        const void *y) {
    TD_TRY(set_address(v->x, x));
    TD_TRY(set_address(v->w, w));
    TD_TRY(set_address(v->y, y));
    TD_TRY(set_address(v->scratch, v->engine->room->scratch));
    if (v->bias) TD_TRY(set_address(v->bias, bias));
    dnnl_exec_arg_t args[MAX_DNNL_ARGS];
    int n = name_args(v, args);
    return td_dnnl_primitive_run(&v->primitive, v->engine->stream, n, args, "run a convolution");
}

static td_status unpack(struct conv *v, const void *result) {
    TD_TRY(set_address(v->w_plain, result));
    dnnl_exec_arg_t put[] = {{DNNL_ARG_FROM, v->w}, {DNNL_ARG_TO, v->w_plain}};
    return td_dnnl_primitive_run(&v->unpack, v->engine->stream, 2, put, "unpack a gradient");
}

// What the primitive is given: the node's operands, or places in the scratch.
struct places {
    const void *x, *w, *bias, *y;
    const void *result; // a gradient of weights: the plain one
};

// By our own Winograd; weights are read where they lie.
static void run_winograd(const struct conv *v, const struct places *p) {
    const bool forward = v->spec.kind == TD_CONV_FORWARD;
    td_kernels()->winograd_run(&v->winograd, forward ? p->x : p->y, p->w, forward ? p->bias : NULL,
                               (float *)(uintptr_t)(forward ? p->y : p->x),
                               v->engine->room->scratch);
}

static td_status run_places(struct conv *v, const struct places *p) {
    if (v->is_own_winograd) {
        run_winograd(v, p);
        return TD_OK;
    }
    const void *w = v->spec.kind != TD_CONV_GRAD_W ? p->w : v->own ? v->own : p->result;
    if (v->pack) TD_TRY(td_packs_read(v->engine->packs, v->pack, p->w));
    TD_TRY(run_on(v, p->x, w, p->bias, p->y));
    return v->unpack.pd ? unpack(v, p->result) : TD_OK;
}

static struct places places_of(const struct td_kernel *k, const struct td_run *r) {
    const struct conv *v = k->own;
    const enum td_conv_kind kind = v->spec.kind;
    const void *a = td_operand_at(&k->in[0], r), *b = td_operand_at(&k->in[1], r);
    const void *result = td_operand_at(&k->out[0], r);
    return (struct places){
        .x = kind == TD_CONV_GRAD_X ? result : a,
        .y = kind == TD_CONV_FORWARD  ? result
             : kind == TD_CONV_GRAD_X ? a
                                      : b,
        .w = b,
        .bias = v->spec.has_bias ? td_operand_at(&k->in[2], r) : NULL,
        .result = result,
    };
}

static td_status run_conv(const struct td_kernel *k, const struct td_run *r) {
    struct places p = places_of(k, r);
    return run_places(k->own, &p);
}

// The same by widened operands.
static td_status run_wide(const struct td_kernel *k, const struct td_run *r) {
    struct conv *v = k->own;
    const struct widened *w = &v->wide;
    const struct td_conv_shape *s = &v->spec;
    const struct places given = places_of(k, r);
    char *scratch = v->engine->room->scratch;
    float *x = (float *)(scratch + w->x_at), *y = (float *)(scratch + w->y_at);
    float *weights = (float *)(scratch + w->w_at), *bias = (float *)(scratch + w->bias_at);
    const struct td_kernel_table *t = td_kernels();
    const bool narrow_w = s->w_given != TD_F32; // else a gradient is written where it belongs
    struct places p = {.x = x, .w = weights, .bias = s->has_bias ? bias : NULL, .y = y};
    p.result = s->kind == TD_CONV_GRAD_W && !narrow_w ? given.result : weights;
    if (s->kind != TD_CONV_GRAD_X) t->convert(k->n_threads, s->given, given.x, TD_F32, x, w->x);
    if (s->kind != TD_CONV_FORWARD) t->convert(k->n_threads, s->given, given.y, TD_F32, y, w->y);
    if (s->kind != TD_CONV_GRAD_W)
        t->convert(k->n_threads, s->w_given, given.w, TD_F32, weights, w->w);
    if (s->kind == TD_CONV_GRAD_W && narrow_w && s->accumulate)
        t->convert(k->n_threads, s->w_given, given.result, TD_F32, weights, w->w);
    if (s->has_bias) t->convert(k->n_threads, k->in_dtype[2], given.bias, TD_F32, bias, w->bias);
    TD_TRY(run_places(v, &p));
    void *result = (void *)(uintptr_t)given.result;
    if (s->kind == TD_CONV_FORWARD) t->convert(k->n_threads, TD_F32, y, s->given, result, w->y);
    if (s->kind == TD_CONV_GRAD_X) t->convert(k->n_threads, TD_F32, x, s->given, result, w->x);
    if (s->kind == TD_CONV_GRAD_W && narrow_w)
        t->convert(k->n_threads, TD_F32, weights, s->w_given, result, w->w);
    return TD_OK;
}

// No images, or no channels: nothing is summed.
static td_status run_empty(const struct td_kernel *k, const struct td_run *r) {
    void *y = td_operand_at(&k->out[0], r);
    size_t bytes = (size_t)k->elems * td_dtype_bytes(k->out_dtype[0]);
    if (!k->attrs.accumulate) memset(y, 0, bytes);
    return TD_OK;
}

// ---- choosing -----------------------------------------------------------------------------------
enum algorithm { WINOGRAD, OWN_WINOGRAD, DIRECT };
static const char *const algorithm_names[] = {"winograd", "own_winograd", "direct"};
static const dnnl_alg_kind_t dnnl_algorithms[] = {
    [WINOGRAD] = dnnl_convolution_winograd, [DIRECT] = dnnl_convolution_direct};
enum { N_WAYS = 2 };

struct race {
    struct conv way[N_WAYS];
    void *x, *bias, *y, *w[N_WAYS];
};

static td_status race_run(void *arg, int way) {
    struct race *r = arg;
    struct conv *v = &r->way[way];
    if (!v->is_own_winograd) return run_on(v, r->x, r->w[way], r->bias, r->y);
    struct places p = {.x = r->x, .w = r->w[way], .bias = r->bias, .y = r->y};
    run_winograd(v, &p);
    return TD_OK;
}

// Zeroes, aligned like everything that oneDNN is given here: Winograd counts on it.
static void *race_room(const struct td_md *md) {
    enum { ALIGN = 64 };
    size_t bytes = td_align_up(TD_MAX(td_md_bytes(md), (size_t)1), ALIGN);
    void *p = aligned_alloc(ALIGN, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

// Makes v our own Winograd, and room for what it writes.
static td_status make_winograd(struct conv *v) {
    const struct td_conv_shape *s = &v->spec;
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
    return td_room_want(v->engine->room, bytes);
}

// What a primitive holds and, if it races, how it runs.
static td_status enter_primitive(struct conv *w, const struct td_conv_descs *d, dnnl_alg_kind_t alg,
                                 bool races, void **out_weights) {
    struct td_pack *pack;
    DNNL_TRY(td_conv_pd(&w->spec, w->engine->engine, d, alg, &w->primitive.pd), "describe a way");
    const struct td_md *weights = weights_of(w);
    TD_TRY(make_operands(w, d));
    if (w->spec.kind != TD_CONV_GRAD_W && w->spec.param) {
        TD_TRY(td_dnnl_pack_get(w->engine, w->spec.param, d->w_plain, weights, &pack));
    }
    if (!races) return TD_OK;
    *out_weights = race_room(weights);
    return *out_weights ? TD_OK : td_fail_oom();
}

// One way to compute what v does.
static td_status enter(const struct conv *v, const struct td_conv_descs *d, int way,
                       enum algorithm alg, bool races, struct race *r) {
    struct conv *w = &r->way[way];
    w->engine = v->engine;
    w->spec = v->spec;
    if (alg != OWN_WINOGRAD) return enter_primitive(w, d, dnnl_algorithms[alg], races, &r->w[way]);
    TD_TRY(make_winograd(w));
    if (races) r->w[way] = race_room(d->w_plain);
    return !races || r->w[way] ? TD_OK : td_fail_oom();
}

static td_status make_operands_of_race(const struct td_conv_descs *d, struct race *r) {
    r->x = race_room(d->x);
    r->y = race_room(d->y);
    r->bias = race_room(d->bias);
    return r->x && r->y && r->bias ? TD_OK : td_fail_oom();
}

static void race_finish(struct race *r) {
    for (int i = 0; i < N_WAYS; i++) {
        finish(&r->way[i]);
        free(r->w[i]);
    }
    free(r->x);
    free(r->bias);
    free(r->y);
}

static bool wants_winograd(const struct td_conv_shape *s) {
    bool plain = td_window_at_least_one(s->window.groups) == 1;
    for (int i = 0; i < 2; i++) {
        plain = plain && s->kernel[i] == 3 && td_window_at_least_one(s->window.stride[i]) == 1 &&
                td_window_at_least_one(s->window.dilation[i]) == 1;
    }
    return plain && s->dtype == TD_F32 && s->x_layout == TD_LAYOUT_BLOCKED &&
           s->y_layout == TD_LAYOUT_BLOCKED;
}

// Which Winograd there is for this; DIRECT: none.
static td_status find_winograd(const struct conv *v, const struct td_conv_descs *d,
                               enum algorithm *out_alg) {
    const struct td_conv_shape *s = &v->spec;
    *out_alg = DIRECT;
    if (!wants_winograd(s)) return TD_OK;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = td_conv_pd(s, v->engine->engine, d, dnnl_convolution_winograd, &pd);
    dnnl_primitive_desc_destroy(pd);
    if (st && st != dnnl_unimplemented) return td_dnnl_fail(st, "describe a convolution");
    bool own = s->kind != TD_CONV_GRAD_W && s->window.pad[0] <= 2 && s->window.pad[1] <= 2;
    *out_alg = !st ? WINOGRAD : own ? OWN_WINOGRAD : DIRECT;
    return TD_OK;
}

static td_status choose(const struct conv *v, const struct td_conv_descs *d,
                        enum algorithm *out_alg) {
    static const char *const kinds[] = {"forward", "backward data", "backward weights"};
    const struct td_conv_shape *s = &v->spec;
    enum algorithm winograd;
    TD_TRY(find_winograd(v, d, &winograd));
    *out_alg = DIRECT;
    if (winograd == DIRECT) return TD_OK;
    const enum algorithm algs[N_WAYS] = {winograd, DIRECT};
    const char *const names[N_WAYS] = {algorithm_names[winograd], algorithm_names[DIRECT]};
    char key[TD_TUNE_KEY_MAX];
    snprintf(key, sizeof key,
             "convolution %s %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " to %" PRId64
             " pad %dx%d",
             kinds[s->kind], s->n, s->c, s->h, s->w, s->o, s->window.pad[0], s->window.pad[1]);
    struct td_tune *tune = v->engine->tune;
    const bool races = td_tune_measures(tune, key, names, N_WAYS);
    const bool needs_all = races || v->engine->room->pretends; // a plan counts all (gemm.c)
    struct race r = {0};
    int way = 0;
    td_status failed = races ? make_operands_of_race(d, &r) : TD_OK;
    for (int i = 0; needs_all && i < N_WAYS && !failed; i++) {
        failed = enter(v, d, i, algs[i], races, &r);
    }
    if (!failed) failed = td_tune_pick(tune, key, names, N_WAYS, NULL, race_run, &r, &way);
    race_finish(&r);
    if (!failed) *out_alg = algs[way];
    return failed;
}

static td_status build_of(struct conv *v, struct td_conv_descs *d) {
    enum algorithm alg;
    DNNL_TRY(td_conv_describe(&v->spec, d), "describe images");
    TD_TRY(choose(v, d, &alg));
    if (alg == OWN_WINOGRAD) return make_winograd(v);
    DNNL_TRY(td_conv_pd(&v->spec, v->engine->engine, d, dnnl_algorithms[alg], &v->primitive.pd),
             "describe a convolution");
    v->slow = td_conv_is_reference(v->primitive.pd);
    return make_memories(v, d);
}

static td_status build(struct conv *v) {
    struct td_conv_descs d = {0};
    td_status failed = build_of(v, &d);
    td_conv_descs_finish(&d);
    return failed;
}

// ---- the family ---------------------------------------------------------------------------------
// One float type throughout; a weight gradient of 16-bit images may be fp32.
static bool types_fit(const struct td_kernel *k) {
    enum td_dtype t = k->in_dtype[0], y = k->out_dtype[0];
    bool same = t == TD_F32 || t == TD_BF16 || t == TD_F16;
    for (uint32_t i = 0; i < k->n_in; i++) {
        same = same && k->in_dtype[i] == t;
    }
    return same && (y == t || (k->op == TD_OP_CONV2D_GRAD_W && y == TD_F32));
}

td_status td_conv_take(struct td_kernel *k) {
    bool conv =
        k->op == TD_OP_CONV2D || k->op == TD_OP_CONV2D_GRAD_X || k->op == TD_OP_CONV2D_GRAD_W;
    if (!conv || !types_fit(k)) return TD_OK;
    bool empty = !td_shape_elems(&k->shape[0]) || !td_shape_elems(&k->shape[1]);
    if (empty && k->n_in > 2 && k->elems) return TD_OK; // a bias alone
    k->run = empty ? run_empty : td_conv_is_native(k->in_dtype[0]) ? run_conv : run_wide;
    if (!empty) k->need = TD_NEED_CONV;
    return TD_OK;
}

td_status td_conv_build(struct td_kernel *k, struct td_dnnl *e, enum td_image_layout x_layout,
                        enum td_image_layout y_layout, const void *param) {
    struct conv *v = td_calloc(1, sizeof *v);
    if (!v) return td_fail_oom();
    k->own = v;
    k->destroy_own = destroy;
    v->engine = e;
    v->spec = td_conv_shape_of(k);
    v->spec.x_layout = x_layout;
    v->spec.y_layout = y_layout;
    v->spec.param = v->spec.given == v->spec.dtype ? param : NULL; // widened weights are a node's
    TD_TRY(build(v));
    k->slow = v->slow;
    return TD_OK;
}
