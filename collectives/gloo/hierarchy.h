#ifndef TRAIND_COLLECTIVES_GLOO_HIERARCHY_H
#define TRAIND_COLLECTIVES_GLOO_HIERARCHY_H

// Hierarchy: the collective of ranks on several nodes.
//
// The ranks of a node are a group of the shared-memory collective. Its first rank, the leader, is
// one of the nodes' group (between.h), too. A call goes inside the node to the leader, between the
// leaders, and back. A node of one rank has no group in shared memory, and its rank leads it.
//
// Order of sums: the ranks of a node in order, then these partial sums in the order of the nodes,
// in the precisions that collectives.h states. The mean of integers is exact: all elements go to
// all ranks, and each adds up for itself.
//
// Nodes connect at the first call, so join waits for nobody. Copies between ranks of several nodes
// go in chunks of SCRATCH_BYTES; gradients and broadcasts go from and to where they are.
//
// Deadlines: nodes wait for each other seven eighths of the timeout. The ranks of a node have all
// of it, so the error that names a node comes before those of ranks that wait for their leader.
// Failure is sticky in both groups. A leader that fails wakes the ranks of its node, and its
// connections end, which wakes the other leaders.
// Not served: send and recv, of which a leader knows nothing; groups of some ranks.
// Thread: one at a time; abort and set_deadline from any.

#include <stdatomic.h>

#include "collectives/collectives.h"
#include "collectives/gloo/between.h"
#include "collectives/works.h"

enum { TD_HIERARCHY_SCRATCH_BYTES = 1 << 20 };

struct td_collective {
    struct td_between_config config;
    bool (*aborted)(void *arg);
    void *aborted_arg;
    _Atomic bool is_over; // this rank gave up, or was made to
    int32_t rank, world, node, n_nodes, local_rank, n_local;
    const struct td_collective_ops *ops; // of the ranks of this node
    struct td_collective *local;         // they; NULL: this rank is alone on its node
    struct td_between *between;          // on the leader
    struct td_mesh_place *places;        // (n_nodes), once connected
    bool is_connected;
    struct td_works *works;          // what was started; NULL: nothing ever was
    char *scratch[2];                // (TD_HIERARCHY_SCRATCH_BYTES)
    struct td_gloo_slice *to, *from; // (n_nodes): scratch
    void **parts;                    // (world): scratch
};

static inline bool td_hierarchy_leads(const struct td_collective *c) {
    return c->local_rank == 0;
}

// ---- hierarchy_call.c
// Whatever was begun is done, the nodes are connected, and the ranks of this node came for the same
// call. Each call begins with it.
TD_MUST_USE td_status td_hierarchy_enter(struct td_collective *c,
                                         const struct td_between_call *call);
// The end of the group, from any thread; and where s is an error, returns s.
void td_hierarchy_abort(struct td_collective *c);
TD_MUST_USE td_status td_hierarchy_failed(struct td_collective *c, td_status s);
// Inside the node: from each rank to the leader; from the leader to each; the leader's to all.
TD_MUST_USE td_status td_hierarchy_collect(struct td_collective *c, const void *in, size_t bytes,
                                           void *out);
TD_MUST_USE td_status td_hierarchy_deal(struct td_collective *c, const void *in, size_t bytes,
                                        void *out);
TD_MUST_USE td_status td_hierarchy_spread(struct td_collective *c, void *data, size_t bytes);
// Elements of each of `parts` equal parts that fit the scratch together.
size_t td_hierarchy_chunk(size_t parts, size_t elem_bytes);

// ---- hierarchy_move.c
// After enter: out gets `bytes` of each rank. call: what the nodes compare.
TD_MUST_USE td_status td_hierarchy_gather_all(struct td_collective *c,
                                              const struct td_between_call *call, const void *in,
                                              size_t bytes, void *out);
td_status td_hierarchy_all_gather(struct td_collective *c, const void *in, size_t bytes, void *out);
td_status td_hierarchy_broadcast(struct td_collective *c, void *data, size_t bytes, int32_t src);
td_status td_hierarchy_barrier(struct td_collective *c, const char *tag);
td_status td_hierarchy_gather(struct td_collective *c, const void *in, size_t bytes, void *out,
                              int32_t dst);
td_status td_hierarchy_scatter(struct td_collective *c, const void *in, size_t bytes, void *out,
                               int32_t src);
td_status td_hierarchy_all_gather_uneven(struct td_collective *c, const void *in, size_t bytes,
                                         void *out, size_t out_bytes, size_t *counts);
td_status td_hierarchy_all_to_all(struct td_collective *c, const void *in, size_t bytes, void *out);

// ---- hierarchy_reduce.c
td_status td_hierarchy_all_reduce(struct td_collective *c, void *data, int64_t n,
                                  enum td_dtype dtype, enum td_reduce_op op);
td_status td_hierarchy_all_reduce_bucket(struct td_collective *c, const struct td_bucket *b);
td_status td_hierarchy_reduce(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                              enum td_reduce_op op, int32_t dst);
td_status td_hierarchy_reduce_scatter(struct td_collective *c, const void *in, void *out, int64_t n,
                                      enum td_dtype dtype, enum td_reduce_op op);

#endif
