#ifndef TRAIND_COLLECTIVE_H
#define TRAIND_COLLECTIVE_H

// Collective: how ranks exchange data. Backends: local (one rank), shm (ranks of one node).
//
// Every call has a deadline and is entered by all ranks in the same order; one that cannot be
// (memory, type, rank) is INVALID_ARGUMENT before anybody is waited for. Buckets of gradients are
// where the facts of a backend say that it takes them. All other data is host memory. The reduction
// order is fixed (rank 0 first), so results are the same bits on every rank and in every run. A
// peer's death flips the abort word: all ranks leave within microseconds with ABORTED (class
// collective). After an error the attempt is over; nothing here retries. The reduce op is always
// named; a gather always stacks: a new leading dimension of size world; scalars stay scalars.
// Thread: the training thread; abort may be called from any. all_reduce_bucket, wait_buckets and
// what a strategy calls in reduce_gradients come from the thread that runs the accelerator's queue.
// The training thread makes no call meanwhile.
// Ownership: the mapping and what a call is handed are the caller's. Errors: status; data of a call
// that failed has no known content.

#include "traind/bucket.h"
#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Integers are exact: sums and products wrap, a mean is the exact sum divided, truncated toward 0.
// bf16 and f16 are computed in f32 and rounded once. bool takes MAX (any) and MIN (all) alone.
enum td_reduce_op {
    TD_REDUCE_SUM,
    TD_REDUCE_MEAN,
    TD_REDUCE_MAX,
    TD_REDUCE_MIN,
    TD_REDUCE_PRODUCT,
};

struct td_collective_config {
    uint32_t struct_bytes;
    int32_t rank, world_size;
    int64_t timeout_ns; // of every call
    void *shared;       // shm: mapping of the group, from the launcher (control + gradients)
    size_t shared_bytes;
    bool (*aborted)(void *arg); // (optional) asks whether the attempt is over
    void *aborted_arg;
};

// What all_reduce_bucket takes. One of the first two at least. With both, gradients stay where the
// accelerator has them. With on_host alone those of a device are copied to the host and back.
struct td_collective_facts {
    uint32_t struct_bytes;
    bool on_host;    // buckets in host memory
    bool on_device;  // buckets in memory of the accelerator's device, reduced on its stream
    bool recordable; // what is queued on a stream may be recorded once, and replayed
};

struct td_collective; // the backend's own

struct td_collective_ops {
    uint32_t struct_bytes;
    // Always the same; before a group is joined, too. out_facts comes with struct_bytes set and all
    // else 0.
    td_status (*facts)(struct td_collective_facts *out_facts);
    // Bytes of shared mapping needed for a group with so many bytes of gradients a rank; 0 if none.
    size_t (*shared_bytes)(int32_t world_size, size_t gradient_bytes);
    // Makes this rank's part of the group, for leave; the mapping has to live until then. Waits for
    // nobody. Errors: FAILED_PRECONDITION when the mapping is absent or too small, ABORTED when the
    // group is over.
    td_status (*join)(const struct td_collective_config *config, struct td_collective **out_c);
    void (*leave)(struct td_collective *c); // accepts NULL
    // This rank's gradient region inside the shared mapping, where gradients are born; NULL and 0
    // when the backend has none and the caller brings its own memory. Borrowed until leave.
    td_status (*gradients)(struct td_collective *c, void **out_data, size_t *out_bytes);
    // In place over n elements at data. fp32 data may lie in the gradient region (no copy then).
    td_status (*all_reduce)(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                            enum td_reduce_op op);
    // In place over a bucket: the mean of its elements, the sum of its control flags. Memory that
    // the facts do not name is INVALID_ARGUMENT.
    td_status (*all_reduce_bucket)(struct td_collective *c, const struct td_bucket *bucket);
    // (optional) Completes all buckets of all_reduce_bucket since the last call, which may be none.
    // On a device: for what is queued on the stream from then on. Absent: a bucket is done when
    // all_reduce_bucket returns.
    td_status (*wait_buckets)(struct td_collective *c);
    // out has world * bytes; rank r's part at r * bytes. in and out do not overlap.
    td_status (*all_gather)(struct td_collective *c, const void *in, size_t bytes, void *out);
    // data holds `bytes` on every rank: those of rank src are copied to all others.
    td_status (*broadcast)(struct td_collective *c, void *data, size_t bytes, int32_t src);
    // Returns when all ranks have come. tag: the same on all of them; an error names it.
    td_status (*barrier)(struct td_collective *c, const char *tag);
    // Ends the group: calls that wait and all later ones give ABORTED. From any thread, also twice.
    void (*abort)(struct td_collective *c);
};

#ifdef __cplusplus
}
#endif
#endif
