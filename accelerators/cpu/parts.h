#ifndef TRAIND_ACCELERATORS_CPU_PARTS_H
#define TRAIND_ACCELERATORS_CPU_PARTS_H

// Parts: a convolution and the pool that alone reads it run some images at a time, so that a core
// still has in its cache what is between them. All parts use the place of the first. Thread: the
// rank's training thread.

#include "accelerators/cpu/kernel.h"

// kernel: of each node, operands resolved and need known. Those that will run part by part get
// `part`, and the first of them `joined`.
void td_parts_plan(const struct td_graph *g, const struct td_layout_plan *layout,
                   struct td_kernel *kernel);

#endif
