#ifndef TRAIND_COLLECTIVE_H
#define TRAIND_COLLECTIVE_H

// Collective: how ranks exchange data. Backends: local (one rank), shm (ranks of one node),
// hierarchy (ranks of several nodes, a plugin).
//
// *Order.* Every call but send and recv is entered by all ranks in the same order. Ranks that came
// for different calls get FAILED_PRECONDITION (class user_code), with both calls.
//
// *Data.* Buckets of gradients are where the facts of a backend say that it takes them. All other
// data is host memory. The reduce op is always named. A gather always stacks: a new leading
// dimension of size world; scalars stay scalars.
//
// *Bits.* The reduction order is fixed: rank 0 first. With several nodes it is that inside each
// node, then the nodes in order. So results are the same bits on every rank and in every run.
//
// *Errors.* A call that cannot be (memory, type, rank) is INVALID_ARGUMENT before any rank is
// waited for. Each call has a deadline, which its error (DEADLINE_EXCEEDED) names, with what sets
// it. A peer's death flips the abort word: all ranks leave with ABORTED (class collective), those
// of its node within microseconds. After an error the attempt is over, where nothing else is said;
// nothing here retries. Data of a call that failed has no known content.
//
// *Threads.* One at a time is in a group: the training thread, but for
//
//  - all_reduce_bucket, wait_buckets, a program's sums (rank_sum) and what a strategy calls in
//    reduce_gradients: the thread that runs the accelerator's queue;
//  - of several nodes, buckets in host memory: a third thread, beside the backward pass, if the
//    strategy does not say waits_for_buckets. Until they are done the others make no call of this
//    group. A program that sums over ranks has a second group for that, where facts say
//    joins_again; else its sums wait for the buckets before them;
//  - abort and set_deadline: any.
//
// Structs begin with struct_bytes, by which versions of this header can differ. Slots that a later
// minor version adds are at the end of the table, not in their section. Slots: (required) unless
// marked (optional).
// Ownership: the mapping and what a call is handed are the caller's.

#include "traind/bucket.h"
#include "traind/status.h"
#include "traind/sum.h"
#include "traind/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- what a backend serves ----------------------------------------------------------------------
// The calls that a backend may lack. Bits 1 << call of td_collective_facts.calls.
enum td_collective_call {
    TD_CALL_REDUCE,
    TD_CALL_REDUCE_SCATTER,
    TD_CALL_GATHER,
    TD_CALL_SCATTER,
    TD_CALL_ALL_GATHER_UNEVEN,
    TD_CALL_ALL_TO_ALL,
    TD_CALL_SEND_RECV, // send and recv
    TD_CALL_GROUPS,    // group_create and group_destroy
    TD_CALL_ASYNC,     // start, wait and test
    TD_CALL_COUNT,
};

struct td_collective_facts {
    uint32_t struct_bytes;
    // What all_reduce_bucket takes: one of the two at least. With both, gradients stay where the
    // accelerator has them. With on_host alone those of a device are copied to the host and back.
    bool on_host;        // buckets in host memory
    bool on_device;      // buckets in memory of the accelerator's device, reduced on its stream
    bool recordable;     // what is queued on a stream may be recorded once, and replayed
    uint32_t calls;      // bits 1 << enum td_collective_call: served, and their slots are there
    bool wraps;          // a decorator: hands its calls on to config.inner. See td_collective_ops
    uint32_t max_groups; // that are there at once, of each group of all ranks; with TD_CALL_GROUPS
    uint32_t max_open;   // handles that are open at once, of each group; with TD_CALL_ASYNC
    bool joins_nodes;    // ranks of several nodes; else all are on one
    bool joins_again;    // config.group is read: groups of one rank keep apart, on a thread each
    // With on_device: whose device memory, td_accel_facts.device_memory; that of others is none.
    char device_memory[16];
    bool needs_host; // reserved for one beside which a group of the host joins; refused so far
};

enum { TD_GROUPS_MAX = 8 };      // max_groups of the backends of traind
enum { TD_OPEN_CALLS_MAX = 16 }; // max_open of the backends of traind, and of trace and fault

// ---- joining ------------------------------------------------------------------------------------
struct td_store; // traind/store.h

// How long a call waits for other ranks, and what a person sets to change that.
struct td_collective_deadline {
    int64_t timeout_ns;  // monotonic, from the beginning of a call; more than 0
    const char *setting; // "trainer.collective_timeout"; NULL: none that has a name
};

struct td_collective_config {
    uint32_t struct_bytes;
    int32_t rank;                           // from 0, below world_size
    int32_t world_size;                     // ranks of the group
    struct td_collective_deadline deadline; // of every call, until set_deadline
    // Mapping that the ranks of a node share, of as many bytes as slot shared_bytes says, or more.
    // It begins at a page, and is zeroed before the first of them joins. NULL: there is none.
    void *shared;
    size_t shared_bytes;
    bool (*aborted)(void *arg); // (optional) asks whether the attempt is over
    void *aborted_arg;
    int32_t attempt; // of the job, from 1; 0: it was started by hand
    // Of a decorator (facts.wraps): the backend that it joins with this configuration, and leaves.
    const struct td_collective_ops *inner;
    // Its own knobs, read with traind/knobs.h until join returns; NULL: none were given.
    const struct td_json *knobs;
    // The rank's accelerator, for a backend that works on its device; NULL: there is none.
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    // Of an attempt on several nodes. The ranks of a node have numbers that follow each other, and
    // nodes are in the order of their ranks.
    int32_t n_nodes;          // 0 or 1: one node, and nothing below is read, but note and group
    int32_t node_rank;        // from 0, below n_nodes
    int32_t local_rank;       // from 0, among the ranks of this node
    int32_t local_world_size; // ranks of this node
    // These three live until leave.
    const char *interface_address; // numeric: what traffic between nodes binds to
    struct td_store *store;        // in which nodes find each other
    const char *const *node_names; // (n_nodes) for errors; NULL: they have numbers alone
    // A node whose machine acknowledges nothing for so long is gone; 0: the backend's own.
    int64_t link_timeout_ns;
    // (optional) What people should know of the group beside its errors: a line, copied. From the
    // thread of a call.
    void (*note)(void *arg, const char *text);
    void *note_arg;
    // Ranks may join more than once, each time with all ranks and a mapping of its own (facts,
    // joins_again). 0 is the first; the others have numbers from 1. What a backend leaves in the
    // store or in files has it in its name.
    int32_t group;
};

// ---- calls that are started ---------------------------------------------------------------------
struct td_collective_work; // a handle: a call that was started, until it is waited for

// The calls that can be started.
enum td_async_call {
    TD_ASYNC_ALL_REDUCE,
    TD_ASYNC_REDUCE_SCATTER,
    TD_ASYNC_ALL_GATHER,
    TD_ASYNC_BROADCAST,
    TD_ASYNC_BARRIER,
    TD_ASYNC_COUNT,
};

// What `start` begins. A field means what the argument of that name means in the slot of the call;
// the fields of other calls are not read. Memory and tag are the caller's. They stay, and are
// neither read nor written, until the handle was waited for. The struct itself is copied.
struct td_collective_start {
    uint32_t struct_bytes;
    enum td_async_call call;
    const void *in;       // reduce_scatter (W, n), all_gather (bytes)
    void *out;            // what these give: (n), (W, bytes); all_reduce (n), broadcast (bytes)
    int64_t n;            // elements: all_reduce, reduce_scatter
    enum td_dtype dtype;  // likewise
    enum td_reduce_op op; // likewise
    size_t bytes;         // of a rank: all_gather, broadcast
    int32_t src;          // broadcast
    const char *tag;      // barrier
};

// ---- slots --------------------------------------------------------------------------------------
struct td_collective; // the backend's own

#define TD_BARRIER_END "teardown" // tag of the barrier in which the ranks of a job end

// A decorator watches or changes what goes through another backend. Its facts say wraps, and in
// calls what it can hand on. All else is that of the backend inside, which is asked instead:
// memory of buckets, shared_bytes. What is queued on a stream is not recorded then. A decorator has
// wait_buckets, and takes it for done where the backend inside has none.
struct td_collective_ops {
    uint32_t struct_bytes;

    // ---- the group ------------------------------------------------------------------------------
    // Always the same; before a group is joined, too. out_facts comes with struct_bytes set and all
    // else 0.
    td_status (*facts)(struct td_collective_facts *out_facts);
    // Bytes of shared mapping needed for a group with so many bytes of gradients a rank; 0 if none.
    // world_size: the ranks of one node.
    size_t (*shared_bytes)(int32_t world_size, size_t gradient_bytes);
    // Makes this rank's part of the group, for leave; the mapping has to live until then. Waits for
    // nobody. Errors: FAILED_PRECONDITION when the mapping is absent or too small, ABORTED when the
    // group is over.
    td_status (*join)(const struct td_collective_config *config, struct td_collective **out_c);
    void (*leave)(struct td_collective *c); // accepts NULL
    // Ends the group: calls that wait and all later ones give ABORTED. From any thread, also twice.
    void (*abort)(struct td_collective *c);
    // (optional) Calls that begin from now on have this deadline, those of its groups, too. It is
    // borrowed until leave, with its text. From any thread; on every rank at the same place among
    // its calls, or some wait longer than others. Absent: that of join holds.
    void (*set_deadline)(struct td_collective *c, const struct td_collective_deadline *deadline);
    // (optional) Has something failed that no call has said yet, as work on a stream may? Asked
    // while the rank waits for a run, every 50 ms. Never waits. Errors: as of that work. Thread:
    // the training thread, beside a call on that of the accelerator's queue.
    td_status (*check)(struct td_collective *c);
    // (optional) Bytes of the device's memory that a group of so many ranks takes, for plans; the
    // same as long as the process lives. Any thread. Absent: none.
    size_t (*device_bytes)(int32_t world_size);

    // ---- gradients ------------------------------------------------------------------------------
    // This rank's gradient region inside the shared mapping, where gradients are born; NULL and 0
    // when the backend has none and the caller brings its own memory. Borrowed until leave.
    td_status (*gradients)(struct td_collective *c, void **out_data, size_t *out_bytes);
    // In place over a bucket: the mean of its elements, the sum of its control flags. Memory that
    // the facts do not name is INVALID_ARGUMENT.
    td_status (*all_reduce_bucket)(struct td_collective *c, const struct td_bucket *bucket);
    // (optional) Completes all buckets of all_reduce_bucket since the last call, which may be none.
    // On a device: for what is queued on the stream from then on. Absent: a bucket is done when
    // all_reduce_bucket returns.
    td_status (*wait_buckets)(struct td_collective *c);

    // ---- calls that every backend has -----------------------------------------------------------
    // In place over data (n). fp32 data may lie in the gradient region (no copy then).
    td_status (*all_reduce)(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                            enum td_reduce_op op);
    // in: (bytes). out: (W, bytes), rank r's part at r. in and out do not overlap.
    td_status (*all_gather)(struct td_collective *c, const void *in, size_t bytes, void *out);
    // data: (bytes) on every rank: those of rank src are copied to all others.
    td_status (*broadcast)(struct td_collective *c, void *data, size_t bytes, int32_t src);
    // Returns when all ranks have come. tag: the same on all of them; an error names it.
    td_status (*barrier)(struct td_collective *c, const char *tag);

    // ---- calls that a backend may lack ----------------------------------------------------------
    // Facts say which are served; td_collective_require refuses with a name. Each is (optional).
    //
    // In place over data (n) on rank dst. The others' data is read, and stays as it is.
    td_status (*reduce)(struct td_collective *c, void *data, int64_t n, enum td_dtype dtype,
                        enum td_reduce_op op, int32_t dst);
    // in: (W, n) on every rank. out: (n), which on rank r is row r, reduced to the bits of
    // all_reduce. in and out do not overlap.
    td_status (*reduce_scatter)(struct td_collective *c, const void *in, void *out, int64_t n,
                                enum td_dtype dtype, enum td_reduce_op op);
    // As all_gather, but only rank dst has out; elsewhere it is not used.
    td_status (*gather)(struct td_collective *c, const void *in, size_t bytes, void *out,
                        int32_t dst);
    // in: (W, bytes) on rank src; elsewhere it is not used. out: (bytes), on rank r row r. in and
    // out do not overlap.
    td_status (*scatter)(struct td_collective *c, const void *in, size_t bytes, void *out,
                         int32_t src);
    // in: (bytes), of each rank as many as it likes. out: the parts one after the other, rank 0
    // first, without gaps. counts: (W), bytes of each part. out_bytes: room in out, each rank's
    // own. Errors: RESOURCE_EXHAUSTED on all ranks when one has too little room, which it names.
    // Then counts are written, out is not, and the group goes on: call again with more.
    td_status (*all_gather_uneven)(struct td_collective *c, const void *in, size_t bytes, void *out,
                                   size_t out_bytes, size_t *counts);
    // in, out: (W, bytes). Row q of rank r's in is row r of rank q's out. in and out do not
    // overlap.
    td_status (*all_to_all)(struct td_collective *c, const void *in, size_t bytes, void *out);
    // data: (bytes), from this rank to another, in the order of their calls. Other ranks take no
    // part. send returns when recv has taken everything. FAILED_PRECONDITION: sizes or tags that
    // differ, two ranks that both send to or receive from each other, a partner that waits for this
    // rank in another call. A rank never sends to itself (INVALID_ARGUMENT).
    td_status (*send)(struct td_collective *c, const void *data, size_t bytes, int32_t dst,
                      uint32_t tag);
    td_status (*recv)(struct td_collective *c, void *data, size_t bytes, int32_t src, uint32_t tag);
    // A group of some of the ranks, which has every call of this table but join, leave, gradients
    // and group_create. All ranks of c call with the same list, ranks (n_ranks): in ascending
    // order, each once. Rank i of the group is ranks[i] of c. A rank that is not in it gets NULL.
    // Groups have no gradient region. Their deadline is that of c, and so is their end: to abort
    // one is to abort all. Errors: ALREADY_EXISTS when there is a group of the same ranks,
    // RESOURCE_EXHAUSTED when there are max_groups. Both on all ranks, and c goes on.
    // UNIMPLEMENTED: c is such a group.
    td_status (*group_create)(struct td_collective *c, const int32_t *ranks, int32_t n_ranks,
                              struct td_collective **out_group);
    // Its ranks call; the group is gone, and may be created again. NULL, for the other ranks, does
    // nothing. A group that is there when c is left goes with it.
    // FAILED_PRECONDITION (class user_code): handles of the group are open. It goes on.
    td_status (*group_destroy)(struct td_collective *c, struct td_collective *group);

    // ---- asynchronous calls ---------------------------------------------------------------------
    // (optional, all or none; facts say so.) All ranks start the same calls in the same order,
    // among the other calls of the group. These are done in that order: a call that is not started
    // waits for those that were. Handles may be waited for in any order, each once.
    //
    // Begins a call and returns. Errors: INVALID_ARGUMENT as the call itself gives it;
    // RESOURCE_EXHAUSTED when max_open handles are open. Neither begins anything.
    td_status (*start)(struct td_collective *c, const struct td_collective_start *call,
                       struct td_collective_work **out_work);
    // What the call gave. Whatever is returned, the handle is gone and the memory is the caller's
    // again. Errors: those of the call; DEADLINE_EXCEEDED after timeout_ns (of the monotonic clock,
    // from now), which ends the group; INVALID_ARGUMENT for a handle that is not open.
    td_status (*wait)(struct td_collective *c, struct td_collective_work *work, int64_t timeout_ns);
    // Whether wait would return at once. Never waits; the handle stays open.
    // Errors: INVALID_ARGUMENT for a handle that is not open.
    td_status (*test)(struct td_collective *c, struct td_collective_work *work, bool *out_done);
};

// TD_OK when a backend with these facts serves a call, else UNIMPLEMENTED, which names both. `name`
// is the backend's. A caller asks once, before the first call.
td_status td_collective_require(const struct td_collective_facts *facts, const char *name,
                                enum td_collective_call call);
// FAILED_PRECONDITION (class user_code) for facts that name a call whose slot is absent. The rank
// asks for every backend before a group is joined.
td_status td_collective_check_calls(const struct td_collective_facts *facts,
                                    const struct td_collective_ops *ops, const char *name);
const char *td_collective_call_name(enum td_collective_call call); // "reduce_scatter"
const char *td_async_call_name(enum td_async_call call);           // "reduce_scatter"

#ifdef __cplusplus
}
#endif
#endif
