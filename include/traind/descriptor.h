#ifndef TRAIND_DESCRIPTOR_H
#define TRAIND_DESCRIPTOR_H

// Plugin descriptor: what a plugin of any kind says about itself.
//
// A shared object exports one (plugin.h); in-tree plugins put the same, TD_PLUGIN_DESC, into a
// static table. struct_bytes comes first in every table and fields are only appended, so an older
// plugin keeps loading: the loader reads the smaller of both sizes. The registry knows which slots
// a kind requires, and the error names a missing one.
// Ownership: descriptors, tables of ops and knobs, and their texts live as long as the process.
// Thread: constant data. Errors: whatever is wrong with a descriptor refuses the plugin, by name.

#include "traind/knobs.h"
#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_ABI_MAJOR = 5, TD_ABI_MINOR = 0 };

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

#ifdef __cplusplus
}
#endif
#endif
