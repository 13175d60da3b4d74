#ifndef TRAIND_DAEMON_LAUNCHER_STATE_H
#define TRAIND_DAEMON_LAUNCHER_STATE_H

// What a launcher knows: its ranks, its files, what was asked of it, and whom it holds to blame.
//
// The loop (launcher.c) makes and changes it. What a look finds out is written by whoever looks:
// ending.h the first to blame, lost.h the file that is lost, watchdog.h the rank that is silent.
// Thread: the launcher's only one.

#include "daemon/launcher/link.h"
#include "daemon/launcher/rank.h"
#include "daemon/launcher/store.h"

enum td_launch_kill {
    TD_LAUNCH_KILL_NONE,
    TD_LAUNCH_KILL_GRACE,  // a stop took too long
    TD_LAUNCH_KILL_PEER,   // another rank failed
    TD_LAUNCH_KILL_FENCED, // asked for
    TD_LAUNCH_KILL_LOST,   // a file of the attempt is lost
    TD_LAUNCH_KILL_STUCK,  // a rank was silent for too long
};

struct td_launch_command;
struct td_launch_gpus;
struct td_launch_reports;
struct td_logger;

// Answers to writers of checkpoints, until the loggers' files have the points that were kept.
struct td_launch_held {
    bool is, late; // late: the loggers took too long before, so nobody waits for them
    struct td_mono since;
    bool due[TD_LAUNCH_RANKS_MAX];
    uint32_t asked[TD_LAUNCH_RANKS_MAX]; // as answered last, or as held
    uint64_t bytes[TD_LAUNCH_RANKS_MAX]; // of the ranks' points
};

struct td_launcher {
    struct td_launch_options o;
    char self[4096];
    int lock_fd, epoll_fd, signal_fd, timer_fd, group_fd;
    uint64_t start_ticks;
    char boot_id[37];
    struct td_arena *arena;
    struct td_journal journal;
    struct td_link link;
    struct td_launch_rank *ranks;      // (n_ranks)
    struct td_launch_store store;      // n_ranks 0: there is none
    struct td_launch_command *command; // what ranks run; NULL: traind-worker
    struct td_launch_reports *reports; // NULL: nothing is read out of what a script says
    struct td_logger *logger;          // NULL: the plan names none
    struct td_launch_held held;
    struct td_launch_gpus *gpus; // NULL: the node has said nothing of one yet
    struct td_kills kills;       // of the kernel, of late
    int32_t n_exited;
    int32_t first_failed;   // index of the first rank to blame; -1: none
    bool only_victim;       // that one is a mere victim of a peer
    int stop_mode;          // strongest asked so far: enum td_stop_mode
    struct td_mono term_at; // SIGTERM to programs that the words did not end; INT64_MAX: never
    struct td_mono kill_at; // INT64_MAX: nobody is to be killed
    enum td_launch_kill kill_due; // why, when that time comes
    enum td_launch_kill kill_why; // why SIGKILL was sent; NONE: it was not
    char lost[192];               // which file is lost, and how; "": none
    int32_t blamed;               // index of the rank that is silent; -1: all beat
    char silent[256];             // what was said of it last
    struct td_mono alone_since;   // INT64_MAX while a daemon is connected
    uint32_t n_ticks;
    struct td_buf last_status; // as sent
    bool news;                 // events that the daemon has not received
    int n_reported;            // reports of some since the last tick
    bool node_writes;          // EPOLLOUT is on
};

// Ranks write lines to TRAIND_FD (talk.h). All others send events, and look at their page.
static inline bool td_launcher_talks(const struct td_launcher *l) {
    return l->o.kind == TD_KIND_COMMAND;
}

// Its ranks are not all: the coordinator waits for the points of every rank up to a checkpoint, so
// each boundary that one of them saved at is written. Ranks of a command have none.
static inline bool td_launcher_counts_boundaries(const struct td_launcher *l) {
    return l->o.n_ranks < l->o.world_size && !td_launcher_talks(l);
}

#endif
