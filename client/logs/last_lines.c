// One question for the end of one stream. The coordinator waits for what a node just sends of it.

#include "client/logs/last_lines.h"

#include <inttypes.h>
#include <string.h>

#include "client/logs/log_positions.h"
#include "client/screen/print.h"
#include "client/screen/tail.h"

enum { LINES = 40, BYTES = 32 << 10 };

struct last {
    struct td_tail tail;
    td_status failed, ended;
    bool over;
};

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct last *l = arg;
    const Traind__V1__ReadLogsResponse *r = (const Traind__V1__ReadLogsResponse *)message;
    if (l->failed || !r->data.len) return;
    l->failed = td_tail_add(&l->tail, 0, r->offset, r->data.data, r->data.len);
    if (l->failed) td_rpc_stream_cancel(stream);
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct last *l = arg;
    l->over = true;
    l->ended = take_status;
}

static td_status ask(struct td_session *s, const Traind__V1__Job *job, struct last *l) {
    static const struct td_rpc_stream_ops ops = {.on_message = on_message, .on_done = on_done};
    struct td_rpc_stream *stream;
    TD_TRY(td_session_open(s));
    TD_TRY(td_rpc_stream_open(s->channel, "/traind.v1.LogService/ReadLogs",
                              &traind__v1__read_logs_response__descriptor, s->flags->timeout_ns,
                              &ops, l, &stream));
    Traind__V1__ReadLogsRequest request = TRAIND__V1__READ_LOGS_REQUEST__INIT;
    request.job = job->id;
    request.attempt = job->failure->attempt;
    request.rank = job->failure->rank;
    request.err_only = true;
    request.tail_bytes = BYTES;
    td_rpc_stream_send(stream, &request.base);
    td_rpc_stream_half_close(stream);
    td_status waited = td_session_run_until(s, &l->over, INT64_MAX);
    td_status failed = td_steal(l->failed);
    if (!failed) failed = td_steal(waited);
    if (!failed) failed = td_steal(l->ended);
    td_status_free(waited);
    td_status_free(td_steal(l->ended));
    return failed;
}

// Code that is not traind's own says what is wrong with it there. Other failures name their cause.
static bool is_of_code(const Traind__V1__Failure *x) {
    return x && x->rank >= 0 && x->attempt &&
           (strcmp(x->class_, "user_code") == 0 || strcmp(x->class_, "internal") == 0);
}

static void print_indented(const char *at, const char *end) {
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        td_print(stdout, "  %.*s\n", (int)(stop - at), at);
        at = stop + 1;
    }
}

void td_last_lines_show(struct td_session *s, const Traind__V1__Job *job, const char *head) {
    struct last l = {.tail = {.n_lines = LINES}};
    const Traind__V1__Failure *x = job->failure;
    if (!is_of_code(x)) return;
    td_status failed = ask(s, job, &l);
    if (failed) {
        td_print(stderr, "trainctl: the stderr of rank %d is not shown: %s\n", x->rank,
                 td_status_message(failed));
        td_status_free(failed);
    } else if (l.tail.n_streams && l.tail.stream[0].text.len) {
        (void)td_tail_cut(&l.tail);
        const struct td_buf *text = &l.tail.stream[0].text;
        td_print(stdout,
                 "%sof rank %d, its last lines; all of it: `trainctl logs %s --rank %d --attempt "
                 "%" PRIu32 " --err-only`\n",
                 head, x->rank, job->id, x->rank, x->attempt);
        print_indented(text->data, text->data + text->len);
    }
    td_tail_clear(&l.tail);
}
