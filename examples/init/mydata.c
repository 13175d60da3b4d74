// Dataset `mydata`: rows of a CSV file. Numbers, then a class from 0 on; a first line of names is
// skipped.
//
// A dataset gives samples by index and holds no position: traind decides which sample comes when,
// so every dataset resumes exactly and is shared among ranks. All of the file is read and checked
// in mydata_open, before training, so that a mistake is named with its line.
// Of five rows three train, one validates and one tests. Fields: "x" f32 (columns - 1), "y" i32.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traind/dataset.h"
#include "traind/plugin.h"

enum { ROWS_MAX = 10000000, COLUMNS_MAX = 4096, LINE_MAX_BYTES = 65536 };

static const struct td_plugin_knob knobs[] = {
    {"path", TD_PLUGIN_KNOB_PATH, 0, 0, NULL, NULL, NULL, "the CSV file"},
};

struct td_dataset {
    float *x;   // (rows, features)
    int32_t *y; // (rows)
    int64_t rows, room, features, classes;
};

static void mydata_close(struct td_dataset *d) {
    if (!d) return;
    free(d->x);
    free(d->y);
    free(d);
}

// ---- reading ------------------------------------------------------------------------------------
// Class data: the file is not as said, and trying again does not help.
static td_status damaged(const char *path, int64_t line, const char *what) {
    return td_status_with_class(
        td_fail(TD_DATA_LOSS, "%s, line %lld: %s", path, (long long)line, what), TD_CLASS_DATA);
}

static td_status make_room(struct td_dataset *d) {
    if (d->rows < d->room) return TD_OK;
    if (d->rows == ROWS_MAX) return td_bad_spec("mydata takes at most %d rows", ROWS_MAX);
    const int64_t room = d->room ? 2 * d->room : 256;
    float *x = (float *)realloc(d->x, sizeof *x * (size_t)(room * d->features));
    if (x) d->x = x;
    int32_t *y = (int32_t *)realloc(d->y, sizeof *y * (size_t)room);
    if (y) d->y = y;
    if (!x || !y) return td_fail_oom();
    d->room = room;
    return TD_OK;
}

// Numbers of a line; -1: something in it is none, or is "nan", or does not fit a float.
static int64_t read_numbers(const char *at, double *out) {
    for (int64_t n = 0; n < COLUMNS_MAX; n++) {
        char *end;
        out[n] = strtod(at, &end);
        if (end == at || !isfinite((float)out[n])) return -1;
        end += strspn(end, " \t\r\n");
        if (!*end) return n + 1;
        if (*end != ',') return -1;
        at = end + 1;
    }
    return -1;
}

// The first line may name the columns.
static bool is_names(const char *text) {
    char *end;
    strtod(text, &end);
    return end == text;
}

static td_status add_row(struct td_dataset *d, const char *path, int64_t line, const char *text) {
    double column[COLUMNS_MAX];
    const int64_t n = read_numbers(text, column);
    if (n < 0 && line == 1 && is_names(text)) return TD_OK;
    if (n < 2) return damaged(path, line, "expected numbers with ',' between, and a class");
    if (!d->features) d->features = n - 1;
    if (n != d->features + 1) return damaged(path, line, "another number of columns than before");
    const double class_of = column[n - 1];
    if (class_of < 0 || class_of >= ROWS_MAX || class_of != floor(class_of)) {
        return damaged(path, line, "a class is 0, 1, 2, ...");
    }
    const int32_t y = (int32_t)class_of;
    TD_TRY(make_room(d));
    for (int64_t i = 0; i < d->features; i++) {
        d->x[d->rows * d->features + i] = (float)column[i];
    }
    d->y[d->rows++] = y;
    if (y >= d->classes) d->classes = y + 1;
    return TD_OK;
}

static td_status read_file(struct td_dataset *d, const char *path) {
    char *text = (char *)malloc(LINE_MAX_BYTES);
    FILE *file = text ? fopen(path, "r") : NULL;
    td_status s = TD_OK;
    int64_t line = 1;
    if (!text) return td_fail_oom();
    if (!file) {
        s = td_status_with_class(td_fail(TD_NOT_FOUND, "mydata cannot open %s", path),
                                 TD_CLASS_DATA);
    }
    for (; !s && fgets(text, LINE_MAX_BYTES, file); line++) {
        const size_t len = strlen(text);
        if (!len || (text[len - 1] != '\n' && !feof(file))) { // fgets goes on after a byte 0
            s = damaged(path, line, "the line is too long, or has a byte 0");
        } else if (text[strspn(text, " \t\r\n")]) {
            s = add_row(d, path, line, text);
        }
    }
    if (!s && ferror(file)) s = damaged(path, line, "it cannot be read");
    if (!s && d->rows < 5) s = damaged(path, line, "the file ends with fewer than 5 rows");
    if (file) fclose(file);
    free(text);
    return s;
}

static td_status mydata_open(const struct td_dataset_config *config,
                             struct td_dataset **out_dataset) {
    const char *path;
    struct td_dataset *d = (struct td_dataset *)calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    td_status s = td_knob_text(config->knobs, "path", &path);
    if (!s) s = read_file(d, path);
    if (s) {
        mydata_close(d);
        return s;
    }
    *out_dataset = d;
    return TD_OK;
}

// ---- giving -------------------------------------------------------------------------------------
static size_t mydata_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    const struct td_field x = {"x", TD_F32, {1, {d->features}}, 0};
    const struct td_field y = {"y", TD_I32, {0, {0}}, d->classes};
    out_fields[0] = x;
    out_fields[1] = y;
    return 2;
}

// Of five rows: 0, 1 and 2 train, 3 validates, 4 tests. To predict there is all of it.
static int64_t row_of(enum td_split split, int64_t index) {
    if (split == TD_SPLIT_TRAIN) return index / 3 * 5 + index % 3;
    if (split == TD_SPLIT_PREDICT) return index;
    return index * 5 + (split == TD_SPLIT_VAL ? 3 : 4);
}

static int64_t mydata_length(struct td_dataset *d, enum td_split split) {
    const int64_t whole = d->rows / 5, rest = d->rows % 5;
    if (split == TD_SPLIT_TRAIN) return 3 * whole + (rest < 3 ? rest : 3);
    if (split == TD_SPLIT_PREDICT) return d->rows;
    return whole + (split == TD_SPLIT_VAL && rest > 3);
}

static td_status mydata_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                               int64_t n, void *const *out) {
    float *x = (float *)out[0];
    int32_t *y = (int32_t *)out[1];
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= mydata_length(d, split)) {
            return td_fail(TD_OUT_OF_RANGE, "mydata has no sample %lld in split %s",
                           (long long)index[i], td_split_name(split));
        }
        const int64_t row = row_of(split, index[i]);
        memcpy(x + i * d->features, d->x + row * d->features, sizeof *x * (size_t)d->features);
        y[i] = d->y[row];
    }
    return TD_OK;
}

// ---- the plugin ---------------------------------------------------------------------------------
static const struct td_dataset_ops ops = {
    .struct_bytes = sizeof ops,
    .open = mydata_open,
    .close = mydata_close,
    .fields = mydata_fields,
    .length = mydata_length,
    .gather = mydata_gather,
};

TD_PLUGIN_WITH_KNOBS(DATASET, "mydata", "rows of a CSV file", &ops, knobs)
