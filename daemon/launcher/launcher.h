#ifndef TRAIND_DAEMON_LAUNCHER_LAUNCHER_H
#define TRAIND_DAEMON_LAUNCHER_LAUNCHER_H

// The launcher: parent of the ranks of one attempt on one node.
//
// In reading order, after lib/attempt/segments.h, the files that it writes (the contract with node
// and coordinator):
//
//   main.c         which of the two programs this is: the launcher, or exec-rank
//   launcher.h     the loop: start, drain, stop, reap, end
//   state.h        what the loop, and those that look for it, know
//   options.h      its command line
//   rank.h         one rank: page, ring, pipes, process
//   output.h       what it prints: the cap, and bars that write their line over
//   environment.h  what a rank's environment holds
//   trampoline.h   exec-rank, between spawn and worker
//   record.h       record.json, and the first line of the log: who this launcher is
//   command/       ranks that are a command or a program of the submitter's, and what those say
//   reports/       the child that turns what a script says into metrics
//   held.h         exec-held, the parent of a planner
//   journal.h      events.log
//   boundary.h     which points are kept when a checkpoint is
//   memory.h       what ranks share
//   loggers/       metrics.csv and TensorBoard's files, by a thread of its own
//   watchdog/      silent ranks are reported, and stuck ones ended; files that were lost
//   gpus.h         what the driver says of the ranks' devices
//   link.h         the Unix socket and the daemon on it
//   store.h        the rendezvous store of its ranks
//   store_frames.h the same on the link
//   ending.h       what the end of a rank, and of all, means
//
// Ranks die with their launcher (parent-death signal), never with a daemon; a launcher lives as
// long as its ranks. It needs no daemon to do its work: everything goes into files. Without one for
// the orphan timeout it stops the ranks with a checkpoint and ends. SIGTERM does the same at once,
// SIGKILL kills all ranks. SIGUSR1 makes them save and go on: by a word in the page or on
// TRAIND_FD, since a command that knows nothing of the signal would die of it.
//
// One thread (and that of loggers): epoll, signalfd, and one periodic timer. Every 20 ms it drains
// rings: the smallest models make 100000 points a second and rank, and a ring holds 8192. Every 100
// ms it looks at deadlines and reports to the daemon what changed. An event of a rank is reported
// at once, up to eight times between two ticks, and with the next tick after that. So a client that
// waits for a job's first step sees it in time, and a rank that makes events without end does not
// keep the daemon busy. Nothing here waits for a disk that is full, for a daemon or for a rank;
// every stop has a time after which SIGKILL follows.

// Runs an attempt from argv to its end; the exit code of the process. Errors before the ranks run
// go to the ack descriptor as {"code":..,"class":..,"message":..}; success as {"ready":true}.
int td_launcher_main(int argc, char **argv);

#endif
