#ifndef TRAIND_ENGINE_TRAIN_RANK_STATE_INIT_LOOPS_H
#define TRAIND_ENGINE_TRAIN_RANK_STATE_INIT_LOOPS_H

// The loops of initial values, compiled once per CPU level. The bits are the same at every one,
// because a job that is resumed on another machine, or compared with another run, starts from them.
// Pure; any thread; nothing fails.

#include "lib/base/cpu_level.h"

enum { TD_INIT_NORMALS = 64 }; // that are made at once

struct td_init_loops {
    // u: 2 * TD_INIT_NORMALS numbers in [0, 1), a pair for each of the results in out.
    void (*normals)(const float *u, float mean, float deviation, float *out);
    // In place: v in [0, 1) becomes a + (b - a) v, or `top` where that rounds to b.
    void (*to_range)(double a, double b, float top, int64_t n, float *v);
};
TD_LEVELED_DECLARE(struct td_init_loops, td_init_loops);

#endif
