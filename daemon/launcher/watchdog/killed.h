#ifndef TRAIND_DAEMON_LAUNCHER_WATCHDOG_KILLED_H
#define TRAIND_DAEMON_LAUNCHER_WATCHDOG_KILLED_H

// Killed: who sent a SIGKILL that this launcher did not send. The kernel counts whom it kills for
// lack of memory: in memory.events of the launcher's cgroup, or of the nearest one above it that
// has the file. Where none has, /proc/vmstat counts for the whole machine. It counts before it
// kills. So if the number has grown within the last 10 to 20 s, the class is out_of_memory. Else it
// is killed: a person or a program on this machine did it. Both say what memory was in use, of what
// limit.
//
// What shares the cgroup is counted, too: a job that somebody kills while the kernel kills another
// one beside it, or 20 s after that, is taken for the kernel's. The time is what a process of many
// gigabytes needs to end. Rejected: the kernel's log, which most daemons may not
// read. Files that cannot be read are as if they were not there.
// Thread: the launcher's.

#include "lib/base/clock.h"

enum { TD_KILLED_TEXT = 512 };

struct td_kills {
    char root[128];    // before /proc and /sys
    char counter[512]; // the file; "": there is none
    char limit[512];   // directory of the nearest cgroup with a limit; "": there is none
    struct td_mono looked;
    uint64_t last, before; // what it was then, and a look earlier
};

struct td_killed {
    enum td_class cls;         // OUT_OF_MEMORY or KILLED
    char text[TD_KILLED_TEXT]; // "signal 9 (KILL), not sent by traind: ..."
};

enum { TD_KILLS_LOOK_S = 10 };
// root: "", but in tests.
void td_kills_begin(struct td_kills *k, const char *root, struct td_mono now);
// Reads the number again, once in TD_KILLS_LOOK_S. It is called more often than that.
void td_kills_look(struct td_kills *k, struct td_mono now);
void td_killed_judge(const struct td_kills *k, struct td_killed *out);

#endif
