#ifndef TRAIND_ENGINE_TRAIN_LOOP_LOOP_H
#define TRAIND_ENGINE_TRAIN_LOOP_LOOP_H

// engine/train/loop: what a rank does, stage by stage; and where it is in that.
//
// In reading order:
//
//   loop.h                         the run
//   fit.h                          the training loop
//   batch.h                        one micro-batch: queued, then read
//   boundary.h                     what there is to do after an optimizer step
//   manual.h                       a loop that somebody else owns
//   host_step.h                    a batch that a module plays itself
//   evaluate.h                     one pass over a split
//   early_stopping.h               when a metric ends fit
//   predict.h, generate.h          the predict stage
//   predictions.h                  the results of both
//   stage_weights.h                which weights the stages after fit use
//   epoch_metrics.h, throughput.h  what is counted on the way
//
// engine/train/train.c runs the stages in order.
//
// The run owns only where it is (td_progress) and what it has counted since the last log. It never
// waits for the control plane, never asks which strategy or precision it has, and acts on nothing
// that not all ranks agreed on. global_step counts completed optimizer steps: where a module has
// several training steps, each of theirs. Thread: the training thread.

#include "engine/train/rank/scores/validated.h"
#include "engine/train/loop/epoch_metrics.h"
#include "engine/train/loop/throughput.h"
#include "engine/train/rank/step.h"
#include "lib/base/files/files.h"

enum td_train_loop_end {
    TD_LOOP_DONE,    // ran to its end
    TD_LOOP_STOPPED, // agreed stop
};

enum { TD_RUNS_AHEAD = 1 };

// What moves with each batch; as in td_progress.
struct td_position {
    int64_t step, epoch_offset, epoch_batches, windows, samples;
};

// A micro-batch that is queued.
struct td_batch_run {
    struct td_rank_run run;
    int64_t n_samples;        // of this rank
    double lr[TD_STEPS_MAX];  // of each training step
    int64_t done;             // optimizer steps before its own
    int step;                 // of the module's training steps, the last that it goes through
    bool begins, steps;       // it is the first, the last of its window
    bool validates;           // a validation is due after it
    struct td_position after; // where the loop is when it is done
    struct td_buffer inputs[TD_DATA_FIELDS]; // where gradients are counted: of the update, too
};

// What was said of epochs (narrate.h).
struct td_narration {
    int64_t n_epochs, began_ns, last_ns;
    bool speaks; // of the epoch that is played
};

struct td_train_loop {
    struct td_rank *rank;
    struct td_progress at;     // after what is done: what is reported, saved and counted
    struct td_position queued; // after what is queued: what the next batch is
    struct td_batch_run run[TD_RUNS_AHEAD + 1]; // queued and not read, the oldest first
    int n_runs, runs_ahead;                     // runs_ahead may be left when one is queued
    int64_t own_samples;                        // of this rank in this attempt
    struct td_epoch epoch;
    bool fit_is_over;      // no optimizer step will follow
    bool mid_window;       // between two micro-batches: nothing can be stopped or saved
    bool stepped;          // this attempt has done a step
    bool stop_saves;       // the stop that interrupted an evaluation wants a checkpoint
    bool noted_not_finite; // that an evaluation's loss is no number
    bool noted_matrix;     // where the validations' confusion matrix is
    float last_loss;
    int64_t saved_step;      // of the last checkpoint that was taken to be written; -1: none
    int64_t window_steps;    // optimizer steps that the last window came to
    double lr[TD_STEPS_MAX]; // of each training step of the batch that was read last
    double count_scale, counted[TD_STEPS_MAX]; // of the window, of each training step (counted.h)
    // By training step: of its last optimizer step, before clipping; NaN: nobody asked.
    double grad_norm[TD_STEPS_MAX];
    struct td_tallies window;        // of the current window
    struct td_epoch_metrics played;  // of the epoch's windows
    struct td_validated validated;   // of the last validation, summed over ranks
    struct td_best best;             // of the checkpoints so far; right where they are written
    char best_dir[TD_FS_PATH_BYTES]; // that best.path begins in
    struct td_schedule_config schedule[TD_OPTIMIZERS_MAX]; // of each optimizer
    struct td_throughput throughput;                       // since the last log point
    int64_t began_ns;                                      // this attempt's training
    struct td_narration said;
};

void td_train_loop_init(struct td_train_loop *l, struct td_rank *rank);
// Before the first batch: the length of the run and the end of each schedule. Class bad_spec: an
// epoch without a batch, a schedule without an end.
TD_MUST_USE td_status td_train_loop_settle(struct td_train_loop *l);
// Flags of all ranks at a batch boundary outside of training. *out_leave: a stop to obey here.
TD_MUST_USE td_status td_train_loop_agree(struct td_train_loop *l, bool *out_leave);
// All ranks have met after a batch outside of training: nobody compiles for it any more.
void td_train_loop_settled(struct td_train_loop *l);
// Loss i among the tallies: "loss", and "loss_..." where the module has several training steps.
// NULL: there are not so many.
const struct td_tally *td_train_loop_loss(const struct td_train_loop *l,
                                          const struct td_tallies *tallies, size_t i);

#endif
