// The launcher: started as a node starts it, spoken to in its frames. Ranks are not pinned: nobody
// else divides this machine. A launcher that is gone before it was connected to is no failure: its
// files say how the attempt ended.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/run/run.h"
#include "lib/attempt/segments.h"
#include "lib/base/files/named_output.h"
#include "lib/base/frame.h"
#include "traind/v1/launcher.pb-c.h"

enum { ACK_FD = 3, ACK_MAX = 16 << 10, ACK_MS = 20000, WORDS_MAX = 40 };

static td_status spawn(struct td_local_run *r, int ack_fd) {
    struct td_arena *a = r->arena;
    const char *launcher = td_arena_printf(a, "%s/traind-launcher", r->bin_dir);
    uint64_t limit = (uint64_t)TD_MAX(r->spec.resources.memory_bytes, 0) * (uint64_t)r->n_ranks;
    int64_t stuck_s = r->spec.restart.stuck_timeout_s;
    const char *argv[WORDS_MAX] = {launcher,
                                   "run",
                                   "--ack-fd",
                                   "3",
                                   "--dir",
                                   r->log_dir,
                                   "--plan",
                                   td_arena_printf(a, "%s/%s", r->log_dir, TD_SEGMENT_PLAN),
                                   "--job",
                                   r->spec.name,
                                   "--attempt",
                                   td_arena_printf(a, "%d", r->attempt),
                                   "--world",
                                   td_arena_printf(a, "%d", r->n_ranks),
                                   "--ranks",
                                   td_arena_printf(a, "%d", r->n_ranks),
                                   "--threads",
                                   td_arena_printf(a, "%d", r->threads),
                                   "--shared-bytes",
                                   td_arena_printf(a, "%llu", (unsigned long long)r->shared_bytes),
                                   "--memory-limit",
                                   td_arena_printf(a, "%llu", (unsigned long long)limit),
                                   "--worker",
                                   td_arena_printf(a, "%s/traind-worker", r->bin_dir),
                                   "--socket",
                                   td_arena_printf(a, "%s/launcher.sock", r->log_dir),
                                   "--plugin-dirs",
                                   "any", // the user's own
                                   "--devices",
                                   r->devices ? r->devices : "",
                                   "--cpu-level",
                                   r->cpu_level,
                                   "--orphan-timeout",
                                   "1",
                                   "--stuck-timeout",
                                   td_arena_printf(a, "%lld", (long long)stuck_s),
                                   NULL};
    char log[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(log, "%s/%s", r->log_dir, TD_SEGMENT_LAUNCHER_LOG));
    TD_AUTO_CLOSE int log_fd = -1;
    TD_TRY(td_named_output_update(log, O_WRONLY | O_APPEND, 0644, &log_fd));
    const struct td_proc_fd fds[] = {{log_fd, STDERR_FILENO}, {ack_fd, ACK_FD}};
    const struct td_proc_options o = {.path = launcher,
                                      .argv = argv,
                                      .env = (const char *const *)environ,
                                      .fds = fds,
                                      .n_fds = TD_COUNTOF(fds),
                                      .new_session = true,
                                      .holds_stops = true,
                                      .cwd = "/"};
    return td_proc_spawn(&o, &r->launcher);
}

static td_status read_ack(int fd, struct td_local_run *r) {
    TD_AUTO_BUF line;
    td_buf_init(&line, ACK_MAX);
    struct pollfd p = {fd, POLLIN, 0};
    char bytes[4096];
    for (ssize_t n = 1; n > 0;) {
        int ready = poll(&p, 1, ACK_MS);
        if (ready == 0) {
            return td_fail(TD_DEADLINE_EXCEEDED, "the launcher was not ready within 20 s");
        }
        if (ready < 0) continue; // this process was stopped for a while: a read would wait for ever
        n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) {
            n = 1;
        } else if (n > 0) {
            TD_TRY(td_buf_append(&line, bytes, (size_t)n));
        }
    }
    struct td_json *v = NULL;
    td_status_free(td_json_parse(r->arena, td_buf_cstr(&line), line.len, &v));
    if (td_json_bool(td_json_get(v, "ready"), false)) return TD_OK;
    return td_fail(TD_INTERNAL, "%s",
                   td_json_string(td_json_get(v, "message"),
                                  "the launcher ended before it was ready, without a word: it was "
                                  "killed, or is of another build"));
}

static td_status connect_launcher(struct td_local_run *r) {
    char path[TD_FS_PATH_BYTES];
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_RECORD_MAX);
    TD_TRY(td_fs_path(path, "%s/%s", r->log_dir, TD_SEGMENT_RECORD));
    TD_TRY(td_fs_read(path, TD_RECORD_MAX, &text));
    struct td_json *v = NULL;
    TD_TRY(td_json_parse(r->arena, text.data, text.len, &v));
    snprintf(r->socket, sizeof r->socket, "%s", td_json_string(td_json_get(v, "socket"), ""));
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", r->socket);
    r->link_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // A launcher whose ranks have all ended by now is gone: its files say the rest.
    if (r->link_fd >= 0 && connect(r->link_fd, (struct sockaddr *)&to, sizeof to) == 0) {
        return TD_OK;
    }
    td_auto_close(&r->link_fd);
    r->link_fd = -1;
    return TD_OK;
}

td_status td_local_run_launch(struct td_local_run *r) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a pipe");
    TD_AUTO_CLOSE int ours = fds[0];
    td_status s = spawn(r, fds[1]);
    close(fds[1]);
    if (!s) s = read_ack(ours, r);
    if (!s) s = connect_launcher(r);
    return s;
}

// Where the launcher cannot be spoken to, by the signal that says about the same.
static void command(struct td_local_run *r, uint16_t type, const void *body, size_t bytes,
                    int sig) {
    TD_AUTO_BUF out;
    td_buf_init(&out, 256);
    td_status s = td_frame_append(&out, type, TD_LAUNCHER_MAJOR, body, bytes);
    bool sent = !s && r->link_fd >= 0 &&
                send(r->link_fd, out.data, out.len, MSG_NOSIGNAL) == (ssize_t)out.len;
    td_status_free(s);
    if (!sent && r->launcher.pidfd >= 0) {
        (void)pidfd_send_signal(r->launcher.pidfd, sig, NULL, 0);
    }
}

void td_local_run_stop(struct td_local_run *r, int mode, uint32_t grace_ms) {
    Traind__V1__LauncherStop m = TRAIND__V1__LAUNCHER_STOP__INIT;
    m.mode = (uint32_t)mode;
    m.grace_ms = grace_ms;
    uint8_t packed[32];
    size_t bytes = traind__v1__launcher_stop__pack(&m, packed);
    command(r, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STOP, packed, bytes, SIGTERM);
}

void td_local_run_save(struct td_local_run *r) {
    command(r, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_SAVE, "", 0, SIGUSR1);
}

int td_local_run_next_signal(struct td_local_run *r) {
    struct signalfd_siginfo info;
    bool is = read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info;
    return is ? (int)info.ssi_signo : 0;
}

void td_local_run_forget_launcher(struct td_local_run *r) {
    td_auto_close(&r->link_fd);
    r->link_fd = -1;
    if (r->launcher.pid > 0) { // its ranks die with it; not reaped yet, so the pid is its own
        (void)kill(r->launcher.pid, SIGKILL);
        while (waitpid(r->launcher.pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    r->launcher.pid = 0;
    if (r->socket[0]) (void)unlink(r->socket);
    td_auto_close(&r->launcher.pidfd);
    r->launcher.pidfd = -1;
}
