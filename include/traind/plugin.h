#ifndef TRAIND_PLUGIN_H
#define TRAIND_PLUGIN_H

// Plugin descriptor: what a plugin of any kind says about itself.
//
// A shared object exports `td_plugin_entry` and `td_plugin_layout` (layout.h), both made by
// TD_PLUGIN(desc). In-tree plugins put the same descriptor into a static table. struct_bytes comes
// first in every table and fields are only appended, so an older plugin keeps loading: the loader
// reads the smaller of both sizes. Which slots a kind requires is the registry's knowledge
// (lib/base/registry.c), and the error names a missing one. Descriptors and ops tables are static
// const and live as long as the process.

#include "traind/layout.h"
#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_ABI_MAJOR = 2, TD_ABI_MINOR = 0 };

enum td_plugin_kind {
    TD_PLUGIN_ACCELERATOR, // struct td_accelerator_ops, traind/accelerator.h
    TD_PLUGIN_COLLECTIVE,  // struct td_collective_ops, traind/collective.h
    TD_PLUGIN_PRECISION,   // struct td_precision_ops, traind/precision.h
    TD_PLUGIN_STRATEGY,    // struct td_strategy_ops, traind/strategy.h
    TD_PLUGIN_MODULE,      // struct td_module_ops, traind/module.h
    TD_PLUGIN_DATASET,     // struct td_dataset_ops, traind/dataset.h
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
};

#define TD_PLUGIN(desc)                                                                            \
    __attribute__((visibility("default"))) const struct td_plugin_desc *td_plugin_entry(void);     \
    const struct td_plugin_desc *td_plugin_entry(void) {                                           \
        return &(desc);                                                                            \
    }                                                                                              \
    __attribute__((visibility("default"))) const struct td_layout *td_plugin_layout(void);         \
    const struct td_layout *td_plugin_layout(void) {                                               \
        return td_layout_here();                                                                   \
    }

#ifdef __cplusplus
}
#endif
#endif
