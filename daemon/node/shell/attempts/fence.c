// See the header. The pid is opened before its command line is read, so that what is killed is what
// was looked at.

#include "daemon/node/shell/attempts/fence.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#include "lib/attempt/segments.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { COMMAND_MAX = 64 << 10, DEATH_MS = 5000 };
static const int64_t moment_ns = TD_NS_PER_S;

static pid_t holder_of(const char *lock_path) {
    int pid = 0;
    TD_AUTO_BUF text;
    td_buf_init(&text, 4096);
    td_status s = td_fs_read(lock_path, 4096, &text);
    if (!s && sscanf(td_buf_cstr(&text), "pid %9d ", &pid) != 1) pid = 0;
    td_status_free(s);
    return (pid_t)pid;
}

// Its arguments, each with its NUL: a traind-launcher that was given this directory.
static bool is_launcher_of(pid_t pid, const char *dir) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    TD_AUTO_CLOSE int fd = -1;
    td_status_free(td_fs_open(path, &fd, NULL));
    TD_AUTO_FREE char *words = td_calloc(1, COMMAND_MAX + 1);
    ssize_t n = fd >= 0 && words ? read(fd, words, COMMAND_MAX) : 0;
    if (n <= 0) return false;
    const char *slash = strrchr(words, '/');
    if (strcmp(slash ? slash + 1 : words, "traind-launcher") != 0) return false;
    for (const char *w = words; w < words + n; w += strlen(w) + 1) {
        if (strcmp(w, dir) == 0) return true;
    }
    return false;
}

static td_status not_the_launcher(td_status borrow_held) {
    return td_status_with_reason(
        td_fail(TD_FAILED_PRECONDITION,
                "%s, which is not the launcher of that attempt: end that process, or move the "
                "attempt's directory away, and start traind again",
                td_status_message(borrow_held)),
        "LOCK_HELD");
}

static td_status kill_launcher(pid_t pid, int pidfd, const char *dir) {
    td_log_warn("launcher killed pid=%d dir=%s why=\"it cannot be taken over\"", (int)pid, dir);
    (void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    if (poll(&end, 1, DEATH_MS) == 1) return TD_OK;
    return td_fail(TD_DEADLINE_EXCEEDED, "launcher %d of '%s' was killed but does not end",
                   (int)pid, dir);
}

// *out_held: somebody holds it, whose name is in the message. OK without it: the lock was free.
static td_status try_lock(const char *path, int64_t wait_ns, td_status *out_held) {
    TD_AUTO_CLOSE int lock_fd = -1;
    td_status s = td_fs_lock_within(path, "traind, fencing", wait_ns, &lock_fd);
    if (td_status_code(s) != TD_FAILED_PRECONDITION) return s;
    *out_held = s;
    return TD_OK;
}

// A look at the holder comes before each wait and after the last one.
td_status td_fence(const char *dir) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", dir, TD_SEGMENT_LOCK));
    if (!td_fs_exists(path)) return TD_OK; // nobody came that far
    bool killed = false;
    for (int64_t wait_ns = 0;; wait_ns = moment_ns) {
        TD_AUTO_STATUS td_status held = TD_OK;
        TD_TRY(try_lock(path, wait_ns, &held));
        if (!held) return TD_OK;
        pid_t pid = holder_of(path);
        TD_AUTO_CLOSE int pidfd = pid > 1 ? pidfd_open(pid, 0) : -1;
        if (!killed && pidfd >= 0 && is_launcher_of(pid, dir)) {
            TD_TRY(kill_launcher(pid, pidfd, dir));
            killed = true;
        } else if (wait_ns) {
            return not_the_launcher(held);
        }
    }
}
