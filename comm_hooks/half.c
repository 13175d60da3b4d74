// Comm hooks fp16 and bf16: a bucket is rounded to 16-bit floats before ranks sum it.
//
// The mean is taken of the rounded values, in fp32, and is rounded once more (collective.h of
// collectives). A bucket that has 16-bit elements already is reduced as it is. Around
// another hook it hands that a bucket of its own, with the rounded elements. A gradient above 65504
// becomes infinite in fp16: `16-mixed` then skips the step, any other precision takes it.
// Source: torch's fp16_compress_hook, bf16_compress_hook and their wrappers.

#include "comm_hooks/comm_hooks.h"
#include "lib/base/base.h"
#include "lib/base/floats/floats.h"
#include "traind/comm_hook.h"

struct td_comm_hook {
    struct td_comm_hook_config config;
    enum td_dtype dtype; // that travels
    // Of the buckets that are rounded, by their index: the same ones in 16 bits.
    struct td_bucket *half;           // (n_buckets)
    struct td_bucket_tensor *tensors; // of all of them
    void *rounded;                    // elements of the largest
    uint64_t sent_bytes;
};

static td_status open_half(const struct td_comm_hook_config *config, enum td_dtype dtype,
                           struct td_comm_hook **out_hook) {
    struct td_comm_hook *h = td_calloc(1, sizeof *h);
    if (!h) return td_fail_oom();
    h->config = *config;
    h->dtype = dtype;
    *out_hook = h;
    return TD_OK;
}

static td_status fp16_open(const struct td_comm_hook_config *config,
                           struct td_comm_hook **out_hook) {
    return open_half(config, TD_F16, out_hook);
}

static td_status bf16_open(const struct td_comm_hook_config *config,
                           struct td_comm_hook **out_hook) {
    return open_half(config, TD_BF16, out_hook);
}

static void half_close(struct td_comm_hook *h) {
    if (!h) return;
    free(h->half);
    free(h->tensors);
    free(h->rounded);
    free(h);
}

// ---- buckets ------------------------------------------------------------------------------------
static bool is_narrow(const struct td_bucket *b) {
    return td_dtype_bytes(b->dtype) <= 2;
}

static size_t rounded_bytes(const struct td_bucket *buckets, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_narrow(&buckets[i])) most = TD_MAX(most, (size_t)buckets[i].n * 2);
    }
    return most;
}

// The bucket as it travels; tensors is where those of it go.
static struct td_bucket round_bucket(const struct td_comm_hook *h, const struct td_bucket *b,
                                     struct td_bucket_tensor *tensors) {
    struct td_bucket half = *b;
    if (is_narrow(b)) return half;
    for (size_t i = 0; i < b->n_tensors; i++) {
        tensors[i] = b->tensors[i];
        tensors[i].offset = b->tensors[i].offset / td_dtype_bytes(b->dtype) * 2;
    }
    half.dtype = h->dtype;
    half.buffer = td_buffer_of_host(h->rounded, (size_t)b->n * 2);
    half.offset = 0;
    half.tensors = tensors;
    return half;
}

static td_status list_buckets(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n) {
    size_t n_tensors = 0;
    for (size_t i = 0; i < n; i++) {
        n_tensors += buckets[i].n_tensors;
    }
    free(h->half);
    free(h->tensors);
    h->half = td_calloc(n + 1, sizeof *h->half);
    h->tensors = td_calloc(n_tensors + 1, sizeof *h->tensors);
    if (!h->half || !h->tensors) return td_fail_oom();
    struct td_bucket_tensor *at = h->tensors;
    for (size_t i = 0; i < n; at += buckets[i++].n_tensors) {
        h->half[i] = round_bucket(h, &buckets[i], at);
    }
    return TD_OK;
}

static td_status half_memory(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n,
                             size_t *out_bytes, size_t *out_state_bytes) {
    const struct td_comm_hook_config *c = &h->config;
    size_t inner = 0, state = 0;
    if (c->inner && c->inner_ops->memory) {
        TD_TRY(list_buckets(h, buckets, n));
        TD_TRY(c->inner_ops->memory(c->inner, h->half, n, &inner, &state));
    }
    *out_bytes = rounded_bytes(buckets, n) + inner;
    *out_state_bytes = state;
    return TD_OK;
}

static td_status half_place(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n) {
    const struct td_comm_hook_config *c = &h->config;
    h->rounded = td_calloc(TD_MAX(rounded_bytes(buckets, n), (size_t)1), 1);
    if (!h->rounded) return td_fail_oom();
    TD_TRY(list_buckets(h, buckets, n));
    return c->inner && c->inner_ops->place ? c->inner_ops->place(c->inner, h->half, n) : TD_OK;
}

static td_status send(struct td_comm_hook *h, const struct td_bucket *b) {
    const struct td_comm_hook_config *c = &h->config;
    if (c->inner) return c->inner_ops->reduce(c->inner, b);
    h->sent_bytes += (uint64_t)b->n * td_dtype_bytes(b->dtype);
    return c->collective_ops->all_reduce(c->collective, td_bucket_host(b), b->n, b->dtype,
                                         TD_REDUCE_MEAN);
}

static td_status half_reduce(struct td_comm_hook *h, const struct td_bucket *b) {
    if (is_narrow(b)) return send(h, b);
    td_float_convert(b->dtype, td_bucket_host(b), b->n, h->dtype, h->rounded);
    TD_TRY(send(h, &h->half[b->index]));
    td_float_convert(h->dtype, h->rounded, b->n, b->dtype, td_bucket_host(b));
    return TD_OK;
}

static uint64_t half_sent_bytes(const struct td_comm_hook *h) {
    return h->sent_bytes;
}

#define HALF_OPS(name)                                                                             \
    {                                                                                              \
        .struct_bytes = sizeof(struct td_comm_hook_ops), .open = name##_open, .close = half_close, \
        .memory = half_memory, .place = half_place, .reduce = half_reduce,                         \
        .sent_bytes = half_sent_bytes,                                                             \
    }
static const struct td_comm_hook_ops fp16_ops = HALF_OPS(fp16), bf16_ops = HALF_OPS(bf16);

const struct td_plugin_desc td_comm_hook_fp16 =
    TD_PLUGIN_DESC(COMM_HOOK, "fp16", "gradients travel as fp16", &fp16_ops);
const struct td_plugin_desc td_comm_hook_bf16 =
    TD_PLUGIN_DESC(COMM_HOOK, "bf16", "gradients travel as bf16", &bf16_ops);
