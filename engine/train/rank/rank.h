#ifndef TRAIND_ENGINE_TRAIN_RANK_RANK_H
#define TRAIND_ENGINE_TRAIN_RANK_RANK_H

// engine/train/rank: the context of one rank. It owns the rank's plugins and state, and forwards to
// them in the documented order (traind/strategy.h). It is the facade that Lightning 1.3 called
// Accelerator; the loop knows only it.
//
// In reading order:
//
//   rank.h     what a rank is, and how it ends
//   group/     what ranks do together
//   data/      its samples and batches
//   programs/  the training steps of the module, compiled
//   plugins.h  opens what the job names
//   state/     the memory of what it trains, where it starts and what it saves
//   scores/    what an evaluation measured
//   step.h     one step
//
// The header of its name has the story of each room.
// engine/train/build.h puts a rank together out of these.
//
// Members are read by the loop, by plans and by tests, and written by the files of this folder,
// build.c, plan.c and choices.c. Thread: the training thread.

#include "engine/train/checkpoint/checkpoint.h"
#include "engine/train/checkpoint/plugin_state.h"
#include "engine/train/checkpoint/restore.h"
#include "engine/train/config/limits.h"
#include "engine/train/events/metrics.h"
#include "engine/train/events/timeline.h"
#include "engine/train/rank/data/data.h"
#include "engine/train/rank/group/comm_thread.h"
#include "engine/train/rank/group/control.h"
#include "engine/train/rank/programs/programs.h"
#include "traind/comm_hook.h"
#include "traind/precision.h"
#include "traind/strategy.h"

#define TD_NO_TICKET         UINT64_MAX // a slot left out_ticket alone
// How long a run may take to end once a peer is gone, or the rank has failed.
#define TD_ABORT_PATIENCE_NS (60 * TD_NS_PER_S)

// Of calls of the group (group.h).
enum td_rank_deadline {
    TD_RANK_SAVES, // some rank may start, compile, load or save before it comes
    TD_RANK_TRAINS,
    TD_RANK_DEADLINES,
};

struct td_rank_bucket {
    struct td_bucket bucket;
    bool is_staged; // its sum, or what will be summed, is in `staging`
    bool is_open;   // the group has it, and wait_buckets was not called since
};

enum { TD_PIECE_KINDS = 2 }; // reduce_scatter, all_gather

struct td_rank_hook {
    const struct td_comm_hook_ops *ops; // NULL: there is none
    struct td_comm_hook *hook;
};

// The training steps of the module, in their order (steps.h).
struct td_rank_step_names {
    char name[TD_STEP_NAME];
    const char *trains; // patterns, in the rank's arena; NULL: all that its loss reaches
    int optimizer;      // of the job's, which moves them
};
struct td_rank_steps {
    struct td_rank_step_names step[TD_STEPS_MAX];
    int n; // at least 1 once the module is open
};

// Who has the roles of a checkpoint (writers.h).
struct td_rank_writers {
    int32_t owner;                // the rank that writes its files; -1: none does
    uint32_t roles;               // bits 1 << td_role, of all ranks
    int32_t of[TD_ROLE_COUNT];    // the rank that has a role; -1: none
    bool sends;                   // some are of other ranks than the owner
    uint32_t apart;               // roles of which each rank has pieces
    char *brought[TD_ROLE_COUNT]; // what is of other ranks, on the owner
};

// How far a rank is built (engine/train/build.h).
enum td_rank_stage {
    TD_RANK_BEGUN,
    TD_RANK_HAS_ENVIRONMENT,
    TD_RANK_CONNECTED,
    TD_RANK_SET_UP,
    TD_RANK_BUILT,
    TD_RANK_FAILED
};

struct td_rank {
    const struct td_train_config *config;
    struct td_train_io *io;
    struct td_events *events;
    enum td_rank_stage stage;
    bool plans;             // nothing of it will run
    struct td_arena *arena; // small things that live as long as the rank

    // plugins, in order of opening
    const struct td_accelerator_ops *accel_ops;
    struct td_accelerator *accel;
    struct td_accel_facts accel_facts;
    const char *accel_name;
    const struct td_collective_ops *group_ops; // those of a decorator, if there is one
    const struct td_collective_ops *base_ops;  // of the backend that ranks meet in
    struct td_collective *group;
    struct td_collective *sums; // of rank_sum nodes (join.h); NULL: group serves
    struct td_collective_facts group_facts;
    const char *group_name;
    struct td_collective_deadline deadlines[TD_RANK_DEADLINES];
    enum td_rank_deadline deadline; // which of them holds
    const struct td_precision_ops *precision_ops;
    struct td_precision *precision;
    struct td_precision_facts precision_facts;
    const char *precision_name; // as the job spec calls it
    const struct td_strategy_ops *strategy_ops;
    struct td_strategy *strategy;
    struct td_strategy_facts facts;
    const char *strategy_name;
    struct td_rank_hook hooks[2];    // what the job names, which has the state; a wrapper
    const struct td_rank_hook *hook; // the outer one; NULL: buckets are averaged as they are
    struct td_bucket *hook_buckets;  // as a hook sees them, without control flags
    uint64_t hook_reduced;           // bytes of the buckets that it reduced
    const char *hook_name;           // "none", "power_sgd", "fp16 around power_sgd"
    const struct td_module_ops *module_ops;
    struct td_targets targets; // what the module takes
    struct td_data *data;
    struct td_strategy_shard share[TD_SPLIT_COUNT]; // of the samples of each split (shares.h)
    const struct td_strategy_shard *shares; // (world, splits) of all ranks; NULL: not known yet
    struct td_module *module;
    struct td_rank_steps steps; // that train it

    // state and programs
    struct td_optimizer_options optimizer;
    const char *optimizer_name, *schedule_name; // as checkpoints call them
    struct td_state_table *state;
    struct td_programs *programs;
    enum td_recompute recompute; // level of the training programs
    struct td_strategy_memory memory;
    void *own_staging;                           // NULL: it is the group's
    bool owned[TD_ROLE_COUNT];                   // regions that this rank allocated
    struct td_buffer arena_memory[TD_STEPS_MAX]; // arenas of its programs
    struct td_buffer staging; // host memory of gradients that are elsewhere; bytes 0: none are
    char *piece_memory;       // what sums of pieces are brought together in (pieces.h)
    char **piece_place;       // there, by kind, and by bucket in it
    void *sum_staging;        // of values that are elsewhere, as large as the largest so far
    size_t sum_staging_bytes;
    struct td_rank_bucket *buckets; // (td_state_n_buckets); NULL: no program reduces any
    bool reduces_on_host;           // where the group takes them
    struct td_comm_thread *comm;    // reduces them; NULL: whoever runs the program does
    _Atomic bool bucket_has_failed; // so a sum beside it ends
    double scalars[TD_SCALAR_COUNT];
    uint32_t random[TD_RANDOM_WORDS];
    double outputs[TD_PROGRAM_OUTPUTS];
    td_ticket ticket; // of the last run
    td_ticket done;   // the last one that was waited for
    bool skipped;     // the precision let the last program end before apply
    bool steady;      // nobody but programs has written parameters since the last run

    // where it starts, and what leaves it
    bool resumed;
    struct td_restored restored; // on the rank that reads, when resumed
    struct td_plugin_state own;  // what plugins kept, or keep in the next checkpoint
    struct td_progress start;
    struct td_resume_key key;
    struct td_json *kernels; // choices of the accelerator; NULL: it makes none
    const struct td_json *frozen;
    struct td_control control;
    struct td_metrics metrics;
    struct td_timeline *timeline; // NULL: nobody asked for one
    struct td_background *background;
    struct td_rank_writers writers;
    struct td_checkpointer *checkpointer;
};

// Ranks of this node: all, where the attempt is on one.
static inline int32_t td_rank_local_world(const struct td_train_config *c) {
    return c->n_nodes > 1 ? c->local_world_size : c->world_size;
}

// Every failure has a class: one without takes that of its code. Takes and returns s.
TD_MUST_USE td_status td_rank_classify(td_status s);
void td_rank_close_hook(struct td_rank *r); // before the strategy; it may be opened again
void td_rank_destroy(struct td_rank *r);    // accepts NULL
TD_DEFINE_AUTO(td_rank, td_rank_destroy);

#endif
