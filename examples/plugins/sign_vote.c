// Strategy `sign_vote`: ranks exchange the signs of their gradients, and the majority decides.
//
//   cc -shared -fPIC -o strategy-sign_vote.so sign_vote.c $(pkg-config --cflags --libs traind)
//
// State is on every rank, as under ddp. What differs is what a bucket of gradients becomes where an
// all_reduce node is: the sign that most ranks have, times `magnitude`; where they are equal in
// number, 0. It is the same on every rank, and a function of the gradients alone: nothing is kept,
// and a run that is resumed gives the same bits. Slots that are left out are the defaults of
// traind/strategy.h.
// Source: Bernstein et al. 2018, signSGD with majority vote.

#include <stdlib.h>

#include "traind/plugin.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"

static const struct td_plugin_knob knobs[] = {
    {"magnitude", TD_PLUGIN_KNOB_REAL, 1e-12, 1e6, NULL, "0.01", NULL,
     "what each element of a gradient becomes, with the sign of the majority"},
};

struct td_strategy {
    struct td_strategy_config config;
    double magnitude;
};

static td_status vote_open(const struct td_strategy_config *config,
                           struct td_strategy **out_strategy) {
    double magnitude;
    TD_TRY(td_knob_real(config->knobs, "magnitude", &magnitude));
    struct td_strategy *s = (struct td_strategy *)calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config; // the struct dies when open returns, what it points to lives on
    s->magnitude = magnitude;
    *out_strategy = s;
    return TD_OK;
}

static void vote_close(struct td_strategy *s) {
    free(s);
}

// The facts come filled in; only what differs is said.
static td_status vote_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    (void)s;
    out_facts->resumes_exactly = true;
    return TD_OK;
}

// Buckets in programs without sync, too: all variants of a step have to agree about them.
static td_status vote_rewrite(struct td_strategy *s, struct td_graph *g,
                              const struct td_program_key *key) {
    (void)s;
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

static float sign_of(float v) {
    return (float)((v > 0) - (v < 0));
}

static td_status sum(const struct td_strategy *s, float *data, int64_t n) {
    const struct td_strategy_config *c = &s->config;
    return c->collective_ops->all_reduce(c->collective, data, n, TD_F32, TD_REDUCE_SUM);
}

// The control flags of the last bucket are summed whatever happens to the gradients: with them the
// ranks agree when to stop.
static td_status vote_reduce_gradients(struct td_strategy *s, const struct td_bucket *bucket) {
    char *data = (char *)td_bucket_host(bucket);
    float *gradients = (float *)(void *)data;
    if (bucket->dtype != TD_F32) {
        return td_bad_spec("sign_vote takes fp32 gradients, not %s; use precision 32-true or "
                           "bf16-mixed",
                           td_dtype_name(bucket->dtype));
    }
    if (!data) {
        return td_bad_spec("sign_vote counts votes in host memory; bucket %u is on a device",
                           bucket->index);
    }
    for (int64_t i = 0; i < bucket->n; i++) {
        gradients[i] = sign_of(gradients[i]);
    }
    TD_TRY(sum(s, gradients, bucket->n));
    for (int64_t i = 0; i < bucket->n; i++) {
        gradients[i] = (float)s->magnitude * sign_of(gradients[i]);
    }
    if (!bucket->has_control) return TD_OK;
    return sum(s, (float *)(void *)(data + bucket->control_offset), TD_CONTROL_FLAGS);
}

static const struct td_strategy_ops ops = {
    .struct_bytes = sizeof ops,
    .open = vote_open,
    .close = vote_close,
    .environment = vote_environment,
    .rewrite = vote_rewrite,
    .reduce_gradients = vote_reduce_gradients,
};

TD_PLUGIN_WITH_KNOBS(STRATEGY, "sign_vote", "signs of gradients, by the majority of ranks", &ops,
                     knobs)
