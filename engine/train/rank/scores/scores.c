// See the header. A part has one block of doubles. Of classes and labels it is [right C]
// [predicted C][true C][n], and the matrix, true class by predicted one, where it is asked for. Of
// targets it is [mean C][squares about it C][squares of what was missed C][n].

#include "engine/train/rank/scores/scores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/rank/data/data.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/programs/programs.h"
#include "engine/train/rank/state/tensor.h"
#include "engine/train/rank/step.h"
#include "lib/base/buf.h"
#include "lib/base/floats/floats.h"

static const struct {
    enum td_score score;
    const char *name;
} names[] = {{TD_SCORE_PERPLEXITY, "perplexity"},
             {TD_SCORE_F1_MACRO, "f1_macro"},
             {TD_SCORE_F1_MICRO, "f1_micro"},
             {TD_SCORE_R2, "r2"}};
enum { OF_CLASSES = TD_SCORE_F1_MACRO | TD_SCORE_F1_MICRO | TD_SCORE_CONFUSION };

struct td_scores {
    unsigned asked;
    enum td_target_kind kind;
    bool ignores;
    int32_t ignore_index;
    int y_field;
    enum td_dtype y_type;
    int n_parts;
    int64_t width; // classes, labels or targets
    size_t n;      // doubles of a part; 0: the loss says it all
    double *part;  // (n_parts, n)
    double *all;   // (n), of all parts; after td_scores_sum
    float *logits; // (batch, width)
    double *y;     // (batch, width), of labels and targets
};

const char *td_score_name(enum td_score score) {
    for (size_t i = 0; i < TD_COUNTOF(names); i++) {
        if (names[i].score == score) return names[i].name;
    }
    return NULL;
}

// ---- what goes together -------------------------------------------------------------------------
static td_status check_perplexity(const struct td_rank *r) {
    const struct td_json *loss = td_json_get(r->config->model.knobs, "loss");
    const struct td_json *weights = td_json_get(loss, "class_weights");
    if (r->targets.kind != TD_TARGET_CLASS) {
        return td_bad_spec("metrics: perplexity is of loss cross_entropy alone");
    }
    if (td_json_real(td_json_get(loss, "label_smoothing"), 0) > 0 ||
        (weights && weights->n_children > 0)) {
        return td_bad_spec("metrics: perplexity is that of the plain cross entropy; leave out "
                           "model.loss.label_smoothing and class_weights, or perplexity");
    }
    return TD_OK;
}

static bool wants_matrix(const struct td_rank *r) {
    return r->config->scores & TD_SCORE_CONFUSION && r->targets.kind == TD_TARGET_CLASS;
}

static int find_field(const struct td_rank *r, const char *name) {
    size_t n;
    const struct td_field *f = td_data_fields(r->data, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) return (int)i;
    }
    return -1;
}

// One class a sample, or a number for each logit. Plugins may have anything else there.
static td_status check_targets(const struct td_rank *r, const struct td_field *y, int64_t width) {
    const bool of_classes = r->targets.kind == TD_TARGET_CLASS;
    const enum td_dtype dtype = of_classes ? TD_I32 : TD_F32;
    const int64_t wanted = of_classes ? 1 : width, found = td_shape_elems(&y->sample_shape);
    const bool is_real = !of_classes && y->dtype == TD_F64;
    if ((y->dtype == dtype || is_real) && found == wanted) return TD_OK;
    return td_bad_spec("metrics: in field 'y' of a sample they need %lld of %s, and the data has "
                       "%lld of %s; perplexity needs none",
                       (long long)wanted, td_dtype_name(dtype), (long long)found,
                       td_dtype_name(y->dtype));
}

static td_status check_sizes(const struct td_rank *r) {
    const int64_t width = td_rank_result_width(r, "logits");
    const int y_field = find_field(r, "y");
    size_t n_fields;
    if (width < 1 || y_field < 0) {
        return td_bad_spec("metrics: they need a model that predicts 'logits' and data with a "
                           "field 'y'; model '%s' has perplexity alone",
                           r->config->model.name);
    }
    if (wants_matrix(r) && width > TD_SCORE_CLASSES) {
        return td_bad_spec("metrics: a confusion matrix has %d classes at most, the model has "
                           "%lld; f1_macro takes any number",
                           TD_SCORE_CLASSES, (long long)width);
    }
    return check_targets(r, &td_data_fields(r->data, &n_fields)[y_field], width);
}

td_status td_scores_check(const struct td_rank *r) {
    const unsigned asked = r->config->scores;
    if (asked & TD_SCORE_PERPLEXITY) TD_TRY(check_perplexity(r));
    if (!td_rank_scores_predict(r)) return TD_OK;
    if (r->module_ops->aim) {
        return td_bad_spec("metrics: model '%s' predicts tokens, of which there is perplexity "
                           "alone; F1, R2 and the confusion matrix are of one label or target "
                           "vector a sample",
                           r->config->model.name);
    }
    if (asked & TD_SCORE_R2 && r->targets.kind != TD_TARGET_REAL) {
        return td_bad_spec("metrics: r2 is of float targets; set model.loss to mse, or leave it "
                           "out");
    }
    if (asked & OF_CLASSES && r->targets.kind == TD_TARGET_REAL) {
        return td_bad_spec("metrics: F1 and the confusion matrix are of classes; loss mse has r2");
    }
    return td_programs_graph(r->programs, NULL, TD_MODE_EVAL) ? check_sizes(r) : TD_OK;
}

// ---- life ---------------------------------------------------------------------------------------
static td_status size_up(struct td_scores *s, const struct td_rank *r) {
    s->width = td_rank_result_width(r, "logits");
    s->y_field = find_field(r, "y");
    TD_CHECK(s->width > 0 && s->y_field >= 0); // td_scores_check
    size_t n_fields;
    const size_t w = (size_t)s->width;
    s->n = 3 * w + 1 + (wants_matrix(r) ? w * w : 0);
    s->part = td_calloc((size_t)s->n_parts * s->n, sizeof *s->part);
    s->all = td_calloc(s->n, sizeof *s->all);
    s->logits = td_calloc((size_t)r->config->batch_size * w, sizeof *s->logits);
    const bool of_classes = r->targets.kind == TD_TARGET_CLASS;
    s->y = td_calloc(of_classes ? 1 : (size_t)r->config->batch_size * w, sizeof *s->y);
    s->y_type = td_data_fields(r->data, &n_fields)[s->y_field].dtype;
    return s->part && s->all && s->logits && s->y ? TD_OK : td_fail_oom();
}

td_status td_scores_create(const struct td_rank *r, int n_parts, struct td_scores **out_scores) {
    TD_AUTO(td_scores) *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->asked = r->config->scores;
    s->kind = r->targets.kind;
    s->ignores = r->targets.ignores;
    s->ignore_index = r->targets.ignore_index;
    s->n_parts = n_parts;
    if (td_rank_scores_predict(r)) TD_TRY(size_up(s, r));
    *out_scores = td_steal(s);
    return TD_OK;
}

void td_scores_destroy(struct td_scores *s) {
    if (!s) return;
    free(s->part);
    free(s->all);
    free(s->logits);
    free(s->y);
    free(s);
}

// ---- adding up ----------------------------------------------------------------------------------
static double *part_of(const struct td_scores *s, int i) {
    return s->n ? s->part + (size_t)i * s->n : NULL;
}
static double *right_of(const struct td_scores *s, double *p) {
    (void)s;
    return p;
}
static double *said_of(const struct td_scores *s, double *p) {
    return p + s->width;
}
static double *true_of(const struct td_scores *s, double *p) {
    return p + 2 * s->width;
}
static double *n_of(const struct td_scores *s, double *p) {
    return p + 3 * s->width;
}
static double *matrix_of(const struct td_scores *s, double *p) {
    return p + 3 * s->width + 1;
}

static void add_classes(const struct td_scores *s, double *p, const int32_t *y, int64_t n) {
    const bool has_matrix = s->n > 3 * (size_t)s->width + 1;
    for (int64_t i = 0; i < n; i++) {
        const float *row = s->logits + i * s->width;
        int64_t best = 0;
        if (y[i] < 0 || y[i] >= s->width || (s->ignores && y[i] == s->ignore_index)) continue;
        for (int64_t c = 1; c < s->width; c++) {
            if (row[c] > row[best]) best = c;
        }
        said_of(s, p)[best]++;
        true_of(s, p)[y[i]]++;
        if (best == y[i]) right_of(s, p)[best]++;
        if (has_matrix) matrix_of(s, p)[y[i] * s->width + best]++;
        ++*n_of(s, p);
    }
}

static void add_labels(const struct td_scores *s, double *p, int64_t n) {
    for (int64_t i = 0; i < n * s->width; i++) {
        const int64_t label = i % s->width;
        const bool is_said = s->logits[i] > 0, is_true = s->y[i] > 0.5;
        said_of(s, p)[label] += is_said;
        true_of(s, p)[label] += is_true;
        right_of(s, p)[label] += is_said && is_true;
    }
    *n_of(s, p) += (double)n;
}

// Welford's means and squares about them, which lose no digits where the mean is large.
static void add_targets(const struct td_scores *s, double *p, int64_t n) {
    double *mean = right_of(s, p), *squares = said_of(s, p), *missed = true_of(s, p);
    for (int64_t i = 0; i < n; i++) {
        const double count = ++*n_of(s, p);
        for (int64_t k = 0; k < s->width; k++) {
            const double v = s->y[i * s->width + k], from = v - mean[k];
            const double by = v - (double)s->logits[i * s->width + k];
            mean[k] += from / count;
            squares[k] += from * (v - mean[k]);
            missed[k] += by * by;
        }
    }
}

td_status td_scores_add(struct td_scores *s, struct td_rank *r, int part,
                        const struct td_buffer *inputs, int64_t n) {
    double *p = part_of(s, part);
    const void *y = td_data_host(inputs[s->y_field]);
    TD_TRY(td_rank_read_result(r, "logits", n, s->logits, n * s->width));
    if (s->kind != TD_TARGET_CLASS) {
        td_float_convert(s->y_type, y, n * s->width, TD_F64, s->y);
    }
    switch (s->kind) {
    case TD_TARGET_CLASS:
        add_classes(s, p, y, n);
        return TD_OK;
    case TD_TARGET_BINARY:
        add_labels(s, p, n);
        return TD_OK;
    case TD_TARGET_REAL:
        add_targets(s, p, n);
        return TD_OK;
    }
    return td_fail(TD_INTERNAL, "targets of kind %d", (int)s->kind);
}

// ---- over ranks ---------------------------------------------------------------------------------
// Adds what another has: Chan, Golub and LeVeque's formula.
static void merge_targets(const struct td_scores *s, double *into, double *from) {
    const double a = *n_of(s, into), b = *n_of(s, from), all = a + b;
    if (b == 0) return;
    for (int64_t k = 0; k < s->width; k++) {
        const double apart = right_of(s, from)[k] - right_of(s, into)[k];
        said_of(s, into)[k] += said_of(s, from)[k] + apart * apart * a * b / all;
        true_of(s, into)[k] += true_of(s, from)[k];
        right_of(s, into)[k] += apart * b / all;
    }
    *n_of(s, into) = all;
}

static void merge(const struct td_scores *s, double *into, double *from) {
    if (s->kind == TD_TARGET_REAL) {
        merge_targets(s, into, from);
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        into[i] += from[i];
    }
}

static td_status sum_over_ranks(struct td_scores *s, struct td_rank *r) {
    const size_t all = (size_t)s->n_parts * s->n, world = (size_t)r->facts.world_size;
    if (world == 1) return TD_OK;
    if (s->kind != TD_TARGET_REAL) return td_rank_sum(r, s->part, (int64_t)all, TD_F64);
    TD_AUTO_FREE double *gathered = td_calloc(world * all, sizeof *gathered);
    if (!gathered) return td_fail_oom();
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, s->part, all * sizeof *s->part, gathered));
    memset(s->part, 0, all * sizeof *s->part);
    for (size_t k = 0; k < world; k++) {
        for (int p = 0; p < s->n_parts; p++) {
            merge(s, part_of(s, p), gathered + k * all + (size_t)p * s->n);
        }
    }
    return TD_OK;
}

td_status td_scores_sum(struct td_scores *s, struct td_rank *r) {
    if (!s->n) return TD_OK;
    TD_TRY(sum_over_ranks(s, r));
    for (int i = 0; i < s->n_parts; i++) {
        merge(s, s->all, part_of(s, i));
    }
    return TD_OK;
}

// ---- values -------------------------------------------------------------------------------------
static double f1_macro(const struct td_scores *s, double *p) {
    double sum = 0, n = 0;
    for (int64_t c = 0; c < s->width; c++) {
        const double there = said_of(s, p)[c] + true_of(s, p)[c];
        if (there > 0) sum += 2 * right_of(s, p)[c] / there;
        n += there > 0 || s->kind == TD_TARGET_BINARY;
    }
    return n > 0 ? sum / n : (double)NAN;
}

static double f1_micro(const struct td_scores *s, double *p) {
    double right = 0, there = 0;
    for (int64_t c = 0; c < s->width; c++) {
        right += right_of(s, p)[c];
        there += said_of(s, p)[c] + true_of(s, p)[c];
    }
    if (*n_of(s, p) == 0) return (double)NAN;
    return there > 0 ? 2 * right / there : 0;
}

static double r2(const struct td_scores *s, double *p) {
    double sum = 0;
    if (*n_of(s, p) < 2) return (double)NAN;
    for (int64_t k = 0; k < s->width; k++) {
        const double squares = said_of(s, p)[k], missed = true_of(s, p)[k];
        sum += squares > 0 ? 1 - missed / squares : missed == 0 ? 1 : 0;
    }
    return sum / (double)s->width;
}

static void tally(const struct td_scores *s, double *p, struct td_tallies *t) {
    for (size_t i = 0; i < TD_COUNTOF(names) && t->n < TD_TALLIES; i++) {
        const struct td_tally *loss = td_tallies_find(t, "loss");
        double value = (double)NAN;
        if (!(s->asked & names[i].score)) continue;
        if (names[i].score == TD_SCORE_PERPLEXITY && loss && loss->count > 0) {
            value = exp(loss->sum / loss->count);
        }
        if (names[i].score == TD_SCORE_F1_MACRO) value = f1_macro(s, p);
        if (names[i].score == TD_SCORE_F1_MICRO) value = f1_micro(s, p);
        if (names[i].score == TD_SCORE_R2) value = r2(s, p);
        struct td_tally *to = &t->item[t->n++];
        *to = (struct td_tally){.sum = value, .count = 1};
        snprintf(to->name, sizeof to->name, "%s", names[i].name);
    }
}

void td_scores_tally(const struct td_scores *s, struct td_validated *io_validated) {
    tally(s, s->all, &io_validated->all);
    for (int i = 0; i < io_validated->n_loaders; i++) {
        if (io_validated->loader[i].n == 0) continue; // nothing of it was evaluated
        tally(s, part_of(s, i), &io_validated->loader[i]);
    }
}

static td_status print_rows(const double *cell, int64_t rows, int64_t columns, struct td_buf *out) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) {
            TD_TRY(td_buf_printf(out, "%s%.0f",
                                 k   ? ","
                                 : i ? "],\n["
                                     : "[[",
                                 cell[i * columns + k]));
        }
    }
    return td_buf_str(out, "]]");
}

// As of scikit-learn's multilabel_confusion_matrix.
static td_status print_labels(const struct td_scores *s, double *p, struct td_buf *out) {
    for (int64_t k = 0; k < s->width; k++) {
        const double right = right_of(s, p)[k], said = said_of(s, p)[k], is = true_of(s, p)[k];
        const double cell[] = {*n_of(s, p) - said - is + right, said - right, is - right, right};
        TD_TRY(td_buf_str(out, k ? ",\n" : "["));
        TD_TRY(print_rows(cell, 2, 2, out));
    }
    return td_buf_str(out, "]");
}

td_status td_scores_matrix(const struct td_scores *s, const char *what, struct td_buf *out,
                           bool *out_has) {
    *out_has = (s->asked & TD_SCORE_CONFUSION) != 0;
    if (!*out_has) return TD_OK;
    TD_TRY(td_buf_printf(
        out, "{%s,\"rows\":\"true\",\"columns\":\"predicted\",\"%s\":%lld,\n\"matrix\":", what,
        s->kind == TD_TARGET_BINARY ? "labels" : "classes", (long long)s->width));
    TD_TRY(s->kind == TD_TARGET_BINARY ? print_labels(s, s->all, out)
                                       : print_rows(matrix_of(s, s->all), s->width, s->width, out));
    return td_buf_str(out, "}\n");
}
