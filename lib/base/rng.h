#ifndef TRAIND_LIB_BASE_RNG_H
#define TRAIND_LIB_BASE_RNG_H

// Random numbers, reproducible to the bit on every machine.
//
// Philox 4x32-10 (Salmon et al., 2011): counter-based; initialization and dropout are keyed by
// (seed, name, element), so they do not depend on world size or order. MT19937 (Matsumoto and
// Nishimura, 1998): what torch's CPU generator is; the sampler's permutation equals torch.randperm
// index for index. Tests hold both to the published vectors. Also bytes from the kernel for ids.

#include "lib/base/base.h"

struct td_philox_key {
    uint32_t k[2];
};
// One block: 4 words from a 128-bit counter.
void td_philox4x32(struct td_philox_key key, const uint32_t counter[4], uint32_t out[4]);
// Blocks first .. first + n of it, whose counters are (block, high): 4 n words into out.
void td_philox_words(struct td_philox_key key, uint64_t high, uint64_t first, size_t n,
                     uint32_t *out);
// The key for a named stream: seed and the XXH3-64 of the name, mixed.
struct td_philox_key td_philox_key_of(uint64_t seed, const char *name);
// Element i of a stream, in [0, 1) with 24 bits.
float td_philox_uniform(struct td_philox_key key, uint64_t i);
// Elements first .. first + n of it into out: a block of the generator makes four.
void td_philox_uniforms(struct td_philox_key key, uint64_t first, size_t n, float *out);

struct td_mt19937 {
    uint32_t state[624];
    int next;
};
void td_mt19937_init(struct td_mt19937 *g, uint32_t seed);
uint32_t td_mt19937_u32(struct td_mt19937 *g);
// torch.randperm(n, generator=torch.Generator().manual_seed(seed)), index for index, as far as it
// is needed: an epoch's first batch does not wait for the order of all samples. From 2^32 / 20
// elements on, begin makes all of it.
struct td_randperm {
    struct td_mt19937 generator;
    int64_t n, n_final;
    int64_t *out; // (n), the caller's; its first n_final elements are the permutation's
};
void td_randperm_begin(struct td_randperm *p, uint64_t seed, int64_t n, int64_t *out);
// At most n.
void td_randperm_extend(struct td_randperm *p, int64_t n_final);

// Unpredictable bytes (getrandom). Failure is fatal by TD_CHECK: no id may be guessable.
void td_random_bytes(void *out, size_t bytes);
// 36 characters and a NUL, version 4.
void td_uuid4(char out[37]);

#endif
