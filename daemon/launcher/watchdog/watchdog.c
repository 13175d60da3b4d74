// See the header.

#include "daemon/launcher/watchdog/watchdog.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#include "daemon/launcher/state.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/log.h"

enum { STATUS_MAX = 16 << 10 };

// ---- the process --------------------------------------------------------------------------------
// The value of "Name:\t..." in /proc/<pid>/status; "" when it cannot be read.
static void status_of(const struct td_launch_rank *r, const char *name, char *out, size_t bytes) {
    char path[64];
    TD_AUTO_BUF text;
    td_buf_init(&text, STATUS_MAX);
    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/status", (int)r->proc.pid);
    td_status s = td_fs_read(path, STATUS_MAX, &text);
    const char *line = s ? NULL : strstr(td_buf_cstr(&text), name);
    td_status_free(s);
    if (!line) return;
    line += strlen(name);
    line += strspn(line, " \t");
    snprintf(out, bytes, "%.*s", (int)strcspn(line, "\n"), line);
}

static bool is_stopped(const struct td_launch_rank *r) {
    char state[64];
    status_of(r, "\nState:", state, sizeof state);
    return state[0] == 'T' || state[0] == 't';
}

// One without a handler would die of the question.
static bool has_handler(const struct td_launch_rank *r) {
    char caught[32];
    status_of(r, "\nSigCgt:", caught, sizeof caught);
    return (strtoull(caught, NULL, 16) >> (SIGQUIT - 1)) & 1;
}

static void ask_stacks(struct td_launcher *l) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        const struct td_launch_rank *r = &l->ranks[i];
        if (!td_launch_rank_runs(r) || r->proc.pidfd < 0 || !has_handler(r)) continue;
        (void)pidfd_send_signal(r->proc.pidfd, SIGQUIT, NULL, 0);
    }
}

// ---- whom to blame ------------------------------------------------------------------------------
static bool is_worse(const struct td_launch_rank *a, const struct td_launch_rank *b) {
    bool stopped = is_stopped(a);
    if (stopped != is_stopped(b)) return stopped;
    const int64_t entered_a = td_rank_page_progress(a->page).collective_seq;
    const int64_t entered_b = td_rank_page_progress(b->page).collective_seq;
    if (entered_a != entered_b) return entered_a < entered_b;
    return a->silence.last.heartbeat_ns < b->silence.last.heartbeat_ns;
}

// What is the submitter's own need not beat until it has begun to.
static bool owes_beats(const struct td_launcher *l, const struct td_launch_rank *r) {
    if (!l->command) return true;
    return td_launcher_talks(l) ? r->speaks : td_rank_page_progress(r->page).heartbeat_ns != 0;
}

static int32_t find_worst(const struct td_launcher *l, const struct td_silence_limits *limits,
                          struct td_mono now) {
    int32_t worst = -1;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        const struct td_silence *s = &l->ranks[i].silence;
        bool quiet = now.ns - s->moved.ns >= td_silence_limit_ns(s, limits) / 2;
        if (!quiet || !td_launch_rank_runs(&l->ranks[i])) continue;
        if (!owes_beats(l, &l->ranks[i])) continue;
        if (worst < 0 || is_worse(&l->ranks[i], &l->ranks[worst])) worst = i;
    }
    return worst;
}

// Who waits for whom: a launcher sees the ranks of its own node alone.
static const char *who_waits(const struct td_launcher *l, bool stopped) {
    if (l->o.world_size == 1) return "";
    if (stopped || l->o.n_ranks == l->o.world_size) return "; the other ranks wait for it";
    return "; it may wait for a rank of another node";
}

// The one to blame may have been quiet for less than its limit: it was the wait of another that was
// too long. Its next beat ends the silence all the same.
static void say_silent(struct td_launcher *l, struct td_mono now) {
    struct td_launch_rank *r = &l->ranks[l->blamed];
    const bool stopped = is_stopped(r);
    const char *detail = td_rank_phase_detail(r->silence.last.phase);
    char since[32];
    if (!r->silence.since.ns) r->silence.since = now;
    struct td_real at = {td_real_now().ns - (now.ns - r->silence.moved.ns)};
    td_real_format(at, since, sizeof since);
    snprintf(l->silent, sizeof l->silent,
             "rank %d is silent since %s, step %" PRId64 ", %s%s%s%s%s", r->rank, since,
             r->silence.last.step, td_rank_phase_name(r->silence.last.phase), *detail ? " " : "",
             detail, stopped ? "; its process is stopped, by a signal or a debugger" : "",
             who_waits(l, stopped));
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_SILENT, &line);
    td_event_rank(&line, r->rank);
    td_event_silent_step(&line, r->silence.last.step);
    td_event_silent_text(&line, l->silent);
    td_journal_append(&l->journal, &line);
    td_log_warn("%s, continuing", l->silent);
}

static void say_beats(struct td_launcher *l) {
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_BEATS, &line);
    td_event_rank(&line, l->ranks[l->blamed].rank);
    td_journal_append(&l->journal, &line);
    td_log_info("rank beats again rank=%d", l->ranks[l->blamed].rank);
    l->blamed = -1;
    bool pending = l->kill_due == TD_LAUNCH_KILL_STUCK && l->kill_why == TD_LAUNCH_KILL_NONE;
    if (pending && l->stop_mode == TD_STOP_NONE && l->n_exited == 0) {
        l->kill_at.ns = INT64_MAX; // it came back while the stacks were written
        l->kill_due = TD_LAUNCH_KILL_NONE;
    }
}

static void give_up(struct td_launcher *l, struct td_mono now) {
    struct td_launch_rank *r = &l->ranks[l->blamed];
    struct td_mono at = td_mono_add(now, TD_WATCHDOG_STACKS_S * TD_NS_PER_S);
    if (l->kill_at.ns != INT64_MAX) return; // a stop, or the end of a peer, has its own time
    td_log_error("%s; its attempt ends", l->silent);
    r->stuck = true;
    l->kill_at = at;
    l->kill_due = TD_LAUNCH_KILL_STUCK;
    ask_stacks(l);
}

void td_watchdog_look(struct td_launcher *l, struct td_mono now) {
    const struct td_silence_limits limits = {.floor_ns = l->o.silent_after_ns,
                                             .start_ns = TD_WATCHDOG_START_S * TD_NS_PER_S,
                                             .stuck_ns = l->o.stuck_timeout_ns};
    bool began = false, stuck = false;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        struct td_launch_rank *r = &l->ranks[i];
        if (!td_launch_rank_runs(r) || !owes_beats(l, r)) continue;
        const struct td_rank_progress progress = td_rank_page_progress(r->page);
        const struct td_silence_page page = {.heartbeat_ns = progress.heartbeat_ns,
                                             .step = progress.step,
                                             .samples = progress.samples,
                                             .phase = progress.phase};
        enum td_silence_change change = td_silence_look(&r->silence, &limits, now, &page);
        if (change == TD_SILENCE_ENDED && i == l->blamed) say_beats(l);
        began = began || r->silence.since.ns != 0;
        stuck = stuck || (change == TD_SILENCE_STUCK && i == l->blamed);
    }
    if (l->blamed >= 0 && !td_launch_rank_runs(&l->ranks[l->blamed])) l->blamed = -1;
    if (began && l->blamed < 0 && (l->blamed = find_worst(l, &limits, now)) >= 0) {
        say_silent(l, now);
    }
    if (stuck && l->blamed >= 0) give_up(l, now);
}
