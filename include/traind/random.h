#ifndef TRAIND_RANDOM_H
#define TRAIND_RANDOM_H

// Random numbers inside a step: dropout's masks, and the bits of stochastic rounding.
//
// A number is keyed by (seed, step, op name, global sample, element of the sample) through Philox
// 4x32-10. So a mask is the same for any world size, accumulation, fusion, thread count or segment.
// A backward node computes it again instead of reading a stored one.
//
// Once for each micro-batch the host sets the step's random words: the key of (seed, step), and the
// place of the rank's first sample. Row i of the batch is global sample `sample + i * stride`,
// counted by the sampler's positions in the epoch. Where each rank plays all positions, because
// the dataset divides the samples, position p of rank r of n is p * n + r. An op adds its stream
// (attrs.stream).
//
//   K  = Philox(key: seed,          counter: step)            words 0 and 1: in the block
//   k  = Philox(key: K,             counter: stream)          words 0 and 1: one for each op
//   u  = Philox(key: k,             counter: element / 4, sample) word element % 4, upper 24 bits
//
// An element is dropped where u < drop * 2^24. Stochastic rounding of a parameter takes 16 bits an
// element from the parameter's stream, alike on all ranks. They are half element % 2 of word
// element / 2 % 4 of Philox(key: k, counter: element / 8).
// Pure functions over the caller's memory; any thread. Nothing here fails.

#include "traind/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

// The step's random words: one block beside that of the step scalars, because they are no numbers.
enum td_random_word {
    TD_RANDOM_KEY,
    TD_RANDOM_KEY_HIGH,
    TD_RANDOM_SAMPLE,
    TD_RANDOM_SAMPLE_HIGH,
    TD_RANDOM_STRIDE,
    TD_RANDOM_WORDS = 8,
};

// The stream of an op, by its name in the module ("h.0.mlp.dropout").
uint64_t td_stream_of(const char *op_name);

// Host: sets the words (TD_RANDOM_WORDS). step: optimizer steps completed; sample: of row
// 0 of the batch; stride: from a row to the next, which is the number of shares.
void td_random_set(uint32_t *words, uint64_t seed, int64_t step, int64_t sample, int32_t stride);

// Elements of one row that have a number.
#define TD_RANDOM_ELEMS (INT64_C(1) << 34)

// Kernels: out_keep[i] = 0 where element i of row `row` is dropped, else 1. n: <= TD_RANDOM_ELEMS.
void td_random_keep(const uint32_t *words, uint64_t stream, double drop, int64_t row, int64_t n,
                    uint8_t *out_keep);
// The same of elements first .. first + n; first: a multiple of 4.
void td_random_keep_from(const uint32_t *words, uint64_t stream, double drop, int64_t row,
                         int64_t first, int64_t n, uint8_t *out_keep);

// Kernels: the 16 bits of elements first .. first + n of a parameter.
void td_random_bits16(const uint32_t *words, uint64_t stream, int64_t first, int64_t n,
                      uint16_t *out);

#ifdef __cplusplus
}
#endif
#endif
