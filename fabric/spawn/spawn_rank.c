// See the header. Descriptors of a rank have fixed numbers, which the two variables name.

#include "fabric/spawn/spawn_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fabric/config.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

enum { PAGE_AT = 3, GROUP_AT, RESULTS_AT, CALL_AT };
enum { FRAMES_AT_ONCE = 64, CALL_TEXT = 32 };

void td_spawn_rank_init(struct td_spawn_rank *r, int32_t rank) {
    *r = (struct td_spawn_rank){.rank = rank, .results_fd = -1, .proc = {.pidfd = -1}};
    td_result_reader_init(&r->reader);
}

// ---- its start ----------------------------------------------------------------------------------
static bool is_ours(const char *variable) {
    return strncmp(variable, TD_RANK_ENV "=", sizeof TD_RANK_ENV) == 0 ||
           strncmp(variable, TD_SPAWN_ENV "=", sizeof TD_SPAWN_ENV) == 0;
}

// The parent's environment with the two variables of a rank; the array is the caller's.
static td_status make_environment(const char *rank_text, const char *call_text,
                                  const char ***out_env) {
    size_t n = 0, kept = 0;
    while (environ && environ[n]) {
        n++;
    }
    const char **env = td_calloc(n + 3, sizeof *env);
    if (!env) return td_fail_oom();
    for (size_t i = 0; i < n; i++) {
        if (!is_ours(environ[i])) env[kept++] = environ[i];
    }
    env[kept++] = rank_text;
    env[kept] = call_text;
    *out_env = env;
    return TD_OK;
}

static td_status start_process(struct td_spawn_rank *r, const struct td_spawn_group *g, int page_fd,
                               int results_fd) {
    char rank_text[sizeof TD_RANK_ENV + TD_RANK_ENV_BYTES] = TD_RANK_ENV "=";
    char call_text[CALL_TEXT], value[TD_RANK_ENV_BYTES];
    const struct td_rank_env e = {.rank = r->rank,
                                  .world_size = g->world_size,
                                  .page_fd = PAGE_AT,
                                  .events_fd = -1,
                                  .group_fd = GROUP_AT,
                                  .store_fd = -1,
                                  .results_fd = RESULTS_AT};
    TD_TRY(td_rank_env_write(&e, value));
    memcpy(rank_text + sizeof TD_RANK_ENV, value, strlen(value) + 1);
    snprintf(call_text, sizeof call_text, TD_SPAWN_ENV "=%d", CALL_AT);
    TD_AUTO_FREE const char **env = NULL;
    TD_TRY(make_environment(rank_text, call_text, &env));
    struct td_proc_fd fds[7] = {{page_fd, PAGE_AT},
                                {g->group_fd, GROUP_AT},
                                {results_fd, RESULTS_AT},
                                {g->call_fd, CALL_AT}};
    size_t n_fds = 4;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) { // closed here: /dev/null there
        if (fcntl(fd, F_GETFD) >= 0) fds[n_fds++] = (struct td_proc_fd){fd, fd};
    }
    const struct td_proc_options p = {
        .path = "/proc/self/exe", .argv = g->argv, .env = env, .fds = fds, .n_fds = n_fds};
    return td_proc_spawn(&p, &r->proc);
}

td_status td_spawn_rank_start(struct td_spawn_rank *r, const struct td_spawn_group *g) {
    TD_AUTO_CLOSE int page_fd = -1;
    TD_TRY(td_rank_page_make(r->rank, g->world_size, &page_fd, &r->page, &r->ring));
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "make a socket for results");
    }
    r->results_fd = ends[0];
    TD_AUTO_CLOSE int theirs = ends[1];
    TD_TRY(start_process(r, g, page_fd, theirs));
    if (r->proc.pidfd >= 0) return TD_OK;
    return td_fail(TD_UNIMPLEMENTED, "this kernel has no descriptors of processes (pidfd_open)");
}

// ---- its end ------------------------------------------------------------------------------------
static void close_fd(int *fd) {
    td_auto_close(fd);
    *fd = -1;
}

void td_spawn_rank_signal(struct td_spawn_rank *r, int sig) {
    if (!td_spawn_rank_runs(r)) return;
    r->signalled |= !r->failure;
    (void)kill(r->proc.pid, sig); // not reaped, so the number is still its own
}

void td_spawn_rank_finish(struct td_spawn_rank *r) {
    if (td_spawn_rank_runs(r)) {
        (void)kill(r->proc.pid, SIGKILL);
        while (waitpid(r->proc.pid, NULL, 0) < 0 && errno == EINTR) {}
    }
    r->proc.pid = 0;
    close_fd(&r->proc.pidfd);
    close_fd(&r->results_fd);
    td_result_reader_finish(&r->reader);
    if (r->page) munmap(r->page, td_rank_page_memory());
    r->page = NULL;
    td_status_free(r->failure);
    r->failure = TD_OK;
}

// Consumes s; only the first is kept.
static void note_failure(struct td_spawn_rank *r, td_status s) {
    if (r->failure) {
        td_status_free(s);
        return;
    }
    s = td_status_context(s, "rank %d", r->rank);
    r->failure = td_status_with_meta(s, "rank", "%d", r->rank);
    r->failed_at = td_mono_now();
}

static void take_frame(struct td_spawn_rank *r, const struct td_spawn_group *g) {
    enum td_result_kind kind = r->reader.header.kind;
    if (r->done || r->failure) {
        note_failure(
            r, td_fail(TD_DATA_LOSS, "it wrote a %s after its end", td_result_kind_name(kind)));
    } else if (kind == TD_RESULT_DONE) {
        r->done = true;
        r->done_at = td_mono_now();
    } else if (kind == TD_RESULT_FAILED) {
        td_status said = TD_OK;
        td_status s = td_result_parse_status(r->reader.body.data, r->reader.body.len, &said);
        note_failure(r, s ? s : said);
    } else if (r->rank != 0) {
        note_failure(r, td_fail(TD_DATA_LOSS, "it wrote a %s, which rank 0 alone may",
                                td_result_kind_name(kind)));
    } else {
        td_status s = td_results_collect(g->results, &r->reader, g->dir_fd, g->max_bytes);
        if (s) note_failure(r, s);
    }
    td_result_reader_next(&r->reader);
}

// False: nothing more is there now.
static bool read_one(struct td_spawn_rank *r, const struct td_spawn_group *g) {
    if (r->results_fd < 0) return false;
    enum td_result_read what = TD_RESULT_READ_LATER;
    uint64_t left = g->max_bytes - td_results_held(g->results);
    td_status s = td_result_read(&r->reader, r->results_fd, left, &what);
    if (!s && what == TD_RESULT_READ_LATER) return false;
    if (!s && what == TD_RESULT_READ_FRAME) {
        take_frame(r, g);
        return true;
    }
    // Its end, or nothing after this can be trusted. Where a frame breaks off, how the process
    // ended is the better word for it.
    if (s && r->reader.cut) {
        (void)td_clip(r->cut, sizeof r->cut, "%s", td_status_message(s));
        td_status_free(s);
    } else if (s) {
        note_failure(r, s);
    }
    close_fd(&r->results_fd);
    return false;
}

void td_spawn_rank_read(struct td_spawn_rank *r, const struct td_spawn_group *g) {
    for (int i = 0; i < FRAMES_AT_ONCE && read_one(r, g); i++) {}
}

// Signals of a person or a supervisor are no fault of the program.
static td_status of_signal(const struct td_spawn_rank *r, int sig) {
    char words[sizeof r->page->last_words];
    memcpy(words, r->page->last_words, sizeof words);
    words[sizeof words - 1] = '\0';
    td_utf8_scrub(words);
    bool asked = sig == SIGINT || sig == SIGTERM;
    const char *name = sigabbrev_np(sig);
    td_status s = td_fail(asked ? TD_CANCELLED : TD_ABORTED, "signal %d (SIG%s) ended it%s%s%s",
                          sig, name ? name : "?", r->done ? " after its function returned" : "",
                          *words ? ": " : "", words);
    s = td_status_with_class(s, asked ? TD_CLASS_PREEMPTED : TD_CLASS_INTERNAL);
    s = td_status_with_meta(s, "signal", "%d", sig);
    return *words ? td_status_with_meta(s, "stack", "%s", words) : s;
}

static td_status of_exit(const struct td_spawn_rank *r, int code) {
    if (r->done && code == TD_EXIT_DONE) return TD_OK;
    td_status s = td_fail(TD_ABORTED, "it ended with exit code %d %s", code,
                          r->done ? "after its function returned"
                                  : "before its function returned, and said nothing");
    enum td_class cls = td_exit_code_class(code);
    s = td_status_with_class(s, cls == TD_CLASS_NONE ? TD_CLASS_USER_CODE : cls);
    return td_status_with_meta(s, "exit_code", "%d", code);
}

void td_spawn_rank_reap(struct td_spawn_rank *r, const struct td_spawn_group *g) {
    int status = 0;
    pid_t got = td_spawn_rank_runs(r) ? waitpid(r->proc.pid, &status, WNOHANG) : 0;
    if (got == 0 || (got < 0 && errno == EINTR)) return;
    r->proc.pid = 0;
    close_fd(&r->proc.pidfd);
    while (read_one(r, g)) {} // all that it wrote is in the socket
    close_fd(&r->results_fd);
    td_status s = TD_OK;
    if (got < 0 && !r->done) {
        s = td_fail(TD_ABORTED, "it ended, and somebody else of this program took how: let SIGCHLD "
                                "be at its default, and wait for no children of others");
    } else if (got > 0) {
        s = WIFSIGNALED(status) ? of_signal(r, WTERMSIG(status)) : of_exit(r, WEXITSTATUS(status));
    }
    if (!s && r->cut[0]) s = td_fail(TD_DATA_LOSS, "what it wrote breaks off");
    if (s && r->cut[0]) s = td_status_context(s, "%s", r->cut);
    if (s) note_failure(r, s);
}

void td_spawn_rank_drain_points(struct td_spawn_rank *r) {
    struct td_metric_record point;
    uint32_t asked = td_rank_page_drain_asked(r->page);
    for (int i = 0; i < TD_METRIC_RING_RECORDS && td_ring_pop(&r->ring, &point); i++) {}
    td_rank_page_answer_drain(r->page, asked);
}
