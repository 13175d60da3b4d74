// See the header. The round function is the finalizer of MurmurHash3 (Appleby), in which each bit
// of the input moves each bit of the output.

#include "engine/train/rank/data/keyed_order.h"

#include "lib/base/rng.h"

void td_keyed_order_init(struct td_keyed_order *o, uint64_t seed, const char *name, int64_t n) {
    uint32_t words[4 * TD_COUNTOF(o->key)];
    td_philox_words(td_philox_key_of(seed, name), 0, 0, TD_COUNTOF(o->key), words);
    for (size_t i = 0; i < TD_COUNTOF(o->key); i++) {
        o->key[i] = (uint64_t)words[4 * i] << 32 | words[4 * i + 1];
    }
    o->n = n;
    o->half = 1;
    while (o->half < 31 && INT64_C(1) << (2 * o->half) < n) {
        o->half++;
    }
    o->mask = (UINT64_C(1) << o->half) - 1;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

int64_t td_keyed_order_at(const struct td_keyed_order *o, int64_t position) {
    uint64_t at = (uint64_t)position;
    do {
        uint64_t left = at >> o->half, right = at & o->mask;
        for (size_t i = 0; i < TD_COUNTOF(o->key); i++) {
            const uint64_t next = left ^ (mix(right ^ o->key[i]) & o->mask);
            left = right;
            right = next;
        }
        at = left << o->half | right;
    } while (at >= (uint64_t)o->n);
    return (int64_t)at;
}
