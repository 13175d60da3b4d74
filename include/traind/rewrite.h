#ifndef TRAIND_REWRITE_H
#define TRAIND_REWRITE_H

// Rewrite: the calls with which a precision or a strategy changes a recorded graph.
//
// A rewrite runs between autodiff and the optimizer pass, once per program. It adds nodes with the
// builder of graph.h at a place it chooses here, gives nodes other operands, assigns gradients to
// buckets and inserts the collectives. What it may not do is leave a value read before it is made:
// the pipeline verifies the graph after every pass and fails with INTERNAL naming pass and node.
// Thread: that of the graph. Ownership: the graph keeps copies of operands and attributes; all else
// is borrowed until the call returns. Buckets and stored types belong to the state table.
// Errors: INVALID_ARGUMENT for a value or node that the graph does not have, RESOURCE_EXHAUSTED for
// memory; others are said at each call. A graph whose rewrite failed is only good to destroy.

#include "traind/graph.h"
#include "traind/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TD_REWRITE_END = 0x7fffffff };

// Nodes added from now on come before node `at`, in its segment unless set otherwise afterwards;
// TD_REWRITE_END goes back to appending, in the segment of the last node. Nodes after the place are
// renumbered by each addition.
TD_MUST_USE td_status td_rewrite_insert_at(struct td_graph *g, td_node at);

// Gives node n other operands, as many as before, and other attributes; the op stays. Its results
// take the types and shapes that follow, so nodes after it that read them may have to change as
// well. The pipeline verifies the whole when the rewrite is done. attrs: not NULL.
// Errors: INVALID_ARGUMENT, too, when operands or attributes do not fit the op.
TD_MUST_USE td_status td_rewrite_node(struct td_graph *g, td_node n, const td_value *inputs,
                                      const struct td_attrs *attrs);

// Stores the state tensor v in another type than steps name. Every program of the job has to say
// the same of a tensor that it uses. Errors: FAILED_PRECONDITION names one that programs disagree
// about, or that a program changes after memory was laid out.
TD_MUST_USE td_status td_rewrite_state(struct td_graph *g, td_value v, enum td_dtype dtype);

// Splits a state tensor into a piece for each rank of the program. Memory has all pieces, or
// (alone) that of this rank only. Every program of the job says the same of a tensor that it uses.
// Errors: INVALID_ARGUMENT, too, for a tensor of which `alone` is asked and that a node of the
// graph uses whole; FAILED_PRECONDITION as td_rewrite_state.
TD_MUST_USE td_status td_rewrite_split(struct td_graph *g, uint32_t state_index, bool alone);
// Splits each gradient that this graph writes, and its parameter; memory has all pieces.
TD_MUST_USE td_status td_rewrite_split_gradients(struct td_graph *g);

// Reads the step scalar v as f64, exactly, or as f32; no other type will do.
TD_MUST_USE td_status td_rewrite_scalar(struct td_graph *g, td_value v, enum td_dtype dtype);

// Torch's bucket sizes: a small first bucket starts the overlap early.
#define TD_BUCKET_FIRST_BYTES ((size_t)1 << 20)
#define TD_BUCKET_CAP_BYTES   ((size_t)25 << 20)

// Gives each gradient that this graph writes its bucket, in the order of the writes (backward
// order). A bucket is closed when it holds 4096 gradients, or as many bytes as is said: first_bytes
// for the first, cap_bytes for the others. A gradient assigned by an earlier program keeps its
// bucket, so that all variants agree.
// Errors: FAILED_PRECONDITION for a gradient without a bucket after memory was laid out.
TD_MUST_USE td_status td_rewrite_assign_buckets(struct td_graph *g, size_t first_bytes,
                                                size_t cap_bytes);
// Inserts one all_reduce per bucket, right after the last write to a gradient of that bucket or, if
// that is in the forward segment, before the backward one. They are awaited at the end of backward.
// Gradients of a bucket that this graph does not write are operands too: all ranks reduce the same
// bytes. Buckets are reduced in ascending order on every rank. Additions are appended afterwards.
// Errors: FAILED_PRECONDITION when a gradient has no bucket.
TD_MUST_USE td_status td_rewrite_all_reduce(struct td_graph *g);
// As td_rewrite_all_reduce, but of each gradient only this rank's piece is reduced; the others have
// no known content then. Errors: FAILED_PRECONDITION, too, for a gradient that is not split.
TD_MUST_USE td_status td_rewrite_reduce_scatter(struct td_graph *g);
// Inserts one all_gather per bucket, of the parameters of its gradients whose pieces this graph
// writes in its apply segment, after the last of these writes. They are awaited at its end.
TD_MUST_USE td_status td_rewrite_all_gather(struct td_graph *g);

#ifdef __cplusplus
}
#endif
#endif
