#ifndef TRAIND_STRATEGY_H
#define TRAIND_STRATEGY_H

// Strategy: how the ranks of a job share the work. It says where state lives, rewrites each
// recorded program with the collectives it needs, divides the data, and answers for the group.
//
// It has no loop. The rank context, which owns the plugins of one rank, calls the slots in this
// order:
//
//   open -> environment -> process_dataloader, wrap_loader -> connect -> build_begin ->
//   (record: rewrite, once per program) -> build_end -> place -> setup -> state_load ->
//   [ hook ... step, step_end ... hook ] -> optimizer_state, state_save ... -> teardown -> close;
//   on_exception, instead of a clean teardown, on error
//
// Programs that do not fit into memory are recorded again, from build_begin to build_end, to keep
// less. load_checkpoint and save_checkpoint may be asked at any time after connect, more than once,
// and have one answer.
//
// Only open, close and environment are required. What happens where another slot is absent is said
// beside it; a table that has no other slot is data parallel without reducing anything, with all
// state on every rank. A plan opens a strategy too, to size the job: then `collective` is NULL, and
// after build_end only save_checkpoint and close are called. A plan that tries another precision
// closes the strategy, and opens it again with that one.
//
// Four things that a strategy owes the loop:
//
// *The same calls on all ranks.* Each slot that talks to the group is called on all ranks in the
// same order. Inside, a strategy makes the same calls of the collective on each of them.
//
// *The control tail.* Ranks agree to stop, to save and that time is up by summing flags: the last
// TD_CONTROL_FLAGS fp32 elements of the GRAD region, after the last bucket. reduce_gradients gets
// them with that bucket (has_control), and has to sum them over the world, whatever it does with
// the gradients. Where a step ends and no last bucket was reduced, because the strategy rewrites
// nothing or reduces in another way, the rank context sums the flags itself. The same holds for a
// precision that skips steps: ranks then ask each other whether all gradients are finite. A
// strategy that has all_reduce nodes, but leaves gradients different on the ranks, cannot be used
// with such a precision. It reduces in post_backward instead, without all_reduce nodes. A tail that
// was not summed ends the attempt at the first step (class user_code).
//
// *The right to write.* What a strategy may write, and where:
//
//  - between open and setup: no state;
//  - in setup and state_load: every region;
//  - between the runs of a step slot: parameters, buffers and optimizer state;
//  - in pre_backward, backward, post_backward and optimizer_step: gradients, too;
//  - in reduce_gradients: the bucket;
//  - in hook: buffers;
//  - in optimizer_state: the roles that it is asked for;
//  - in any other slot: nothing.
//
// A slot that is called on the training thread, but for on_exception, finds all runs done. Only
// step, backward and optimizer_step run programs themselves. Before they read or write what a run
// of theirs has written, they wait for its ticket, with a deadline that ends the attempt when it
// passes. State is read and written through td_buffer_host, where that is not NULL, else through
// the accelerator's copy, which waits by itself. The bucket of reduce_gradients is host memory,
// unless the collective is on_device and gradients are on a device: then it is there, and the work
// is queued on its stream.
//
// *TD_RUN_STEADY.* This bit of `segments` says that only programs wrote parameters since the last
// run, so that an accelerator may use what it packed of them. A step slot that wrote parameters
// itself takes the bit out of the segments of its next run, of whatever kind of step that is. With
// pre_backward, backward, post_backward or optimizer_step the rank context leaves it out of each
// training step, and of the first run after one. So it does for the first run after an
// optimizer_state that was asked for parameters.
//
// Where ranks differ: gradients that differ between ranks are clipped by each rank's own norm, and
// `grad_norm` is no norm of the job. Where ranks hold different weights, each rank's metrics are of
// its own, and so is its share in those that are summed over ranks. A role is saved as one rank has
// it (save_checkpoint), rank 0 where the strategy does not say. A strategy whose ranks differ saves
// what they have as its RANK part.
//
// Ownership: what open was given lives until close has returned, unless said otherwise. Module,
// state table, memory and loaders are there until close is called. All else is borrowed until the
// call returns, but the inputs of a run, until its ticket is done.
//
// Structs begin with struct_bytes, by which versions of this header can differ. Slots that a later
// minor version adds are at the end of the table, not in their section.
//
// Errors: a slot returns a status and writes outputs only on success; a failure ends the attempt,
// and its class says whether the job is started again. Give one where the code does not say it
// (USER_CODE: a bug of the strategy; BAD_SPEC: knobs that cannot be). After an error of
// remove_checkpoint training goes on.
// Thread: the training thread, but for reduce_gradients and remove_checkpoint, as said there.
// Source: Strategy, Accelerator (1.3), DDPSpawnStrategy, XLAStrategy and Fabric of Lightning; where
// they disagree, what is said here.

#include "traind/accelerator.h"
#include "traind/bucket.h"
#include "traind/collective.h"
#include "traind/dataset.h"
#include "traind/graph.h"
#include "traind/knobs.h"
#include "traind/module.h"
#include "traind/precision.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- configuration and facts --------------------------------------------------------------------
// What a strategy is opened with. The group is joined before and left after it. Copy it: the struct
// dies when open returns, what it points to lives until close.
struct td_strategy_config {
    uint32_t struct_bytes;
    int32_t global_rank; // from 0, below world_size
    int32_t local_rank;  // from 0, among the ranks of this node
    int32_t node_rank;   // from 0
    int32_t world_size;  // ranks of the job
    const struct td_collective_ops *collective_ops;
    struct td_collective *collective; // NULL: it is opened for a plan
    // Which of the optional calls the group serves: td_collective_require(facts, name, call).
    const struct td_collective_facts *collective_facts;
    const char *collective_name; // "shm", for errors
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    // Of gradients: the bucket that is reduced first, and the most of any other. 0: the strategy's
    // own.
    size_t bucket_first_bytes, bucket_cap_bytes;
    // Its own knobs, read with traind/knobs.h until open returns; NULL: none were given.
    const struct td_json *knobs;
    // In what types the job computes, before any step. Its slot facts may be called, with
    // `precision` as it is (NULL, where it keeps nothing); other slots are the rank context's.
    const struct td_precision_ops *precision_ops;
    struct td_precision *precision;
    const char *precision_name; // as the job spec calls it: "bf16-mixed"
};

// What a strategy is, once the environment is known. It comes filled in: device and ranks as they
// are, restore_optimizer true, all else false. Change what differs.
struct td_strategy_facts {
    uint32_t struct_bytes;
    // Where this rank is. Ranks that the strategy sees elsewhere would not meet: a change ends the
    // attempt (class user_code).
    int32_t root_device; // that this rank has opened, an index for the accelerator, from 0
    int32_t world_size, global_rank, local_rank, node_rank; // as in the configuration
    bool is_global_zero;                                    // global_rank 0, of all nodes
    bool handles_gradient_accumulation; // for later: a strategy that says true is refused
    // The rank context loads optimizer state (else: the strategy does). The same on all ranks;
    // ranks that differ in this or in late_optimizers end with an error, class user_code.
    bool restore_optimizer;
    // At the same world size a run that is resumed gives the bits of one that was not interrupted.
    // So all that a step depends on is in the roles that are saved, in what state_save gives, or a
    // function of the step. False: a job that is resumed says that it is not bit-exact.
    bool resumes_exactly;
    bool hooks_batches; // wants TD_HOOK_TRAIN_BATCH_START, so nothing is queued ahead
    // Optimizer state is made after setup, which finds its region empty (bytes 0), unless place
    // brought it: a strategy sees all parameters in their place before an optimizer has state. What
    // is made then is the memory that place did not bring, and first values. Then comes what a
    // checkpoint has of it, if restore_optimizer, and the bits of rank 0 for every rank. The layout
    // is as ever: updates are recorded with the programs, before place. The same on all ranks. A
    // resumed run reads its checkpoint's files twice, if restore_optimizer.
    bool late_optimizers;
    // Of several nodes, with buckets in host memory: the backward pass waits until a bucket is
    // reduced, instead of going on.
    bool waits_for_buckets;
};

// ---- data and state -----------------------------------------------------------------------------
// How the samples of a split are divided: this rank takes positions rank, rank + n_replicas, ... of
// the epoch's order.
struct td_strategy_shard {
    int32_t n_replicas; // shares, at least 1
    int32_t rank;       // this one's, from 0, below n_replicas
};

// Where the batches of a split come from.
struct td_loader {
    uint32_t struct_bytes;
    void *self; // first argument of batch
    // This rank's share of the batch that begins at sample `offset` of a loader of the split (0,
    // where it has one). A run may be queued meanwhile. out_fields: (8) field by field, each
    // (n, sample_shape), in host memory that stays as it is until the call after the next one. Each
    // has the bytes of out_n samples, or more; the inner loader gives exactly those. out_n: as many
    // samples as the inner loader has there, which programs were recorded for. Another number,
    // device memory or too few bytes end the attempt (class user_code). 0: this rank has none, and
    // fields are not read.
    td_status (*batch)(void *self, int32_t loader, int64_t offset, struct td_buffer *out_fields,
                       int64_t *out_n);
};

// The rank's state memory. place may bring its own for a role; what it leaves alone (bytes 0) the
// rank context allocates from the accelerator.
struct td_strategy_memory {
    // By td_role: td_state_region_bytes of each, that of TD_ROLE_GRAD with the control tail.
    struct td_buffer region[TD_ROLE_COUNT];
};

// What a slot of checkpoints is asked with. It comes filled in. Who reads a field that a later
// minor version added looks at struct_bytes first. Strings die when the slot returns.
struct td_checkpoint_call {
    uint32_t struct_bytes;
    // Bits 1 << td_role, of parameters, buffers and optimizer state; other bits are not read. Of
    // save_checkpoint and load_checkpoint it is the answer, and comes as what holds where the slot
    // is absent. Of remove_checkpoint: those that the checkpoint has.
    uint32_t roles;
    const char *path;    // of the checkpoint, a directory; NULL: none is meant yet
    const void *options; // of storage; NULL, until there are some
};

// What a strategy keeps of itself in a checkpoint, beside the state of the rank.
enum td_strategy_state {
    TD_STRATEGY_WHOLE, // one for the job, saved by the rank that writes the checkpoint's files
    TD_STRATEGY_RANK,  // one for each rank
};
// Of all parts in a checkpoint, those of a comm hook and of a precision included. Parts of ranks
// are gathered in rows, so the world times the largest of them is at most so many bytes, too.
enum { TD_PLUGIN_STATE_MAX_BYTES = 1 << 30 };

// ---- steps and hooks ----------------------------------------------------------------------------
enum td_strategy_step { TD_STEP_TRAIN, TD_STEP_VALIDATE, TD_STEP_TEST, TD_STEP_PREDICT };

// Points of the loop at which a strategy is called on all ranks, if it wants to be. More may be
// added: a plugin ignores one that it does not know. A point that is an END is left out where the
// attempt fails. `batch` is 0 where nothing else is said.
enum td_strategy_hook {
    TD_HOOK_TRAIN_START,
    TD_HOOK_TRAIN_BATCH_START, // if hooks_batches; batch: of its epoch, from 0. Cannot skip it
    TD_HOOK_TRAIN_END,         // after the last checkpoint, also that of an agreed stop
    TD_HOOK_EVAL_START,        // of any stage below, right after its START
    TD_HOOK_EVAL_END,          // right before its END, with the same batch
    // Of an epoch. START comes before its first batch; batch: how many of it are done already.
    // Above 0 the run was resumed within the epoch, whose START an attempt before had, too. END
    // comes after its last batch and validation, before its metrics and its checkpoint. There batch
    // is how many were done: fewer than the epoch has where the job ends within it. An agreed stop
    // within an epoch calls no END. Where such a stop came before the epoch's last validation, the
    // attempt that resumes validates first. Then it calls that epoch's END without a START.
    TD_HOOK_TRAIN_EPOCH_START,
    TD_HOOK_TRAIN_EPOCH_END,
    // Of a pass over a split with at least one batch: validate is also the sanity check, and each
    // validation of fit. END also follows an agreed stop. batch: 0; at END how many are done, of
    // predict how many batches, or tokens of a continued prompt, were due. A loop of somebody's
    // own (traind/fabric.h) has those of validate and test. START comes with the first batch that
    // it takes, END where the pass is over or a batch of another split is taken. It may evaluate a
    // batch after END.
    TD_HOOK_VALIDATE_START,
    TD_HOOK_VALIDATE_END,
    TD_HOOK_TEST_START,
    TD_HOOK_TEST_END,
    TD_HOOK_PREDICT_START,
    TD_HOOK_PREDICT_END,
    // Of each loader of an evaluation, where there are several. batch: the loader, from 0.
    TD_HOOK_EVAL_LOADER_START,
};

// ---- the table ----------------------------------------------------------------------------------
// The ranks that a call of the group is among. Numbers from 1 are kept for groups that a strategy
// has made before.
enum { TD_GROUP_WORLD = 0 };

struct td_strategy; // the strategy's own

struct td_strategy_ops {
    uint32_t struct_bytes;

    // ---- life cycle -----------------------------------------------------------------------------
    // Errors: class bad_spec for knobs that cannot be.
    td_status (*open)(const struct td_strategy_config *config, struct td_strategy **out_strategy);
    void (*close)(struct td_strategy *s); // accepts NULL
    // Checks that this strategy can serve this world and fills the facts. Before dataset and module
    // are opened. Errors: INVALID_ARGUMENT, class bad_spec, when it cannot ("single_device with 2
    // ranks").
    td_status (*environment)(struct td_strategy *s, struct td_strategy_facts *out_facts);
    // (optional) Learns the module; stores the pointer, converts nothing. Absent: not called.
    td_status (*connect)(struct td_strategy *s, const struct td_module_ops *ops,
                         struct td_module *module);
    // (optional) A clean exit. Absent: a bounded barrier, where there are several ranks.
    td_status (*teardown)(struct td_strategy *s);
    // (optional) This rank failed: wake peers that wait in a collective. Does not fail itself.
    // Absent: the group is aborted.
    void (*on_exception)(struct td_strategy *s, enum td_code code);

    // ---- programs -------------------------------------------------------------------------------
    // (optional, both or none) Bracket around the recording of all programs
    // (model_sharded_context), which may come again. The first may leave a rule that splits tensors
    // as they are named (td_state_set_rule). The rule is gone when the second is called, which sees
    // what was added. Absent: tensors are whole, but for what rewrite splits.
    td_status (*build_begin)(struct td_strategy *s, struct td_state_table *state);
    td_status (*build_end)(struct td_strategy *s, const struct td_state_table *state);
    // (optional) Rewrites one program after autodiff and precision, of whatever mode: buckets,
    // collectives. key says whether it syncs; a program with sync off is `no_backward_sync`. Calls:
    // traind/rewrite.h. Absent: programs stay as they were recorded, and nothing is reduced.
    td_status (*rewrite)(struct td_strategy *s, struct td_graph *g,
                         const struct td_program_key *key);
    // (optional) The same after the optimizer pass, once for each program that updates. This is the
    // place for gathers of parameters that were updated in pieces (td_rewrite_all_gather). Absent:
    // nothing comes after the update.
    td_status (*rewrite_update)(struct td_strategy *s, struct td_graph *g,
                                const struct td_program_key *key);

    // ---- data -----------------------------------------------------------------------------------
    // (optional) Divides a split among the ranks. Idempotent; never changes the order. Keys of
    // random numbers, rows of predictions and positions of a checkpoint follow the share. Several
    // ranks may have the same: of an evaluation the first of them counts. n_replicas is the same on
    // all ranks (else class user_code). Predictions need each share on some rank. Not called
    // where trainer.use_distributed_sampler is false: then each rank has all samples. Absent: each
    // rank has its share of world_size.
    td_status (*process_dataloader)(struct td_strategy *s, enum td_split split,
                                    struct td_strategy_shard *out_shard);
    // (optional) Puts a loader of its own around that of a split: one that echoes, caches or
    // fetches ahead. Called once for each split that is there, after process_dataloader. inner
    // lives until the strategy is closed. Absent: batches come from inner.
    td_status (*wrap_loader)(struct td_strategy *s, enum td_split split,
                             const struct td_loader *inner, struct td_loader *out_loader);
    // (optional) Moves a batch, field by field, to where programs read it; out_inputs may be what
    // came in. Called once for each training step that a batch goes through, once for a batch of an
    // evaluation, and once more where its predictions are scored. A rank without samples that runs
    // a program all the same has zeros there. loader: which of its split the
    // batch is of, from 0. fields: (n_fields), each (samples, sample_shape), host memory that stays
    // as it is until the runs of this batch are done. out_inputs: (n_fields), as many bytes of
    // each, alive as long. Device memory is only of the rank's accelerator, and where its run takes
    // any. Absent: programs read host memory.
    td_status (*batch_to_device)(struct td_strategy *s, int32_t loader,
                                 const struct td_buffer *fields, size_t n_fields,
                                 struct td_buffer *out_inputs);

    // ---- state ----------------------------------------------------------------------------------
    // (optional) Brings memory for regions, e.g. gradients inside the group's mapping. What it
    // brings lives until close. A strategy may keep both pointers: by setup, memory has all regions
    // but that of late_optimizers. Absent: all from the accelerator.
    td_status (*place)(struct td_strategy *s, const struct td_state_table *state,
                       struct td_strategy_memory *memory);
    // (optional) After state was initialized or loaded (by ranks that read, load_checkpoint) and
    // before the first step: afterwards parameters, buffers and optimizer state are the same bits
    // on every rank. Called again when other weights were read for validate, test and predict.
    // Shapes: regions as placed, all present but the optimizer's, the first time, if
    // late_optimizers. Collective: all ranks call. Absent: ranks compare digests, and get from rank
    // 0 what differs.
    td_status (*setup)(struct td_strategy *s, const struct td_state_table *state,
                       const struct td_strategy_memory *memory);

    // ---- the step -------------------------------------------------------------------------------
    // (optional) Runs the segments of a program. Absent: the accelerator's run. An optimizer step
    // is done by a run of kind TRAIN whose segments have 1 << TD_SEG_APPLY. One that the precision
    // skips has none, nor has a micro-batch whose gradients are only accumulated. The place to
    // change parameters after a step: see *The right to write*.
    // segments: bits 1 << td_segment, and TD_RUN_STEADY. The accelerator is prepared for this set;
    // a part of it may be compiled when it runs. inputs: (n_fields), what batch_to_device
    // gave. out_ticket: of its last run; one that is left alone ends the attempt (class user_code).
    td_status (*step)(struct td_strategy *s, enum td_strategy_step kind, struct td_executable *exe,
                      uint32_t segments, const struct td_buffer *inputs, td_ticket *out_ticket);
    // (optional) Around the backward segment of each micro-batch, the accumulated ones included.
    // With either, or with backward or optimizer_step, forward, backward and the rest run one by
    // one: the same bits as the fused step.
    td_status (*pre_backward)(struct td_strategy *s);
    td_status (*post_backward)(struct td_strategy *s);
    // (optional) Instead of running the backward segment of a micro-batch, between pre_backward and
    // post_backward: it runs 1 << TD_SEG_BACKWARD of exe, and what it likes around it. inputs: as
    // for step. out_ticket: of its last run. Absent: the segment runs, by the step slot where there
    // is one.
    td_status (*backward)(struct td_strategy *s, struct td_executable *exe,
                          const struct td_buffer *inputs, td_ticket *out_ticket);
    // (optional) Instead of running the segments of an update. segments: bits 1 << td_segment,
    // finish and apply, or apply alone where finish ran for the norm of the gradients. inputs: as
    // for step. out_stepped: comes true; false where it has not updated, the same on all ranks.
    // Such a step counts as one that the precision skips: weights are as they were, and gradients
    // are gone. out_ticket: of its last run; one that has skipped may have run nothing, and leave
    // it alone. A precision that may skip steps is refused beside it, and so is a comm hook with
    // state and no end_step. Absent: the segments run with the step.
    td_status (*optimizer_step)(struct td_strategy *s, struct td_executable *exe, uint32_t segments,
                                const struct td_buffer *inputs, bool *out_stepped,
                                td_ticket *out_ticket);
    // (optional) Averages a bucket in place over the world, and sums its control flags. Called for
    // each all_reduce node, in their order, on the thread that runs the accelerator's queue. Of
    // several nodes, with buckets in host memory, it is called on a thread beside that, while the
    // queue goes on, unless waits_for_buckets. It may leave the sum to the collective's
    // wait_buckets, which is called in any case where there is one. Errors: ABORTED (class
    // collective) when a peer is gone. Absent: the collective's all_reduce_bucket.
    td_status (*reduce_gradients)(struct td_strategy *s, const struct td_bucket *bucket);
    // (optional) After a step, once its outputs are read: training_step_end, validation_step_end
    // and test_step_end of Lightning. It is called once for each training step of each batch, after
    // the run that has its forward segment, and for each batch of validate, test and predict. A
    // rank whose share of the batch is empty has no step: so in an evaluation it leaves the group
    // alone. It may run a program on zeros for the sums of others. Nothing is queued ahead of what
    // it is called for. Absent: nothing is called, and nothing waits.
    // g: names the outputs, td_graph_output_at, and the training step, td_graph_step. n: samples.
    // outputs: (td_graph_n_outputs(g)), of this rank. What it leaves in them is what is logged,
    // checked for numbers, and summed over ranks where a callback monitors it. It changes no
    // gradient, and not whether the optimizer steps. Predictions are no outputs.
    td_status (*step_end)(struct td_strategy *s, enum td_strategy_step kind,
                          const struct td_graph *g, int64_t n, double *outputs);
    // (optional) Called at each point of td_strategy_hook, which says what batch is. It leaves
    // parameters alone.
    td_status (*hook)(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch);

    // ---- the group ------------------------------------------------------------------------------
    // All ranks call, in the same order. The op is always named. Data is host memory. Smaller
    // groups are the collective's (group_create). Each is (optional); absent: the collective's, and
    // a sum of votes for reduce_boolean_decision.
    //
    // group: TD_GROUP_WORLD. The slots are called with no other one: td_rank_reduce and
    // td_rank_all_gather refuse it (INVALID_ARGUMENT).
    //
    // In place over n elements of dtype at data.
    td_status (*reduce)(struct td_strategy *s, int32_t group, void *data, int64_t n,
                        enum td_dtype dtype, enum td_reduce_op op);
    // in: (bytes). out: (W, bytes), a new leading dimension, also for world 1.
    td_status (*all_gather)(struct td_strategy *s, int32_t group, const void *in, size_t bytes,
                            void *out);
    // data: (bytes) on every rank: those of rank src are copied to all others.
    td_status (*broadcast)(struct td_strategy *s, void *data, size_t bytes, int32_t src);
    // Returns when all ranks have come. tag: the same on all of them; an error names it.
    td_status (*barrier)(struct td_strategy *s, const char *tag);
    // all: true when every rank says true; else when any does.
    td_status (*reduce_boolean_decision)(struct td_strategy *s, bool decision, bool all,
                                         bool *out_decision);

    // ---- checkpoints ----------------------------------------------------------------------------
    // Every path has one owner, who writes and removes it.
    //
    // (optional) Which roles this rank writes, into io_call->roles. path is NULL: the answer holds
    // for every checkpoint. A role is one rank's: where two claim it, the attempt ends before its
    // first step (class user_code). Roles of several ranks make one checkpoint: the first of them
    // writes all files, and gets the others' roles at each save. Absent: rank 0 all three, the
    // others nothing.
    td_status (*save_checkpoint)(struct td_strategy *s, struct td_checkpoint_call *io_call);
    // (optional) Which roles this rank reads, likewise; setup makes the others equal afterwards.
    // Rank 0 reads one at least: from it the others get how far the run was, and what plugins kept.
    // Where several ranks read, they read one checkpoint: the newest that each of them has whole.
    // Absent: as for save_checkpoint.
    td_status (*load_checkpoint)(struct td_strategy *s, struct td_checkpoint_call *io_call);
    // (optional) Does this rank remove call->path, which it wrote? out_removes comes true. Absent:
    // yes. Asked of the rank that writes, on the thread that does so, beside steps. After an error
    // the path stays, and a note of the job says why.
    td_status (*remove_checkpoint)(struct td_strategy *s, const struct td_checkpoint_call *call,
                                   bool *out_removes);
    // (optional) Collects sharded state into `memory` before a save; called on all ranks. roles:
    // bits 1 << td_role of what the save writes; regions of other roles are left alone. Absent: the
    // state is whole where it is written.
    td_status (*optimizer_state)(struct td_strategy *s, uint32_t roles,
                                 const struct td_state_table *state,
                                 struct td_strategy_memory *memory);
    // (optional, both or none) What it keeps of itself, in the file plugins.safetensors of the
    // checkpoint, which the manifest digests. At an optimizer-step boundary, RANK on every rank,
    // then WHOLE on the rank that writes. out_state may be empty. It is borrowed until the next
    // call of state_save: parts of ranks are gathered by slot all_gather, if there is one. Above
    // TD_PLUGIN_STATE_MAX_BYTES the attempt ends (RESOURCE_EXHAUSTED).
    td_status (*state_save)(struct td_strategy *s, enum td_strategy_state which,
                            struct td_span *out_state);
    // When a run is resumed, on every rank, after setup and late optimizers: WHOLE, the same bytes
    // everywhere, then RANK, those of this rank. data dies when it returns; it is the strategy's to
    // check, and DATA_LOSS where it cannot be. Not called for a part that the checkpoint does not
    // have. At another world size the parts of ranks are dropped, and the job says so: resume is
    // not exact.
    td_status (*state_load)(struct td_strategy *s, enum td_strategy_state which, const void *data,
                            size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
