#ifndef TRAIND_DAEMON_LAUNCHER_LAUNCHER_H
#define TRAIND_DAEMON_LAUNCHER_LAUNCHER_H

// The launcher: parent of the ranks of one attempt on one node.
//
//   lib/attempt/segments.h  the files it writes: the contract with node and coordinator
//   options.h      its command line
//   launcher.h     the loop: start, drain, stop, reap, end
//   ending.h       what the end of a rank, and of all, means
//   rank.h         one rank: page, ring, pipes, process
//   journal.h      events.log
//   lost.h         files that were removed, replaced or cut
//   silence.h      whether a rank beats
//   watchdog.h     silent ranks are reported, and stuck ones ended
//   link.h         the Unix socket and the daemon on it
//   trampoline.h   exec-rank, between spawn and worker
//   environment.h  what a rank's environment holds
//
// Ranks die with their launcher (parent-death signal), never with a daemon; a launcher lives as
// long as its ranks. It needs no daemon to do its work: everything goes into files. Without one for
// the orphan timeout it stops the ranks with a checkpoint and ends. SIGTERM does the same at once,
// SIGKILL kills all ranks.
//
// One thread: epoll, signalfd, one periodic timer that drains rings (every 20 ms: the smallest
// models make 100000 points a second and rank, and a ring holds 8192), looks at deadlines and
// reports to the daemon what changed (every 100 ms). An event of a rank is reported at once, up to
// eight times between two ticks, and with the next tick after that: who waits for a job's first
// step sees it in time, and a rank that makes events without end does not keep the daemon busy.
// Nothing here waits for a disk that is full, for a daemon or for a rank; every stop has a time
// after which SIGKILL follows.

#include "daemon/launcher/link.h"
#include "daemon/launcher/rank.h"

enum {
    TD_LAUNCH_TICK_MS = 20,
    TD_LAUNCH_TICKS_A_LOOK = 5,   // to deadlines and what the daemon receives
    TD_LAUNCH_NEWS_A_TICK = 8,    // reports of events at once; further ones wait for the tick
    TD_LAUNCH_ABORT_GRACE_S = 10, // after a rank failed: then the others are killed
    TD_LAUNCH_STOP_GRACE_S = 60,  // of stops that nobody gave a grace for
};

enum td_launch_kill {
    TD_LAUNCH_KILL_NONE,
    TD_LAUNCH_KILL_GRACE,  // a stop took too long
    TD_LAUNCH_KILL_PEER,   // another rank failed
    TD_LAUNCH_KILL_FENCED, // asked for
    TD_LAUNCH_KILL_LOST,   // a file of the attempt is lost
    TD_LAUNCH_KILL_STUCK,  // a rank was silent for too long
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
    struct td_launch_rank *ranks; // (n_ranks)
    int32_t n_exited;
    int32_t first_failed;         // index of the first rank to blame; -1: none
    bool only_victim;             // that one is a mere victim of a peer
    int stop_mode;                // strongest asked so far: enum td_stop_mode
    struct td_mono kill_at;       // INT64_MAX: nobody is to be killed
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

// Runs an attempt from argv to its end; the exit code of the process. Errors before the ranks run
// go to the ack descriptor as {"code":..,"class":..,"message":..}; success as {"ready":true}.
int td_launcher_main(int argc, char **argv);

#endif
