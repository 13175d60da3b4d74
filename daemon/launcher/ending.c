// See the header. Death of a rank is this record; nothing else in the system decides it.

#include "daemon/launcher/ending.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/launcher/command/command.h"
#include "lib/attempt/outcome.h"
#include "lib/attempt/exit_codes.h"
#include "lib/base/log.h"

// The wire code for a class where the rank gave none.
static enum td_code code_of(enum td_class cls) {
    switch (cls) {
    case TD_CLASS_NONE:
        return TD_CODE_OK;
    case TD_CLASS_BAD_SPEC:
        return TD_INVALID_ARGUMENT;
    case TD_CLASS_DATA:
        return TD_DATA_LOSS;
    case TD_CLASS_OUT_OF_MEMORY:
    case TD_CLASS_DISK:
        return TD_RESOURCE_EXHAUSTED;
    case TD_CLASS_COLLECTIVE:
    case TD_CLASS_PREEMPTED:
    case TD_CLASS_KILLED:
        return TD_ABORTED;
    case TD_CLASS_STUCK:
        return TD_DEADLINE_EXCEEDED;
    case TD_CLASS_DEVICE:
    case TD_CLASS_NODE_LOST:
        return TD_UNAVAILABLE;
    case TD_CLASS_NUMERIC:
    case TD_CLASS_USER_CODE:
        return TD_FAILED_PRECONDITION;
    case TD_CLASS_INTERNAL:
    case TD_CLASS_COUNT:
        break;
    }
    return TD_INTERNAL;
}

static void say(struct td_rank_ending *out, enum td_class cls, const char *code) {
    out->cls = cls;
    snprintf(out->code, sizeof out->code, "%s",
             cls == TD_CLASS_NONE ? "" : (code && code[0] ? code : td_code_name(code_of(cls))));
}

static void killed(const struct td_launch_rank *r, enum td_launch_kill why, const char *because,
                   struct td_rank_ending *out) {
    switch (why) {
    case TD_LAUNCH_KILL_GRACE:
        say(out, TD_CLASS_STUCK, NULL);
        snprintf(out->message, sizeof out->message,
                 "rank %d did not reach an agreed stop in time and was killed", r->rank);
        return;
    case TD_LAUNCH_KILL_PEER:
        say(out, TD_CLASS_COLLECTIVE, NULL);
        snprintf(out->message, sizeof out->message, "rank %d was killed after a peer failed",
                 r->rank);
        return;
    case TD_LAUNCH_KILL_FENCED:
        say(out, TD_CLASS_PREEMPTED, NULL);
        snprintf(out->message, sizeof out->message, "rank %d was killed as asked", r->rank);
        return;
    case TD_LAUNCH_KILL_LOST:
        say(out, TD_CLASS_INTERNAL, td_code_name(TD_DATA_LOSS));
        snprintf(out->message, sizeof out->message,
                 "%s, so rank %d was killed: nobody else may change the files of an attempt that "
                 "runs",
                 because, r->rank);
        return;
    case TD_LAUNCH_KILL_STUCK:
        say(out, r->stuck ? TD_CLASS_STUCK : TD_CLASS_COLLECTIVE, NULL);
        snprintf(out->message, sizeof out->message,
                 r->stuck ? "%s: silent for restart.stuck_timeout, so it was killed; the stacks of "
                            "ranks that could answer are in their logs"
                          : "%s, and this rank was killed with it",
                 because);
        return;
    case TD_LAUNCH_KILL_NONE:
        break;
    }
    say(out, r->killed.cls, NULL);
    snprintf(out->message, sizeof out->message, "rank %d was killed by %s", r->rank,
             r->killed.text);
}

// What the rank's fatal handler left in the page: any bytes, perhaps without an end.
static void last_words(const struct td_launch_rank *r, char *out, size_t out_bytes) {
    size_t n = strnlen(r->page->last_words, sizeof r->page->last_words);
    n = TD_MIN(n, out_bytes - 1);
    memcpy(out, r->page->last_words, n);
    out[n] = '\0';
}

static void died(const struct td_launch_rank *r, struct td_rank_ending *out) {
    const struct td_rank_page *p = r->page;
    const char *name = sigabbrev_np(r->signal);
    if (r->signal == SIGBUS && p->lost_data[0]) {
        say(out, TD_CLASS_DATA, NULL);
        snprintf(out->message, sizeof out->message,
                 "rank %d could not read '%.*s' offset %lld any more: the file was cut short while "
                 "the job ran, or its disk fails; copy it again",
                 r->rank, (int)sizeof p->lost_data, p->lost_data, (long long)p->lost_offset);
        return;
    }
    if (!name) name = "?";
    if (p->plugin[0]) {
        say(out, TD_CLASS_USER_CODE, NULL);
        snprintf(
            out->message, sizeof out->message,
            "rank %d died of signal %d (%s) in code of %.*s, a plugin: its last words say where",
            r->rank, r->signal, name, (int)sizeof p->plugin - 1, p->plugin);
        return;
    }
    say(out, TD_CLASS_INTERNAL, NULL);
    snprintf(out->message, sizeof out->message, "rank %d died of signal %d (%s)", r->rank,
             r->signal, name);
}

static const char *because_of(const struct td_launcher *l) {
    return l->kill_why == TD_LAUNCH_KILL_STUCK ? l->silent : l->lost;
}

void td_rank_ending(const struct td_launch_rank *r, enum td_launch_kill why, const char *because,
                    struct td_rank_ending *out) {
    memset(out, 0, sizeof *out);
    if (r->said_failed) {
        enum td_class cls = td_class_parse(r->end_class);
        if (cls == TD_CLASS_NONE) cls = td_exit_code_class(r->exit_code);
        say(out, cls == TD_CLASS_NONE ? TD_CLASS_INTERNAL : cls, r->end_code);
        snprintf(out->message, sizeof out->message, "%s", r->end_message);
    } else if (r->signal == SIGKILL) {
        killed(r, r->kill_sent ? why : TD_LAUNCH_KILL_NONE, because, out);
    } else if (r->stopped) {
        say(out, TD_CLASS_NONE, NULL);
    } else if (r->signal) {
        died(r, out);
    } else if (r->exit_code == TD_EXIT_DONE || r->exit_code == TD_EXIT_STOPPED) {
        say(out, TD_CLASS_NONE, NULL);
    } else {
        enum td_class cls = td_exit_code_class(r->exit_code);
        say(out, cls, NULL);
        snprintf(out->message, sizeof out->message,
                 "rank %d ended with exit code %d (%s) and said no more; see its stderr", r->rank,
                 r->exit_code, td_class_name(cls));
    }
}

// A worker says itself that its training is over. Where it has not, code of a plugin ended the
// process in its place.
static bool left_without_a_word(const struct td_launch_rank *r) {
    if (r->signal || r->said_end) return false;
    if (td_rank_page_progress(r->page).phase == TD_PHASE_ENDED) return false;
    if (r->exit_code == TD_EXIT_STOPPED) return atomic_load(&r->page->stop) == TD_STOP_NONE;
    return r->exit_code == TD_EXIT_DONE;
}

static void judge_worker(struct td_launch_rank *r) {
    if (!left_without_a_word(r)) return;
    const struct td_rank_progress progress = td_rank_page_progress(r->page);
    char of[32] = "";
    if (progress.total_steps > 0) snprintf(of, sizeof of, " of %d", progress.total_steps);
    r->said_failed = true;
    snprintf(r->end_class, sizeof r->end_class, "%s", td_class_name(TD_CLASS_USER_CODE));
    snprintf(r->end_message, sizeof r->end_message,
             "rank %d left at step %d%s with code %d, and did not say that its training was over: "
             "code that it runs ended the process (exit, _exit or a fork)",
             r->rank, progress.step, of, r->exit_code);
}

bool td_launcher_note_exit(struct td_launcher *l, int32_t idx) {
    struct td_launch_rank *r = &l->ranks[idx];
    struct td_rank_ending e;
    const bool is_killed = r->signal == SIGKILL || r->exit_code == 128 + SIGKILL;
    if (is_killed && !r->kill_sent) td_killed_judge(&l->kills, &r->killed);
    if (l->command) {
        td_launch_command_judge(l, r);
    } else {
        judge_worker(r);
    }
    td_rank_ending(r, l->kill_why, because_of(l), &e);
    char words[sizeof r->page->last_words + 1];
    last_words(r, words, sizeof words);

    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_RANK_EXIT, &line);
    td_event_rank(&line, r->rank);
    td_event_rank_exit_code(&line, r->exit_code);
    td_event_rank_exit_signal(&line, r->signal);
    td_event_rank_exit_class(&line, td_class_name(e.cls));
    td_event_rank_exit_status(&line, e.code);
    td_event_rank_exit_message(&line, e.message);
    td_event_rank_exit_last_words(&line, words);
    td_event_rank_exit_step(&line, td_rank_page_progress(r->page).step);
    td_event_rank_exit_dropped_bytes(&line, (int64_t)td_launch_rank_dropped_bytes(r));
    td_event_rank_exit_dropped_points(&line, (int64_t)td_launch_rank_dropped_points(r));
    td_event_rank_exit_metrics_bytes(&line, (int64_t)r->metrics_bytes);
    td_event_rank_exit_out_bytes(&line, (int64_t)r->out.file_bytes);
    td_event_rank_exit_err_bytes(&line, (int64_t)r->err.file_bytes);
    td_journal_append(&l->journal, &line);
    td_status_log(TD_LOG_ERROR, td_journal_sync(&l->journal), "rank exit, continuing");

    if (e.cls == TD_CLASS_NONE) return false;
    bool victim = e.cls == TD_CLASS_COLLECTIVE;
    if (l->first_failed < 0 || (l->only_victim && !victim)) {
        l->first_failed = idx;
        l->only_victim = victim;
    }
    return true;
}

// A stop that was asked for and had to be forced is still that stop. Only what a rank did by itself
// before it was killed is a failure.
static bool was_killed_by_a_stop(const struct td_launcher *l) {
    const struct td_launch_rank *r = &l->ranks[l->first_failed];
    if (l->kill_why == TD_LAUNCH_KILL_FENCED) return true;
    return l->kill_why == TD_LAUNCH_KILL_GRACE && r->kill_sent && !r->said_failed;
}

void td_launcher_note_end(struct td_launcher *l) {
    bool all_done = true;
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        all_done = all_done && l->ranks[i].exit_code == TD_EXIT_DONE && !l->ranks[i].stopped;
    }
    enum td_outcome outcome = all_done ? TD_OUTCOME_DONE : TD_OUTCOME_STOPPED;
    struct td_rank_ending e = {0};
    int32_t rank = -1;
    if (l->first_failed >= 0) {
        const struct td_launch_rank *r = &l->ranks[l->first_failed];
        td_rank_ending(r, l->kill_why, because_of(l), &e);
        rank = r->rank;
        outcome = was_killed_by_a_stop(l) ? TD_OUTCOME_KILLED : TD_OUTCOME_FAILED;
    }
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_LAUNCHER_END, &line);
    td_event_launcher_end_outcome(&line, td_outcome_name(outcome));
    td_event_rank(&line, rank);
    td_event_launcher_end_class(&line, td_class_name(e.cls));
    td_event_launcher_end_code(&line, e.code);
    td_event_launcher_end_message(&line, e.message);
    td_journal_append(&l->journal, &line);
    td_status_log(TD_LOG_ERROR, td_journal_sync(&l->journal), "end of the attempt");
    td_log_info("attempt ended outcome=%s rank=%d class=%s", td_outcome_name(outcome), rank,
                td_class_name(e.cls));
}
