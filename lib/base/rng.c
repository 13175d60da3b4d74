// Random numbers: Philox 4x32-10, MT19937, torch's permutation, and the kernel's bytes.
//
// The generators are written out here because their exact bits are part of our format. A model's
// initialization and the order of its samples must be the same next year and on another machine.
// Sources: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// Matsumoto and Nishimura, "Mersenne twister", ACM TOMACS 8(1), 1998, with the 2002 seeding.
// torch's randperm on CPU as observed in torch 2.x (tests/golden/randperm.txt).
//
// The generators are pure over their arguments: any thread. No function fails.

#include "lib/base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "lib/base/digest.h"
#include "lib/base/rng_loops.h"

// ---- Philox 4x32-10 -----------------------------------------------------------------------------
void td_philox4x32(struct td_philox_key key, const uint32_t counter[4], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; // golden ratio
        k1 += 0xBB67AE85u; // sqrt(3) - 1
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// One Philox block over the name's digest, keyed by the seed: streams of different names or seeds
// are as unrelated as different blocks of the generator.
struct td_philox_key td_philox_key_of(uint64_t seed, const char *name) {
    uint64_t digest = td_xxh3_64(name, strlen(name));
    struct td_philox_key seed_key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    uint32_t counter[4] = {(uint32_t)digest, (uint32_t)(digest >> 32)}, block[4];
    td_philox4x32(seed_key, counter, block);
    return (struct td_philox_key){{block[0], block[1]}};
}

float td_philox_uniform(struct td_philox_key key, uint64_t i) {
    uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32)}, block[4];
    td_philox4x32(key, counter, block);
    return (float)(block[i % 4] >> 8) * 0x1p-24f;
}

void td_philox_words(struct td_philox_key key, uint64_t high, uint64_t first, size_t n,
                     uint32_t *out) {
    const struct td_rng_loops *loops = TD_LEVELED_TABLE(td_rng_loops);
    for (size_t i = 0; i < n;) {
        if ((first + i) % TD_PHILOX_BLOCKS == 0 && n - i >= TD_PHILOX_BLOCKS) {
            loops->blocks(key.k, high, first + i, out + 4 * i);
            i += TD_PHILOX_BLOCKS;
            continue;
        }
        uint64_t b = first + i;
        const uint32_t counter[4] = {(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)high,
                                     (uint32_t)(high >> 32)};
        td_philox4x32(key, counter, out + 4 * i);
        i++;
    }
}

void td_philox_uniforms(struct td_philox_key key, uint64_t first, size_t n, float *out) {
    const struct td_rng_loops *loops = TD_LEVELED_TABLE(td_rng_loops);
    uint32_t words[4 * TD_PHILOX_BLOCKS];
    for (size_t i = 0; i < n;) {
        uint64_t block = (first + i) / 4, skip = (first + i) % 4;
        size_t blocks = TD_PHILOX_BLOCKS - block % TD_PHILOX_BLOCKS; // to the next border
        size_t take = TD_MIN(n - i, 4 * blocks - skip);
        td_philox_words(key, 0, block, (skip + take + 3) / 4, words);
        loops->uniforms(words + skip, take, out + i);
        i += take;
    }
}

// ---- MT19937 ------------------------------------------------------------------------------------
enum { MT_N = 624, MT_M = 397 };

void td_mt19937_init(struct td_mt19937 *g, uint32_t seed) {
    g->state[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++) {
        uint32_t before = g->state[i - 1];
        g->state[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    g->next = MT_N;
}

static uint32_t mt_twist(uint32_t upper, uint32_t lower) {
    uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return mixed >> 1 ^ (lower & 1 ? 0x9908b0dfu : 0);
}

static void mt_refill(struct td_mt19937 *g) {
    uint32_t *s = g->state;
    for (int i = 0; i < MT_N; i++) {
        s[i] = s[(i + MT_M) % MT_N] ^ mt_twist(s[i], s[(i + 1) % MT_N]);
    }
    g->next = 0;
}

uint32_t td_mt19937_u32(struct td_mt19937 *g) {
    if (g->next == MT_N) mt_refill(g);
    uint32_t y = g->state[g->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

// ---- torch.randperm -----------------------------------------------------------------------------
// Torch shuffles with 32-bit numbers while the bias of the modulus is negligible, and builds the
// permutation inside out with 64-bit ones beyond that.
// There no element is final before the last number is drawn.
static void randperm_large(struct td_mt19937 *g, int64_t n, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t high = td_mt19937_u32(g), low = td_mt19937_u32(g);
        int64_t z = (int64_t)((high << 32 | low) % (uint64_t)(i + 1));
        out[i] = i;
        out[i] = out[z];
        out[z] = i;
    }
}

void td_randperm_begin(struct td_randperm *p, uint64_t seed, int64_t n, int64_t *out) {
    *p = (struct td_randperm){.n = n, .out = out};
    td_mt19937_init(&p->generator, (uint32_t)seed);
    if (n >= UINT32_MAX / 20) {
        randperm_large(&p->generator, n, out);
        p->n_final = n;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = i;
    }
}

void td_randperm_extend(struct td_randperm *p, int64_t n_final) {
    TD_CHECK(n_final <= p->n);
    for (int64_t i = p->n_final; i < n_final; i++) {
        // The last element has one place left, for which torch draws no number.
        int64_t z = i < p->n - 1 ? i + td_mt19937_u32(&p->generator) % (p->n - i) : i;
        int64_t swapped = p->out[i];
        p->out[i] = p->out[z];
        p->out[z] = swapped;
    }
    p->n_final = TD_MAX(p->n_final, n_final);
}

// ---- the kernel ---------------------------------------------------------------------------------
void td_random_bytes(void *out, size_t bytes) {
    char *p = out;
    while (bytes > 0) {
        ssize_t n = getrandom(p, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        TD_CHECK(n > 0);
        p += n;
        bytes -= (size_t)n;
    }
}

void td_uuid4(char out[37]) {
    uint8_t b[16];
    td_random_bytes(b, sizeof b);
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); // version 4
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80); // variant 1
    for (size_t i = 0; i < sizeof b; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        out += snprintf(out, dash ? 4 : 3, "%s%02x", dash ? "-" : "", b[i]);
    }
}
