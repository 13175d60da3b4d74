#ifndef TRAIND_STRATEGIES_COLLECTIVE_COLLECTIVE_H
#define TRAIND_STRATEGIES_COLLECTIVE_COLLECTIVE_H

// The group: one rank's membership in a collective, and the checked door to its backend.
//
// A backend (traind/collective.h) trusts its arguments. Everybody else calls the functions below:
// they refuse what no backend could do (a dtype that has no sum, a size that overflows, a source
// outside the world), and a group that was not joined is an error, not a crash. Behind the checks
// is one indirect call.
//
// What every backend computes, to the bit:
//   order   rank 0 + rank 1 + rank 2 ..., left to right, whoever computes it
//   f32 f64 in their own precision; mean = sum / world, correctly rounded
//   bf16 f16 accumulated in f32, divided there, rounded once (nearest, ties to even)
//   i32 i64 u8  sums wrap; mean is the exact sum (128 bits) divided, truncated toward zero
//   bool    max is "any", min is "all"; sum and mean are refused
//   max min a NaN on any rank gives NaN
//
// Errors: INVALID_ARGUMENT a bad call; FAILED_PRECONDITION ranks disagree about the call;
//         DEADLINE_EXCEEDED some ranks did not arrive (they are named); ABORTED a peer is gone.
//         The last three have class collective and end the attempt.
// Thread: the training thread; td_collective_abort from any.

#include "lib/base/buf.h"
#include "traind/collective.h"
#include "traind/plugin.h"

extern const struct td_plugin_desc td_collective_local; // world 1: identity
extern const struct td_plugin_desc td_collective_shm;   // ranks of one node

enum { TD_COLLECTIVE_MAX_WORLD = 1024 }; // of one group

struct td_collective_group {
    const struct td_collective_ops *ops; // NULL: not joined
    struct td_collective *c;
    int32_t rank, world_size;
};

// What every backend's join checks first: the struct's size, rank, world and timeout.
TD_MUST_USE td_status td_collective_check_config(const struct td_collective_config *config);
// And every backend's all_reduce: is there such a reduction, of so many elements, in memory.
TD_MUST_USE td_status td_collective_check_reduce(const void *data, int64_t n, enum td_dtype dtype,
                                                 enum td_reduce_op op);

// On failure the group stays not joined. leave accepts such a group and NULL, and may be repeated.
TD_MUST_USE td_status td_collective_join(const struct td_plugin_desc *backend,
                                         const struct td_collective_config *config,
                                         struct td_collective_group *out_group);
void td_collective_leave(struct td_collective_group *g);
void td_collective_abort(struct td_collective_group *g);

// Where this rank's gradients are born; NULL and 0 when the backend has no place of its own.
TD_MUST_USE td_status td_collective_gradients(struct td_collective_group *g, void **out_data,
                                              size_t *out_bytes);
TD_MUST_USE td_status td_collective_all_reduce(struct td_collective_group *g, void *data, int64_t n,
                                               enum td_dtype dtype, enum td_reduce_op op);
// Mean of n elements, sum of the fp32 control tail behind them.
TD_MUST_USE td_status td_collective_all_reduce_bucket(struct td_collective_group *g, void *data,
                                                      int64_t n, enum td_dtype dtype,
                                                      int64_t n_tail);
TD_MUST_USE td_status td_collective_all_gather(struct td_collective_group *g, const void *in,
                                               size_t bytes, void *out);
// Parts of different sizes: appends them to out in the order of the ranks; out_bytes[world].
TD_MUST_USE td_status td_collective_all_gather_uneven(struct td_collective_group *g, const void *in,
                                                      size_t bytes, struct td_buf *out,
                                                      size_t *out_bytes);
TD_MUST_USE td_status td_collective_broadcast(struct td_collective_group *g, void *data,
                                              size_t bytes, int32_t src);
TD_MUST_USE td_status td_collective_barrier(struct td_collective_group *g, const char *tag);

#endif
