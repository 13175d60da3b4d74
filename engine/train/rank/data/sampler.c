// The sampler (see sampler.h).
//
// Everything but the permutation is arithmetic on positions: position i of the epoch is sample
// order(i mod n), where order is the permutation or the identity. Positions past n exist only with
// padding, which is why they wrap around to the epoch's own start. No position is ever stored: the
// loop owns the offset, and a checkpoint of it is a checkpoint of the data.

#include "engine/train/rank/data/sampler.h"

#include <inttypes.h>

#include "engine/train/rank/data/keyed_order.h"
#include "lib/base/rng.h"

struct td_sampler {
    struct td_sampler_config config;
    int64_t epoch;
    int64_t *order;                 // (n_samples); NULL without shuffle, or where it is keyed
    struct td_randperm permutation; // of which order is as much as was asked for
    struct td_keyed_order keyed;
};

size_t td_sampler_order_bytes(const struct td_sampler_config *config) {
    return config->shuffle && !config->keyed ? (size_t)config->n_samples * sizeof(int64_t) : 0;
}

td_status td_sampler_create(const struct td_sampler_config *config,
                            struct td_sampler **out_sampler) {
    if (config->n_samples < 0 || config->n_samples > TD_SAMPLER_MAX_SAMPLES) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "sampler: %" PRId64 " samples; 0 to %" PRId64 " are possible",
                       config->n_samples, TD_SAMPLER_MAX_SAMPLES);
    }
    if (config->world_size < 1) {
        return td_fail(TD_INVALID_ARGUMENT, "sampler: a world of %d ranks", config->world_size);
    }
    TD_AUTO(td_sampler) *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    s->epoch = -1;
    if (td_sampler_order_bytes(config) && !config->plans) {
        s->order = td_calloc((size_t)config->n_samples, sizeof *s->order);
        if (!s->order) return td_fail_oom();
    }
    TD_TRY(td_sampler_set_epoch(s, 0));
    *out_sampler = td_steal(s);
    return TD_OK;
}

void td_sampler_destroy(struct td_sampler *s) {
    if (!s) return;
    free(s->order);
    free(s);
}

td_status td_sampler_set_epoch(struct td_sampler *s, int64_t epoch) {
    if (epoch < 0) return td_fail(TD_INVALID_ARGUMENT, "sampler: epoch %" PRId64, epoch);
    if (epoch == s->epoch) return TD_OK;
    s->epoch = epoch;
    if (s->order) {
        td_randperm_begin(&s->permutation, s->config.seed + (uint64_t)epoch, s->config.n_samples,
                          s->order);
    } else if (s->config.keyed && s->config.n_samples) {
        td_keyed_order_init(&s->keyed, s->config.seed + (uint64_t)epoch, "epoch",
                            s->config.n_samples);
    }
    return TD_OK;
}

int64_t td_sampler_total(const struct td_sampler *s, int64_t offset) {
    const int64_t n = s->config.n_samples, world = s->config.world_size;
    if (offset >= n) return offset;
    int64_t odd = (n - offset) % world;
    switch (s->config.ends) {
    case TD_SAMPLER_PAD:
        return odd ? n + world - odd : n;
    case TD_SAMPLER_DROP_LAST:
        return n - odd;
    case TD_SAMPLER_UNPADDED:
        break;
    }
    return n;
}

int64_t td_sampler_left(const struct td_sampler *s, int64_t offset, int32_t rank) {
    int64_t left = td_sampler_total(s, offset) - offset - rank;
    return left > 0 ? (left + s->config.world_size - 1) / s->config.world_size : 0;
}

int64_t td_sampler_batches(const struct td_sampler *s, int64_t offset, int64_t batch) {
    return (td_sampler_left(s, offset, 0) + batch - 1) / batch; // no rank has more than rank 0
}

static int64_t sample_at(const struct td_sampler *s, int64_t position) {
    if (!s->config.shuffle) return position;
    return s->order ? s->order[position] : td_keyed_order_at(&s->keyed, position);
}

int64_t td_sampler_indices(struct td_sampler *s, int64_t offset, int32_t rank, int64_t batch,
                           int64_t *out) {
    TD_CHECK(offset >= 0 && rank >= 0 && rank < s->config.world_size && !s->config.plans);
    int64_t n = TD_MIN(batch, td_sampler_left(s, offset, rank));
    int64_t end = offset + rank + (n - 1) * s->config.world_size + 1;
    if (s->order && n > 0) td_randperm_extend(&s->permutation, TD_MIN(end, s->config.n_samples));
    for (int64_t j = 0; j < n; j++) {
        int64_t position = (offset + rank + j * s->config.world_size) % s->config.n_samples;
        out[j] = sample_at(s, position);
    }
    return n;
}

int64_t td_sampler_next(const struct td_sampler *s, int64_t offset, int64_t batch) {
    int64_t total = td_sampler_total(s, offset);
    return total - offset > batch * s->config.world_size ? offset + batch * s->config.world_size
                                                         : total;
}
