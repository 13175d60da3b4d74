// Rows of tokens in, layers of two parts each, the next token's loss or logits out; see decoder.h.
//
// A prediction reads one place of each row only: the first element of its y says which, counted
// through the batch, because y carries nothing else then. Rejected: logits of all places, of which
// generation would throw away all but one.

#include "workloads/modules/decoder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "traind/build.h"

enum { td_decoder_magic = 0x64656331 };

TD_DEFINE_AUTO(td_module, td_decoder_close);

static td_status fit_sizes(struct td_decoder *d) {
    int64_t tokens = TD_MAX(d->fields.x.n_classes, d->fields.y.n_classes);
    d->block = d->fields.x.sample_shape.dim[0];
    if (!d->n_positions) d->n_positions = d->block;
    if (!d->vocab_size) d->vocab_size = tokens;
    if (d->block > d->n_positions) {
        return td_bad_spec("the dataset's rows have %" PRId64 " tokens, but model.%s is %" PRId64,
                           d->block, d->form->positions, d->n_positions);
    }
    if (tokens <= d->vocab_size && d->vocab_size > 0) return TD_OK;
    return td_bad_spec("the dataset's tokens are below %" PRId64 ", but model.vocab_size is "
                       "%" PRId64
                       " (of tokens out of files data.vocab_size says below what they are)",
                       tokens, d->vocab_size);
}

static td_status take_fields(struct td_decoder *d, const struct td_field *fields, size_t n_fields) {
    TD_TRY(td_xy_take(d->form->module, fields, n_fields, &d->fields));
    const struct td_field *x = &d->fields.x, *y = &d->fields.y;
    if (x->dtype != TD_I32 || y->dtype != TD_I32 || x->sample_shape.n_dims != 1 ||
        !td_shape_equal(&x->sample_shape, &y->sample_shape)) {
        char a[96], b[96];
        return td_bad_spec("%s takes rows of i32 tokens 'x' and as many 'y'; the dataset gives "
                           "%s of %s and %s of %s",
                           d->form->module, td_shape_words(&x->sample_shape, a, sizeof a),
                           td_dtype_name(x->dtype), td_shape_words(&y->sample_shape, b, sizeof b),
                           td_dtype_name(y->dtype));
    }
    TD_TRY(fit_sizes(d));
    return td_module_loss_fit_tokens(&d->loss, d->form->module, d->vocab_size);
}

td_status td_decoder_open(const struct td_decoder_form *form, size_t bytes,
                          const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields, struct td_module **out_module) {
    TD_AUTO(td_module) *m = td_calloc(1, bytes);
    struct td_decoder *d = (struct td_decoder *)m;
    if (!m) return td_fail_oom();
    d->magic = td_decoder_magic;
    d->form = form;
    TD_TRY(form->read(m, knobs));
    TD_TRY(td_module_loss_init(&d->loss, knobs));
    TD_TRY(take_fields(d, fields, n_fields));
    form->write_config(m);
    *out_module = td_steal(m);
    return TD_OK;
}

void td_decoder_close(struct td_module *m) {
    struct td_decoder *d = (struct td_decoder *)m;
    if (!d) return;
    td_module_loss_finish(&d->loss);
    d->magic = 0;
    free(d);
}

const char *td_decoder_config(struct td_module *m) {
    return TD_CAST(td_decoder, (void *)m)->config;
}

const char *td_decoder_other_name(struct td_module *m, const char *name) {
    const char *prefix = TD_CAST(td_decoder, (void *)m)->form->prefix;
    const size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

bool td_decoder_name_ends(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

// h (B T, C)
static td_status predict(struct td_graph *g, td_value h, td_value y, td_value head) {
    const int64_t batch = td_graph_value(g, y)->shape.dim[0];
    const struct td_matmul_options transposed = {.trans_b = true};
    const struct td_shape first = td_shape_2(batch, 1), places = td_shape_1(batch);
    td_value logits;
    TD_TRY(td_build_slice(g, y, (int64_t[]){0, 0}, &first, &y));
    TD_TRY(td_layer_reshape(g, &places, &y));
    TD_TRY(td_build_embedding(g, h, y, &h));
    TD_TRY(td_build_matmul(g, h, head, 0, &transposed, &logits));
    return td_graph_result(g, "logits", logits);
}

void td_decoder_aim(struct td_module *m, int64_t row, int64_t position, void *const *inputs) {
    const struct td_decoder *d = TD_CAST(td_decoder, (void *)m);
    int32_t *y = inputs[d->fields.y_first ? 0 : 1];
    y[row * d->block] = (int32_t)(row * d->block + position);
}

// From h (B,T,C) and the head's table (V,C) to the loss, or to the logits of one place of each row.
static td_status end(const struct td_decoder *d, struct td_graph *g, td_value h, td_value y,
                     td_value head) {
    const struct td_shape *in = &td_graph_value(g, h)->shape;
    const struct td_shape rows = td_shape_2(in->dim[0] * d->block, in->dim[2]);
    const struct td_shape targets = td_shape_1(rows.dim[0]);
    const struct td_matmul_options transposed = {.trans_b = true};
    td_value logits;
    TD_TRY(td_layer_reshape(g, &rows, &h));
    if (td_graph_mode(g) == TD_MODE_PREDICT) return predict(g, h, y, head);
    TD_TRY(td_build_matmul(g, h, head, 0, &transposed, &logits));
    TD_TRY(td_layer_reshape(g, &targets, &y));
    return td_module_loss_record(&d->loss, g, logits, y, false);
}

td_status td_decoder_table(const struct td_decoder *d, struct td_graph *g, const char *name,
                           int64_t rows, td_value *out_table) {
    return td_layer_normal(g, name, rows, d->width, d->initializer_range, TD_PARAM_NOT_HIDDEN,
                           out_table);
}

// h + part(norm(h)), part by part.
static td_status layer(const struct td_decoder *d, const struct td_module *m, struct td_graph *g,
                       int64_t at, td_value *h) {
    for (size_t i = 0; i < TD_COUNTOF(d->form->parts); i++) {
        const struct td_decoder_part *part = &d->form->parts[i];
        char path[TD_LAYER_NAME_BYTES];
        td_value inner = *h;
        snprintf(path, sizeof path, "%s.%" PRId64 ".%s", d->form->layers, at, part->norm);
        TD_TRY(d->form->norm(m, g, path, &inner));
        snprintf(path, sizeof path, "%s.%" PRId64 ".%s", d->form->layers, at, part->name);
        TD_TRY(part->record(m, g, path, &inner));
        TD_TRY(td_build_add(g, *h, inner, h));
    }
    return TD_OK;
}

td_status td_decoder_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    const struct td_decoder *d = TD_CAST(td_decoder, (void *)m);
    td_value x, y, head, h;
    TD_TRY(td_xy_inputs(&d->fields, g, batch, &x, &y));
    TD_TRY(td_decoder_table(d, g, d->form->tokens, d->vocab_size, &head));
    TD_TRY(d->form->embed ? d->form->embed(m, g, x, head, &h) : td_build_embedding(g, head, x, &h));
    for (int64_t i = 0; i < d->n_layers; i++) {
        TD_TRY(layer(d, m, g, i, &h));
    }
    TD_TRY(d->form->norm(m, g, d->form->last_norm, &h));
    if (!d->tied) TD_TRY(td_decoder_table(d, g, d->form->head, d->vocab_size, &head));
    return end(d, g, h, y, head);
}
