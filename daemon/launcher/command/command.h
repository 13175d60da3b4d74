#ifndef TRAIND_DAEMON_LAUNCHER_COMMAND_COMMAND_H
#define TRAIND_DAEMON_LAUNCHER_COMMAND_COMMAND_H

// Ranks of kinds command and program: what the plan names, their environment, their port, how they
// are stopped, and what their end means.
//
// They are programs of the submitter's. Of the rank page nothing reaches a command. The launcher
// fills it from what it says (talk.h), so that all that looks at a page sees a rank like any other.
// A program gets what traind-worker gets, page, ring, socket and the group's mapping, and learns of
// them from TRAIND_RANK (lib/attempt/rank_env.h).
//
// SIGTERM ends a command that does not know TRAIND_FD, so it comes with the word. A program obeys
// the word in its page, and a signal in between might end it before it has saved. So it gets
// SIGTERM when half of its time is over, but at once while no rank has sent an event yet.
//
// MASTER_PORT is chosen when an attempt starts: a port of the node's range on which a socket can
// listen. The search begins at a place that the job's name and the launcher's number give. Somebody
// may still take the port before the program does. Then the attempt ends as preempted: the next one
// has another port, and the restart budget is not touched. A rank says so by its exit code,
// TD_COMMAND_EXIT_IN_USE. Of rank 0 it is also seen in the end of stderr: "address already in use"
// is there, and the port is named there or still taken.
//
// Thread: the launcher's.
//
// The room:
//
//   talk.h         what commands say, and what is said to them
//   talk_values.h  what they said of a metric, until it cannot change any more
//   orphans.h      processes that ranks leave
//   gpu_memory.h   whether the memory of a GPU ran out

#include <signal.h>

#include "daemon/launcher/state.h"

struct td_launch_command {
    struct td_arena *arena; // of all below
    const char **argv;      // (n_argv), from the plan
    size_t n_argv;
    const char **env; // (n_env) what all ranks have
    size_t n_env;
    const char *workdir;              // absolute
    const char *master_address;       // of the node of rank 0
    const char *collective_interface; // for what goes to ranks on other nodes; "": there are none
    const char *resume_from;          // ""
    const char *max_restarts;
    const char *processes, *open_files; // "0": no limit of their own
    bool leaves_gpus;                   // CUDA_VISIBLE_DEVICES is not ours
    bool isolates_gpus;                 // a rank finds its own alone
    bool has_gpu_indexes;               // they are named by their places in PCI order
    const char *stdout_pattern;         // metrics_from.stdout; NULL: there is none
    const char *transformers;           // metrics_from.transformers
    const char *board_dir;              // loggers_in.tensorboard, absolute; NULL: there is none
    int port;
    int hf_port; // where its ranks may report (reports/hf.h); 0: nowhere
};

enum {
    TD_COMMAND_TALK_FD = 3,
    TD_COMMAND_ANSWER_FD = 4,
    TD_PROGRAM_PAGE_FD = 3,
    TD_PROGRAM_EVENTS_FD = 4,
    TD_PROGRAM_ANSWER_FD = 5,
    TD_PROGRAM_GROUP_FD = 6,
    TD_PROGRAM_STORE_FD = 7,
    TD_COMMAND_EXIT_IN_USE = 98, // errno's EADDRINUSE: said by clients/python
    TD_COMMAND_EXIT_AGAIN = 75,  // sysexits' EX_TEMPFAIL
};

// Reads the plan, makes the environment, finds a port. Errors: class bad_spec where the plan or its
// workdir is wrong; RESOURCE_EXHAUSTED where no port of the range is free.
TD_MUST_USE td_status td_launch_command_create(const struct td_launch_options *o,
                                               struct td_launch_command **out_command);
void td_launch_command_destroy(struct td_launch_command *c); // accepts NULL
// Starts a rank, as td_launch_rank_start does a worker.
TD_MUST_USE td_status td_launch_command_start(struct td_launch_command *c, struct td_launch_rank *r,
                                              int32_t idx, const struct td_launch_options *o,
                                              const char *self,
                                              const struct td_launch_shared *shared);
// The word is in the pages; what else there is to say, and when SIGTERM follows.
void td_launch_command_stop(struct td_launcher *l, int mode, struct td_mono term_at);
// SIGTERM to the group of each rank that runs and has not received it.
void td_launch_command_terminate(struct td_launcher *l);
// The next child that has ended, not reaped yet; false: none has. Of ranks of a command that ended
// at the same time, one that a signal killed comes first. A program that loses its peer exits with
// some code, and must not be blamed for it. (Also for workers, in the kernel's order.)
bool td_launch_command_find_dead(const struct td_launcher *l, siginfo_t *out_info);
// A rank that has exited: writes into it what td_rank_ending needs.
void td_launch_command_judge(const struct td_launcher *l, struct td_launch_rank *r);

#endif
