// Predictions of a split into one .npy; see predict.h. Each batch is gathered from all ranks, and
// rank 0 writes every row to the place that the rank's share of the samples says.

#include "engine/train/loop/predict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/train/config/limits.h"
#include "engine/train/loop/batch.h"
#include "engine/train/loop/generate.h"
#include "engine/train/loop/predictions.h"
#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/tensor.h"
#include "engine/train/rank/step.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/files/named_output.h"

// ---- the file -----------------------------------------------------------------------------------
struct table { // rows of a .npy that is being written
    struct td_named_output output;
    char path[TD_FS_PATH_BYTES];
    size_t header_bytes;
};

// "\x93NUMPY", version 1, length, the dict, blanks and a newline up to a multiple of 64.
static td_status append_header(struct td_buf *b, const char *descr, int64_t rows, int64_t columns) {
    TD_AUTO_BUF dict;
    td_buf_init(&dict, 512);
    TD_TRY(td_buf_printf(&dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,", descr,
                         (long long)rows));
    if (columns) TD_TRY(td_buf_printf(&dict, " %lld", (long long)columns));
    TD_TRY(td_buf_str(&dict, "), }"));
    while ((10 + dict.len + 1) % 64) {
        TD_TRY(td_buf_str(&dict, " "));
    }
    TD_TRY(td_buf_str(&dict, "\n"));
    const unsigned char prefix[10] = {0x93,
                                      'N',
                                      'U',
                                      'M',
                                      'P',
                                      'Y',
                                      1,
                                      0,
                                      (unsigned char)dict.len,
                                      (unsigned char)(dict.len >> 8)};
    TD_TRY(td_buf_append(b, prefix, sizeof prefix));
    return td_buf_append(b, dict.data, dict.len);
}

static td_status table_open(struct table *t, const struct td_rank *r, const char *descr,
                            int64_t rows, int64_t columns) {
    TD_AUTO_BUF header;
    td_buf_init(&header, 1024);
    TD_TRY(td_predict_path(r, TD_RESULT_PREDICTIONS, t->path));
    TD_TRY(append_header(&header, descr, rows, columns));
    t->header_bytes = header.len;
    TD_TRY(td_named_output_open(t->path, 0666, &t->output));
    return td_fd_write_all(t->output.file.fd, header.data, header.len, t->path);
}

static td_status table_put(const struct table *t, int64_t row, const void *data, size_t bytes) {
    off_t at = (off_t)(t->header_bytes + (size_t)row * bytes);
    for (const char *p = data; bytes > 0;) {
        ssize_t n = pwrite(t->output.file.fd, p, bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fs_fail("write", t->path);
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return TD_OK;
}

// ---- asking -------------------------------------------------------------------------------------
struct asking {
    struct td_train_loop *loop;
    int64_t columns; // logits of a row
    int64_t classes; // numbers of a row that are written instead; 0: the logits are
    size_t row_bytes;
    float *logits;                // (batch_size, columns)
    char *own, *all;              // a count and a batch of rows, of this rank and of all
    void *field[TD_DATA_FIELDS];  // inputs that aim() writes into
    size_t bytes[TD_DATA_FIELDS]; // of one sample
    struct table table;           // rank 0
};

static void asking_finish(struct asking *a) {
    td_named_output_close(&a->table.output);
    for (size_t f = 0; f < TD_DATA_FIELDS; f++) {
        free(a->field[f]);
    }
    free(a->logits);
    free(a->own);
    free(a->all);
}

// Numbers of a row that are written instead of the logits; 0: the logits are.
static int64_t classes_of(const struct td_rank *r, int64_t columns) {
    enum td_predict_values values = r->config->predict.values;
    bool numbers = r->targets.kind != TD_TARGET_CLASS;
    if (values == TD_PREDICT_LOGITS || (values == TD_PREDICT_USUAL && numbers)) return 0;
    return r->targets.kind == TD_TARGET_BINARY ? columns : 1;
}

static td_status asking_init(struct asking *a, struct td_train_loop *l) {
    const struct td_rank *r = l->rank;
    const size_t batch = (size_t)r->config->batch_size;
    size_t n_fields;
    const struct td_field *fields = td_data_fields(r->data, &n_fields);
    a->loop = l;
    TD_TRY(td_predict_columns(r, "logits", &a->columns));
    a->classes = classes_of(r, a->columns);
    a->row_bytes =
        a->classes ? (size_t)a->classes * sizeof(int32_t) : (size_t)a->columns * sizeof(float);
    size_t part = sizeof(int64_t) + batch * a->row_bytes;
    a->logits = td_calloc(batch * (size_t)a->columns, sizeof *a->logits);
    a->own = td_calloc(1, part);
    a->all = td_calloc((size_t)r->facts.world_size, part);
    if (!a->logits || !a->own || !a->all) return td_fail_oom();
    for (size_t f = 0; f < n_fields && r->module_ops->aim; f++) {
        a->bytes[f] =
            td_dtype_bytes(fields[f].dtype) * (size_t)td_shape_elems(&fields[f].sample_shape);
        a->field[f] = td_calloc(batch, a->bytes[f]);
        if (!a->field[f]) return td_fail_oom();
    }
    return TD_OK;
}

// The row's end is what a module that predicts tokens is asked for.
static void aim_at_ends(struct asking *a, const struct td_buffer *inputs, struct td_buffer *out,
                        int64_t n) {
    const struct td_rank *r = a->loop->rank;
    size_t n_fields;
    const struct td_field *fields = td_data_fields(r->data, &n_fields);
    for (size_t f = 0; f < n_fields; f++) {
        memcpy(a->field[f], td_data_host(inputs[f]), (size_t)n * a->bytes[f]);
    }
    for (int64_t i = 0; i < n; i++) {
        r->module_ops->aim(r->module, i, fields[0].sample_shape.dim[0] - 1, a->field);
    }
    td_data_buffers(r->data, (const void *const *)a->field, n, out);
}

static int32_t largest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return (int32_t)best;
}

// This rank's rows of the batch at `offset`, into a->own.
static td_status ask(struct asking *a, int64_t offset) {
    struct td_rank *r = a->loop->rank;
    struct td_buffer batch[TD_DATA_FIELDS], aimed[TD_DATA_FIELDS];
    const struct td_buffer *inputs = batch;
    const struct td_graph *g;
    int64_t n;
    TD_TRY(td_data_batch(r->data, TD_SPLIT_PREDICT, 0, offset, batch, &n));
    memcpy(a->own, &n, sizeof n);
    if (n == 0) return td_rank_step_idle(r, TD_STEP_PREDICT, 0);
    if (r->module_ops->aim) {
        aim_at_ends(a, inputs, aimed, n);
        inputs = aimed;
    }
    struct td_program_key key = td_rank_predict_key(r, n);
    TD_TRY(td_rank_step(r, TD_STEP_PREDICT, &key, 0, inputs, &g));
    TD_TRY(td_rank_read_result(r, "logits", n, a->logits, n * a->columns));
    char *rows = a->own + sizeof n;
    if (!a->classes) {
        memcpy(rows, a->logits, (size_t)n * a->row_bytes);
        return TD_OK;
    }
    bool sides = r->targets.kind == TD_TARGET_BINARY; // each logit says yes or no
    for (int64_t i = 0; i < n * a->classes; i++) {
        int32_t c = sides ? a->logits[i] > 0 : largest(a->logits + i * a->columns, a->columns);
        memcpy(rows + (size_t)i * sizeof c, &c, sizeof c);
    }
    return TD_OK;
}

// Row j of a rank's batch at `offset` is sample offset + share + j * shares. Ranks of one share
// have the same rows.
static td_status write_batch(struct asking *a, int64_t offset) {
    const struct td_rank *r = a->loop->rank;
    const size_t part = sizeof(int64_t) + (size_t)r->config->batch_size * a->row_bytes;
    for (int32_t k = 0; k < r->facts.world_size; k++) {
        const struct td_strategy_shard share = td_rank_share_of(r, TD_SPLIT_PREDICT, k);
        const char *rows = a->all + (size_t)k * part;
        int64_t n;
        memcpy(&n, rows, sizeof n);
        rows += sizeof n;
        for (int64_t j = 0; j < n; j++) {
            TD_TRY(table_put(&a->table, offset + share.rank + j * share.n_replicas,
                             rows + (size_t)j * a->row_bytes, a->row_bytes));
        }
    }
    return TD_OK;
}

// Its rows would be zeros.
static td_status check_shares(const struct td_rank *r) {
    const int32_t share = td_rank_missing_share(r, TD_SPLIT_PREDICT);
    if (share < 0) return TD_OK;
    return td_status_with_class(
        td_fail(TD_INVALID_ARGUMENT,
                "strategy '%s' gives share %d of %d of split predict to no rank, so predictions "
                "would lack its samples",
                r->strategy_name, share, r->share[TD_SPLIT_PREDICT].n_replicas),
        TD_CLASS_USER_CODE);
}

static td_status run_batches(struct asking *a, int64_t n_batches, bool *out_interrupted) {
    struct td_rank *r = a->loop->rank;
    const struct td_sampler *s = td_data_sampler(r->data, TD_SPLIT_PREDICT);
    const int64_t batch = r->config->batch_size;
    int64_t offset = 0;
    for (int64_t b = 0; b < n_batches; b++) {
        TD_TRY(td_train_loop_agree(a->loop, out_interrupted));
        if (*out_interrupted) return TD_OK;
        if (b) td_train_loop_settled(a->loop);
        TD_TRY(td_batch_name(ask(a, offset), a->loop, "predict", b));
        size_t part = sizeof(int64_t) + (size_t)batch * a->row_bytes;
        TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, a->own, part, a->all));
        if (r->facts.is_global_zero) TD_TRY(write_batch(a, offset));
        offset = td_sampler_next(s, offset, batch);
    }
    return TD_OK;
}

static td_status predict_split(struct asking *a, int64_t n_batches, bool *out_interrupted) {
    struct td_rank *r = a->loop->rank;
    const struct td_sampler *s = td_data_sampler(r->data, TD_SPLIT_PREDICT);
    const int64_t columns = a->classes ? a->classes : a->columns;
    int64_t rows = 0;
    TD_TRY(check_shares(r));
    for (int64_t b = 0; b < n_batches; b++) {
        rows = td_sampler_next(s, rows, r->config->batch_size);
    }
    if (r->facts.is_global_zero) {
        TD_TRY(table_open(&a->table, r, a->classes ? "<i4" : "<f4", rows,
                          a->classes == 1 ? 0 : columns));
    }
    TD_TRY(run_batches(a, n_batches, out_interrupted));
    if (*out_interrupted || !r->facts.is_global_zero) return TD_OK;
    TD_TRY(td_named_output_finish(&a->table.output, TD_FS_WRITE_DURABLE));
    td_events_note(r->events, "predictions of %lld samples are in %s", (long long)rows,
                   a->table.path);
    return TD_OK;
}

static td_status predict_samples(struct td_train_loop *l, int64_t n_batches,
                                 bool *out_interrupted) {
    struct asking a = {.table.output = TD_NAMED_OUTPUT_NONE};
    td_status s = asking_init(&a, l);
    if (!s) s = predict_split(&a, n_batches, out_interrupted);
    asking_finish(&a);
    return s;
}

td_status td_predict(struct td_train_loop *l, bool *out_interrupted) {
    struct td_rank *r = l->rank;
    const bool generates = td_rank_generates(r);
    *out_interrupted = false;
    td_control_phase(&r->control, TD_PHASE_PREDICTING);
    const int64_t n =
        generates ? r->config->predict.max_new_tokens : td_rank_eval_batches(r, TD_SPLIT_PREDICT);
    if (n == 0 && !generates) return TD_OK;
    TD_TRY(td_rank_hook(r, TD_HOOK_PREDICT_START, 0));
    TD_TRY(td_rank_hook(r, TD_HOOK_EVAL_START, 0));
    TD_TRY(generates ? td_generate(l, out_interrupted) : predict_samples(l, n, out_interrupted));
    TD_TRY(td_rank_hook(r, TD_HOOK_EVAL_END, n));
    return td_rank_hook(r, TD_HOOK_PREDICT_END, n);
}
