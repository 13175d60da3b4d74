// A list of thread counts, one child for its first, one timer: when none runs, for the next moment;
// when one runs, its deadline. The child's exit code says whether its count is done. A killed child
// is reaped when its pidfd says so, and its count stays in the list; one that fails is tried
// again, TRIES_MAX in all. It goes through the trampoline of ranks, so it dies with this daemon.

#include "daemon/node/shell/planner/measurer.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "lib/attempt/exit_codes.h"
#include "lib/base/cpu_level.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"

enum {
    td_measurer_magic = 0x4d454153,
    DEADLINE_S = 10,
    TERM_MS = 1000,
    KILL_MS = 1000,
    TRIES_MAX = 3
};
static const char *const memory_bytes = "2147483648";

struct td_measurer {
    uint32_t magic;
    struct td_loop *loop;
    char bin[TD_FS_PATH_BYTES], trampoline[TD_FS_PATH_BYTES], cache[TD_FS_PATH_BYTES];
    int64_t after_ns;
    td_measurer_idle_fn *idle;
    void *arg;
    int32_t wanted[TD_MEASURER_COUNTS];
    size_t n_wanted;
    int n_tries; // of the first that failed
    struct td_proc child;
    struct td_loop_fd *exit_watch;
    struct td_loop_timer *timer;
    bool running, late;
};

static void wait_idle(struct td_measurer *m) {
    if (m->n_wanted && m->after_ns > 0 && !m->running) td_loop_timer_arm(m->timer, m->after_ns);
}

static void drop_first(struct td_measurer *m) {
    m->n_wanted--;
    for (size_t i = 0; i < m->n_wanted; i++) {
        m->wanted[i] = m->wanted[i + 1];
    }
    m->n_tries = 0;
}

// ---- the child ----------------------------------------------------------------------------------
static void on_exit_child(int fd, void *arg) {
    (void)fd;
    struct td_measurer *m = TD_CAST(td_measurer, arg);
    int wait_status = 0;
    while (waitpid(m->child.pid, &wait_status, 0) < 0 && errno == EINTR) {}
    td_loop_fd_destroy(td_steal(m->exit_watch));
    close(td_steal_fd(&m->child.pidfd));
    m->running = false;
    td_loop_timer_disarm(m->timer);
    int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
    if (code == TD_EXIT_DONE) {
        drop_first(m);
    } else if ((m->late || (code > 0 && code != TD_EXIT_STOPPED)) && ++m->n_tries == TRIES_MAX) {
        td_log_warn("rates not measured threads=%" PRId32
                    " exit=%d, continuing: plans measure for themselves",
                    m->wanted[0], code);
        drop_first(m);
    }
    wait_idle(m);
}

static td_status spawn(struct td_measurer *m) {
    char parent[16], threads[16], cpu[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(threads, sizeof threads, "%" PRId32, m->wanted[0]);
    snprintf(cpu, sizeof cpu, "%d", DEADLINE_S);
    const char *const argv[] = {m->trampoline,
                                "exec-rank",
                                parent,
                                "", // any core
                                memory_bytes,
                                cpu,
                                m->bin,
                                "rates",
                                "--threads",
                                threads,
                                "--choices-dir",
                                m->cache,
                                "--cpu-level",
                                td_cpu_level_name(td_cpu_level()),
                                NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", "OMP_NUM_THREADS=1", NULL};
    const struct td_proc_options options = {
        .path = m->trampoline, .argv = argv, .env = env, .new_session = true};
    return td_proc_spawn(&options, &m->child);
}

static td_status start(struct td_measurer *m) {
    TD_TRY(spawn(m));
    td_status s = td_loop_fd_create(m->loop, m->child.pidfd, 0, on_exit_child, m, &m->exit_watch);
    if (s) {
        kill(m->child.pid, SIGKILL);
        waitpid(m->child.pid, NULL, 0);
        td_auto_close(&m->child.pidfd);
        m->child.pidfd = -1;
        return s;
    }
    m->running = true;
    m->late = false;
    td_loop_timer_arm(m->timer, DEADLINE_S * TD_NS_PER_S);
    return TD_OK;
}

static void on_timer(void *arg) {
    struct td_measurer *m = TD_CAST(td_measurer, arg);
    if (m->running) {
        m->late = true;
        kill(m->child.pid, SIGKILL); // on_exit_child follows
        return;
    }
    if (!m->n_wanted) return;
    if (m->idle(m->arg)) {
        td_status_log(TD_LOG_WARN, start(m), "rates not measured, continuing");
    }
    wait_idle(m);
}

// ---- interface ----------------------------------------------------------------------------------
void td_measurer_want(struct td_measurer *m, int32_t n_threads) {
    for (size_t i = 0; i < m->n_wanted; i++) {
        if (m->wanted[i] == n_threads) return;
    }
    if (n_threads < 1 || m->n_wanted == TD_MEASURER_COUNTS) return;
    m->wanted[m->n_wanted++] = n_threads;
    wait_idle(m);
}

void td_measurer_yield(struct td_measurer *m) {
    if (m->running) {
        kill(m->child.pid, SIGTERM);
    } else {
        wait_idle(m);
    }
}

td_status td_measurer_create(struct td_loop *loop, const char *bin_dir, const char *cache_dir,
                             int64_t after_ns, td_measurer_idle_fn *idle, void *arg,
                             struct td_measurer **out_measurer) {
    TD_AUTO(td_measurer) *m = td_calloc(1, sizeof *m);
    if (!m) return td_fail_oom();
    m->magic = td_measurer_magic;
    m->loop = loop;
    m->after_ns = after_ns;
    m->idle = idle;
    m->arg = arg;
    m->child.pidfd = -1;
    TD_TRY(td_fs_path(m->bin, "%s/traind-worker", bin_dir));
    TD_TRY(td_fs_path(m->trampoline, "%s/traind-launcher", bin_dir));
    TD_TRY(td_fs_path(m->cache, "%s", cache_dir));
    TD_TRY(td_loop_timer_create(loop, on_timer, m, &m->timer));
    *out_measurer = td_steal(m);
    return TD_OK;
}

void td_measurer_destroy(struct td_measurer *m) {
    if (!m) return;
    if (m->running) {
        if (!td_proc_end(&m->child, SIGTERM, TERM_MS * TD_NS_PER_MS) &&
            !td_proc_end(&m->child, SIGKILL, KILL_MS * TD_NS_PER_MS)) {
            td_log_warn("measurement does not end pid=%d, continuing", (int)m->child.pid);
        }
    }
    td_loop_fd_destroy(m->exit_watch);
    td_auto_close(&m->child.pidfd);
    td_loop_timer_destroy(m->timer);
    m->magic = 0;
    free(m);
}
