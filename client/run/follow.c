// What a coordinator and a follower would make of the attempt, in one loop. Its events become notes
// and an end, the launcher's reports the progress line, points their file and epoch lines. The end
// is read from the files, after the launcher is gone.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/run/points.h"
#include "client/run/run.h"
#include "client/screen/format.h"
#include "client/screen/print.h"
#include "lib/attempt/events.h"
#include "lib/attempt/outcome.h"
#include "lib/attempt/rank_page.h"
#include "lib/attempt/segments.h"
#include "lib/base/frame.h"
#include "lib/base/utf8.h"
#include "traind/v1/launcher.pb-c.h"

enum { TICK_MS = 100, NOTES_MAX = 64, TEXT_MAX = 1024, TAIL_MAX = 2048, STOP_GRACE_MS = 60000 };

struct following {
    struct td_local_run *run;
    struct td_progress_line progress;
    struct td_run_points points;
    struct td_frame_reader frames;
    int events_fd;
    struct td_buf events;
    struct td_arena *line; // of one event
    Traind__V1__Job job;
    Traind__V1__Progress now;
    Traind__V1__Reason reason;
    char *notes[NOTES_MAX];
    bool staged; // it has begun to work: what it resumed from is known
    int n_stops;
    char checkpoint[TD_FS_PATH_BYTES];
    int64_t step;
    enum td_outcome outcome; // NONE: the launcher did not say
    char cls[32], message[TEXT_MAX];
    int failed_rank;
};

// ---- events -------------------------------------------------------------------------------------
static void note(struct following *f, const char *text) {
    for (size_t i = 0; i < f->job.n_notes; i++) {
        if (strcmp(f->notes[i], text) == 0) return;
    }
    if (f->job.n_notes == NOTES_MAX) return;
    f->notes[f->job.n_notes] = td_strdup(text);
    if (f->notes[f->job.n_notes]) f->job.n_notes++;
}

static td_status on_note(struct following *f, const struct td_event *e) {
    note(f, e->note.text);
    return TD_OK;
}

// Why it is not exact is in notes of its own.
static td_status on_resumed(struct following *f, const struct td_event *e) {
    f->step = e->resumed.step;
    return TD_OK;
}

static td_status on_skipped_checkpoint(struct following *f, const struct td_event *e) {
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "checkpoint %s was skipped: %s", e->skipped_checkpoint.path,
             e->skipped_checkpoint.reason);
    note(f, text);
    return TD_OK;
}

static td_status on_stage(struct following *f, const struct td_event *e) {
    (void)e;
    if (f->staged) return TD_OK;
    f->staged = true;
    return f->run->resume ? td_run_points_cut(&f->points, f->run->dir, f->step) : TD_OK;
}

static td_status on_checkpoint(struct following *f, const struct td_event *e) {
    snprintf(f->checkpoint, sizeof f->checkpoint, "%s", e->checkpoint.directory);
    return TD_OK;
}

static td_status on_rank_exit(struct following *f, const struct td_event *e) {
    f->step = TD_MAX(f->step, e->rank_exit.step);
    return TD_OK;
}

static td_status on_launcher_end(struct following *f, const struct td_event *e) {
    f->outcome = td_outcome_parse(e->launcher_end.outcome);
    snprintf(f->cls, sizeof f->cls, "%s", e->launcher_end.class);
    snprintf(f->message, sizeof f->message, "%s", e->launcher_end.message);
    f->failed_rank = (int)e->rank;
    return TD_OK;
}

// A handler for each row that traind-run reads.
static td_status (*const handlers[TD_EVENT_COUNT])(struct following *f,
                                                   const struct td_event *e) = {
#define READ_BY_RANK(event)
#define READ_BY_LAUNCHER(event)
#define READ_BY_NODE(event)
#define READ_BY_COORDINATOR(event)
#define READ_BY_RUN(event) [TD_EVENT_OF(event)] = on_##event,
#define READ_BY_PEOPLE(event)
#define TD_READER(event, party) READ_BY_##party(event)
#include "lib/attempt/events.def"
};

static td_status read_events(struct following *f) {
    char chunk[16384];
    for (ssize_t n; (n = read(f->events_fd, chunk, sizeof chunk)) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return td_fail_errno(TD_DATA_LOSS, "read the attempt's events");
        TD_TRY(td_buf_append(&f->events, chunk, (size_t)n));
        const char *end;
        while (f->events.len && (end = memchr(f->events.data, '\n', f->events.len))) {
            size_t bytes = (size_t)(end - f->events.data);
            struct td_event e = {0}; // a line that fits no row is passed over
            td_arena_reset(f->line);
            td_status_free(td_event_parse(f->line, f->events.data, bytes, &e));
            if (handlers[e.kind]) TD_TRY(handlers[e.kind](f, &e));
            td_buf_consume(&f->events, bytes + 1);
        }
    }
    return TD_OK;
}

// ---- the launcher's reports ---------------------------------------------------------------------
static void on_status(struct following *f, const Traind__V1__LauncherStatus *m) {
    double rate = 0;
    for (size_t i = 0; i < m->n_ranks; i++) {
        rate += m->ranks[i]->samples_per_s;
    }
    if (!m->n_ranks) return;
    const Traind__V1__RankStatus *r = m->ranks[0];
    f->now.phase = td_unconst(td_rank_phase_name(r->phase));
    f->now.detail = td_unconst(td_rank_phase_detail(r->phase));
    f->now.epoch = r->epoch;
    if (f->now.step && r->step > f->now.step) f->step = TD_MAX(f->step, (int64_t)r->step);
    f->now.step = r->step;
    f->now.total_steps = r->total_steps ? r->total_steps : f->run->total_steps;
    f->now.loss = r->loss;
    f->now.samples_per_s = rate;
    double a_step = (double)f->run->spec.loader.batch_size * f->run->n_ranks *
                    (double)f->run->spec.trainer.limits.accumulate[0].batches;
    double left = f->now.total_steps > r->step ? f->now.total_steps - r->step : 0;
    f->now.eta_s = rate > 0 ? left * a_step / rate : 0;
}

static void read_link(struct following *f) {
    char bytes[16384];
    ssize_t n = recv(f->run->link_fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    td_status s = n > 0 ? td_frame_reader_feed(&f->frames, bytes, (size_t)n) : TD_OK;
    bool have = n > 0;
    while (!s && have) {
        struct td_frame frame;
        s = td_frame_reader_next(&f->frames, &frame, &have);
        if (s || !have || frame.type != TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STATUS) continue;
        Traind__V1__LauncherStatus *m =
            traind__v1__launcher_status__unpack(NULL, frame.body_bytes, frame.body);
        if (!m) continue;
        on_status(f, m);
        traind__v1__launcher_status__free_unpacked(m, NULL);
    }
    if (n > 0 && !s) return;
    td_status_free(s);
    td_auto_close(&f->run->link_fd);
    f->run->link_fd = -1;
}

// ---- signals
// -------------------------------------------------------------------------------------
static void on_signal(struct following *f) {
    static const struct {
        int mode;
        uint32_t grace_ms;
        const char *words;
    } stops[] = {
        {TD_STOP_CHECKPOINT, STOP_GRACE_MS,
         "stopping with a checkpoint; Ctrl-C again stops without one"},
        {TD_STOP_NOW, 10000, "stopping without a checkpoint; Ctrl-C again kills the ranks"},
        {TD_STOP_KILL, 0, "killing the ranks"},
    };
    for (int sig; (sig = td_local_run_next_signal(f->run)) != 0;) {
        if (sig == SIGUSR1) {
            td_progress_line_end(&f->progress);
            td_print(stderr, "saving, and going on: SIGUSR1\n");
            td_local_run_save(f->run);
            continue;
        }
        int i = TD_MIN(f->n_stops, (int)TD_COUNTOF(stops) - 1);
        f->n_stops++;
        td_progress_line_end(&f->progress);
        td_print(stderr, "%s\n", stops[i].words);
        td_local_run_stop(f->run, stops[i].mode, stops[i].grace_ms);
    }
}

// ---- the end ------------------------------------------------------------------------------------
// The last lines that the rank wrote to stderr.
static void show_last_words(const struct following *f) {
    char path[TD_FS_PATH_BYTES], tail[TAIL_MAX + 1];
    int rank = TD_MAX(f->failed_rank, 0);
    snprintf(path, sizeof path, "%.4000s/" TD_SEGMENT_ERR, f->run->log_dir, (unsigned)rank);
    TD_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = size > 0 ? pread(fd, tail, TAIL_MAX, TD_MAX(size - TAIL_MAX, 0)) : 0;
    if (n <= 0) return;
    tail[n] = '\0';
    td_utf8_scrub(tail);
    const char *at = size > TAIL_MAX && strchr(tail, '\n') ? strchr(tail, '\n') + 1 : tail;
    td_print(stderr, "the last words of rank %d (%s):\n%s", rank, path, at);
}

// A word of a command line: in quotes where a shell would read something else in it.
static void print_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@^_";
    if (*word && !word[strspn(word, plain)]) {
        td_print(stdout, " %s", word);
        return;
    }
    td_print(stdout, " '");
    for (size_t n; n = strcspn(word, "'"), word[n]; word += n + 1) {
        td_print(stdout, "%.*s'\\''", (int)n, word);
    }
    td_print(stdout, "%s'", word);
}

// What goes on in the same folder, with the same job.
static void print_resume(const struct td_local_run *r) {
    td_print(stdout, "go on with `trainctl run");
    print_word(r->file);
    for (size_t i = 0; i < r->n_sets; i++) {
        td_print(stdout, " --set");
        print_word(r->sets[i]);
    }
    if (r->out_path) {
        td_print(stdout, " --output-path");
        print_word(r->out_path);
    }
    td_print(stdout, " --resume`\n");
}

static bool conclude(struct following *f) {
    bool done = f->outcome == TD_OUTCOME_DONE, stopped = f->outcome == TD_OUTCOME_STOPPED;
    struct td_local_run *r = f->run;
    td_progress_line_end(&f->progress);
    if (!done && !stopped) show_last_words(f);
    td_print(stdout, "%s %s: step %lld, attempt %d\n", r->spec.name,
             done      ? "SUCCEEDED"
             : stopped ? "STOPPED"
                       : "FAILED",
             (long long)f->step, r->attempt);
    for (size_t i = 0; i < f->points.n_last; i++) {
        char text[TD_FORMAT_VALUE_BYTES];
        td_print(stdout, TD_END_LINE "%s\n", f->points.last[i].name,
                 td_format_value(f->points.last[i].value, text));
    }
    if (f->checkpoint[0]) td_print(stdout, TD_END_LINE "%s\n", "checkpoint", f->checkpoint);
    if (done) return true;
    if (!stopped) {
        td_print(stdout, TD_END_LINE "%s\n" TD_END_LINE "%s\n", "class",
                 f->cls[0] ? f->cls : "internal", "error",
                 f->message[0] ? f->message : "the launcher was killed, and its ranks with it");
    }
    print_resume(r);
    return false;
}

// ---- the loop -----------------------------------------------------------------------------------
static td_status look(struct following *f, bool over) {
    TD_TRY(read_events(f));
    if (f->staged || over) TD_TRY(td_run_points_read(&f->points, over));
    f->job.state = f->n_stops  ? TRAIND__V1__JOB__STATE__STOPPING
                   : f->staged ? TRAIND__V1__JOB__STATE__RUNNING
                               : TRAIND__V1__JOB__STATE__STARTING;
    td_progress_line_show(&f->progress, &f->job);
    return TD_OK;
}

static td_status loop(struct following *f) {
    struct td_local_run *r = f->run;
    for (;;) {
        struct pollfd fds[] = {{r->launcher.pidfd, POLLIN, 0},
                               {r->signal_fd, POLLIN, 0},
                               {r->link_fd, POLLIN, 0}}; // -1 is left out
        (void)poll(fds, TD_COUNTOF(fds), TICK_MS);
        if (fds[1].revents) on_signal(f);
        if (fds[2].revents) read_link(f);
        bool over = fds[0].revents != 0;
        TD_TRY(look(f, over));
        if (over) return TD_OK;
    }
}

static td_status open_all(struct following *f) {
    struct td_local_run *r = f->run;
    char path[TD_FS_PATH_BYTES];
    td_progress_line_init(&f->progress, td_local_run_is_dumb(), false);
    TD_TRY(td_fs_path(path, "%s/%s", r->log_dir, TD_SEGMENT_EVENTS));
    f->events_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->events_fd < 0) return td_fs_fail("open", path);
    TD_TRY(td_arena_create(1 << 20, &f->line));
    return td_run_points_open(&f->points, r->dir, r->log_dir, r->n_ranks, &f->progress);
}

td_status td_local_run_follow(struct td_local_run *r, int *out_exit) {
    struct following f = {.run = r, .events_fd = -1, .failed_rank = -1, .points.fd = -1};
    traind__v1__job__init(&f.job);
    traind__v1__progress__init(&f.now);
    traind__v1__reason__init(&f.reason);
    f.now.phase = (char[]){"starting"};
    f.job.progress = &f.now;
    f.job.reason = &f.reason;
    f.job.notes = f.notes;
    f.job.attempt = (uint32_t)r->attempt;
    if (r->precision_note[0]) note(&f, r->precision_note);
    td_buf_init(&f.events, (size_t)2 * TD_SEGMENT_LINE_MAX + 16384);
    td_frame_reader_init(&f.frames);
    td_status s = open_all(&f);
    if (!s) s = loop(&f);
    td_progress_line_end(&f.progress);
    if (!s) *out_exit = conclude(&f) ? TD_CTL_OK : TD_CTL_JOB_FAILED;
    for (size_t i = 0; i < f.job.n_notes; i++) {
        free(f.notes[i]);
    }
    td_run_points_close(&f.points);
    td_frame_reader_finish(&f.frames);
    td_buf_finish(&f.events);
    td_arena_destroy(f.line);
    td_auto_close(&f.events_fd);
    return s;
}
