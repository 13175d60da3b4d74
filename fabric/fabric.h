#ifndef TRAIND_FABRIC_FABRIC_H
#define TRAIND_FABRIC_FABRIC_H

// fabric: what a process needs that holds a rank, be it traind-worker or a program of somebody's
// own. It is the top of libtraind.so; the worker adds verbs, a program adds its loop.
//
// In reading order:
//
//   plugins.h            what is linked in
//   configure/           from a plan to the engine's configuration
//   build.h              which build this is
//   config.h             what the environment says
//   attach.h             what a launcher handed down
//   group_memory.h       the memory that ranks of a program share
//   signals/             what a rank does with signals, and its last words
//
// and for programs (include/traind/fabric.h):
//
//   fabric.h             the state of one, and which calls it allows
//   create.c, setup.c    from options to a rank
//   steps.c              batches and steps
//   group.c              what ranks do together
//   saves.c              checkpoints and weights
//   log.c                what a program says
//   finish.c             the end
//
// and spawn/ for those that start their own ranks (include/traind/spawn.h).
//
// Here: the fabric of a program, a rank whose loop is the caller's. Thread: the caller's.

#include "engine/train/loop/manual.h"
#include "fabric/attach.h"
#include "fabric/config.h"
#include "fabric/configure/configure.h"
#include "traind/fabric.h"

#define TD_FABRIC_MAGIC 0x54464142U

enum { TD_FABRIC_LISTS = 256 }; // callbacks, loggers, plugins: each at most so many

// Where td_fabric_next is in a split that is evaluated.
struct td_fabric_place {
    int loader;
    int64_t offset, batch_idx; // in that loader
};

// A pass over split val or test, between the hooks of its start and of its end.
struct td_fabric_pass {
    bool is_open;
    enum td_split split;
    int loader;   // whose start was said
    int64_t done; // batches since its own
};

struct td_fabric {
    uint32_t magic;
    struct td_arena *arena; // the options' and the setup's texts
    struct td_fabric_options o;
    const struct td_rank_env *env; // NULL: the process is no rank of others
    bool in_job;                   // a launcher reads the page, the ring and the events
    bool prints;                   // values are JSON lines on stdout
    const struct td_plan *job;     // its plan; NULL: none
    const char *model, *data, *optimizer, *schedule;
    uint64_t seed;
    bool seeded;
    // once attached
    struct td_rank_io io;
    struct td_events events;
    // once set up
    struct td_rank_config *config;
    struct td_rank *rank; // NULL: setup has not succeeded
    struct td_train_loop loop;
    struct td_manual manual;
    int32_t divisor;
    struct td_fabric_place at[TD_SPLIT_COUNT]; // of the splits that are evaluated
    struct td_fabric_pass pass;
    const void *fields[2][TD_DATA_FIELDS]; // of the last two batches
    bool branched; // the state was replaced, so checkpoints of before may be of another run
    bool stopping; // a stop was reported
    bool ended;    // finish has run
    // The message of the first call that failed: what it left is nothing to go on with. NULL: none.
    const char *failure;
};

// Nodes that its ranks are on.
static inline int32_t td_fabric_n_nodes(const struct td_fabric *f) {
    return f->job ? TD_MAX(f->job->spec.trainer.num_nodes, 1) : 1;
}

// FAILED_PRECONDITION, class user_code, reason TD_MANUAL_MISUSE: a call that changed nothing.
TD_MUST_USE td_status td_fabric_misuse(const char *fmt, ...) TD_PRINTF(1, 2);
TD_MUST_USE td_status td_fabric_need_setup(const struct td_fabric *f, const char *call);
// A failure that ends the run: classified, reported, and the other ranks woken. Takes and gives s.
TD_MUST_USE td_status td_fabric_failed(struct td_fabric *f, td_status s);

// steps.c
// The index of a step by name; NULL: the first.
TD_MUST_USE td_status td_fabric_step(const struct td_fabric *f, const char *name, int *out_step);
// Ends the pass over a split that is evaluated, if one is open. All runs are done afterwards.
TD_MUST_USE td_status td_fabric_leave_pass(struct td_fabric *f);

#endif
