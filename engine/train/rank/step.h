#ifndef TRAIND_ENGINE_TRAIN_RANK_STEP_H
#define TRAIND_ENGINE_TRAIN_RANK_STEP_H

// Step: what the loop calls for every micro-batch. Thread: the training thread.

#include "engine/train/rank/rank.h"

// A run of a program that is queued.
struct td_rank_run {
    const struct td_graph *graph;
    td_ticket ticket;
    bool agrees; // its ranks agree on their control flags
    bool sums;   // which it sums itself, after the last bucket
    bool ends;   // it has the forward segment, so its outputs are those of a step
    enum td_strategy_step kind;
    int64_t n_samples;
};

enum {
    TD_SEGS_PASS = 1 << TD_SEG_FORWARD | 1 << TD_SEG_BACKWARD,
    TD_SEGS_UPDATE = 1 << TD_SEG_FINISH | 1 << TD_SEG_APPLY,
    TD_SEGMENT_SETS = TD_SEG_COUNT * (TD_SEG_COUNT + 1) / 2, // of neighbours
};

// The sets of segments (bits 1 << td_segment) that the accelerator is called with for a program of
// this rank, each once. They follow from what a loop asks for, and from who takes part between two
// segments. Where host code has the steps, they are those that it may ask for. A strategy that runs
// programs in its step slot is expected to run what it is given; in optimizer_step it may part the
// two segments. Returns their number.
size_t td_rank_segment_sets(const struct td_rank *r, const struct td_program *p,
                            uint32_t out_sets[TD_SEGMENT_SETS]);
// Lets the accelerator prepare all programs for them, in their order, once they are bound.
TD_MUST_USE td_status td_rank_prepare(const struct td_rank *r);

// May a run be queued before the one before it is read? Not where somebody acts between the two: a
// strategy, a precision that gates steps, ranks that meet outside of the program, another step, or
// the count of a window.
bool td_rank_runs_ahead(const struct td_rank *r);
// Queues a run of a program, with the strategy's hooks around its segments. inputs: one buffer per
// field of the data, alive until it is read; loader: which of its split they are of. Runs are read
// in the order in which they were queued.
TD_MUST_USE td_status td_rank_queue(struct td_rank *r, enum td_strategy_step kind,
                                    const struct td_program_key *key, int loader,
                                    const struct td_buffer *inputs, struct td_rank_run *out_run);
// The two halves of that, for who runs the segments of a program one by one. The first moves a
// batch to where programs read it, once; out_inputs are alive as long as inputs. The second queues
// some segments (bits 1 << td_segment) of a program. They are a run of neighbours in their order,
// and go on where those of the last run of that program ended. Another program may have run since,
// if it has another arena, or they are an update that runs alone (td_runnable); apply needs
// key->apply. Who asks for other sets than the loops do adds them to td_rank_segment_sets.
TD_MUST_USE td_status td_rank_move_batch(struct td_rank *r, int loader,
                                         const struct td_buffer *inputs,
                                         struct td_buffer out_inputs[TD_DATA_FIELDS]);
TD_MUST_USE td_status td_rank_queue_segments(struct td_rank *r, enum td_strategy_step kind,
                                             const struct td_program_key *key,
                                             const struct td_buffer *inputs, uint32_t segments,
                                             struct td_rank_run *out_run);
// Waits until it is done. Then its outputs are in r->outputs, named by the graph, as the strategy's
// step_end left them, and what ranks agreed on is added to r->control. ABORTED (class collective):
// a peer is gone.
TD_MUST_USE td_status td_rank_read(struct td_rank *r, const struct td_rank_run *run);
// What reading ends with: the strategy's step_end over r->outputs, where it has one.
TD_MUST_USE td_status td_rank_step_end(struct td_rank *r, const struct td_rank_run *run);
// Both at once: queues a run and reads it.
TD_MUST_USE td_status td_rank_step(struct td_rank *r, enum td_strategy_step kind,
                                   const struct td_program_key *key, int loader,
                                   const struct td_buffer *inputs,
                                   const struct td_graph **out_graph);
// The same of a rank that has no samples of an evaluation's batch, while others may have some. It
// takes part in the sums of their programs (programs/uneven.h). Nothing else comes of it, no
// step_end either; r->outputs and results have no meaning afterwards.
TD_MUST_USE td_status td_rank_step_idle(struct td_rank *r, enum td_strategy_step kind, int loader);
// The ranks' control flags in a reduction of their own: out_flags[TD_CONTROL_FLAGS] is the sum.
// step_follows: see td_control_raise. Errors: those of td_rank_read.
TD_MUST_USE td_status td_rank_sum_flags(struct td_rank *r, bool step_follows, float *out_flags);
// The same at a boundary that no backward pass led to; the sum is added to r->control. No run that
// carries flags may be queued.
TD_MUST_USE td_status td_rank_agree(struct td_rank *r, bool step_follows);
TD_MUST_USE td_status td_rank_hook(struct td_rank *r, enum td_strategy_hook hook, int64_t batch);
// Sums n values over the ranks, in place.
TD_MUST_USE td_status td_rank_sum(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype);

#endif
