#ifndef TRAIND_ENGINE_TRAIN_SIZES_H
#define TRAIND_ENGINE_TRAIN_SIZES_H

// Sizes: what a rank will need, known from its recorded programs before anything is allocated, and
// what to do when that is more than it may have.
//
// state, arena and scratch are exact: the accelerator works out its scratch by compiling without
// allocating. Beside them a process has its libraries, generated code and stacks, for which
// TD_SIZES_PROCESS is set aside. When all of it passes the limit (resources.memory_bytes; without
// one, this machine's memory), the forward pass keeps less and computes more, level by level,
// unless trainer.recompute says which level it shall be; a job that does not fit at the last level
// is refused here, before it starts, with the bytes and the knobs that lower them. Thread:
// training.

#include "engine/train/estimate.h"
#include "engine/train/rank.h"

#define TD_SIZES_PROCESS ((size_t)48 << 20)

struct td_sizes {
    int64_t parameters;
    size_t state_bytes;   // parameters, buffers, gradients, optimizer state
    size_t arena_bytes;   // the largest of all programs
    size_t scratch_bytes; // of the accelerator
    enum td_recompute recompute;
    size_t snapshot_bytes;                                   // of the checkpointer
    size_t shared_bytes;                                     // mapping of the group; 0 for world 1
    struct td_estimate step;                                 // how long one takes
    double flops_per_step;                                   // of one optimizer step of this rank
    int64_t samples;                                         // of the training set
    int64_t batches_per_epoch, steps_per_epoch, total_steps; // total 0: no limit known
};
TD_MUST_USE td_status td_sizes_measure(const struct td_rank *r, struct td_sizes *out_sizes);

// Levels to try, in order. INVALID_ARGUMENT: trainer.recompute is none of them.
TD_MUST_USE td_status td_sizes_levels(const struct td_rank *r, enum td_recompute *out_first,
                                      enum td_recompute *out_last);
// Whether the programs as they are now fit.
TD_MUST_USE td_status td_sizes_fit(const struct td_rank *r, bool *out_fits);
// They do not: FAILED_PRECONDITION, class out_of_memory, with the bytes and the knobs that help.
TD_MUST_USE td_status td_sizes_refuse(const struct td_rank *r);
// What is really held, as one event "memory" with the members of the plan's result.
TD_MUST_USE td_status td_sizes_announce(const struct td_rank *r);

#endif
