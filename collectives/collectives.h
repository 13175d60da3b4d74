#ifndef TRAIND_COLLECTIVES_COLLECTIVES_H
#define TRAIND_COLLECTIVES_COLLECTIVES_H

// The in-tree collectives, all of traind/collective.h, and what they have in common. In reading
// order:
//
//   collectives.h  what every backend computes and refuses
//   local.c       one rank: every call is the identity
//   shm.h         the ranks of one node, in a shared mapping; its calls are in shm_reduce.c,
//                 shm_move.c, shm_pair.c and shm_groups.c
//   shm_team.h    how these ranks wait for each other
//   works.h       calls that were started, and the thread that makes them
//   trace.c       writes down the calls of another backend
//   gloo/         ranks of several nodes, a plugin of its own (collectives/gloo/gloo.h)
//   reduce.h      sums of one slice over all ranks; reduce_loops.h: their loops
//
// What every backend computes, to the bit:
//   order   rank 0 + rank 1 + rank 2 ..., left to right, whoever computes it
//   f32 f64 in their own precision; mean = sum / world, correctly rounded
//   bf16 f16 accumulated in f32, divided there, rounded once (nearest, ties to even)
//   i32 i64 u8  sums and products wrap; mean is the exact sum (128 bits) divided, truncated toward
//   0 bool    max is "any", min is "all"; sum, mean and product are refused max min a NaN on any
//   rank gives NaN
//
// Errors: INVALID_ARGUMENT a bad call, by the checks below, before any rank is waited for;
//         FAILED_PRECONDITION ranks disagree about the call;
//         DEADLINE_EXCEEDED some ranks did not arrive (they are named); ABORTED a peer is gone.
//         The last three end the attempt. A disagreement has class user_code, as the program is
//         wrong and would be again; the others have class collective.
// Thread: one at a time; abort and set_deadline from any. The checks are pure.

#include "traind/bucket.h"
#include "traind/collective.h"
#include "traind/descriptor.h"

extern const struct td_plugin_desc td_collective_local; // world 1: identity
extern const struct td_plugin_desc td_collective_shm;   // ranks of one node
extern const struct td_plugin_desc td_collective_trace; // wraps another

enum { TD_COLLECTIVE_MAX_WORLD = 1024 }; // of one group

// The slot `facts` of both: buckets in host memory, and nowhere else; every call.
TD_MUST_USE td_status td_collective_host_facts(struct td_collective_facts *out_facts);

// What a backend refuses at each slot (`call` names it): a struct of another build, a dtype that
// has no such reduction, a size that overflows. Also: no memory, a source outside the world.
TD_MUST_USE td_status td_collective_check_config(const struct td_collective_config *config);
TD_MUST_USE td_status td_collective_check_reduce(const char *call, const void *data, int64_t n,
                                                 enum td_dtype dtype, enum td_reduce_op op);
// A bucket that is not host memory, is not inside its buffer, or has its flags off their place; the
// error names it. out_data: where it begins.
TD_MUST_USE td_status td_collective_check_bucket(const struct td_bucket *b, char **out_data);
TD_MUST_USE td_status td_collective_check_gather(const void *in, size_t bytes, const void *out,
                                                 int32_t world);
TD_MUST_USE td_status td_collective_check_broadcast(const void *data, size_t bytes, int32_t src,
                                                    int32_t world);
TD_MUST_USE td_status td_collective_check_reduce_scatter(const void *in, const void *out, int64_t n,
                                                         enum td_dtype dtype, enum td_reduce_op op,
                                                         int32_t world);
// Memory of `ins` and `outs` parts of so many bytes, where those are not 0, and a world of them.
TD_MUST_USE td_status td_collective_check_parts(const char *call, const void *in, int32_t ins,
                                                const void *out, int32_t outs, size_t bytes,
                                                int32_t world);
TD_MUST_USE td_status td_collective_check_uneven(const void *in, size_t bytes, const void *out,
                                                 size_t out_bytes, const size_t *counts);
// call: "send to"
TD_MUST_USE td_status td_collective_check_rank(const char *call, int32_t rank, int32_t world);
TD_MUST_USE td_status td_collective_check_group(const int32_t *ranks, int32_t n_ranks,
                                                int32_t world);
// The call that start is to begin: the checks of the slot of that name.
TD_MUST_USE td_status td_collective_check_start(const struct td_collective_start *call,
                                                int32_t world);
// "within 60.000 s (trainer.collective_timeout)", written into out, which is returned.
enum { TD_COLLECTIVE_WITHIN = 128 };
const char *td_collective_within(const struct td_collective_deadline *deadline,
                                 char out[TD_COLLECTIVE_WITHIN]);
// What every backend says of a group that cannot be.
td_status td_collective_fail_group_exists(int32_t n_ranks);
td_status td_collective_fail_too_many_groups(void);
td_status td_collective_fail_nested_group(void);
td_status td_collective_fail_foreign_group(void);
td_status td_collective_fail_open_handles(int n_open); // of a group that is to be destroyed
td_status td_collective_fail_too_many_handles(const struct td_collective_start *call);
td_status td_collective_fail_foreign_handle(const char *call); // call: "wait"

#endif
