// Philox blocks side by side, and what becomes of their words; contract in rng_loops.h. Each round
// runs over an array of blocks, which every compiler turns into vectors. Rejected: intrinsics,
// which would be three texts for the same bits.

#include "lib/base/rng_loops.h"

static void blocks(struct td_philox_key key, uint64_t high, uint64_t first,
                   uint32_t *restrict out) {
    enum { N = TD_PHILOX_BLOCKS };
    uint32_t c0[N], c1[N], c2[N], c3[N];
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (uint32_t j = 0; j < N; j++) {
        c0[j] = (uint32_t)first + j; // no carry: first is a multiple of N
        c1[j] = (uint32_t)(first >> 32);
        c2[j] = (uint32_t)high;
        c3[j] = (uint32_t)(high >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < N; j++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[j];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c2[j];
            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c1[j] = (uint32_t)p1;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c3[j] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < N; j++) {
        out[4 * j] = c0[j];
        out[4 * j + 1] = c1[j];
        out[4 * j + 2] = c2[j];
        out[4 * j + 3] = c3[j];
    }
}

static void uniforms(const uint32_t *restrict words, size_t n, float *restrict out) {
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f;
}

static void halves(const uint32_t *restrict words, size_t n, uint16_t *restrict out) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = (uint16_t)words[i];
        out[2 * i + 1] = (uint16_t)(words[i] >> 16);
    }
}

static void at_least(const uint32_t *restrict words, size_t n, uint32_t least,
                     uint8_t *restrict out) {
    for (size_t i = 0; i < n; i++)
        out[i] = words[i] >> 8 >= least;
}

const struct td_rng_loops TD_LEVELED(td_rng_loops) = {
    .blocks = blocks,
    .uniforms = uniforms,
    .halves = halves,
    .at_least = at_least,
};
