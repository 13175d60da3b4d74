// Winograd's way or the direct one; contract in conv_algorithm.h.
//
// Winograd multiplies less (up to 2.25 times here), transforms and rounds more. It is for 3x3
// filters of stride 1 in fp32, where both sides have whole blocks. It is oneDNN's where oneDNN has
// one (with AVX-512), else our own (kernels/matmul/winograd.c) for all but the gradient of weights.
// Wherever there is a Winograd way, it races with the direct way (tune.h). Everything else is
// direct. A plan's bytes do not depend on which wins: it counts the scratch and the packs of both.

#include "accelerators/cpu/onednn/conv_algorithm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "accelerators/cpu/tune.h"

enum { N_WAYS = 2 };
static const char *const algorithm_names[] = {[TD_CONV_WINOGRAD] = "winograd",
                                              [TD_CONV_OWN_WINOGRAD] = "own_winograd",
                                              [TD_CONV_DIRECT] = "direct"};

bool td_conv_may_be_winograd(const struct td_conv_shape *s) {
    bool plain = td_window_at_least_one(s->window.groups) == 1;
    for (int i = 0; i < 2; i++) {
        plain = plain && s->kernel[i] == 3 && td_window_at_least_one(s->window.stride[i]) == 1 &&
                td_window_at_least_one(s->window.dilation[i]) == 1;
    }
    return plain && s->dtype == TD_F32 && s->x_layout == TD_LAYOUT_BLOCKED &&
           s->y_layout == TD_LAYOUT_BLOCKED;
}

// Which Winograd there is for this; DIRECT: none.
static td_status find_winograd(const struct td_conv_shape *s, const struct td_dnnl *e,
                               const struct td_conv_descs *d, enum td_conv_algorithm *out) {
    *out = TD_CONV_DIRECT;
    if (!td_conv_may_be_winograd(s)) return TD_OK;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = td_conv_pd(s, e->engine, d, dnnl_convolution_winograd, &pd);
    dnnl_primitive_desc_destroy(pd);
    if (st && st != dnnl_unimplemented) return td_dnnl_fail(st, "describe a convolution");
    bool own = s->kind != TD_CONV_GRAD_W && s->window.pad[0] <= 2 && s->window.pad[1] <= 2;
    *out = !st ? TD_CONV_WINOGRAD : own ? TD_CONV_OWN_WINOGRAD : TD_CONV_DIRECT;
    return TD_OK;
}

// ---- the race -----------------------------------------------------------------------------------
struct race {
    struct td_conv way[N_WAYS];
    void *x, *bias, *y, *w[N_WAYS];
};

static td_status race_run(void *arg, int way) {
    struct race *r = arg;
    struct td_conv_operands p = {.x = r->x, .w = r->w[way], .bias = r->bias, .y = r->y};
    return td_conv_run_bare(&r->way[way], &p);
}

// Zeroes, aligned like everything that oneDNN is given here: Winograd counts on it.
static void *zeroes(const struct td_md *md) {
    enum { ALIGN = 64 };
    size_t bytes = td_align_up(TD_MAX(td_md_bytes(md), (size_t)1), ALIGN);
    void *p = aligned_alloc(ALIGN, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

static td_status make_operands(const struct td_conv_descs *d, struct race *r) {
    r->x = zeroes(d->x);
    r->y = zeroes(d->y);
    r->bias = zeroes(d->bias);
    return r->x && r->y && r->bias ? TD_OK : td_fail_oom();
}

static td_status make_weights(const struct td_conv_descs *d, struct race *r, int way) {
    r->w[way] = zeroes(td_conv_weights(&r->way[way], d));
    return r->w[way] ? TD_OK : td_fail_oom();
}

static void race_finish(struct race *r) {
    for (int i = 0; i < N_WAYS; i++) {
        td_conv_finish(&r->way[i]);
        free(r->w[i]);
    }
    free(r->x);
    free(r->bias);
    free(r->y);
}

static void name_race(const struct td_conv_shape *s, char key[TD_TUNE_KEY_MAX]) {
    static const char *const kinds[] = {"forward", "backward data", "backward weights"};
    snprintf(key, TD_TUNE_KEY_MAX,
             "convolution %s %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " to %" PRId64
             " pad %dx%d",
             kinds[s->kind], s->n, s->c, s->h, s->w, s->o, s->window.pad[0], s->window.pad[1]);
}

td_status td_conv_choose(const struct td_conv_shape *s, struct td_dnnl *e,
                         const struct td_conv_descs *d, enum td_conv_algorithm *out_algorithm) {
    enum td_conv_algorithm algorithm[N_WAYS] = {TD_CONV_DIRECT, TD_CONV_DIRECT};
    TD_TRY(find_winograd(s, e, d, &algorithm[0]));
    *out_algorithm = TD_CONV_DIRECT;
    if (algorithm[0] == TD_CONV_DIRECT) return TD_OK;
    const char *const names[N_WAYS] = {algorithm_names[algorithm[0]],
                                       algorithm_names[TD_CONV_DIRECT]};
    char key[TD_TUNE_KEY_MAX];
    name_race(s, key);
    const bool races = td_tune_measures(e->tune, key, names, N_WAYS);
    const bool needs_all = races || e->memory->is_dry; // a plan counts all (gemm.c)
    struct race r = {0};
    int way = 0;
    td_status failed = races ? make_operands(d, &r) : TD_OK;
    for (int i = 0; needs_all && i < N_WAYS && !failed; i++) {
        failed = td_conv_init_bare(&r.way[i], e, s, d, algorithm[i]);
        if (!failed && races) failed = make_weights(d, &r, i);
    }
    if (!failed) failed = td_tune_pick(e->tune, key, names, N_WAYS, NULL, race_run, &r, &way);
    race_finish(&r);
    if (!failed) *out_algorithm = algorithm[way];
    return failed;
}
