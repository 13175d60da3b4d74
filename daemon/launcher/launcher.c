// See the header. Start order: lock, journal, memory, socket, record, "launched", ranks, ack.
// Whatever fails before the ack is reported there, and what was started is killed with this
// process.

#include "daemon/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "daemon/launcher/boundary.h"
#include "daemon/launcher/command/command.h"
#include "daemon/launcher/command/orphans.h"
#include "daemon/launcher/command/talk.h"
#include "daemon/launcher/ending.h"
#include "daemon/launcher/environment.h"
#include "daemon/launcher/gpus.h"
#include "daemon/launcher/loggers/logger.h"
#include "daemon/launcher/loggers/loggers.h"
#include "daemon/launcher/memory.h"
#include "daemon/launcher/record.h"
#include "daemon/launcher/reports/reports.h"
#include "daemon/launcher/state.h"
#include "daemon/launcher/store_frames.h"
#include "daemon/launcher/watchdog/lost.h"
#include "daemon/launcher/watchdog/watchdog.h"
#include "lib/attempt/segments.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/files/path_rules.h"
#include "lib/base/log.h"
#include "lib/version/version.h"
#include "traind/v1/launcher.pb-c.h"

enum {
    ARENA_BYTES = 1 << 20,
    TICK_MS = 20,
    TICKS_A_LOOK = 5,  // to deadlines and what the daemon receives
    NEWS_A_TICK = 8,   // reports of events at once; further ones wait for the tick
    STOP_GRACE_S = 60, // of stops that nobody gave a grace for
};
enum source {
    SRC_SIGNAL,
    SRC_TIMER,
    SRC_LISTEN,
    SRC_NODE,
    SRC_OUT,
    SRC_ERR,
    SRC_EVENTS,
    SRC_ANSWER,
    SRC_STORE
};

// ---- epoll --------------------------------------------------------------------------------------
static td_status watch(struct td_launcher *l, int fd, enum source source, int32_t idx) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)source << 32 | (uint32_t)idx};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "watch a descriptor");
    }
    return TD_OK;
}

static void flush_node(struct td_launcher *l) {
    bool waits = false;
    if (l->link.node_fd < 0) return;
    td_store_frames_put(&l->store, &l->link);
    if (!td_link_flush(&l->link, &waits)) {
        td_buf_clear(&l->link.out); // gone; what it still said is read before the end is seen
        return;
    }
    if (waits == l->node_writes) return;
    l->node_writes = waits;
    struct epoll_event e = {.events = waits ? EPOLLIN | EPOLLOUT : EPOLLIN,
                            .data.u64 = (uint64_t)SRC_NODE << 32};
    (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, l->link.node_fd, &e);
}

// ---- stopping -----------------------------------------------------------------------------------
static void kill_all(struct td_launcher *l, enum td_launch_kill why) {
    if (l->kill_why == TD_LAUNCH_KILL_NONE) l->kill_why = why;
    l->kill_at.ns = INT64_MAX;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        td_launch_rank_kill(&l->ranks[i]);
    }
}

// The words are said; so long after them whoever is left is killed.
static void give_time(struct td_launcher *l, int mode, int64_t grace_ns, enum td_launch_kill why) {
    struct td_mono now = td_mono_now(), at = td_mono_add(now, grace_ns);
    if (l->command) td_launch_command_stop(l, mode, td_mono_add(now, grace_ns / 2));
    if (at.ns >= l->kill_at.ns) return;
    l->kill_at = at;
    l->kill_due = why;
}

// Ranks leave their collectives, and are killed if they cannot.
static void abort_ranks(struct td_launcher *l, int64_t grace_ns) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        atomic_store(&l->ranks[i].page->abort, 1);
    }
    td_launch_store_end(&l->store);
    give_time(l, TD_STOP_NOW, grace_ns, TD_LAUNCH_KILL_PEER);
}

// Stops only get stronger. A repeated one may bring the deadline nearer.
static void stop(struct td_launcher *l, int mode, int64_t grace_ns, const char *why) {
    static const char *const names[] = {"none", "checkpoint", "now", "kill", "abort"};
    if (td_stop_strength(mode) < 1) return;
    if (td_stop_strength(mode) > td_stop_strength(l->stop_mode)) {
        l->stop_mode = mode;
        struct td_event_writer line;
        td_journal_begin(&l->journal, TD_EVENT_STOP, &line);
        td_event_stop_mode(&line, names[mode]);
        td_event_stop_why(&line, why);
        td_journal_append(&l->journal, &line);
        td_log_info("stop mode=%s why=%s", names[mode], why);
    }
    if (mode == TD_STOP_KILL) {
        kill_all(l, TD_LAUNCH_KILL_FENCED);
        return;
    }
    if (mode == TD_STOP_ABORT) {
        abort_ranks(l, grace_ns);
        return;
    }
    if (l->stop_mode == TD_STOP_ABORT) return; // they are leaving, and agree on nothing any more
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        atomic_store(&l->ranks[i].page->stop, l->stop_mode);
    }
    give_time(l, l->stop_mode, grace_ns, TD_LAUNCH_KILL_GRACE);
}

// The ranks save and go on. One of them is enough, since all agree on it: of several that are asked
// each might see it at another step. Ranks of a command agree on nothing that we know of.
static void save(struct td_launcher *l) {
    td_log_info("asked to save");
    if (td_launcher_talks(l)) {
        td_talk_save(l);
    } else {
        atomic_fetch_add(&l->ranks[0].page->checkpoint_request, 1);
    }
}

// ---- what the daemon receives -------------------------------------------------------------------
static void fill_status(const struct td_launch_rank *r, Traind__V1__RankStatus *out) {
    traind__v1__rank_status__init(out);
    out->rank = (uint32_t)r->rank;
    const struct td_rank_progress progress = td_rank_page_progress(r->page);
    out->phase = (uint32_t)progress.phase;
    out->epoch = (uint32_t)progress.epoch;
    out->step = (uint32_t)progress.step;
    out->total_steps = (uint32_t)progress.total_steps;
    uint32_t bits = atomic_load(&r->page->last_loss_bits);
    memcpy(&out->loss, &bits, sizeof out->loss);
    out->samples_per_s = r->samples_per_s;
    out->metrics_bytes = r->metrics_bytes;
    out->out_bytes = r->out.file_bytes;
    out->err_bytes = r->err.file_bytes;
    out->dropped_bytes = td_launch_rank_dropped_bytes(r);
    out->dropped_points = td_launch_rank_dropped_points(r);
    out->exited = r->exited;
    out->exit_code = r->exit_code;
    out->signal = r->signal;
}

static void send_status(struct td_launcher *l, bool ended) {
    if (!td_link_can_send(&l->link)) return;
    td_arena_reset(l->arena);
    size_t n = (size_t)l->o.n_ranks;
    Traind__V1__RankStatus *ranks = td_arena_array(l->arena, n, sizeof *ranks);
    Traind__V1__RankStatus **list = td_arena_array(l->arena, n, sizeof(void *));
    if (!ranks || !list) return;
    Traind__V1__LauncherStatus m = TRAIND__V1__LAUNCHER_STATUS__INIT;
    m.events_bytes = l->journal.bytes;
    m.ended = ended;
    m.n_ranks = n;
    m.ranks = list;
    for (size_t i = 0; i < n; i++) {
        fill_status(&l->ranks[i], &ranks[i]);
        list[i] = &ranks[i];
    }
    size_t bytes = traind__v1__launcher_status__get_packed_size(&m);
    uint8_t *packed = td_arena_alloc(l->arena, bytes);
    if (!packed) return;
    traind__v1__launcher_status__pack(&m, packed);
    if (bytes == l->last_status.len && memcmp(packed, l->last_status.data, bytes) == 0) return;
    td_buf_clear(&l->last_status);
    td_status_free(td_buf_append(&l->last_status, packed, bytes));
    td_link_send(&l->link, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STATUS, packed, bytes);
    flush_node(l);
}

static void send_hello(struct td_launcher *l) {
    char build[TD_VERSION_BYTES], job[128];
    snprintf(build, sizeof build, "%s", td_version);
    snprintf(job, sizeof job, "%s", l->o.job);
    Traind__V1__LauncherHello m = TRAIND__V1__LAUNCHER_HELLO__INIT;
    m.major = TD_LAUNCHER_MAJOR;
    m.minor = TD_LAUNCHER_MINOR;
    m.build = build;
    m.job = job;
    m.attempt = l->o.attempt;
    m.epoch = l->o.epoch;
    m.pid = (uint32_t)getpid();
    m.n_ranks = (uint32_t)l->o.n_ranks;
    m.first_rank = (uint32_t)l->o.first_rank;
    uint8_t packed[512];
    if (traind__v1__launcher_hello__get_packed_size(&m) > sizeof packed) return;
    size_t bytes = traind__v1__launcher_hello__pack(&m, packed);
    td_link_send(&l->link, TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_HELLO, packed, bytes);
}

static void on_frame(struct td_launcher *l, const struct td_frame *f) {
    if (f->version_major != TD_LAUNCHER_MAJOR) return;
    if (td_store_frames_take(&l->store, f)) return;
    if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_STOP) {
        Traind__V1__LauncherStop *m =
            traind__v1__launcher_stop__unpack(NULL, f->body_bytes, f->body);
        if (!m) return;
        stop(l, (int)m->mode, (int64_t)m->grace_ms * TD_NS_PER_MS, "node");
        traind__v1__launcher_stop__free_unpacked(m, NULL);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_SAVE) {
        save(l);
    } else if (f->type == TRAIND__V1__LAUNCHER_FRAME__LAUNCHER_GPUS) {
        td_launch_gpus_take(l, f->body, f->body_bytes);
    } // LAUNCHER_RELEASE and frames of later minors: nothing to do, a launcher ends by itself
}

static void on_node(struct td_launcher *l) {
    struct td_frame f;
    bool alive = td_link_read(&l->link);
    while (l->link.node_fd >= 0 && td_link_next(&l->link, &f)) {
        on_frame(l, &f);
    }
    if (alive && l->link.node_fd >= 0) {
        flush_node(l);
        return;
    }
    td_link_drop(&l->link);
    l->alone_since = td_mono_now();
}

static void on_connection(struct td_launcher *l) {
    if (!td_link_accept(&l->link)) return;
    td_buf_clear(&l->last_status);
    l->node_writes = false;
    l->alone_since.ns = INT64_MAX;
    td_status s = watch(l, l->link.node_fd, SRC_NODE, 0);
    if (s) {
        td_status_log(TD_LOG_WARN, s, "daemon not connected, continuing");
        td_link_drop(&l->link);
        l->alone_since = td_mono_now();
        return;
    }
    td_launch_store_again(&l->store, true);
    send_hello(l);
    flush_node(l);
    if (td_link_can_send(&l->link)) send_status(l, false);
}

// ---- reaping ------------------------------------------------------------------------------------
static int32_t rank_of_pid(const struct td_launcher *l, pid_t pid) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        if (l->ranks[i].proc.pid == pid && !l->ranks[i].exited) return i;
    }
    return -1;
}

static void reap(struct td_launcher *l) {
    for (siginfo_t info; td_launch_command_find_dead(l, &info);) {
        int32_t idx = rank_of_pid(l, info.si_pid);
        // Whatever a rank started goes with it; its pid is still its own until it is reaped.
        if (idx >= 0) (void)kill(-info.si_pid, SIGKILL);
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
        if (idx < 0) { // the reports child, or a grandchild that we inherited
            (void)td_reports_ended(l, info.si_pid, info.si_code, info.si_status);
            continue;
        }
        bool talks = td_launcher_talks(l);
        if (l->command) td_talk_answer(l, &l->ranks[idx]);
        if (talks) td_talk_end(l, &l->ranks[idx]);
        td_launch_rank_ended(&l->ranks[idx], talks ? NULL : &l->journal, info.si_code,
                             info.si_status);
        td_launcher_note_boundary(l, idx, td_rank_page_boundary(l->ranks[idx].page));
        l->n_exited++;
        if (!td_launcher_note_exit(l, idx)) continue;
        abort_ranks(l, TD_ABORT_GRACE_MS * TD_NS_PER_MS);
        l->news = true; // ranks on other nodes end by it
    }
}

static void on_signal(struct td_launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
            stop(l, TD_STOP_CHECKPOINT, STOP_GRACE_S * TD_NS_PER_S, "signal");
        } else if (info.ssi_signo == SIGUSR1) {
            save(l);
        }
    }
    reap(l);
}

static void look(struct td_launcher *l) {
    struct td_mono now = td_mono_now();
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        td_launch_rank_look(&l->ranks[i], now);
    }
    td_journal_flush(&l->journal);
    if (td_launcher_find_lost(l)) kill_all(l, TD_LAUNCH_KILL_LOST);
    td_watchdog_look(l, now);
    td_kills_look(&l->kills, now);
    td_logging_look(l);
    if (now.ns >= l->term_at.ns) td_launch_command_terminate(l);
    if (now.ns >= l->kill_at.ns) kill_all(l, l->kill_due);
    if (l->alone_since.ns != INT64_MAX && l->stop_mode == TD_STOP_NONE &&
        now.ns - l->alone_since.ns >= l->o.orphan_timeout_ns) {
        stop(l, TD_STOP_CHECKPOINT, STOP_GRACE_S * TD_NS_PER_S, "orphan");
    }
    send_status(l, false);
}

// What ranks said, to a daemon that may wait for it.
static void report_news(struct td_launcher *l) {
    l->news = false;
    l->n_reported++;
    send_status(l, false);
}

static void on_tick(struct td_launcher *l) {
    uint64_t passed;
    if (read(l->timer_fd, &passed, sizeof passed) != (ssize_t)sizeof passed) return;
    td_reports_look(l);
    if (td_launcher_talks(l)) td_talk_look(l);
    td_launcher_drain_metrics(l);
    l->n_reported = 0;
    if (l->news) report_news(l);
    l->n_ticks += (uint32_t)passed;
    if (l->n_ticks < TICKS_A_LOOK) return;
    l->n_ticks = 0;
    look(l);
}

static void dispatch(struct td_launcher *l, const struct epoll_event *e) {
    enum source source = (enum source)(e->data.u64 >> 32);
    struct td_launch_rank *r = &l->ranks[(uint32_t)e->data.u64];
    switch (source) {
    case SRC_SIGNAL:
        on_signal(l);
        return;
    case SRC_TIMER:
        on_tick(l);
        return;
    case SRC_LISTEN:
        on_connection(l);
        return;
    case SRC_NODE:
        if (l->link.node_fd >= 0) on_node(l);
        return;
    case SRC_OUT:
        td_launch_rank_drain_out(r);
        return;
    case SRC_ERR:
        td_launch_rank_drain_err(r);
        return;
    case SRC_EVENTS:
        if (td_launcher_talks(l)) {
            td_talk_drain(l, r);
        } else {
            td_launch_rank_drain_events(r, &l->journal);
        }
        l->news = true;
        return;
    case SRC_STORE:
        (void)td_launch_store_drain(&l->store, (int32_t)(uint32_t)e->data.u64);
        flush_node(l);
        return;
    case SRC_ANSWER:
        td_talk_answer(l, r);
        l->news = true;
        return;
    }
}

// ---- start --------------------------------------------------------------------------------------
static td_status lock_dir(struct td_launcher *l) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", l->o.dir, TD_SEGMENT_LOCK);
    return td_fs_lock(path, "traind-launcher", &l->lock_fd);
}

static td_status make_loop(struct td_launcher *l) {
    // A rank takes nine descriptors here; without them many fail to start, and say so.
    td_status_free(td_proc_raise_files());
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return td_fail_errno(TD_INTERNAL, "mask signals");
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct timespec every = {.tv_nsec = TICK_MS * TD_NS_PER_MS};
    struct itimerspec tick = {every, every};
    if (l->epoll_fd < 0 || l->signal_fd < 0 || l->timer_fd < 0 ||
        timerfd_settime(l->timer_fd, 0, &tick, NULL) != 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "set up the launcher's loop");
    }
    TD_TRY(watch(l, l->signal_fd, SRC_SIGNAL, 0));
    return watch(l, l->timer_fd, SRC_TIMER, 0);
}

static td_status start_ranks(struct td_launcher *l) {
    td_arena_reset(l->arena);
    const char *const *env = td_environment_build(l->arena, (const char *const *)environ,
                                                  l->o.threads, l->o.shared_cores, l->o.gpus);
    if (!env) return td_fail_oom();
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        struct td_launch_rank *r = &l->ranks[i];
        TD_AUTO_CLOSE int store_fd = -1;
        if (l->store.n_ranks) TD_TRY(td_launch_store_connect(&l->store, i, &store_fd));
        const struct td_launch_shared shared = {.group_fd = l->group_fd, .store_fd = store_fd};
        TD_TRY(l->command ? td_launch_command_start(l->command, r, i, &l->o, l->self, &shared)
                          : td_launch_rank_start(r, i, &l->o, l->self, env, &shared));
        if (store_fd >= 0) TD_TRY(watch(l, l->store.calls[i].fd, SRC_STORE, i));
        if (l->command) TD_TRY(watch(l, r->answer_fd, SRC_ANSWER, i));
        TD_TRY(watch(l, r->out.pipe_fd, SRC_OUT, i));
        TD_TRY(watch(l, r->err.pipe_fd, SRC_ERR, i));
        TD_TRY(watch(l, r->events_fd, SRC_EVENTS, i));
    }
    return TD_OK;
}

static td_status start(struct td_launcher *l) {
    char dir[3900];
    TD_TRY(td_proc_self_dir(dir, sizeof dir));
    snprintf(l->self, sizeof l->self, "%s/traind-launcher", dir);
    TD_TRY(td_proc_boot_id(l->boot_id));
    TD_TRY(td_proc_start_ticks(getpid(), &l->start_ticks));
    td_kills_begin(&l->kills, "", td_mono_now());
    TD_TRY(lock_dir(l));
    TD_TRY(td_arena_create(ARENA_BYTES, &l->arena));
    TD_TRY(td_journal_init(&l->journal, l->o.dir));
    TD_TRY(make_loop(l));
    TD_TRY(td_launcher_make_memory(l));
    TD_TRY(td_link_init(&l->link, l->o.socket));
    TD_TRY(watch(l, l->link.listen_fd, SRC_LISTEN, 0));
    TD_TRY(td_launcher_write_record(l));
    td_launcher_note_launched(l);
    if (l->o.world_size > 1 && !td_launcher_talks(l)) {
        TD_TRY(td_launch_store_init(&l->store, l->o.n_ranks, l->o.n_ranks == l->o.world_size));
    }
    if (l->o.kind != TD_KIND_TRAIN) TD_TRY(td_launch_command_create(&l->o, &l->command));
    if (l->command) TD_TRY(td_reports_prepare(l));
    TD_TRY(start_ranks(l));
    td_reports_start(l);
    td_logging_start(l); // after the ranks: a thread that is there is nobody's to inherit
    return td_launcher_fill_group(l);
}

// ---- the whole ----------------------------------------------------------------------------------
static void run(struct td_launcher *l) {
    while (l->n_exited < l->o.n_ranks) {
        struct epoll_event events[32];
        int n = epoll_wait(l->epoll_fd, events, TD_COUNTOF(events), -1);
        for (int i = 0; i < n; i++) {
            dispatch(l, &events[i]);
        }
        if (l->news && l->n_reported < NEWS_A_TICK) report_news(l);
    }
    td_reports_end(l);
    td_orphans_end(l->signal_fd);
    td_logging_end(l);
    td_launcher_note_end(l);
    td_buf_clear(&l->link.out); // a status that waits is superseded by the last one
    send_status(l, true);
}

static void finish(struct td_launcher *l) {
    td_link_finish(&l->link);
    td_launch_store_finish(&l->store);
    td_launch_gpus_destroy(l->gpus);
    for (int32_t i = 0; l->ranks && i < l->o.n_ranks; i++) {
        td_launch_rank_kill(&l->ranks[i]);
        td_launch_rank_finish(&l->ranks[i]);
    }
    free(l->ranks);
    td_reports_destroy(l->reports);
    td_logger_destroy(l->logger);
    td_launch_command_destroy(l->command);
    td_journal_finish(&l->journal);
    td_buf_finish(&l->last_status);
    td_arena_destroy(l->arena);
    int *fds[] = {&l->group_fd, &l->timer_fd, &l->signal_fd, &l->epoll_fd, &l->lock_fd};
    for (size_t i = 0; i < TD_COUNTOF(fds); i++) {
        td_auto_close(fds[i]);
    }
}

// One line on the ack descriptor, then it is closed. A reader that is gone does not matter.
static void acknowledge(int fd, td_status s) {
    if (fd < 0) return;
    TD_AUTO_BUF line;
    td_buf_init(&line, 16 << 10);
    const char *message = td_status_message(s);
    td_status e = s ? td_buf_printf(&line, "{\"code\":%d,\"class\":\"%s\",\"message\":",
                                    (int)td_status_code(s), td_class_name(td_status_class(s)))
                    : td_buf_str(&line, "{\"ready\":true");
    if (!e && s) e = td_json_print_string(message, strlen(message), &line);
    if (!e) e = td_buf_str(&line, "}\n");
    if (!e) e = td_fd_write_all(fd, line.data, line.len, "ack");
    td_status_free(e);
    close(fd);
}

int td_launcher_main(int argc, char **argv) {
    struct td_launcher l = {.lock_fd = -1,
                            .epoll_fd = -1,
                            .signal_fd = -1,
                            .timer_fd = -1,
                            .group_fd = -1,
                            .link = {.listen_fd = -1, .node_fd = -1},
                            .journal = {.fd = -1},
                            .first_failed = -1,
                            .blamed = -1,
                            .kill_at = {INT64_MAX},
                            .term_at = {INT64_MAX},
                            .o.ack_fd = -1};
    td_buf_init(&l.last_status, TD_FRAME_MAX);
    td_status s = td_launch_options_parse(argc, argv, &l.o);
    if (!s && l.o.path_rules[0]) s = td_path_rules_take(l.o.path_rules);
    if (!s) {
        char attempt[16];
        snprintf(attempt, sizeof attempt, "%u", l.o.attempt);
        td_log_context("job", l.o.job);
        td_log_context("attempt", attempt);
        l.alone_since = td_mono_now();
        // For the ranks, which inherit it. What this process makes itself is 0600 and 0700.
        if (l.o.umask >= 0) (void)umask((mode_t)l.o.umask);
        s = start(&l);
    }
    acknowledge(l.o.ack_fd, s);
    bool ok = !s;
    if (ok) {
        td_log_info("launched ranks=%d first=%d world=%d", l.o.n_ranks, l.o.first_rank,
                    l.o.world_size);
        run(&l);
    } else {
        td_status_log(TD_LOG_ERROR, s, "attempt not started");
    }
    finish(&l);
    return ok ? 0 : 1;
}
