// Embedding: rows of a table by token, and the table's gradient.
//
// The gradient sums the rows of dy that belong to a token. Positions are sorted by token once, by a
// counting sort, so that equal tokens keep their order. Then each thread takes a share of the
// columns of all tokens. The shares are even whatever the text, a row of the table is written once,
// nothing is atomic, and the bits do not depend on the number of threads. Sums are fp32, rounded
// once where the table is narrower.

#include <string.h>

#include "accelerators/cpu/kernels/convert.h"
#include "accelerators/cpu/kernels/families.h"
#include "accelerators/cpu/parallel.h"
#include "accelerators/reference/node.h"

enum { GRAIN = 4096, COLUMN_GRAIN = 64, COLUMNS_AT_ONCE = 512 };

struct embedding {
    enum td_dtype type, table_type;
    const int32_t *ids;
    const char *from;
    char *to;
    int64_t n, vocabulary, cols;
    int32_t *begin; // [vocabulary + 1]: where a token's positions begin in `order`
    int32_t *order; // [n]
    bool adds;      // to what is there
};

static td_status check_ids(const struct embedding *e) {
    for (int64_t i = 0; i < e->n; i++) {
        if (e->ids[i] >= 0 && e->ids[i] < e->vocabulary) continue;
        return td_ref_no_index("token id", e->ids[i], i, e->vocabulary, "tokens");
    }
    return TD_OK;
}

// ---- forward
static void gather_rows(const void *arg, int64_t begin, int64_t end) {
    const struct embedding *e = arg;
    size_t bytes = (size_t)e->cols * td_dtype_bytes(e->type);
    for (int64_t i = begin; i < end; i++) {
        memcpy(e->to + (size_t)i * bytes, e->from + (size_t)e->ids[i] * bytes, bytes);
    }
}

static td_status run_embedding(const struct td_kernel *k, const struct td_run *r) {
    struct embedding e = {.type = k->in_dtype[0],
                          .ids = td_operand_at(&k->in[1], r),
                          .from = td_operand_at(&k->in[0], r),
                          .to = td_operand_at(&k->out[0], r),
                          .n = td_shape_elems(&k->shape[1]),
                          .vocabulary = k->shape[0].dim[0],
                          .cols = k->shape[0].dim[1]};
    TD_TRY(check_ids(&e));
    td_parallel(k->n_threads, e.n, GRAIN / TD_MAX(e.cols, 1) + 1, gather_rows, &e);
    return TD_OK;
}

// ---- backward
static void sort_positions(const struct embedding *e) {
    memset(e->begin, 0, (size_t)(e->vocabulary + 1) * sizeof *e->begin);
    for (int64_t i = 0; i < e->n; i++) {
        e->begin[e->ids[i] + 1]++;
    }
    for (int64_t v = 0; v < e->vocabulary; v++) {
        e->begin[v + 1] += e->begin[v];
    }
    // begin[v] moves to the token's end while its positions are filled in, and is moved back.
    for (int64_t i = 0; i < e->n; i++) {
        e->order[e->begin[e->ids[i]]++] = (int32_t)i;
    }
    memmove(e->begin + 1, e->begin, (size_t)e->vocabulary * sizeof *e->begin);
    e->begin[0] = 0;
}

static void add_row(float *restrict sum, const float *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        sum[i] += x[i];
    }
}

static void sum_token(const struct embedding *e, int64_t v, int64_t first, int64_t n) {
    float sum[COLUMNS_AT_ONCE] = {0}, buffer[COLUMNS_AT_ONCE];
    for (int32_t i = e->begin[v]; i < e->begin[v + 1]; i++) {
        add_row(sum, td_cpu_row(e->type, e->from, e->order[i] * e->cols + first, n, buffer), n);
    }
    size_t at = (size_t)(v * e->cols + first) * td_dtype_bytes(e->table_type);
    if (e->adds) {
        td_cpu_widen(e->table_type, e->to + at, n, buffer);
        add_row(sum, buffer, n);
    }
    td_cpu_narrow(e->table_type, sum, n, e->to + at);
}

static void sum_columns(const void *arg, int64_t begin, int64_t end) {
    const struct embedding *e = arg;
    for (int64_t v = 0; v < e->vocabulary; v++) {
        if (e->adds && e->begin[v] == e->begin[v + 1]) continue;
        for (int64_t c = begin; c < end; c += COLUMNS_AT_ONCE) {
            sum_token(e, v, c, TD_MIN(end - c, (int64_t)COLUMNS_AT_ONCE));
        }
    }
}

static td_status run_embedding_grad(const struct td_kernel *k, const struct td_run *r) {
    struct embedding e = {.type = k->in_dtype[1],
                          .table_type = k->out_dtype[0],
                          .ids = td_operand_at(&k->in[0], r),
                          .from = td_operand_at(&k->in[1], r),
                          .to = td_operand_at(&k->out[0], r),
                          .n = td_shape_elems(&k->shape[0]),
                          .vocabulary = k->out_shape.dim[0],
                          .cols = k->out_shape.dim[1],
                          .begin = r->scratch,
                          .adds = k->attrs.accumulate};
    e.order = e.begin + e.vocabulary + 1;
    TD_TRY(check_ids(&e));
    sort_positions(&e);
    td_parallel(k->n_threads, e.cols, COLUMN_GRAIN, sum_columns, &e);
    return TD_OK;
}

td_status td_kernel_embedding(struct td_kernel *k) {
    if (td_kernel_is(k, "embedding") && k->in_dtype[1] == TD_I32) {
        k->run = run_embedding;
    } else if (td_kernel_is(k, "embedding_grad") && k->in_dtype[0] == TD_I32) {
        int64_t n = td_shape_elems(&k->shape[0]);
        bool fits = td_cpu_is_narrow(k->in_dtype[1]) && td_cpu_is_narrow(k->out_dtype[0]);
        if (!fits || n > INT32_MAX) return TD_OK;
        k->run = run_embedding_grad;
        k->scratch_bytes = (size_t)(k->out_shape.dim[0] + 1 + n) * sizeof(int32_t);
    }
    return TD_OK;
}
