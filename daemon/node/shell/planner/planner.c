// One child at a time, because a plan uses a core for some milliseconds and jobs do too. The child
// gets the plan as a file, writes its result to a pipe and its reasons to another. It has ended
// when its pidfd is readable, and both pipes are drained then. It goes through the trampoline
// exec-held: it dies with this daemon, with all that its plugins start, and leaves no core file.
// Another verb than "plan" calls no plugin and goes through exec-rank, which is a process less. It
// may have `memory_bytes` of private memory, and half of timeout_s as processor time. A plan is
// worked out on one core, and one that computes for longer does not end in time on a loaded
// machine. Rejected: planning in the daemon (a plugin's crash would be the daemon's). Rejected: a
// pool of warm planners (a cold one takes about 10 ms, and the coordinator keeps plans by the
// spec's digest).

#include "daemon/node/shell/planner/planner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/attempt/events.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/cpu_level.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"

enum { td_planner_magic = 0x504c414e, REASON_MAX = 4096, TIMEOUT_S = 60 };
enum { WAITS_MAX = 60 }; // for a descriptor: half a minute
static const int64_t wait_ns = 500 * TD_NS_PER_MS;
static const int64_t end_ns = 2 * TD_NS_PER_S;
static const uint64_t memory_bytes = UINT64_C(4) << 30;

struct request {
    struct request *next;
    char *name, *plan, *dump; // dump: a pass, "" for none
    char *path_rules;
};

struct td_planner {
    uint32_t magic;
    struct td_loop *loop;
    char verb[16];
    const char *step; // of the trampoline
    char bin[TD_FS_PATH_BYTES], trampoline[TD_FS_PATH_BYTES], file[TD_FS_PATH_BYTES];
    char choices[TD_FS_PATH_BYTES], checkpoints[TD_FS_PATH_BYTES], plugin_dirs[TD_FS_PATH_BYTES];
    int32_t timeout_s;
    bool (*idle)(void *arg);
    td_planner_fn *fn;
    void *arg;
    struct request *first, *last;
    size_t n_queued;
    // the running child; its request is `first`
    struct td_proc child;
    int out_fd, err_fd;
    struct td_loop_fd *exit_watch, *out_watch, *err_watch;
    struct td_loop_timer
        *deadline;    // of the child; or, while none runs, until its start is tried again
    uint32_t n_waits; // of the first request
    struct td_buf out, err;
    bool running, late, dropped;
    bool cut; // it printed more than the result may have
};

static void start_next(struct td_planner *p);

static void free_request(struct request *r) {
    if (!r) return;
    free(r->name);
    free(r->plan);
    free(r->dump);
    free(r->path_rules);
    free(r);
}

static struct request *take_first(struct td_planner *p) {
    struct request *r = p->first;
    p->first = r->next;
    if (!p->first) p->last = NULL;
    p->n_queued--;
    return r;
}

// ---- the child's end ----------------------------------------------------------------------------
// False if it had more to say than there is room.
static bool drain(int fd, struct td_buf *into) {
    char chunk[16384];
    ssize_t n;
    bool fits = true;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        td_status full = td_buf_append(into, chunk, (size_t)n);
        fits &= !full;
        td_status_free(full); // past its bound the rest is read and dropped
    }
    return fits;
}

static void on_readable(int fd, void *arg) {
    struct td_planner *p = TD_CAST(td_planner, arg);
    if (fd == p->out_fd) {
        p->cut |= !drain(fd, &p->out);
    } else {
        (void)drain(fd, &p->err);
    }
}

static void close_child(struct td_planner *p) {
    td_loop_fd_destroy(td_steal(p->exit_watch));
    td_loop_fd_destroy(td_steal(p->out_watch));
    td_loop_fd_destroy(td_steal(p->err_watch));
    if (p->deadline) td_loop_timer_disarm(p->deadline);
    if (p->out_fd >= 0) close(td_steal_fd(&p->out_fd));
    if (p->err_fd >= 0) close(td_steal_fd(&p->err_fd));
    if (p->child.pidfd >= 0) close(td_steal_fd(&p->child.pidfd));
    unlink(p->file);
    p->running = false;
}

static enum td_code code_of(const char *name, enum td_class cls) {
    for (int code = TD_CANCELLED; code <= TD_UNAUTHENTICATED; code++) {
        if (strcmp(name, td_code_name((enum td_code)code)) == 0) return (enum td_code)code;
    }
    return cls == TD_CLASS_INTERNAL ? TD_INTERNAL : TD_FAILED_PRECONDITION;
}

// A worker that fails prints one "end" event as its result; what else it may say is for its log.
static td_status read_failure(const struct td_planner *p, enum td_class cls, const char *reason) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_event event = {0};
    td_status_free(td_event_parse(arena, p->out.data ? p->out.data : "", p->out.len, &event));
    const struct td_event_end *e = &event.end;
    const bool has = event.kind == TD_EVENT_END;
    enum td_class said = has ? td_class_parse(e->class) : TD_CLASS_NONE;
    enum td_code code = code_of(has ? e->code : "", cls);
    const char *message = has && TD_EVENT_HAS(e, end, message) ? e->message : reason;
    bool judged = said && code == TD_FAILED_PRECONDITION; // by the job's own limit
    if (said) cls = said;
    td_status s = td_status_with_class(td_fail(code, "%s", message), cls);
    if (cls != TD_CLASS_OUT_OF_MEMORY || judged) return s;
    return td_status_context(s, "planning may use %" PRIu64 " MiB on a node", memory_bytes >> 20);
}

static int32_t cpu_s(const struct td_planner *p) {
    return TD_MAX(p->timeout_s / 2, 1);
}

static td_status judge(const struct td_planner *p, int wait_status) {
    const char *reason = p->err.len ? p->err.data : "it said nothing";
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        if (p->out.len == 0) {
            return td_status_with_class(
                td_fail(TD_FAILED_PRECONDITION,
                        "the planner ended with code 0 and no answer, so code of a plugin ended "
                        "the process (exit or _exit): %s",
                        reason),
                TD_CLASS_USER_CODE);
        }
        if (!p->cut) return TD_OK;
        return td_status_with_class(
            td_fail(TD_RESOURCE_EXHAUSTED,
                    "the plan is longer than %d bytes; `traind-worker plan` prints it in full",
                    TD_PLANNER_RESULT_MAX),
            TD_CLASS_BAD_SPEC);
    }
    if (p->late) {
        return td_fail(TD_DEADLINE_EXCEEDED,
                       "planning took more than %d s and was stopped; it opens and checks the "
                       "data and calls plugins: is the data large, is the disk slow, or does a "
                       "plugin never return? The node's --plan-timeout-s allows more",
                       p->timeout_s);
    }
    if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGXCPU) {
        return td_status_with_class(
            td_fail(
                TD_RESOURCE_EXHAUSTED,
                "planning used more than %d s of processor time and was stopped; make the model "
                "smaller, or the data, which planning opens and checks, or see with "
                "`traind-worker plan`, which has no limit, what it needs",
                cpu_s(p)),
            TD_CLASS_BAD_SPEC);
    }
    if (!WIFEXITED(wait_status)) {
        return td_status_with_class(td_fail(TD_INTERNAL, "the planner died of signal %d: %s",
                                            WTERMSIG(wait_status), reason),
                                    TD_CLASS_INTERNAL);
    }
    if (WEXITSTATUS(wait_status) == TD_EXIT_USER_CODE && p->out.len == 0) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "a plugin crashed the planner: %s", reason),
            TD_CLASS_USER_CODE);
    }
    return read_failure(p, td_exit_code_class(WEXITSTATUS(wait_status)), reason);
}

static void on_exit_child(int fd, void *arg) {
    (void)fd;
    struct td_planner *p = TD_CAST(td_planner, arg);
    int wait_status = 0;
    while (waitpid(p->child.pid, &wait_status, 0) < 0 && errno == EINTR) {}
    p->cut |= !drain(p->out_fd, &p->out);
    (void)drain(p->err_fd, &p->err);
    close_child(p);
    struct request *r = take_first(p);
    while (p->err.len && p->err.data[p->err.len - 1] == '\n') {
        p->err.data[--p->err.len] = '\0';
    }
    if (!p->dropped) {
        td_status failed = judge(p, wait_status);
        p->fn(r->name, failed, failed ? "" : td_buf_cstr(&p->out), p->arg);
    }
    free_request(r);
    start_next(p);
}

static void on_deadline(void *arg) {
    struct td_planner *p = TD_CAST(td_planner, arg);
    if (!p->running) {
        start_next(p);
        return;
    }
    p->late = true;
    kill(p->child.pid, SIGTERM); // on_exit_child follows
}

// ---- the child's start --------------------------------------------------------------------------
static td_status make_pipe(int *out_read, int *out_write) {
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    *out_read = fd[0];
    *out_write = fd[1];
    return TD_OK;
}

static td_status spawn(struct td_planner *p) {
    TD_AUTO_CLOSE int out_write = -1, err_write = -1;
    TD_TRY(make_pipe(&p->out_fd, &out_write));
    TD_TRY(make_pipe(&p->err_fd, &err_write));
    const char *dump = p->first->dump;
    char parent[16], memory[24], cpu[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(memory, sizeof memory, "%" PRIu64, memory_bytes);
    snprintf(cpu, sizeof cpu, "%d", cpu_s(p));
    const char *argv[28] = {p->trampoline,
                            p->step,
                            parent,
                            "", // any core
                            memory,
                            cpu,
                            p->bin,
                            p->verb,
                            "--plan",
                            p->file,
                            "--json",
                            "--choices-dir",
                            p->choices,
                            "--checkpoints-dir",
                            p->checkpoints,
                            "--cpu-level",
                            td_cpu_level_name(td_cpu_level()),
                            "--path-rules",
                            p->first->path_rules};
    size_t n = 19;
    if (!p->idle(p->arg)) argv[n++] = "--busy";
    if (p->plugin_dirs[0]) {
        argv[n++] = "--plugin-dirs";
        argv[n++] = p->plugin_dirs;
    }
    if (dump[0]) {
        argv[n++] = "--dump-graph";
        argv[n++] = dump;
    }
    const char *const env[] = {"PATH=/usr/bin:/bin", "OMP_NUM_THREADS=1", NULL};
    const struct td_proc_fd fds[] = {{out_write, 1}, {err_write, 2}};
    const struct td_proc_options options = {.path = p->trampoline,
                                            .argv = argv,
                                            .env = env,
                                            .fds = fds,
                                            .n_fds = 2,
                                            .new_session = true};
    return td_proc_spawn(&options, &p->child);
}

static td_status watch(struct td_planner *p) {
    TD_TRY(td_loop_fd_create(p->loop, p->child.pidfd, 0, on_exit_child, p, &p->exit_watch));
    TD_TRY(td_loop_fd_create(p->loop, p->out_fd, TD_LOOP_FD_EDGE, on_readable, p, &p->out_watch));
    TD_TRY(td_loop_fd_create(p->loop, p->err_fd, TD_LOOP_FD_EDGE, on_readable, p, &p->err_watch));
    td_loop_timer_arm(p->deadline, p->timeout_s * TD_NS_PER_S);
    return TD_OK;
}

// One that does not end is left. The death of this daemon is another SIGTERM to it.
static void end_child(struct td_planner *p) {
    if (td_proc_end(&p->child, SIGTERM, end_ns)) return;
    td_log_warn("planner does not end pid=%d, continuing", (int)p->child.pid);
}

static td_status start_child(struct td_planner *p, const char *plan) {
    td_buf_clear(&p->out);
    td_buf_clear(&p->err);
    p->late = p->cut = p->dropped = false;
    TD_TRY(td_fs_write(p->file, plan, strlen(plan), 0600, 0));
    TD_TRY(spawn(p));
    p->running = true;
    td_status failed = watch(p);
    if (failed) end_child(p);
    return failed;
}

static void start_next(struct td_planner *p) {
    while (p->first && !p->running) {
        td_status failed = start_child(p, p->first->plan);
        if (!failed) {
            p->n_waits = 0;
            return;
        }
        close_child(p);
        if (td_proc_is_transient(failed) && p->n_waits < WAITS_MAX) {
            if (!p->n_waits++) {
                td_log_warn("planner waits: %s, continuing", td_status_message(failed));
            }
            td_status_free(failed);
            td_loop_timer_arm(p->deadline, wait_ns);
            return;
        }
        p->n_waits = 0;
        struct request *r = take_first(p);
        p->fn(r->name, td_status_context(failed, "start the planner"), "", p->arg);
        free_request(r);
    }
}

// ---- interface ----------------------------------------------------------------------------------
td_status td_planner_submit(struct td_planner *p, const char *request, const char *plan_json,
                            const char *dump_graph, const char *path_rules) {
    if (p->n_queued >= TD_PLANNER_QUEUE) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "%d plans are waiting already", TD_PLANNER_QUEUE);
    }
    struct request *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->name = td_strdup(request);
    r->plan = td_strdup(plan_json);
    r->dump = td_strdup(dump_graph);
    r->path_rules = td_strdup(path_rules);
    if (!r->name || !r->plan || !r->dump || !r->path_rules) {
        free_request(r);
        return td_fail_oom();
    }
    if (p->last) {
        p->last->next = r;
    } else {
        p->first = r;
    }
    p->last = r;
    p->n_queued++;
    if (!p->running && !p->n_waits) start_next(p);
    return TD_OK;
}

void td_planner_drop(struct td_planner *p, const char *request) {
    struct request *before = NULL;
    for (struct request *r = p->first, *next; r; r = next) {
        next = r->next;
        bool meant = !request || strcmp(r->name, request) == 0;
        if (meant && r == p->first && p->running) {
            p->dropped = true;
            kill(p->child.pid, SIGTERM); // on_exit_child follows
        } else if (meant) {
            if (!before) p->n_waits = 0; // its own
            *(before ? &before->next : &p->first) = next;
            if (p->last == r) p->last = before;
            p->n_queued--;
            free_request(r);
            continue;
        }
        before = r;
    }
    start_next(p); // the first may have waited for a descriptor
}

td_status td_planner_create(struct td_loop *loop, const struct td_planner_options *o,
                            struct td_planner **out_planner) {
    TD_AUTO(td_planner) *p = td_calloc(1, sizeof *p);
    if (!p) return td_fail_oom();
    p->magic = td_planner_magic;
    p->loop = loop;
    p->idle = o->idle;
    p->fn = o->fn;
    p->arg = o->arg;
    p->timeout_s = o->timeout_s > 0 ? o->timeout_s : TIMEOUT_S;
    p->out_fd = p->err_fd = p->child.pidfd = -1;
    td_buf_init(&p->out, TD_PLANNER_RESULT_MAX);
    td_buf_init(&p->err, REASON_MAX);
    TD_TRY(td_fs_path(p->bin, "%s/traind-worker", o->bin_dir));
    TD_TRY(td_fs_path(p->trampoline, "%s/traind-launcher", o->bin_dir));
    snprintf(p->verb, sizeof p->verb, "%s", o->verb ? o->verb : "plan");
    p->step = o->verb ? "exec-rank" : "exec-held";
    TD_TRY(td_fs_path(p->file, "%s/%s.json", o->scratch_dir, p->verb));
    TD_TRY(td_fs_path(p->choices, "%s", o->cache_dir));
    TD_TRY(td_fs_path(p->checkpoints, "%s", o->checkpoints_dir));
    TD_TRY(td_fs_path(p->plugin_dirs, "%s", o->plugin_dirs));
    TD_TRY(td_loop_timer_create(loop, on_deadline, p, &p->deadline));
    *out_planner = td_steal(p);
    return TD_OK;
}

void td_planner_destroy(struct td_planner *p) {
    if (!p) return;
    if (p->running) end_child(p);
    if (p->file[0]) close_child(p);
    td_loop_timer_destroy(p->deadline);
    while (p->first) {
        struct request *r = p->first;
        p->first = r->next;
        free_request(r);
    }
    td_buf_finish(&p->out);
    td_buf_finish(&p->err);
    p->magic = 0;
    free(p);
}
