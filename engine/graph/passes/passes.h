#ifndef TRAIND_ENGINE_GRAPH_PASSES_PASSES_H
#define TRAIND_ENGINE_GRAPH_PASSES_PASSES_H

// engine/graph/passes: the rewrites that td_compile runs, a file each, in reading order below. That
// is the order in which compile.c runs them, but for finish, which the optimizer pass calls.
//
// Each takes a valid graph and leaves a valid one (td_graph_verify) that computes the same, but for
// what the pass is there to add. All are deterministic: same graph in, same graph out, because the
// text of each is kept in golden files and because ranks must agree without talking.
// Failure: status; a half-rewritten graph is only good to destroy. Thread: the graph's.

#include "engine/graph/options.h"
#include "traind/graph.h"
#include "traind/rewrite.h"

// sync_norm.c: batch norms over the samples of all ranks.
TD_MUST_USE td_status td_pass_sync_norm(struct td_graph *g);

// sink.c: relu after the max pool that follows it.
TD_MUST_USE td_status td_pass_sink(struct td_graph *g);

// count.c: the seed of a backward pass whose gradients are of a sum. It is what the mean of the
// loss is over, in a batch of so many samples, times TD_SCALAR_WINDOW; if scaled, times the loss
// scale. INVALID_ARGUMENT: the step does not say what that is, or its gradients would not be those
// of it.
TD_MUST_USE td_status td_pass_count(struct td_graph *g, int64_t batch, bool scaled,
                                    td_value *out_seed);

// autodiff.c: appends the backward segment; each reached parameter's gradient ends in a store to
// "<param>:grad". Gradient rules: rules/gradient.h.
struct td_autodiff_options {
    bool accumulate; // stores add to what is there
    bool windowed;   // the loss gradient is TD_SCALAR_WINDOW instead of 1
    bool counted;    // and times what the mean of the loss is over
    bool scaled;     // the loss gradient is TD_SCALAR_LOSS_SCALE times as large
    // As in compile.h; key is what it is called with.
    bool (*trains)(const void *arg, const struct td_program_key *key, const char *param);
    const void *trains_arg;
    const struct td_program_key *key;
};
TD_MUST_USE td_status td_pass_autodiff(struct td_graph *g, const struct td_autodiff_options *o);

// finish.c: what the optimizer pass puts between gradients and update; grads are indices in
// the state table. *out_factor multiplies each gradient where it is read, 0: nothing does.
TD_MUST_USE td_status td_pass_finish(struct td_graph *g, const struct td_optimizer_options *o,
                                     const uint32_t *grads, uint32_t n, td_value *out_factor);

// optimizer.c: finish (norm, clip coefficient) and apply (one optimizer node per parameter
// that has a gradient in this graph); creates the optimizer's state.
TD_MUST_USE td_status td_pass_optimizer(struct td_graph *g, const struct td_optimizer_options *o);

// simplify.c: reshape of reshape, reshape and cast to the same, dead nodes.
TD_MUST_USE td_status td_pass_simplify(struct td_graph *g);

// fuse.c: matmul + bias + relu into one node, gradient producers write the gradient directly.
TD_MUST_USE td_status td_pass_fuse(struct td_graph *g);

// head.c: last linear layer + cross entropy into one node, if the logits are larger than
// whole_bytes.
TD_MUST_USE td_status td_pass_head(struct td_graph *g, size_t whole_bytes);

// dgrad.c: a product + the gradient of an activation that alone reads it into one node.
TD_MUST_USE td_status td_pass_dgrad(struct td_graph *g);

// recompute.c: trades activations that are kept for computing them again; same bits.
TD_MUST_USE td_status td_pass_recompute(struct td_graph *g, enum td_recompute level);

// residual.c: residual sum + norm, and a norm's gradient + the stream's, into one node each.
TD_MUST_USE td_status td_pass_residual(struct td_graph *g);

// schedule.c: nodes that read no other node move to where their results are first read.
TD_MUST_USE td_status td_pass_schedule(struct td_graph *g);

// memory.c: places every node output in one arena. out_placement has td_graph_n_values + 1
// rows and is the caller's to free. elides: the accelerator's, NULL: it has none.
TD_MUST_USE td_status td_pass_memory(const struct td_graph *g, td_elides_fn *elides,
                                     struct td_placement **out_placement, size_t *out_arena_bytes);

#endif
