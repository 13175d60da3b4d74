// See the header. The program is exec-rank's, so that it dies with this process.

#include "daemon/launcher/held.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "daemon/launcher/command/orphans.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"

enum { ARGS_MAX = 64 };

extern char **environ;

static td_status prepare(const char *parent, int *out_signal_fd) {
    const struct rlimit none = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0) {
        return td_fail_errno(TD_INTERNAL, "prepare to hold a program");
    }
    // A parent that died before sent nothing.
    if (getppid() != (pid_t)strtol(parent, NULL, 10)) (void)raise(SIGTERM);
    *out_signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out_signal_fd < 0 ? td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a signalfd") : TD_OK;
}

static td_status start(int argc, char **argv, struct td_proc *out_program) {
    static const struct td_proc_fd fds[] = {{0, 0}, {1, 1}, {2, 2}};
    char parent[16];
    const char *args[ARGS_MAX + 4] = {"traind-launcher", "exec-rank", parent};
    if (argc > ARGS_MAX) return td_fail(TD_INVALID_ARGUMENT, "%d arguments are too many", argc);
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    memcpy(args + 3, argv + 2, (size_t)(argc - 2) * sizeof *args);
    const struct td_proc_options o = {.path = "/proc/self/exe",
                                      .argv = args,
                                      .env = (const char *const *)environ,
                                      .fds = fds,
                                      .n_fds = TD_COUNTOF(fds)};
    return td_proc_spawn(&o, out_program);
}

// Until the program has ended. SIGTERM kills it.
static int await(int signal_fd, const struct td_proc *program) {
    struct pollfd ready = {.fd = signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;
    int wait_status = 0;
    while (waitpid(program->pid, &wait_status, WNOHANG) == 0) {
        (void)poll(&ready, 1, -1);
        while (read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            if (info.ssi_signo == SIGTERM) (void)kill(program->pid, SIGKILL);
        }
    }
    return wait_status;
}

static int end_as(int wait_status) {
    sigset_t own;
    if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status);
    sigemptyset(&own);
    sigaddset(&own, WTERMSIG(wait_status));
    (void)sigprocmask(SIG_UNBLOCK, &own, NULL);
    (void)raise(WTERMSIG(wait_status)); // all are at their defaults
    return TD_EXIT_BUG;
}

int td_held_main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr,
                "usage: exec-held PARENT_PID CORES MEMORY_BYTES CPU_SECONDS PROGRAM ARG...\n");
        return TD_EXIT_BUG;
    }
    TD_AUTO_CLOSE int signal_fd = -1;
    struct td_proc program = {.pidfd = -1};
    td_status failed = prepare(argv[1], &signal_fd);
    if (!failed) failed = start(argc, argv, &program);
    if (failed) {
        td_status_log(TD_LOG_ERROR, failed, "traind-launcher exec-held");
        return TD_EXIT_BUG;
    }
    const int wait_status = await(signal_fd, &program);
    td_auto_close(&program.pidfd);
    td_orphans_end(signal_fd);
    return end_as(wait_status);
}
