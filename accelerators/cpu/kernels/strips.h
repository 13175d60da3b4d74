#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_STRIPS_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_STRIPS_H

// Images by strips, for kernels that work channel by channel; compiled once per CPU level.
//
// A place of a whole strip is one vector, of gcc's and clang's vector types. A loop over its
// channels, left to the compiler, became scalar where its sums might overlap what it reads.

#include <string.h>

#include "accelerators/cpu/layout.h"

// Channels of a block: the floats of a vector.
#if defined(__AVX512F__)
enum { TD_LAYOUT_LANES = 16 };
#else
enum { TD_LAYOUT_LANES = 8 };
#endif

typedef float td_strip __attribute__((vector_size(TD_LAYOUT_LANES * sizeof(float))));
typedef int32_t td_strip_bits __attribute__((vector_size(TD_LAYOUT_LANES * sizeof(int32_t))));
typedef uint16_t td_strip_half __attribute__((vector_size(TD_LAYOUT_LANES * sizeof(uint16_t))));

// A place of a whole strip, from element `at` of x on; narrow: bf16, else fp32.
static inline __attribute__((always_inline)) void td_strip_load(const void *x, int64_t at,
                                                                bool narrow, td_strip *out) {
    if (narrow) {
        td_strip_half half;
        memcpy(&half, (const uint16_t *)x + at, sizeof half);
        *out = (td_strip)(__builtin_convertvector(half, td_strip_bits) << 16);
    } else {
        memcpy(out, (const float *)x + at, sizeof *out);
    }
}

// And back; rounds as lib/base/floats/half.h does.
static inline __attribute__((always_inline)) void td_strip_store(const td_strip *v, void *y,
                                                                 int64_t at, bool narrow) {
    if (narrow) {
        td_strip_bits u = (td_strip_bits)*v, rounded = u + 0x7fff + (u >> 16 & 1);
        td_strip_bits nan = (u & 0x7fffffff) > 0x7f800000;
        td_strip_bits bits = ((nan & (u | 0x400000)) | (~nan & rounded)) >> 16 & 0xffff;
        td_strip_half half = __builtin_convertvector(bits, td_strip_half);
        memcpy((uint16_t *)y + at, &half, sizeof half);
    } else {
        memcpy((float *)y + at, v, sizeof *v);
    }
}

// An image by strips of at most TD_LAYOUT_LANES channels: what kernels that work channel by channel
// walk. The channels of a strip are side by side, its places `step` elements apart. Plain strips
// have one channel.
struct td_strips {
    int64_t n, channels, places, width, step;
};

static inline struct td_strips td_strips_of(const struct td_shape *s, enum td_image_layout layout) {
    struct td_strips t = {.n = s->dim[0], .channels = s->dim[1], .places = 1};
    for (int d = 2; d < s->n_dims; d++) {
        t.places *= s->dim[d];
    }
    if (t.places == 1) layout = TD_LAYOUT_LAST; // all are the same
    t.width = layout == TD_LAYOUT_PLAIN ? 1 : TD_LAYOUT_LANES;
    t.step = layout == TD_LAYOUT_LAST ? t.channels : t.width;
    return t;
}

static inline int64_t td_strips_count(const struct td_strips *t) { // of one image
    return (t->channels + t->width - 1) / t->width;
}

static inline int64_t td_strip_width(const struct td_strips *t, int64_t strip) {
    int64_t left = t->channels - strip * t->width;
    return left < t->width ? left : t->width;
}

// Where strip `strip` of image n begins.
static inline int64_t td_strip_at(const struct td_strips *t, int64_t n, int64_t strip) {
    int64_t c = strip * t->width, image = t->channels * t->places;
    return n * image + (t->step == t->channels ? c : c * t->places);
}

#endif
