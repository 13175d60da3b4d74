// Philox blocks side by side, and what becomes of their words; rng_loops.h has the contract.
// Compilers turn the loops into vectors, but for the products of Philox: gcc 12 widens each to 64
// bits with shuffles around it. That takes 8.3 ns a block at AVX2; the instruction that multiplies
// every second lane takes 3.9. So the products are written with it from AVX2 on, and as a loop
// elsewhere.

#include "lib/base/rng_loops.h"

#ifdef __AVX2__
#include <immintrin.h>

// Upper and lower halves of the products of eight lanes.
static inline void multiply(__m256i a, __m256i b, __m256i *out_high, __m256i *out_low) {
    const __m256i even = _mm256_mul_epu32(a, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    *out_low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *out_high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

static inline __m256i same(uint64_t word) {
    return _mm256_set1_epi32((int)(uint32_t)word);
}

// Word w of eight blocks in c[w]: block after block into out (8, 4).
static inline void store_blocks(const __m256i c[4], uint32_t *out) {
    const __m256i a = _mm256_unpacklo_epi32(c[0], c[1]), b = _mm256_unpacklo_epi32(c[2], c[3]);
    const __m256i d = _mm256_unpackhi_epi32(c[0], c[1]), e = _mm256_unpackhi_epi32(c[2], c[3]);
    const __m256i r0 = _mm256_unpacklo_epi64(a, b), r1 = _mm256_unpackhi_epi64(a, b);
    const __m256i r2 = _mm256_unpacklo_epi64(d, e), r3 = _mm256_unpackhi_epi64(d, e);
    __m256i *to = (__m256i *)(void *)out;
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(r0, r1, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(r2, r3, 0x20));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(r0, r1, 0x31));
    _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(r2, r3, 0x31));
}

static inline void eight_blocks(const uint32_t key[2], uint64_t high, uint64_t first,
                                uint32_t *out) {
    const __m256i m0 = same(0xD2511F53u), m1 = same(0xCD9E8D57u);
    uint32_t k0 = key[0], k1 = key[1];
    __m256i c[4] = {_mm256_add_epi32(same(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                    same(first >> 32), same(high), same(high >> 32)};
    for (int round = 0; round < 10; round++) {
        __m256i h0, l0, h1, l1;
        multiply(c[0], m0, &h0, &l0);
        multiply(c[2], m1, &h1, &l1);
        c[0] = _mm256_xor_si256(_mm256_xor_si256(h1, c[1]), same(k0));
        c[1] = l1;
        c[2] = _mm256_xor_si256(_mm256_xor_si256(h0, c[3]), same(k1));
        c[3] = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    store_blocks(c, out);
}

// No carry within the lanes: first is a multiple of TD_PHILOX_BLOCKS.
static void blocks(const uint32_t key[2], uint64_t high, uint64_t first, uint32_t *restrict out) {
    for (uint64_t j = 0; j < TD_PHILOX_BLOCKS; j += 8) {
        eight_blocks(key, high, first + j, out + 4 * j);
    }
}

#else

static void blocks(const uint32_t key[2], uint64_t high, uint64_t first, uint32_t *restrict out) {
    enum { N = TD_PHILOX_BLOCKS };
    uint32_t c0[N], c1[N], c2[N], c3[N];
    uint32_t k0 = key[0], k1 = key[1];
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

#endif

static void uniforms(const uint32_t *restrict words, size_t n, float *restrict out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f;
    }
}

static void halves(const uint32_t *restrict words, size_t n, uint16_t *restrict out) {
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = (uint16_t)words[i];
        out[2 * i + 1] = (uint16_t)(words[i] >> 16);
    }
}

static void at_least(const uint32_t *restrict words, size_t n, uint32_t least,
                     uint8_t *restrict out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = words[i] >> 8 >= least;
    }
}

const struct td_rng_loops TD_LEVELED(td_rng_loops) = {
    .blocks = blocks,
    .uniforms = uniforms,
    .halves = halves,
    .at_least = at_least,
};
