// Dataset `tokens`: rows of token ids out of files that somebody else's tokenizer wrote.
//
// Formats are in tokens_file.h: llm.c's, NumPy's, and bare ids. Files are mapped, never copied, and
// checked whole before training: size, header, every id below vocab_size. Knobs: train and val
// (lists of files), token_bytes, block_size, stride, vocab_size, val_by_file. Validation, test and
// predict are `val`, each file of it a loader if val_by_file. Fields and the meaning of a sample:
// windows.h.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/json.h"
#include "traind/knobs.h"
#include "workloads/datasets/mapped.h"
#include "workloads/datasets/tokens_file.h"
#include "workloads/datasets/windows.h"
#include "workloads/workloads.h"

enum { td_dataset_magic = 0x746f6b31 };

struct part { // training, or everything else
    struct td_windows windows;
    struct td_mapped file[TD_WINDOWS_RUNS];
};

struct td_dataset {
    uint32_t magic;
    int64_t vocab_size, token_bytes; // token_bytes 0: not given
    bool val_by_file;
    struct part part[2];
};

static void tokens_close(struct td_dataset *d) {
    if (!d) return;
    for (int i = 0; i < 2; i++) {
        for (size_t f = 0; f < TD_WINDOWS_RUNS; f++) {
            td_mapped_finish(&d->part[i].file[f]);
        }
    }
    d->magic = 0;
    free(d);
}
TD_DEFINE_AUTO(td_dataset, tokens_close);

static td_status add_file(struct td_dataset *d, struct part *p, const char *path) {
    if (p->windows.n_runs == TD_WINDOWS_RUNS) return td_windows_add(&p->windows, NULL, 0, 1);
    struct td_mapped *file = &p->file[p->windows.n_runs];
    struct td_tokens tokens;
    TD_TRY(td_mapped_init(path, file));
    TD_TRY(
        td_tokens_read(path, file->data, file->bytes, d->vocab_size, (int)d->token_bytes, &tokens));
    return td_windows_add(&p->windows, tokens.data, tokens.n, tokens.width);
}

static td_status add_files(struct td_dataset *d, int i, const struct td_json *paths, int64_t block,
                           int64_t stride) {
    struct part *p = &d->part[i];
    td_windows_init(&p->windows, block, stride);
    for (const struct td_json *v = paths->first; v; v = v->next) {
        TD_TRY(add_file(d, p, td_json_string(v, "")));
    }
    if (p->windows.n > 0 || p->windows.n_runs == 0) return TD_OK;
    return td_data_fail(td_json_string(paths->first, ""), 0, "tokens for one row, at least",
                        (uint64_t)block + 1, (uint64_t)p->windows.run[0].n_tokens);
}

static int64_t rows_of_run(const struct td_windows *w, size_t i) {
    return (i + 1 < w->n_runs ? w->run[i + 1].first : w->n) - w->run[i].first;
}

// A loader has a row at least, so each file of val does.
static td_status check_loaders(const struct td_dataset *d, const struct td_json *paths) {
    const struct td_windows *w = &d->part[1].windows;
    const struct td_json *path = paths->first;
    if (w->n_runs > TD_LOADERS_MAX) {
        return td_bad_spec("data.val_by_file: %zu files in data.val; %d are the most", w->n_runs,
                           TD_LOADERS_MAX);
    }
    for (size_t i = 0; i < w->n_runs; i++, path = path->next) {
        if (rows_of_run(w, i) > 0) continue;
        return td_data_fail(td_json_string(path, ""), 0, "tokens for one row, at least",
                            (uint64_t)w->block + 1, (uint64_t)w->run[i].n_tokens);
    }
    return TD_OK;
}

static td_status find_paths(const struct td_json *knobs, const char *key,
                            const struct td_json **out_paths) {
    const struct td_json *paths = td_json_get(knobs, key);
    if (!paths || paths->kind != TD_JSON_ARRAY) {
        return td_bad_spec("data.%s: expected a list of files", key);
    }
    *out_paths = paths;
    return TD_OK;
}

static td_status tokens_open(const struct td_dataset_config *config,
                             struct td_dataset **out_dataset) {
    TD_AUTO(td_dataset) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    int64_t block, stride;
    d->magic = td_dataset_magic;
    const struct td_json *train = NULL, *val = NULL;
    TD_TRY(td_knob_int(config->knobs, "vocab_size", &d->vocab_size));
    TD_TRY(td_knob_int_or(config->knobs, "token_bytes", 0, &d->token_bytes));
    if (d->token_bytes && d->token_bytes != 2 && d->token_bytes != 4 && d->token_bytes != 8) {
        return td_bad_spec("data.token_bytes: expected 2, 4 or 8, found %" PRId64, d->token_bytes);
    }
    TD_TRY(td_windows_knobs(config->knobs, &block, &stride));
    TD_TRY(td_knob_bool(config->knobs, "val_by_file", &d->val_by_file));
    TD_TRY(find_paths(config->knobs, "train", &train));
    TD_TRY(find_paths(config->knobs, "val", &val));
    if (!train->first || d->vocab_size < 1) {
        return td_bad_spec("data.train: expected a list of files, and a "
                           "vocab_size of at least 1");
    }
    TD_TRY(add_files(d, 0, train, block, stride));
    TD_TRY(add_files(d, 1, val, block, stride));
    if (d->val_by_file) TD_TRY(check_loaders(d, val));
    *out_dataset = td_steal(d);
    return TD_OK;
}

static struct td_windows *windows_of(struct td_dataset *d, enum td_split split) {
    return &d->part[split == TD_SPLIT_TRAIN ? 0 : 1].windows;
}

static size_t tokens_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    return td_windows_fields(windows_of(d, TD_SPLIT_TRAIN), d->vocab_size, out_fields);
}

static int64_t tokens_length(struct td_dataset *d, enum td_split split) {
    return windows_of(d, split)->n;
}

static td_status tokens_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                               int64_t n, void *const *out) {
    TD_CHECK(d->magic == td_dataset_magic);
    return td_windows_gather(windows_of(d, split), split, index, n, out[0], out[1]);
}

static size_t tokens_loaders(struct td_dataset *d, enum td_split split,
                             int64_t out_samples[TD_LOADERS_MAX]) {
    const struct td_windows *w = windows_of(d, split);
    if (!d->val_by_file) {
        out_samples[0] = w->n;
        return 1;
    }
    for (size_t i = 0; i < w->n_runs; i++) {
        out_samples[i] = rows_of_run(w, i);
    }
    return w->n_runs;
}

static const struct td_dataset_ops tokens_ops = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = tokens_open,
    .close = tokens_close,
    .fields = tokens_fields,
    .length = tokens_length,
    .gather = tokens_gather,
    .loaders = tokens_loaders,
};

const struct td_plugin_desc td_dataset_tokens = TD_PLUGIN_DESC(
    DATASET, "tokens", "rows of token ids: llm.c's, nanoGPT's and NumPy's files", &tokens_ops);
