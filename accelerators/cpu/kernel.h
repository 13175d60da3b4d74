#ifndef TRAIND_ACCELERATORS_CPU_KERNEL_H
#define TRAIND_ACCELERATORS_CPU_KERNEL_H

// Kernel: one step of a compiled program. What a family of kernels is shown when a node is
// compiled, and what it is given when the node runs.

#include "accelerators/cpu/kernels/reorder.h"
#include "accelerators/cpu/layout.h"
#include "traind/buffer.h"
#include "traind/graph.h"
#include "traind/sum.h"

struct td_gemm;  // gemm.h
struct td_packs; // packs.h

// Where a value is: a fixed address, or an input slot of the run.
struct td_operand {
    char *base; // NULL: input
    uint32_t slot;
};

struct td_run {
    const struct td_buffer *inputs;
    struct td_packs *packs; // the accelerator's packed weights
    void *scratch; // the accelerator's, for what a kernel needs while it runs (scratch_bytes)
    int64_t image; // of kernels that run part by part: the first of this part
};

static inline void *td_operand_at(const struct td_operand *o, const struct td_run *r) {
    // Inputs are read only; kernels never write through an input operand.
    return o->base ? o->base : td_buffer_host(r->inputs[o->slot]);
}

struct td_kernel;
typedef td_status td_kernel_fn(const struct td_kernel *k, const struct td_run *r);

struct td_kernel {
    td_kernel_fn *run;
    uint64_t runs; // that have been, and the time they took
    int64_t ns;
    td_node node; // UINT32_MAX: none
    td_op_id op;
    const char *name; // of the op
    enum td_segment segment;
    int32_t n_threads;
    uint32_t n_in, n_out;
    struct td_operand *in;             // [n_in]; these three are one allocation
    struct td_shape *shape;            // of the operands
    enum td_dtype *in_dtype;           // of the operands
    const void *param;                 // that it writes whole, NULL: none
    bool writes_pieces;                // of parameters, or brings them together
    int64_t first;                     // element of the tensor that it writes first, of a piece
    struct td_operand out[TD_MAX_OUT]; // results, or the state tensor that it writes into
    struct td_shape out_shape;         // of the first result
    enum td_dtype out_dtype[TD_MAX_OUT];
    struct td_attrs attrs;
    int64_t rows, cols;          // of the first operand: last dim, and all others together
    int64_t elems;               // of the output
    enum td_layout_need need;    // set by the family
    enum td_image_layout layout; // of its images, where it takes any
    int64_t part;                // images of a part (parts.h); 0: all at once
    uint32_t joined;             // kernels after this one that run part by part with it
    size_t scratch_bytes;
    bool slow; // loops that nobody made fast: correct, and reported (kernel_at)
    void *own; // what else the kernel needs, and its destructor
    void (*destroy_own)(void *own);
    struct td_gemm *gemm;
    struct td_reorder reorder; // of a bridge
    const double *scalars;     // step scalars
    const uint32_t *random;    // and random words
    const struct td_sum *sum;  // over ranks, that it begins or awaits; NULL: none
    td_status (*collective)(void *arg, const struct td_sum *sum);
    td_status (*collective_wait)(void *arg, const struct td_sum *sum);
    void *collective_arg;
};

// A family of kernels: looks at k's op, types, shapes and attributes and, if the node is one of its
// own, sets k->run and what that needs (scratch_bytes; own). Everything else of k is filled in.
typedef td_status td_kernel_family(struct td_kernel *k);

// A row of a family's table: the op, and what runs it. Families know ops by name: a number changes
// with every op that is put before it, and each kernel would be compiled again for each level.
struct td_kernel_row {
    const char *op;
    td_kernel_fn *run;
};
// What the row of k's op says; NULL: there is none.
td_kernel_fn *td_kernel_of(const struct td_kernel *k, const struct td_kernel_row *rows, size_t n);
#define TD_KERNEL_OF(k, rows) td_kernel_of(k, rows, TD_COUNTOF(rows))
// True if k's op is the one of that name.
bool td_kernel_is(const struct td_kernel *k, const char *op);

// Is the value one of the program's outputs?
bool td_kernel_is_output(const struct td_graph *g, td_value v);
// True if all operands and results are of one type that kernels/convert.h takes.
bool td_kernel_narrow(const struct td_kernel *k);
// True if all operands and results are of type t.
bool td_kernel_all(const struct td_kernel *k, enum td_dtype t);

#endif
