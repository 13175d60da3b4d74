#ifndef TRAIND_ACCELERATOR_H
#define TRAIND_ACCELERATOR_H

// Accelerator: one kind of hardware. It owns devices and memory, compiles programs and runs them.
//
// Everybody else sees memory as a td_buffer (traind/buffer.h), never as a bare pointer. Execution
// may be asynchronous: run() queues, gives a ticket, and what it queued has happened after wait()
// of that ticket. Step scalars, random words and outputs are exchanged through host memory.
// `reference` (plain loops) is the specification; every other accelerator is tested against it.
//
// Structs begin with struct_bytes, by which versions of this header can differ. Who allocates one
// writes its sizeof there; a plugin that fills it writes no more bytes than that. Slots that a
// later minor version adds are at the end of the table, not in their section.
//
// Slots: (required) unless marked (optional). Each returns td_status and writes outputs only on
// success. Thread: the rank's training thread, but for probe and device_at (any thread, no side
// effects).
// Ownership: a program, its bindings and a configuration are borrowed until what was made of them
// is released or closed. Errors: after one of run or wait, memory of the rank has no known content,
// and the attempt ends; after any other one everything is as before.

#include "traind/buffer.h"
#include "traind/graph.h"
#include "traind/knobs.h"
#include "traind/random.h"
#include "traind/status.h"
#include "traind/sum.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_accel_facts {
    uint32_t struct_bytes;
    int32_t n_devices;
    char device_name[64];
    uint64_t memory_bytes; // of one device
    uint32_t dtypes;       // bit i: programs may compute in enum td_dtype i
    char build[64];        // library and instruction set, part of the resume key
    bool detects_anomaly;  // takes td_accel_config.detect_anomaly
    // memory_bytes is of one rank alone, beside the host's; else the node's ranks share the host's.
    bool own_memory;
    // It needs no arena and nothing that is computed twice: programs come with recompute `none`,
    // td_bindings.arena has no bytes, and what they need is what program_bytes says.
    bool plans_memory;
    size_t whole_logits_bytes; // larger logits are never made whole (linear_ce); 0: all are
    size_t process_bytes;      // host memory of the libraries that it opens
    // What its handles of device memory are, for a collective that works there: "cuda", addresses
    // of that device; "": nothing that another plugin may know.
    char device_memory[16];
    uint32_t sums;      // bits 1 << td_sum_kind: its programs may have such sums
    uint32_t run_ahead; // runs that may be queued before the last one is waited for: 0 or 1
};

struct td_accel_config {
    uint32_t struct_bytes;
    int32_t device;        // index of the device
    int32_t n_threads;     // CPU threads this rank may use, at least 1
    const char *cache_dir; // tuning cache; NULL: none, and nothing is chosen by timing
    bool deterministic;    // nothing is chosen by timing, cache or not
    bool detect_anomaly;   // look at what each node has written (td_graph_check_finite)
    bool profile;          // somebody will read kernel_at's nanoseconds
    // Only sizes, choices and rates are asked for, and no program will run. What runs alone need
    // may be left out, but nothing that changes those. run may refuse (FAILED_PRECONDITION).
    bool plans;
    // Its own knobs, read with traind/knobs.h until open returns; NULL: none were given.
    const struct td_json *knobs;
};

// One device, for who gives devices to ranks: each rank has one, and no two ranks have the same.
struct td_device_info {
    uint32_t struct_bytes;
    char uuid[64]; // its name on this machine, the same at each start: letters, digits, "-_.:"
    char name[64]; // what a person calls it
    uint64_t memory_bytes; // 0: unknown
    bool is_host; // of device 0: the device is the host after all, as if device_at were absent
    bool has_numa_node; // of the CPUs that are next to it:
    int32_t numa_node;
};

// A kernel of an executable, as it was compiled and how it has done so far.
struct td_kernel_info {
    uint32_t struct_bytes;
    td_op_id op;
    enum td_dtype dtype; // of what it computes
    td_node node;        // of the program's graph; UINT32_MAX: none
    bool slow;           // runs on plain loops: correct, but far from what the hardware can do
    uint64_t runs;       // so far
    int64_t ns;          // that they took; 0 without td_accel_config.profile
};

// What is known, before a program is compiled, of a choice between ways of computing a node.
enum td_choice_state {
    TD_CHOICE_OPEN,     // nothing: the first start will measure it
    TD_CHOICE_MEASURED, // the cache has it, by another job of this machine
    TD_CHOICE_ADOPTED,  // it came by adopt_choices
    TD_CHOICE_FIRST,    // nothing is measured here: the first way is taken
};
struct td_choice_info {
    uint32_t struct_bytes;
    td_node node;            // of the program's graph
    const char *key;         // as in the lines of choices
    const char *const *ways; // the first is preferred
    int32_t n_ways;
    int32_t way; // which is taken; OPEN: the first, for want of a better
    enum td_choice_state state;
};
typedef td_status td_choice_fn(void *arg, const struct td_choice_info *choice);

// A node of programs[program] that is correct, but far from what the hardware can do, since it runs
// on plain loops.
typedef void td_slow_node_fn(void *arg, size_t program, td_node node);

// FLOP/s of products in fp32 and bf16 (0: there are none), and bytes/s of memory.
struct td_accel_rates {
    double f32, bf16, bandwidth;
};

// A bit of run beside those of the segments: since the last run of this accelerator, nobody but
// programs has written parameters or their low-precision copies. What it keeps of both in other
// layouts is then still good.
enum { TD_RUN_STEADY = 1 << TD_SEG_COUNT };

// A place in the queue of an accelerator. Tickets grow; what has one is done after all that has a
// smaller one, but for copies beside the queue (copy_begin). 0: there is nothing to wait for; an
// accelerator that is done when run returns always gives it. A ticket may be waited for again.
typedef uint64_t td_ticket;

struct td_accelerator; // the accelerator's own
struct td_executable;

// Static memory of a rank, bound when a program is compiled; it does not move until release.
struct td_bindings {
    uint32_t struct_bytes;
    struct td_buffer arena;
    struct td_buffer region[TD_ROLE_COUNT]; // by td_role; offsets are td_state_info.offset
    double *scalars;                        // host, TD_SCALAR_COUNT
    uint32_t *random;                       // host, TD_RANDOM_WORDS (traind/random.h)
    double *outputs;                        // host, one per output of the graph
    // Host, TD_CONTROL_FLAGS: what ranks want to agree on. A run that carries them (below) writes
    // them at control_offset of the GRAD region before its backward segment. It reads them back
    // after it, when the last bucket was awaited. They are read before run returns, and written by
    // the wait for its ticket: until then they are the caller's, for the next run. NULL: there are
    // none.
    float *control;
    size_t control_offset;
    // Sums over ranks (traind/sum.h), both on the thread that runs the queue. `collective` is
    // called where the program has a start node, and may return before the sum is there. The other
    // one is called at its await node, with the same td_sum, and completes that one alone. At a
    // rank_sum node one follows the other. Their work is ordered after all that is queued on the
    // stream of the td_sum; with on_host, all that was queued before is complete. A recordable one
    // is called while a run is captured, and not when that is replayed. NULL, both or none: there
    // is one rank, and nothing to do.
    td_status (*collective)(void *arg, const struct td_sum *sum);
    td_status (*collective_wait)(void *arg, const struct td_sum *sum);
    void *collective_arg;
    // Bits 1 << td_sum_kind: what td_sum.on_host and recordable say.
    uint32_t sums_on_host, sums_recordable;
};

// Does such a run of the program carry the control flags?
static inline bool td_run_carries_control(const struct td_program *p, uint32_t segments) {
    return p->key.mode == TD_MODE_TRAIN && p->key.sync && (segments >> TD_SEG_BACKWARD & 1);
}

// For the run of an accelerator that reads inputs from host memory alone. Checks that each buffer
// is host memory, and has as many bytes as the shape of its slot takes, or more. It takes some
// nanoseconds for each slot, and allocates nothing.
// Shapes: inputs (td_graph_n_inputs(g)). Thread: any.
// Errors: INVALID_ARGUMENT naming the step and the slot, or that inputs is NULL and there are
// slots.
TD_MUST_USE td_status td_inputs_check_host(const struct td_graph *g,
                                           const struct td_buffer *inputs);

struct td_accelerator_ops {
    uint32_t struct_bytes;

    // ---- the device -----------------------------------------------------------------------------
    // Is it here, how many devices? OK with n_devices 0 when there is none.
    td_status (*probe)(struct td_accel_facts *out_facts);
    // Errors: INVALID_ARGUMENT when there is no such device, or it cannot take so many threads;
    // class bad_spec for knobs that cannot be.
    td_status (*open)(const struct td_accel_config *config, struct td_accelerator **out_accel);
    void (*close)(struct td_accelerator *a); // accepts NULL; executables are released before
    // (optional) Where knobs change what probe said: facts come filled in by probe.
    td_status (*facts)(struct td_accelerator *a, struct td_accel_facts *facts);
    // (optional) Device i, below n_devices: as probe, on any thread, without side effects. NULL:
    // its devices are the host, which ranks share, and of which slots alone are counted.
    td_status (*device_at)(int32_t i, struct td_device_info *out_info);
    // (optional) What this rank's threads can do, after all runs that are queued. It is measured in
    // some 20 ms: at best, and usually, which is what no other process disturbed, on average.
    // Memory is measured for work on so many bytes of it; 0: not asked.
    td_status (*measure_peak)(struct td_accelerator *a, size_t memory_bytes,
                              struct td_accel_rates *out_best, struct td_accel_rates *out_usual);

    // ---- memory ---------------------------------------------------------------------------------
    // 64-byte aligned, zeroed; for mem_free. Errors: RESOURCE_EXHAUSTED (class out_of_memory).
    td_status (*mem_alloc)(struct td_accelerator *a, size_t bytes, struct td_buffer *out_buffer);
    // A whole one of mem_alloc or state_alloc.
    void (*mem_free)(struct td_accelerator *a, struct td_buffer b);
    // (optional) The region of a role, whose layout is done; the table outlives it. NULL: mem_alloc
    // of its bytes. The accelerator may keep each tensor in a buffer of its own, and in another one
    // after each run. copy then takes ranges of the region by td_state_info.offset; what is between
    // tensors has no content. Zeroed, for mem_free. Errors: as mem_alloc.
    td_status (*state_alloc)(struct td_accelerator *a, const struct td_state_table *state,
                             enum td_role role, struct td_buffer *out_buffer);
    // (optional) Makes host memory of the caller usable as a region (shared gradient mapping). The
    // memory stays the caller's, and alive until close.
    td_status (*mem_import)(struct td_accelerator *a, void *host, size_t bytes,
                            struct td_buffer *out_buffer);
    // (optional, both or none) Host memory that it copies from and to faster, page-locked: at page
    // borders, zeroed, for host_free with the same bytes. Errors: RESOURCE_EXHAUSTED.
    td_status (*host_alloc)(struct td_accelerator *a, size_t bytes, void **out_data);
    void (*host_free)(struct td_accelerator *a, void *data, size_t bytes);

    // ---- copies ---------------------------------------------------------------------------------
    // Copies between any two spaces, also within a buffer, after all runs that are queued; complete
    // when it returns. collective and collective_wait copy in the middle of their run. Errors:
    // INVALID_ARGUMENT or OUT_OF_RANGE when the bytes are not all inside both buffers.
    td_status (*copy)(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                      struct td_buffer src, size_t src_offset, size_t bytes);
    // (optional) As copy, but queued: the bytes are there when its ticket is done, for which any
    // thread may wait. Runs and copies that come later find src as it was, and may write it. Where
    // no program is bound to src or to dst, the copy may run beside the queue. It comes after all
    // that was queued before, and after such copies before it, but nothing later waits for it. The
    // caller leaves src and dst alone until its ticket is done, or that of a later copy beside the
    // queue; the ticket of a run says nothing of it.
    td_status (*copy_begin)(struct td_accelerator *a, struct td_buffer dst, size_t dst_offset,
                            struct td_buffer src, size_t src_offset, size_t bytes,
                            td_ticket *out_ticket);

    // ---- work on a stream -----------------------------------------------------------------------
    // (optional, both or none) For a collective that works on the device: queued on the stream of a
    // td_sum, after all that is queued there. Thread: that of the queue.
    // Reduces n_parts of count elements each, in their order, to the bits of the host: bf16 and f16
    // in f32, rounded once. A mean is divided once, at the end. out may be one of the parts. All
    // are of the device. Errors: INVALID_ARGUMENT; what is queued may fail later.
    td_status (*stream_sum)(struct td_accelerator *a, void *stream, struct td_buffer out,
                            const struct td_buffer *parts, uint32_t n_parts, int64_t count,
                            enum td_dtype dtype, enum td_reduce_op op);
    // Writes value to a word of host memory (td_sum.mark) when all that was queued is done.
    td_status (*stream_mark)(struct td_accelerator *a, void *stream, volatile uint64_t *word,
                             uint64_t value);

    // ---- programs -------------------------------------------------------------------------------
    // UNIMPLEMENTED names the node that it cannot run. The program outlives the executable.
    td_status (*compile)(struct td_accelerator *a, const struct td_program *p,
                         const struct td_bindings *b, struct td_executable **out_exe);
    // (optional) The sets of segments that run will be called with: bits 1 << td_segment, without
    // TD_RUN_STEADY. Called once per executable, after compile and before its first run. An
    // accelerator that compiles each set by itself does so here, before step 1. Another set still
    // runs, but may be compiled then; a strategy may run one in a slot of its own. Ranks are in it
    // at the same time, so choices by timing are made in compile. Not called with plans. Absent:
    // there is nothing to do.
    // sets: (n), each once; borrowed until it returns. Errors: as compile; the executable is
    // released all the same.
    td_status (*prepare)(struct td_executable *e, const uint32_t *sets, size_t n);
    // Accepts NULL. Waits for all that is queued, whatever becomes of it.
    void (*release)(struct td_executable *e);
    // Runs the segments whose bits are set, in order; TD_RUN_STEADY may be set as well. Between two
    // segments of a program those of others may run, where these have another arena, or the
    // accelerator plans memory itself. Before finish any may run, where that reads nothing but
    // gradients of the segments before it. Step scalars and random words are copied before it
    // returns. After apply, gradients have no known content: the first run of the next window
    // overwrites them.
    // inputs: (td_graph_n_inputs), one buffer per input slot, at least as many bytes as the slot's
    // shape takes; nothing above them is read. The array is the caller's again when run returns.
    // The memory stays as it is until the ticket is done. Host memory always works. Device memory
    // may only be of this accelerator, and where it takes any. NULL: the program has no inputs.
    // Errors: INVALID_ARGUMENT, naming the slot, before anything runs: too few bytes, or memory
    // that it does not take (td_inputs_check_host). A label or an index that is out of range is an
    // error of the run (INVALID_ARGUMENT, class data, naming step, node and op), never a wrong
    // number.
    td_status (*run)(struct td_executable *e, uint32_t segments, const struct td_buffer *inputs,
                     td_ticket *out_ticket);
    // Waits for a ticket. OK: what it stands for is done, and outputs are those of that run.
    // Errors: DEADLINE_EXCEEDED: not yet, and only then; anything else is the error of the run, or
    // of one before it, reported once.
    td_status (*wait)(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns);
    // (optional) Kernel i of an executable, in order of execution; false past the last.
    bool (*kernel_at)(const struct td_executable *e, uint32_t i, struct td_kernel_info *out_info);

    // ---- planning, before anything is compiled --------------------------------------------------
    // (optional) Bytes that compiling these programs, one after the other, takes besides arena and
    // state, without taking them. No programs: what is taken now.
    td_status (*program_bytes)(struct td_accelerator *a, const struct td_program *const *programs,
                               size_t n, size_t *out_bytes);
    // (optional) Calls fn for each node of these programs that would be slow (td_kernel_info),
    // known without taking memory: those that kernel_at calls so once they are compiled.
    td_status (*slow_nodes)(struct td_accelerator *a, const struct td_program *const *programs,
                            size_t n, td_slow_node_fn *fn, void *arg);
    // (optional) Seconds that node n takes, for plans: by measure_peak's usual rates, all of them
    // above 0. is_slow: it is one of those that slow_nodes reports. Pure. NULL: no step is
    // estimated.
    double (*node_seconds)(const struct td_graph *g, td_node n, const struct td_accel_rates *rates,
                           bool is_slow);
    // (optional) The casts that it leaves out; the memory plan places them accordingly.
    td_elides_fn *elides;

    // ---- tuning: choices by timing --------------------------------------------------------------
    // (optional) Reports each choice by timing that compiling the program would make, without
    // measuring, and without taking memory or writing to the cache. Strings die with the call.
    td_status (*list_choices)(struct td_accelerator *a, const struct td_program *p,
                              td_choice_fn *fn, void *arg);
    // (optional, both or none) What was chosen by timing when programs were compiled, lines of
    // "key=name". A later attempt of the job adopts it before it compiles, so that it computes the
    // same bits. The text of choices is borrowed until the next compile, that of adopt_choices
    // until it returns. Errors: INVALID_ARGUMENT from adopt_choices when the text is not such
    // lines.
    td_status (*choices)(struct td_accelerator *a, const char **out_text);
    td_status (*adopt_choices)(struct td_accelerator *a, const char *text);
};

#ifdef __cplusplus
}
#endif
#endif
