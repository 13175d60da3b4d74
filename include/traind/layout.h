#ifndef TRAIND_LAYOUT_H
#define TRAIND_LAYOUT_H

// Layout: what a plugin was compiled against that no version number counts, because it changes with
// every op: the ops and element types in the order of their numbers. The sizes of the structs and
// blocks that cross the border without a struct_bytes of their own are in it, too.
//
// TD_PLUGIN exports it beside the descriptor, the registry compares it with its own. An op that was
// put in the middle of ops.def gives all later ones another number. A plugin that was not rebuilt
// would compute something else, or jump through the end of its table. The lists are compared as
// text rather than as a digest, so that the refusal can name the first op that differs.
// Constant data, any thread. docs/plugins.md says when a plugin has to be rebuilt.

#include "traind/accelerator.h"
#include "traind/bucket.h"
#include "traind/collective.h"
#include "traind/graph.h"
#include "traind/knobs.h"
#include "traind/module.h"
#include "traind/op.h"
#include "traind/random.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_layout {
    uint32_t struct_bytes;
    const char *ops;    // "matmul add ", in the order of enum td_op
    const char *dtypes; // "f32 ", in the order of enum td_dtype
    uint32_t attrs_bytes, node_bytes, value_bytes, state_bytes, program_bytes, field_bytes;
    uint32_t scalars_bytes, random_bytes; // of td_bindings
    uint32_t knob_bytes;
    // of td_strategy_memory and td_bindings: a struct td_buffer for each role
    uint32_t region_bytes;
    uint32_t bucket_tensor_bytes, sum_range_bytes;
    uint32_t collective_config_bytes; // decorators copy it
};

// Of the code that calls it; lives as long as that code is loaded.
static inline const struct td_layout *td_layout_here(void) {
#define TD_OP(ID, name, ...)                       name " "
#define TD_DTYPE(ID, name, st_name, element_bytes) name " "
    static const struct td_layout layout = {
        sizeof(struct td_layout),
#include "traind/ops.def"
        ,
#include "traind/dtypes.def"
        ,
        sizeof(struct td_attrs),
        sizeof(struct td_node_info),
        sizeof(struct td_value_info),
        sizeof(struct td_state_info),
        sizeof(struct td_program),
        sizeof(struct td_field),
        TD_SCALAR_COUNT * sizeof(double),
        TD_RANDOM_WORDS * sizeof(uint32_t),
        sizeof(struct td_plugin_knob),
        TD_ROLE_COUNT * sizeof(struct td_buffer),
        sizeof(struct td_bucket_tensor),
        sizeof(struct td_sum_range),
        sizeof(struct td_collective_config),
    };
#undef TD_OP
#undef TD_DTYPE
    return &layout;
}

#ifdef __cplusplus
}
#endif
#endif
