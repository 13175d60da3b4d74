#ifndef TRAIND_ENGINE_TRAIN_RANK_DATA_KEYED_ORDER_H
#define TRAIND_ENGINE_TRAIN_RANK_DATA_KEYED_ORDER_H

// An order of n samples that takes no memory: which sample is at a position is computed from the
// position and a key (trainer.sampler: keyed).
//
// It is a Feistel network of six rounds over the smallest power of four that holds n, which
// permutes that. A result that is n or more goes through it again until it is below n (cycle
// walking): four times on average, at the most. So each position has one sample, and each sample
// one position. Pure; the same on every machine.

#include "lib/base/base.h"

struct td_keyed_order {
    uint64_t key[6], mask;
    int64_t n;
    int half; // bits
};

// n: 1 or more. name: what it is the order of.
void td_keyed_order_init(struct td_keyed_order *o, uint64_t seed, const char *name, int64_t n);
int64_t td_keyed_order_at(const struct td_keyed_order *o, int64_t position);

#endif
