#ifndef TRAIND_ENGINE_GRAPH_OPTIONS_H
#define TRAIND_ENGINE_GRAPH_OPTIONS_H

// What a job asks of the passes: the update of its parameters, and how much of the forward pass is
// kept. Whoever compiles fills them in (compile.h); the optimizer and recompute passes obey. Plain
// values; strings and callbacks are the caller's.

#include "traind/graph.h"

struct td_optim_choice {
    // The products that read the parameter take it as (in, out); else as (out, in), or none does.
    // Known from the graph, for `choose` to read.
    bool in_out;
    bool frozen; // the parameter stays as it is, and has no optimizer state
    td_op_id op;
    struct td_optim_attrs attrs;
    int ns_steps; // muon: of Newton and Schulz's iteration, and its polynomial
    double ns_coefficients[3];
};

struct td_optimizer_options {
    td_op_id op; // TD_OP_SGD, ADAM, ADAMW, LION, ADAFACTOR, or MUON (for matrices, by choose)
    struct td_optim_attrs attrs;
    double clip_norm;  // 0: no clipping by the global norm
    double clip_value; // 0: no clipping element by element; at most one of the two
    // Gradients are TD_SCALAR_LOSS_SCALE times as large: finish undoes it, and says with the output
    // "finite" whether all of them are numbers, which decides whether apply is run at all.
    bool unscale;
    bool divides;    // gradients are TD_SCALAR_DIVISOR times as large: finish undoes that, too
    bool stochastic; // 16-bit parameters are rounded stochastically when they are written
    bool wide;       // buffers of 16-bit parameters are f32
    // The step reports "grad_norm", the norm of all gradients before clipping. With clipping of
    // either kind it does so anyway. Where it does not clip by norm, that is one more pass over the
    // gradients.
    bool report_norm;
    // (optional) What one parameter gets instead of the same for all; io_choice begins as that.
    void (*choose)(const void *arg, const struct td_state_info *param,
                   struct td_optim_choice *io_choice);
    const void *choose_arg;
};

// How much of the forward pass is computed again in the backward pass instead of being kept.
enum td_recompute { TD_RECOMPUTE_NONE, TD_RECOMPUTE_SELECTIVE, TD_RECOMPUTE_FULL };
const char *td_recompute_name(enum td_recompute r);

#endif
