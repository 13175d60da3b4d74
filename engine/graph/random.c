// A step's random numbers; traind/random.h is the definition, and this the plain way to it: four
// elements a block of the generator, whichever thread asks for whichever row. Rejected: a generator
// with a state, which would tie a mask to the order in which masks are made.

#include "traind/random.h"

#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/rng.h"
#include "lib/base/rng_loops.h"

uint64_t td_stream_of(const char *op_name) {
    return td_xxh3_64(op_name, strlen(op_name));
}

static struct td_philox_key derive(struct td_philox_key key, uint64_t counter) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32)}, block[4];
    td_philox4x32(key, c, block);
    return (struct td_philox_key){{block[0], block[1]}};
}

void td_random_set(uint32_t *words, uint64_t seed, int64_t step, int64_t sample, int32_t stride) {
    struct td_philox_key of_seed = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    struct td_philox_key key = derive(of_seed, (uint64_t)step);
    words[TD_RANDOM_KEY] = key.k[0];
    words[TD_RANDOM_KEY_HIGH] = key.k[1];
    words[TD_RANDOM_SAMPLE] = (uint32_t)sample;
    words[TD_RANDOM_SAMPLE_HIGH] = (uint32_t)((uint64_t)sample >> 32);
    words[TD_RANDOM_STRIDE] = (uint32_t)stride;
}

static struct td_philox_key key_of(const uint32_t *words, uint64_t stream) {
    struct td_philox_key of_step = {{words[TD_RANDOM_KEY], words[TD_RANDOM_KEY_HIGH]}};
    return derive(of_step, stream);
}

enum { AT_ONCE = 512 }; // words

void td_random_bits16(const uint32_t *words, uint64_t stream, int64_t first, int64_t n,
                      uint16_t *out) {
    const struct td_rng_loops *loops = TD_LEVELED_TABLE(td_rng_loops);
    const struct td_philox_key key = key_of(words, stream);
    uint32_t block[AT_ONCE];
    uint16_t bits[2 * AT_ONCE];
    for (int64_t done = 0; done < n;) {
        const int64_t skip = (first + done) % 8; // of a block's eight
        const int64_t some = TD_MIN(n - done, 2 * AT_ONCE - skip);
        const size_t blocks = (size_t)(skip + some + 7) / 8;
        td_philox_words(key, 0, (uint64_t)(first + done) / 8, blocks, block);
        loops->halves(block, 4 * blocks, bits);
        memcpy(out + done, bits + skip, (size_t)some * sizeof *out);
        done += some;
    }
}

void td_random_keep_from(const uint32_t *words, uint64_t stream, double drop, int64_t row,
                         int64_t first, int64_t n, uint8_t *out_keep) {
    struct td_philox_key key = key_of(words, stream);
    uint64_t sample = (uint64_t)words[TD_RANDOM_SAMPLE] | (uint64_t)words[TD_RANDOM_SAMPLE_HIGH]
                                                              << 32;
    sample += (uint64_t)row * words[TD_RANDOM_STRIDE];
    const struct td_rng_loops *loops = TD_LEVELED_TABLE(td_rng_loops);
    uint32_t least = (uint32_t)(drop * 0x1p24), block[AT_ONCE];
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        int64_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
        td_philox_words(key, sample, (uint64_t)(first + i) / 4, (size_t)(some + 3) / 4, block);
        loops->at_least(block, (size_t)some, least, out_keep + i);
    }
}

void td_random_keep(const uint32_t *words, uint64_t stream, double drop, int64_t row, int64_t n,
                    uint8_t *out_keep) {
    td_random_keep_from(words, stream, drop, row, 0, n, out_keep);
}
