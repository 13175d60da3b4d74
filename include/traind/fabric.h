#ifndef TRAIND_FABRIC_H
#define TRAIND_FABRIC_H

// Fabric: the user's own loop. The same accelerators, strategies, precisions, modules and datasets
// as in a job, with forward, backward and optimizer step in the user's hands.
//
//   create -> setup_module, setup_optimizers, setup_dataloaders, seed_everything -> setup ->
//   ( next -> forward -> backward -> optimizer_step ) ... -> save -> destroy
//
// What a job spec says in YAML is said here in the same words: docs/job-spec.md lists every key.
// All programs are recorded and compiled by setup, for the batches of the loaders. So there is no
// autocast to enter and nothing to move to a device: the precision rewrites the recorded steps, and
// next moves its batch.
//
// A program runs alone, as ranks that it spawns itself (traind/spawn.h), or as a job (kind: program
// in docs/commands.md). It is the same binary; TRAIND_RANK in its environment says which rank it
// is. Then every call below is made by all ranks, in the same order, unless its line says
// otherwise. A job that is started again goes on from its newest checkpoint: setup loads it.
//
// Speed and bits: calls are put together. A loop that reads no value between forward and
// optimizer_step runs them as one, and trains to the same bits as a job of the same spec.
//
// Thread: the one that called create makes all calls. Ownership: what a call is given is copied or
// borrowed until it returns, unless its line says otherwise.
// Errors: a status, whose class says whose fault it is. A call in an order that cannot be is
// FAILED_PRECONDITION (class user_code), and changes nothing. After any other failure the fabric is
// only good to finish and destroy: every other call says which failure it was. Other ranks are
// woken, at the latest when the process ends. Every wait for them has a deadline. Source:
// Fabric of Lightning.

#include "traind/collective.h"
#include "traind/dataset.h"
#include "traind/descriptor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_fabric;

// Called by td_fabric_call, by name, in the order of the list.
struct td_fabric_callback {
    const char *hook; // "on_epoch_end", or whatever the program calls
    td_status (*call)(struct td_fabric *f, void *arg, const void *data);
    void *arg;
};
// Where td_fabric_log sends values besides the job. On every rank that logs; who wants rank 0 alone
// looks at the facts.
struct td_fabric_logger {
    void (*log)(void *arg, const char *name, double value, int64_t step, int64_t epoch);
    void *arg;
};

// All are borrowed until create returns, but for what the arguments `arg` point to.
struct td_fabric_options {
    uint32_t struct_bytes;   // sizeof(struct td_fabric_options)
    const char *accelerator; // NULL: auto
    const char *strategy;    // NULL: auto
    const char *precision;   // NULL: 32-true
    int32_t devices;         // ranks of each node; 0: as many as were started, 1 alone
    int32_t num_nodes;       // that the job spans; 0: as many as it does, 1 alone
    int32_t threads;         // of each rank; 0: its share of the cores that it may use
    bool accumulates;        // gradients of several backward calls may add up
    bool quiet;              // alone: print neither metrics nor events
    // More of the spec's section `trainer`, as a map: "{gradient_clip_val: 1.0}". max_epochs and
    // max_steps say how long a schedule is. What this struct says itself, and what is the loop's
    // own business (when to validate, to log, to accumulate), is refused. NULL: nothing.
    const char *trainer;
    // Section `comm_hook`, as a map: "{name: power_sgd, rank: 2}". NULL: gradients as they are.
    const char *comm_hook;
    // Directory whose step-<n> td_fabric_save writes; in a job the job's own. NULL: none.
    const char *checkpoint_dir;
    // Where choices that were measured on this machine, and decoded data, are kept from one run to
    // the next; a job has that of its node. NULL: each run measures again.
    const char *cache_dir;
    // Plugins of this program, for `name: plugin` in a section. They live as long as the fabric.
    const struct td_plugin_desc *const *own_plugins;
    size_t n_own_plugins;
    const char *const *plugins; // paths of shared objects that hold more
    size_t n_plugins;
    const struct td_fabric_callback *callbacks; // copied
    size_t n_callbacks;
    const struct td_fabric_logger *loggers; // copied
    size_t n_loggers;
    // Forwards of several steps may be open at once, their backward still to come. Each step has
    // memory of its own for activations then. False: a forward ends that of another step.
    bool keeps_forwards;
};

// What is known of a rank, from create on. Before setup world_size and ranks are those that were
// started.
struct td_fabric_facts {
    uint32_t struct_bytes;
    int32_t world_size, global_rank, local_rank, node_rank;
    bool is_global_zero;
    bool is_set_up;
    int32_t device;          // of the accelerator; -1 before setup
    const char *accelerator; // names as the spec has them; they live as long as the fabric
    const char *strategy, *precision, *collective;
    int64_t global_step; // optimizer steps, without those that were skipped
    int64_t epoch;       // the one being played, from 0
    bool resumed;        // setup loaded a checkpoint
    bool can_save;       // td_fabric_save has a directory
};

// ---- life cycle ---------------------------------------------------------------------------------

// Takes the options. Nothing is opened yet. In a job it also takes SIGTERM, so it comes before any
// thread is made. One at a time in a process.
// Errors: INVALID_ARGUMENT (class bad_spec) names the option; FAILED_PRECONDITION in a process that
// another launcher (torchrun, srun, mpirun) started as one of several, with the remedy.
TD_MUST_USE td_status td_fabric_create(const struct td_fabric_options *options,
                                       struct td_fabric **out_fabric);
// Ends a clean run: waits for what is queued and for a checkpoint that is being written, and for
// the other ranks. In a job it says how the run ended. status: of the program; after a failure it
// is reported and the others are woken. Takes status and gives back the first failure of all. TD_OK
// though a call has failed is a failure itself. The fabric is only good to destroy afterwards.
TD_MUST_USE td_status td_fabric_finish(struct td_fabric *f, td_status status);
// Accepts NULL. Without finish before it the run counts as failed.
void td_fabric_destroy(struct td_fabric *f);
// What the end of main is: finish, a line on stderr if something failed, destroy. Returns the
// process's exit code, which a launcher understands. f may be NULL: it was not created.
TD_MUST_USE int td_fabric_exit(struct td_fabric *f, td_status status);
// Writes the facts of now into out_facts, as much as its struct_bytes say.
void td_fabric_get_facts(const struct td_fabric *f, struct td_fabric_facts *out_facts);

// ---- what is trained: before setup, each once ---------------------------------------------------

// The module: section `model` of a spec, as a map: "{name: mlp, layers: [784, 10]}", or
// "{name: plugin, module: mine}" for one of the program's own. Errors: FAILED_PRECONDITION at a
// second call. What is wrong in the text is said by setup.
TD_MUST_USE td_status td_fabric_setup_module(struct td_fabric *f, const char *model);
// Sections `optimizer` (a map) or `optimizers` (a list of maps), and `lr_scheduler`; NULL: a
// constant rate. Without an optimizer the module is evaluated alone.
TD_MUST_USE td_status td_fabric_setup_optimizers(struct td_fabric *f, const char *optimizer,
                                                 const char *lr_scheduler);
// Section `data`, with batch_size (per rank), shuffle and drop_last. Its splits are divided among
// the ranks.
TD_MUST_USE td_status td_fabric_setup_dataloaders(struct td_fabric *f, const char *data);
// Seeds everything: initial values, dropout, the order of samples. Without it: 0.
TD_MUST_USE td_status td_fabric_seed_everything(struct td_fabric *f, uint64_t seed);
// Opens accelerator, strategy, precision, data and module; records and compiles all steps; makes
// the state, the same on all ranks. Module and data are needed. Where the accelerator has devices,
// each rank opens the one of its local_rank.
// Errors: INVALID_ARGUMENT (class bad_spec) with every key that is wrong, or where a node has more
// ranks than devices; those of the plugins.
TD_MUST_USE td_status td_fabric_setup(struct td_fabric *f);

// ---- batches ------------------------------------------------------------------------------------

// A batch of this rank. It is there until the second next of any split after it.
struct td_fabric_batch {
    uint32_t struct_bytes;
    enum td_split split;
    bool is_over;      // the epoch is: this is no batch, and the next call begins another
    int64_t n_samples; // 0 of the last batch of an evaluation, where others have one more
    int64_t batch_idx; // in the epoch or the loader, from 0
    uint32_t n_fields;
    const void *const *fields;    // (n_fields), each (n_samples, ...), host memory
    const struct td_field *field; // (n_fields) names, types and shapes
    int32_t dataloader_idx;       // of an evaluation, where the data has several loaders; else 0
};
// The next batch of a split. Epochs of the training split are counted, and kept in checkpoints;
// each has its own order. The others begin again where they ended. Of several loaders one comes
// after the other, and batch_idx begins with each. All ranks have as many batches. Of an evaluation
// each sample comes once, so a rank may have none for the last one; the training split repeats
// some, as torch's DistributedSampler does. All ranks take the whole pass of an evaluation, also
// those without samples. With its first batch it begins on all of them: ddp gives them the buffers
// of rank 0. It ends where is_over is said. A batch of another split ends it, too; what is left of
// it then begins as another pass. Errors: FAILED_PRECONDITION: the data has no such split.
TD_MUST_USE td_status td_fabric_next(struct td_fabric *f, enum td_split split,
                                     struct td_fabric_batch *out_batch);

// ---- steps --------------------------------------------------------------------------------------

// step: a training step of the module, by name; NULL: its first. Others are NOT_FOUND, with the
// names that there are. Several steps may go over the same batch, one after the other.
//
// Begins a pass over the batch of the training split that was taken last. It ends with its
// backward. Another batch ends it before that, and so does an optimizer step, which moves what it
// has read. A forward of another step does, too, unless options.keeps_forwards is set.
TD_MUST_USE td_status td_fabric_forward(struct td_fabric *f, const char *step);
// Differentiates the last forward. Its gradients overwrite those of the step that an update has
// used, and add to others (options.accumulates). They are averaged over the ranks, unless
// no_backward_sync is on.
TD_MUST_USE td_status td_fabric_backward(struct td_fabric *f);
// The same of the forward of a step that is open.
TD_MUST_USE td_status td_fabric_backward_of(struct td_fabric *f, const char *step);
// Updates what the step trains. Passes of other steps may come between it and the backward.
// out_stepped may be NULL; false: the precision skipped the update, because a gradient was not
// finite.
TD_MUST_USE td_status td_fabric_optimizer_step(struct td_fabric *f, const char *step,
                                               bool *out_stepped);
// Forgets the gradients of the step. An update has done so already.
TD_MUST_USE td_status td_fabric_zero_grad(struct td_fabric *f, const char *step);
// The norm of the gradients before clipping. The optimizer step then clips as the section `trainer`
// says: gradient_clip_val, gradient_clip_algorithm. Errors: FAILED_PRECONDITION where neither
// clipping nor log_grad_norm is asked for.
TD_MUST_USE td_status td_fabric_clip_gradients(struct td_fabric *f, const char *step,
                                               double *out_norm);
// While it is on, forward begins passes whose gradients stay on this rank. The last backward before
// an optimizer step has to sync. Alone it changes nothing.
TD_MUST_USE td_status td_fabric_no_backward_sync(struct td_fabric *f, bool enabled);
// From the next forward on a loss counts 1 / n in the gradient; n micro-batches that add up then
// make a mean. 1 in the beginning.
TD_MUST_USE td_status td_fabric_divide_loss(struct td_fabric *f, int32_t n);
// The learning rate of the next update of a step, and one that takes the place of its schedule from
// then on; NaN gives it back.
TD_MUST_USE td_status td_fabric_lr(struct td_fabric *f, const char *step, double *out_lr);
TD_MUST_USE td_status td_fabric_set_lr(struct td_fabric *f, const char *step, double lr);
// Evaluates a batch of another split than train, in mode eval: no dropout, running statistics. One
// without samples leaves no values. Where the module sums over ranks, all ranks call it for each
// batch: one without samples takes part with zeros.
TD_MUST_USE td_status td_fabric_evaluate(struct td_fabric *f, const struct td_fabric_batch *batch);
// What the last forward or evaluate put out: "loss", "accuracy", as a mean over the samples of this
// rank. It waits for the pass. Errors: NOT_FOUND lists the names.
TD_MUST_USE td_status td_fabric_value(struct td_fabric *f, const char *name, double *out_value);
// A tensor of this rank's state, and a result of the last forward or evaluation, as fp32: as
// td_steps_tensor and td_steps_result of traind/steps.h. A wrong name or n changes nothing.
TD_MUST_USE td_status td_fabric_tensor(struct td_fabric *f, const char *name, float *out,
                                       int64_t n);
TD_MUST_USE td_status td_fabric_result(struct td_fabric *f, const char *name, float *out,
                                       int64_t n);

// ---- the group: after setup ---------------------------------------------------------------------

// In place over n elements of dtype at data.
TD_MUST_USE td_status td_fabric_all_reduce(struct td_fabric *f, void *data, int64_t n,
                                           enum td_dtype dtype, enum td_reduce_op op);
// out has world_size * bytes: rank after rank.
TD_MUST_USE td_status td_fabric_all_gather(struct td_fabric *f, const void *in, size_t bytes,
                                           void *out);
// The bytes of rank src to all others.
TD_MUST_USE td_status td_fabric_broadcast(struct td_fabric *f, void *data, size_t bytes,
                                          int32_t src);
// Returns when all ranks have come. tag: the same on all of them.
TD_MUST_USE td_status td_fabric_barrier(struct td_fabric *f, const char *tag);
// all: true when every rank says true; else when any does.
TD_MUST_USE td_status td_fabric_reduce_boolean_decision(struct td_fabric *f, bool decision,
                                                        bool all, bool *out_decision);
// Rank 0 calls fn and returns from it before the others call it. A failure on rank 0 is theirs,
// too.
TD_MUST_USE td_status td_fabric_rank_zero_first(struct td_fabric *f, td_status (*fn)(void *arg),
                                                void *arg);

// ---- checkpoints --------------------------------------------------------------------------------

// Writes <directory>/step-<global step>, whole or not at all, and returns when it is durable. The
// directory is options.checkpoint_dir, or the job's. Errors: FAILED_PRECONDITION without one,
// while there are gradients that no update has used, or where that directory holds a step-<n> of
// before a load: it is not written over.
TD_MUST_USE td_status td_fabric_save(struct td_fabric *f);
// Loads a checkpoint that save or a job wrote: all state, and the position. Its digests are
// checked. Errors: DATA_LOSS (class data): it is damaged. FAILED_PRECONDITION while gradients wait
// for an update. INVALID_ARGUMENT (class bad_spec): path is no directory; or it ends inside an
// epoch, whose rest has a last batch of another length here.
TD_MUST_USE td_status td_fabric_load(struct td_fabric *f, const char *path);
// Loads weights alone, from a checkpoint or from files of Hugging Face's form. strict: every tensor
// of the model is there, and every one of the file is used; else INVALID_ARGUMENT names them. Not
// strict: what fits is loaded, and events name the rest.
TD_MUST_USE td_status td_fabric_load_weights(struct td_fabric *f, const char *path, bool strict);
// The same of a file's bytes in memory: what td_results_weights has of ranks that were spawned
// (td_fabric_put_weights), or any file of safetensors. They are borrowed until the call returns.
// The ranks that read a checkpoint need them (rank 0), others may pass NULL. Errors:
// INVALID_ARGUMENT (class bad_spec) for NULL, and for weights that do not fit; DATA_LOSS (class
// data): the bytes are no such file.
TD_MUST_USE td_status td_fabric_load_weights_from(struct td_fabric *f, const void *weights,
                                                  size_t bytes, bool strict);
// Is this tensor to be loaded, or saved? name: the model's for a tensor of the model, else the
// file's. The same answer on all ranks. Called before any tensor is loaded or saved; it makes no
// call of this header.
typedef bool (*td_fabric_filter)(void *arg, const char *name);
// The same of the tensors that filter takes; the others stay as they are, in the model and in the
// file, also if strict. Errors: INVALID_ARGUMENT where it takes none of the model's.
TD_MUST_USE td_status td_fabric_load_some_weights(struct td_fabric *f, const char *path,
                                                  bool strict, td_fabric_filter filter, void *arg);
// Writes the parameters and buffers that filter takes (NULL: all) to the file path, in the form of
// safetensors that torch and Hugging Face's library read. td_fabric_load_some_weights with the same
// filter loads it, and td_fabric_load_weights that is not strict. Rank 0 writes; the file of that
// name is replaced whole or not at all, and durable when the call returns. Values are written as
// they are, also if not finite. Path and filter are used until the call returns.
// Errors: INVALID_ARGUMENT (class bad_spec): the filter takes none. NOT_FOUND (class bad_spec):
// path's directory. Class disk: others of writing; RESOURCE_EXHAUSTED: no space, or no memory for
// the weights once more. FAILED_PRECONDITION while there are gradients that no update has used.
TD_MUST_USE td_status td_fabric_save_weights(struct td_fabric *f, const char *path,
                                             td_fabric_filter filter, void *arg);
struct td_spawned;
// In a rank that td_spawn started: rank 0 gives all its weights back to the parent, which finds
// them in td_results_weights (traind/spawn.h), in the same form. Calls of later replace those of
// before. self: what the rank's function was given; borrowed until the call returns. Errors: those
// of td_fabric_save_weights and td_spawned_put_weights; FAILED_PRECONDITION where self is NULL.
TD_MUST_USE td_status td_fabric_put_weights(struct td_fabric *f, struct td_spawned *self);

// ---- talking ------------------------------------------------------------------------------------

// What a job was asked for. Ranks agree on it with the gradients of their backward passes. Where
// there was none with sync since the last call, as in a loop that only evaluates, this call agrees
// and waits for all ranks. So all of them call it at the same places, where no gradients wait for
// an update: there td_fabric_save is refused. Alone nobody asks. Each wish is reported
// once. Errors: ABORTED (class collective), others of the collective, where it agrees.
struct td_fabric_wishes {
    uint32_t struct_bytes;
    bool stop; // leave the loop
    bool save; // save here; with stop: before leaving
};
TD_MUST_USE td_status td_fabric_take_wishes(struct td_fabric *f,
                                            struct td_fabric_wishes *out_wishes);
// One value at the current step, to the job (alone: a JSON line on stdout) and to the loggers. In a
// job the values of a step's ranks are merged: their mean is shown. name: at most 63 bytes.
// Any ranks may call.
TD_MUST_USE td_status td_fabric_log(struct td_fabric *f, const char *name, double value);
struct td_fabric_value_of {
    const char *name;
    double value;
};
TD_MUST_USE td_status td_fabric_log_dict(struct td_fabric *f,
                                         const struct td_fabric_value_of *values, size_t n);
// What a job logs at a step: train_<name>_step, lr, grad_norm, throughput; it waits for the pass.
TD_MUST_USE td_status td_fabric_log_step(struct td_fabric *f);
// A line on stdout, by rank 0 alone. Any ranks may call.
TD_MUST_USE td_status td_fabric_print(struct td_fabric *f, const char *fmt, ...) TD_PRINTF(2, 3);
// Calls every callback of that name, in their order. data: for them. The first failure ends it.
TD_MUST_USE td_status td_fabric_call(struct td_fabric *f, const char *hook, const void *data);

#ifdef __cplusplus
}
#endif
#endif
