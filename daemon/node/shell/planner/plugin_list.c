// One child, one buffer that it fills, and the buffer of the last one that ended well. Its exit is
// seen on its pidfd, after which the pipe is read to its end. It goes through the trampoline
// exec-held, so it dies with this daemon, with all that plugins start.

#include "daemon/node/shell/planner/plugin_list.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/base/buf.h"
#include "lib/base/clock.h"
#include "lib/base/cpu_level.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"

enum { td_plugin_list_magic = 0x504c5354, DEADLINE_S = 20 };
static const char *const memory_bytes = "4294967296", *const cpu_s = "10";
static const int64_t end_ns = 2 * TD_NS_PER_S;

struct td_plugin_list {
    uint32_t magic;
    struct td_loop *loop;
    char bin[TD_FS_PATH_BYTES], trampoline[TD_FS_PATH_BYTES];
    void (*fn)(void *arg);
    void *arg;
    struct td_proc child;
    int out_fd;
    struct td_loop_fd *exit_watch, *out_watch;
    struct td_loop_timer *deadline;
    struct td_buf out, known;
    bool running, again, is_cut;
};

static void drain(struct td_plugin_list *p) {
    char chunk[16384];
    ssize_t n;
    while ((n = read(p->out_fd, chunk, sizeof chunk)) > 0) {
        td_status full = td_buf_append(&p->out, chunk, (size_t)n);
        p->is_cut |= full != TD_OK;
        td_status_free(full);
    }
}

static void on_readable(int fd, void *arg) {
    (void)fd;
    drain(TD_CAST(td_plugin_list, arg));
}

static void close_child(struct td_plugin_list *p) {
    td_loop_fd_destroy(td_steal(p->exit_watch));
    td_loop_fd_destroy(td_steal(p->out_watch));
    if (p->deadline) td_loop_timer_disarm(p->deadline);
    if (p->out_fd >= 0) close(td_steal_fd(&p->out_fd));
    if (p->child.pidfd >= 0) close(td_steal_fd(&p->child.pidfd));
    p->running = false;
}

static void on_exit_child(int fd, void *arg) {
    (void)fd;
    struct td_plugin_list *p = TD_CAST(td_plugin_list, arg);
    int wait_status = 0;
    while (waitpid(p->child.pid, &wait_status, 0) < 0 && errno == EINTR) {}
    drain(p);
    close_child(p);
    if (p->is_cut) td_log_warn("list of plugins is cut bytes=%d, continuing", TD_PLUGIN_LIST_MAX);
    if (wait_status == 0) {
        struct td_buf before = p->known;
        p->known = p->out;
        p->out = before;
    } else {
        td_log_warn("plugins not listed wait_status=%d, continuing; `traind-worker probe "
                    "--plugins` says why",
                    wait_status);
    }
    p->fn(p->arg);
    if (p->again) td_plugin_list_look(p);
}

static void on_deadline(void *arg) {
    struct td_plugin_list *p = TD_CAST(td_plugin_list, arg);
    kill(p->child.pid, SIGTERM); // on_exit_child follows
}

static td_status spawn(struct td_plugin_list *p) {
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    p->out_fd = pipe_fd[0];
    TD_AUTO_CLOSE int theirs = pipe_fd[1];
    (void)fcntl(p->out_fd, F_SETFL, O_NONBLOCK);
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const argv[] = {p->trampoline,
                                "exec-held",
                                parent,
                                "", // any core
                                memory_bytes,
                                cpu_s,
                                p->bin,
                                "probe",
                                "--plugins",
                                "--cpu-level",
                                td_cpu_level_name(td_cpu_level()),
                                NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", "OMP_NUM_THREADS=1", NULL};
    const struct td_proc_fd fds[] = {{theirs, STDOUT_FILENO}};
    const struct td_proc_options options = {.path = p->trampoline,
                                            .argv = argv,
                                            .env = env,
                                            .fds = fds,
                                            .n_fds = 1,
                                            .new_session = true};
    return td_proc_spawn(&options, &p->child);
}

static td_status watch(struct td_plugin_list *p) {
    TD_TRY(td_loop_fd_create(p->loop, p->child.pidfd, 0, on_exit_child, p, &p->exit_watch));
    return td_loop_fd_create(p->loop, p->out_fd, TD_LOOP_FD_EDGE, on_readable, p, &p->out_watch);
}

// One that does not end is left. The death of this daemon is another SIGTERM to it.
static void end_child(struct td_plugin_list *p) {
    if (td_proc_end(&p->child, SIGTERM, end_ns)) return;
    td_log_warn("list of plugins does not end pid=%d, continuing", (int)p->child.pid);
}

static td_status start(struct td_plugin_list *p) {
    td_buf_clear(&p->out);
    p->again = p->is_cut = false;
    TD_TRY(spawn(p));
    td_status s = watch(p);
    if (s) {
        end_child(p);
        return s;
    }
    p->running = true;
    td_loop_timer_arm(p->deadline, DEADLINE_S * TD_NS_PER_S);
    return TD_OK;
}

void td_plugin_list_look(struct td_plugin_list *p) {
    p->again = p->running;
    if (p->running) return;
    td_status s = start(p);
    if (s) close_child(p);
    td_status_log(TD_LOG_WARN, s, "plugins not listed, continuing");
}

bool td_plugin_list_runs(const struct td_plugin_list *p) {
    return p->running;
}

const char *td_plugin_list_text(struct td_plugin_list *p) {
    return td_buf_cstr(&p->known);
}

td_status td_plugin_list_create(struct td_loop *loop, const char *bin_dir, void (*fn)(void *arg),
                                void *arg, struct td_plugin_list **out_list) {
    TD_AUTO(td_plugin_list) *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->magic = td_plugin_list_magic;
    p->loop = loop;
    p->fn = fn;
    p->arg = arg;
    p->out_fd = p->child.pidfd = -1;
    td_buf_init(&p->out, TD_PLUGIN_LIST_MAX);
    td_buf_init(&p->known, TD_PLUGIN_LIST_MAX);
    TD_TRY(td_fs_path(p->bin, "%s/traind-worker", bin_dir));
    TD_TRY(td_fs_path(p->trampoline, "%s/traind-launcher", bin_dir));
    TD_TRY(td_loop_timer_create(loop, on_deadline, p, &p->deadline));
    *out_list = td_steal(p);
    return TD_OK;
}

void td_plugin_list_destroy(struct td_plugin_list *p) {
    if (!p) return;
    if (p->running) end_child(p);
    close_child(p);
    td_loop_timer_destroy(p->deadline);
    td_buf_finish(&p->out);
    td_buf_finish(&p->known);
    p->magic = 0;
    free(p);
}
