// Dataset `npy`: samples and labels, or targets, out of arrays that NumPy saved, as .npy or .npz.
//
// x is (n, ...): u1 stays u8 (pixels, which the modules divide by 255), every other type is handed
// out as f32, or f64 where the job computes in it. y of integers is one label a sample, (n) or (n,
// 1); y of floats is as many targets a sample as it has, (n, ...), and has no classes. Files are
// mapped, so a set larger than memory can be trained on. Checked before training: both files whole,
// as many labels as samples, every label in [0, classes) or the one that the module ignores. Every
// other number is finite, binary targets are from 0 to 1, training and validation have one shape
// and type. A file of floats beyond WHOLE_MAX could take longer to read than a job may be planned:
// its rows are checked as they are handed out. Knobs: x, y; val_x, val_y; test_x, test_y (each two
// together or not at all); classes. Test and predict are the test arrays, else those of validation.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "traind/dataset.h"
#include "traind/knobs.h"
#include "workloads/datasets/npy_file.h"
#include "workloads/workloads.h"

enum {
    td_dataset_magic = 0x6e707931,
    MAX_CLASSES = 1 << 20,
    WHOLE_MAX = 1 << 30 /* bytes of a file */
};

enum { TRAIN, VAL, TEST, PARTS };

struct part {
    struct td_npy x, y;
    int64_t n;
};

struct td_dataset {
    uint32_t magic;
    int64_t classes;
    struct td_targets targets;      // what the module takes
    enum td_dtype floats;           // what numbers are handed out as
    struct td_shape sample, target; // without the leading dimension; target: y is of floats
    struct part part[PARTS];
};

static bool has_targets(const struct part *h) {
    return !td_npy_is_integer(h->y.kind);
}

static struct td_shape one_of(const struct td_shape *all) {
    struct td_shape one = {.n_dims = all->n_dims - 1};
    for (int d = 0; d < one.n_dims; d++) {
        one.dim[d] = all->dim[d + 1];
    }
    return one;
}

static void npy_close(struct td_dataset *d) {
    if (!d) return;
    for (int i = 0; i < PARTS; i++) {
        td_npy_close(&d->part[i].x);
        td_npy_close(&d->part[i].y);
    }
    d->magic = 0;
    free(d);
}
TD_DEFINE_AUTO(td_dataset, npy_close);

// ---- checking -----------------------------------------------------------------------------------
static td_status check_shapes(const char *x_path, const char *y_path, const struct part *h) {
    const struct td_shape *x = &h->x.shape, *y = &h->y.shape;
    if (x->n_dims < 2) {
        return td_data_fail(x_path, 0, "dimensions of the samples, at least", 2,
                            (uint64_t)x->n_dims);
    }
    char found[96];
    td_shape_print(y, found, sizeof found);
    if (has_targets(h) && (y->n_dims < 1 || td_shape_elems(y) == 0)) {
        return td_data_fail_text(y_path, 0, "shape of the targets",
                                 "(n) or (n, k), with something in it", found);
    }
    if (!has_targets(h) && (y->n_dims < 1 || td_shape_elems(y) != y->dim[0])) {
        return td_data_fail_text(y_path, 0, "shape of the labels",
                                 "(n) or (n, 1) of integers, or floats, which are targets", found);
    }
    if (td_shape_elems(x) == 0) {
        return td_data_fail(x_path, 0, "elements of all samples, at least", 1, 0);
    }
    if (y->dim[0] == x->dim[0]) return TD_OK;
    td_status s =
        td_data_fail(y_path, 0, "number of labels", (uint64_t)x->dim[0], (uint64_t)y->dim[0]);
    return td_status_context(s, "labels do not match the samples in '%s'", x_path);
}

// How much too large labels are that would be classes if they began at 0; 0: they would not.
static int64_t labels_shifted(const struct td_dataset *d, const struct td_npy *y, int64_t limit) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t i = 0; i < y->shape.dim[0]; i++) {
        const int64_t v = td_npy_int(y, i);
        if (d->targets.ignores && v == d->targets.ignore_index) continue;
        least = TD_MIN(least, v);
        most = TD_MAX(most, v);
    }
    return least > 0 && most - least < limit ? least : 0;
}

static td_status no_class(const struct td_dataset *d, const char *path, const struct td_npy *y,
                          int64_t i, int64_t limit) {
    char expected[48], found[24];
    // Of the others it would part them from the training labels, which were good.
    const int64_t least = y == &d->part[TRAIN].y ? labels_shifted(d, y, limit) : 0;
    snprintf(expected, sizeof expected, "0 to %" PRId64, limit - 1);
    snprintf(found, sizeof found, "%" PRId64, td_npy_int(y, i));
    td_status s = td_data_fail_text(path, td_npy_offset(y, i), "label", expected, found);
    if (least) {
        return td_status_context(s,
                                 "label %" PRId64 " is no class; labels begin at 0, and the least "
                                 "here is %" PRId64 ": save y - %" PRId64,
                                 i, least, least);
    }
    return td_status_context(
        s,
        "label %" PRId64 " is no class; data.classes says how many there are, "
        "model.loss.ignore_index which number is to be left out; targets of loss mse and bce "
        "are saved as floats",
        i);
}

// Every label in [0, classes), or to be ignored; classes 0 becomes the largest plus one.
static td_status check_labels(struct td_dataset *d, const char *path, const struct td_npy *y) {
    const int64_t limit = d->classes ? d->classes : MAX_CLASSES;
    int64_t most = 0;
    for (int64_t i = 0; i < y->shape.dim[0]; i++) {
        int64_t v = td_npy_int(y, i);
        if (d->targets.ignores && v == d->targets.ignore_index) continue;
        if (v < 0 || v >= limit) return no_class(d, path, y, i, limit);
        most = TD_MAX(most, v);
    }
    if (!d->classes) d->classes = most + 1;
    return TD_OK;
}

static bool is_large(const struct td_npy *a) {
    return !td_npy_is_integer(a->kind) &&
           (size_t)td_shape_elems(&a->shape) > WHOLE_MAX / td_npy_bytes(a->kind);
}

static td_status check_finite(const struct td_dataset *d, const struct td_npy *a, int64_t begin,
                              int64_t n) {
    return td_npy_check(a, &(struct td_npy_range){.type = d->floats}, begin, n);
}

static td_status check_targets(const struct td_dataset *d, const struct td_npy *y, int64_t begin,
                               int64_t n) {
    const struct td_npy_range shares = {d->floats, true, 0, 1};
    if (d->targets.kind != TD_TARGET_BINARY) return check_finite(d, y, begin, n);
    TD_TRY_CTX(td_npy_check(y, &shares, begin, n),
               "loss bce wants targets of 0 for no and 1 for yes, or between (mse takes any)");
    return TD_OK;
}

static td_status check_whole(const struct td_dataset *d, const struct part *h) {
    if (!is_large(&h->y)) TD_TRY(check_targets(d, &h->y, 0, td_shape_elems(&h->y.shape)));
    if (is_large(&h->x)) return TD_OK;
    return check_finite(d, &h->x, 0, td_shape_elems(&h->x.shape));
}

static const char *const keys[PARTS][2] = {
    [TRAIN] = {"x", "y"}, [VAL] = {"val_x", "val_y"}, [TEST] = {"test_x", "test_y"}};

static td_status open_part(struct td_dataset *d, int i, const char *const where[2],
                           const char *cache_dir) {
    struct part *h = &d->part[i], *first = &d->part[TRAIN];
    TD_TRY(td_npy_open(where[0], keys[i][0], cache_dir, &h->x));
    TD_TRY(td_npy_open(where[1], keys[i][1], cache_dir, &h->y));
    const char *x_path = h->x.path, *y_path = h->y.path;
    TD_TRY(check_shapes(x_path, y_path, h));
    h->n = h->x.shape.dim[0];
    if (!has_targets(h)) TD_TRY(check_labels(d, y_path, &h->y));
    TD_TRY(check_whole(d, h));
    struct td_shape sample = one_of(&h->x.shape), target = one_of(&h->y.shape);
    if (i == TRAIN) {
        d->sample = sample;
        d->target = target;
    }
    bool pixels[2] = {first->x.kind == TD_NPY_U1, h->x.kind == TD_NPY_U1};
    if (!td_shape_equal(&sample, &d->sample) || pixels[0] != pixels[1]) {
        return td_data_fail_text(x_path, 0, "shape and type of a sample", "those of data.x",
                                 "others");
    }
    if (has_targets(h) == has_targets(first) &&
        (!has_targets(h) || td_shape_equal(&target, &d->target))) {
        return TD_OK;
    }
    return td_data_fail_text(y_path, 0, "shape and type of targets", "those of data.y", "others");
}

static td_status npy_open(const struct td_dataset_config *config, struct td_dataset **out_dataset) {
    TD_AUTO(td_dataset) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->magic = td_dataset_magic;
    const char *path[PARTS][2];
    for (int i = 0; i < PARTS; i++) {
        TD_TRY(td_knob_text_or(config->knobs, keys[i][0], "", &path[i][0]));
        TD_TRY(td_knob_text_or(config->knobs, keys[i][1], "", &path[i][1]));
    }
    TD_TRY(td_knob_int_or(config->knobs, "classes", 0, &d->classes));
    if (config->targets) d->targets = *config->targets;
    d->floats = config->floats;
    if (!*path[TRAIN][0] || !*path[TRAIN][1]) {
        return td_bad_spec("data: x and y are missing: paths of two arrays");
    }
    for (int i = VAL; i < PARTS; i++) {
        if (!*path[i][0] == !*path[i][1]) continue;
        return td_bad_spec("data.%s and data.%s need each other", keys[i][0], keys[i][1]);
    }
    if (d->classes < 0 || d->classes > MAX_CLASSES) {
        return td_bad_spec("data.classes: out of range");
    }
    TD_TRY(open_part(d, TRAIN, path[TRAIN], config->cache_dir));
    if (has_targets(&d->part[TRAIN]) && d->classes) {
        return td_bad_spec("data.classes says that '%s' holds labels, but it holds %s: save it as "
                           "integers, or leave classes out",
                           path[TRAIN][1], td_npy_name(d->part[TRAIN].y.kind));
    }
    for (int i = VAL; i < PARTS; i++) {
        if (*path[i][0]) TD_TRY(open_part(d, i, path[i], config->cache_dir));
    }
    *out_dataset = td_steal(d);
    return TD_OK;
}

// ---- handing out --------------------------------------------------------------------------------
static size_t npy_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    out_fields[0] =
        (struct td_field){.name = "x",
                          .dtype = d->part[TRAIN].x.kind == TD_NPY_U1 ? TD_U8 : d->floats,
                          .sample_shape = d->sample};
    out_fields[1] = (struct td_field){.name = "y", .dtype = TD_I32, .n_classes = d->classes};
    if (has_targets(&d->part[TRAIN])) {
        out_fields[1] =
            (struct td_field){.name = "y", .dtype = d->floats, .sample_shape = d->target};
    }
    return 2;
}

static const struct part *part_of(const struct td_dataset *d, enum td_split split) {
    const bool tests = split == TD_SPLIT_TEST || split == TD_SPLIT_PREDICT;
    if (split == TD_SPLIT_TRAIN) return &d->part[TRAIN];
    return &d->part[tests && d->part[TEST].n ? TEST : VAL];
}

static int64_t npy_length(struct td_dataset *d, enum td_split split) {
    return part_of(d, split)->n;
}

// Element i of a batch's numbers.
static void *place(const struct td_dataset *d, void *out, int64_t i) {
    return (char *)out + (size_t)i * td_dtype_bytes(d->floats);
}

static td_status gather_x(const struct td_dataset *d, const struct part *h, int64_t sample,
                          void *out, int64_t i) {
    const int64_t elems = td_shape_elems(&d->sample);
    if (is_large(&h->x)) TD_TRY(check_finite(d, &h->x, sample * elems, elems));
    if (h->x.kind == TD_NPY_U1) {
        memcpy((uint8_t *)out + i * elems, h->x.data + sample * elems, (size_t)elems);
    } else {
        td_npy_floats(&h->x, d->floats, sample * elems, elems, place(d, out, i * elems));
    }
    return TD_OK;
}

static td_status gather_y(const struct td_dataset *d, const struct part *h, int64_t sample,
                          void *out, int64_t i) {
    const int64_t elems = td_shape_elems(&d->target);
    if (is_large(&h->y)) TD_TRY(check_targets(d, &h->y, sample * elems, elems));
    if (has_targets(h)) {
        td_npy_floats(&h->y, d->floats, sample * elems, elems, place(d, out, i * elems));
    } else {
        ((int32_t *)out)[i] = (int32_t)td_npy_int(&h->y, sample);
    }
    return TD_OK;
}

static td_status npy_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                            int64_t n, void *const *out) {
    TD_CHECK(d->magic == td_dataset_magic);
    const struct part *h = part_of(d, split);
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= h->n) {
            return td_fail(TD_OUT_OF_RANGE, "sample %" PRId64 " of %" PRId64 " in split %s",
                           index[i], h->n, td_split_name(split));
        }
        TD_TRY(gather_x(d, h, index[i], out[0], i));
        TD_TRY(gather_y(d, h, index[i], out[1], i));
    }
    return TD_OK;
}

static const struct td_dataset_ops npy_ops = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = npy_open,
    .close = npy_close,
    .fields = npy_fields,
    .length = npy_length,
    .gather = npy_gather,
    .takes_floats = true,
};

const struct td_plugin_desc td_dataset_npy = TD_PLUGIN_DESC(
    DATASET, "npy", "samples and labels or targets out of NumPy's .npy files", &npy_ops);
