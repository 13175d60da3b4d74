// Rows of tokens in, the next token's loss or logits out; see decoder.h.
//
// A prediction reads one place of each row only: the first element of its y says which, counted
// through the batch, because y carries nothing else then. Rejected: logits of all places, of which
// generation would throw away all but one.

#include "workloads/modules/decoder.h"

#include <inttypes.h>
#include <string.h>

static td_status fit_sizes(struct td_decoder *d, const char *positions) {
    int64_t tokens = TD_MAX(d->fields.x.n_classes, d->fields.y.n_classes);
    d->block = d->fields.x.sample_shape.dim[0];
    if (!d->n_positions) d->n_positions = d->block;
    if (!d->vocab_size) d->vocab_size = tokens;
    if (d->block > d->n_positions) {
        return td_bad_spec("the dataset's rows have %" PRId64 " tokens, but model.%s is %" PRId64,
                           d->block, positions, d->n_positions);
    }
    if (tokens <= d->vocab_size && d->vocab_size > 0) return TD_OK;
    return td_bad_spec("the dataset's tokens are below %" PRId64 ", but model.vocab_size is "
                       "%" PRId64
                       " (of tokens out of files data.vocab_size says below what they are)",
                       tokens, d->vocab_size);
}

td_status td_decoder_open(struct td_decoder *d, const char *module, const char *positions,
                          const struct td_json *knobs, const struct td_field *fields,
                          size_t n_fields) {
    TD_TRY(td_module_loss_init(&d->loss, knobs));
    TD_TRY(td_xy_take(module, fields, n_fields, &d->fields));
    const struct td_field *x = &d->fields.x, *y = &d->fields.y;
    if (x->dtype != TD_I32 || y->dtype != TD_I32 || x->sample_shape.n_dims != 1 ||
        !td_shape_equal(&x->sample_shape, &y->sample_shape)) {
        char a[96], b[96];
        return td_bad_spec("%s takes rows of i32 tokens 'x' and as many 'y'; the dataset gives "
                           "%s of %s and %s of %s",
                           module, td_shape_words(&x->sample_shape, a, sizeof a),
                           td_dtype_name(x->dtype), td_shape_words(&y->sample_shape, b, sizeof b),
                           td_dtype_name(y->dtype));
    }
    TD_TRY(fit_sizes(d, positions));
    return td_module_loss_fit_tokens(&d->loss, module, d->vocab_size);
}

void td_decoder_finish(struct td_decoder *d) {
    td_module_loss_finish(&d->loss);
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

void td_decoder_aim(const struct td_decoder *d, int64_t row, int64_t position,
                    void *const *inputs) {
    int32_t *y = inputs[d->fields.y_first ? 0 : 1];
    y[row * d->block] = (int32_t)(row * d->block + position);
}

td_status td_decoder_predict(const struct td_decoder *d, struct td_graph *g, td_value h, td_value y,
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
