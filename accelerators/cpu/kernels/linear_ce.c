// The last linear layer with its loss and both gradients, a few rows of logits at a time. Each
// time: product, cross entropy in place, dx, and what these rows give to dw. Logits never exist but
// for the rows at hand, in the accelerator's scratch after what the products use of it.
//
// How many rows: chunks are as even as they go, of at most CHUNK_BYTES of logits and MOST_ROWS.
// Every chunk but the first reads and writes all of dw besides. At 768 columns and 50257 classes
// this adds a tenth to dw's product with 128 rows, a twentieth with 256 (f32). dw is added to in
// the order of the rows: same bits every time. Gradients of 16 bits, dw and dbias, are summed in
// f32 in the scratch and rounded when the last chunk is done. Rejected: classes in chunks instead
// of rows. Each part of dw would be made at once, but the logits twice, since a row's gradient
// needs the sum over all its classes.

#include "accelerators/cpu/kernels/linear_ce.h"

#include <string.h>

#include "accelerators/cpu/gemm.h"
#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/reduce.h"
#include "accelerators/cpu/kernels/softmax_ce.h"
#include "accelerators/cpu/parallel.h"

// ROWS_ALIGN: rows of a chunk, which fix the order of sums over rows. The same at every CPU level:
// the rows that no tile of a product fills are few in a chunk of any height.
enum { CHUNK_BYTES = 32 << 20, MOST_ROWS = 1024, ROWS_ALIGN = 16, CHUNK = 512, GRAIN = 8192 };

// Products of one number of rows.
struct chunk {
    int64_t rows;
    struct td_gemm *z, *dx;
    struct td_gemm *dw, *dw_more; // overwrites dw, adds to it
};

struct head {
    int64_t rows, cols, classes; // x (rows, cols), w (classes, cols)
    struct chunk whole, rest;    // rows 0: there are none of this kind
    struct td_head_operands at;
    bool sums; // gradients have 16 bits
    // Bytes from the start of the scratch.
    size_t z_at, row_loss_at, row_right_at, buffer_at, dw_at, dbias_at;
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
    spec.has_bias = n->attrs.biased;
    spec.bias = w->dtype;
    return spec;
}

static bool is_taken(const struct td_product_site *s, const struct td_node_info *n) {
    struct td_head_operands at = td_head_operands_of(n->op, &n->attrs, n->n_inputs);
    const struct td_shape *w = &value_of(s, n->inputs[1])->shape;
    enum td_dtype t = value_of(s, n->inputs[0])->dtype;
    bool fits = td_gemm_takes(t, t) && td_gemm_takes(t, TD_F32) && w->dim[1] > 0;
    for (uint32_t i = 3; i < n->n_inputs; i++) {
        enum td_dtype other = value_of(s, n->inputs[i])->dtype;
        bool grad = i == at.dw || i == at.dbias;
        fits &= i == at.bias || other == TD_F32 || (grad && other == t);
    }
    if (at.dbias) {
        fits &= value_of(s, n->inputs[at.dbias])->dtype == value_of(s, n->inputs[at.dw])->dtype;
    }
    return fits;
}

bool td_linear_ce_packs(const struct td_product_site *site, td_node n) {
    const struct td_node_info *node = td_graph_node(site->program->graph, n);
    struct td_gemm_spec spec = spec_of(site, node);
    return is_taken(site, node) && spec.param && td_gemm_packs(&spec);
}

// ---- making -------------------------------------------------------------------------------------
static void destroy_chunk(struct chunk *t) {
    td_gemm_destroy(t->z);
    td_gemm_destroy(t->dx);
    td_gemm_destroy(t->dw);
    td_gemm_destroy(t->dw_more);
}

static void destroy(void *own) {
    struct head *h = own;
    if (!h) return;
    destroy_chunk(&h->whole);
    destroy_chunk(&h->rest);
    free(h);
}

static td_status make_chunk(const struct td_product_site *s, const struct head *h,
                            const struct td_gemm_spec *forward, struct chunk *t) {
    struct td_gemm_spec z = *forward, dx = *forward, dw = {0};
    if (!t->rows) return TD_OK;
    z.m = dx.m = t->rows;
    TD_TRY(td_gemm_create(s->accel, &z, &t->z));
    if (!h->at.dw) return TD_OK;
    dx.k = h->classes;
    dx.n = h->cols;
    dx.trans_b = dx.has_bias = false;
    TD_TRY(td_gemm_create(s->accel, &dx, &t->dx));
    dw = (struct td_gemm_spec){.m = h->classes,
                               .n = h->cols,
                               .k = t->rows,
                               .trans_a = true,
                               .operands = forward->operands,
                               .result = TD_F32};
    TD_TRY(td_gemm_create(s->accel, &dw, &t->dw));
    dw.accumulate = true;
    return td_gemm_create(s->accel, &dw, &t->dw_more);
}

static size_t scratch_of(const struct chunk *t) {
    const struct td_gemm *const all[] = {t->z, t->dx, t->dw, t->dw_more};
    size_t most = 0;
    for (size_t i = 0; i < TD_COUNTOF(all); i++) {
        if (all[i]) most = TD_MAX(most, td_gemm_scratch_bytes(all[i]));
    }
    return most;
}

static void choose_rows(struct head *h, enum td_dtype t) {
    int64_t bytes = h->rows * h->classes * (int64_t)td_dtype_bytes(t);
    int64_t chunks =
        TD_MAX((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES, (h->rows + MOST_ROWS - 1) / MOST_ROWS);
    int64_t rows = (h->rows + chunks - 1) / TD_MAX(chunks, 1);
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
    h->buffer_at = h->row_right_at + td_align_up((size_t)h->rows, 64);
    h->dw_at =
        td_align_up(h->buffer_at + td_softmax_ce_buffer_bytes(t, h->classes, k->n_threads), 64);
    h->dbias_at = h->dw_at;
    if (h->sums) h->dbias_at += td_align_up((size_t)(h->classes * h->cols) * sizeof(float), 64);
    k->scratch_bytes = h->dbias_at;
    if (h->sums && h->at.dbias) k->scratch_bytes += (size_t)h->classes * sizeof(float);
}

// ---- running ------------------------------------------------------------------------------------
struct rows {
    const struct td_kernel *k;
    const struct td_run *r;
    struct td_softmax_ce loss;
    const char *x;
    char *dx;
    const void *w, *bias;
    float *dw, *dbias; // or their sums
};

static td_status run_chunk(struct rows *a, const struct chunk *t, int64_t from) {
    const struct head *h = a->k->own;
    size_t row_bytes = (size_t)h->cols * td_dtype_bytes(a->loss.type);
    const char *x = a->x + (size_t)from * row_bytes;
    struct td_softmax_ce loss = a->loss;
    loss.rows = t->rows;
    loss.label += from;
    loss.row_loss += from;
    loss.row_right += from;
    TD_TRY(td_gemm_run(t->z, x, a->w, a->bias, loss.d));
    td_softmax_ce_rows(&loss, a->k->n_threads);
    if (!h->at.dw) return TD_OK;
    bool first = from == 0 && (h->sums || !a->k->attrs.accumulate);
    const struct td_columns columns = {loss.d,  a->dbias,   a->loss.type, TD_F32,
                                       t->rows, h->classes, !first};
    if (a->dbias) td_columns_sum(&columns, a->k->n_threads);
    TD_TRY(td_gemm_run(t->dx, loss.d, a->w, NULL, a->dx + (size_t)from * row_bytes));
    return td_gemm_run(first ? t->dw : t->dw_more, loss.d, x, NULL, a->dw);
}

static td_status run_chunks(struct rows *a) {
    const struct head *h = a->k->own;
    int64_t at = 0;
    if (!h->rows && h->at.dw && (h->sums || !a->k->attrs.accumulate)) {
        memset(a->dw, 0, (size_t)(h->classes * h->cols) * sizeof(float));
        if (a->dbias) memset(a->dbias, 0, (size_t)h->classes * sizeof(float));
    }
    for (; h->whole.rows && at + h->whole.rows <= h->rows; at += h->whole.rows) {
        TD_TRY(run_chunk(a, &h->whole, at));
    }
    return h->rest.rows ? run_chunk(a, &h->rest, at) : TD_OK;
}

// A sum becomes the gradient, or is added to it, a few elements at a time.
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
        float buffer[CHUNK];
        const float *from = s->from + at;
        if (s->accumulate) {
            td_cpu_widen(s->type, td_cpu_at(s->type, s->to, at), n, buffer);
            for (int64_t i = 0; i < n; i++) {
                buffer[i] += from[i];
            }
            from = buffer;
        }
        td_cpu_put(s->type, from, n, s->to, at);
    }
}

static void put_sum(const struct rows *a, const float *from, uint32_t operand, int64_t n) {
    const struct td_kernel *k = a->k;
    struct sum s = {from, td_operand_at(&k->in[operand], a->r), k->in_dtype[operand],
                    k->attrs.accumulate};
    td_parallel(k->n_threads, n, GRAIN, put_range, &s);
}

static void put_sums(const struct rows *a) {
    const struct head *h = a->k->own;
    if (!h->sums) return;
    put_sum(a, a->dw, h->at.dw, h->classes * h->cols);
    if (a->dbias) put_sum(a, a->dbias, h->at.dbias, h->classes);
}

// Where gradients are summed.
static void find_sums(struct rows *a, char *scratch) {
    const struct head *h = a->k->own;
    if (!h->at.dw) return;
    a->dx = td_operand_at(&a->k->out[2], a->r);
    a->dw = h->sums ? (float *)(scratch + h->dw_at) : td_operand_at(&a->k->in[h->at.dw], a->r);
    if (!h->at.dbias) return;
    a->dbias =
        h->sums ? (float *)(scratch + h->dbias_at) : td_operand_at(&a->k->in[h->at.dbias], a->r);
}

static td_status run_linear_ce(const struct td_kernel *k, const struct td_run *r) {
    const struct head *h = k->own;
    char *scratch = r->scratch;
    struct rows a = {
        .k = k,
        .r = r,
        .loss = {.logits = scratch + h->z_at,
                 .type = k->in_dtype[0],
                 .label = td_operand_at(&k->in[2], r),
                 .weight = h->at.weights ? td_operand_at(&k->in[h->at.weights], r) : NULL,
                 .d = scratch + h->z_at,
                 .row_loss = (float *)(scratch + h->row_loss_at),
                 .row_right = (uint8_t *)(scratch + h->row_right_at),
                 .buffer = (float *)(scratch + h->buffer_at),
                 .rows = h->rows,
                 .cols = h->classes,
                 .smoothing = (float)k->attrs.label_smoothing,
                 .attrs = &k->attrs},
        .x = td_operand_at(&k->in[0], r),
        .w = td_operand_at(&k->in[1], r),
        .bias = h->at.bias ? td_operand_at(&k->in[h->at.bias], r) : NULL,
    };
    find_sums(&a, scratch);
    double weights = 0;
    if (a.loss.type == TD_F32) a.loss.buffer = NULL;
    TD_TRY(td_softmax_ce_sum_weights(&a.loss, &weights));
    a.loss.share = weights > 0 ? (float)(1 / weights) : 0;
    if (h->at.seed) a.loss.share *= *(const float *)td_operand_at(&k->in[h->at.seed], r);
    TD_TRY(run_chunks(&a));
    put_sums(&a);
    *(float *)td_operand_at(&k->out[0], r) = td_softmax_ce_mean(a.loss.row_loss, h->rows, weights);
    *(float *)td_operand_at(&k->out[1], r) = td_softmax_ce_count_correct(a.loss.row_right, h->rows);
    return TD_OK;
}

td_status td_linear_ce_take(struct td_kernel *k, const struct td_product_site *site, td_node n) {
    const struct td_node_info *node = td_graph_node(site->program->graph, n);
    if (!is_taken(site, node)) return TD_OK;
    struct td_gemm_spec forward = spec_of(site, node);
    struct head *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    k->own = h;
    k->destroy_own = destroy;
    k->run = run_linear_ce;
    h->rows = k->shape[0].dim[0];
    h->cols = k->shape[1].dim[1];
    h->classes = k->shape[1].dim[0];
    h->at = td_head_operands_of(k->op, &k->attrs, k->n_in);
    h->sums = h->at.dw && k->in_dtype[h->at.dw] != TD_F32;
    if (forward.param) k->in[1] = (struct td_operand){.base = td_unconst(forward.param)};
    choose_rows(h, k->in_dtype[0]);
    TD_TRY(make_chunk(site, h, &forward, &h->whole));
    TD_TRY(make_chunk(site, h, &forward, &h->rest));
    lay_scratch(h, k);
    return TD_OK;
}
