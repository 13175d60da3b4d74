#ifndef TRAIND_DAEMON_LAUNCHER_REPORTS_REPORTS_H
#define TRAIND_DAEMON_LAUNCHER_REPORTS_REPORTS_H

// Reports: the launcher's side of the child that turns what a script says by itself into metrics.
//
//   reports.h  the child's life, and what it hands back
//   lines.h    what rank 0 prints, on its way to the child
//   kept.h     where the child is, for the one that takes its place
//   hf.h       where a Trainer of Hugging Face reports by itself
//   python.h   which Python it will be
//
// What comes of a script may block or crash its reader, so `traind-worker reports`
// (daemon/worker/reports) does, one process an attempt and node. There is one only where a
// command's spec asks for what it serves (`metrics_from`, `loggers_in`), and where a Trainer of
// Hugging Face has reported. The launcher never waits for it while ranks run. What it hands back
// goes the way of what a command says on TRAIND_FD (command/talk.h). So the same rules hold: for
// repeats, for later attempts, for names and how many there may be. A value is open for a quarter
// of a second, so that it is seen within one. A script that reports to TRAIND_FD as well may: the
// pattern was asked for, and a name that both give at one step has one value.
//
// It is started after the ranks; what they print before waits in its socket. One that does not say
// within 10 s that it is ready is killed. One that ends is replaced, TD_REPORTS_RESTARTS times, and
// notes say so. One that cannot use its settings is not: another one would end so, too. It dies
// with this process, as ranks do. When all ranks have ended it has 5 s to say what it still knows.
//
// Each tick takes TD_REPORTS_A_TICK bytes of what it says, as does each turn of these 5 s. A script
// that prints without end so keeps neither this thread nor the child busy: the child waits, its
// socket fills, and lines are dropped. Thread: the launcher's.

#include "daemon/launcher/reports/hf.h"
#include "daemon/launcher/reports/kept.h"
#include "daemon/launcher/reports/lines.h"
#include "lib/base/clock.h"
#include "lib/base/machine/proc.h"

enum { TD_REPORTS_RESTARTS = 3, TD_REPORTS_A_TICK = 16 << 10 };

struct td_launcher;

struct td_launch_reports {
    const char *settings;      // JSON, of the command's arena; NULL: there is no child
    struct td_proc proc;       // pid 0: none runs
    int fd;                    // -1: none
    struct td_proc_fd more[4]; // further descriptors of the child
    size_t n_more;
    struct td_mono started;
    bool ready, over; // it said so
    int n_restarts;
    uint32_t n_notes;
    struct td_launch_kept kept;
    struct td_launch_lines lines;
    bool noted_drop;
    struct td_launch_hf hf;
    bool waits; // nothing but hf asks for it, and it is started when a rank reports there
};

// Before the ranks start, once the command is known. Makes l->reports where it is asked for.
TD_MUST_USE td_status td_reports_prepare(struct td_launcher *l);
void td_reports_start(struct td_launcher *l); // after the ranks; failures are notes
void td_reports_look(struct td_launcher *l);  // each tick
// A child of this process has ended and was reaped. False: it was another one.
bool td_reports_ended(struct td_launcher *l, pid_t pid, int wait_code, int wait_status);
void td_reports_end(struct td_launcher *l);           // all ranks have ended: takes what is left
void td_reports_destroy(struct td_launch_reports *r); // accepts NULL

#endif
