// Matrix products by oneDNN, and the layout of the weights they read; gemm.c says which is asked
// for.
//
// A training step multiplies by each weight matrix three times. Forward (y = x W^T) and the
// activation gradient (dx = dy W) can be inner products with the weights in whatever blocked layout
// oneDNN likes best (format any). With AVX-512 that is 15 to 40 % faster than plain rows. Both
// mostly want the same layout and then share the pack. The weight gradient (dW = dy^T x) is an
// inner product or a matmul with plain output, because that is what the collective, the optimizer
// and the checkpoint read. What adds to what is there is a matmul.
//
// Types: f32, or bf16 operands with a result of bf16 or f32; sums are fp32 in either case. A bf16
// weight that is the cast of an fp32 parameter is never made: the pack reads the parameter itself
// and converts on the way. A bias likewise is read as it is stored.
//
// Scratch is the accelerator's. A product is described at compile time, which settles what it needs
// of packs and scratch, and created when it first runs; a run only sets addresses.

#include "accelerators/cpu/onednn/product.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "accelerators/cpu/onednn/engine.h"
#include "accelerators/cpu/onednn/primitive.h"
#include "accelerators/cpu/onednn/weights.h"

enum kind { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS, MATMUL, PACKED_MATMUL };

struct td_dnnl_product {
    struct td_dnnl *engine;
    struct td_gemm_spec spec;
    enum kind kind;
    struct td_dnnl_primitive primitive;
    dnnl_memory_t a, b, bias, y, scratch;
    struct td_pack *pack; // NULL: b is read where it is
    size_t scratch_bytes;
};

// ---- one product --------------------------------------------------------------------------------
static dnnl_data_type_t type_of(enum td_dtype t) {
    return t == TD_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t matrix(int64_t d0, int64_t d1, enum td_dtype t, dnnl_format_tag_t tag,
                            struct td_md **out_md) {
    dnnl_dims_t dims = {d0, d1};
    return td_md_create(2, dims, type_of(t), tag, out_md);
}

static enum kind kind_of(const struct td_gemm_spec *s, enum td_dnnl_way way) {
    if (way == TD_DNNL_MATMUL) return MATMUL;
    if (way == TD_DNNL_PACKED_MATMUL) return PACKED_MATMUL;
    return s->trans_a ? BACKWARD_WEIGHTS : s->trans_b ? FORWARD : BACKWARD_DATA;
}

static bool packs(enum kind kind) {
    return kind == FORWARD || kind == BACKWARD_DATA || kind == PACKED_MATMUL;
}

// relu after a product. oneDNN's own makes 0 of a NaN, and a model that is ruined would train on
// with a finite loss. This one, -min(max(-x, -inf), 0), makes infinity of a NaN, since the maximum
// gives its bound for one. It is exact for all else, and no slower as far as can be measured.
static dnnl_status_t append_relu(dnnl_post_ops_t ops) {
    dnnl_status_t s = td_post_ops_eltwise(ops, dnnl_eltwise_linear, -1, 0);
    if (!s) s = td_post_ops_eltwise(ops, dnnl_eltwise_clip, (float)-INFINITY, 0);
    return s ? s : td_post_ops_eltwise(ops, dnnl_eltwise_linear, -1, 0);
}

static td_status make_attr(const struct td_gemm_spec *s, enum kind kind,
                           dnnl_primitive_attr_t *out_attr) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_create(&attr);
    if (!st) st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!st) st = dnnl_post_ops_create(&ops);
    if (!st && kind == MATMUL && s->accumulate) st = td_post_ops_sum(ops);
    if (!st && s->act == TD_ACT_RELU) st = append_relu(ops);
    if (!st) st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    if (st) {
        dnnl_primitive_attr_destroy(attr);
        return td_dnnl_fail(st, "attributes");
    }
    *out_attr = attr;
    return TD_OK;
}

// Memory layouts of one product: a, b as oneDNN shall see them, b where it is, bias, y.
struct layouts {
    struct td_md *a, *b, *b_plain, *bias, *y;
};

static void layouts_finish(struct layouts *l) {
    td_md_destroy(l->a);
    td_md_destroy(l->b);
    td_md_destroy(l->b_plain);
    td_md_destroy(l->bias);
    td_md_destroy(l->y);
}

// The sides of a, b and bias by kind:
//   FORWARD           src (m,k), weights (n,k) = (out, in)
//   BACKWARD_DATA     diff_dst (m,k), weights (k,n) = (out, in), diff_src (m,n)
//   BACKWARD_WEIGHTS  diff_dst (k,m), src (k,n), diff_weights (m,n)
//   either matmul     src (m,k), weights (k,n), a bias of two dimensions
static dnnl_status_t set_layouts(const struct td_gemm_spec *s, enum kind kind, struct layouts *l) {
    const bool matmul = kind == MATMUL || kind == PACKED_MATMUL, fixed = !packs(kind);
    dnnl_dims_t n = {s->n}, one_n = {1, s->n};
    int64_t a0 = s->m, a1 = s->k, b0 = s->k, b1 = s->n;
    if (kind == BACKWARD_WEIGHTS) {
        a0 = s->k;
        a1 = s->m;
    } else if (kind == FORWARD) {
        b0 = s->n;
        b1 = s->k;
    }
    enum td_dtype t = s->operands, stored = s->param && !fixed ? s->stored : t;
    dnnl_format_tag_t a = kind == MATMUL && s->trans_a ? dnnl_ba : dnnl_ab;
    dnnl_format_tag_t b = kind == MATMUL && s->trans_b ? dnnl_ba : dnnl_ab;
    dnnl_status_t st = matrix(s->m, s->n, s->result, dnnl_ab, &l->y);
    if (!st) st = matrix(a0, a1, t, a, &l->a);
    if (!st) st = matrix(b0, b1, stored, b, &l->b_plain);
    if (!st) st = matrix(b0, b1, t, fixed ? b : dnnl_format_tag_any, &l->b);
    if (st || !s->has_bias) return st;
    return matmul ? td_md_create(2, one_n, type_of(s->bias), dnnl_ab, &l->bias)
                  : td_md_create(1, n, type_of(s->bias), dnnl_a, &l->bias);
}

// Of the ways to add a product to what is there, the one by plain gemm reads y once, as it writes
// it. The first that oneDNN offers takes up to twice as long, by reading y apart. Weight gradients
// cannot add, and a second y to add from was slower, too.
static dnnl_status_t product_desc(dnnl_engine_t engine, const struct td_gemm_spec *s,
                                  enum kind kind, const struct layouts *l,
                                  dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out_pd) {
    switch (kind) {
    case FORWARD:
        return td_pd_inner_product(engine, TD_PASS_FORWARD, l->a, l->b, l->bias, l->y, attr,
                                   out_pd);
    case BACKWARD_DATA:
        return td_pd_inner_product(engine, TD_PASS_GRAD_X, l->y, l->b, NULL, l->a, attr, out_pd);
    case BACKWARD_WEIGHTS:
        return td_pd_inner_product(engine, TD_PASS_GRAD_W, l->b, l->y, NULL, l->a, attr, out_pd);
    case MATMUL:
    case PACKED_MATMUL:
        break;
    }
    return td_pd_matmul(engine, l->a, l->b, l->bias, l->y, attr, s->accumulate ? "gemm" : NULL,
                        out_pd);
}

static td_status make_memories(struct td_dnnl_product *g, const struct layouts *l,
                               const_dnnl_primitive_desc_t pd) {
    dnnl_engine_t engine = g->engine->engine;
    const struct td_md *scratch = td_pd_borrow_md(pd, dnnl_query_scratchpad_md);
    DNNL_TRY(td_md_memory(l->a, engine, DNNL_MEMORY_NONE, &g->a), "operand a");
    DNNL_TRY(td_md_memory(l->b_plain, engine, DNNL_MEMORY_NONE, &g->b), "operand b");
    DNNL_TRY(td_md_memory(l->y, engine, DNNL_MEMORY_NONE, &g->y), "result");
    if (g->spec.has_bias) {
        DNNL_TRY(td_md_memory(l->bias, engine, DNNL_MEMORY_NONE, &g->bias), "bias");
    }
    DNNL_TRY(td_md_memory(scratch, engine, DNNL_MEMORY_NONE, &g->scratch), "scratch");
    g->scratch_bytes = td_md_bytes(scratch);
    TD_TRY(td_cpu_memory_grow_scratch(g->engine->memory, g->scratch_bytes));
    if (packs(g->kind)) {
        const struct td_md *layout = td_pd_borrow_md(pd, dnnl_query_weights_md);
        if (!td_md_equal(layout, l->b_plain)) {
            TD_TRY(td_dnnl_pack_get(g->engine, g->spec.param, l->b_plain, layout, &g->pack));
        }
    }
    return TD_OK;
}

// The memory layouts are the caller's to free, also after a failure.
static td_status build_of(struct td_dnnl_product *g, struct layouts *l) {
    dnnl_primitive_attr_t attr = NULL;
    DNNL_TRY(set_layouts(&g->spec, g->kind, l), "describe operands");
    TD_TRY(make_attr(&g->spec, g->kind, &attr));
    dnnl_status_t s = product_desc(g->engine->engine, &g->spec, g->kind, l, attr, &g->primitive.pd);
    dnnl_primitive_attr_destroy(attr);
    if (!s && td_pd_is_reference(g->primitive.pd)) s = dnnl_unimplemented;
    return s ? td_dnnl_fail(s, "describe a product") : make_memories(g, l, g->primitive.pd);
}

static td_status build(struct td_dnnl_product *g) {
    struct layouts l = {0};
    td_status failed = build_of(g, &l);
    layouts_finish(&l);
    return failed;
}

td_status td_dnnl_product_create(struct td_dnnl *e, const struct td_gemm_spec *spec,
                                 enum td_dnnl_way way, struct td_dnnl_product **out_product) {
    struct td_dnnl_product *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->engine = e;
    g->spec = *spec;
    g->kind = kind_of(spec, way);
    td_status failed = build(g);
    if (failed) {
        td_dnnl_product_destroy(g);
        return failed;
    }
    *out_product = g;
    return TD_OK;
}

void td_dnnl_product_destroy(struct td_dnnl_product *g) {
    if (!g) return;
    td_dnnl_primitive_finish(&g->primitive);
    dnnl_memory_destroy(g->a);
    dnnl_memory_destroy(g->b);
    dnnl_memory_destroy(g->bias);
    dnnl_memory_destroy(g->y);
    dnnl_memory_destroy(g->scratch);
    free(g);
}

// ---- run ----------------------------------------------------------------------------------------
static int name_args(const struct td_dnnl_product *g, dnnl_exec_arg_t args[5]) {
    static const int role[][3] = {
        [FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [BACKWARD_DATA] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        [BACKWARD_WEIGHTS] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS},
        [MATMUL] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [PACKED_MATMUL] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    };
    int n = 0;
    args[n++] = (dnnl_exec_arg_t){role[g->kind][0], g->a};
    args[n++] = (dnnl_exec_arg_t){role[g->kind][1], g->pack ? td_dnnl_pack_memory(g->pack) : g->b};
    args[n++] = (dnnl_exec_arg_t){role[g->kind][2], g->y};
    args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, g->scratch};
    if (g->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, g->bias};
    return n;
}

bool td_dnnl_product_starts_slowly(const struct td_dnnl_product *g) {
    return strstr(td_pd_name(g->primitive.pd), "gemm:jit") != NULL;
}

size_t td_dnnl_product_scratch_bytes(const struct td_dnnl_product *g) {
    return g->scratch_bytes;
}

td_status td_dnnl_product_run(struct td_dnnl_product *g, const void *a, const void *b,
                              const void *bias, void *y) {
    if (g->pack) TD_TRY(td_packs_read(g->engine->packs, g->pack, b));
    // oneDNN's handles are not const; only the result is written.
    dnnl_status_t s = dnnl_memory_set_data_handle(g->a, td_unconst(a));
    if (!s) s = dnnl_memory_set_data_handle(g->b, td_unconst(b));
    if (!s) s = dnnl_memory_set_data_handle(g->y, y);
    if (!s) s = dnnl_memory_set_data_handle(g->scratch, g->engine->memory->scratch);
    if (!s && g->bias) s = dnnl_memory_set_data_handle(g->bias, td_unconst(bias));
    DNNL_TRY(s, "set addresses");
    dnnl_exec_arg_t args[5];
    int n = name_args(g, args);
    return td_dnnl_primitive_run(&g->primitive, g->engine->stream, n, args, "run a product");
}
