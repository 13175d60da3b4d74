#ifndef TRAIND_COLLECTIVES_GLOO_GLOO_H
#define TRAIND_COLLECTIVES_GLOO_GLOO_H

// The plugin of ranks on several nodes: ranks of a node meet in shared memory, one of each node in
// Gloo. In reading order:
//
//   gloo.h         carries slices between nodes; gloo.cc is the one file that knows libgloo
//   wire.h         what goes over these connections, and keys of the store
//   mesh.h         connections between nodes
//   between.h      calls and sums between nodes
//   hierarchy.h    the backend: inside a node, between nodes, and back
//   hierarchy_reduce.c, hierarchy_move.c  its calls that compute, and those that copy
//   hierarchy_call.c  what these are made of
//
// Gloo: rounds of slices, from and to each other node. It adds nothing up and chooses no order: all
// that is computed is traind's, so every rank has the same bits.
//
// A round is begun, which posts its slices, and ended, which waits for them; several may be open. A
// round has a tag that no other has. Everything that C++ throws ends in gloo.cc as a status.
//
// A connection that ends while a round waits for it gives ABORTED with the node and why: at once,
// or after a second where the slice had begun to come. What ends otherwise gives ABORTED after five
// seconds, unless the round is done by then. A node that has made its last call leaves while others
// still finish theirs, and what they wait for may have to be sent again. Gloo's thread and the
// watching one have no signals, and a connection that breaks never raises SIGPIPE.
//
// Thread: one at a time. Ownership: slices are the caller's, and stay until the
// round has ended. Bounds: memory is the caller's; per slice there is one small object of Gloo.

#include "traind/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_gloo;
struct td_gloo_round;

struct td_gloo_config {
    int32_t node, n_nodes;
    const char *const *names;   // (n_nodes); NULL: numbers alone
    bool (*aborted)(void *arg); // the group is over: ends all connections. Asked by a thread
    void *aborted_arg;
};

struct td_gloo_slice {
    void *data; // of a slice that is sent: only read
    size_t bytes;
};

// take_fds (n_nodes): connected sockets, -1 for this node; taken in any case.
// Errors: ABORTED a connection has ended already, with the node; RESOURCE_EXHAUSTED; INTERNAL what
// libgloo says.
TD_MUST_USE td_status td_gloo_create(const struct td_gloo_config *config, const int *take_fds,
                                     struct td_gloo **out_g);
// Posts what goes to and comes from each other node (n_nodes; those of this node are not read, and
// slices of 0 bytes neither sent nor waited for). What comes has at most as many bytes as its
// slice. Errors: ABORTED a node is gone, by its number; RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_gloo_begin(struct td_gloo *g, uint64_t tag, const struct td_gloo_slice *to,
                                    const struct td_gloo_slice *from,
                                    struct td_gloo_round **out_round);
// Waits for all of it, until deadline_ns of the monotonic clock; the round is gone whatever is
// returned. NULL does nothing. Errors: ABORTED, DEADLINE_EXCEEDED, with the node. Both end all
// connections: nothing goes on after them.
TD_MUST_USE td_status td_gloo_end(struct td_gloo *g, struct td_gloo_round *take_round,
                                  int64_t deadline_ns);
// Waits for none of it, and leaves its slices alone from now on: what comes for them stays where it
// is. So nothing goes on after it, either. NULL does nothing.
void td_gloo_drop(struct td_gloo_round *take_round);
void td_gloo_destroy(struct td_gloo *g); // accepts NULL; all rounds have ended

#ifdef __cplusplus
}
#endif
#endif
