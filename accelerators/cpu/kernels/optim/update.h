#ifndef TRAIND_ACCELERATORS_CPU_KERNELS_OPTIM_UPDATE_H
#define TRAIND_ACCELERATORS_CPU_KERNELS_OPTIM_UPDATE_H

// Update: what optimizers share, whose kernels write the parameter that is their first operand.
// Thread: the rank's training thread; td_update_put: any of the team.

#include "accelerators/cpu/kernel.h"
#include "accelerators/cpu/parallel.h"

// Runs fn over all of the parameter in units of `unit` elements, the last of which may be short, on
// all threads. Where products read the parameter through packs, fn gets a few whole rows at a time
// (`unit` divides a row then). They are packed while they are in the cache.

void td_update_run(const struct td_kernel *k, const struct td_run *r, int64_t unit, int64_t grain,
                   td_range_fn *fn, const void *arg);
// td_cpu_put of n elements of the parameter from element `at` on: by chance where the node asks for
// it and they are bf16.
void td_update_put(const struct td_kernel *k, const float *buffer, int64_t n, void *param,
                   int64_t at);

#endif
