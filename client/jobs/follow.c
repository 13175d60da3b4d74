// A watch is a stream that may break: the daemon is restarted, a reader is cut off. The job does
// not care, so following must not either. Each round opens one stream and runs the loop until it
// ends; UNAVAILABLE starts another round, anything else is the answer.

#include "client/jobs/follow.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/screen/format.h"
#include "client/screen/print.h"
#include "client/jobs/epochs.h"
#include "client/logs/follow_logs.h"
#include "client/logs/last_lines.h"
#include "client/session/states.h"
#include "lib/base/clock.h"

struct follow {
    struct td_session *session;
    td_follow_fn *fn;
    void *arg;
    char token[128];
    td_status ended_with;
    bool round_over, finished, received;
};

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct follow *f = arg;
    const Traind__V1__WatchJobResponse *r = (const Traind__V1__WatchJobResponse *)message;
    f->received = true;
    td_session_is_back(f->session);
    if (f->finished || !r->job) return;
    snprintf(f->token, sizeof f->token, "%s", r->token);
    if (f->fn(r, f->arg)) {
        f->finished = true;
        td_rpc_stream_cancel(stream);
    }
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct follow *f = arg;
    f->ended_with = take_status;
    f->round_over = true;
}

static const struct td_rpc_stream_ops stream_ops = {.on_message = on_message, .on_done = on_done};

static td_status one_round(struct td_session *s, const char *job, int64_t left_ns,
                           struct follow *f) {
    TD_TRY(td_session_open(s));
    struct td_rpc_stream *stream;
    f->round_over = f->received = false;
    f->ended_with = NULL;
    TD_TRY(td_rpc_stream_open(s->channel, "/traind.v1.JobService/WatchJob",
                              &traind__v1__watch_job_response__descriptor, left_ns, &stream_ops, f,
                              &stream));
    Traind__V1__WatchJobRequest request = TRAIND__V1__WATCH_JOB_REQUEST__INIT;
    request.id = td_unconst(job);
    request.token = f->token;
    td_rpc_stream_send(stream, &request.base);
    td_rpc_stream_half_close(stream);
    td_status waited = td_session_run_until(s, &f->round_over, left_ns ? left_ns : INT64_MAX);
    if (waited) {
        td_status_free(f->ended_with);
        return waited;
    }
    return f->ended_with;
}

static bool worth_another_round(struct follow *f, td_status failed) {
    enum td_code code = td_status_code(failed);
    if (code == TD_OUT_OF_RANGE && f->token[0]) {
        f->token[0] = '\0';
        return true;
    }
    return code == TD_UNAVAILABLE || code == TD_CODE_OK;
}

static td_status too_long(const struct td_session *s, const char *job, int64_t timeout_ns) {
    const bool for_states = s->flags->state || s->flags->wait;
    return td_fail(TD_DEADLINE_EXCEEDED,
                   "job %s %s within --timeout (%.9g s); nothing was done to it", job,
                   for_states ? "did not come to that state" : "has not ended",
                   (double)timeout_ns / TD_NS_PER_S);
}

td_status td_follow(struct td_session *s, const char *job, int64_t timeout_ns, td_follow_fn *fn,
                    void *arg) {
    struct follow f = {.session = s, .fn = fn, .arg = arg};
    struct td_mono start = td_mono_now(), last = start;
    bool first = true;
    for (;;) {
        int64_t now = td_mono_now().ns;
        if (timeout_ns && now - start.ns >= timeout_ns) return too_long(s, job, timeout_ns);
        int64_t left = timeout_ns ? timeout_ns - (now - start.ns) : 0;
        td_status failed = one_round(s, job, left, &f);
        if (f.finished) {
            td_status_free(failed);
            return TD_OK;
        }
        if (f.received) last = td_mono_now();
        if (timeout_ns && td_status_code(failed) == TD_DEADLINE_EXCEEDED) {
            td_status_free(failed);
            return too_long(s, job, timeout_ns);
        }
        if ((first && !f.received) || !worth_another_round(&f, failed)) return failed;
        first = false;
        TD_TRY(td_session_reconnect(s, failed, last));
    }
}

enum { WORDS_MAX = 4096 };

// ---- to the end ---------------------------------------------------------------------------------
struct to_end {
    struct td_session *session;
    struct td_progress_line progress;
    struct td_epochs epochs;
    struct td_follow_logs logs;
    bool show, paused;
    const Traind__V1__Job__State *states;
    size_t n_states;
    Traind__V1__Job *job; // as it was then
};

static Traind__V1__Job *dup_job(const Traind__V1__Job *job) {
    size_t n = traind__v1__job__get_packed_size(job);
    TD_AUTO_FREE uint8_t *bytes = td_calloc(1, n + 1);
    if (!bytes) return NULL;
    return traind__v1__job__unpack(NULL, traind__v1__job__pack(job, bytes), bytes);
}

static void say_end(struct to_end *e, const Traind__V1__Job *job) {
    if (e->session->flags->output == TD_OUTPUT_NAME) {
        td_print(stdout, "%s\n", job->id);
        return;
    }
    td_print(stdout, "%s %s: step %u, attempt %u\n", job->id, td_job_state_word(job->state),
             job->global_step, job->attempt);
    for (size_t i = 0; i < job->n_metrics; i++) {
        char text[TD_FORMAT_VALUE_BYTES];
        td_print(stdout, TD_END_LINE "%s\n", job->metrics[i]->key,
                 td_format_value(job->metrics[i]->value, text));
    }
    if (job->checkpoint[0]) td_print(stdout, TD_END_LINE "%s\n", "checkpoint", job->checkpoint);
    if (job->weights[0]) td_print(stdout, TD_END_LINE "%s\n", "weights", job->weights);
    if (job->failure && job->state == TRAIND__V1__JOB__STATE__FAILED) {
        td_print(stdout, TD_END_LINE "%s\n" TD_END_LINE "%s\n", "class", job->failure->class_,
                 "error", job->failure->message);
        const char *words = job->failure->last_words;
        if (words[0]) td_print(stdout, TD_END_LINE "%.*s\n", "last words", WORDS_MAX, words);
        char head[32];
        snprintf(head, sizeof head, TD_END_LINE, "stderr");
        td_last_lines_show(e->session, job, head);
    }
}

// What is said of the end may ask for more first, which a callback of the loop must not do.
static bool on_change(const Traind__V1__WatchJobResponse *r, void *arg) {
    struct to_end *e = arg;
    const Traind__V1__Job__State state = r->job->state;
    if (td_job_state_terminal(state) || td_states_have(e->states, e->n_states, state)) {
        e->job = dup_job(r->job);
        return true;
    }
    td_follow_logs_see(&e->logs, r->job);
    if (e->show) {
        td_epochs_see(&e->epochs, r->job);
        td_progress_line_show(&e->progress, r->job);
    } else if (state == TRAIND__V1__JOB__STATE__PAUSED && !e->paused) {
        td_print(stderr,
                 "trainctl: %s is paused, and goes no further until `trainctl resume %s`; waiting "
                 "all the same (--for paused ends then)\n",
                 r->job->id, r->job->id);
    }
    e->paused = state == TRAIND__V1__JOB__STATE__PAUSED;
    return false;
}

static td_status conclude(struct to_end *e) {
    if (!e->job) return td_fail_oom();
    td_follow_logs_wait(&e->logs, e->job);
    if (e->show) {
        td_epochs_finish(&e->epochs, e->job);
        td_progress_line_show(&e->progress, e->job);
    }
    enum td_output output = e->session->flags->output;
    if (td_output_is_json(output)) {
        return td_session_print_json(e->session, &e->job->base);
    }
    say_end(e, e->job);
    return TD_OK;
}

// ---- Ctrl-C -------------------------------------------------------------------------------------
// Leaves the job alone, and says so. The text is ready beforehand: a handler may only write it.
static char parting[192];

static void on_interrupt(int sig) {
    ssize_t written = write(STDERR_FILENO, parting, strlen(parting));
    (void)written;
    raise(sig); // SA_RESETHAND: this one ends the program
}

static void part_with_words(const char *job) {
    struct sigaction now, ours = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    snprintf(parting, sizeof parting,
             "\n%s goes on; `trainctl wait %s --follow` follows it again, `trainctl cancel %s` "
             "ends it\n",
             job, job, job);
    bool ignored = sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
    if (!ignored) (void)sigaction(SIGINT, &ours, NULL);
}

td_status td_follow_to(struct td_session *s, const char *job, int flags,
                       const Traind__V1__Job__State *states, size_t n_states, int *out_exit) {
    TD_TRY(td_session_open(s));
    part_with_words(job);
    struct to_end e = {
        .session = s, .show = flags & TD_FOLLOW_SHOW, .states = states, .n_states = n_states};
    td_progress_line_init(&e.progress, s->config.dumb, s->config.color);
    td_epochs_init(&e.epochs, s, &e.progress, flags & TD_FOLLOW_FROM_START);
    td_follow_logs_init(&e.logs, s, &e.progress, s->flags->logs_of, flags & TD_FOLLOW_FROM_START);
    td_status failed = td_follow(s, job, s->flags->timeout_ns, on_change, &e);
    td_epochs_wait(&e.epochs);
    if (!failed) failed = conclude(&e);
    td_follow_logs_finish(&e.logs);
    if (e.show) td_progress_line_end(&e.progress);
    const bool is_there = e.job && td_states_have(states, n_states, e.job->state);
    if (e.job) traind__v1__job__free_unpacked(e.job, NULL);
    TD_TRY(failed);
    *out_exit = is_there ? TD_CTL_OK : TD_CTL_JOB_FAILED;
    return TD_OK;
}

td_status td_follow_to_end(struct td_session *s, const char *job, int flags, int *out_exit) {
    static const Traind__V1__Job__State succeeded = TRAIND__V1__JOB__STATE__SUCCEEDED;
    return td_follow_to(s, job, flags, &succeeded, 1, out_exit);
}
