// Child processes and what /proc says about processes.
//
// A child starts from nothing. Its environment is exactly what is given. Descriptors 0, 1 and 2 are
// /dev/null unless named, and every other descriptor is closed but those named. Signals are at
// their defaults and unblocked. The named descriptors are first copied above the highest number a
// child gets, so that a mapping may swap numbers without one overwriting another.
//
// posix_spawn (vfork inside, safe with threads) does it all but limits and parent-death signals,
// which the launcher's own trampoline adds. Rejected: fork, whose child runs our code between two
// worlds. Any thread may spawn; the caller owns pid and pidfd.

#include "lib/base/machine/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/machine.h"

enum { FDS_MAX = 64, CHILD_FD_MAX = 255, STAT_MAX = 4096, CGROUP_MAX = 4096 };

// ---- spawning -----------------------------------------------------------------------------------
struct spawn {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int copy[FDS_MAX]; // of parent_fd, above every child number; -1: none yet
};

static td_status spawn_fail(int err, const char *what) {
    enum td_code code = err == ENOENT                    ? TD_NOT_FOUND
                        : err == EACCES                  ? TD_PERMISSION_DENIED
                        : err == EAGAIN || err == ENOMEM ? TD_RESOURCE_EXHAUSTED
                        : err == EMFILE || err == ENFILE ? TD_RESOURCE_EXHAUSTED
                                                         : TD_FAILED_PRECONDITION;
    errno = err;
    return td_fail_errno(code, "start '%s'", what);
}

static bool is_named(const struct td_proc_options *o, int child_fd) {
    for (size_t i = 0; i < o->n_fds; i++) {
        if (o->fds[i].child_fd == child_fd) return true;
    }
    return false;
}

static int add_descriptors(struct spawn *s, const struct td_proc_options *o) {
    int highest = STDERR_FILENO, err = 0;
    for (size_t i = 0; i < o->n_fds; i++) {
        highest = TD_MAX(highest, o->fds[i].child_fd);
    }
    for (size_t i = 0; i < o->n_fds; i++) {
        s->copy[i] = fcntl(o->fds[i].parent_fd, F_DUPFD_CLOEXEC, highest + 1);
        if (s->copy[i] < 0) return errno;
        err = posix_spawn_file_actions_adddup2(&s->actions, s->copy[i], o->fds[i].child_fd);
        if (err) return err;
    }
    for (int fd = 0; fd <= highest && !err; fd++) {
        if (is_named(o, fd)) continue;
        err = fd <= STDERR_FILENO
                  ? posix_spawn_file_actions_addopen(&s->actions, fd, "/dev/null",
                                                     fd == 0 ? O_RDONLY : O_WRONLY, 0)
                  : posix_spawn_file_actions_addclose(&s->actions, fd);
    }
    return err ? err : posix_spawn_file_actions_addclosefrom_np(&s->actions, highest + 1);
}

static int set_attributes(struct spawn *s, const struct td_proc_options *o) {
    sigset_t held, all;
    sigemptyset(&held);
    sigfillset(&all);
    if (o->holds_stops) {
        sigaddset(&held, SIGTERM);
        sigaddset(&held, SIGINT);
        sigaddset(&held, SIGUSR1);
    }
    posix_spawnattr_setsigmask(&s->attributes, &held);
    posix_spawnattr_setsigdefault(&s->attributes, &all);
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    if (o->new_session) flags |= POSIX_SPAWN_SETSID;
    return posix_spawnattr_setflags(&s->attributes, (short)flags);
}

td_status td_proc_spawn(const struct td_proc_options *o, struct td_proc *out_proc) {
    static const char *const empty[] = {NULL};
    TD_CHECK(o->path[0] == '/' && o->n_fds <= FDS_MAX);
    for (size_t i = 0; i < o->n_fds; i++) {
        TD_CHECK(o->fds[i].child_fd >= 0 && o->fds[i].child_fd <= CHILD_FD_MAX);
    }
    struct spawn s;
    for (size_t i = 0; i < FDS_MAX; i++) {
        s.copy[i] = -1;
    }
    if (posix_spawn_file_actions_init(&s.actions) != 0) return td_fail_oom();
    if (posix_spawnattr_init(&s.attributes) != 0) {
        posix_spawn_file_actions_destroy(&s.actions);
        return td_fail_oom();
    }
    int err = set_attributes(&s, o);
    if (!err && o->cwd) err = posix_spawn_file_actions_addchdir_np(&s.actions, o->cwd);
    if (!err) err = add_descriptors(&s, o);
    pid_t pid = -1;
    if (!err) {
        err = posix_spawn(&pid, o->path, &s.actions, &s.attributes, td_unconst(o->argv),
                          td_unconst(o->env ? o->env : empty));
    }
    for (size_t i = 0; i < FDS_MAX; i++) {
        td_auto_close(&s.copy[i]);
    }
    posix_spawnattr_destroy(&s.attributes);
    posix_spawn_file_actions_destroy(&s.actions);
    if (err) return spawn_fail(err, o->path);

    // Descriptors were enough until here, so that a missing one is a matter of moments, too.
    int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0 && (errno == EMFILE || errno == ENFILE)) {
        err = errno;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return spawn_fail(err, o->path);
    }
    *out_proc = (struct td_proc){.pid = pid, .pidfd = pidfd};
    // Not reaped yet, so /proc still knows a child that has already ended.
    td_status_free(td_proc_start_ticks(pid, &out_proc->start_ticks));
    return TD_OK;
}

bool td_proc_is_transient(td_status s) {
    // A full disk has the same code, and a class.
    return td_status_code(s) == TD_RESOURCE_EXHAUSTED && td_status_class(s) == TD_CLASS_NONE;
}

td_status td_proc_hold_stdio(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        const int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) continue; // else it is not inherited
        // The wrong way round, so that its use is an error. The lowest free number is fd; a program
        // that replaces this one inherits it.
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            return td_fail_errno(TD_FAILED_PRECONDITION,
                                 "open '/dev/null' for closed descriptor %d", fd);
        }
    }
    return TD_OK;
}

td_status td_proc_raise_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "read the limit of descriptors");
    }
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) {
        return td_fail_errno(TD_FAILED_PRECONDITION, "raise the limit of descriptors");
    }
    return TD_OK;
}

// ---- /proc --------------------------------------------------------------------------------------
// State letter and start time of /proc/PID/stat. The name in field 2 may hold anything, blanks and
// parentheses too, so the fields are counted from the last ')'.
static td_status read_stat(pid_t pid, char *out_state, uint64_t *out_ticks) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    TD_AUTO_BUF text;
    td_buf_init(&text, STAT_MAX);
    td_status s = td_fs_read(path, STAT_MAX, &text);
    if (td_status_code(s) == TD_RESOURCE_EXHAUSTED) return s;
    const char *p = s ? NULL : strrchr(td_buf_cstr(&text), ')');
    td_status_free(s); // ENOENT, or ESRCH when it ended while we read
    char state;
    unsigned long long ticks;
    if (!p || sscanf(p,
                     ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%llu",
                     &state, &ticks) != 2) {
        return td_fail(TD_NOT_FOUND, "there is no process %d", (int)pid);
    }
    *out_state = state;
    *out_ticks = ticks;
    return TD_OK;
}

td_status td_proc_start_ticks(pid_t pid, uint64_t *out_ticks) {
    char state;
    return read_stat(pid, &state, out_ticks);
}

bool td_proc_end(const struct td_proc *p, int sig, int64_t timeout_ns) {
    const struct td_mono deadline = td_mono_add(td_mono_now(), timeout_ns);
    struct pollfd ended = {.fd = p->pidfd, .events = POLLIN};
    (void)kill(p->pid, sig);
    for (;;) {
        const int64_t left_ns = TD_MAX(deadline.ns - td_mono_now().ns, 0);
        const int n = poll(&ended, 1, (int)TD_MIN(left_ns / TD_NS_PER_MS + 1, INT_MAX));
        if (n >= 0 || errno != EINTR) break;
    }
    return waitpid(p->pid, NULL, WNOHANG) == p->pid;
}

td_status td_proc_pidfd(pid_t pid, uint64_t start_ticks, int *out_pidfd) {
    // Open first, then check: what is checked afterwards is the process that the descriptor holds,
    // or it has ended and the check fails.
    TD_AUTO_CLOSE int fd = pidfd_open(pid, 0);
    if (fd < 0 && errno != ESRCH) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "open a descriptor of process %d", (int)pid);
    }
    char state = 'X';
    uint64_t ticks = 0;
    td_status s = fd < 0 ? TD_OK : read_stat(pid, &state, &ticks);
    if (td_status_code(s) == TD_RESOURCE_EXHAUSTED) return s; // it may well be there
    td_status_free(s);
    if (state == 'Z' || state == 'X' || ticks != start_ticks) {
        return td_fail(TD_NOT_FOUND, "there is no process %d with start time %llu", (int)pid,
                       (unsigned long long)start_ticks);
    }
    *out_pidfd = td_steal_fd(&fd);
    return TD_OK;
}

td_status td_proc_self_dir(char *out, size_t out_bytes) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) return td_fail_errno(TD_UNAVAILABLE, "read the link '/proc/self/exe'");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= out_bytes) {
        return td_fail(TD_FAILED_PRECONDITION, "the path of this program, '%s', is over %zu bytes",
                       path, out_bytes);
    }
    slash[slash == path ? 1 : 0] = '\0';
    snprintf(out, out_bytes, "%s", path);
    return TD_OK;
}

td_status td_proc_boot_id(char out[37]) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 64);
    TD_TRY(td_fs_read("/proc/sys/kernel/random/boot_id", 64, &text));
    if (text.len < 36) return td_fail(TD_UNAVAILABLE, "the kernel's boot id is too short");
    memcpy(out, text.data, 36);
    out[36] = '\0';
    return TD_OK;
}

// ---- what the machine and our cgroups leave us --------------------------------------------------
static td_status read_cgroup(const char *directory, const char *file, struct td_buf *out) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", directory, file);
    return td_fs_read(path, 127, out);
}

// Whole cores that cpu.max of one cgroup leaves; UINT64_MAX without a limit.
static uint64_t cgroup_cores(const char *directory) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 128);
    TD_AUTO_STATUS td_status s = read_cgroup(directory, "cpu.max", &text);
    long long quota, period;
    if (s || sscanf(td_buf_cstr(&text), "%lld %lld", &quota, &period) != 2) return UINT64_MAX;
    return quota > 0 && period > 0 ? (uint64_t)(quota / period) : UINT64_MAX;
}

// Bytes of memory.max, the same.
static uint64_t cgroup_memory(const char *directory) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 128);
    TD_AUTO_STATUS td_status s = read_cgroup(directory, "memory.max", &text);
    long long bytes;
    if (s || sscanf(td_buf_cstr(&text), "%lld", &bytes) != 1) return UINT64_MAX; // "max"
    return bytes > 0 ? (uint64_t)bytes : UINT64_MAX;
}

// The smallest limit of our cgroup and all above it (cgroup v2 only: the line "0::<path>").
static uint64_t cgroup_limit(uint64_t (*limit_of)(const char *directory)) {
    TD_AUTO_BUF text;
    td_buf_init(&text, CGROUP_MAX);
    TD_AUTO_STATUS td_status s = td_fs_read("/proc/self/cgroup", CGROUP_MAX, &text);
    char *line = s ? NULL : strstr(text.data ? text.data : "", "0::/");
    if (!line) return UINT64_MAX;
    char *directory = line + 3;
    directory[strcspn(directory, "\n")] = '\0';
    uint64_t limit = UINT64_MAX;
    for (;;) {
        limit = TD_MIN(limit, limit_of(directory));
        char *slash = strrchr(directory, '/');
        if (!slash) return limit;
        *slash = '\0';
    }
}

int td_proc_n_cpus(void) {
    // More cores than a cpu_set_t holds make the call fail; the online count answers then.
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return TD_MAX((int)TD_MIN((uint64_t)TD_MAX(cores, 1), cgroup_limit(cgroup_cores)), 1);
}

uint64_t td_proc_memory_bytes(void) {
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * td_page_bytes();
    return TD_MIN(machine, cgroup_limit(cgroup_memory));
}
