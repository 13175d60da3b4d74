#ifndef TRAIND_ENGINE_GRAPH_COMPILE_H
#define TRAIND_ENGINE_GRAPH_COMPILE_H

// Compile: from a step that a module records to a program that an accelerator takes.
//
// The pipeline, the same for whatever is trained: record -> sync norm -> sink -> autodiff ->
// precision -> strategy -> optimizer -> simplify -> fuse -> head -> dgrad -> recompute -> residual
// -> schedule
// -> memory plan. An eval or predict program is its forward part only. Everything that
// distinguishes two programs of a job is in the options; precision and strategy are hooks,
// because they are plugins. Call td_compile for every program key of the job, then td_state_layout
// once, then hand the programs to the accelerator. Ownership: the compiled object owns graph and
// plan and must outlive the accelerator's executable; the state table must outlive both. Thread:
// one.

#include "engine/graph/options.h"
#include "lib/base/base.h"
#include "traind/graph.h"

struct td_compile_options {
    struct td_program_key key;
    struct td_state_table *state;
    int32_t world_size; // of the ranks that run it; 0: 1
    // The job accumulates over more than one micro-batch: TD_SCALAR_WINDOW scales the loss gradient
    // (also in the first program of a window, which overwrites). Implied by key.accumulate.
    bool windowed;
    // Gradients are of sums: the loss gradient is what the mean of the loss is over, times
    // TD_SCALAR_WINDOW, whether the job accumulates or not. Finish divides by TD_SCALAR_DIVISOR, if
    // the optimizer says so.
    bool counted;
    // The precision scales the loss: gradients are TD_SCALAR_LOSS_SCALE times as large until
    // finish.
    bool scales_loss;
    td_status (*record)(void *arg, struct td_graph *g, int64_t batch);
    void *record_arg;
    // (optional) Does the step train this parameter, if its loss depends on it? Else it is a
    // constant. NULL: all are trained.
    bool (*trains)(const void *arg, const struct td_program_key *key, const char *param);
    const void *trains_arg;
    bool syncs_batch_norm; // batch norms of mode train are over all ranks
    // (optional) Rewrites; see traind/rewrite.h.
    td_status (*precision)(void *arg, struct td_graph *g, const struct td_program_key *key);
    void *precision_arg;
    // (optional) With a precision: the type that the batch has for an input, which may have been
    // recorded as another (td_graph_retype_input). NULL: what was recorded.
    enum td_dtype (*input_type)(const void *arg, uint32_t slot);
    const void *input_type_arg;
    td_status (*strategy)(void *arg, struct td_graph *g, const struct td_program_key *key);
    // (optional) After the optimizer pass, of programs that update.
    td_status (*strategy_update)(void *arg, struct td_graph *g, const struct td_program_key *key);
    void *strategy_arg;                           // of both
    const struct td_optimizer_options *optimizer; // read when key.apply in train mode
    enum td_recompute recompute;                  // at most; less where that needs no more memory
    size_t whole_logits_bytes;                    // larger logits are never made whole; 0: all are
    td_elides_fn *elides; // (optional) the slot of the accelerator that the program is for
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

// Names of the passes in their order; NULL after the last.
const char *td_compile_pass(size_t i);

TD_MUST_USE td_status td_compile(const struct td_compile_options *options,
                                 struct td_compiled **out_compiled);
void td_compiled_destroy(struct td_compiled *c); // accepts NULL
TD_DEFINE_AUTO(td_compiled, td_compiled_destroy);

#endif
