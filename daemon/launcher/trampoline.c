// See the header. Order matters: the death signal first, then the check of the parent, because a
// parent that died in between sent nothing.

#include "daemon/launcher/trampoline.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/launcher/options.h"
#include "lib/attempt/worker_exit.h"

static int fail(const char *what, int exit_code) {
    fprintf(stderr, "traind-launcher exec-rank: %s: %s\n", what, strerror(errno));
    return exit_code;
}

static int limit(const char *memory, const char *cpu) {
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0) return -1;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0) return -1;
    }
    // SIGXCPU says which limit it was; who goes on all the same is killed a second later.
    unsigned long long seconds = strtoull(cpu, NULL, 10);
    struct rlimit time = {seconds, seconds + 1};
    if (seconds && setrlimit(RLIMIT_CPU, &time) != 0) return -1;
    unsigned long long bytes = strtoull(memory, NULL, 10);
    if (bytes == 0) return 0;
    // Private writable memory: what malloc gives. Shared mappings were counted by the launcher.
    struct rlimit data = {bytes, bytes};
    return setrlimit(RLIMIT_DATA, &data);
}

int td_trampoline(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr,
                "usage: exec-rank PARENT_PID CORES MEMORY_BYTES CPU_SECONDS PROGRAM ARG...\n");
        return TD_EXIT_BUG;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail("set death signal", TD_EXIT_BUG);
    if (getppid() != (pid_t)strtol(argv[1], NULL, 10)) return TD_EXIT_BUG; // orphaned already
    if (limit(argv[3], argv[4]) != 0) return fail("set limits", TD_EXIT_RESOURCE);
    cpu_set_t cores;
    td_status s = td_cores_parse(argv[2], 0, &cores);
    if (s) {
        fprintf(stderr, "traind-launcher exec-rank: %s\n", td_status_message(s));
        td_status_free(s);
        return TD_EXIT_BUG;
    }
    if (CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof cores, &cores) != 0) {
        return fail("pin to cores (were they taken from this machine?)", TD_EXIT_RESOURCE);
    }
    execv(argv[5], &argv[5]);
    return fail(argv[5], TD_EXIT_BUG);
}
