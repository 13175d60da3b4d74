#ifndef TRAIND_STRATEGY_H
#define TRAIND_STRATEGY_H

// Strategy: how the ranks of a job share the work. It says where state lives, rewrites each
// recorded program with the collectives it needs, divides the data, and answers for the group.
//
// It has no loop. The rank context (engine/train/rank/rank.h) owns the plugins of one rank and
// calls the slots in this order:
//
//   open -> environment -> connect -> build_begin -> (record: rewrite, once per program) ->
//   build_end -> process_dataloader -> place -> setup -> [ hook ... step ... hook ] ->
//   save_checkpoint ... -> teardown -> close;  on_exception, instead of a clean teardown, on error
//
// Slots are (required) unless marked (optional): what an optional slot does when it is absent is
// said beside it. Every slot returns a status and writes outputs only on success; pointers handed
// in are borrowed until close unless said otherwise. Thread: the rank's training thread.
// Source: Strategy, Accelerator (1.3), DDPSpawnStrategy, XLAStrategy and Fabric of Lightning; where
// they disagree, what is said here.

#include "traind/accelerator.h"
#include "traind/collective.h"
#include "traind/dataset.h"
#include "traind/graph.h"
#include "traind/module.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a strategy is opened with. The group is joined before and left after it.
struct td_strategy_config {
    uint32_t struct_bytes;
    int32_t global_rank, local_rank, node_rank, world_size;
    const struct td_collective_ops *collective_ops;
    struct td_collective *collective;
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    size_t bucket_first_bytes, bucket_cap_bytes; // 0: the strategy's own
};

// What a strategy is, once the environment is known.
struct td_strategy_facts {
    uint32_t struct_bytes;
    int32_t root_device; // of this rank, an index for the accelerator
    int32_t world_size, global_rank, local_rank, node_rank;
    bool is_global_zero;                // of all nodes
    bool handles_gradient_accumulation; // it sees each micro-batch and decides itself when to step
    bool restore_optimizer; // the rank context loads optimizer state (else: the strategy)
};

// How the samples of a split are divided: this rank takes positions rank, rank + n_replicas, ...
struct td_strategy_shard {
    int32_t n_replicas, rank;
};

// The rank's state memory. place may bring its own for a role; what it leaves alone (bytes 0) the
// rank context allocates from the accelerator. regions end in the control tail for TD_ROLE_GRAD.
struct td_strategy_memory {
    struct td_buffer region[TD_ROLE_COUNT];
};

enum td_strategy_step { TD_STEP_TRAIN, TD_STEP_VALIDATE, TD_STEP_TEST, TD_STEP_PREDICT };

// Points of the loop at which a strategy is called, if it wants to be.
enum td_strategy_hook {
    TD_HOOK_TRAIN_START,
    TD_HOOK_TRAIN_BATCH_START, // last of the batch-start calls; cannot skip the batch
    TD_HOOK_TRAIN_END,
    TD_HOOK_EVAL_START,
    TD_HOOK_EVAL_END,
};

struct td_strategy; // the strategy's own

struct td_strategy_ops {
    uint32_t struct_bytes;

    // ---- life cycle
    td_status (*open)(const struct td_strategy_config *config, struct td_strategy **out_strategy);
    void (*close)(struct td_strategy *s); // accepts NULL

    // Checks that this strategy can serve this world and fills the facts. Before any user code.
    // Errors: INVALID_ARGUMENT, class bad_spec, when it cannot ("single_device with 2 ranks").
    td_status (*environment)(struct td_strategy *s, struct td_strategy_facts *out_facts);
    // (optional) Learns the module; stores the pointer, converts nothing. Absent: not called.
    td_status (*connect)(struct td_strategy *s, const struct td_module_ops *ops,
                         struct td_module *module);
    // (optional) Bracket around the recording of all programs (model_sharded_context): a sharding
    // strategy splits layers as they are named. Both or none.
    td_status (*build_begin)(struct td_strategy *s);
    td_status (*build_end)(struct td_strategy *s);
    // Rewrites one program after autodiff: buckets, collectives. key says whether it syncs; a
    // program with sync off is `no_backward_sync`. Calls: traind/rewrite.h.
    td_status (*rewrite)(struct td_strategy *s, struct td_graph *g,
                         const struct td_program_key *key);
    // Divides a split among the ranks. Idempotent; never changes the order.
    td_status (*process_dataloader)(struct td_strategy *s, enum td_split split,
                                    struct td_strategy_shard *out_shard);
    // (optional) Brings memory for regions, e.g. gradients inside the group's mapping. gradient
    // bytes are td_state_region_bytes(GRAD), control tail included. Absent: all from the
    // accelerator. What it brings lives until close.
    td_status (*place)(struct td_strategy *s, const struct td_state_table *state,
                       struct td_strategy_memory *memory);
    // After state was initialized or loaded (on rank 0) and before the first step: afterwards
    // parameters, buffers and optimizer state are the same bits on every rank.
    // Called again when other weights were read after fit, for validate, test and predict.
    // Shapes: regions as placed, all present. Collective: all ranks call.
    td_status (*setup)(struct td_strategy *s, const struct td_state_table *state,
                       const struct td_strategy_memory *memory);
    // (optional) A bounded barrier on a clean exit. Absent: none.
    td_status (*teardown)(struct td_strategy *s);
    // (optional) This rank failed: wake peers that wait in a collective. Does not fail itself.
    void (*on_exception)(struct td_strategy *s, enum td_code code);

    // ---- the step
    // (optional) Moves a batch, field by field, to where programs read it; out_inputs may be what
    // came in. Absent: programs read host memory.
    td_status (*batch_to_device)(struct td_strategy *s, const void *const *fields, size_t n_fields,
                                 const void **out_inputs);
    // (optional) Runs the segments of a program. Absent: the accelerator's run. A strategy that
    // writes parameters between its runs takes TD_RUN_STEADY out of segments.
    td_status (*step)(struct td_strategy *s, enum td_strategy_step kind, struct td_executable *exe,
                      uint32_t segments, const void *const *inputs);
    // (optional) Around the backward segment. With either, forward, backward and the rest run one
    // by one: the same bits as the fused step.
    td_status (*pre_backward)(struct td_strategy *s);
    td_status (*post_backward)(struct td_strategy *s);
    // (optional) Instead of running finish and apply. Absent: they run with the step.
    td_status (*optimizer_step)(struct td_strategy *s, struct td_executable *exe,
                                const void *const *inputs);
    // Called where an all_reduce node stands: averages a bucket of n elements in place over the
    // world; the n_tail fp32 elements behind it are summed instead (control flags). Errors: ABORTED
    // (class collective) when a peer is gone.
    td_status (*reduce_gradients)(struct td_strategy *s, void *data, int64_t n, enum td_dtype dtype,
                                  int64_t n_tail);
    // (optional) Called at each point of td_strategy_hook. It leaves parameters alone.
    td_status (*hook)(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch);

    // ---- the group. All ranks call, in the same order. The op is always named. The loop
    // needs reduce, all_gather and broadcast; barrier and reduce_boolean_decision serve hooks and
    // programs with a loop of their own.
    td_status (*reduce)(struct td_strategy *s, void *data, int64_t n, enum td_dtype dtype,
                        enum td_reduce_op op); // in place
    // out has world * bytes: a new leading dimension, also for world 1.
    td_status (*all_gather)(struct td_strategy *s, const void *in, size_t bytes, void *out);
    td_status (*broadcast)(struct td_strategy *s, void *data, size_t bytes, int32_t src);
    td_status (*barrier)(struct td_strategy *s, const char *tag);
    // all: true when every rank says true; else when any does.
    td_status (*reduce_boolean_decision)(struct td_strategy *s, bool decision, bool all,
                                         bool *out_decision);

    // ---- checkpoints. Every path has one owner, who writes and removes it.
    // Which roles this rank writes (bits 1 << td_role): all on rank 0 where state is replicated.
    td_status (*save_checkpoint)(struct td_strategy *s, uint32_t *out_roles);
    // Which roles this rank reads; setup makes the others equal afterwards.
    td_status (*load_checkpoint)(struct td_strategy *s, uint32_t *out_roles);
    // (optional) Does this rank remove a path that it wrote? Absent: yes.
    td_status (*remove_checkpoint)(struct td_strategy *s, const char *path, bool *out_removes);
    // (optional) Collects sharded optimizer state into `memory` before a save; called on all
    // ranks. Absent: the state is whole where it is written.
    td_status (*optimizer_state)(struct td_strategy *s, const struct td_state_table *state,
                                 struct td_strategy_memory *memory);
};

#ifdef __cplusplus
}
#endif
#endif
