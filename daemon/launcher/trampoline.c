// See the header. Order matters: the death signal first, then the check of the parent, because a
// parent that died in between sent nothing.

#include "daemon/launcher/trampoline.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/launcher/options.h"
#include "lib/attempt/exit_codes.h"

static int fail(const char *what, int exit_code) {
    fprintf(stderr, "traind-launcher exec-rank: %s: %s\n", what, strerror(errno));
    return exit_code;
}

// At most n, where the hard limit allows as many; 0: all that it allows.
static int limit_count(int resource, unsigned long long n) {
    struct rlimit l;
    if (getrlimit(resource, &l) != 0) return -1;
    if (n && n < l.rlim_max) l.rlim_max = n;
    l.rlim_cur = l.rlim_max;
    return setrlimit(resource, &l);
}

static int limit(const char *memory, const char *cpu) {
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0) return -1;
    if (limit_count(RLIMIT_NOFILE, 0) != 0) return -1;
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

static int become(const char *parent, const char *cores_text, const char *memory, const char *cpu) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail("set death signal", TD_EXIT_BUG);
    if (getppid() != (pid_t)strtol(parent, NULL, 10)) return TD_EXIT_BUG; // orphaned already
    if (limit(memory, cpu) != 0) return fail("set limits", TD_EXIT_RESOURCE);
    cpu_set_t cores;
    td_status s = td_cores_parse(cores_text, 0, &cores);
    if (s) {
        fprintf(stderr, "traind-launcher exec-rank: %s\n", td_status_message(s));
        td_status_free(s);
        return TD_EXIT_BUG;
    }
    if (CPU_COUNT(&cores) > 0 && sched_setaffinity(0, sizeof cores, &cores) != 0) {
        return fail("pin to cores (were they taken from this machine?)", TD_EXIT_RESOURCE);
    }
    return 0;
}

int td_trampoline(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr,
                "usage: exec-rank PARENT_PID CORES MEMORY_BYTES CPU_SECONDS PROGRAM ARG...\n");
        return TD_EXIT_BUG;
    }
    int failed = become(argv[1], argv[2], argv[3], argv[4]);
    if (failed) return failed;
    execv(argv[5], &argv[5]);
    return fail(argv[5], TD_EXIT_BUG);
}

// One byte of errno, so that no text of the program's can be taken for it. Nothing else is to be
// said on this descriptor, and it closes by itself when the program begins.
static int refuse(int fd, int why) {
    const unsigned char byte = (unsigned char)why;
    if (write(fd, &byte, 1) != 1) return TD_EXIT_BUG;
    return why == ENOENT ? 127 : 126; // as a shell says it
}

int td_trampoline_command(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: exec-command PARENT_PID CORES MEMORY_BYTES PROCESSES OPEN_FILES "
                        "ANSWER_FD PROGRAM ARG...\n");
        return TD_EXIT_BUG;
    }
    int answer = (int)strtol(argv[6], NULL, 10);
    if (fcntl(answer, F_SETFD, FD_CLOEXEC) != 0) return fail("keep the answer", TD_EXIT_BUG);
    int failed = become(argv[1], argv[2], argv[3], "0");
    if (failed) return failed;
    unsigned long long processes = strtoull(argv[4], NULL, 10);
    if ((processes && limit_count(RLIMIT_NPROC, processes) != 0) ||
        limit_count(RLIMIT_NOFILE, strtoull(argv[5], NULL, 10)) != 0) {
        return fail("set limits", TD_EXIT_RESOURCE);
    }
    execvp(argv[7], &argv[7]);
    return refuse(answer, errno);
}
