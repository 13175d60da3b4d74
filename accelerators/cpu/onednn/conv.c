// The family of convolutions; contract in conv.h.
//
// Images come and go in the layouts that layout.c chose, among those that conv_layout.c prefers;
// which algorithm, conv_algorithm.c says; conv_run.c holds and runs it.
//
// Types: fp32, and bf16 where the CPU multiplies it. Elsewhere images and weights of 16 bits are
// widened into scratch, convolved in fp32, and the result is rounded once. At AVX-512 that takes
// half of the time of oneDNN's own convolutions of bf16, which widen in their innermost loop.

#include "accelerators/cpu/onednn/conv.h"

#include <string.h>

#include "traind/op.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/onednn/conv_algorithm.h"
#include "accelerators/cpu/onednn/conv_run.h"

// ---- run ----------------------------------------------------------------------------------------
// All parts of a forward convolution are written to one place.
static struct td_conv_operands places_of(const struct td_kernel *k, const struct td_run *r) {
    const struct td_conv *v = k->own;
    const enum td_conv_kind kind = v->shape.kind;
    const int64_t image = v->shape.c * v->shape.h * v->shape.w;
    const char *a = td_operand_at(&k->in[0], r), *b = td_operand_at(&k->in[1], r);
    if (k->part) a += (size_t)(r->image * image) * td_dtype_bytes(k->in_dtype[0]);
    const void *result = td_operand_at(&k->out[0], r);
    return (struct td_conv_operands){
        .x = kind == TD_CONV_GRAD_X ? result : a,
        .y = kind == TD_CONV_FORWARD  ? result
             : kind == TD_CONV_GRAD_X ? a
                                      : b,
        .w = b,
        .bias = v->shape.has_bias ? td_operand_at(&k->in[2], r) : NULL,
        .result = result,
    };
}

static td_status run_conv(const struct td_kernel *k, const struct td_run *r) {
    struct td_conv_operands p = places_of(k, r);
    return td_conv_run(k->own, &p);
}

// The same by widened operands.
static td_status run_wide(const struct td_kernel *k, const struct td_run *r) {
    struct td_conv *v = k->own;
    const struct td_conv_widened *w = &v->wide;
    const struct td_conv_shape *s = &v->shape;
    const struct td_conv_operands given = places_of(k, r);
    char *scratch = v->engine->memory->scratch;
    float *x = (float *)(scratch + w->x_at), *y = (float *)(scratch + w->y_at);
    float *weights = (float *)(scratch + w->w_at), *bias = (float *)(scratch + w->bias_at);
    const struct td_kernel_table *t = td_kernels();
    const bool narrow_w = s->w_given != TD_F32; // else a gradient is written where it belongs
    struct td_conv_operands p = {.x = x, .w = weights, .bias = s->has_bias ? bias : NULL, .y = y};
    p.result = s->kind == TD_CONV_GRAD_W && !narrow_w ? given.result : weights;
    if (s->kind != TD_CONV_GRAD_X) t->convert(k->n_threads, s->given, given.x, TD_F32, x, w->x);
    if (s->kind != TD_CONV_FORWARD) t->convert(k->n_threads, s->given, given.y, TD_F32, y, w->y);
    if (s->kind != TD_CONV_GRAD_W) {
        t->convert(k->n_threads, s->w_given, given.w, TD_F32, weights, w->w);
    }
    if (s->kind == TD_CONV_GRAD_W && narrow_w && s->accumulate) {
        t->convert(k->n_threads, s->w_given, given.result, TD_F32, weights, w->w);
    }
    if (s->has_bias) t->convert(k->n_threads, k->in_dtype[2], given.bias, TD_F32, bias, w->bias);
    TD_TRY(td_conv_run(v, &p));
    void *result = td_unconst(given.result);
    if (s->kind == TD_CONV_FORWARD) t->convert(k->n_threads, TD_F32, y, s->given, result, w->y);
    if (s->kind == TD_CONV_GRAD_X) t->convert(k->n_threads, TD_F32, x, s->given, result, w->x);
    if (s->kind == TD_CONV_GRAD_W && narrow_w) {
        t->convert(k->n_threads, TD_F32, weights, s->w_given, result, w->w);
    }
    return TD_OK;
}

// No images, or no channels: nothing is summed.
static td_status run_empty(const struct td_kernel *k, const struct td_run *r) {
    void *y = td_operand_at(&k->out[0], r);
    size_t bytes = (size_t)k->elems * td_dtype_bytes(k->out_dtype[0]);
    if (!k->attrs.accumulate) memset(y, 0, bytes);
    return TD_OK;
}

// ---- take and build -----------------------------------------------------------------------------
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

bool td_conv_takes_parts(const struct td_kernel *k, enum td_image_layout x_layout,
                         enum td_image_layout y_layout) {
    struct td_conv_shape s = td_conv_shape_of(k);
    s.x_layout = x_layout;
    s.y_layout = y_layout;
    return s.kind == TD_CONV_FORWARD && !td_conv_may_be_winograd(&s);
}

static td_status build(struct td_conv *v, struct td_dnnl *e, const struct td_conv_shape *s,
                       struct td_conv_descs *d) {
    enum td_conv_algorithm algorithm;
    DNNL_TRY(td_conv_describe(s, d), "describe images");
    TD_TRY(td_conv_choose(s, e, d, &algorithm));
    return td_conv_init(v, e, s, d, algorithm);
}

static void destroy(void *own) {
    td_conv_finish(own);
    free(own);
}

td_status td_conv_build(struct td_kernel *k, struct td_dnnl *e, enum td_image_layout x_layout,
                        enum td_image_layout y_layout, const void *param) {
    struct td_conv_descs d = {0};
    struct td_conv_shape s = td_conv_shape_of(k);
    struct td_conv *v = td_calloc(1, sizeof *v);
    if (!v) return td_fail_oom();
    k->own = v;
    k->destroy_own = destroy;
    s.x_layout = x_layout;
    s.y_layout = y_layout;
    s.param = s.given == s.dtype ? param : NULL; // widened weights are a node's
    td_status failed = build(v, e, &s, &d);
    td_conv_descs_finish(&d);
    k->slow = !failed && v->slow;
    return failed;
}
