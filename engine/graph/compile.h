#ifndef TRAIND_ENGINE_GRAPH_COMPILE_H
#define TRAIND_ENGINE_GRAPH_COMPILE_H

// Compile: from a step that a module records to a program that an accelerator takes.
//
// The pipeline, the same for whatever is trained: record -> sink -> autodiff -> precision ->
// strategy -> optimizer -> simplify -> fuse -> head -> dgrad -> recompute -> residual -> schedule
// -> memory plan. An eval or predict program is its forward part only. Everything that
// distinguishes two programs of a job stands in the options; precision and strategy are hooks,
// because they are plugins. Call td_compile for every program key of the job, then td_state_layout
// once, then hand the programs to the accelerator. Ownership: the compiled object owns graph and
// plan and must outlive the accelerator's executable; the state table must outlive both. Thread:
// one.

#include "lib/base/base.h"
#include "traind/graph.h"

struct td_optim_choice {
    bool frozen; // the parameter stays as it is, and has no optimizer state
    enum td_op op;
    struct td_optim_attrs attrs;
    int ns_steps; // muon: of Newton and Schulz's iteration, and its polynomial
    double ns_coefficients[3];
};

struct td_optimizer_options {
    enum td_op op; // TD_OP_SGD, ADAM, ADAMW, LION, ADAFACTOR, or MUON (for matrices, by choose)
    struct td_optim_attrs attrs;
    double clip_norm;  // 0: no clipping by the global norm
    double clip_value; // 0: no clipping element by element; at most one of the two
    // Gradients are TD_SCALAR_LOSS_SCALE times as large: finish undoes it, and says with the output
    // "finite" whether all of them are numbers, which decides whether apply is run at all.
    bool unscale;
    bool stochastic; // 16-bit parameters are rounded stochastically when they are written
    bool wide;       // buffers of 16-bit parameters are f32
    // The step reports "grad_norm", the norm of all gradients before clipping. With clipping it
    // does so anyway, for nothing; without, it is one more pass over the gradients.
    bool report_norm;
    // (optional) What one parameter gets instead of the same for all; io_choice begins as that.
    void (*choose)(const void *arg, const struct td_state_info *param,
                   struct td_optim_choice *io_choice);
    const void *choose_arg;
};

// What of the forward pass is computed again in the backward pass instead of being kept.
enum td_recompute { TD_RECOMPUTE_NONE, TD_RECOMPUTE_SELECTIVE, TD_RECOMPUTE_FULL };
const char *td_recompute_name(enum td_recompute r);

struct td_compile_options {
    struct td_program_key key;
    struct td_state_table *state;
    // The job accumulates over more than one micro-batch: TD_SCALAR_WINDOW scales the loss gradient
    // (also in the first program of a window, which overwrites). Implied by key.accumulate.
    bool windowed;
    // The precision scales the loss: gradients are TD_SCALAR_LOSS_SCALE times as large until
    // finish.
    bool scales_loss;
    td_status (*record)(void *arg, struct td_graph *g, int64_t batch);
    void *record_arg;
    // (optional) Rewrites; see traind/rewrite.h.
    td_status (*precision)(void *arg, struct td_graph *g, const struct td_program_key *key);
    void *precision_arg;
    td_status (*strategy)(void *arg, struct td_graph *g, const struct td_program_key *key);
    void *strategy_arg;
    const struct td_optimizer_options *optimizer; // read when key.apply in train mode
    enum td_recompute recompute;                  // at most; less where that needs no more memory
    size_t whole_logits_bytes;                    // larger logits are never made whole; 0: all are
    td_skips_fn *skips; // (optional) the slot of the accelerator that the program is for
    // (optional) Sees the program after each pass that it went through; td_compile_pass names them.
    // Placements are there after "memory".
    td_status (*dump)(void *arg, const char *pass, const struct td_program *p);
    void *dump_arg;
};

struct td_compiled {
    struct td_program program;
    struct td_graph *graph;         // what program.graph borrows
    struct td_placement *placement; // what program.placement borrows
};

// Names of the passes in their order; NULL behind the last.
const char *td_compile_pass(size_t i);

TD_MUST_USE td_status td_compile(const struct td_compile_options *options,
                                 struct td_compiled **out_compiled);
void td_compiled_destroy(struct td_compiled *c); // accepts NULL
TD_DEFINE_AUTO(td_compiled, td_compiled_destroy);
TD_DEFINE_AUTO(td_graph, td_graph_destroy);
TD_DEFINE_AUTO(td_state_table, td_state_table_destroy);

#endif
