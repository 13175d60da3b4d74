#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_SHUFFLE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_SHUFFLE_H

// A tile of eight rows, each a vector of eight elements of any size, is transposed by three rounds
// of this: each interleaves the rows of both halves. gcc's and clang's vector types; no row of
// `from` may be in `to`.
#define TD_INTERLEAVE(from, to)                                                                    \
    for (int td_k = 0; td_k < 4; td_k++) {                                                         \
        to[2 * td_k] =                                                                             \
            __builtin_shufflevector(from[td_k], from[td_k + 4], 0, 8, 1, 9, 2, 10, 3, 11);         \
        to[2 * td_k + 1] =                                                                         \
            __builtin_shufflevector(from[td_k], from[td_k + 4], 4, 12, 5, 13, 6, 14, 7, 15);       \
    }

#endif
