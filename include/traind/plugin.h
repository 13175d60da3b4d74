#ifndef TRAIND_PLUGIN_H
#define TRAIND_PLUGIN_H

// Plugin: what the file of a plugin includes that exports it, whatever its kind.
//
// The headers of include/traind, in reading order:
//
//   types.h        element types (dtypes.def), shapes, spans, clocks, limits
//   status.h       errors
//   plugin.h       the exports; descriptor.h: what a plugin says about itself; layout.h: what it
//                  was compiled against
//   knobs.h        what a person may set of a plugin
//   graph.h        what a module records; op.h: the ops, rows of ops.def
//   build.h        a typed call for each op that a module records; gather.h: a value of all ranks
//   rope.h         by how much rotary positions turn
//   random.h       random numbers inside a step
//   module.h       what is trained; steps.h: what it may do with a batch itself
//   dataset.h      samples by index
//   rewrite.h      how a precision or a strategy changes a recorded graph
//   precision.h    in which element types a job computes
//   strategy.h     how ranks share the work
//   bucket.h       gradients that ranks average at once
//   collective.h   how ranks exchange data
//   comm_hook.h    what they send of a bucket instead
//   store.h        small values that they leave for each other before they are connected
//   buffer.h       memory that may be a device's
//   sum.h          what ranks exchange in the middle of a program
//   accelerator.h  one kind of hardware
//   fabric.h       a loop of somebody's own, over all of these
//   spawn.h        a program that starts its own ranks
//
// A shared object exports `td_plugin_entry` and `td_plugin_layout` (layout.h), both made by
// TD_PLUGIN, used once, in one of its files:
//
//   TD_PLUGIN(MODULE, "skipnet", "a small residual net", &ops)
//   TD_PLUGIN_WITH_KNOBS(MODULE, "skipnet", "a small residual net", &ops, knobs)
//
// Thread: constant data. Errors: whatever is wrong refuses the plugin, by name.

#include "traind/descriptor.h"
#include "traind/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a shared object exports; each is used at file scope, without a semicolon after it.
#define TD_PLUGIN(KIND, name, summary, ops)                                                        \
    static const struct td_plugin_desc td_plugin_here = TD_PLUGIN_DESC(KIND, name, summary, ops);  \
    TD_PLUGIN_EXPORTS
#define TD_PLUGIN_WITH_KNOBS(KIND, name, summary, ops, knobs)                                      \
    static const struct td_plugin_desc td_plugin_here =                                            \
        TD_PLUGIN_DESC_WITH_KNOBS(KIND, name, summary, ops, knobs);                                \
    TD_PLUGIN_EXPORTS

#ifdef __cplusplus
#define TD_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define TD_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif
#define TD_PLUGIN_EXPORTS                                                                          \
    TD_PLUGIN_EXPORT const struct td_plugin_desc *td_plugin_entry(void);                           \
    TD_PLUGIN_EXPORT const struct td_layout *td_plugin_layout(void);                               \
    const struct td_plugin_desc *td_plugin_entry(void) {                                           \
        return &td_plugin_here;                                                                    \
    }                                                                                              \
    const struct td_layout *td_plugin_layout(void) {                                               \
        return td_layout_here();                                                                   \
    }

#ifdef __cplusplus
}
#endif
#endif
