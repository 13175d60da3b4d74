// Losses of the in-tree modules; see loss.h.
//
// Cross entropy keeps the plain form where nothing is asked of it, so that the graph of a job
// without the section is what it always was. Labels that are left out, and weights of classes, make
// a batch count for more or less than its samples. Outputs then carry their own weight
// (TD_OUTPUT_WEIGHT), so that the loss of a validation is that of all its labels at once and not
// the mean of its batches. Accuracy of a binary loss is the share of logits on the right side of 0.

#include "workloads/modules/loss.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "traind/knobs.h"

static const char *const kind_names[] = {"cross_entropy", "mse", "bce"};

// ---- reading ------------------------------------------------------------------------------------
static td_status read_weights(struct td_module_loss *l, const struct td_json *loss) {
    double sum = 0;
    size_t n = 0;
    l->class_weight = td_calloc(TD_LOSS_MAX_WEIGHTS, sizeof *l->class_weight);
    if (!l->class_weight) return td_fail_oom();
    TD_TRY(td_knob_reals(loss, "class_weights", TD_LOSS_MAX_WEIGHTS, l->class_weight, &n));
    l->n_weights = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        double w = l->class_weight[i];
        if (!(w >= 0 && w <= 1e6)) {
            return td_bad_spec("model.loss.class_weights[%zu]: expected a number from 0 to 1e6", i);
        }
        sum += w;
    }
    if (n == 0) td_module_loss_finish(l); // all alike
    if (n == 0 || sum > 0) return TD_OK;
    return td_bad_spec("model.loss.class_weights: all are 0, so there is nothing to minimize; "
                       "leave them out, or give a class more");
}

static td_status find_loss(const struct td_json *knobs, const struct td_json **out_loss) {
    const struct td_json *loss = td_json_get(knobs, "loss");
    if (!loss || loss->kind != TD_JSON_OBJECT) {
        return td_bad_spec("model.loss: expected a map with a name");
    }
    *out_loss = loss;
    return TD_OK;
}

static td_status read_kind(const struct td_json *loss, enum td_loss_kind *out_kind) {
    const char *name = NULL;
    TD_TRY(td_knob_text(loss, "name", &name));
    for (size_t i = 0; i < TD_COUNTOF(kind_names); i++) {
        if (strcmp(kind_names[i], name) != 0) continue;
        *out_kind = (enum td_loss_kind)i;
        return TD_OK;
    }
    return td_bad_spec("model.loss: '%s' is not known here; use cross_entropy, mse or bce", name);
}

static td_status read_ignored(const struct td_json *loss, bool *out_ignores, int32_t *out_index) {
    int64_t index = 0;
    TD_TRY(td_knob_int_or(loss, "ignore_index", 0, &index));
    if (!td_knob_is_set(loss, "ignore_index")) return TD_OK;
    if (index < INT32_MIN || index > INT32_MAX) {
        return td_bad_spec("model.loss.ignore_index: labels are integers of 32 bits");
    }
    *out_ignores = true;
    *out_index = (int32_t)index;
    return TD_OK;
}

td_status td_module_loss_targets(const struct td_json *knobs, struct td_targets *out_targets) {
    static const enum td_target_kind kinds[] = {
        [TD_LOSS_CROSS_ENTROPY] = TD_TARGET_CLASS,
        [TD_LOSS_MSE] = TD_TARGET_REAL,
        [TD_LOSS_BCE] = TD_TARGET_BINARY,
    };
    const struct td_json *loss = NULL;
    enum td_loss_kind kind;
    TD_TRY(find_loss(knobs, &loss));
    TD_TRY(read_kind(loss, &kind));
    out_targets->kind = kinds[kind];
    if (kind != TD_LOSS_CROSS_ENTROPY) return TD_OK;
    return read_ignored(loss, &out_targets->ignores, &out_targets->ignore_index);
}

static td_status read_cross_entropy(struct td_module_loss *l, const struct td_json *loss) {
    double smoothing = 0;
    TD_TRY(td_knob_real(loss, "label_smoothing", &smoothing));
    if (!(smoothing >= 0 && smoothing <= 1)) {
        return td_bad_spec("model.loss.label_smoothing: expected a number from 0 to 1");
    }
    l->labels.smoothing = smoothing;
    TD_TRY(read_ignored(loss, &l->labels.ignores, &l->labels.ignore_index));
    return read_weights(l, loss);
}

td_status td_module_loss_init(struct td_module_loss *l, const struct td_json *knobs) {
    const struct td_json *loss = NULL;
    *l = (struct td_module_loss){.kind = TD_LOSS_CROSS_ENTROPY};
    TD_TRY(find_loss(knobs, &loss));
    TD_TRY(read_kind(loss, &l->kind));
    if (l->kind != TD_LOSS_CROSS_ENTROPY) return TD_OK;
    td_status s = read_cross_entropy(l, loss);
    if (s) td_module_loss_finish(l);
    return s;
}

void td_module_loss_finish(struct td_module_loss *l) {
    free(l->class_weight);
    l->class_weight = NULL;
}

// ---- fitting ------------------------------------------------------------------------------------
static td_status fit_weights(struct td_module_loss *l, const char *last, int64_t classes) {
    l->width = classes;
    if (!l->class_weight || l->n_weights == classes) return TD_OK;
    return td_bad_spec("model.loss.class_weights has %" PRId64 " numbers, but %s gives %" PRId64
                       " classes; give one a class",
                       l->n_weights, last, classes);
}

static td_status fit_labels(struct td_module_loss *l, const char *module, const struct td_field *y,
                            const char *last, int64_t classes) {
    int64_t labels = td_shape_elems(&y->sample_shape);
    if (y->dtype != TD_I32 || labels != 1) {
        return td_bad_spec("%s with loss cross_entropy takes one i32 label 'y' per sample; the "
                           "dataset gives %" PRId64 " of %s: %s",
                           module, labels, td_dtype_name(y->dtype),
                           y->dtype == TD_F32 ? "set model.loss to mse or bce, or save y as "
                                                "integers"
                                              : "save one label a sample");
    }
    if (y->n_classes > classes) {
        const bool one_more = y->n_classes == classes + 1;
        return td_bad_spec("%s ends with %" PRId64 " but the dataset's labels 'y' have %" PRId64
                           " classes; end with %" PRId64 "%s",
                           last, classes, y->n_classes, y->n_classes,
                           one_more ? " (labels begin at 0: if the least is 1, save y - 1)" : "");
    }
    return fit_weights(l, last, classes);
}

static td_status fit_targets(struct td_module_loss *l, const struct td_field *y, const char *last,
                             int64_t width) {
    int64_t targets = td_shape_elems(&y->sample_shape);
    if (y->dtype != TD_F32) {
        return td_bad_spec("loss %s wants float targets 'y' of %" PRId64 " numbers a sample; the "
                           "dataset gives %s labels: save y as float32, or set model.loss to "
                           "cross_entropy",
                           kind_names[l->kind], width, td_dtype_name(y->dtype));
    }
    l->width = width;
    if (targets == width) return TD_OK;
    return td_bad_spec("%s ends with %" PRId64 " but the dataset's targets 'y' have %" PRId64
                       " numbers a sample; end with %" PRId64,
                       last, width, targets, targets);
}

td_status td_module_loss_fit(struct td_module_loss *l, const char *module, const struct td_xy *xy,
                             const char *last, int64_t width) {
    if (xy->x.dtype != TD_U8 && xy->x.dtype != TD_F32) {
        return td_bad_spec("%s takes field 'x' as u8 or f32; the dataset gives %s", module,
                           td_dtype_name(xy->x.dtype));
    }
    return l->kind == TD_LOSS_CROSS_ENTROPY ? fit_labels(l, module, &xy->y, last, width)
                                            : fit_targets(l, &xy->y, last, width);
}

td_status td_module_loss_fit_tokens(struct td_module_loss *l, const char *module,
                                    int64_t vocab_size) {
    if (l->kind == TD_LOSS_CROSS_ENTROPY) return fit_weights(l, "model.vocab_size", vocab_size);
    return td_bad_spec("%s predicts tokens, which are classes; loss %s wants numbers: set "
                       "model.loss to cross_entropy",
                       module, kind_names[l->kind]);
}

// ---- recording ----------------------------------------------------------------------------------
// What the output before it counts in the batch, unless it is one a sample: labels, or their
// weights.
static td_status record_weight(const struct td_module_loss *l, struct td_graph *g, const char *name,
                               td_value y, td_value weights) {
    td_value counted;
    if (!l->labels.ignores && !weights) return TD_OK;
    TD_TRY(td_build_count_labels(g, y, weights, &l->labels, &counted));
    return td_graph_output(g, name, counted, TD_OUTPUT_WEIGHT);
}

static td_status record_cross_entropy(const struct td_module_loss *l, struct td_graph *g,
                                      td_value logits, td_value y, bool counts) {
    const struct td_shape row = td_shape_1(l->n_weights);
    td_value weights = 0, loss, correct;
    if (l->class_weight) TD_TRY(td_build_constant(g, TD_F32, &row, l->class_weight, &weights));
    TD_TRY(td_build_softmax_ce(g, logits, y, weights, &l->labels, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    TD_TRY(record_weight(l, g, "loss_weight", y, weights));
    TD_TRY(td_graph_loss(g, loss));
    if (!counts) return TD_OK;
    TD_TRY(td_build_count_correct(g, logits, y, &l->labels, &correct));
    TD_TRY(td_graph_output(g, "accuracy", correct, TD_OUTPUT_SUM));
    return record_weight(l, g, "accuracy_weight", y, 0);
}

// The share of logits, of which a sample may have several.
static td_status record_right_sides(const struct td_module_loss *l, struct td_graph *g, td_value x,
                                    td_value y) {
    const struct td_shape scalar = {.n_dims = 0};
    const double all = (double)td_shape_elems(&td_graph_value(g, x)->shape);
    td_value right, n;
    TD_TRY(td_build_count_correct(g, x, y, NULL, &right));
    TD_TRY(td_graph_output(g, "accuracy", right, TD_OUTPUT_SUM));
    if (l->width == 1) return TD_OK;
    TD_TRY(td_build_fill(g, TD_F32, &scalar, all, &n));
    return td_graph_output(g, "accuracy_weight", n, TD_OUTPUT_WEIGHT);
}

static td_status record_pair(const struct td_module_loss *l, struct td_graph *g, td_value x,
                             td_value y) {
    const struct td_shape shape = td_graph_value(g, x)->shape;
    td_value loss = 0;
    if (!td_shape_equal(&td_graph_value(g, y)->shape, &shape)) {
        TD_TRY(td_layer_reshape(g, &shape, &y));
    }
    TD_TRY(l->kind == TD_LOSS_MSE ? td_build_mse(g, x, y, &loss) : td_build_bce(g, x, y, &loss));
    TD_TRY(td_graph_output(g, "loss", loss, TD_OUTPUT_MEAN));
    TD_TRY(td_graph_loss(g, loss));
    return l->kind == TD_LOSS_BCE ? record_right_sides(l, g, x, y) : TD_OK;
}

td_status td_module_loss_record(const struct td_module_loss *l, struct td_graph *g, td_value x,
                                td_value y, bool counts) {
    return l->kind == TD_LOSS_CROSS_ENTROPY ? record_cross_entropy(l, g, x, y, counts)
                                            : record_pair(l, g, x, y);
}

td_status td_module_loss_end(const struct td_module_loss *l, struct td_graph *g, td_value x,
                             td_value y) {
    if (td_graph_mode(g) == TD_MODE_PREDICT) return td_graph_result(g, "logits", x);
    return td_module_loss_record(l, g, x, y, true);
}
