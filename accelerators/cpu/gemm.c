// One matrix product: which library computes it. Contract in gemm.h.
//
// There are two libraries of products: oneDNN (onednn/product.c), with one or two ways to say the
// same, and our own kernel (kernels/matmul/matmul.c). Which is the fastest depends on the shape, so
// where several are worth it they race (tune.h):
//   - fp32 at AVX-512 and bf16 where the CPU multiplies it: oneDNN, its ways for a weight's
//     gradient in a race. No shape of these was found where our own is ahead.
//   - fp32 below AVX-512, and bf16 at AVX-512 without instructions for it: all in a race.
//   - bf16 below AVX-512, and f16: our own, which widens. oneDNN has no loops for these.
//   - what oneDNN turns out to have reference loops for alone: our own, in the place of that way.
//
// A weight is read through a pack where that pays. oneDNN does so where it wants a layout of its
// own, our own kernel where the operands are not fp32 or where few rows are multiplied by it. Many
// rows hide that panels are made on the way. A weight that is the cast of an fp32 parameter is then
// never made: packs read the parameter and convert. A bias is read as it is stored. A plan counts
// the packs and the scratch of all ways, so that no choice moves its bytes. A rank holds them where
// they race, and only those of the way chosen where that is known, which makes its start shorter.

#include "accelerators/cpu/gemm.h"

#include <inttypes.h>
#include <stdio.h>

#include "accelerators/cpu/accelerator.h"
#include "accelerators/cpu/kernels/kernels.h"
#include "accelerators/cpu/kernels/matmul/matmul.h"
#include "accelerators/cpu/onednn/onednn.h"
#include "accelerators/cpu/onednn/product.h"
#include "accelerators/cpu/packs.h"
#include "accelerators/cpu/tune.h"

enum way { INNER_PRODUCT, MATMUL, PACKED_MATMUL, OWN };
static const char *const way_names[] = {"inner_product", "matmul", "packed_matmul", "own"};
enum { MOST_WAYS = 3, MOST_ROWS_OF_A_PACK = 1024 };

struct td_gemm {
    struct td_accelerator *accel;
    struct td_gemm_spec spec;
    struct td_dnnl_product *dnnl; // NULL: our own
    struct td_matmul own;
    struct td_pack *pack; // of our own; NULL: b is read where it is
    size_t scratch_bytes;
};

// ---- ways ---------------------------------------------------------------------------------------
struct ways {
    enum way way[MOST_WAYS];
    int n;
};

static void add_way(struct ways *w, enum way way) {
    w->way[w->n++] = way;
}

static bool is_weights_gradient(const struct td_gemm_spec *s) {
    return !s->accumulate && s->trans_a && !s->trans_b && !s->has_bias && s->act == TD_ACT_NONE;
}

// Does the product multiply by a parameter?
static bool has_weights(const struct td_gemm_spec *s) {
    return s->param && !s->trans_a && !s->accumulate;
}

static bool is_inner_product(const struct td_gemm_spec *s) {
    if (is_weights_gradient(s)) return true;
    bool plain = !s->has_bias && s->act == TD_ACT_NONE && s->result == s->operands;
    return has_weights(s) && (s->trans_b || plain);
}

bool td_gemm_own_races(enum td_dtype operands) {
    return td_cpu_level() < (operands == TD_F32 ? TD_CPU_AVX512 : TD_CPU_AVX512_BF16);
}

static struct ways ways_of(const struct td_gemm_spec *s) {
    struct ways w = {.n = 0};
    const bool f32 = s->operands == TD_F32, inner = is_inner_product(s);
    const bool own_races = td_gemm_own_races(s->operands);
    // A plain matmul reads b as it is, which a parameter of another type is not.
    const bool plain = !has_weights(s) || s->stored == s->operands;
    if (!td_dnnl_takes(s->operands)) {
        add_way(&w, OWN);
        return w;
    }
    if (own_races && f32) add_way(&w, OWN); // the first one where nothing may be measured
    if (inner) add_way(&w, INNER_PRODUCT);
    if (!inner && has_weights(s) && !f32) add_way(&w, PACKED_MATMUL);
    bool matmul = is_weights_gradient(s) || (own_races && f32);
    if (w.n == 0 || (matmul && plain)) add_way(&w, MATMUL);
    if (own_races && !f32) add_way(&w, OWN);
    return w;
}

bool td_gemm_takes(enum td_dtype operands, enum td_dtype result) {
    bool narrow = operands == TD_F32 || operands == TD_BF16 || operands == TD_F16;
    return narrow && (result == operands || result == TD_F32);
}

bool td_gemm_packs(const struct td_gemm_spec *s) {
    struct ways w = ways_of(s);
    return has_weights(s) && !(w.n == 1 && w.way[0] == MATMUL);
}

// ---- one way ------------------------------------------------------------------------------------
static td_status create_own(struct td_gemm *g) {
    const struct td_gemm_spec *s = &g->spec;
    bool packs = has_weights(s) && (s->operands != TD_F32 || s->m <= MOST_ROWS_OF_A_PACK);
    g->own = (struct td_matmul){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .trans_a = s->trans_a,
        .trans_b = s->trans_b,
        .accumulate = s->accumulate,
        .packed_b = packs,
        .act = s->act,
        .a_type = s->operands,
        .b_type = s->param ? s->stored : s->operands,
        .b_as = s->operands,
        .bias_type = s->bias,
        .y_type = s->result,
        .n_threads = g->accel->n_threads,
    };
    g->scratch_bytes = td_kernels()->matmul_scratch_bytes(&g->own);
    TD_TRY(td_cpu_memory_grow_scratch(&g->accel->memory, g->scratch_bytes));
    if (!packs) return TD_OK;
    struct td_pack_shape shape =
        td_kernels()->matmul_panels(s->n, s->k, s->trans_b, s->stored, s->operands);
    return td_packs_own(g->accel->packs, s->param, &shape, &g->pack);
}

// oneDNN's; our own where it has nothing but reference loops for this product.
static td_status create_of_dnnl(struct td_gemm *g, enum td_dnnl_way way) {
    td_status s = td_dnnl_product_create(g->accel->dnnl, &g->spec, way, &g->dnnl);
    if (s && td_status_code(s) == TD_UNIMPLEMENTED) {
        td_status_free(s);
        return create_own(g);
    }
    if (!s) g->scratch_bytes = td_dnnl_product_scratch_bytes(g->dnnl);
    return s;
}

static td_status create_way(struct td_accelerator *a, const struct td_gemm_spec *spec, enum way way,
                            struct td_gemm **out_gemm) {
    static const enum td_dnnl_way of_dnnl[] = {[INNER_PRODUCT] = TD_DNNL_INNER_PRODUCT,
                                               [MATMUL] = TD_DNNL_MATMUL,
                                               [PACKED_MATMUL] = TD_DNNL_PACKED_MATMUL};
    struct td_gemm *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->accel = a;
    g->spec = *spec;
    td_status failed = way == OWN ? create_own(g) : create_of_dnnl(g, of_dnnl[way]);
    if (failed) {
        td_gemm_destroy(g);
        return failed;
    }
    *out_gemm = g;
    return TD_OK;
}

// ---- choosing -----------------------------------------------------------------------------------
struct race {
    struct td_gemm *gemm[MOST_WAYS];
    float *a, *b, *bias, *y;
};

static td_status race_run(void *arg, int way) {
    struct race *r = arg;
    return td_gemm_run(r->gemm[way], r->a, r->b, r->bias, r->y);
}

static td_status race_operands(const struct td_gemm_spec *s, struct race *r) {
    r->a = td_calloc((size_t)(s->m * s->k), sizeof(float)); // floats: enough for any type
    r->b = td_calloc((size_t)(s->k * s->n), sizeof(float));
    r->bias = td_calloc((size_t)s->n, sizeof(float));
    r->y = td_calloc((size_t)(s->m * s->n), sizeof(float));
    return r->a && r->b && r->bias && r->y ? TD_OK : td_fail_oom();
}

static void race_finish(struct race *r) {
    for (int i = 0; i < MOST_WAYS; i++) {
        td_gemm_destroy(r->gemm[i]);
    }
    free(r->a);
    free(r->b);
    free(r->bias);
    free(r->y);
}

// Everything that the answer depends on, besides what the cache is of.
static void name_product(const struct td_gemm_spec *s, char key[TD_TUNE_KEY_MAX]) {
    const char *wide = s->result == s->operands ? "" : " wide";
    const char *t = td_dtype_name(s->operands);
    if (is_weights_gradient(s)) {
        snprintf(key, TD_TUNE_KEY_MAX, "weights %s%s %" PRId64 "x%" PRId64 " from %" PRId64, t,
                 wide, s->m, s->n, s->k);
        return;
    }
    snprintf(key, TD_TUNE_KEY_MAX,
             "product %c%c%s%s%s%s %s%s %" PRId64 "x%" PRId64 " from %" PRId64,
             s->trans_a ? 't' : 'n', s->trans_b ? 't' : 'n', s->param ? " of weights" : "",
             s->has_bias ? " bias" : "", s->act == TD_ACT_RELU ? " relu" : "",
             s->accumulate ? " adding" : "", t, wide, s->m, s->n, s->k);
}

static td_status choose(struct td_accelerator *a, const struct td_gemm_spec *s,
                        const struct ways *ways, enum way *out_way) {
    struct race r = {0};
    char key[TD_TUNE_KEY_MAX];
    const char *names[MOST_WAYS];
    bool slow[MOST_WAYS] = {false};
    int way;
    for (int i = 0; i < ways->n; i++) {
        names[i] = way_names[ways->way[i]];
    }
    name_product(s, key);
    const bool races = td_tune_measures(a->tune, key, names, ways->n);
    const bool needs_all = races || a->memory.is_dry;
    td_status failed = races ? race_operands(s, &r) : TD_OK;
    for (int i = 0; needs_all && i < ways->n && !failed; i++) {
        failed = create_way(a, s, ways->way[i], &r.gemm[i]);
        // oneDNN's gemm generates all its kernels when it is first called: 15 to 40 ms.
        if (!failed) slow[i] = r.gemm[i]->dnnl && td_dnnl_product_starts_slowly(r.gemm[i]->dnnl);
    }
    if (!failed) failed = td_tune_pick(a->tune, key, names, ways->n, slow, race_run, &r, &way);
    if (races && s->param) td_packs_forget(a->packs, s->param);
    race_finish(&r);
    if (!failed) *out_way = ways->way[way];
    return failed;
}

td_status td_gemm_create(struct td_accelerator *a, const struct td_gemm_spec *spec,
                         struct td_gemm **out_gemm) {
    struct ways ways = ways_of(spec);
    enum way way = ways.way[0];
    if (ways.n > 1) TD_TRY(choose(a, spec, &ways, &way));
    return create_way(a, spec, way, out_gemm);
}

void td_gemm_destroy(struct td_gemm *g) {
    if (!g) return;
    td_dnnl_product_destroy(g->dnnl);
    free(g);
}

size_t td_gemm_scratch_bytes(const struct td_gemm *g) {
    return g->scratch_bytes;
}

td_status td_gemm_run(struct td_gemm *g, const void *a, const void *b, const void *bias, void *y) {
    if (g->dnnl) return td_dnnl_product_run(g->dnnl, a, b, bias, y);
    if (g->pack) TD_TRY(td_packs_read(g->accel->packs, g->pack, b));
    td_kernels()->matmul_run(&g->own, a, g->pack ? g->pack->data : b,
                             g->spec.has_bias ? bias : NULL, y, g->accel->memory.scratch);
    return TD_OK;
}
