// The decoded image of an idx data set (see idx_cache.h). It is built in private memory from
// headers that were all checked before a body is read, then moved into the cache and mapped back
// from there.

#include "workloads/datasets/idx_cache.h"

#include <inttypes.h>

#include "workloads/datasets/idx_file.h"
#include "workloads/datasets/mapped.h"

enum { HALVES = 2 };
static const char image_magic[8] = "TDIDX1\n";
static const char *const image_stem[HALVES] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
static const char *const label_stem[HALVES] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};

struct source { // the files of one set
    struct td_idx_file images[HALVES], labels[HALVES];
};

// ---- the image ---------------------------------------------------------------------------------
const struct td_idx_header *td_idx_image_header(const struct td_image *image) {
    return image->data;
}

struct td_idx_view td_idx_image_view(const struct td_image *image, int half) {
    const struct td_idx_header *h = image->data;
    const uint8_t *images = (const uint8_t *)image->data + sizeof *h;
    size_t sample = (size_t)h->rows * h->cols;
    const uint8_t *labels = images + (h->n[0] + h->n[1]) * sample;
    return (struct td_idx_view){.n = (int64_t)h->n[half],
                                .images = images + (half ? h->n[0] * sample : 0),
                                .labels = labels + (half ? h->n[0] : 0)};
}

// ---- from the files ----------------------------------------------------------------------------
static td_status find_source(const char *dir, struct source *src) {
    for (int i = 0; i < HALVES; i++) {
        TD_TRY(td_idx_find(dir, image_stem[i], &src->images[i]));
        TD_TRY(td_idx_find(dir, label_stem[i], &src->labels[i]));
    }
    return TD_OK;
}

static td_status read_headers(struct source *src) {
    for (int i = 0; i < HALVES; i++) {
        struct td_idx_file *x = &src->images[i], *y = &src->labels[i];
        TD_TRY(td_idx_read_header(x, 3));
        TD_TRY(td_idx_read_header(y, 1));
        if (y->dim[0] != x->dim[0]) {
            td_status s = td_data_fail(y->path, 4, "number of labels", x->dim[0], y->dim[0]);
            return td_status_context(s, "labels do not match the images in '%s'", x->path);
        }
    }
    for (int d = 1; d < 3; d++) {
        const struct td_idx_file *train = &src->images[0], *test = &src->images[1];
        if (test->dim[d] == train->dim[d]) continue;
        td_status s = td_data_fail(test->path, 4 + 4 * (uint64_t)d,
                                   d == 1 ? "rows of an image" : "columns of an image",
                                   train->dim[d], test->dim[d]);
        return td_status_context(s, "images do not match those in '%s'", train->path);
    }
    return TD_OK;
}

static td_status check_labels(const struct td_idx_file *f, const uint8_t *labels,
                              uint32_t n_classes, int32_t ignored) {
    for (size_t i = 0; i < f->body_bytes; i++) {
        if (labels[i] < n_classes || labels[i] == ignored) continue;
        td_status s =
            td_data_fail(f->path, f->header_bytes + i, "label, at most", n_classes - 1, labels[i]);
        return td_status_context(s, "a label is no class; data.classes says how many there are, "
                                    "model.loss.ignore_index which number is to be left out");
    }
    return TD_OK;
}

static td_status read_bodies(const struct source *src, struct td_image *image, uint32_t n_classes,
                             int32_t ignored) {
    for (int i = 0; i < HALVES; i++) {
        struct td_idx_view v = td_idx_image_view(image, i);
        uint8_t *base = image->data;
        TD_TRY(td_idx_read_body(&src->images[i], base + (v.images - base)));
        TD_TRY(td_idx_read_body(&src->labels[i], base + (v.labels - base)));
        TD_TRY(check_labels(&src->labels[i], v.labels, n_classes, ignored));
    }
    return TD_OK;
}

// Decodes into private memory.
static td_status decode(struct source *src, uint32_t n_classes, int32_t ignored,
                        struct td_image *out_image) {
    TD_TRY(read_headers(src));
    size_t bytes = sizeof(struct td_idx_header); // each body is below TD_IDX_MAX_BYTES
    for (int i = 0; i < HALVES; i++) {
        bytes += src->images[i].body_bytes + src->labels[i].body_bytes;
    }
    struct td_image image = {.data = td_calloc(1, bytes), .bytes = bytes};
    if (!image.data) return td_fail_oom();
    struct td_idx_header *h = image.data;
    h->rows = src->images[0].dim[1];
    h->cols = src->images[0].dim[2];
    h->n_classes = n_classes;
    for (int i = 0; i < HALVES; i++) {
        h->n[i] = src->images[i].dim[0];
    }
    td_status s = read_bodies(src, &image, n_classes, ignored);
    if (s) {
        td_image_finish(&image);
        return s;
    }
    td_image_seal(&image, image_magic);
    *out_image = image;
    return TD_OK;
}

// ---- the cache ---------------------------------------------------------------------------------
// An image that is found is not checked again: what its labels were held against is in its name.
static td_status cache_path(const struct source *src, uint32_t n_classes, int32_t ignored,
                            const char *cache_dir, char out_path[TD_IMAGE_PATH]) {
    TD_AUTO_IMAGE_KEY key;
    td_image_key_init(&key, "idx");
    TD_TRY(td_buf_printf(&key.what, "idx 1 classes %" PRIu32 " ignored %" PRId32 " %s\n", n_classes,
                         ignored, src->images[0].path));
    for (int i = 0; i < 2 * HALVES; i++) {
        const char *path = i < HALVES ? src->images[i].path : src->labels[i - HALVES].path;
        TD_TRY(td_image_key_add(&key, path));
    }
    return td_image_path(cache_dir, &key, out_path);
}

td_status td_idx_image_init(const char *dir, uint32_t n_classes, int32_t ignored,
                            const char *cache_dir, struct td_image *out_image) {
    struct source src;
    char path[TD_IMAGE_PATH];
    TD_TRY(find_source(dir, &src));
    if (cache_dir) {
        TD_TRY(cache_path(&src, n_classes, ignored, cache_dir, path));
        if (td_image_map(path, image_magic, out_image)) return TD_OK;
    }
    struct td_image image;
    TD_TRY(decode(&src, n_classes, ignored, &image));
    if (cache_dir) td_image_share(cache_dir, path, &image);
    *out_image = image;
    return TD_OK;
}
