// Dataset `synthetic`: a classification problem made from a seed; needs no files.
//
// Sample features are uniform in [-1, 1); a linear teacher, random too, scores every class, and the
// best score is the label. So a linear layer can learn it, and chance is far below. All numbers
// come from named Philox streams of `seed`: the same on every rank, for any size of the other
// splits. Validation, test and predict have max(1, samples / 8) samples of one stream, which
// training never shows. Fields: "x" f32 (features), "y" i32.
// Made when opened, in private memory: bounded by MAX_BYTES, refused with numbers above it.

#include <inttypes.h>
#include <string.h>

#include "lib/base/rng.h"
#include "traind/dataset.h"
#include "traind/knobs.h"
#include "workloads/workloads.h"

enum { td_dataset_magic = 0x73796e31 };
#define MAX_BYTES ((size_t)1 << 30)

struct half { // training, or everything else
    int64_t n;
    float *x;   // (n, features)
    int32_t *y; // (n)
};

struct td_dataset {
    uint32_t magic;
    int64_t features, classes;
    struct half half[2];
};

static void synthetic_close(struct td_dataset *d) {
    if (!d) return;
    for (int i = 0; i < 2; i++) {
        free(d->half[i].x);
        free(d->half[i].y);
    }
    d->magic = 0;
    free(d);
}
TD_DEFINE_AUTO(td_dataset, synthetic_close);

static void fill_uniform(uint64_t seed, const char *stream, float *out, size_t n) {
    const struct td_philox_key key = td_philox_key_of(seed, stream);
    td_philox_uniforms(key, 0, n, out);
    for (size_t i = 0; i < n; i++) {
        out[i] = 2.0f * out[i] - 1.0f;
    }
}

static int32_t best_class(const struct td_dataset *d, const float *teacher, const float *x) {
    int32_t best = 0;
    float best_score = 0;
    for (int64_t c = 0; c < d->classes; c++) {
        float score = 0;
        for (int64_t f = 0; f < d->features; f++) {
            score += teacher[c * d->features + f] * x[f];
        }
        if (c && score <= best_score) continue;
        best_score = score;
        best = (int32_t)c;
    }
    return best;
}

static td_status make_half(struct td_dataset *d, int i, int64_t n, uint64_t seed,
                           const float *teacher) {
    struct half *h = &d->half[i];
    h->n = n;
    h->x = td_calloc((size_t)(n * d->features), sizeof *h->x);
    h->y = td_calloc((size_t)n, sizeof *h->y);
    if (!h->x || !h->y) return td_fail_oom();
    fill_uniform(seed, i ? "synthetic.eval" : "synthetic.train", h->x, (size_t)(n * d->features));
    for (int64_t s = 0; s < n; s++) {
        h->y[s] = best_class(d, teacher, h->x + s * d->features);
    }
    return TD_OK;
}

static td_status read_knob(const struct td_json *knobs, const char *key, int64_t least,
                           int64_t most, int64_t *out_value) {
    int64_t v = 0;
    TD_TRY(td_knob_int(knobs, key, &v));
    if (v < least || v > most) {
        return td_bad_spec("data.%s: expected %" PRId64 " to %" PRId64 ", found %" PRId64, key,
                           least, most, v);
    }
    *out_value = v;
    return TD_OK;
}

static td_status synthetic_open(const struct td_dataset_config *config,
                                struct td_dataset **out_dataset) {
    TD_AUTO(td_dataset) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->magic = td_dataset_magic;
    int64_t samples = 0, seed = 0;
    TD_TRY(read_knob(config->knobs, "samples", 1, INT32_MAX, &samples));
    TD_TRY(read_knob(config->knobs, "features", 1, 1 << 20, &d->features));
    TD_TRY(read_knob(config->knobs, "classes", 2, 1 << 20, &d->classes));
    TD_TRY(read_knob(config->knobs, "seed", 0, UINT32_MAX, &seed));
    size_t rows = (size_t)samples + (size_t)samples / 8 + 1 + (size_t)d->classes;
    size_t bytes = rows * (size_t)(d->features + 1) * sizeof(float);
    if (bytes > MAX_BYTES) {
        return td_status_with_class(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "a synthetic set of %" PRId64 " samples, %" PRId64 " features and %" PRId64
                    " classes needs %zu bytes, at most %zu are allowed; ask for less",
                    samples, d->features, d->classes, bytes, MAX_BYTES),
            TD_CLASS_BAD_SPEC);
    }
    size_t n_teacher = (size_t)(d->classes * d->features);
    TD_AUTO_FREE float *teacher = td_calloc(n_teacher, sizeof *teacher);
    if (!teacher) return td_fail_oom();
    fill_uniform((uint64_t)seed, "synthetic.teacher", teacher, n_teacher);
    TD_TRY(make_half(d, 0, samples, (uint64_t)seed, teacher));
    TD_TRY(make_half(d, 1, TD_MAX(samples / 8, 1), (uint64_t)seed, teacher));
    *out_dataset = td_steal(d);
    return TD_OK;
}

static size_t synthetic_fields(struct td_dataset *d, struct td_field out_fields[8]) {
    out_fields[0] = (struct td_field){
        .name = "x", .dtype = TD_F32, .sample_shape = {.n_dims = 1, .dim = {d->features}}};
    out_fields[1] = (struct td_field){.name = "y", .dtype = TD_I32, .n_classes = d->classes};
    return 2;
}

static const struct half *half_of(const struct td_dataset *d, enum td_split split) {
    return &d->half[split == TD_SPLIT_TRAIN ? 0 : 1];
}

static int64_t synthetic_length(struct td_dataset *d, enum td_split split) {
    return half_of(d, split)->n;
}

static td_status synthetic_gather(struct td_dataset *d, enum td_split split, const int64_t *index,
                                  int64_t n, void *const *out) {
    TD_CHECK(d->magic == td_dataset_magic);
    const struct half *h = half_of(d, split);
    float *x = out[0];
    int32_t *y = out[1];
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= h->n) {
            return td_fail(TD_OUT_OF_RANGE, "sample %" PRId64 " of %" PRId64 " in split %s",
                           index[i], h->n, td_split_name(split));
        }
        memcpy(x + i * d->features, h->x + index[i] * d->features, (size_t)d->features * sizeof *x);
        y[i] = h->y[index[i]];
    }
    return TD_OK;
}

static const struct td_dataset_ops synthetic_ops = {
    .struct_bytes = sizeof(struct td_dataset_ops),
    .open = synthetic_open,
    .close = synthetic_close,
    .fields = synthetic_fields,
    .length = synthetic_length,
    .gather = synthetic_gather,
};

const struct td_plugin_desc td_dataset_synthetic = TD_PLUGIN_DESC(
    DATASET, "synthetic", "random samples labelled by a random linear teacher", &synthetic_ops);
