// Dataset + loaders + staging.

#include "engine/train/rank/data/data.h"

#include <string.h>

enum { N_STAGING = 2 };

struct loader {
    struct td_sampler *sampler;
    int64_t first; // of its samples in the split
};

struct split_state {
    struct loader loader[TD_LOADERS_MAX];
    int n_loaders; // 0: absent
    size_t order_bytes;
    int32_t rank;
    struct td_data *data;            // that it is of
    struct td_loader inner, wrapper; // wrapper.batch NULL: there is none
};

struct td_data {
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    const struct td_dataset_ops *ops;
    struct td_dataset *dataset;
    struct td_field field[TD_DATA_FIELDS], recorded[TD_DATA_FIELDS];
    size_t sample_bytes[TD_DATA_FIELDS];
    size_t n_fields;
    int64_t batch_size;
    size_t batch_bytes, order_bytes;
    struct td_holdout holdout;
    struct split_state split[TD_SPLIT_COUNT];
    int64_t *index;                           // (batch_size)
    void *staging[N_STAGING][TD_DATA_FIELDS]; // each (batch_size, sample_shape)
    size_t staging_bytes[TD_DATA_FIELDS];
    int next;
    void *zeros; // as large as the largest field's batch; NULL: not asked for
    size_t zeros_bytes;
};

static td_status allocate(struct td_data *d, size_t bytes, void **out) {
    if (d->accel_ops->host_alloc) return d->accel_ops->host_alloc(d->accel, bytes, out);
    if (posix_memalign(out, 64, bytes) != 0) return td_fail_oom();
    memset(*out, 0, bytes);
    return TD_OK;
}

static td_status allocate_staging(struct td_data *d) {
    for (size_t f = 0; f < d->n_fields; f++) {
        const struct td_field *field = &d->field[f];
        size_t bytes = td_dtype_bytes(field->dtype);
        const size_t elems = (size_t)td_shape_elems(&field->sample_shape);
        if (!td_size_mul(bytes, elems, &d->sample_bytes[f]) ||
            !td_size_mul(d->sample_bytes[f], (size_t)d->batch_size, &bytes)) {
            return td_fail(TD_INVALID_ARGUMENT,
                           "a batch of %lld samples of field '%s' is too large",
                           (long long)d->batch_size, field->name);
        }
        d->staging_bytes[f] = bytes + 64;
        for (int i = 0; i < N_STAGING; i++) {
            TD_TRY(allocate(d, bytes + 64, &d->staging[i][f]));
            d->batch_bytes += bytes + 64;
        }
    }
    return TD_OK;
}

// ---- what a dataset says of itself --------------------------------------------------------------
static bool is_field(const struct td_field *f) {
    const struct td_shape *s = &f->sample_shape;
    if (!f->name[0] || !memchr(f->name, 0, sizeof f->name)) return false;
    if ((unsigned)f->dtype >= TD_DTYPE_COUNT || s->n_dims < 0 || s->n_dims >= TD_MAX_DIMS) {
        return false;
    }
    for (int32_t i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 1) return false;
    }
    return f->n_classes >= 0;
}

static td_status check_fields(const struct td_data *d, size_t n_fields) {
    if (n_fields < 1 || n_fields > TD_DATA_FIELDS) {
        return td_fail(TD_INVALID_ARGUMENT, "its slot fields says %zu fields; 1 to %d are possible",
                       n_fields, TD_DATA_FIELDS);
    }
    for (size_t i = 0; i < n_fields; i++) {
        if (is_field(&d->field[i])) continue;
        return td_fail(TD_INVALID_ARGUMENT,
                       "field %zu of its slot fields needs a name of at most %zu bytes, a type, a "
                       "shape of at most %d dimensions, each 1 or more, and no negative n_classes",
                       i, sizeof d->field[i].name - 1, TD_MAX_DIMS - 1);
    }
    return TD_OK;
}

static td_status check_dataset(const struct td_data *d, size_t n_fields) {
    TD_TRY(check_fields(d, n_fields));
    for (int i = 0; i < TD_SPLIT_COUNT; i++) {
        const int64_t n = d->ops->length(d->dataset, (enum td_split)i);
        if (n >= 0) continue;
        return td_fail(TD_INVALID_ARGUMENT, "its slot length says %lld samples of split %s",
                       (long long)n, td_split_name((enum td_split)i));
    }
    return TD_OK;
}

td_status td_data_open(const struct td_accelerator_ops *accel_ops, struct td_accelerator *accel,
                       const struct td_dataset_ops *ops, const struct td_dataset_config *config,
                       int64_t batch_size, struct td_data **out_data) {
    TD_AUTO(td_data) *d = td_calloc(1, sizeof *d);
    if (!d) return td_fail_oom();
    d->accel_ops = accel_ops;
    d->accel = accel;
    d->ops = ops;
    d->batch_size = batch_size;
    TD_TRY(ops->open(config, &d->dataset));
    const size_t n_fields = ops->fields(d->dataset, d->field);
    TD_TRY(td_status_with_class(check_dataset(d, n_fields), TD_CLASS_USER_CODE));
    d->n_fields = n_fields;
    memcpy(d->recorded, d->field, sizeof d->field);
    for (size_t i = 0; i < n_fields; i++) {
        const bool was_asked = config->floats == TD_F64 && d->field[i].dtype == TD_F64;
        if (was_asked) d->recorded[i].dtype = TD_F32;
    }
    d->index = td_calloc((size_t)batch_size, sizeof *d->index);
    if (!d->index) return td_fail_oom();
    TD_TRY(allocate_staging(d));
    *out_data = td_steal(d);
    return TD_OK;
}

static void release(const struct td_data *d, void *memory, size_t bytes) {
    if (memory && d->accel_ops->host_free) {
        d->accel_ops->host_free(d->accel, memory, bytes);
    } else {
        free(memory);
    }
}

void td_data_close(struct td_data *d) {
    if (!d) return;
    for (int i = 0; i < N_STAGING; i++) {
        for (size_t f = 0; f < d->n_fields; f++) {
            release(d, d->staging[i][f], d->staging_bytes[f]);
        }
    }
    release(d, d->zeros, d->zeros_bytes);
    for (int s = 0; s < TD_SPLIT_COUNT; s++) {
        for (int i = 0; i < TD_LOADERS_MAX; i++) {
            td_sampler_destroy(d->split[s].loader[i].sampler);
        }
    }
    free(d->index);
    td_holdout_finish(&d->holdout);
    d->ops->close(d->dataset);
    free(d);
}

const struct td_field *td_data_fields(const struct td_data *d, size_t *out_n) {
    *out_n = d->n_fields;
    return d->field;
}

const struct td_field *td_data_recorded(const struct td_data *d, size_t *out_n) {
    *out_n = d->n_fields;
    return d->recorded;
}

size_t td_data_batch_bytes(const struct td_data *d) {
    return d->batch_bytes;
}

size_t td_data_order_bytes(const struct td_data *d) {
    return d->order_bytes;
}

td_status td_data_hold_out(struct td_data *d, const struct td_holdout_config *config) {
    const int64_t n = d->ops->length(d->dataset, TD_SPLIT_TRAIN);
    TD_CHECK(!d->holdout.n_val);
    TD_TRY(td_holdout_init(&d->holdout, n, config));
    if (!config->keyed) d->order_bytes += (size_t)n * sizeof(int64_t);
    return TD_OK;
}

// Is the split that part of the training samples which was kept?
static bool is_held_out(const struct td_data *d, enum td_split split) {
    if (!d->holdout.n_val || split == TD_SPLIT_TRAIN) return false;
    return split == TD_SPLIT_VAL || d->ops->length(d->dataset, split) == 0;
}

int64_t td_data_length(const struct td_data *d, enum td_split split) {
    if (is_held_out(d, split)) return d->holdout.n_val;
    if (d->holdout.n_val && split == TD_SPLIT_TRAIN) return d->holdout.n_train;
    return d->ops->length(d->dataset, split);
}

static td_status find_loaders(const struct td_data *d, enum td_split split, int64_t length,
                              int64_t out_samples[TD_LOADERS_MAX], int *out_n) {
    const bool evaluates = split == TD_SPLIT_VAL || split == TD_SPLIT_TEST;
    int64_t left = length;
    bool fits = true;
    *out_n = 1;
    out_samples[0] = length;
    if (!evaluates || !d->ops->loaders || is_held_out(d, split)) return TD_OK;
    const size_t n = d->ops->loaders(d->dataset, split, out_samples);
    if (n < 1 || n > TD_LOADERS_MAX) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "the dataset has %zu loaders of split %s; 1 to %d may be", n,
                       td_split_name(split), TD_LOADERS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        fits = fits && out_samples[i] >= 1 && out_samples[i] <= left;
        if (fits) left -= out_samples[i];
    }
    *out_n = (int)n;
    if (fits && left == 0) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "the loaders of split %s do not make its %lld samples; each has 1 or more of "
                   "them, and each sample one loader",
                   td_split_name(split), (long long)length);
}

// The samples of d->index, as the split numbers them.
static td_status gather_samples(struct td_data *d, enum td_split split, int64_t n, void **staging) {
    const bool held_out = is_held_out(d, split);
    if (held_out || (d->holdout.n_val && split == TD_SPLIT_TRAIN)) {
        td_holdout_map(&d->holdout, held_out, d->index, n);
        split = TD_SPLIT_TRAIN;
    }
    return d->ops->gather(d->dataset, split, d->index, n, staging);
}

static td_status gather(void *split, int32_t loader, int64_t offset, struct td_buffer *out_fields,
                        int64_t *out_n) {
    const struct split_state *s = split;
    struct td_data *d = s->data;
    if (loader < 0 || loader >= s->n_loaders || offset < 0) {
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT,
                    "a batch at sample %lld of loader %d, where split %s has %d", (long long)offset,
                    loader, td_split_name((enum td_split)(s - d->split)), s->n_loaders),
            TD_CLASS_USER_CODE);
    }
    const struct loader *l = &s->loader[loader];
    int64_t n = td_sampler_indices(l->sampler, offset, s->rank, d->batch_size, d->index);
    for (int64_t i = 0; i < n && l->first > 0; i++) {
        d->index[i] += l->first;
    }
    void **staging = d->staging[d->next];
    d->next = (d->next + 1) % N_STAGING;
    if (n > 0) TD_TRY(gather_samples(d, (enum td_split)(s - d->split), n, staging));
    for (size_t f = 0; f < d->n_fields; f++) {
        out_fields[f] = td_buffer_of_host(staging[f], (size_t)n * d->sample_bytes[f]);
    }
    *out_n = n;
    return TD_OK;
}

static void undivide(struct td_data *d, struct split_state *s) {
    for (int i = 0; i < TD_LOADERS_MAX; i++) {
        td_sampler_destroy(s->loader[i].sampler);
    }
    d->order_bytes -= s->order_bytes;
    *s = (struct split_state){0};
}

td_status td_data_divide(struct td_data *d, enum td_split split, int32_t rank,
                         const struct td_sampler_config *sampler) {
    struct split_state *s = &d->split[split];
    struct td_sampler_config config = *sampler;
    int64_t samples[TD_LOADERS_MAX], first = 0;
    int n;
    if (sampler->n_samples == 0) return TD_OK;
    undivide(d, s);
    TD_TRY(td_status_with_class(find_loaders(d, split, sampler->n_samples, samples, &n),
                                TD_CLASS_USER_CODE));
    for (int i = 0; i < n; i++) {
        config.n_samples = samples[i];
        TD_TRY(td_sampler_create(&config, &s->loader[i].sampler));
        s->order_bytes += td_sampler_order_bytes(&config);
        d->order_bytes += td_sampler_order_bytes(&config);
        s->loader[i].first = first;
        first += samples[i];
    }
    s->rank = rank;
    s->data = d;
    s->inner = (struct td_loader){.struct_bytes = sizeof s->inner, .self = s, .batch = gather};
    s->n_loaders = n;
    return TD_OK;
}

int td_data_n_loaders(const struct td_data *d, enum td_split split) {
    return d->split[split].n_loaders;
}

struct td_sampler *td_data_loader(const struct td_data *d, enum td_split split, int loader) {
    return d->split[split].loader[loader].sampler;
}

struct td_sampler *td_data_sampler(const struct td_data *d, enum td_split split) {
    return td_data_loader(d, split, 0);
}

int64_t td_data_left(const struct td_data *d, enum td_split split, int loader, int64_t offset) {
    return td_sampler_left(td_data_loader(d, split, loader), offset, d->split[split].rank);
}

const struct td_loader *td_data_inner_loader(const struct td_data *d, enum td_split split) {
    return &d->split[split].inner;
}

void td_data_wrap(struct td_data *d, enum td_split split, const struct td_loader *wrapper) {
    d->split[split].wrapper = *wrapper;
}

static const char *split_name(const struct split_state *s) {
    return td_split_name((enum td_split)(s - s->data->split));
}

static td_status check_wrapped(const struct td_data *d, const struct split_state *s, int64_t offset,
                               const struct td_buffer *fields, int64_t n) {
    for (size_t f = 0; n && f < d->n_fields; f++) {
        const size_t bytes = (size_t)n * d->sample_bytes[f];
        const bool is_host = td_buffer_host(fields[f]);
        if (is_host && fields[f].bytes >= bytes) continue;
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT,
                    "the strategy's loader of split %s gives %zu bytes of field '%s' in host "
                    "memory at sample %lld, where %lld sample%s %zu",
                    split_name(s), is_host ? fields[f].bytes : 0, d->field[f].name,
                    (long long)offset, (long long)n, n == 1 ? " has" : "s have", bytes),
            TD_CLASS_USER_CODE);
    }
    return TD_OK;
}

// A strategy may be a stranger's, and programs read as many samples as they were recorded for.
static td_status gather_wrapped(struct td_data *d, const struct split_state *s, int loader,
                                int64_t offset, struct td_buffer out_inputs[TD_DATA_FIELDS],
                                int64_t *out_n) {
    const int64_t n = td_sampler_left(s->loader[loader].sampler, offset, s->rank);
    const int64_t wanted = TD_MIN(n, d->batch_size);
    memset(out_inputs, 0, d->n_fields * sizeof *out_inputs);
    *out_n = -1;
    TD_TRY(s->wrapper.batch(s->wrapper.self, loader, offset, out_inputs, out_n));
    if (*out_n == wanted) return check_wrapped(d, s, offset, out_inputs, wanted);
    return td_status_with_class(
        td_fail(TD_INVALID_ARGUMENT,
                "the strategy's loader of split %s gives %lld sample%s at sample %lld, where the "
                "loader that it wraps has %lld",
                split_name(s), (long long)*out_n, *out_n == 1 ? "" : "s", (long long)offset,
                (long long)wanted),
        TD_CLASS_USER_CODE);
}

td_status td_data_batch(struct td_data *d, enum td_split split, int loader, int64_t offset,
                        struct td_buffer out_inputs[TD_DATA_FIELDS], int64_t *out_n) {
    struct split_state *s = &d->split[split];
    if (s->wrapper.batch) return gather_wrapped(d, s, loader, offset, out_inputs, out_n);
    return gather(s, loader, offset, out_inputs, out_n);
}

const void *td_data_host(struct td_buffer field) {
    return td_buffer_host(field);
}

void td_data_buffers(const struct td_data *d, const void *const *fields, int64_t n,
                     struct td_buffer out_inputs[TD_DATA_FIELDS]) {
    for (size_t f = 0; f < d->n_fields; f++) {
        out_inputs[f] = td_buffer_of_host(fields[f], (size_t)n * d->sample_bytes[f]);
    }
}

td_status td_data_zeros(struct td_data *d, int64_t n, struct td_buffer out_inputs[TD_DATA_FIELDS]) {
    const void *fields[TD_DATA_FIELDS];
    if (!d->zeros) {
        for (size_t f = 0; f < d->n_fields; f++) {
            d->zeros_bytes = TD_MAX(d->zeros_bytes, d->staging_bytes[f]);
        }
        TD_TRY(allocate(d, d->zeros_bytes, &d->zeros));
        d->batch_bytes += d->zeros_bytes;
    }
    for (size_t f = 0; f < d->n_fields; f++) {
        fields[f] = d->zeros;
    }
    td_data_buffers(d, fields, n, out_inputs);
    return TD_OK;
}
