// See the header. The launcher gets the daemon's environment as it is; what ranks get of it is the
// launcher's decision. Its stdout is /dev/null, its stderr a file in the attempt's directory: it
// holds nothing of the daemon's, so the daemon can go.

#include "daemon/node/shell/attempts/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/node/shell/attempts/fence.h"
#include "daemon/node/shell/shards/fetch.h"
#include "daemon/node/shell/attempts/finalize_log.h"
#include "daemon/node/shell/attempts/launcher_link.h"
#include "daemon/node/shell/assignment/given_dir.h"
#include "daemon/node/shell/shards/shards.h"
#include "lib/attempt/segments.h"
#include "lib/base/cpu_level.h"
#include "lib/base/digest.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

enum { td_local_attempt_magic = 0x4c415454, ACK_MAX = 16 << 10, ACK_FD = 3 };
enum { WAITS_MAX = 60 };     // for a descriptor: half a minute
enum { FINALIZES_MAX = 60 }; // with the launcher's lock, one each second
static const int64_t ack_ns = 20 * TD_NS_PER_S, look_ns = TD_NS_PER_S, wait_ns = TD_NS_PER_S / 2;

// ---- life ---------------------------------------------------------------------------------------
static void on_timer(void *arg);

td_status td_local_attempt_create(struct td_loop *loop, const struct td_assignment *assigned,
                                  const char *state_dir,
                                  const struct td_local_attempt_events *events, void *owner,
                                  struct td_local_attempt **out_attempt) {
    TD_AUTO(td_local_attempt) *a = td_calloc(1, sizeof *a);
    if (!a) return td_fail_oom();
    a->magic = td_local_attempt_magic;
    a->loop = loop;
    a->events = events;
    a->owner = owner;
    a->assigned = *assigned;
    a->ack_fd = a->launcher.pidfd = -1;
    a->own = UINT64_MAX;
    td_buf_init(&a->ack, ACK_MAX);
    int n = snprintf(a->dir, sizeof a->dir, "%s/attempts/%s/a%u", state_dir, assigned->job,
                     assigned->attempt);
    int m = snprintf(a->state_dir, sizeof a->state_dir, "%s", state_dir);
    if (n >= (int)sizeof a->dir || m >= (int)sizeof a->state_dir) {
        return td_fail(TD_INVALID_ARGUMENT, "the state directory's path is too long");
    }
    TD_TRY(td_loop_timer_create(loop, on_timer, a, &a->timer));
    *out_attempt = td_steal(a);
    return TD_OK;
}

void td_local_attempt_destroy(struct td_local_attempt *a) {
    if (!a) return;
    td_given_dir_destroy(a->place);
    td_fetch_destroy(a->fetch);
    td_shards_destroy(a->shards);
    td_forward_destroy(a->forward);
    td_launcher_link_destroy(a->link);
    td_loop_fd_destroy(a->ack_watch);
    td_loop_fd_destroy(a->end_watch);
    td_loop_timer_destroy(a->timer);
    td_auto_close(&a->ack_fd);
    td_auto_close(&a->launcher.pidfd);
    td_buf_finish(&a->ack);
    td_status_free(a->failed);
    free(a->plan_json);
    a->magic = 0;
    free(a);
}

void td_local_attempt_remove_files(const struct td_local_attempt *a) {
    td_status_log(TD_LOG_WARN, td_fs_remove_tree(a->dir), "attempt's directory stays, continuing");
    char parent[TD_FS_PATH_BYTES];
    snprintf(parent, sizeof parent, "%s/attempts/%s", a->state_dir, a->assigned.job);
    (void)rmdir(parent); // the job's other attempts may be there
}

// Daemons with other state directories share the runtime directory.
static td_status make_socket_path(struct td_local_attempt *a, const char *runtime_dir) {
    char hex[TD_DIGEST_HEX];
    td_xxh3_128_hex(a->dir, strlen(a->dir), hex);
    return td_fs_path(a->wanted_socket, "%s/%s-a%u-%.8s.sock", runtime_dir, a->assigned.job,
                      a->assigned.attempt, hex);
}

// ---- the launcher's life ------------------------------------------------------------------------
static void on_hello(const Traind__V1__LauncherHello *hello, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    a->linked = hello->major == TD_LAUNCHER_MAJOR;
    if (!a->linked) {
        td_log_warn("launcher of another version job=%s attempt=%u build=%s", a->assigned.job,
                    a->assigned.attempt, hello->build);
        td_loop_timer_arm(a->timer, look_ns);
        return;
    }
    a->events->on_connected(a);
}

static void on_status(const Traind__V1__LauncherStatus *status, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    a->events->on_status(a, status);
}

static void on_store_set(const Traind__V1__LauncherStoreSet *set, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    a->events->on_store_set(a, set);
}

static void on_store_want(const Traind__V1__LauncherStoreWant *want, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    a->events->on_store_want(a, want);
}

static void on_store_taken(uint32_t n_values, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    a->events->on_store_taken(a, n_values);
}

static const struct td_launcher_link_events link_events = {.on_hello = on_hello,
                                                           .on_status = on_status,
                                                           .on_store_set = on_store_set,
                                                           .on_store_want = on_store_want,
                                                           .on_store_taken = on_store_taken};

static void close_launcher(struct td_local_attempt *a) {
    td_loop_fd_destroy(td_steal(a->ack_watch));
    td_loop_fd_destroy(td_steal(a->end_watch));
    td_launcher_link_destroy(td_steal(a->link));
    td_loop_timer_disarm(a->timer);
    td_auto_close(&a->ack_fd);
    a->ack_fd = -1;
    if (a->launcher.pidfd >= 0) {
        siginfo_t info; // our own child is reaped, another one's is not ours to reap
        (void)waitid(P_PIDFD, (id_t)a->launcher.pidfd, &info, WEXITED | WNOHANG);
    }
    td_auto_close(&a->launcher.pidfd);
    a->launcher = (struct td_proc){.pidfd = -1};
    // Left by a launcher that was killed; the record names the path that it really used.
    if (a->socket[0]) (void)unlink(a->socket);
    if (a->wanted_socket[0]) (void)unlink(a->wanted_socket);
}

static struct td_log_end log_end(const struct td_local_attempt *a, char path[TD_FS_PATH_BYTES],
                                 uint64_t sent) {
    snprintf(path, TD_FS_PATH_BYTES, "%s/a%u", a->assigned.checkpoints, a->assigned.attempt);
    return (struct td_log_end){.dir = a->dir,
                               .checkpoint_dir = path,
                               .rebooted = a->rebooted,
                               .sent = sent,
                               .unlocked = a->n_finalizes >= FINALIZES_MAX};
}

static td_status finalize_files(struct td_local_attempt *a, uint64_t sent, uint64_t *out_own) {
    char path[TD_FS_PATH_BYTES];
    struct td_log_end s = log_end(a, path, sent);
    td_remove_unfinished_checkpoints(path);
    return td_finalize_log(&s, out_own);
}

// Somebody holds the lock, or the disk refuses. Said once a minute. The process was seen to end, so
// after a minute a lock that somebody else holds is no reason to leave the job RUNNING.
static void finalize_later(struct td_local_attempt *a, td_status take_failure) {
    bool first = a->n_finalizes++ % FINALIZES_MAX == 0;
    td_status_log(first ? TD_LOG_ERROR : TD_LOG_DEBUG, take_failure,
                  "the end of an attempt is not recorded, will try again");
    td_loop_timer_arm(a->timer, look_ns);
}

static void finalize(struct td_local_attempt *a) {
    uint64_t own, sent = 0;
    bool active = td_forward_is_active(a->forward, &sent);
    td_status s = finalize_files(a, sent, &own);
    if (s) {
        finalize_later(a, s);
        return;
    }
    a->ended = true;
    // In a session what is sent from here on comes in its turn; the next one says how much it has.
    a->own = active ? UINT64_MAX : own;
    a->events->on_gone(a);
}

// The pidfd is readable: the launcher has ended, well or not.
static void on_end(int fd, void *arg) {
    (void)fd;
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    bool starting = a->plan_json != NULL;
    close_launcher(a);
    if (!starting) {
        finalize(a);
        return;
    }
    td_status s = td_steal(a->failed);
    if (!s) {
        s = td_status_with_class(
            td_fail(TD_INTERNAL, "the launcher ended before it was ready; see its log"),
            TD_CLASS_INTERNAL);
    }
    a->events->on_failed(a, s);
}

static td_status watch_launcher(struct td_local_attempt *a) {
    return td_loop_fd_create(a->loop, a->launcher.pidfd, 0, on_end, a, &a->end_watch);
}

static td_status connect_launcher(struct td_local_attempt *a) {
    return td_launcher_link_create(a->loop, a->socket, &link_events, a, &a->link);
}

// ---- record.json --------------------------------------------------------------------------------
static td_status read_record(struct td_local_attempt *a) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/%s", a->dir, TD_SEGMENT_RECORD));
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_RECORD_MAX);
    TD_TRY(td_fs_read(path, TD_RECORD_MAX, &text));
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_json *v;
    TD_TRY_CTX(td_json_parse(arena, text.data, text.len, &v), "'%s'", path);
    a->launcher.pid = (pid_t)td_json_int(td_json_get(v, "pid"), 0);
    a->launcher.start_ticks = (uint64_t)td_json_int(td_json_get(v, "start_ticks"), 0);
    a->major = (uint32_t)td_json_int(td_json_get(v, "major"), 0);
    snprintf(a->build, sizeof a->build, "%s", td_json_string(td_json_get(v, "build"), ""));
    snprintf(a->boot_id, sizeof a->boot_id, "%s", td_json_string(td_json_get(v, "boot_id"), ""));
    snprintf(a->socket, sizeof a->socket, "%s", td_json_string(td_json_get(v, "socket"), ""));
    snprintf(a->cores, sizeof a->cores, "%s", td_json_string(td_json_get(v, "cores"), ""));
    if (a->launcher.pid <= 1) return td_fail(TD_DATA_LOSS, "'%s' names no process", path);
    return TD_OK;
}

static bool has_events(const struct td_local_attempt *a) {
    char events[TD_FS_PATH_BYTES];
    struct stat st;
    snprintf(events, sizeof events, "%s/%s", a->dir, TD_SEGMENT_EVENTS);
    return stat(events, &st) == 0 && st.st_size > 0;
}

// Without its record a launcher cannot be found again, so it must not be alive; without its
// assignment an attempt cannot be counted among the running ones. Nothing was ever launched without
// these; what was, has ended now.
static td_status recover_unrecorded(struct td_local_attempt *a, td_status take_why) {
    TD_AUTO_STATUS td_status why = take_why;
    TD_TRY(td_fence(a->dir));
    close_launcher(a);
    if (!has_events(a) && td_status_code(why) == TD_NOT_FOUND) return td_steal(why);
    td_log_warn("attempt not adopted job=%s attempt=%u why=\"%s\", its job goes on from the last "
                "checkpoint",
                a->assigned.job, a->assigned.attempt, td_status_message(why));
    a->ended = true;
    return finalize_files(a, 0, &a->own);
}

static td_status recover(struct td_local_attempt *a, const char *boot_id) {
    TD_AUTO_STATUS td_status unread = read_record(a); // first: it knows the socket
    TD_AUTO_STATUS td_status unassigned = td_assignment_load(a->dir, &a->assigned);
    if (unassigned) {
        td_status gone = td_assignment_rebuild(a->dir, &a->assigned);
        td_status_free(gone);
        if (gone && has_events(a)) return td_steal(unassigned);
        if (gone) { // the power failed in the middle of its start
            td_status_free(unread);
            unread = td_fail(TD_NOT_FOUND, "'%s' holds no attempt", a->dir);
        }
        if (!unread) unread = td_steal(unassigned);
    }
    if (unread) return recover_unrecorded(a, td_steal(unread));
    a->rebooted = strcmp(a->boot_id, boot_id) != 0;
    td_status s = a->rebooted
                      ? td_fail(TD_NOT_FOUND, "another boot")
                      : td_proc_pidfd(a->launcher.pid, a->launcher.start_ticks, &a->launcher.pidfd);
    if (!s) {
        TD_TRY(watch_launcher(a));
        return connect_launcher(a);
    }
    if (td_status_code(s) != TD_NOT_FOUND) return s;
    td_status_free(s);
    TD_TRY(td_fence(a->dir)); // a lock that is held for a moment is waited for
    close_launcher(a);
    a->ended = true;
    td_status failed = finalize_files(a, 0, &a->own);
    // NOT_FOUND is said for an attempt that never ran; this one did.
    return td_status_code(failed) == TD_NOT_FOUND ? td_status_context(failed, "finalize its log")
                                                  : failed;
}

// What is not taken over must not go on.
td_status td_local_attempt_recover(struct td_local_attempt *a, const char *boot_id,
                                   const char *runtime_dir) {
    TD_TRY(make_socket_path(a, runtime_dir));
    TD_AUTO_STATUS td_status s = recover(a, boot_id);
    if (!s) return TD_OK;
    TD_TRY_CTX(td_fence(a->dir), "not taken over, and it may go on");
    close_launcher(a);
    return td_steal(s);
}

void td_local_attempt_committed(struct td_local_attempt *a, uint64_t events) {
    uint64_t own = a->own;
    a->own = UINT64_MAX; // from now on they are sent
    if (own >= events) return;
    td_log_warn("log is shorter than what was sent of it job=%s attempt=%u bytes=%" PRIu64
                ", continuing",
                a->assigned.job, a->assigned.attempt, events - own);
    char path[TD_FS_PATH_BYTES];
    struct td_log_end s = log_end(a, path, events);
    td_status_log(
        TD_LOG_ERROR, td_finalize_log_after(&s, own),
        "an attempt's end cannot be sent; move its directory away and start traind again");
}

// ---- start --------------------------------------------------------------------------------------
// It is reported when the launcher is gone, so that nothing of the attempt is left by then.
static void start_failed(struct td_local_attempt *a, td_status take_status) {
    td_status_free(a->failed);
    a->failed = take_status;
    td_local_attempt_kill(a);
}

static td_status read_ack(const char *line, size_t len) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct td_json *v;
    TD_TRY_CTX(td_json_parse(arena, line, len, &v), "the launcher's answer");
    if (td_json_bool(td_json_get(v, "ready"), false)) return TD_OK;
    int64_t code = td_json_int(td_json_get(v, "code"), TD_INTERNAL);
    if (code <= 0 || code > TD_UNAUTHENTICATED) code = TD_INTERNAL;
    enum td_class cls = td_class_parse(td_json_string(td_json_get(v, "class"), ""));
    return td_status_with_class(
        td_fail((enum td_code)code, "%s", td_json_string(td_json_get(v, "message"), "")),
        cls == TD_CLASS_NONE ? TD_CLASS_INTERNAL : cls);
}

static void on_ack(int fd, void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    td_status s = n > 0 ? td_buf_append(&a->ack, bytes, (size_t)n) : TD_OK;
    if (!s && n > 0 && bytes[n - 1] != '\n') return;
    if (!s && a->ack.len == 0) { // it died: the pidfd says so
        td_loop_fd_destroy(td_steal(a->ack_watch));
        return;
    }
    if (!s) s = read_ack(a->ack.data, a->ack.len);
    td_loop_fd_destroy(td_steal(a->ack_watch));
    td_auto_close(&a->ack_fd);
    a->ack_fd = -1;
    td_loop_timer_disarm(a->timer);
    struct td_proc started = a->launcher;
    if (!s) s = read_record(a); // socket and cores in use
    a->launcher = started;
    if (!s) s = connect_launcher(a);
    if (!s) s = td_assignment_sync(a->dir);
    if (s) {
        start_failed(a, s);
        return;
    }
    free(td_steal(a->plan_json));
    a->events->on_started(a);
}

static void on_timer(void *arg) {
    struct td_local_attempt *a = TD_CAST(td_local_attempt, arg);
    if (a->plan_json && a->abandoned) {
        a->events->on_failed(
            a, td_status_with_class(td_fail(TD_CANCELLED, "stopped before it started"),
                                    TD_CLASS_PREEMPTED));
    } else if (a->plan_json && a->launcher.pid == 0) {
        a->events->on_again(a);
    } else if (a->plan_json) {
        start_failed(a, td_fail(TD_DEADLINE_EXCEEDED, "the launcher was not ready in time"));
    } else if (!a->ended && a->launcher.pid == 0) {
        finalize(a); // again
    } else if (!a->ended && !a->linked) {
        td_loop_timer_arm(a->timer, look_ns);
        a->events->on_status(a, NULL);
    }
}

enum { ARGV_MAX = 64 };
struct command {
    struct td_arena *arena;
    const char *argv[ARGV_MAX];
    size_t n;
    bool full; // out of memory
};

static void word(struct command *c, const char *text) {
    TD_CHECK(c->n < ARGV_MAX - 1);
    c->argv[c->n++] = text;
    c->full = c->full || !text;
}

static void number(struct command *c, const char *flag, uint64_t value) {
    word(c, flag);
    word(c, td_arena_printf(c->arena, "%llu", (unsigned long long)value));
}

static void file(struct command *c, const char *flag, const char *dir, const char *name) {
    word(c, flag);
    word(c, td_arena_printf(c->arena, "%s/%s", dir, name));
}

static td_status make_command(struct td_local_attempt *a, const struct td_launch_context *x,
                              struct command *c) {
    const struct td_assignment *s = &a->assigned;
    TD_TRY(make_socket_path(a, x->runtime_dir));
    word(c, td_arena_printf(c->arena, "%s/traind-launcher", x->bin_dir));
    word(c, "run");
    number(c, "--ack-fd", ACK_FD);
    word(c, "--dir");
    word(c, a->dir);
    file(c, "--plan", a->dir, TD_SEGMENT_PLAN);
    word(c, "--job");
    word(c, s->job);
    number(c, "--attempt", s->attempt);
    number(c, "--epoch", s->epoch);
    number(c, "--world", s->world_size);
    number(c, "--first-rank", s->first_rank);
    number(c, "--ranks", s->n_ranks);
    word(c, "--cores");
    word(c, x->cores);
    number(c, "--threads", s->threads);
    word(c, "--cpu-level");
    word(c, td_cpu_level_name(td_cpu_level())); // this daemon's is the bound of its ranks
    number(c, "--shared-bytes", s->shared_bytes);
    number(c, "--memory-limit", s->memory_limit_bytes);
    file(c, "--worker", x->bin_dir, "traind-worker");
    word(c, "--socket");
    word(c, a->wanted_socket);
    number(c, "--orphan-timeout", (uint64_t)(x->orphan_timeout_ns / TD_NS_PER_S));
    number(c, "--silent-after-ms", (uint64_t)(x->silent_after_ns / TD_NS_PER_MS));
    number(c, "--stuck-timeout", a->assigned.stuck_timeout_s);
    number(c, "--umask", x->rank_umask);
    if (s->kind != TD_KIND_TRAIN) {
        word(c, "--kind");
        word(c, td_job_kind_name(s->kind));
        word(c, "--ports");
        word(c, td_arena_printf(c->arena, "%d-%d", x->ports.first, x->ports.last));
    }
    if (x->shared_cores) word(c, "--shared-cores");
    if (s->devices[0] && s->kind == TD_KIND_TRAIN) {
        word(c, "--devices");
        word(c, s->devices);
    }
    if (s->devices[0]) number(c, "--gpu-idle-ms", (uint64_t)(x->gpu_idle_ns / TD_NS_PER_MS));
    if (x->gpus[0]) {
        word(c, "--gpus");
        word(c, x->gpus);
    }
    if (x->plugin_dirs[0]) {
        word(c, "--plugin-dirs");
        word(c, x->plugin_dirs);
    }
    word(c, "--path-rules");
    word(c, x->path_rules);
    return c->full ? td_fail_oom() : TD_OK;
}

static td_status spawn(struct td_local_attempt *a, const struct td_launch_context *x, int ack_fd) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(1 << 20, &arena));
    struct command c = {.arena = arena};
    TD_TRY(make_command(a, x, &c));
    char log[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(log, "%s/%s", a->dir, TD_SEGMENT_LAUNCHER_LOG));
    TD_AUTO_CLOSE int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) return td_fs_fail("open", log);
    struct td_proc_fd fds[] = {{log_fd, STDERR_FILENO}, {ack_fd, ACK_FD}};
    struct td_proc_options o = {.path = c.argv[0],
                                .argv = c.argv,
                                .env = (const char *const *)environ,
                                .fds = fds,
                                .n_fds = TD_COUNTOF(fds),
                                .new_session = true,
                                .holds_stops = true,
                                .cwd = "/"};
    return td_proc_spawn(&o, &a->launcher);
}

static td_status start_launcher(struct td_local_attempt *a, const struct td_launch_context *c) {
    TD_TRY(td_assignment_write(&a->assigned, a->plan_json, a->dir, a->state_dir,
                               0777 & ~c->rank_umask));
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    a->ack_fd = fds[0];
    TD_AUTO_CLOSE int theirs = fds[1];
    return spawn(a, c, theirs);
}

td_status td_local_attempt_launch(struct td_local_attempt *a, const char *boot_id,
                                  const struct td_launch_context *c) {
    td_status failed = start_launcher(a, c);
    if (failed) {
        if (a->ack_fd >= 0) close(td_steal_fd(&a->ack_fd));
        if (!td_proc_is_transient(failed) || a->n_waits == WAITS_MAX) return failed;
        if (!a->n_waits++) td_log_warn("launcher waits: %s, continuing", td_status_message(failed));
        td_status_free(failed);
        td_loop_timer_arm(a->timer, wait_ns);
        return TD_OK;
    }
    snprintf(a->boot_id, sizeof a->boot_id, "%s", boot_id);
    snprintf(a->cores, sizeof a->cores, "%s", c->cores);
    td_loop_timer_arm(a->timer, ack_ns);
    td_status s = td_loop_fd_create(a->loop, a->ack_fd, 0, on_ack, a, &a->ack_watch);
    if (!s) s = watch_launcher(a);
    if (s) {
        td_local_attempt_kill(a);
        close_launcher(a);
    }
    return s;
}

// ---- commands -----------------------------------------------------------------------------------
void td_local_attempt_kill(struct td_local_attempt *a) {
    if (a->launcher.pidfd >= 0) (void)pidfd_send_signal(a->launcher.pidfd, SIGKILL, NULL, 0);
}

void td_local_attempt_stop(struct td_local_attempt *a, int mode, uint32_t grace_ms) {
    if (a->link && td_launcher_link_stop(a->link, mode, grace_ms)) return;
    if (a->launcher.pidfd < 0) return;
    // Not connected: on_connected gives it again. A launcher of another major is asked by signal.
    if (mode == 3) {
        td_local_attempt_kill(a);
    } else if (a->major != TD_LAUNCHER_MAJOR) {
        (void)pidfd_send_signal(a->launcher.pidfd, SIGTERM, NULL, 0);
    }
}

void td_local_attempt_save(struct td_local_attempt *a) {
    a->save_waits = !a->link || !td_launcher_link_save(a->link);
}

void td_local_attempt_abandon(struct td_local_attempt *a) {
    if (a->launcher.pidfd >= 0) return; // answers in a moment, and is stopped then
    a->abandoned = true;
    a->waits_for_files = false;
    td_given_dir_destroy(td_steal(a->place));
    td_fetch_destroy(td_steal(a->fetch));
    td_loop_timer_arm(a->timer, 0);
}
