// See the header.

#include "daemon/launcher/reports/reports.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/launcher/command/command.h"
#include "daemon/launcher/command/talk.h"
#include "daemon/launcher/environment.h"
#include "daemon/launcher/state.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum {
    NOTES_MOST = 64,
    MEMORY_BYTES = 256 << 20,
    CHILD_FD = 3,
    SETTINGS_BYTES = 120 << 10, // of one argument of a process
};
static const int64_t ready_ns = 10 * TD_NS_PER_S, end_ns = 5 * TD_NS_PER_S;

static void note(struct td_launcher *l, const char *fmt, ...) TD_PRINTF(2, 3);
static void note(struct td_launcher *l, const char *fmt, ...) {
    char text[640];
    va_list ap;
    struct td_event_writer line;
    if (l->reports->n_notes++ >= NOTES_MOST) return;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    td_journal_begin(&l->journal, TD_EVENT_NOTE, &line);
    td_event_note_text(&line, text);
    td_journal_append(&l->journal, &line);
    l->news = true;
}

// ---- the child ----------------------------------------------------------------------------------
static td_status spawn(struct td_launcher *l, struct td_launch_reports *r) {
    char parent[16], memory[24];
    int s[2];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(memory, sizeof memory, "%d", MEMORY_BYTES);
    const char *const argv[] = {
        l->self,     "exec-rank", parent,         "",  memory,       "0", // any processor time
        l->o.worker, "reports",   "--reports-fd", "3", "--settings", r->settings, NULL};
    td_arena_reset(l->arena);
    const char *const *env =
        td_environment_build(l->arena, (const char *const *)environ, 1, true, NULL);
    if (!env) return td_fail_oom();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a socket for reports");
    }
    TD_AUTO_CLOSE int theirs = s[1];
    r->fd = r->lines.fd = s[0];
    td_launch_kept_give(&r->kept, r->fd);
    struct td_proc_fd fds[2 + TD_COUNTOF(r->more)] = {{STDERR_FILENO, STDERR_FILENO},
                                                      {theirs, CHILD_FD}};
    memcpy(fds + 2, r->more, r->n_more * sizeof *fds);
    const struct td_proc_options p = {.path = l->self,
                                      .argv = argv,
                                      .env = env,
                                      .fds = fds,
                                      .n_fds = 2 + r->n_more,
                                      .new_session = true,
                                      .cwd = l->o.dir};
    r->started = td_mono_now();
    r->ready = r->over = false;
    return td_proc_spawn(&p, &r->proc);
}

static void forget(struct td_launch_reports *r) {
    td_auto_close(&r->fd);
    td_auto_close(&r->proc.pidfd);
    r->fd = r->lines.fd = r->proc.pidfd = -1;
    r->proc.pid = 0;
}

static void start_child(struct td_launcher *l) {
    struct td_launch_reports *r = l->reports;
    td_status failed = spawn(l, r);
    if (!failed) return;
    note(l, "metrics_from: nothing is taken from what the script says: %s",
         td_status_message(failed));
    td_status_log(TD_LOG_WARN, failed, "reports child not started, continuing");
    forget(r);
    td_launch_hf_close(&r->hf); // a Trainer does not wait for an answer that never comes
}

// `"key":"text"`, as JSON has the text.
static td_status put_text(const char *before, const char *text, struct td_buf *out) {
    TD_TRY(td_buf_str(out, before));
    return td_json_print_string(text, strlen(text), out);
}

// The child's sources, each with a member of its name. Every one but the first comes after a comma.
static td_status put_sources(const struct td_launcher *l, struct td_launch_reports *r,
                             struct td_buf *out) {
    enum { HF_FD = CHILD_FD + 1 };
    const struct td_launch_command *c = l->command;
    if (c->stdout_pattern) {
        TD_TRY(put_text(",\"stdout\":{\"rank\":0,\"pattern\":", c->stdout_pattern, out));
        TD_TRY(td_buf_str(out, "}"));
    }
    if (c->board_dir) {
        TD_TRY(put_text(",\"tensorboard\":{\"dir\":", c->board_dir, out));
        TD_TRY(put_text(",\"rules\":", l->o.path_rules, out));
        TD_TRY(td_buf_printf(out, ",\"since\":%lld}", (long long)td_real_now().ns));
    }
    if (r->hf.listen_fd < 0) return TD_OK;
    r->more[r->n_more++] = (struct td_proc_fd){r->hf.listen_fd, HF_FD};
    TD_TRY(td_buf_printf(out, ",\"hf\":{\"fd\":%d,\"first_rank\":%d,\"n_ranks\":%d", HF_FD,
                         l->o.first_rank, l->o.n_ranks));
    TD_TRY(put_text(",\"dir\":", l->o.dir, out));
    return td_buf_str(out, "}");
}

static td_status write_settings(const struct td_launcher *l, struct td_launch_reports *r) {
    TD_AUTO_BUF text;
    td_buf_init(&text, SETTINGS_BYTES);
    TD_TRY(put_sources(l, r, &text));
    TD_TRY(td_buf_str(&text, "}"));
    text.data[0] = '{'; // in place of the first comma
    r->settings = td_arena_strdup(l->command->arena, td_buf_cstr(&text));
    return r->settings ? TD_OK : td_fail_oom();
}

td_status td_reports_prepare(struct td_launcher *l) {
    char why[512];
    if (!td_launcher_talks(l) || l->o.first_rank > 0) return TD_OK;
    struct td_launch_reports *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    *r = (struct td_launch_reports){.fd = -1, .lines.fd = -1, .proc.pidfd = -1, .hf.listen_fd = -1};
    l->reports = r;
    td_launch_hf_open(l, &r->hf, why, sizeof why);
    if (*why) note(l, "%s", why);
    if (l->command->stdout_pattern) l->ranks[0].out.lines = &r->lines;
    r->waits = !l->command->stdout_pattern && !l->command->board_dir;
    return !r->waits || r->hf.listen_fd >= 0 ? write_settings(l, r) : TD_OK;
}

void td_reports_start(struct td_launcher *l) {
    if (l->reports && l->reports->settings && !l->reports->waits) start_child(l);
}

void td_reports_destroy(struct td_launch_reports *r) {
    if (!r) return;
    if (r->proc.pid > 0) (void)kill(r->proc.pid, SIGKILL); // not reaped: it is still its pid
    forget(r);
    td_launch_hf_close(&r->hf);
    td_launch_kept_finish(&r->kept);
    free(r);
}

// ---- what it says -------------------------------------------------------------------------------
static void take_line(struct td_launcher *l, const char *text, size_t bytes) {
    struct td_launch_reports *r = l->reports;
    struct td_json *v = NULL;
    td_arena_reset(l->arena);
    td_status s = td_json_parse(l->arena, text, bytes, &v);
    if (s) {
        td_status_log(TD_LOG_WARN, s, "a report that cannot be read, continuing");
        return;
    }
    const char *said = td_json_string(td_json_get(v, "note"), NULL);
    if (said) note(l, "%s", said);
    if (td_json_get(v, "rank")) td_talk_report(l, v);
    td_launch_kept_take(&r->kept, td_json_get(v, "kept"));
    r->ready = r->ready || td_json_get(v, "ready");
    r->over = r->over || td_json_get(v, "over");
}

// At most so many bytes, as whole messages. False: the child is gone.
static bool take(struct td_launcher *l, size_t most_bytes) {
    static char text[TD_REPORT_MAX]; // one thread
    struct td_launch_reports *r = l->reports;
    for (size_t taken = 0; taken < most_bytes;) {
        const ssize_t n = recv(r->fd, text, sizeof text, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        l->news = true;
        taken += (size_t)n;
        for (char *at = text, *end = text + n; at < end;) {
            char *stop = memchr(at, '\n', (size_t)(end - at));
            if (!stop) stop = end;
            if (stop > at) take_line(l, at, (size_t)(stop - at));
            at = stop + 1;
        }
    }
    return true;
}

static void note_drop(struct td_launcher *l) {
    struct td_launch_reports *r = l->reports;
    if (r->noted_drop || r->lines.dropped_bytes == 0 || r->fd < 0) return;
    r->noted_drop = true;
    note(l, "rank 0 prints faster than its lines are looked at: some lines are left out of what "
            "metrics_from.stdout matches, and counted; its output itself is whole");
}

// A rank wants to report, and no child is there yet.
static bool is_called(const struct td_launch_reports *r) {
    struct pollfd p = {.fd = r->hf.listen_fd, .events = POLLIN};
    return r->hf.listen_fd >= 0 && poll(&p, 1, 0) == 1;
}

void td_reports_look(struct td_launcher *l) {
    struct td_launch_reports *r = l->reports;
    if (!r) return;
    if (r->waits && is_called(r)) {
        r->waits = false;
        start_child(l);
    }
    if (r->fd < 0) return;
    (void)take(l, TD_REPORTS_A_TICK); // that it is gone is said by its end
    note_drop(l);
    if (!r->ready && td_mono_now().ns - r->started.ns >= ready_ns && r->proc.pid > 0) {
        (void)kill(r->proc.pid, SIGKILL);
    }
}

bool td_reports_ended(struct td_launcher *l, pid_t pid, int wait_code, int wait_status) {
    struct td_launch_reports *r = l->reports;
    if (!r || r->proc.pid != pid) return false;
    const bool was_ready = r->ready;
    if (r->fd >= 0) (void)take(l, SIZE_MAX); // what it said before
    forget(r);
    char how[64];
    snprintf(how, sizeof how, wait_code == CLD_EXITED ? "with exit code %d" : "by signal %d",
             wait_status);
    const bool is_bad = wait_code == CLD_EXITED && wait_status == TD_EXIT_BAD_SPEC;
    if (is_bad || r->n_restarts == TD_REPORTS_RESTARTS) {
        note(l,
             "metrics_from: the process that reads what the script says ended %s%s%s; it was "
             "replaced %d time%s before, and nothing more is read",
             how, was_ready ? "" : " before it was ready",
             is_bad ? ", as it cannot use its settings" : "", r->n_restarts,
             r->n_restarts == 1 ? "" : "s");
        td_launch_hf_close(&r->hf);
        return true;
    }
    note(l,
         "metrics_from: the process that reads what the script says ended %s%s; another one takes "
         "its place, number %d of at most %d, and lines in between are lost",
         how, was_ready ? "" : " before it was ready", ++r->n_restarts, TD_REPORTS_RESTARTS);
    start_child(l);
    return true;
}

// ---- the end ------------------------------------------------------------------------------------
// False: the time is over.
static bool wait_for(const struct td_launch_reports *r, short events, struct td_mono until) {
    const int64_t left_ms = (until.ns - td_mono_now().ns) / TD_NS_PER_MS;
    struct pollfd p = {.fd = r->fd, .events = events};
    return left_ms > 0 && poll(&p, 1, (int)left_ms) >= 0;
}

static void hear_out(struct td_launcher *l) {
    struct td_launch_reports *r = l->reports;
    const struct td_mono until = td_mono_add(td_mono_now(), end_ns);
    const char word = TD_REPORT_END;
    bool said = false, lives = true;
    while (lives && !r->over && wait_for(r, said ? POLLIN : POLLIN | POLLOUT, until)) {
        if (!said) said = send(r->fd, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
        lives = take(l, TD_REPORTS_A_TICK); // so that the time is looked at between
    }
    if (r->over) return;
    note(l,
         "metrics_from: the process that reads what the script says %s; what was printed last may "
         "not be among the metrics",
         lives ? "did not come to its end in 5 s" : "ended before it was asked to");
}

void td_reports_end(struct td_launcher *l) {
    struct td_launch_reports *r = l->reports;
    if (!r || !r->settings) return;
    if (r->fd >= 0) hear_out(l);
    if (r->proc.pid > 0) (void)td_proc_end(&r->proc, SIGKILL, end_ns);
    forget(r);
    if (r->lines.dropped_bytes) {
        note(l, "metrics_from.stdout: %llu bytes of what rank 0 printed were not looked at",
             (unsigned long long)r->lines.dropped_bytes);
    }
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        td_talk_end(l, &l->ranks[i]);
        td_launch_rank_drain_metrics(&l->ranks[i]);
    }
}
