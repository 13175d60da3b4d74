#ifndef TRAIND_ENGINE_TRAIN_LOOP_MANUAL_H
#define TRAIND_ENGINE_TRAIN_LOOP_MANUAL_H

// Manual: a loop that somebody else owns. He takes batches and says forward, backward and optimizer
// step himself; here is what makes runs of programs of that.
//
// Calls are put together: segments of one pass that were asked for run as one. They run once
// something has to happen: a value is read, another pass begins, the update is there. So a loop
// that reads no value between its calls costs what the loop of a job costs, and gives the same
// bits. Where an accelerator runs ahead, the last update is read when the next one is queued.
//
// A pass is open from its forward until its backward; each training step has one at most. Its
// activations are in the arena of the rank, and a forward of another step ends it, unless forwards
// are kept: then each step has an arena. Another batch ends all, and so does an update: it moves
// what a forward has read. Gradients stay until the optimizer step of their training step, or until
// they are cleared. After either the next backward overwrites them. That step may come after passes
// of others: it runs the end of the last program that gave gradients, alone. A backward without
// sync adds gradients of this rank alone; an update needs a backward with sync after it, so that
// ranks stay alike.
//
// Counting, checks and events are those of a job (boundary.h), and so is the position that a
// checkpoint keeps: after the batch of the last update. Errors: FAILED_PRECONDITION, class
// user_code, for calls in an order that cannot be. All ranks make the same calls. Thread: the
// training thread.

#include "engine/train/loop/loop.h"

// The reason of a status that says so; nothing was changed. Others end the run.
#define TD_MANUAL_MISUSE "CALL_ORDER"

struct td_manual_run {
    struct td_rank_run run;
    uint32_t segments; // bits 1 << td_segment
    int step;
    int64_t n_samples;
    bool begins;    // the first micro-batch of a window
    bool updated;   // it has an update, which was not skipped
    bool is_update; // it has one
    double lr;
    uint64_t gather; // of the batch that it reads
    int64_t epoch;   // of that
    struct td_position after;
};

// What ended a pass before its backward.
enum td_manual_end {
    TD_MANUAL_ENDED_NOT, // it is open, or there was none
    TD_MANUAL_ENDED_BATCH,
    TD_MANUAL_ENDED_FORWARD,
    TD_MANUAL_ENDED_UPDATE,
    TD_MANUAL_ENDED_NORM,
    TD_MANUAL_ENDED_EVALUATION,
    TD_MANUAL_ENDS
};

struct td_manual_pass {
    bool is_open;
    enum td_manual_end ended;
    struct td_program_key key;
    double share;
    uint32_t asked, queued; // segments of it
    bool begins;
};

struct td_manual {
    struct td_train_loop *l;
    bool in_epoch;
    // the batch that was taken last
    struct td_buffer batch[TD_DATA_FIELDS];  // as it was gathered, in host memory
    struct td_buffer inputs[TD_DATA_FIELDS]; // where programs read it
    int64_t n_samples;                       // 0: none was taken
    int64_t offset;                          // of it in the epoch
    int64_t began;                           // optimizer steps before it
    uint64_t gather;                         // which of all gathered batches it is
    struct td_position after;                // where the loop is when it is done
    uint64_t gathers;                        // so many batches were gathered, of any split
    int last;                                // the step of the last forward; -1: none
    int asking;                   // the step whose pass may have segments that are not queued
    int64_t epoch;                // of the batch of the last forward
    struct td_position pass_over; // after that
    bool syncs;                   // the next forward is of a pass that reduces
    uint64_t ran[TD_STEPS_MAX];   // forwards and evaluations in each arena
    // by training step
    struct {
        struct td_manual_pass pass;
        bool any;                  // there are gradients
        bool synced;               // the last backward reduced them
        bool settled;              // their norm was asked for, so finish has run
        struct td_program_key key; // the program of the last backward
        uint64_t ran;              // in its arena by then
        double loss_scale;         // of all its gradients
        double lr;                 // NaN: as the schedule says
        struct td_tallies window;  // of its passes since its last update, in this batch
        struct td_tallies passed;  // of its last pass
    } of[TD_STEPS_MAX];
    struct td_manual_run run[TD_RUNS_AHEAD + 1]; // queued and not read, the oldest first
    int n_runs;
    struct td_tallies values; // of the last pass
    int64_t n_passed;         // samples of it; 0: there was none
};

void td_manual_init(struct td_manual *m, struct td_train_loop *l);

// The training step of that name; NULL: the first. NOT_FOUND lists the names; nothing was changed.
TD_MUST_USE td_status td_manual_find(const struct td_manual *m, const char *name, int *out_step);
// The next batch of the training split; *out_n: its samples, on this rank. 0: the epoch is over,
// and the next call begins another.
TD_MUST_USE td_status td_manual_next(struct td_manual *m, int64_t *out_n);
// The two halves of a batch inside an epoch that somebody else plays: takes the one at l->queued;
// and says that it is over, whatever became of it.
TD_MUST_USE td_status td_manual_take(struct td_manual *m);
void td_manual_pass(struct td_manual *m);
// Before a batch of any split is gathered: what reads the buffers that it goes to is done.
TD_MUST_USE td_status td_manual_before_gather(struct td_manual *m);
// Begins a pass of training step `step` over that batch. share: what its loss counts in the
// gradient, 1 / k in a window of k micro-batches.
TD_MUST_USE td_status td_manual_forward(struct td_manual *m, int step, double share);
// Of the pass of a step that is open; -1: the one of the last forward.
TD_MUST_USE td_status td_manual_backward(struct td_manual *m, int step);
// Updates what training step `step` trains, from gradients that are synced. *out_stepped: false, if
// the precision skipped it. Then its gradients are gone, and no pass is open.
TD_MUST_USE td_status td_manual_optimizer_step(struct td_manual *m, int step, bool *out_stepped);
// Forgets gradients.
TD_MUST_USE td_status td_manual_zero_grad(struct td_manual *m, int step);
// The norm of synced gradients before clipping. FAILED_PRECONDITION: the job computes none.
TD_MUST_USE td_status td_manual_norm(struct td_manual *m, int step, double *out_norm);
// One evaluation of a batch of n samples, in a program of mode eval or predict. n 0: it puts out
// nothing, but ends open passes as it does on other ranks.
TD_MUST_USE td_status td_manual_evaluate(struct td_manual *m, enum td_strategy_step kind,
                                         int loader, const struct td_buffer *inputs, int64_t n);
// What the last forward or evaluation put out under that name, as a mean over its samples on this
// rank. NOT_FOUND lists the names.
TD_MUST_USE td_status td_manual_value(struct td_manual *m, const char *name, double *out_value);
// A tensor of the state, or a result of the last forward or evaluation (rank/state/tensor.h).
TD_MUST_USE td_status td_manual_tensor(struct td_manual *m, const char *name, float *out,
                                       int64_t n);
TD_MUST_USE td_status td_manual_result(struct td_manual *m, const char *name, float *out,
                                       int64_t n);
// Runs what was asked for, and waits for all of it.
TD_MUST_USE td_status td_manual_drain(struct td_manual *m);
// Ranks agree on their control flags, where no backward pass does so that was read since they were
// taken last, or is queued. All ranks call it; where they have yet to agree, it waits for the
// others and for what was asked for.
TD_MUST_USE td_status td_manual_agree(struct td_manual *m);
// Are there gradients that no update has used?
bool td_manual_has_gradients(const struct td_manual *m);

#endif
