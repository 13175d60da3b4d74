#ifndef TRAIND_DAEMON_LAUNCHER_KILLED_H
#define TRAIND_DAEMON_LAUNCHER_KILLED_H

// Killed: who sent a SIGKILL that this launcher did not send. The kernel counts whom it kills for
// lack of memory: in memory.events of the launcher's cgroup, or of the nearest one above it that
// has the file. Where none has, /proc/vmstat counts for the whole machine. It counts before it
// kills. So if the
// number has grown since the attempt began, the class is out_of_memory; else it is killed, and a
// person or a program on this machine did it. Both say what memory was in use, of what limit.
//
// What shares the cgroup is counted, too: a job that somebody kills while the kernel kills another
// one beside it is taken for the kernel's. Rejected: the kernel's log, which most daemons may not
// read. Files that cannot be read are as if they were not there.
// Thread: the launcher's.

#include "lib/base/base.h"

enum { TD_KILLED_TEXT = 512 };

struct td_kills {
    char root[128];    // before /proc and /sys
    char counter[512]; // the file; "": there is none
    char limit[512];   // directory of the nearest cgroup with a limit; "": there is none
    uint64_t before;
};

struct td_killed {
    enum td_class cls;         // OUT_OF_MEMORY or KILLED
    char text[TD_KILLED_TEXT]; // "signal 9 (KILL), not sent by traind: ..."
};

void td_kills_begin(struct td_kills *k, const char *root); // root: "", but in tests
void td_killed_judge(const struct td_kills *k, struct td_killed *out);

#endif
