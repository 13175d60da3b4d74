#ifndef TRAIND_ACCELERATORS_CPU_CPU_H
#define TRAIND_ACCELERATORS_CPU_CPU_H

// cpu: training on the cores of one machine, a plugin because it brings oneDNN and OpenMP along.
//
//   cpu.c        the ops table: open, memory, copy, run
//   compile.c  a program becomes a list of kernels with resolved operands
//   layout.c   in which order the bytes of images lie
//   product.c  from a matmul node to what gemm.c is asked for
//   gemm.c     one matrix product: who computes it, oneDNN or our own kernel
//   packs.c    weights packed for products
//   memory.c   memory besides arena and state, counted
//   dry_compile.c  what a program would take and choose, without taking
//   tune.c     which way of computing something is the fastest here, measured once
//   parallel.c the one OpenMP loop
//   spin.c     how long threads spin for each other
//   peak.c     what the threads can do at best, measured
//   fallback.c the reference's loops, for nodes that nothing else takes
//   onednn/    products and convolutions by oneDNN: engine, packed weights, algorithms
//   kernels/   everything else: elementwise, reductions, norms, attention, loss, optimizers
//
// A program is compiled to kernels in node order. Arena and state addresses are fixed when it is
// compiled, input addresses come with each run. Work is split over the rank's threads in static
// ranges, so for a given number of threads the bits are always the same. A family of kernels looks
// at the whole node and takes it or leaves it; what all leave (an op, a type) runs on the
// reference's loops, which is correct, slow, and reported (kernel_at). Thread: the rank's training
// thread.

#include "accelerators/cpu/layout.h"
#include "traind/accelerator.h"

enum { TD_CPU_MAX_THREADS = 256 };

struct td_packs; // packs.h
struct td_dnnl;  // onednn.c: oneDNN engine and stream
struct td_gemm;  // gemm.c: one product

// Memory besides arena and state: packed weights, partial results, and one scratch that all kernels
// and primitives share, one at a time.
struct td_room {
    bool pretends;     // sizes are being worked out: nothing is allocated, nothing may be written
    size_t held_bytes; // of all that was taken and not given back
    void *scratch;     // read it when running: compiling another program may move it
    size_t scratch_bytes;
};

struct td_accelerator {
    int32_t n_threads;
    struct td_room room;
    bool detects_anomaly;
    td_node compiles; // the node whose kernel is being made
    struct td_packs *packs;
    struct td_dnnl *dnnl;
    struct td_tune *tune; // tune.h
    struct td_spin *spin; // spin.h; NULL: one thread
};

// Where a value lies: a fixed address, or an input slot of the run.
struct td_operand {
    char *base; // NULL: input
    uint32_t slot;
};

struct td_run {
    const void *const *inputs;
    const struct td_executable *exe;
    void *scratch; // the accelerator's, for what a kernel needs while it runs (scratch_bytes)
};

static inline void *td_operand_at(const struct td_operand *o, const struct td_run *r) {
    // Inputs are read only; kernels never write through an input operand.
    return o->base ? o->base : (void *)(uintptr_t)r->inputs[o->slot];
}

struct td_kernel;
typedef td_status td_kernel_fn(const struct td_kernel *k, const struct td_run *r);

struct td_kernel {
    td_kernel_fn *run;
    uint64_t runs; // that have been, and the time they took
    int64_t ns;
    td_node node; // UINT32_MAX: none
    enum td_op op;
    enum td_segment segment;
    int32_t n_threads;
    uint32_t n_in, n_out;
    struct td_operand *in;             // [n_in]; these three are one allocation
    struct td_shape *shape;            // of the operands
    enum td_dtype *in_dtype;           // of the operands
    const void *param;                 // that it writes, NULL: none
    struct td_operand out[TD_MAX_OUT]; // results, or the state tensor that it writes into
    struct td_shape out_shape;         // of the first result
    enum td_dtype out_dtype[TD_MAX_OUT];
    struct td_attrs attrs;
    int64_t rows, cols;          // of the first operand: last dim, and all others together
    int64_t elems;               // of the output
    enum td_layout_need need;    // set by the family
    enum td_image_layout layout; // of its images, where it takes any
    size_t scratch_bytes;
    bool slow; // correct, but nobody made it fast: kernel_at reports it
    void *own; // what else the kernel needs, and who frees it
    void (*destroy_own)(void *own);
    struct td_gemm *gemm;
    struct td_reorder reorder; // of a bridge
    const double *scalars;     // step scalars
    const uint32_t *random;    // and random words
    td_status (*all_reduce)(void *arg, uint32_t bucket);
    void *all_reduce_arg;
};

struct td_executable {
    uint32_t magic;
    struct td_accelerator *accel;
    struct td_kernel *kernel;
    uint32_t n_kernels;
    const double *scalars;
    float rounded[TD_SCALAR_COUNT]; // step scalars, as values of f32 read them
    size_t bridge_bytes;
    char *bridge; // where reordered images lie, for one node after the other
};
enum { td_executable_magic = 0x43505545 };

// Splits [0, n) into one static range a thread, borders at whole cache lines of fp32, none empty;
// at most n / grain threads. fn(arg, begin, end) runs on each; ranges do not depend on timing.
typedef void td_range_fn(const void *arg, int64_t begin, int64_t end);
void td_parallel(int32_t n_threads, int64_t n, int64_t grain, td_range_fn *fn, const void *arg);
// The same split, for kernels that keep one partial result a range. Returns how many ranges.
int32_t td_parallel_ranges(int32_t n_threads, int64_t n, int64_t grain);
// Splits n large units of work as evenly as they go, wherever the borders are.
void td_parallel_units(int32_t n_threads, int64_t n, td_range_fn *fn, const void *arg);
// Inside fn: which range this is, to find the memory that belongs to it.
int32_t td_parallel_index(void);
// How many threads the team has.
int32_t td_parallel_threads(void);
// Sizes the team and sets flush-to-zero in each of its threads. FAILED_PRECONDITION, class
// bad_spec: the environment allows no team of that size.
TD_MUST_USE td_status td_parallel_open(int32_t n_threads);

// A family of kernels: looks at k's op, types, shapes and attributes and, if the node is one of its
// own, sets k->run and what that needs (scratch_bytes; own). Everything else of k is filled in.
typedef td_status td_kernel_family(struct td_kernel *k);
// True if all operands and results are of one type that convert.h takes.
bool td_kernel_narrow(const struct td_kernel *k);
// True if all operands and results are of type t.
bool td_kernel_all(const struct td_kernel *k, enum td_dtype t);

// ---- memory.c
// ------------------------------------------------------------------------------------- 64-byte
// aligned; NULL: out of memory. give takes the size that take was given, accepts NULL.
void *td_room_take(struct td_room *r, size_t bytes);
void td_room_give(struct td_room *r, void *p, size_t bytes);
// The scratch has at least so many bytes from now on.
TD_MUST_USE td_status td_room_want(struct td_room *r, size_t bytes);
void td_room_finish(struct td_room *r);

// ---- dry_compile.c ------------------------------------------------------------------------------
// The slots measure, foresee, plain and skips.
TD_MUST_USE td_status td_cpu_measure(struct td_accelerator *a,
                                     const struct td_program *const *programs, size_t n,
                                     size_t *out_bytes);
TD_MUST_USE td_status td_cpu_foresee(struct td_accelerator *a, const struct td_program *p,
                                     td_choice_fn *fn, void *arg);
TD_MUST_USE td_status td_cpu_plain(struct td_accelerator *a,
                                   const struct td_program *const *programs, size_t n,
                                   td_plain_fn *fn, void *arg);
td_skips_fn td_cpu_skips;

// ---- compile.c ----------------------------------------------------------------------------------
TD_MUST_USE td_status td_cpu_compile(struct td_accelerator *a, const struct td_program *p,
                                     const struct td_bindings *b, struct td_executable **out_exe);
void td_cpu_release(struct td_executable *e);

// ---- peak.c -------------------------------------------------------------------------------------
// The slot measure_peak. Products of bf16 that widen have a rate as well, that of fp32 or less.
TD_MUST_USE td_status td_cpu_measure_peak(struct td_accelerator *a, size_t memory_bytes,
                                          struct td_accel_rates *out_best,
                                          struct td_accel_rates *out_usual);

// ---- cpu.c --------------------------------------------------------------------------------------
bool td_kernel_is_plain(const struct td_kernel *k); // it runs loops that nobody made fast

// ---- fallback.c ---------------------------------------------------------------------------------
// UNIMPLEMENTED, naming the node, where the reference has no kernel either.
TD_MUST_USE td_status td_fallback_take(struct td_kernel *k, const struct td_graph *g, td_node n);
td_kernel_fn td_fallback_run; // what a slow kernel runs

// ---- onednn/onednn.c ----------------------------------------------------------------------------
TD_MUST_USE td_status td_dnnl_create(struct td_room *room, struct td_tune *tune,
                                     struct td_packs *packs, struct td_dnnl **out_engine);
void td_dnnl_destroy(struct td_dnnl *e);
// "oneDNN 2.6.3, avx512_bf16, caches 32/1024/32768 KiB": what the bits of its results depend on,
// besides the number of threads.
void td_dnnl_describe(char *out, size_t out_bytes);
// Has oneDNN products and convolutions of these operands at the CPU level in use?
bool td_dnnl_takes(enum td_dtype operands);

// ---- onednn/conv_shape.c ------------------------------------------------------------------------
// The layouts of its images in which oneDNN has a fast way for this convolution.
TD_MUST_USE td_status td_conv_prefer(const struct td_kernel *k, struct td_dnnl *e,
                                     struct td_conv_layouts *out_layouts);

// ---- onednn/conv_run.c
// ------------------------------------------------------------------------------ The family of
// convolutions. What it takes is created when the layouts are known; `param` is the address of the
// parameter that the weights are, or NULL.
td_kernel_family td_conv_take;
TD_MUST_USE td_status td_conv_build(struct td_kernel *k, struct td_dnnl *e,
                                    enum td_image_layout x_layout, enum td_image_layout y_layout,
                                    const void *param);

// ---- product.c ----------------------------------------------------------------------------------
// What product.c needs to know of the program that is being compiled.
struct td_product_site {
    const struct td_program *program;
    const struct td_bindings *bindings;
    struct td_accelerator *accel;
};
// Takes a matmul, if its types are those of gemm.c.
TD_MUST_USE td_status td_product_take(struct td_kernel *k, const struct td_product_site *site,
                                      td_node n);
// True for the cast of a parameter that only products read, which read the parameter instead.
bool td_product_absorbs(const struct td_product_site *site, td_node cast);
// The parameter that v is or is cast from: its address and type. NULL: none.
const char *td_product_param(const struct td_product_site *s, td_value v, enum td_dtype *out_dtype);

// ---- gemm.c -------------------------------------------------------------------------------------
// y (m,n) = act(op(a) (m,k) @ op(b) (k,n) + bias), y += with accumulate (no act then).
struct td_gemm_spec {
    int64_t m, n, k;
    bool trans_a, trans_b, has_bias, accumulate;
    enum td_act act;
    enum td_dtype operands, result, bias;
    // Address of the parameter that b is (or is cast from), or NULL: a parameter may be packed once
    // a run into the layout that the product likes best, and products of one program share the
    // pack.
    const void *param;
    enum td_dtype stored; // type of the parameter
};
// Are there products of these types here?
bool td_gemm_takes(enum td_dtype operands, enum td_dtype result);
// Is our own kernel worth a try at the CPU level in use? Of fp32 and bf16.
bool td_gemm_own_races(enum td_dtype operands);
// True if a product like this reads its parameter through a pack; it is given what b was cast from.
bool td_gemm_packs(const struct td_gemm_spec *spec);
TD_MUST_USE td_status td_gemm_create(struct td_accelerator *a, const struct td_gemm_spec *spec,
                                     struct td_gemm **out_gemm);
void td_gemm_destroy(struct td_gemm *g);
// What a run may write in the accelerator's scratch: its first bytes.
size_t td_gemm_scratch_bytes(const struct td_gemm *g);
TD_MUST_USE td_status td_gemm_run(struct td_gemm *g, const void *a, const void *b, const void *bias,
                                  void *y);

// ---- onednn/product.c ---------------------------------------------------------------------------
// A product of gemm.c by oneDNN.
struct td_dnnl_product;
enum td_dnnl_way {
    TD_DNNL_INNER_PRODUCT, // of a parameter (n,k) or (k,n), or a weight's gradient
    TD_DNNL_MATMUL,        // operands as they lie
    TD_DNNL_PACKED_MATMUL, // of a parameter (k,n) through a pack
};
// It holds its packs and scratch from now on; its code is generated when it first runs.
TD_MUST_USE td_status td_dnnl_product_create(struct td_dnnl *e, const struct td_gemm_spec *spec,
                                             enum td_dnnl_way way,
                                             struct td_dnnl_product **out_product);
void td_dnnl_product_destroy(struct td_dnnl_product *p); // accepts NULL
size_t td_dnnl_product_scratch_bytes(const struct td_dnnl_product *p);
// Would its first run wait until oneDNN has generated its gemm?
bool td_dnnl_product_starts_slowly(const struct td_dnnl_product *p);
TD_MUST_USE td_status td_dnnl_product_run(struct td_dnnl_product *p, const void *a, const void *b,
                                          const void *bias, void *y);

#endif
