#ifndef TRAIND_STRATEGIES_STRATEGIES_H
#define TRAIND_STRATEGIES_STRATEGIES_H

// The in-tree strategies, a file each; each implements traind/strategy.h:
//
//   single_device.c  one rank; every collective is the identity
//   ddp.c            replicated state, gradients averaged bucket by bucket while backward runs
//
// The other kinds of plugins have folders of their own: collectives/ (how ranks exchange
// data), comm_hooks/ (what they send of gradients instead), precisions/ (element types of a job).
//
// `auto` of the job spec is the first for world 1 and the second else
// (engine/train/rank/plugins.c).

#include "traind/descriptor.h"

extern const struct td_plugin_desc td_strategy_single_device;
extern const struct td_plugin_desc td_strategy_ddp;

#endif
