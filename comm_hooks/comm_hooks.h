#ifndef TRAIND_COMM_HOOKS_COMM_HOOKS_H
#define TRAIND_COMM_HOOKS_COMM_HOOKS_H

// The in-tree comm hooks, all of traind/comm_hook.h. In reading order:
//
//   comm_hooks.h       which there are
//   half.c            fp16, bf16: gradients travel as 16-bit floats; also around another hook
//   power_sgd.c       power_sgd: matrices travel as two thin factors
//   low_rank_loops.h  the loops over a matrix and its factors
//
// Source: torch.distributed.algorithms.ddp_comm_hooks (default_hooks, powerSGD_hook).

#include "traind/descriptor.h"

extern const struct td_plugin_desc td_comm_hook_fp16;
extern const struct td_plugin_desc td_comm_hook_bf16;
extern const struct td_plugin_desc td_comm_hook_power_sgd;

#endif
