// Processes: what a child inherits (nothing but what is named), how it differs from another
// with its pid, and what /proc says. The children are this program itself, with a role as argv[1].

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/base/machine/proc.h"
#include "tests/unit/test.h"

extern char **environ;

// ---- the child's roles --------------------------------------------------------------------------
// Writes its environment, open descriptors, session and signals to descriptor 1.
static int tell_about_myself(void) {
    for (char **e = environ; *e; e++) {
        dprintf(1, "env %s\n", *e);
    }
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        struct stat st;
        if (e->d_name[0] == '.' || fd == dirfd(d) || fstat(fd, &st) != 0) continue;
        dprintf(1, "fd %d%s\n", fd, S_ISCHR(st.st_mode) ? " null" : "");
    }
    if (d) closedir(d);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    struct sigaction act;
    sigaction(SIGUSR1, NULL, &act);
    char cwd[256];
    dprintf(1, "session %s\n", getsid(0) == getpid() ? "own" : "parent's");
    dprintf(1, "usr1 %s %s\n", sigismember(&set, SIGUSR1) ? "blocked" : "open",
            act.sa_handler == SIG_DFL ? "default" : "changed");
    dprintf(1, "cwd %s\n", getcwd(cwd, sizeof cwd) ? cwd : "?");
    return 3;
}

// Reads one byte from 50 and one from 51 and writes them to 1 in that order.
static int read_swapped(void) {
    char bytes[2];
    if (read(50, bytes, 1) != 1 || read(51, bytes + 1, 1) != 1) return 1;
    return write(1, bytes, 2) == 2 ? 0 : 1;
}

// ---- helpers ------------------------------------------------------------------------------------
static char self[512];

static td_status start(const char *role, const char *const *env, const struct td_proc_fd *fds,
                       size_t n_fds, struct td_proc *out_proc) {
    const char *argv[] = {"test_proc", role, NULL};
    struct td_proc_options o = {
        .path = self,
        .argv = argv,
        .env = env,
        .fds = fds,
        .n_fds = n_fds,
        .new_session = true,
        .cwd = "/",
    };
    return td_proc_spawn(&o, out_proc);
}

static int reap(struct td_proc *p) {
    int status = -1;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->pidfd);
    return status;
}

// ---- tests --------------------------------------------------------------------------------------
static void test_child_has_only_what_is_named_when_spawned(void **state) {
    (void)state;
    int leak = open("/dev/zero", O_RDONLY), out[2]; // not CLOEXEC: a library's careless descriptor
    int high = fcntl(leak, F_DUPFD, 200);
    assert_int_equal(pipe(out), 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, SIG_IGN);
    const char *const env[] = {"A=1", "PATH=/none", NULL};
    struct td_proc_fd fds[] = {{out[1], 1}, {out[1], 9}};
    struct td_proc p;
    assert_ok(start("tell", env, fds, 2, &p));
    signal(SIGUSR1, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    close(out[1]);
    char text[4096];
    size_t len = 0;
    for (ssize_t n; (n = read(out[0], text + len, sizeof text - 1 - len)) > 0;) {
        len += (size_t)n;
    }
    text[len] = '\0';
    assert_string_equal(text, "env A=1\nenv PATH=/none\nfd 0 null\nfd 1\nfd 2 null\nfd 9\n"
                              "session own\nusr1 open default\ncwd /\n");
    assert_int_equal(WEXITSTATUS(reap(&p)), 3);
    close(out[0]);
    close(leak);
    close(high);
}

static void test_descriptors_may_swap_numbers_when_mapped(void **state) {
    (void)state;
    int a[2], b[2], out[2];
    assert_int_equal(pipe2(a, O_CLOEXEC) | pipe2(b, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    // The parent's own 50 and 51 are a and b; the child gets them the other way round.
    int first = dup2(a[0], 50), second = dup2(b[0], 51);
    assert_int_equal(write(a[1], "a", 1) + write(b[1], "b", 1), 2);
    struct td_proc_fd fds[] = {{first, 51}, {second, 50}, {out[1], 1}};
    struct td_proc p;
    assert_ok(start("swap", NULL, fds, 3, &p));
    char text[3] = "";
    assert_int_equal(reap(&p), 0);
    assert_int_equal(read(out[0], text, 2), 2);
    assert_string_equal(text, "ba");
    const int mine[] = {a[0], a[1], b[0], b[1], out[0], out[1], first, second};
    for (size_t i = 0; i < TD_COUNTOF(mine); i++) {
        close(mine[i]);
    }
}

static void test_spawn_says_why_when_the_program_is_missing(void **state) {
    (void)state;
    const char *const argv[] = {"x", NULL};
    struct td_proc_options o = {.path = "/no/such/program", .argv = argv};
    struct td_proc p;
    assert_fails(td_proc_spawn(&o, &p), TD_NOT_FOUND, "'/no/such/program'");
    o.path = "/etc/passwd";
    assert_fails(td_proc_spawn(&o, &p), TD_PERMISSION_DENIED, "'/etc/passwd'");
}

static void test_process_counts_as_ended_when_it_is_a_zombie(void **state) {
    (void)state;
    struct td_proc p;
    int other = -1;
    assert_ok(start("wait", NULL, NULL, 0, &p));
    assert_true(p.start_ticks > 0 && p.pidfd >= 0);
    assert_fails(td_proc_pidfd(p.pid, p.start_ticks + 1, &other), TD_NOT_FOUND, "start time");
    assert_ok(td_proc_pidfd(p.pid, p.start_ticks, &other));
    kill(p.pid, SIGKILL);
    struct pollfd poll_fd = {.fd = other, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
    int ended = -1; // not reaped yet
    assert_fails(td_proc_pidfd(p.pid, p.start_ticks, &ended), TD_NOT_FOUND, "start time");
    uint64_t ticks;
    assert_ok(td_proc_start_ticks(p.pid, &ticks));
    assert_int_equal(ticks, p.start_ticks);
    assert_int_equal(WTERMSIG(reap(&p)), SIGKILL);
    assert_fails(td_proc_start_ticks(p.pid, &ticks), TD_NOT_FOUND, "no process");
    close(other);
}

static void test_end_is_waited_for_no_longer_than_asked_when_a_child_goes_on(void **state) {
    (void)state;
    struct td_proc p;
    assert_ok(start("wait", NULL, NULL, 0, &p));
    assert_false(td_proc_end(&p, SIGCONT, 10 * TD_NS_PER_MS));
    assert_true(td_proc_end(&p, SIGKILL, 20 * TD_NS_PER_S));
    assert_int_equal(waitpid(p.pid, NULL, WNOHANG), -1);
    close(p.pidfd);
}

static void test_start_time_is_found_when_the_name_is_hostile(void **state) {
    (void)state;
    uint64_t ticks, again;
    FILE *comm = fopen("/proc/self/comm", "w");
    assert_ok(td_proc_start_ticks(getpid(), &ticks));
    assert_non_null(comm);
    fputs("a) R 1 (2 3", comm);
    fclose(comm);
    assert_ok(td_proc_start_ticks(getpid(), &again));
    assert_int_equal(ticks, again);
}

// Nobody takes a process for gone because he cannot look.
static void test_process_is_not_called_gone_when_descriptors_are_used_up(void **state) {
    (void)state;
    struct rlimit before, low;
    uint64_t ticks;
    int other = -1, lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_ok(td_proc_start_ticks(getpid(), &ticks));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int n_free = 0; n_free < 2; n_free++) { // none for the pidfd, then none for /proc
        low = before;
        low.rlim_cur = (rlim_t)lowest + 1 + n_free;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        td_status s = td_proc_pidfd(getpid(), ticks, &other);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_fails(s, TD_RESOURCE_EXHAUSTED, "");
    }
    assert_ok(td_proc_pidfd(getpid(), ticks, &other));
    close(other);
    close(lowest);
}

static void test_machine_is_described_when_asked(void **state) {
    (void)state;
    char dir[512], boot[37], small[2];
    assert_ok(td_proc_self_dir(dir, sizeof dir));
    assert_true(dir[0] == '/' && strstr(dir, "/tests/unit"));
    assert_fails(td_proc_self_dir(small, sizeof small), TD_FAILED_PRECONDITION, "");
    assert_ok(td_proc_boot_id(boot));
    assert_int_equal(strlen(boot), 36);
    assert_in_range(td_proc_n_cpus(), 1, sysconf(_SC_NPROCESSORS_CONF));
    assert_in_range(td_proc_memory_bytes(), 1 << 20,
                    (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "tell") == 0) return tell_about_myself();
    if (argc > 1 && strcmp(argv[1], "swap") == 0) return read_swapped();
    if (argc > 1 && strcmp(argv[1], "wait") == 0) return pause();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 99;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_has_only_what_is_named_when_spawned),
        cmocka_unit_test(test_descriptors_may_swap_numbers_when_mapped),
        cmocka_unit_test(test_spawn_says_why_when_the_program_is_missing),
        cmocka_unit_test(test_process_counts_as_ended_when_it_is_a_zombie),
        cmocka_unit_test(test_end_is_waited_for_no_longer_than_asked_when_a_child_goes_on),
        cmocka_unit_test(test_start_time_is_found_when_the_name_is_hostile),
        cmocka_unit_test(test_process_is_not_called_gone_when_descriptors_are_used_up),
        cmocka_unit_test(test_machine_is_described_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
