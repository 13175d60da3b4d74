#ifndef TRAIND_CLIENT_RUN_RUN_H
#define TRAIND_CLIENT_RUN_RUN_H

// traind-run: one job in the foreground, without a daemon. `trainctl run FILE` becomes it.
//
//   main.c      command line, order of things, exit code
//   config.c    the environment: TRAIND_CPU_ISA
//   folder.c    ./<name>/: refused, made, locked, what can be resumed in it
//   prepare.c   spec -> `traind-worker plan` -> limits of this machine -> plan.json
//   launch.c    the launcher: start, answer, commands
//   follow.c    the attempt from its files and the launcher's reports, to its end; Ctrl-C
//   points.c    points of all ranks -> metrics.jsonl and epoch lines
//
// It is coordinator and node of one attempt: it parses the spec, has it planned, starts a launcher
// and reads the segment files that a node would forward (lib/attempt/segments.h). Nothing is
// retried: --resume goes on from the newest whole checkpoint. SIGUSR1 saves and goes on. If this
// process is killed, its launcher finds the connection closed, stops the ranks with a checkpoint
// within two seconds and ends.
//
// The folder: checkpoints/a<N>/step-<n>/, metrics.jsonl, predictions.npy or sample.txt,
// logs/a<N>/ (the attempt's files: out and err of ranks, events, plan), cache/ (decoded data,
// measured kernels), lock. One thread.

#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"
#include "lib/spec/plan.h"

enum { TD_RUN_SETS = 256 };

struct td_local_run {
    // what was asked for; argv's
    const char *file, *out_path;
    const char *sets[TD_RUN_SETS];
    size_t n_sets;
    bool resume;
    int64_t plan_timeout_ns;
    const char *cpu_level; // the name of the highest that planner and ranks may use
    // the spec
    struct td_arena *arena;
    struct td_json *tree;
    struct td_spec spec;
    // the folder
    char dir[TD_FS_PATH_BYTES], log_dir[TD_FS_PATH_BYTES], bin_dir[TD_FS_PATH_BYTES];
    bool made; // by this process
    int lock_fd;
    int32_t attempt;
    struct td_json *checkpoints; // to resume from, the newest first: paths
    // the plan
    int32_t n_ranks, threads;
    uint64_t shared_bytes;
    const char *devices; // one a rank; NULL: the accelerator has none but the host
    uint32_t total_steps;
    char precision_note[TD_PLAN_PRECISION_BYTES]; // "": it was not auto, or is a checkpoint's
    // the launcher
    struct td_proc launcher;
    int signal_fd, link_fd;
    char socket[108]; // of the launcher
};

// ALREADY_EXISTS: the folder is there, without --resume; NOT_FOUND: it is not, with it. Makes it
// and takes its lock; finds attempt and checkpoints.
TD_MUST_USE td_status td_local_run_open_folder(struct td_local_run *r);
void td_local_run_close_folder(struct td_local_run *r,
                               bool keep); // removes what was made, unless keep

// INVALID_ARGUMENT: this machine has no such level.
TD_MUST_USE td_status td_local_run_read_cpu_level(struct td_local_run *r);
// HOME; NULL: unset.
const char *td_local_run_home(void);
// Does TERM say that a terminal obeys no control characters?
bool td_local_run_is_dumb(void);
TD_MUST_USE td_status td_local_run_read_spec(struct td_local_run *r);
// Needs the folder. FAILED_PRECONDITION UNSATISFIABLE or the planner's failure, PLAN_FAILED;
// DEADLINE_EXCEEDED: it had not ended within plan_timeout_ns.
TD_MUST_USE td_status td_local_run_prepare(struct td_local_run *r);

TD_MUST_USE td_status
td_local_run_launch(struct td_local_run *r); // returns when the ranks are started
// mode: enum td_stop_mode.
void td_local_run_stop(struct td_local_run *r, int mode, uint32_t grace_ms);
void td_local_run_save(struct td_local_run *r); // and go on
// Of those that this process takes; 0: there is none now.
int td_local_run_next_signal(struct td_local_run *r);
void td_local_run_forget_launcher(struct td_local_run *r); // kills what is left of it

// To the end of the attempt. *out_exit: enum td_exit.
TD_MUST_USE td_status td_local_run_follow(struct td_local_run *r, int *out_exit);

#endif
