#ifndef TRAIND_SUM_H
#define TRAIND_SUM_H

// Sum: what ranks exchange in the middle of a program.
//
// A program has nodes that begin sums, and an await node for each. An accelerator lists them when
// it compiles the program (td_sums_create) and hands each to the callbacks of its bindings
// (traind/accelerator.h). A range of `out` is what the sum leaves; one of `in` has this rank's
// part. Where both are the same range the sum is in place.
//
//   kind            in               out
//   all_reduce      a bucket         its mean over the world, and the sum of its control flags
//   reduce_scatter  tensors          of each this rank's piece of that mean, and the flags' sum
//   all_gather      tensors          whole, of which each rank had its piece
//   rank_sum        a value          the sum of those of the ranks, where the program has it
//
// A range of a tensor that is split has all its pieces, one after the other, and what is past the
// tensor's end. Rank r's is the r-th of n_pieces equal parts.
//
// Ranges are in the buffers of the bindings. An accelerator that keeps values elsewhere writes its
// own there, and its stream, before the first run; all else is as it was made.
//
// Ownership: a td_sum lives as long as its list, which the accelerator destroys with the
// executable; callbacks may keep the pointer until then. Thread: of the list, the training thread;
// of a td_sum while a run lasts, that of the accelerator's queue.

#include "traind/buffer.h"
#include "traind/graph.h"
#include "traind/status.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// How parts become one. Integers are exact: sums and products wrap, a mean is the exact sum
// divided, truncated toward 0. bf16 and f16 are computed in f32 and rounded once. bool takes MAX
// (any) and MIN (all) alone.
enum td_reduce_op {
    TD_REDUCE_SUM,
    TD_REDUCE_MEAN,
    TD_REDUCE_MAX,
    TD_REDUCE_MIN,
    TD_REDUCE_PRODUCT,
};

enum td_sum_kind {
    TD_SUM_ALL_REDUCE,
    TD_SUM_REDUCE_SCATTER,
    TD_SUM_ALL_GATHER,
    TD_SUM_RANK_SUM,
    TD_SUM_KINDS,
};

struct td_sum_range {
    struct td_buffer buffer;
    size_t offset; // bytes from the start of the buffer
    int64_t n;     // elements of the sum's type
};

// When a sum was launched on its stream, when it began there, and when it was done: a word each,
// in host memory, that grows. Reserved: all are NULL.
enum td_sum_mark { TD_SUM_LAUNCHED, TD_SUM_BEGUN, TD_SUM_DONE, TD_SUM_MARKS };

struct td_sum {
    uint32_t struct_bytes;
    enum td_sum_kind kind;
    td_node node;   // of the program's graph, which begins it
    uint32_t index; // the bucket that they are of, or whose parameters; rank_sum: 0
    const struct td_sum_range *in, *out;
    uint32_t n_in, n_out;
    int32_t n_pieces;    // of each range; 0: it has none
    enum td_dtype dtype; // of all ranges
    enum td_reduce_op op;
    int32_t group;   // 0: the world; other ones are reserved
    void *stream;    // the accelerator's, to queue the work on; NULL: it has none
    bool on_host;    // the callbacks read and write host memory, or copy by themselves
    bool recordable; // what they queue on the stream may be recorded once, and replayed instead
    volatile uint64_t *mark[TD_SUM_MARKS];
};

// The memory of a range; NULL: it is no host memory.
static inline void *td_sum_range_host(const struct td_sum_range *r) {
    char *host = (char *)td_buffer_host(r->buffer);
    return host ? host + r->offset : NULL;
}

struct td_program;
struct td_bindings;
struct td_sums;
// The sums of a program, for td_sums_destroy; none where the bindings have no collective. Both are
// read until it returns. Errors: RESOURCE_EXHAUSTED.
TD_MUST_USE td_status td_sums_create(const struct td_program *p, const struct td_bindings *b,
                                     struct td_sums **out_sums);
void td_sums_destroy(struct td_sums *s); // accepts NULL
// That of a node which begins one, or awaits it; NULL: the node is another one.
struct td_sum *td_sums_at(const struct td_sums *s, td_node n);
const char *td_sum_kind_name(enum td_sum_kind k); // "all_reduce"
td_op_id td_sum_kind_op(enum td_sum_kind k);      // of the nodes that begin one

#ifdef __cplusplus
}
#endif
#endif
