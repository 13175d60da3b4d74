// Dataset `idx`: images and labels of the MNIST family (MNIST, Fashion-MNIST, EMNIST, ...).
//
// Reads the four files of `path`: train-* is the training split, t10k-* is validation, test and
// predict. Fields: "x" u8 (rows, cols), as stored (the module divides by 255), and "y" i32. Files
// are checked whole before training starts: idx_file.c; decoded once for a node: idx_cache.c.
// Knobs: path; classes. A gather is one memcpy per sample out of the mapped image.

#include <inttypes.h>
#include <string.h>

#include "traind/dataset.h"
#include "traind/knobs.h"
#include "workloads/datasets/idx_cache.h"
#include "workloads/workloads.h"

enum { td_dataset_magic = 0x69647831 };

struct td_dataset {
    uint32_t magic;
    struct td_image image;
};

static td_status idx_open(const struct td_dataset_config *config, struct td_dataset **out_dataset) {
    const char *path = NULL;
    int64_t classes = 0;
    TD_TRY(td_knob_text(config->knobs, "path", &path));
    TD_TRY(td_knob_int(config->knobs, "classes", &classes));
    if (!*path) {
        return td_bad_spec("data.path is empty: it is the directory of the four idx files");
    }
    if (classes < 1 || classes > 256) {
        return td_bad_spec("data.classes: expected 1 to 256, found %" PRId64, classes);
    }
    struct td_dataset *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->magic = td_dataset_magic;
    const struct td_targets *targets = config->targets;
    const int32_t ignored = targets && targets->ignores ? targets->ignore_index : -1;
    td_status s = td_idx_image_init(path, (uint32_t)classes, ignored, config->cache_dir, &d->image);
    if (s) {
        free(d);
        return s;
    }
    *out_dataset = d;
    return TD_OK;
}

static void idx_close(struct td_dataset *d) {
    if (!d) return;
    td_image_finish(&d->image);
    d->magic = 0;
    free(d);
}

static size_t idx_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    const struct td_idx_header *h = td_idx_image_header(&d->image);
    out_fields[0] = (struct td_field){
        .name = "x", .dtype = TD_U8, .sample_shape = {.n_dims = 2, .dim = {h->rows, h->cols}}};
    out_fields[1] = (struct td_field){.name = "y", .dtype = TD_I32, .n_classes = h->n_classes};
    return 2;
}

static int half_of(enum td_split split) {
    return split == TD_SPLIT_TRAIN ? 0 : 1;
}

static int64_t idx_length(struct td_dataset *d, enum td_split split) {
    return td_idx_image_view(&d->image, half_of(split)).n;
}

static td_status idx_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                            int64_t n, void *const *out) {
    TD_CHECK(d->magic == td_dataset_magic);
    const struct td_idx_header *h = td_idx_image_header(&d->image);
    const struct td_idx_view v = td_idx_image_view(&d->image, half_of(split));
    const size_t sample = (size_t)h->rows * h->cols;
    uint8_t *x = out[0];
    int32_t *y = out[1];
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= v.n) {
            return td_fail(TD_OUT_OF_RANGE, "sample %" PRId64 " of %" PRId64 " in split %s",
                           index[i], v.n, td_split_name(split));
        }
        memcpy(x + (size_t)i * sample, v.images + (size_t)index[i] * sample, sample);
        y[i] = v.labels[index[i]];
    }
    return TD_OK;
}

static const struct td_dataset_ops idx_ops = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = idx_open,
    .close = idx_close,
    .fields = idx_fields,
    .length = idx_length,
    .gather = idx_gather,
};

const struct td_plugin_desc td_dataset_idx =
    TD_PLUGIN_DESC(DATASET, "idx", "images and labels in idx files (the MNIST family)", &idx_ops);
