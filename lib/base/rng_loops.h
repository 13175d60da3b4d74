#ifndef TRAIND_LIB_BASE_RNG_LOOPS_H
#define TRAIND_LIB_BASE_RNG_LOOPS_H

// The loops of random numbers, compiled once per CPU level; the same bits at every one.
//
// rng.h and traind/random.h are what others call. Nothing here but integers and one exact
// conversion, so that the width of vectors cannot be seen in a result.
// Pure; any thread; nothing fails.

#include "lib/base/cpu_level.h"

enum { TD_PHILOX_BLOCKS = 32 }; // that are made side by side

struct td_rng_loops {
    // Blocks first .. first + TD_PHILOX_BLOCKS of td_philox_words; first is a multiple of that.
    void (*blocks)(const uint32_t key[2], uint64_t high, uint64_t first, uint32_t *out);
    // Upper 24 bits of a word as a number in [0, 1).
    void (*uniforms)(const uint32_t *words, size_t n, float *out);
    // Two numbers of 16 bits a word, the lower first: 2 n of them.
    void (*halves)(const uint32_t *words, size_t n, uint16_t *out);
    // 1 where the upper 24 bits are at least `least`, else 0.
    void (*at_least)(const uint32_t *words, size_t n, uint32_t least, uint8_t *out);
};
TD_LEVELED_DECLARE(struct td_rng_loops, td_rng_loops);

#endif
