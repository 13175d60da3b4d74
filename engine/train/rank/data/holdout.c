// See the header.

#include "engine/train/rank/data/holdout.h"

#include <stdio.h>

#include "engine/train/config/limits.h"
#include "engine/train/rank/data/sampler.h"
#include "lib/base/rng.h"

// "0.1", "5": as the knob has it.
static void print_part(struct td_amount part, char out[32]) {
    if (part.is_fraction) {
        snprintf(out, 32, "%g", part.fraction);
    } else {
        snprintf(out, 32, "%lld", (long long)part.batches);
    }
}

static td_status check(int64_t n, int64_t n_val, struct td_amount part) {
    char text[32];
    print_part(part, text);
    if (n_val < 1) {
        return td_bad_spec("data.val_split: %s of %lld samples is none to validate on; give a "
                           "larger part",
                           text, (long long)n);
    }
    if (n_val >= n) {
        return td_bad_spec("data.val_split: %s of %lld samples leaves none to train on; give a "
                           "smaller part",
                           text, (long long)n);
    }
    if (n > TD_SAMPLER_MAX_SAMPLES) {
        return td_bad_spec("data.val_split: %lld samples; %lld are the most that can be divided",
                           (long long)n, (long long)TD_SAMPLER_MAX_SAMPLES);
    }
    return TD_OK;
}

td_status td_holdout_init(struct td_holdout *h, int64_t n, const struct td_holdout_config *config) {
    struct td_randperm permutation;
    const int64_t n_val = td_amount_of(config->part, n);
    TD_TRY(check(n, n_val, config->part));
    if (config->keyed) {
        td_keyed_order_init(&h->keyed, config->seed, "val_split", n);
    } else if (!config->plans) {
        h->order = td_calloc((size_t)n, sizeof *h->order);
        if (!h->order) return td_fail_oom();
        td_randperm_begin(&permutation, config->seed, n, h->order);
        td_randperm_extend(&permutation, n);
    }
    h->n_train = n - n_val;
    h->n_val = n_val;
    return TD_OK;
}

void td_holdout_finish(struct td_holdout *h) {
    free(h->order);
    *h = (struct td_holdout){0};
}

void td_holdout_map(const struct td_holdout *h, bool held_out, int64_t *index, int64_t n) {
    const int64_t first = held_out ? h->n_train : 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + index[i];
        index[i] = h->order ? h->order[at] : td_keyed_order_at(&h->keyed, at);
    }
}
