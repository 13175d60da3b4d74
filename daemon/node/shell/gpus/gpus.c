// One child and one timer. In each state that means another thing: a deadline for the child's next
// line, or for its end after a kill, or the pause before the next one. The child goes through the
// trampoline of ranks, so it dies with this daemon.

#include "daemon/node/shell/gpus/gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/node/shell/gpus/gpu_cut.h"
#include "daemon/node/shell/gpus/gpu_errors.h"
#include "daemon/node/shell/gpus/gpu_lines.h"
#include "lib/attempt/devices.h"
#include "lib/attempt/xids.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"
#include "lib/base/machine/proc.h"
#include "lib/loop/loop.h"

enum { td_gpus_magic = 0x47505553, INTERVAL_MS = 10000, KILL_MS = 2000, CHOICE_BYTES = 4096 };
static const int64_t longest_pause_ns = 300 * TD_NS_PER_S;
static const char *const memory_bytes = "2147483648";

enum state {
    PAUSED,    // the timer begins it
    RUNS,      // the timer is the deadline of its next line; only here its lines count
    KILLED,    // the timer is the deadline of its end
    ABANDONED, // its end is waited for, without a deadline
    OVER,      // there is nothing to ask
};

struct td_gpus {
    uint32_t magic;
    struct td_loop *loop;
    char bin[TD_FS_PATH_BYTES], trampoline[TD_FS_PATH_BYTES];
    char gpus[CHOICE_BYTES], visible[CHOICE_BYTES];
    struct td_gpu_cut cut;
    bool shares_busy;
    int64_t timeout_ns, interval_ns, first_pause_ns, pause_ns;
    void (*fn)(void *arg);
    void (*on_samples)(void *arg);
    void *arg;
    int (*kill_fn)(pid_t pid, int sig);

    enum state state;
    struct td_proc child;
    int out_fd;
    struct td_loop_fd *exit_watch, *out_watch;
    struct td_loop_timer *timer;
    struct td_buf line;
    bool skips; // the rest of a line that is too long
    bool said_bad;

    bool is_known;
    Traind__V1__GpuList list; // in list_arena; its why is `why`
    struct td_arena *list_arena, *sample_arena;
    struct td_gpu_errors errors;
    char notes[TD_GPU_WHY];   // of the driver and of the cut, about the list
    char trouble[TD_GPU_WHY]; // why there is no newer one; "": it is of now
    char why[TD_GPU_WHY];     // the two
    char said[TD_GPU_WHY];    // the newest of them in the log
};

// ---- what is known ------------------------------------------------------------------------------
static void publish(struct td_gpus *g) {
    g->is_known = true;
    g->list.stale = g->trouble[0] && g->list.n_gpus;
    g->list.unknown = g->trouble[0] && !g->list.n_gpus && g->state != OVER;
    (void)td_clip(g->why, sizeof g->why, "%s%s%s", g->trouble,
                  g->trouble[0] && g->notes[0] ? "; " : "", g->notes);
    g->list.why = g->why;
    td_gpu_errors_put(&g->errors, &g->list);
    if (g->why[0] && strcmp(g->why, g->said) != 0 && g->state == OVER) {
        td_log_info("no GPUs why=\"%s\"", g->why); // most machines have none
    } else if (g->why[0] && strcmp(g->why, g->said) != 0) {
        td_log_warn("GPUs n=%zu why=\"%s\", continuing", g->list.n_gpus, g->why);
    } else if (!g->why[0] && g->said[0]) {
        td_log_info("GPUs are listed again n=%zu", g->list.n_gpus);
    }
    memcpy(g->said, g->why, sizeof g->said);
    g->fn(g->arg);
}

static void set_trouble(struct td_gpus *g, const char *fmt, ...) TD_PRINTF(2, 3);
static void set_trouble(struct td_gpus *g, const char *fmt, ...) {
    char before[sizeof g->trouble];
    va_list ap;
    memcpy(before, g->trouble, sizeof before);
    va_start(ap, fmt);
    (void)td_clip_v(g->trouble, sizeof g->trouble, fmt, ap);
    va_end(ap);
    if (!g->is_known || strcmp(before, g->trouble) != 0) publish(g);
}

// No arena but the list's own is used after this.
static void forget_samples(struct td_gpus *g) {
    for (size_t i = 0; i < g->list.n_gpus; i++) {
        Traind__V1__Gpu *d = g->list.gpus[i];
        d->n_measured = d->n_processes = 0;
        d->more_processes = 0;
    }
    td_arena_destroy(td_steal(g->sample_arena));
}

static void take_inventory(struct td_gpus *g, struct td_arena *take_arena,
                           const Traind__V1__GpuList *list) {
    char missing[TD_GPU_WHY];
    forget_samples(g);
    td_arena_destroy(g->list_arena);
    g->list_arena = take_arena;
    g->list = *list;
    td_gpu_cut_apply(&g->cut, &g->list, missing, sizeof missing);
    g->list.shares_busy = g->shares_busy;
    (void)td_clip(g->notes, sizeof g->notes, "%s%s%s", missing,
                  missing[0] && list->why[0] ? "; " : "", list->why);
    if (!g->list.n_gpus && !g->notes[0]) {
        (void)td_clip(g->notes, sizeof g->notes, "the NVIDIA driver lists no GPU here");
    }
    g->trouble[0] = '\0';
    g->pause_ns = g->first_pause_ns;
    publish(g);
}

static void take_samples(struct td_gpus *g, struct td_arena *take_arena,
                         const Traind__V1__GpuList *samples) {
    forget_samples(g);
    g->sample_arena = take_arena;
    for (size_t i = 0; i < samples->n_gpus; i++) {
        const Traind__V1__Gpu *s = samples->gpus[i];
        for (size_t k = 0; k < g->list.n_gpus; k++) {
            Traind__V1__Gpu *d = g->list.gpus[k];
            if (strcmp(d->uuid, s->uuid) != 0) continue;
            d->measured = s->measured;
            d->n_measured = s->n_measured;
            d->processes = s->processes;
            d->n_processes = s->n_processes;
            d->more_processes = s->more_processes;
        }
    }
    if (g->list.n_gpus) g->fn(g->arg);
    if (g->list.n_gpus && g->on_samples) g->on_samples(g->arg);
}

static void take_xid(struct td_gpus *g, const char *uuid, uint32_t xid) {
    const struct td_xid x = td_xid_get(xid);
    td_log_warn("GPU reports an error xid=%" PRIu32 " uuid=%s meaning=\"%s\" follows=%s", xid, uuid,
                x.meaning, td_xid_effect_name(x.effect));
    if (!uuid[0]) return; // of a device that is not listed
    td_gpu_errors_add(&g->errors, uuid, xid, td_real_now());
    td_gpu_errors_put(&g->errors, &g->list);
    if (g->is_known) g->fn(g->arg);
}

// ---- lines --------------------------------------------------------------------------------------
// Without a list it can read the node says so: the one before is not of now.
static void drop_line(struct td_gpus *g, const char *text, td_status take_why) {
    TD_AUTO_STATUS td_status why = take_why;
    if (td_gpu_line_is_inventory(text)) {
        set_trouble(g,
                    "the list of GPUs cannot be read: %s; are traind and traind-worker of one "
                    "release?",
                    td_status_message(why));
    } else if (!g->said_bad) {
        g->said_bad = true;
        td_status_log(TD_LOG_WARN, td_steal(why),
                      "a line of traind-worker devices is dropped, continuing");
    }
}

static void take_line(struct td_gpus *g, const char *text, size_t len) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_gpu_line line;
    td_status s = td_arena_create(TD_GPU_ARENA_BYTES, &arena);
    if (!s) s = td_gpu_line_read(arena, text, len, &line);
    if (s) {
        drop_line(g, text, s);
        return;
    }
    switch (line.kind) {
    case TD_GPU_LINE_INVENTORY:
        take_inventory(g, td_steal(arena), &line.list);
        break;
    case TD_GPU_LINE_SAMPLES:
        take_samples(g, td_steal(arena), &line.list);
        break;
    case TD_GPU_LINE_XID:
        take_xid(g, line.uuid, line.xid);
        break;
    case TD_GPU_LINE_NONE:
        if (line.final) g->state = OVER;
        set_trouble(g, "%s", line.why);
        break;
    case TD_GPU_LINE_OTHER:
        break;
    }
}

// Whole lines out of what came; a line without an end waits in the buffer. Nothing comes after the
// last one.
static void take_bytes(struct td_gpus *g, const char *bytes, size_t n) {
    while (n && g->state == RUNS) {
        const char *end = memchr(bytes, '\n', n);
        const size_t len = end ? (size_t)(end - bytes) : n;
        td_status full = g->skips ? TD_OK : td_buf_append(&g->line, bytes, len);
        if (full) {
            g->skips = true;
            drop_line(g, td_buf_cstr(&g->line), full);
        }
        if (end && !g->skips) take_line(g, td_buf_cstr(&g->line), g->line.len);
        if (end) {
            td_buf_clear(&g->line);
            g->skips = false;
            if (g->state == RUNS) td_loop_timer_arm(g->timer, g->interval_ns + g->timeout_ns);
        }
        bytes += len + (end != NULL);
        n -= len + (end != NULL);
    }
}

static void drain(struct td_gpus *g) {
    char chunk[16384];
    ssize_t n;
    while (g->state == RUNS && (n = read(g->out_fd, chunk, sizeof chunk)) > 0) {
        take_bytes(g, chunk, (size_t)n);
    }
}

static void on_readable(int fd, void *arg) {
    (void)fd;
    drain(TD_CAST(td_gpus, arg));
}

// ---- the child ----------------------------------------------------------------------------------
static void close_child(struct td_gpus *g) {
    td_loop_fd_destroy(td_steal(g->exit_watch));
    td_loop_fd_destroy(td_steal(g->out_watch));
    if (g->out_fd >= 0) close(td_steal_fd(&g->out_fd));
    if (g->child.pidfd >= 0) close(td_steal_fd(&g->child.pidfd));
    td_buf_clear(&g->line);
    g->skips = g->said_bad = false;
}

static void pause_then_begin(struct td_gpus *g) {
    g->state = PAUSED;
    td_loop_timer_arm(g->timer, g->pause_ns);
    g->pause_ns = TD_MIN(2 * g->pause_ns, longest_pause_ns);
}

static void on_exit_child(int fd, void *arg) {
    (void)fd;
    struct td_gpus *g = TD_CAST(td_gpus, arg);
    int wait_status = 0;
    while (waitpid(g->child.pid, &wait_status, 0) < 0 && errno == EINTR) {}
    drain(g);
    close_child(g);
    td_loop_timer_disarm(g->timer);
    if (g->state == OVER) return;
    if (g->state == RUNS && (!g->trouble[0] || wait_status != 0)) {
        set_trouble(g,
                    "traind-worker devices, which asks the NVIDIA driver, has ended (wait status "
                    "%d); it is started again",
                    wait_status);
    }
    pause_then_begin(g);
}

static td_status spawn(struct td_gpus *g) {
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    g->out_fd = pipe_fd[0];
    TD_AUTO_CLOSE int theirs = pipe_fd[1];
    (void)fcntl(g->out_fd, F_SETFL, O_NONBLOCK);
    char parent[16], interval[24];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(interval, sizeof interval, "%" PRId64, g->interval_ns / TD_NS_PER_MS);
    const char *const argv[] = {g->trampoline,
                                "exec-rank",
                                parent,
                                "", // any core
                                memory_bytes,
                                "0", // for as long as the daemon lives
                                g->bin,
                                "devices",
                                "--interval-ms",
                                interval,
                                NULL};
    const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    const struct td_proc_fd fds[] = {{theirs, STDOUT_FILENO}};
    const struct td_proc_options options = {.path = g->trampoline,
                                            .argv = argv,
                                            .env = env,
                                            .fds = fds,
                                            .n_fds = 1,
                                            .new_session = true};
    return td_proc_spawn(&options, &g->child);
}

static td_status watch(struct td_gpus *g) {
    TD_TRY(td_loop_fd_create(g->loop, g->child.pidfd, 0, on_exit_child, g, &g->exit_watch));
    return td_loop_fd_create(g->loop, g->out_fd, TD_LOOP_FD_EDGE, on_readable, g, &g->out_watch);
}

static void end_child(struct td_gpus *g) {
    const int64_t most_ns = g->state == ABANDONED ? 0 : KILL_MS * TD_NS_PER_MS;
    if (td_proc_end(&g->child, SIGKILL, most_ns)) return;
    td_log_warn("traind-worker devices does not end pid=%d, continuing", (int)g->child.pid);
}

static td_status begin(struct td_gpus *g) {
    TD_TRY(spawn(g));
    td_status s = watch(g);
    if (s) {
        end_child(g);
        return s;
    }
    g->state = RUNS;
    td_loop_timer_arm(g->timer, g->timeout_ns);
    return TD_OK;
}

static void begin_or_pause(struct td_gpus *g) {
    TD_AUTO_STATUS td_status s = begin(g);
    if (!s) return;
    close_child(g);
    set_trouble(g, "traind-worker devices, which asks the NVIDIA driver, cannot be started: %s",
                td_status_message(s));
    pause_then_begin(g);
}

static void on_silent(struct td_gpus *g) {
    set_trouble(g,
                "the NVIDIA driver does not answer: traind-worker devices said nothing for %" PRId64
                " ms; another one is started%s",
                g->timeout_ns / TD_NS_PER_MS,
                g->list.n_gpus ? ", and what is shown is the last list" : "");
    g->state = KILLED;
    (void)g->kill_fn(g->child.pid, SIGKILL); // on_exit_child follows
    td_loop_timer_arm(g->timer, KILL_MS * TD_NS_PER_MS);
}

static void on_timer(void *arg) {
    struct td_gpus *g = TD_CAST(td_gpus, arg);
    switch (g->state) {
    case PAUSED:
        begin_or_pause(g);
        return;
    case RUNS:
        on_silent(g);
        return;
    case KILLED:
        g->state = ABANDONED;
        set_trouble(g,
                    "the NVIDIA driver does not answer, and traind-worker devices (pid %d) waits "
                    "in the kernel, where no signal ends it; no other one is started until it has "
                    "ended: start the machine again if it stays so",
                    (int)g->child.pid);
        return;
    case ABANDONED:
    case OVER:
        return;
    }
}

// ---- interface ----------------------------------------------------------------------------------
void td_gpus_look(struct td_gpus *g) {
    if (g->state == RUNS) (void)g->kill_fn(g->child.pid, TD_DEVICES_LOOK_SIGNAL);
}

const Traind__V1__GpuList *td_gpus_list(const struct td_gpus *g) {
    return g->is_known ? &g->list : NULL;
}

static td_status copy(char out[CHOICE_BYTES], const char *from, const char *what) {
    if (snprintf(out, CHOICE_BYTES, "%s", from) < CHOICE_BYTES) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT, "%s is longer than %d bytes", what, CHOICE_BYTES - 1);
}

td_status td_gpus_create(struct td_loop *loop, const struct td_gpus_options *o,
                         struct td_gpus **out_gpus) {
    TD_AUTO(td_gpus) *g = td_calloc(1, sizeof *g);
    if (!g) return td_fail_oom();
    g->magic = td_gpus_magic;
    g->loop = loop;
    g->fn = o->fn;
    g->on_samples = o->on_samples;
    g->arg = o->arg;
    g->shares_busy = o->shares_busy;
    g->kill_fn = o->kill_fn ? o->kill_fn : kill;
    g->out_fd = g->child.pidfd = -1;
    g->timeout_ns = o->timeout_ns;
    g->interval_ns = TD_MIN(INTERVAL_MS * TD_NS_PER_MS, o->timeout_ns);
    g->first_pause_ns = o->pause_ns ? o->pause_ns : TD_NS_PER_S;
    g->pause_ns = g->first_pause_ns;
    traind__v1__gpu_list__init(&g->list);
    td_buf_init(&g->line, TD_GPU_LINE_BYTES);
    TD_TRY(copy(g->gpus, o->gpus, "--gpus"));
    TD_TRY(copy(g->visible, o->visible ? o->visible : "", "CUDA_VISIBLE_DEVICES"));
    g->cut = (struct td_gpu_cut){.gpus = g->gpus, .visible = o->visible ? g->visible : NULL};
    TD_TRY(td_fs_path(g->bin, "%s/traind-worker", o->bin_dir));
    TD_TRY(td_fs_path(g->trampoline, "%s/traind-launcher", o->bin_dir));
    TD_TRY(td_loop_timer_create(loop, on_timer, g, &g->timer));
    if (td_gpu_cut_is_none(g->gpus)) {
        g->state = OVER;
        g->is_known = true;
        snprintf(g->why, sizeof g->why, "its daemon gives none to jobs (--gpus none)");
        g->list.why = g->why;
    } else {
        td_loop_timer_arm(g->timer, 0);
    }
    *out_gpus = td_steal(g);
    return TD_OK;
}

void td_gpus_destroy(struct td_gpus *g) {
    if (!g) return;
    if (g->child.pidfd >= 0) end_child(g);
    close_child(g);
    td_loop_timer_destroy(g->timer);
    td_arena_destroy(g->list_arena);
    td_arena_destroy(g->sample_arena);
    td_buf_finish(&g->line);
    g->magic = 0;
    free(g);
}
