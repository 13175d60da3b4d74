#ifndef TRAIND_ENGINE_TRAIN_PLAN_SIZES_H
#define TRAIND_ENGINE_TRAIN_PLAN_SIZES_H

// Sizes: what a rank will need, known from its recorded programs before anything is allocated, and
// what to do when that is more than it may have.
//
// state, arena, scratch, snapshot, batches and orders are exact: the accelerator works out its
// scratch by compiling without allocating. Beside them a process has its libraries, generated code
// and threads, for which td_sizes_process_bytes is set aside. Their sum is `memory_bytes`: the plan
// shows it, the queue compares it with nodes, and it is compared with the limit of a rank. Decoded
// data is not in it: a mapped file, which the ranks of a machine share. Where an accelerator has
// memory of its own, state, arena and scratch are `device_bytes` instead, which that has to hold.
// So is a shadow of the snapshot, where copies are queued.
// The limit is resources.memory_bytes, or this machine's memory. Above it the forward pass keeps
// less and computes more, level by level, unless trainer.recompute names the level. A job that does
// not fit at the last level is refused here, before it starts, with the bytes and the knobs that
// lower them. Thread: training.

#include "engine/train/plan/estimate.h"
#include "engine/train/rank/rank.h"

// A process has some 6 MiB of its own beside the libraries of its accelerator (td_accel_facts), and
// one with more threads 10 MiB more for each. These are a stack of 8 MiB, which counts as a whole
// against the limit of a rank, and an allocator's arena. Measured, with room.
#define TD_SIZES_PROCESS ((size_t)16 << 20)
#define TD_SIZES_THREAD  ((size_t)12 << 20)
// A group over several nodes: its pieces and scratch, and what it has for each node (between.h).
#define TD_SIZES_GROUP   ((size_t)12 << 20)
#define TD_SIZES_NODE    ((size_t)40 << 10)
size_t td_sizes_process_bytes(const struct td_rank *r);

enum { TD_SIZES_SLOW = 448 };

struct td_sizes {
    int64_t parameters;
    size_t state_bytes;   // parameters, buffers, gradients, optimizer state
    size_t arena_bytes;   // the largest of all programs
    size_t scratch_bytes; // of the accelerator
    enum td_recompute recompute;
    size_t snapshot_bytes;   // of the checkpointer
    size_t batch_bytes;      // batches as they are gathered
    size_t order_bytes;      // of the samples of an epoch, and of those that are held out
    size_t process_bytes;    // libraries, code and threads
    size_t shared_bytes;     // mapping of the group; 0 for world 1
    size_t pieces_bytes;     // in which sums of pieces are brought together
    size_t staging_bytes;    // that, and host memory of a device's gradients
    size_t hook_bytes;       // of the comm hook
    size_t memory_bytes;     // all of one rank, its share of that
    size_t shadow_bytes;     // of the checkpointer, on the device
    size_t device_bytes;     // state, arena, scratch, shadow of a device; else they are in memory
    struct td_estimate step; // how long one takes
    double flops_per_step;   // of one optimizer step of this rank
    int64_t samples;         // of the training set
    int64_t batches_per_epoch, steps_per_epoch, total_steps; // total 0: no limit known
    char slow[TD_SIZES_SLOW]; // nodes that run on plain loops, as a sentence; "": none
};
// Does the checkpointer have a shadow (checkpoint.h)?
bool td_sizes_shadows(const struct td_rank *r);
TD_MUST_USE td_status td_sizes_measure(const struct td_rank *r, struct td_sizes *out_sizes);
// The length of the run from where it starts (td_start_check), which a plan learns last.
void td_sizes_start_at(const struct td_rank *r, const struct td_progress *start,
                       struct td_sizes *sizes);

// Levels to try, in order. INVALID_ARGUMENT: trainer.recompute is none of them.
TD_MUST_USE td_status td_sizes_levels(const struct td_rank *r, enum td_recompute *out_first,
                                      enum td_recompute *out_last);
// Whether the programs as they are now fit.
TD_MUST_USE td_status td_sizes_fit(const struct td_rank *r, bool *out_fits);
// They do not: FAILED_PRECONDITION, class out_of_memory, with the bytes and the knobs that help.
TD_MUST_USE td_status td_sizes_refuse(const struct td_rank *r);
// "2 nodes run on plain loops on cpu (...), correct but slow: matmul f64 ...": n of them, which
// ones.
void td_sizes_say_slow(const struct td_rank *r, uint32_t n, const char *names,
                       char out_text[TD_SIZES_SLOW]);
// What is really held, as one event "memory" with the members of the plan's result.
TD_MUST_USE td_status td_sizes_announce(const struct td_rank *r);

#endif
