#ifndef TRAIND_PRECISION_H
#define TRAIND_PRECISION_H

// Precision: in which element types a job computes. It decides a type per role and rewrites each
// recorded program accordingly (casts, loss scaling, the finite check that gates the step); it has
// no loop and keeps no state but what its rewrite put into the state table.
//
// Slots: (required) unless marked (optional). Thread: the rank's training thread.

#include "traind/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_precision_facts {
    uint32_t struct_bytes;
    enum td_dtype param;    // as the module's parameters are stored
    enum td_dtype compute;  // of matmul and convolution
    enum td_dtype gradient; // as gradients are stored
    enum td_dtype reduce;   // as gradients travel
    enum td_dtype master;   // what the optimizer updates
    bool casts_inputs;      // rule X10: floating inputs are cast to `compute` ...
    bool casts_outputs;     // ... and outputs back to f32
    bool scales_loss;       // TD_SCALAR_LOSS_SCALE is used
};

struct td_precision; // the plugin's own

struct td_precision_ops {
    uint32_t struct_bytes;
    td_status (*open)(struct td_precision **out_precision);
    void (*close)(struct td_precision *p); // accepts NULL
    td_status (*facts)(struct td_precision *p, struct td_precision_facts *out_facts);
    // (optional) Rewrites one program after autodiff, before the strategy. Absent: as recorded.
    td_status (*rewrite)(struct td_precision *p, struct td_graph *g,
                         const struct td_program_key *key);
};

#ifdef __cplusplus
}
#endif
#endif
