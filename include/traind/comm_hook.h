#ifndef TRAIND_COMM_HOOK_H
#define TRAIND_COMM_HOOK_H

// Comm hook: what ranks send of a bucket of gradients, instead of the bucket itself.
//
// A hook takes the place of the mean that a strategy's buckets get: it may send fewer bytes, and
// give something near the mean. `comm_hook` of a job names one. It is called where a program has an
// all_reduce node, in the order of the buckets, the same on all ranks. It reduces by itself, with
// the calls of the collective, and divides by the world where that is what it means.
//
// *Control flags* are none of its business: they are summed apart, exactly.
//
// *State* belongs to one rank, and is never sent to another. state_save gives it at a save.
// state_load takes it back when a run is resumed at the same world size. At another one it is
// dropped, and the job says so. A step that the precision skips (gradients that are not finite)
// leaves it untouched: end_step() says so, and the hook takes back what that step changed.
//
// *Wrappers*: a hook may be handed another one (inner), which it calls with a bucket of its own
// making. It keeps no state itself: slots that have to do with state are called on the inner one.
//
// Slots: (required) unless marked (optional). Ownership: what is handed over is borrowed until the
// call returns, the configuration's pointers until close. Thread: reduce runs on the thread of the
// accelerator's queue, of several nodes on one beside it while the backward pass goes on; one at a
// time. All else runs on the training thread while nothing is queued. Errors: a status
// ends the attempt; one of reduce that names no class is USER_CODE. Outputs are written only on
// success.
// Source: torch.distributed.algorithms.ddp_comm_hooks; Lightning's ddp_comm_hook, ddp_comm_state
// and ddp_comm_wrapper.

#include "traind/bucket.h"
#include "traind/collective.h"
#include "traind/knobs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_comm_hook; // the hook's own
struct td_comm_hook_ops;

// What a hook is opened with. Copy it: the struct dies when open returns.
struct td_comm_hook_config {
    uint32_t struct_bytes;
    int32_t rank, world_size;
    // NULL where a plan asks what the hook will need: then only open, memory and close are called.
    const struct td_collective_ops *collective_ops;
    struct td_collective *collective;
    // The hook that it wraps, which is closed before it; NULL: it wraps none.
    const struct td_comm_hook_ops *inner_ops;
    struct td_comm_hook *inner;
    // Its own knobs, read with traind/knobs.h until open returns; NULL: none were given.
    const struct td_json *knobs;
};

struct td_comm_hook_ops {
    uint32_t struct_bytes;
    // Errors: class bad_spec for knobs that cannot be.
    td_status (*open)(const struct td_comm_hook_config *config, struct td_comm_hook **out_hook);
    void (*close)(struct td_comm_hook *h); // accepts NULL
    // (optional) Host memory in bytes that it will take for n buckets, state and scratch, and how
    // much of it state_save will give at most. They may have no memory yet. Errors: class bad_spec
    // for a type of elements that it cannot take. Absent: 0 and 0.
    td_status (*memory)(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n,
                        size_t *out_bytes, size_t *out_state_bytes);
    // (optional) The buckets that it will be called with, once, before state_load and the first of
    // them. A step of the optimizer reduces each of its buckets once, in ascending order; where a
    // module has several training steps, each has buckets of its own. They live until close.
    // Errors: as memory, and RESOURCE_EXHAUSTED.
    td_status (*place)(struct td_comm_hook *h, const struct td_bucket *buckets, size_t n);
    // In place, over the n elements of a bucket in host memory (td_bucket_host): what the optimizer
    // takes as their mean, with the same bits on all ranks. There are no control flags, and zeros
    // between tensors. Gradients are as the backward pass left them: with `16-mixed` they are
    // scaled. Where gradients of all ranks were finite and what it gives is not, the attempt ends,
    // class numeric; where the precision may skip steps, that step is skipped.
    td_status (*reduce)(struct td_comm_hook *h, const struct td_bucket *bucket);
    // (optional) Where the precision or a strategy's optimizer_step may skip steps: whether the one
    // whose buckets were reduced last is taken. If not, state is again what it was before it. Where
    // none is skipped this is not called, and each step is taken. Absent: the hook has no state
    // that a step changes.
    void (*end_step)(struct td_comm_hook *h, bool taken);
    // (optional) Bytes that this rank has handed to the collective so far, instead of the buckets'
    // own. Absent: unknown.
    uint64_t (*sent_bytes)(const struct td_comm_hook *h);
    // (optional) Its state on this rank, for a checkpoint: at an optimizer-step boundary, on every
    // rank. out_state is borrowed until the next call of the hook, and may be empty. All ranks
    // together may have TD_PLUGIN_STATE_MAX_BYTES (traind/strategy.h). Both or none.
    td_status (*state_save)(struct td_comm_hook *h, struct td_span *out_state);
    // When a run is resumed, on every rank, before the first step, with what this rank saved. data
    // dies when it returns; it is the hook's to check, and DATA_LOSS where it cannot be.
    td_status (*state_load)(struct td_comm_hook *h, const void *data, size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
