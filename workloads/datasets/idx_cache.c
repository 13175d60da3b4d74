// The decoded image of an idx data set (see idx_cache.h).
//
// The image is built in private memory from headers that were all checked before a body is read,
// then moved into the cache and mapped back from there. Every doubt about a cached image (absent,
// short, another format, wrong digest) has one answer: decode. It is written without fsync: after
// a crash of the machine the digest tells a torn image from a whole one.

#include "workloads/datasets/idx_cache.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/fsio.h"
#include "workloads/datasets/idx_file.h"

enum { HALVES = 2, CACHE_PATH = 4400 };
static const char image_magic[8] = "TDIDX1\n";
static const char *const image_stem[HALVES] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
static const char *const label_stem[HALVES] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};

struct source { // the files of one set
    struct td_idx_file images[HALVES], labels[HALVES];
};

// ---- the image ---------------------------------------------------------------------------------
const struct td_idx_header *td_idx_image_header(const struct td_idx_image *image) {
    return image->data;
}

struct td_idx_view td_idx_image_view(const struct td_idx_image *image, int half) {
    const struct td_idx_header *h = image->data;
    const uint8_t *images = (const uint8_t *)image->data + sizeof *h;
    size_t sample = (size_t)h->rows * h->cols;
    const uint8_t *labels = images + (h->n[0] + h->n[1]) * sample;
    return (struct td_idx_view){.n = (int64_t)h->n[half],
                                .images = images + (half ? h->n[0] * sample : 0),
                                .labels = labels + (half ? h->n[0] : 0)};
}

void td_idx_image_finish(struct td_idx_image *image) {
    if (image->data && image->mapped) munmap(image->data, image->bytes);
    if (image->data && !image->mapped) free(image->data);
    *image = (struct td_idx_image){0};
}

static uint64_t digest_of(const void *image, size_t bytes) {
    const size_t skip = offsetof(struct td_idx_header, n);
    return td_xxh3_64((const char *)image + skip, bytes - skip);
}

static bool image_is_whole(const struct td_idx_image *image) {
    const struct td_idx_header *h = image->data;
    return image->bytes > sizeof *h && memcmp(h->magic, image_magic, sizeof h->magic) == 0 &&
           h->digest == digest_of(image->data, image->bytes);
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
            td_status s = td_idx_fail(y->path, 4, "number of labels", x->dim[0], y->dim[0]);
            return td_status_context(s, "labels do not match the images in '%s'", x->path);
        }
    }
    for (int d = 1; d < 3; d++) {
        const struct td_idx_file *train = &src->images[0], *test = &src->images[1];
        if (test->dim[d] == train->dim[d]) continue;
        td_status s = td_idx_fail(test->path, 4 + 4 * (uint64_t)d,
                                  d == 1 ? "rows of an image" : "columns of an image",
                                  train->dim[d], test->dim[d]);
        return td_status_context(s, "images do not match those in '%s'", train->path);
    }
    return TD_OK;
}

static td_status check_labels(const struct td_idx_file *f, const uint8_t *labels,
                              uint32_t n_classes) {
    for (size_t i = 0; i < f->body_bytes; i++) {
        if (labels[i] < n_classes) continue;
        return td_idx_fail(f->path, f->header_bytes + i, "label, at most", n_classes - 1,
                           labels[i]);
    }
    return TD_OK;
}

static td_status read_bodies(const struct source *src, struct td_idx_image *image,
                             uint32_t n_classes) {
    for (int i = 0; i < HALVES; i++) {
        struct td_idx_view v = td_idx_image_view(image, i);
        uint8_t *base = image->data;
        TD_TRY(td_idx_read_body(&src->images[i], base + (v.images - base)));
        TD_TRY(td_idx_read_body(&src->labels[i], base + (v.labels - base)));
        TD_TRY(check_labels(&src->labels[i], v.labels, n_classes));
    }
    return TD_OK;
}

// Decodes into private memory.
static td_status decode(struct source *src, uint32_t n_classes, struct td_idx_image *out_image) {
    TD_TRY(read_headers(src));
    size_t bytes = sizeof(struct td_idx_header); // each body is below TD_IDX_MAX_BYTES
    for (int i = 0; i < HALVES; i++) {
        bytes += src->images[i].body_bytes + src->labels[i].body_bytes;
    }
    struct td_idx_image image = {.data = td_calloc(1, bytes), .bytes = bytes};
    if (!image.data) return td_fail_oom();
    struct td_idx_header *h = image.data;
    memcpy(h->magic, image_magic, sizeof h->magic);
    h->rows = src->images[0].dim[1];
    h->cols = src->images[0].dim[2];
    h->n_classes = n_classes;
    for (int i = 0; i < HALVES; i++)
        h->n[i] = src->images[i].dim[0];
    td_status s = read_bodies(src, &image, n_classes);
    if (s) {
        td_idx_image_finish(&image);
        return s;
    }
    h->digest = digest_of(image.data, image.bytes);
    *out_image = image;
    return TD_OK;
}

// ---- the cache ---------------------------------------------------------------------------------
static td_status cache_path(const struct source *src, uint32_t n_classes, const char *cache_dir,
                            char *out, size_t out_bytes) {
    char hex[TD_DIGEST_HEX];
    TD_AUTO_BUF key;
    td_buf_init(&key, 32 << 10);
    TD_TRY(td_buf_printf(&key, "idx 1 classes %" PRIu32 "\n", n_classes));
    for (int i = 0; i < 2 * HALVES; i++) {
        const char *path = i < HALVES ? src->images[i].path : src->labels[i - HALVES].path;
        struct stat st;
        if (stat(path, &st) != 0) {
            return td_status_with_class(td_fail_errno(TD_NOT_FOUND, "look at '%s'", path),
                                        TD_CLASS_DATA);
        }
        TD_TRY(td_buf_printf(&key, "%s %lld %lld.%09ld\n", path, (long long)st.st_size,
                             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec));
    }
    td_xxh3_128_hex(key.data, key.len, hex);
    int n = snprintf(out, out_bytes, "%s/idx-%s.bin", cache_dir, hex);
    if (n < 0 || (size_t)n >= out_bytes) {
        return td_fail(TD_INVALID_ARGUMENT, "the cache directory's path is too long");
    }
    return TD_OK;
}

// True if a whole image is there; every other case means: decode.
static bool map_image(const char *path, struct td_idx_image *out_image) {
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0) return false;
    struct td_idx_image image = {.bytes = (size_t)st.st_size, .mapped = true};
    image.data = mmap(NULL, image.bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (image.data == MAP_FAILED) return false;
    if (image_is_whole(&image)) {
        *out_image = image;
        return true;
    }
    td_idx_image_finish(&image);
    return false;
}

// Moves a private image into the cache; where that does not work, it stays what it is.
static void move_to_cache(const char *cache_dir, const char *path, struct td_idx_image *image) {
    TD_AUTO_STATUS td_status s = td_fs_mkdirs(cache_dir, 0700);
    if (!s) s = td_fs_write(path, image->data, image->bytes, 0600, 0);
    struct td_idx_image shared;
    if (s || !map_image(path, &shared)) return;
    td_idx_image_finish(image);
    *image = shared;
}

td_status td_idx_image_init(const char *dir, uint32_t n_classes, const char *cache_dir,
                            struct td_idx_image *out_image) {
    struct source src;
    char path[CACHE_PATH];
    TD_TRY(find_source(dir, &src));
    if (cache_dir) {
        TD_TRY(cache_path(&src, n_classes, cache_dir, path, sizeof path));
        if (map_image(path, out_image)) return TD_OK;
    }
    struct td_idx_image image;
    TD_TRY(decode(&src, n_classes, &image));
    if (cache_dir) move_to_cache(cache_dir, path, &image);
    *out_image = image;
    return TD_OK;
}
