#ifndef TRAIND_ROPE_H
#define TRAIND_ROPE_H

// By how much op rope turns a pair of numbers from one token to the next: what every accelerator
// computes alike. Pure, any thread.

#include <math.h>

#include "traind/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

// Pair i of `half` pairs of a head, in radians: base^(-i/half), stretched as a->rope says. Linear
// scaling divides by the factor. Llama 3's does so for turns that are longer than a part of the
// context it was trained on, leaves short ones, and blends between.
static inline double td_rope_turn(const struct td_attrs *a, int64_t i, int64_t half) {
    const double turn = pow(a->base != 0 ? a->base : 10000, -(double)i / (double)half);
    const struct td_rope_scaling *s = &a->rope;
    if (s->factor == 0) return turn;
    if (s->original == 0) return turn / s->factor;
    const double turns = (double)s->original * turn / (2 * 3.14159265358979323846);
    if (turns < s->low) return turn / s->factor;
    if (turns > s->high) return turn;
    const double share = (turns - s->low) / (s->high - s->low);
    return (1 - share) * turn / s->factor + share * turn;
}

#ifdef __cplusplus
}
#endif
#endif
