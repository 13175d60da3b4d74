#ifndef TRAIND_ENGINE_TRAIN_LOOP_LOOP_H
#define TRAIND_ENGINE_TRAIN_LOOP_LOOP_H

// The loop: fit, validate and test over a rank, readable from top to bottom in fit.c.
//
// It owns only where the run is (td_progress) and what it has counted since the last log. It
// never waits for the control plane, never asks which strategy or precision it has, and acts on
// nothing that not all ranks agreed on. global_step counts completed optimizer steps.
// Thread: the training thread.

#include "engine/train/loop/epoch_metrics.h"
#include "engine/train/loop/throughput.h"
#include "lib/base/fsio.h"

enum td_loop_end {
    TD_LOOP_DONE,    // ran to its end
    TD_LOOP_STOPPED, // agreed stop
};

struct td_loop {
    struct td_rank *rank;
    struct td_progress at;
    int64_t own_samples; // of this rank in this attempt
    struct td_epoch epoch;
    bool fit_is_over;      // no optimizer step will follow
    bool mid_window;       // between two micro-batches: nothing can be stopped or saved
    bool stepped;          // this attempt has done a step
    bool stop_saves;       // the stop that interrupted an evaluation wants a checkpoint
    bool noted_not_finite; // that an evaluation's loss is no number
    float last_loss;
    int64_t saved_step;             // of the last checkpoint that was taken to be written; -1: none
    double grad_norm;               // of the last step, before clipping; NaN: nobody asked
    struct td_tallies window;       // of the current window
    struct td_epoch_metrics played; // of the epoch's windows
    struct td_tallies validated;    // of the last validation, summed over ranks
    struct td_best best;            // of the checkpoints so far; right where they are written
    char best_dir[TD_FS_PATH_BYTES]; // that best.path begins in
    struct td_schedule_config schedule;
    struct td_throughput throughput; // since the last log point
    int64_t began_ns;                // this attempt's training
};

void td_loop_init(struct td_loop *l, struct td_rank *rank);
TD_MUST_USE td_status td_loop_fit(struct td_loop *l, enum td_loop_end *out_end);
// One pass over a split, each sample once. prefix: "val", "validate" or "test"; "" logs nothing.
// interrupted: a stop was agreed and the pass was left.
TD_MUST_USE td_status td_loop_evaluate(struct td_loop *l, enum td_split split, const char *prefix,
                                       int64_t n_batches, bool *out_interrupted);
// Flags of all ranks at a batch boundary outside of training. *out_leave: a stop to obey here.
TD_MUST_USE td_status td_loop_agree(struct td_loop *l, bool *out_leave);

#endif
