// Dataset `stripes`: images of stripes, made when they are asked for; the class is their direction.
//
//   cc -shared -fPIC -o dataset-stripes.so stripes.c $(pkg-config --cflags --libs traind)
//
// A dataset gives samples by index and holds no position: the sampler decides which sample comes
// when, so every dataset resumes exactly. Here a sample is a pure function of (seed, split, index).
// Fields: "x" f32 (1, size, size) in [-1, 1], "y" i32, direction * classes / 180 degrees.

#include <math.h>
#include <stdlib.h>

#include "traind/dataset.h"
#include "traind/plugin.h"

static const struct td_plugin_knob knobs[] = {
    {"samples", TD_PLUGIN_KNOB_INT, 1, 1e9, NULL, "1024", NULL,
     "training samples; validation, test and predict have an eighth of it"},
    {"size", TD_PLUGIN_KNOB_INT, 2, 512, "pixels", "12", NULL, "height and width"},
    {"classes", TD_PLUGIN_KNOB_INT, 2, 180, NULL, "4", NULL, "directions"},
    {"noise", TD_PLUGIN_KNOB_REAL, 0, 1, NULL, "0.1", NULL, "greatest noise of a pixel"},
    {"seed", TD_PLUGIN_KNOB_INT, 0, 4294967295.0, NULL, "0", NULL, "another seed, other images"},
};

struct td_dataset {
    int64_t samples, size, classes, seed;
    double noise;
};

static td_status read_knobs(struct td_dataset *d, const struct td_json *values) {
    TD_TRY(td_knob_int(values, "samples", &d->samples));
    TD_TRY(td_knob_int(values, "size", &d->size));
    TD_TRY(td_knob_int(values, "classes", &d->classes));
    TD_TRY(td_knob_int(values, "seed", &d->seed));
    return td_knob_real(values, "noise", &d->noise);
}

static void stripes_close(struct td_dataset *d) {
    free(d);
}

// A dataset of files checks them here, before training, and says which file and place is wrong.
static td_status stripes_open(const struct td_dataset_config *config,
                              struct td_dataset **out_dataset) {
    struct td_dataset *d = (struct td_dataset *)calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    td_status s = read_knobs(d, config->knobs);
    if (s) {
        stripes_close(d);
        return s;
    }
    *out_dataset = d;
    return TD_OK;
}

static size_t stripes_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    const struct td_field x = {"x", TD_F32, {3, {1, d->size, d->size}}, 0};
    const struct td_field y = {"y", TD_I32, {0, {0}}, d->classes};
    out_fields[0] = x;
    out_fields[1] = y;
    return 2;
}

static int64_t stripes_length(struct td_dataset *d, enum td_split split) {
    return split == TD_SPLIT_TRAIN ? d->samples : (d->samples + 7) / 8;
}

// splitmix64: the next of a stream of numbers, in [0, 1).
static double next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0;
}

static void draw(const struct td_dataset *d, uint64_t key, float *x, int32_t *y) {
    const double pi = 3.14159265358979323846;
    uint64_t state = key;
    *y = (int32_t)(next(&state) * (double)d->classes);
    double angle = pi * *y / (double)d->classes, phase = 2 * pi * next(&state);
    for (int64_t i = 0; i < d->size * d->size; i++) {
        double along = cos(angle) * (double)(i % d->size) + sin(angle) * (double)(i / d->size);
        x[i] = (float)(sin(along + phase) + d->noise * (2 * next(&state) - 1));
    }
}

static td_status stripes_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                                int64_t n, void *const *out) {
    float *x = (float *)out[0];
    int32_t *y = (int32_t *)out[1];
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= stripes_length(d, split)) {
            return td_fail(TD_OUT_OF_RANGE, "stripes: sample %lld of %lld in split %s",
                           (long long)index[i], (long long)stripes_length(d, split),
                           td_split_name(split));
        }
        uint64_t key = (uint64_t)d->seed << 32 ^ (uint64_t)split << 60 ^ (uint64_t)index[i];
        draw(d, key * UINT64_C(0x2545f4914f6cdd1d), x + i * d->size * d->size, y + i);
    }
    return TD_OK;
}

static const struct td_dataset_ops ops = {
    .struct_bytes = sizeof ops,
    .open = stripes_open,
    .close = stripes_close,
    .fields = stripes_fields,
    .length = stripes_length,
    .gather = stripes_gather,
};

TD_PLUGIN_WITH_KNOBS(DATASET, "stripes", "images of stripes, by direction", &ops, knobs)
