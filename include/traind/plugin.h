#ifndef TRAIND_PLUGIN_H
#define TRAIND_PLUGIN_H

// Plugin descriptor: what a plugin of any kind says about itself.
//
// The headers of include/traind, in reading order:
//
//   types.h        element types (dtypes.def), shapes, spans, clocks, limits
//   status.h       errors
//   plugin.h       the descriptor; layout.h: what the plugin was compiled against
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
//   store.h        small values between nodes
//   comm_hook.h    what they send of a bucket instead
//   store.h        small values that they leave for each other before they are connected
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
// In-tree plugins put the same descriptor, TD_PLUGIN_DESC, into a static table. struct_bytes comes
// first in every table and fields are only appended, so an older plugin keeps loading: the loader
// reads the smaller of both sizes. The registry knows which slots a kind requires, and the
// error names a missing one.
// Ownership: descriptors, tables of ops and knobs, and their texts live as long as the process.
// Thread: constant data. Errors: whatever is wrong with a descriptor refuses the plugin, by name.

#include "traind/knobs.h"
#include "traind/layout.h"
#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_ABI_MAJOR = 4, TD_ABI_MINOR = 0 };

enum td_plugin_kind {
    TD_PLUGIN_ACCELERATOR, // struct td_accelerator_ops, traind/accelerator.h
    TD_PLUGIN_COLLECTIVE,  // struct td_collective_ops, traind/collective.h
    TD_PLUGIN_PRECISION,   // struct td_precision_ops, traind/precision.h
    TD_PLUGIN_STRATEGY,    // struct td_strategy_ops, traind/strategy.h
    TD_PLUGIN_MODULE,      // struct td_module_ops, traind/module.h
    TD_PLUGIN_DATASET,     // struct td_dataset_ops, traind/dataset.h
    TD_PLUGIN_COMM_HOOK,   // struct td_comm_hook_ops, traind/comm_hook.h
    TD_PLUGIN_KIND_COUNT,
};
const char *td_plugin_kind_name(enum td_plugin_kind kind);

struct td_plugin_desc {
    uint32_t struct_bytes;
    uint16_t abi_major, abi_minor;
    enum td_plugin_kind kind;
    const char *name;    // [a-z0-9_]+, at most 31 bytes
    const char *summary; // one line
    const void *ops;     // the ops table of the kind; begins with uint32_t struct_bytes
    const struct td_plugin_knob *knobs; // (n_knobs) what a person may set of it; NULL: nothing
    size_t n_knobs;                     // at most TD_PLUGIN_KNOBS_MAX
};

// A descriptor's initializer; KIND is MODULE, DATASET and so on.
#define TD_PLUGIN_DESC(KIND, name, summary, ops)                                                   \
    {                                                                                              \
        sizeof(struct td_plugin_desc), TD_ABI_MAJOR, TD_ABI_MINOR, TD_PLUGIN_##KIND, name,         \
            summary, ops, NULL, 0                                                                  \
    }
// The same with an array of knobs.
#define TD_PLUGIN_DESC_WITH_KNOBS(KIND, name, summary, ops, knobs)                                 \
    {                                                                                              \
        sizeof(struct td_plugin_desc), TD_ABI_MAJOR, TD_ABI_MINOR, TD_PLUGIN_##KIND, name,         \
            summary, ops, knobs, sizeof(knobs) / sizeof((knobs)[0])                                \
    }

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
