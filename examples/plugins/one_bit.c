// Comm hook `one_bit`: of each gradient travels its sign, and one number for each bucket.
//
//   cc -shared -fPIC -o comm_hook-one_bit.so one_bit.c $(pkg-config --cflags --libs traind)
//
// A rank sends the signs of (gradient + what the steps before left out), 8 to a byte, and the mean
// of their sizes. A gradient becomes the mean over ranks of size times sign; what a rank's own part
// of that leaves out is added to its next gradient. This rest is kept twice: a step that is skipped
// leaves the one that counts alone. It is in the checkpoint, so a run that is resumed gives the
// same bits.
// Source: Karimireddy et al. 2019, "Error Feedback Fixes SignSGD".

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traind/comm_hook.h"
#include "traind/plugin.h"

static const struct td_plugin_knob knobs[] = {
    {"feedback", TD_PLUGIN_KNOB_REAL, 0, 1, NULL, "1", NULL,
     "how much of what a step leaves out is added to the next gradient"},
};

struct td_comm_hook {
    struct td_comm_hook_config config;
    double feedback;
    size_t n_all;              // elements of all buckets
    size_t n_buckets, *at;     // (n_buckets): where each begins
    float *rest, *next;        // (n_all): what counts, and what the last step left out
    unsigned char *reduced;    // (n_buckets): `next` has a step that nobody took back so far
    unsigned char *mine, *all; // messages: a size, then signs
    uint64_t sent_bytes;
};

static td_status bit_open(const struct td_comm_hook_config *config,
                          struct td_comm_hook **out_hook) {
    double feedback;
    TD_TRY(td_knob_real(config->knobs, "feedback", &feedback));
    struct td_comm_hook *h = (struct td_comm_hook *)calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->config = *config; // the struct dies when open returns, what it points to lives on
    h->feedback = feedback;
    *out_hook = h;
    return TD_OK;
}

static void bit_close(struct td_comm_hook *h) {
    if (!h) return;
    free(h->at);
    free(h->reduced);
    free(h->rest);
    free(h->next);
    free(h->mine);
    free(h->all);
    free(h);
}

static size_t message_bytes(int64_t n) {
    return sizeof(float) + ((size_t)n + 7) / 8;
}

static td_status bit_memory(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n,
                            size_t *out_bytes, size_t *out_state_bytes) {
    size_t message = 0, elements = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = message_bytes(buckets[i].n);
        if (buckets[i].dtype != TD_F32) {
            return td_bad_spec("one_bit takes fp32 gradients, not %s; use precision 32-true or "
                               "bf16-mixed",
                               td_dtype_name(buckets[i].dtype));
        }
        message = bytes > message ? bytes : message;
        elements += (size_t)buckets[i].n;
    }
    *out_state_bytes = elements * sizeof(float);
    *out_bytes = 2 * elements * sizeof(float) + message * (size_t)(h->config.world_size + 1);
    return TD_OK;
}

static td_status bit_place(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n) {
    size_t message = 0, bytes, state;
    TD_TRY(bit_memory(h, buckets, n, &bytes, &state));
    h->at = (size_t *)calloc(n + 1, sizeof *h->at);
    h->reduced = (unsigned char *)calloc(n + 1, 1);
    if (!h->at || !h->reduced) return td_fail_oom();
    h->n_buckets = n;
    for (size_t i = 0; i < n; i++) {
        bytes = message_bytes(buckets[i].n);
        message = bytes > message ? bytes : message;
        h->at[i] = h->n_all;
        h->n_all += (size_t)buckets[i].n;
    }
    h->rest = (float *)calloc(h->n_all + 1, sizeof *h->rest);
    h->next = (float *)calloc(h->n_all + 1, sizeof *h->next);
    h->mine = (unsigned char *)calloc(1, message + 1);
    h->all = (unsigned char *)calloc((size_t)h->config.world_size, message + 1);
    return h->rest && h->next && h->mine && h->all ? TD_OK : td_fail_oom();
}

// Nobody took the step back that reduced bucket i last: what it left out counts from now on.
static void take_over(struct td_comm_hook *h, size_t i) {
    const size_t end = i + 1 < h->n_buckets ? h->at[i + 1] : h->n_all, n = end - h->at[i];
    if (h->reduced[i]) memcpy(h->rest + h->at[i], h->next + h->at[i], n * sizeof *h->rest);
    h->reduced[i] = 0;
}

static float sign_at(const unsigned char *signs, int64_t i) {
    return signs[i / 8] >> (i % 8) & 1 ? 1.0f : -1.0f;
}

// What a rank sends of its gradients, and what it then has left.
static void write_message(struct td_comm_hook *h, const float *gradients, int64_t n, size_t at) {
    const float *rest = h->rest + at;
    float *next = h->next + at;
    unsigned char *signs = h->mine + sizeof(float);
    double sum = 0;
    memset(h->mine, 0, message_bytes(n));
    for (int64_t i = 0; i < n; i++) {
        next[i] = gradients[i] + (float)h->feedback * rest[i];
        sum += fabs((double)next[i]);
        if (next[i] >= 0) signs[i / 8] = (unsigned char)(signs[i / 8] | 1u << (i % 8));
    }
    const float size = n ? (float)(sum / (double)n) : 0;
    memcpy(h->mine, &size, sizeof size);
    for (int64_t i = 0; i < n; i++) {
        next[i] -= size * sign_at(signs, i);
    }
}

static td_status bit_reduce(struct td_comm_hook *h, const struct td_bucket *bucket) {
    const struct td_comm_hook_config *c = &h->config;
    const size_t bytes = message_bytes(bucket->n);
    float *gradients = (float *)td_bucket_host(bucket);
    take_over(h, bucket->index);
    h->reduced[bucket->index] = 1;
    write_message(h, gradients, bucket->n, h->at[bucket->index]);
    TD_TRY(c->collective_ops->all_gather(c->collective, h->mine, bytes, h->all));
    h->sent_bytes += bytes;
    memset(gradients, 0, (size_t)bucket->n * sizeof *gradients);
    for (int32_t r = 0; r < c->world_size; r++) {
        const unsigned char *message = h->all + (size_t)r * bytes;
        float size;
        memcpy(&size, message, sizeof size);
        size /= (float)c->world_size;
        for (int64_t i = 0; i < bucket->n; i++) {
            gradients[i] += size * sign_at(message + sizeof size, i);
        }
    }
    return TD_OK;
}

static void bit_end_step(struct td_comm_hook *h, bool taken) {
    for (size_t i = 0; i < h->n_buckets; i++) {
        if (taken) take_over(h, i);
        h->reduced[i] = 0;
    }
}

static uint64_t bit_sent_bytes(const struct td_comm_hook *h) {
    return h->sent_bytes;
}

static td_status bit_state_save(struct td_comm_hook *h, struct td_span *out_state) {
    for (size_t i = 0; i < h->n_buckets; i++) {
        take_over(h, i);
    }
    out_state->data = h->rest;
    out_state->bytes = h->n_all * sizeof *h->rest;
    return TD_OK;
}

static td_status bit_state_load(struct td_comm_hook *h, const void *data, size_t bytes) {
    if (bytes != h->n_all * sizeof *h->rest) {
        return td_fail(TD_DATA_LOSS, "one_bit kept %zu bytes, %zu are expected", bytes,
                       h->n_all * sizeof *h->rest);
    }
    memcpy(h->rest, data, bytes);
    return TD_OK;
}

static const struct td_comm_hook_ops ops = {
    .struct_bytes = sizeof ops,
    .open = bit_open,
    .close = bit_close,
    .memory = bit_memory,
    .place = bit_place,
    .reduce = bit_reduce,
    .end_step = bit_end_step,
    .sent_bytes = bit_sent_bytes,
    .state_save = bit_state_save,
    .state_load = bit_state_load,
};

TD_PLUGIN_WITH_KNOBS(COMM_HOOK, "one_bit", "the sign of each gradient, with error feedback", &ops,
                     knobs)
