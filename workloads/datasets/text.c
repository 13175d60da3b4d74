// Dataset `text`: rows of bytes out of a file, or out of all files of a folder, as tokens 0 to 255.
//
// A single plain file is mapped as it is. Gzipped files (also dictzip's .dz) and folders are
// decoded and joined once, in the order of their paths, into an image in the node's cache. The end
// of the text, val_fraction of it, is for validation, test and predict; the cut is at a byte, so
// the two parts share none. Knobs: path, block_size, stride, val_fraction, limit_bytes (of the
// whole, from its start). Fields and the meaning of a sample: windows.h. Folders: plain files, not
// hidden, down to MAX_DEPTH folders, at most MAX_FILES; MAX_BYTES in all.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/files/files.h"
#include "lib/base/files/gz.h"
#include "lib/base/files/named.h"
#include "traind/knobs.h"
#include "workloads/datasets/cache.h"
#include "workloads/datasets/foreign.h"
#include "workloads/datasets/mapped.h"
#include "workloads/datasets/windows.h"
#include "workloads/workloads.h"

enum { td_dataset_magic = 0x74657874 };
#define MAX_BYTES ((size_t)1 << 36)
enum { MAX_FILES = 4096, MAX_DEPTH = 8, VOCABULARY = 256 };
static const char image_magic[8] = "TDTEXT1";

struct td_dataset {
    uint32_t magic;
    struct td_mapped file; // one of the two
    struct td_image image;
    struct td_windows part[2]; // training, everything else
};

static void text_close(struct td_dataset *d) {
    if (!d) return;
    td_mapped_finish(&d->file);
    td_image_finish(&d->image);
    d->magic = 0;
    free(d);
}
TD_DEFINE_AUTO(td_dataset, text_close);

// ---- which files --------------------------------------------------------------------------------
struct files {
    char *path[MAX_FILES];
    size_t n;
};

static void files_destroy(struct files *f) {
    if (!f) return;
    for (size_t i = 0; i < f->n; i++) {
        free(f->path[i]);
    }
    free(f);
}
TD_DEFINE_AUTO(files, files_destroy);

static td_status add_path(struct files *f, const char *path) {
    if (f->n == MAX_FILES) {
        return td_status_with_class(
            td_fail(TD_RESOURCE_EXHAUSTED, "a folder of text may have %d files at most", MAX_FILES),
            TD_CLASS_DATA);
    }
    f->path[f->n] = td_strdup(path);
    return f->path[f->n++] ? TD_OK : td_fail_oom();
}

static td_status walk(struct files *f, const char *path, int depth) {
    char child[TD_FS_PATH_BYTES];
    struct stat st;
    DIR *dir;
    TD_TRY(td_named_stat(path, &st));
    if (S_ISREG(st.st_mode)) return st.st_size ? add_path(f, path) : TD_OK;
    if (!S_ISDIR(st.st_mode) || depth == MAX_DEPTH) {
        return td_data_fail_text(path, 0, "kind", "a file or a folder", "something else");
    }
    TD_TRY(td_named_list(path, &dir));
    td_status s = TD_OK;
    for (struct dirent *e; !s && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        s = td_fs_path(child, "%s/%s", path, e->d_name);
        if (!s) s = walk(f, child, depth + 1);
    }
    closedir(dir);
    return s;
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static td_status find_files(const char *path, struct files *f) {
    TD_TRY(walk(f, path, 0));
    qsort(f->path, f->n, sizeof *f->path, by_path);
    if (f->n) return TD_OK;
    return td_data_fail(path, 0, "files that are not empty, at least", 1, 0);
}

// ---- their bytes --------------------------------------------------------------------------------
static bool is_gzip(const struct td_mapped *m) {
    const uint8_t *p = m->data;
    return m->bytes >= 2 && p[0] == 0x1f && p[1] == 0x8b;
}

// A text has no header; a file that has one is no text.
static td_status check_kind(const char *path, const struct td_mapped *m) {
    const char *foreign = td_foreign_kind(m->data, m->bytes);
    return foreign ? td_data_fail_text(path, 0, "kind of file", "text, plain or gzipped", foreign)
                   : TD_OK;
}

static td_status append_file(const char *path, size_t most, struct td_buf *all) {
    struct td_mapped m;
    TD_TRY(td_mapped_init(path, &m));
    td_status s = is_gzip(&m) ? TD_OK : check_kind(path, &m);
    if (!s) {
        s = is_gzip(&m) ? td_gz_head(path, most, all)
                        : td_buf_append(all, m.data, TD_MIN(m.bytes, most));
    }
    td_mapped_finish(&m);
    return s;
}

// Head and bytes of all files, as far as the limit goes.
static td_status decode(const struct files *f, size_t limit, struct td_image *out_image) {
    static const char head[sizeof(struct td_image_head)];
    TD_AUTO_BUF all;
    td_buf_init(&all, MAX_BYTES);
    TD_TRY(td_buf_append(&all, head, sizeof head));
    for (size_t i = 0; i < f->n && all.len - sizeof head < limit; i++) {
        TD_TRY(append_file(f->path[i], limit - (all.len - sizeof head), &all));
    }
    struct td_image image = {.bytes = all.len};
    image.data = td_buf_take_cstr(&all);
    td_image_seal(&image, image_magic);
    *out_image = image;
    return TD_OK;
}

static td_status open_image(struct td_dataset *d, const char *text_path, const struct files *f,
                            const char *cache_dir, size_t limit) {
    char path[TD_IMAGE_PATH];
    if (cache_dir) {
        TD_AUTO_IMAGE_KEY key;
        td_image_key_init(&key, "text");
        TD_TRY(td_buf_printf(&key.what, "text 1 limit %zu %s\n", limit, text_path));
        for (size_t i = 0; i < f->n; i++) {
            TD_TRY(td_image_key_add(&key, f->path[i]));
        }
        TD_TRY(td_image_path(cache_dir, &key, path));
        if (td_image_map(path, image_magic, &d->image)) return TD_OK;
    }
    TD_TRY(decode(f, limit, &d->image));
    if (cache_dir) td_image_share(cache_dir, path, &d->image);
    return TD_OK;
}

static td_status open_bytes(struct td_dataset *d, const char *path, const char *cache_dir,
                            size_t limit, struct td_span *out_text) {
    TD_AUTO(files) *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    TD_TRY(find_files(path, f));
    if (f->n == 1) {
        TD_TRY(td_mapped_init(f->path[0], &d->file));
        if (!is_gzip(&d->file)) {
            TD_TRY(check_kind(f->path[0], &d->file));
            *out_text = (struct td_span){d->file.data, TD_MIN(d->file.bytes, limit)};
            return TD_OK;
        }
        td_mapped_finish(&d->file);
    }
    TD_TRY(open_image(d, path, f, cache_dir, limit));
    const size_t head = sizeof(struct td_image_head);
    *out_text = (struct td_span){(char *)d->image.data + head, d->image.bytes - head};
    return TD_OK;
}

// ---- the dataset --------------------------------------------------------------------------------
static td_status text_open(const struct td_dataset_config *config,
                           struct td_dataset **out_dataset) {
    TD_AUTO(td_dataset) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->magic = td_dataset_magic;
    const char *path = NULL;
    double fraction = 0;
    int64_t limit = 0, block, stride;
    TD_TRY(td_knob_text(config->knobs, "path", &path));
    TD_TRY(td_knob_real(config->knobs, "val_fraction", &fraction));
    TD_TRY(td_knob_int_or(config->knobs, "limit_bytes", MAX_BYTES / 2, &limit));
    TD_TRY(td_windows_knobs(config->knobs, &block, &stride));
    if (!*path || !(fraction >= 0 && fraction < 1) || limit < 1) {
        return td_bad_spec("data: expected path, a val_fraction from 0 to below "
                           "1, and limit_bytes of at least 1");
    }
    struct td_span text = {0};
    TD_TRY(open_bytes(d, path, config->cache_dir, (size_t)limit, &text));
    int64_t n = (int64_t)text.bytes, n_val = (int64_t)((double)n * fraction);
    td_windows_init(&d->part[0], block, stride);
    td_windows_init(&d->part[1], block, stride);
    TD_TRY(td_windows_add(&d->part[0], text.data, n - n_val, 1));
    TD_TRY(td_windows_add(&d->part[1], (const char *)text.data + (n - n_val), n_val, 1));
    if (d->part[0].n == 0) {
        return td_data_fail(path, 0, "bytes to train on, at least", (uint64_t)block + 1,
                            (uint64_t)(n - n_val));
    }
    *out_dataset = td_steal(d);
    return TD_OK;
}

static struct td_windows *windows_of(struct td_dataset *d, enum td_split split) {
    return &d->part[split == TD_SPLIT_TRAIN ? 0 : 1];
}

static size_t text_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    return td_windows_fields(windows_of(d, TD_SPLIT_TRAIN), VOCABULARY, out_fields);
}

static int64_t text_length(struct td_dataset *d, enum td_split split) {
    return windows_of(d, split)->n;
}

static td_status text_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                             int64_t n, void *const *out) {
    TD_CHECK(d->magic == td_dataset_magic);
    return td_windows_gather(windows_of(d, split), split, index, n, out[0], out[1]);
}

static const struct td_dataset_ops text_ops = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = text_open,
    .close = text_close,
    .fields = text_fields,
    .length = text_length,
    .gather = text_gather,
};

const struct td_plugin_desc td_dataset_text =
    TD_PLUGIN_DESC(DATASET, "text", "rows of bytes out of text files, plain or gzipped", &text_ops);
