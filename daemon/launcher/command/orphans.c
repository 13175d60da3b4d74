// See the header. The kernel lists children per thread in /proc; there is one thread.

#include "daemon/launcher/command/orphans.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { LIST_BYTES = 64 << 10, WAIT_MS = 200 };
static const int64_t patience_ns = 5 * TD_NS_PER_S;

// Kills the children there are. Returns how many it saw.
static int kill_children(void) {
    static char list[LIST_BYTES];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    ssize_t bytes = fd >= 0 ? read(fd, list, sizeof list - 1) : 0;
    int n = 0;
    list[bytes > 0 ? bytes : 0] = '\0';
    for (char *at = list, *end; *at; at = end, n++) {
        long pid = strtol(at, &end, 10);
        if (end == at) break;
        if (pid > 1) (void)kill((pid_t)pid, SIGKILL);
    }
    return n;
}

void td_orphans_end(int signal_fd) {
    struct td_mono give_up = td_mono_add(td_mono_now(), patience_ns);
    for (;;) {
        int n_reaped = 0;
        siginfo_t info = {0};
        int failed;
        while ((failed = waitid(P_ALL, 0, &info, WEXITED | WNOHANG)) == 0 && info.si_pid != 0) {
            info.si_pid = 0;
            n_reaped++;
        }
        if (failed && errno == ECHILD) return;
        int left = kill_children();
        if (td_mono_now().ns >= give_up.ns) {
            td_log_warn("processes that ranks left do not end n=%d, continuing", left);
            return;
        }
        struct pollfd ended = {.fd = signal_fd, .events = POLLIN};
        struct signalfd_siginfo ignored;
        if (!n_reaped) (void)poll(&ended, 1, WAIT_MS);
        while (read(signal_fd, &ignored, sizeof ignored) == (ssize_t)sizeof ignored) {}
    }
}
