#ifndef TRAIND_PRECISION_H
#define TRAIND_PRECISION_H

// Precision: in which element types a job computes. It decides a type per role and rewrites each
// recorded program accordingly; it has no loop. What a training framework does around each step
// is in the program, and only what the host has to decide is a slot:
//
//   attach             rewrite: the types of parameters, gradients and values, once per program
//   input cast         in the program: floating inputs are cast where they are first read
//   forward bracket    in the program: which op computes in which type
//   pre_backward       slot; autodiff multiplies the loss gradient by TD_SCALAR_LOSS_SCALE when the
//                      facts say scales_loss. Outputs and hooks see the unscaled loss
//   post_backward      in the program: gradients are stored in their type as they are made
//   unscale, clip      segment finish, in this order
//   step gate          slot, between finish and apply; all ranks decide alike, because they look at
//                      gradients that were reduced
//   state save, load   slots
//
// Slots: (required) unless marked (optional).
// Ownership: what comes in is borrowed until the slot returns. Errors: a slot returns a status and
// writes outputs only on success; a failure ends the attempt.
// Thread: the rank's training thread.

#include "traind/graph.h"
#include "traind/knobs.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a precision is opened with; it dies when open returns.
struct td_precision_config {
    uint32_t struct_bytes;
    // Its own knobs, read with traind/knobs.h until open returns; NULL: none were given.
    const struct td_json *knobs;
};

struct td_precision_facts {
    uint32_t struct_bytes;
    enum td_dtype param;   // as the module's parameters are stored
    enum td_dtype compute; // of matmul and convolution
    enum td_dtype moments; // as the optimizer's own tensors are stored: `param`, or f32
    bool scales_loss;      // TD_SCALAR_LOSS_SCALE is used: pre_backward and step_gate are there
};

// What a checkpoint keeps of a precision. All zero: nothing.
struct td_precision_state {
    double loss_scale;
    int64_t clean_steps;   // since the scale changed
    int64_t skipped_steps; // of the whole job
};

struct td_precision; // the plugin's own

struct td_precision_ops {
    uint32_t struct_bytes;
    // Errors: class bad_spec for knobs that cannot be.
    td_status (*open)(const struct td_precision_config *config,
                      struct td_precision **out_precision);
    void (*close)(struct td_precision *p); // accepts NULL
    // The same for the life of p. out_facts comes with struct_bytes set and all else 0.
    td_status (*facts)(struct td_precision *p, struct td_precision_facts *out_facts);
    // (optional) Rewrites one program after autodiff, before the strategy. Absent: as recorded.
    td_status (*rewrite)(struct td_precision *p, struct td_graph *g,
                         const struct td_program_key *key);
    // (optional) Before the first micro-batch of a window: sets the step scalars that are its own
    // (TD_SCALAR_LOSS_SCALE) of scalars[TD_SCALAR_COUNT].
    td_status (*pre_backward)(struct td_precision *p, double *scalars);
    // (optional) After finish: are all gradients finite? *out_steps: run apply; else the step is
    // skipped, and neither global_step nor schedules advance. FAILED_PRECONDITION (class numeric)
    // when skipping leads nowhere.
    td_status (*step_gate)(struct td_precision *p, bool finite, bool *out_steps);
    // (optional) To and from a checkpoint, at an optimizer-step boundary. Both or none.
    td_status (*state_save)(struct td_precision *p, struct td_precision_state *out_state);
    td_status (*state_load)(struct td_precision *p, const struct td_precision_state *state);
    // (optional) What it keeps beside that: bytes of its own, the same on all ranks, with the
    // contract of a strategy's state_save and state_load for its whole part. Both or none.
    td_status (*own_save)(struct td_precision *p, struct td_span *out_state);
    td_status (*own_load)(struct td_precision *p, const void *data, size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
