#ifndef TRAIND_LIB_BASE_MACHINE_PROC_H
#define TRAIND_LIB_BASE_MACHINE_PROC_H

// Child processes. posix_spawn with a scrubbed environment, every descriptor closed but those
// named, signal mask and dispositions reset, a new session if asked. A child is identified by pid
// and start time (field 22 of /proc/PID/stat), because pids are reused. No shell is ever
// involved.

#include <sys/types.h>

#include "lib/base/base.h"

struct td_proc_fd {
    int parent_fd; // an open descriptor here
    int child_fd;  // the number it gets there
};

struct td_proc_options {
    const char *path;             // absolute path of the program
    const char *const *argv;      // NULL-terminated
    const char *const *env;       // NULL-terminated "K=V", the whole environment; NULL: empty
    const struct td_proc_fd *fds; // 0, 1 and 2 default to /dev/null unless named
    size_t n_fds;
    bool new_session;
    // SIGTERM, SIGINT and SIGUSR1 begin blocked: they wait until the program takes them.
    bool holds_stops;
    const char *cwd; // NULL: inherit
};

struct td_proc {
    pid_t pid;
    uint64_t start_ticks; // since boot; 0 if the process ended at once
    int pidfd;            // the caller's to close; -1 if the kernel has none
};
TD_MUST_USE td_status td_proc_spawn(const struct td_proc_options *o, struct td_proc *out_proc);
// Sends a signal to a child that nobody has waited for, and waits for its end, at most that long.
// False: it runs still, as one that waits for a disk that does not answer; nobody has reaped it.
bool td_proc_end(const struct td_proc *p, int sig, int64_t timeout_ns);
// No descriptor or no memory was left: what failed so may work in a moment.
bool td_proc_is_transient(td_status s);
// Opens those of the descriptors 0 to 2 that are closed to /dev/null. No file that is opened later
// then has their number, so that nothing printed lands in it. To read from 0 and to write to 1
// and 2 fails as before. Called first thing in every main, and before it by TD_HOLD_STDIO_FIRST.
TD_MUST_USE td_status td_proc_hold_stdio(void);
// For each file of a main. Constructors of libraries open descriptors: it comes before them.
#define TD_HOLD_STDIO_FIRST                                                                        \
    static void hold_stdio_first(void) {                                                           \
        td_status_free(td_proc_hold_stdio()); /* main calls it again, and says why it failed */    \
    }                                                                                              \
    __attribute__((section(".preinit_array"), used)) static void (*const hold_stdio_entry)(void) = \
        hold_stdio_first
// Lifts the soft limit of descriptors to the hard one, also for what is spawned later.
TD_MUST_USE td_status td_proc_raise_files(void);

// NOT_FOUND when there is no such process.
TD_MUST_USE td_status td_proc_start_ticks(pid_t pid, uint64_t *out_ticks);
// Opens a pidfd of the process that has pid and start time. NOT_FOUND: there is none (a zombie
// counts as ended); RESOURCE_EXHAUSTED: no descriptor is free to look with.
TD_MUST_USE td_status td_proc_pidfd(pid_t pid, uint64_t start_ticks, int *out_pidfd);
// Directory that holds the running executable, e.g. ".../build/bin".
TD_MUST_USE td_status td_proc_self_dir(char *out, size_t out_bytes);
// /proc/sys/kernel/random/boot_id
TD_MUST_USE td_status td_proc_boot_id(char out[37]);
// Cores this process may use: affinity mask and cgroup v2 quota, at least 1.
int td_proc_n_cpus(void);
// Memory this process may use: the machine's, or the smallest memory.max of its cgroups (v2).
uint64_t td_proc_memory_bytes(void);

#endif
