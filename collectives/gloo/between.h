#ifndef TRAIND_COLLECTIVES_GLOO_BETWEEN_H
#define TRAIND_COLLECTIVES_GLOO_BETWEEN_H

// Between: what the nodes of an attempt do together. One rank of each node calls.
//
// Each call begins with open: every node sends every other a frame, which says what it came for and
// carries data that is small. Frames are compared, so nodes that came for different calls say so
// instead of computing something. Frames of one size are always expected, whatever the call: no
// node receives more than it has room for. Only then follow slices, whose sizes all nodes now agree
// on. Only the first piece of a large sum goes with the frames, which saves a round trip. There is
// room for the largest slice of one, whatever its sender came for. Where calls differ it is
// dropped.
//
// Sums: the partial sums of all nodes are added in the order of the nodes, for each element. Where
// they fit a frame, each node gets all of them and adds up for itself. So it is where there are two
// nodes, and room for all of it (1.5 MiB): a round a piece. Else node p gets slice p of each, adds
// up, and gives the result to all: two rounds, and 2 (n - 1) / n of the bytes. All ways give the
// same bits. Data goes in pieces; the next is on its way while one is added up.
//
// Two nodes could do with one round at any size. Both ways send the same bytes. In two rounds a
// node adds up half of the elements, which leaves time of its cores to the backward pass; 43 MB
// were 7 % faster so. In one, a sum has a round less at its end: at 1 Gbit/s one round was 4 to 7 %
// faster from 2 to 8 MiB (docs/measurements.md).
//
// What crosses has the type of the data. 16-bit floats are added in fp32, and rounded once; where
// they are sums already, the caller gives them as fp32 (hierarchy_reduce.c).
// Deadlines: seven eighths of those that are given, so that the error which names a node comes
// before those of ranks that wait for their leader.
// Bounds: two pieces of 4 MiB at most, the frames, and in reduce_own this node's elements of each
// node. Thread: one at a time.
// Errors: those of gloo.h and mesh.h; FAILED_PRECONDITION (class user_code) with both calls and
// nodes. Every error is the end of the group.

#include "collectives/gloo/gloo.h"
#include "collectives/gloo/mesh.h"
#include "collectives/gloo/wire.h"
#include "traind/collective.h"

// Elements that are reduced: sums are divided by `divisor` where op is MEAN.
struct td_between_part {
    void *data;
    int64_t n;
    enum td_dtype dtype;
    enum td_reduce_op op;
    int32_t divisor;
};

struct td_between;

struct td_between_config {
    struct td_mesh_config mesh;
    struct td_collective_deadline deadline; // of a call, until set_deadline
};

// Waits for nobody. config is borrowed until destroy.
TD_MUST_USE td_status td_between_create(const struct td_between_config *config,
                                        struct td_between **out_b);
void td_between_destroy(struct td_between *b); // accepts NULL
// Of calls that begin from now on. Borrowed. From any thread.
void td_between_set_deadline(struct td_between *b, const struct td_collective_deadline *deadline);
// Connects, once. out_places (n_nodes).
TD_MUST_USE td_status td_between_connect(struct td_between *b, struct td_mesh_place *out_places);

// Begins a call: compares it, and exchanges `bytes` (at most TD_BETWEEN_INLINE) of each node. Its
// deadline starts. Those of node p: td_between_inline(b, p), until the next open.
TD_MUST_USE td_status td_between_open(struct td_between *b, const struct td_between_call *call,
                                      const void *data, size_t bytes);
const void *td_between_inline(const struct td_between *b, int32_t node);
// A round of a call that is open: slices to and from each node (n_nodes).
TD_MUST_USE td_status td_between_exchange(struct td_between *b, const struct td_gloo_slice *to,
                                          const struct td_gloo_slice *from);
// Opens the call and reduces parts in place: data of all nodes, in the order of the nodes. The
// first may have any size; later ones fit a frame together (control flags).
TD_MUST_USE td_status td_between_all_reduce(struct td_between *b,
                                            const struct td_between_call *call,
                                            const struct td_between_part *parts, int n_parts);
// Of a call that is open: the elements from bounds[node] to bounds[node + 1] are reduced in place,
// others have no known content after it. bounds (n_nodes + 1).
TD_MUST_USE td_status td_between_reduce_own(struct td_between *b,
                                            const struct td_between_part *part,
                                            const int64_t *bounds);

#endif
