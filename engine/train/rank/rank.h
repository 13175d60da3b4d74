#ifndef TRAIND_ENGINE_TRAIN_RANK_RANK_H
#define TRAIND_ENGINE_TRAIN_RANK_RANK_H

// Rank context: owns the plugins and the state of one rank, and forwards to them in the documented
// order (traind/strategy.h). It is the facade that Lightning 1.3 called Accelerator; the loop knows
// only it.
//
// td_rank_create builds the object graph in one visible order, the table `building` in rank.c;
// td_rank_destroy takes it down in reverse, from any point that building reached. Members are read
// by the loop and by tests, written by rank.c, state.c and step.c. Thread: the training
// thread.

#include "engine/train/checkpoint/checkpoint.h"
#include "engine/train/checkpoint/restore.h"
#include "engine/train/config/limits.h"
#include "engine/train/events/metrics.h"
#include "engine/train/rank/control.h"
#include "engine/train/rank/data.h"
#include "engine/train/rank/programs.h"
#include "traind/precision.h"
#include "traind/strategy.h"

struct td_rank {
    const struct td_train_config *config;
    struct td_train_io *io;
    struct td_events *events;
    struct td_arena *arena; // small things that live as long as the rank

    // plugins, in order of opening
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    struct td_accel_facts accel_facts;
    const char *accel_name;
    const struct td_collective_ops *group_ops;
    struct td_collective *group;
    const char *group_name;
    const struct td_strategy_ops *strategy_ops;
    struct td_strategy *strategy;
    struct td_strategy_facts facts;
    const char *strategy_name;
    const struct td_precision_ops *precision_ops;
    struct td_precision *precision;
    struct td_precision_facts precision_facts;
    const char *precision_name; // as the job spec calls it
    struct td_data *data;
    const struct td_module_ops *module_ops;
    struct td_module *module;

    // state and programs
    struct td_optimizer_options optimizer;
    struct td_state_table *state;
    struct td_programs *programs;
    enum td_recompute recompute; // level of the training programs
    struct td_strategy_memory memory;
    bool owned[TD_ROLE_COUNT]; // regions that this rank allocated
    struct td_buffer arena_memory;
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    double outputs[TD_PROGRAM_OUTPUTS];
    bool skipped; // the precision let the last program end before apply
    bool steady;  // nobody but programs has written parameters since the last run

    // where it starts, and what leaves it
    bool resumed;
    struct td_restored restored; // on the rank that reads, when resumed
    struct td_progress start;
    struct td_resume_key key;
    struct td_json *kernels; // choices of the accelerator; NULL: it makes none
    const struct td_json *frozen;
    struct td_control control;
    struct td_metrics metrics;
    struct td_background *background;
    struct td_checkpointer *checkpointer;
};

TD_MUST_USE td_status td_rank_create(const struct td_train_config *config, struct td_train_io *io,
                                     struct td_events *events, struct td_rank **out_rank);
// Builds only what sizes need: plugins, data, recorded programs, laid-out state; no group, no
// memory. Good for td_sizes_measure and destroy.
TD_MUST_USE td_status td_rank_create_plan(const struct td_train_config *config,
                                          struct td_train_io *io, struct td_events *events,
                                          struct td_rank **out_rank);
// Records the same plan under another precision. What fails leaves it good for destroy, and for
// another call.
TD_MUST_USE td_status td_rank_replan(struct td_rank *r, const char *precision);
// A clean end: teardown with its bounded barrier.
TD_MUST_USE td_status td_rank_finish(struct td_rank *r);
// The end of a rank that failed: it says so, so that the first cause is reported first, and wakes
// its peers. Borrows why, which is classified.
void td_rank_fail(struct td_rank *r, td_status why);
// Every failure has a class: one without takes that of its code. Takes and returns s.
TD_MUST_USE td_status td_rank_classify(td_status s);
void td_rank_destroy(struct td_rank *r); // accepts NULL
TD_DEFINE_AUTO(td_rank, td_rank_destroy);

// ---- for the loop ------------------------------------------------------------------------------
// The accelerator that a rank of this configuration opens: what the job asks for; for auto what its
// first start settled, else cpu.
const char *td_rank_accelerator_name(const struct td_train_config *c);
// The epoch that p is in, played from there on.
struct td_epoch td_rank_epoch(const struct td_rank *r, const struct td_progress *p);
// Micro-batches of an epoch played whole.
int64_t td_rank_epoch_batches(const struct td_rank *r);
// Batches of an evaluation, the same on all ranks; some may have no samples for the last one.
int64_t td_rank_eval_batches(const struct td_rank *r, enum td_split split);
// The program for micro-batch `batch` of an epoch, with n samples; and the one to evaluate n.
struct td_program_key td_rank_train_key(const struct td_rank *r, const struct td_epoch *e,
                                        int64_t batch, int64_t n);
struct td_program_key td_rank_eval_key(int64_t n);
struct td_program_key td_rank_predict_key(int64_t n);
// The predict stage continues a prompt instead of going through data.
bool td_rank_generates(const struct td_rank *r);
// state.c, steps of `building`: memory for all state and the arena; initial values; what a
// checkpoint or other weights put in their place; FAILED_PRECONDITION where ranks would train
// different things; the strategy's own setup, after which all ranks hold the same state.
TD_MUST_USE td_status td_rank_place_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_initialize_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_restore_state(struct td_rank *r);
TD_MUST_USE td_status td_rank_compare(struct td_rank *r);
TD_MUST_USE td_status td_rank_set_up_strategy(struct td_rank *r);
// Where restore.h puts tensors of this rank; valid while its state is placed.
struct td_restore_target td_rank_restore_target(struct td_rank *r);
// Weights of somebody else's making, for the model of this rank (weights.h).
TD_MUST_USE td_status td_rank_load_weights(struct td_rank *r, const char *path, bool strict);

// step.c. Runs a program, with the strategy's hooks around its segments. Outputs are in
// r->outputs, named by the graph; they are there when it returns.
TD_MUST_USE td_status td_rank_step(struct td_rank *r, enum td_strategy_step kind,
                                   const struct td_program_key *key, const void *const *inputs,
                                   const struct td_graph **out_graph);
TD_MUST_USE td_status td_rank_hook(struct td_rank *r, enum td_strategy_hook hook, int64_t batch);
// Sums n values over the ranks, in place.
TD_MUST_USE td_status td_rank_sum(struct td_rank *r, void *data, int64_t n, enum td_dtype dtype);

#endif
