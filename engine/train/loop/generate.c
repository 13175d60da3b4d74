// See the header.

#include "engine/train/loop/generate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/loop/batch.h"
#include "engine/train/loop/predictions.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/state/tensor.h"
#include "engine/train/rank/step.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/files/named_output.h"
#include "lib/base/rng.h"
#include "lib/base/utf8.h"

enum { BYTE_TOKENS = 256, NOTE_BYTES = 800 };

struct writing {
    struct td_train_loop *loop;
    int64_t block;      // tokens of a row
    int64_t vocabulary; // of the data: what may be drawn
    int64_t columns;    // logits
    void *field[TD_DATA_FIELDS];
    int32_t *x; // one of the fields
    float *logits;
    double *odds;
    int32_t *token; // prompt and continuation
    int64_t n_tokens, n_prompt;
};

static void writing_finish(struct writing *w) {
    for (size_t f = 0; f < TD_DATA_FIELDS; f++) {
        free(w->field[f]);
    }
    free(w->logits);
    free(w->odds);
    free(w->token);
}

// ---- the prompt ---------------------------------------------------------------------------------
static td_status take_prompt(struct writing *w, const struct td_predict_config *p) {
    const struct td_json *list = p->prompt_tokens;
    size_t n = p->prompt ? strlen(p->prompt) : list ? list->n_children : 0;
    w->token = td_calloc(n + (size_t)p->max_new_tokens, sizeof *w->token);
    if (!w->token) return td_fail_oom();
    if (p->prompt && w->vocabulary > BYTE_TOKENS) {
        return td_bad_spec("predict.prompt is text, but the data's tokens are not bytes (there are "
                           "%lld): give predict.prompt_tokens",
                           (long long)w->vocabulary);
    }
    const struct td_json *v = p->prompt ? NULL : list->first;
    for (size_t i = 0; i < n; i++) {
        int64_t t = p->prompt ? (unsigned char)p->prompt[i] : td_json_int(v, -1);
        if (t < 0 || t >= w->vocabulary) {
            return td_bad_spec(
                "predict: token %zu of the prompt is %lld; the data has tokens 0 to %lld", i,
                (long long)t, (long long)w->vocabulary - 1);
        }
        w->token[i] = (int32_t)t;
        v = v ? v->next : NULL;
    }
    w->n_tokens = w->n_prompt = (int64_t)n;
    return TD_OK;
}

static td_status writing_init(struct writing *w, struct td_train_loop *l) {
    const struct td_rank *r = l->rank;
    size_t n_fields;
    const struct td_field *fields = td_data_fields(r->data, &n_fields);
    w->loop = l;
    if (!r->module_ops->aim) {
        return td_bad_spec(
            "predict.prompt: model '%s' does not continue texts; leave it out to predict "
            "the data",
            r->config->model.name);
    }
    for (size_t f = 0; f < n_fields; f++) {
        const size_t elems = (size_t)td_shape_elems(&fields[f].sample_shape);
        w->field[f] = td_calloc(elems, td_dtype_bytes(fields[f].dtype));
        if (!w->field[f]) return td_fail_oom();
        if (strcmp(fields[f].name, "x") != 0) continue;
        w->x = w->field[f];
        w->block = (int64_t)elems;
        w->vocabulary = fields[f].n_classes;
    }
    TD_CHECK(w->x);
    TD_TRY(td_predict_columns(r, "logits", &w->columns));
    w->vocabulary = TD_MIN(w->vocabulary, w->columns);
    w->logits = td_calloc((size_t)w->columns, sizeof *w->logits);
    w->odds = td_calloc((size_t)w->vocabulary, sizeof *w->odds);
    if (!w->logits || !w->odds) return td_fail_oom();
    return take_prompt(w, &r->config->predict);
}

// ---- drawing ------------------------------------------------------------------------------------
static int by_size(const void *a, const void *b) { // the largest first
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

// The k-th largest logit: what is below is never drawn.
static double threshold(struct writing *w, int64_t k) {
    if (k <= 0 || k >= w->vocabulary) return -INFINITY;
    for (int64_t i = 0; i < w->vocabulary; i++) {
        w->odds[i] = (double)w->logits[i];
    }
    qsort(w->odds, (size_t)w->vocabulary, sizeof *w->odds, by_size);
    return w->odds[k - 1];
}

static int32_t draw(struct writing *w, const struct td_predict_config *p) {
    int64_t best = 0;
    for (int64_t i = 1; i < w->vocabulary; i++) {
        best = w->logits[i] > w->logits[best] ? i : best;
    }
    if (p->temperature <= 0) return (int32_t)best;
    const double least = threshold(w, p->top_k), top = (double)w->logits[best];
    const struct td_philox_key key = td_philox_key_of(p->seed, "predict.draw");
    double sum = 0;
    for (int64_t i = 0; i < w->vocabulary; i++) {
        double v = (double)w->logits[i];
        w->odds[i] = v < least ? 0 : exp((v - top) / p->temperature);
        sum += w->odds[i];
    }
    double left = sum * (double)td_philox_uniform(key, (uint64_t)(w->n_tokens - w->n_prompt));
    for (int64_t i = 0; i < w->vocabulary; i++) {
        left -= w->odds[i];
        if (left < 0) return (int32_t)i;
    }
    return (int32_t)best; // rounding took the last of it
}

static td_status next_token(struct writing *w) {
    struct td_rank *r = w->loop->rank;
    const int64_t n = TD_MIN(w->n_tokens, w->block);
    const struct td_graph *g;
    struct td_buffer inputs[TD_DATA_FIELDS];
    td_data_buffers(r->data, (const void *const *)w->field, 1, inputs);
    memcpy(w->x, w->token + (w->n_tokens - n), (size_t)n * sizeof *w->x);
    r->module_ops->aim(r->module, 0, n - 1, w->field);
    struct td_program_key key = td_rank_predict_key(r, 1);
    TD_TRY(td_rank_step(r, TD_STEP_PREDICT, &key, 0, inputs, &g));
    TD_TRY(td_rank_read_result(r, "logits", 1, w->logits, w->columns));
    w->token[w->n_tokens] = draw(w, &r->config->predict);
    w->n_tokens++;
    return TD_OK;
}

// ---- writing down -------------------------------------------------------------------------------
static td_status print_tokens(const struct writing *w, struct td_buf *out) {
    for (int64_t i = 0; i < w->n_tokens; i++) {
        const char byte = (char)w->token[i];
        if (w->vocabulary <= BYTE_TOKENS) {
            TD_TRY(td_buf_append(out, &byte, 1));
        } else {
            TD_TRY(td_buf_printf(out, "%s%d", i ? " " : "", w->token[i]));
        }
    }
    return TD_OK;
}

static td_status write_down(const struct writing *w) {
    const struct td_rank *r = w->loop->rank;
    char path[TD_FS_PATH_BYTES], shown[NOTE_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, (size_t)w->n_tokens * 12 + 1);
    TD_TRY(print_tokens(w, &text));
    TD_TRY(td_predict_path(r, TD_RESULT_SAMPLE, path));
    TD_TRY(td_named_output_write(path, text.data, text.len, 0666, TD_FS_WRITE_DURABLE));
    snprintf(shown, sizeof shown, "%s", td_buf_cstr(&text));
    td_utf8_scrub(shown);
    td_events_note(r->events, "%lld tokens are in %s: %s", (long long)w->n_tokens, path, shown);
    return TD_OK;
}

static td_status write_text(struct writing *w, bool *out_interrupted) {
    const struct td_rank *r = w->loop->rank;
    const int64_t end = w->n_prompt + r->config->predict.max_new_tokens;
    while (w->n_tokens < end) {
        TD_TRY(td_train_loop_agree(w->loop, out_interrupted));
        if (*out_interrupted) return TD_OK;
        TD_TRY(td_batch_name(next_token(w), w->loop, "predict", w->n_tokens - w->n_prompt));
    }
    return r->facts.is_global_zero ? write_down(w) : TD_OK;
}

td_status td_generate(struct td_train_loop *l, bool *out_interrupted) {
    struct writing w = {.loop = l};
    td_status s = writing_init(&w, l);
    if (!s) s = write_text(&w, out_interrupted);
    writing_finish(&w);
    return s;
}
