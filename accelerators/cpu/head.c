// The last linear layer with its loss and both gradients, a few rows of logits at a time: product,
// cross entropy in place, dx, and what these rows give to dw. Logits never exist but for the rows
// at hand, in the accelerator's scratch behind what the products use of it.
//
// How many rows: turns are as even as they go, of at most CHUNK_BYTES of logits and MOST_ROWS.
// Every turn but the first reads and writes all of dw besides, which at 768 columns and 50257
// classes adds a tenth to that product with 128 rows, a twentieth with 256 (f32). dw is added to in
// the order of the rows: same bits every time. A dw of 16 bits is summed in f32 in the scratch and
// rounded when the last turn is done. Rejected: classes in turns instead of rows. Each
// part of dw would be made at once, but the logits twice, since a row's gradient needs the sum over
// all its classes.

#include <string.h>

#include "accelerators/cpu/convert.h"
#include "accelerators/cpu/loss.h"

enum { CHUNK_BYTES = 32 << 20, MOST_ROWS = 1024, ROWS_ALIGN = 16, CHUNK = 512, GRAIN = 8192 };

// Products of one number of rows.
struct turn {
    int64_t rows;
    struct td_gemm *z, *dx;
    struct td_gemm *dw, *dw_more; // overwrites dw, adds to it
};

struct head {
    int64_t rows, cols, classes; // x (rows, cols), w (classes, cols)
    struct turn whole, rest;     // rows 0: there are none of this kind
    bool grads, seeded;
    uint32_t weights;                                // operand, 0: none
    size_t z_at, row_loss_at, row_right_at, room_at; // bytes from the start of the scratch
    bool sums;                                       // dw has 16 bits: its sum is
    size_t sum_at;                                   // in the scratch, too
};

static const struct td_value_info *value_of(const struct td_product_site *s, td_value v) {
    return td_graph_value(s->program->graph, v);
}

// ---- what is taken ------------------------------------------------------------------------------
static struct td_gemm_spec spec_of(const struct td_product_site *s, const struct td_node_info *n) {
    const struct td_value_info *w = value_of(s, n->inputs[1]);
    struct td_gemm_spec spec = {.k = w->shape.dim[1],
                                .n = w->shape.dim[0],
                                .trans_b = true,
                                .operands = w->dtype,
                                .result = w->dtype};
    spec.param = td_product_param(s, n->inputs[1], &spec.stored);
    return spec;
}

static bool has_seed(const struct td_product_site *s, const struct td_node_info *n) {
    return n->op == TD_OP_LINEAR_CE_GRAD && n->n_inputs > 4 &&
           value_of(s, n->inputs[4])->shape.n_dims == 0;
}

static bool is_taken(const struct td_product_site *s, const struct td_node_info *n) {
    const struct td_shape *w = &value_of(s, n->inputs[1])->shape;
    enum td_dtype t = value_of(s, n->inputs[0])->dtype;
    bool fits = td_gemm_takes(t, t) && td_gemm_takes(t, TD_F32) && w->dim[1] > 0;
    for (uint32_t i = 3; i < n->n_inputs; i++) {
        enum td_dtype other = value_of(s, n->inputs[i])->dtype;
        bool dw = i == 3 && n->op == TD_OP_LINEAR_CE_GRAD;
        fits &= other == TD_F32 || (dw && other == t);
    }
    return fits;
}

bool td_head_packs(const struct td_product_site *site, td_node n) {
    const struct td_node_info *node = td_graph_node(site->program->graph, n);
    struct td_gemm_spec spec = spec_of(site, node);
    return is_taken(site, node) && spec.param && td_gemm_packs(&spec);
}

// ---- making -------------------------------------------------------------------------------------
static void destroy_turn(struct turn *t) {
    td_gemm_destroy(t->z);
    td_gemm_destroy(t->dx);
    td_gemm_destroy(t->dw);
    td_gemm_destroy(t->dw_more);
}

static void destroy(void *own) {
    struct head *h = own;
    if (!h) return;
    destroy_turn(&h->whole);
    destroy_turn(&h->rest);
    free(h);
}

static td_status make_turn(const struct td_product_site *s, const struct head *h,
                           const struct td_gemm_spec *forward, struct turn *t) {
    struct td_gemm_spec z = *forward, dx = *forward, dw = {0};
    if (!t->rows) return TD_OK;
    z.m = dx.m = t->rows;
    TD_TRY(td_gemm_create(s->dnnl, &z, &t->z));
    if (!h->grads) return TD_OK;
    dx.k = h->classes;
    dx.n = h->cols;
    dx.trans_b = false;
    TD_TRY(td_gemm_create(s->dnnl, &dx, &t->dx));
    dw = (struct td_gemm_spec){.m = h->classes,
                               .n = h->cols,
                               .k = t->rows,
                               .trans_a = true,
                               .operands = forward->operands,
                               .result = TD_F32};
    TD_TRY(td_gemm_create(s->dnnl, &dw, &t->dw));
    dw.accumulate = true;
    return td_gemm_create(s->dnnl, &dw, &t->dw_more);
}

static size_t scratch_of(const struct turn *t) {
    const struct td_gemm *const all[] = {t->z, t->dx, t->dw, t->dw_more};
    size_t most = 0;
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        if (all[i]) most = TD_MAX(most, td_gemm_scratch_bytes(all[i]));
    }
    return most;
}

static void choose_rows(struct head *h, enum td_dtype t) {
    int64_t bytes = h->rows * h->classes * (int64_t)td_dtype_bytes(t);
    int64_t turns =
        TD_MAX((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES, (h->rows + MOST_ROWS - 1) / MOST_ROWS);
    int64_t rows = (h->rows + turns - 1) / TD_MAX(turns, 1);
    rows = TD_MAX((rows + ROWS_ALIGN - 1) / ROWS_ALIGN * ROWS_ALIGN, ROWS_ALIGN);
    h->whole.rows = h->rows >= rows ? rows : 0;
    h->rest.rows = h->rows % rows;
}

static void lay_scratch(struct head *h, struct td_kernel *k) {
    enum td_dtype t = k->in_dtype[0];
    int64_t rows = TD_MAX(h->whole.rows, h->rest.rows);
    size_t z_bytes = (size_t)(rows * h->classes) * td_dtype_bytes(t);
    h->z_at = td_align_up(TD_MAX(scratch_of(&h->whole), scratch_of(&h->rest)), 64);
    h->row_loss_at = td_align_up(h->z_at + z_bytes, 64);
    h->row_right_at = h->row_loss_at + td_align_up((size_t)h->rows * sizeof(float), 64);
    h->room_at = h->row_right_at + td_align_up((size_t)h->rows, 64);
    h->sum_at = td_align_up(h->room_at + td_loss_room_bytes(t, h->classes, k->n_threads), 64);
    k->scratch_bytes = h->sum_at;
    if (h->sums) k->scratch_bytes += (size_t)(h->classes * h->cols) * sizeof(float);
}

// ---- running ------------------------------------------------------------------------------------
struct rows {
    const struct td_kernel *k;
    const struct td_run *r;
    struct td_loss loss;
    const char *x;
    char *dx;
    const void *w;
    void *dw; // or its sum
};

static td_status run_turn(struct rows *a, const struct turn *t, int64_t from, bool packed) {
    const struct head *h = a->k->own;
    size_t row_bytes = (size_t)h->cols * td_dtype_bytes(a->loss.type);
    const char *x = a->x + (size_t)from * row_bytes;
    struct td_loss loss = a->loss;
    td_status (*product)(struct td_gemm *, const void *, const void *, const void *, void *) =
        packed ? td_gemm_rerun : td_gemm_run;
    loss.rows = t->rows;
    loss.label += from;
    loss.row_loss += from;
    loss.row_right += from;
    TD_TRY(product(t->z, x, a->w, NULL, loss.d));
    td_loss_rows(&loss, a->k->n_threads);
    if (!h->grads) return TD_OK;
    bool first = from == 0 && (h->sums || !a->k->attrs.accumulate);
    TD_TRY(product(t->dx, loss.d, a->w, NULL, a->dx + (size_t)from * row_bytes));
    return td_gemm_run(first ? t->dw : t->dw_more, loss.d, x, NULL, a->dw);
}

static td_status run_turns(struct rows *a) {
    const struct head *h = a->k->own;
    int64_t at = 0;
    if (!h->rows && h->grads && (h->sums || !a->k->attrs.accumulate)) {
        memset(a->dw, 0, (size_t)(h->classes * h->cols) * sizeof(float));
    }
    for (; h->whole.rows && at + h->whole.rows <= h->rows; at += h->whole.rows) {
        TD_TRY(run_turn(a, &h->whole, at, at > 0));
    }
    return h->rest.rows ? run_turn(a, &h->rest, at, false) : TD_OK;
}

// The sum becomes dw, or is added to it, a few elements at a time.
struct sum {
    const float *from;
    void *to;
    enum td_dtype type;
    bool accumulate;
};

static void put_range(const void *arg, int64_t begin, int64_t end) {
    const struct sum *s = arg;
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = TD_MIN((int64_t)CHUNK, end - at);
        float room[CHUNK];
        const float *from = s->from + at;
        if (s->accumulate) {
            td_cpu_widen(s->type, td_cpu_at(s->type, s->to, at), n, room);
            for (int64_t i = 0; i < n; i++) {
                room[i] += from[i];
            }
            from = room;
        }
        td_cpu_put(s->type, from, n, s->to, at);
    }
}

static void put_sum(const struct rows *a) {
    const struct head *h = a->k->own;
    struct sum s = {a->dw, td_operand_at(&a->k->in[3], a->r), a->k->in_dtype[3],
                    a->k->attrs.accumulate};
    td_parallel(a->k->n_threads, h->classes * h->cols, GRAIN, put_range, &s);
}

static td_status run_head(const struct td_kernel *k, const struct td_run *r) {
    const struct head *h = k->own;
    char *scratch = r->scratch;
    struct rows a = {
        .k = k,
        .r = r,
        .loss = {.logits = scratch + h->z_at,
                 .type = k->in_dtype[0],
                 .label = td_operand_at(&k->in[2], r),
                 .weight = h->weights ? td_operand_at(&k->in[h->weights], r) : NULL,
                 .d = scratch + h->z_at,
                 .row_loss = (float *)(scratch + h->row_loss_at),
                 .row_right = (uint8_t *)(scratch + h->row_right_at),
                 .room = (float *)(scratch + h->room_at),
                 .rows = h->rows,
                 .cols = h->classes,
                 .smoothing = (float)k->attrs.label_smoothing,
                 .attrs = &k->attrs},
        .x = td_operand_at(&k->in[0], r),
        .w = td_operand_at(&k->in[1], r),
        .dx = h->grads ? td_operand_at(&k->out[2], r) : NULL,
    };
    if (h->grads) a.dw = h->sums ? scratch + h->sum_at : td_operand_at(&k->in[3], r);
    double weights = 0;
    if (a.loss.type == TD_F32) a.loss.room = NULL;
    TD_TRY(td_loss_weigh(&a.loss, &weights));
    a.loss.share = weights > 0 ? (float)(1 / weights) : 0;
    if (h->seeded) a.loss.share *= *(const float *)td_operand_at(&k->in[4], r);
    TD_TRY(run_turns(&a));
    if (h->sums) put_sum(&a);
    *(float *)td_operand_at(&k->out[0], r) = td_loss_mean(a.loss.row_loss, h->rows, weights);
    *(float *)td_operand_at(&k->out[1], r) = td_loss_right(a.loss.row_right, h->rows);
    return TD_OK;
}

td_status td_head_take(struct td_kernel *k, const struct td_product_site *site, td_node n) {
    const struct td_node_info *node = td_graph_node(site->program->graph, n);
    if (!is_taken(site, node)) return TD_OK;
    struct td_gemm_spec forward = spec_of(site, node);
    struct head *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    k->own = h;
    k->destroy_own = destroy;
    k->run = run_head;
    h->rows = k->shape[0].dim[0];
    h->cols = k->shape[1].dim[1];
    h->classes = k->shape[1].dim[0];
    h->grads = k->op == TD_OP_LINEAR_CE_GRAD;
    h->seeded = has_seed(site, node);
    h->sums = h->grads && k->in_dtype[3] != TD_F32;
    uint32_t first = h->grads ? 4u + h->seeded : 3;
    h->weights = k->n_in > first ? first : 0;
    if (forward.param) k->in[1] = (struct td_operand){.base = (char *)(uintptr_t)forward.param};
    choose_rows(h, k->in_dtype[0]);
    TD_TRY(make_turn(site, h, &forward, &h->whole));
    TD_TRY(make_turn(site, h, &forward, &h->rest));
    lay_scratch(h, k);
    return TD_OK;
}
