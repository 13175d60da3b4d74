// See the header. A line that is longer than LINE_BYTES is shown in pieces.

#include "client/logs/follow_logs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/screen/print.h"
#include "lib/base/clock.h"

enum { LINE_BYTES = 64 << 10, BEFORE_BYTES = 4 << 10, WAIT_S = 15, CANCEL_S = 2 };

void td_follow_logs_init(struct td_follow_logs *f, struct td_session *session,
                         struct td_progress_line *progress, int32_t rank, bool from_start) {
    *f = (struct td_follow_logs){.session = session,
                                 .progress = progress,
                                 .rank = rank,
                                 .tail_bytes = from_start ? 0 : BEFORE_BYTES,
                                 .idle = true};
}

// Its stream names f: it is over, or gone with the channel, when this returns.
static void end_stream(struct td_follow_logs *f) {
    if (f->idle) return;
    td_rpc_stream_cancel(f->stream);
    td_status_free(td_session_run_until(f->session, &f->idle, CANCEL_S * TD_NS_PER_S));
}

void td_follow_logs_finish(struct td_follow_logs *f) {
    end_stream(f);
    for (size_t i = 0; i < f->n_lines; i++) {
        td_buf_finish(&f->lines[i]);
    }
    free(f->lines);
    f->lines = NULL;
    f->n_lines = 0;
    td_log_positions_finish(&f->at);
}

static td_status room_for(struct td_follow_logs *f, size_t stream) {
    if (stream < f->n_lines) return TD_OK;
    struct td_buf *grown = td_realloc(f->lines, (stream + 1) * sizeof *grown);
    if (!grown) return td_fail_oom();
    f->lines = grown;
    for (; f->n_lines <= stream; f->n_lines++) {
        td_buf_init(&grown[f->n_lines], LINE_BYTES + 1);
    }
    return TD_OK;
}

static void put_line(struct td_follow_logs *f, size_t stream) {
    struct td_buf *line = &f->lines[stream];
    td_progress_line_end(f->progress);
    if (f->rank == TD_FOLLOW_LOGS_ALL) td_print(stdout, "[rank %zu] ", stream / 2);
    td_print(stdout, "%.*s\n", (int)line->len, line->len ? line->data : "");
    td_buf_clear(line);
}

static td_status take(struct td_follow_logs *f, size_t stream, const char *data, size_t n) {
    TD_TRY(room_for(f, stream));
    struct td_buf *line = &f->lines[stream];
    while (n > 0) {
        const size_t most = TD_MIN(n, LINE_BYTES - line->len);
        const char *newline = memchr(data, '\n', most);
        const size_t piece = newline ? (size_t)(newline - data) : most;
        TD_TRY(td_buf_append(line, data, piece));
        if (newline || line->len == LINE_BYTES) put_line(f, stream);
        data += piece + (newline != NULL);
        n -= piece + (newline != NULL);
    }
    return TD_OK;
}

// Of a tail the first line may be the end of one.
static const char *first_whole(const Traind__V1__ReadLogsResponse *r) {
    const char *data = (const char *)r->data.data;
    const char *newline = r->offset ? memchr(data, '\n', r->data.len) : NULL;
    return newline ? newline + 1 : data;
}

static void put_rest(struct td_follow_logs *f) {
    for (size_t i = 0; i < f->n_lines; i++) {
        if (f->lines[i].len) put_line(f, i);
    }
}

static td_status show(struct td_follow_logs *f, const Traind__V1__ReadLogsResponse *r) {
    TD_TRY(td_log_check(r));
    const size_t stream = td_log_stream_of(r);
    const bool is_first = stream >= f->at.n_streams || r->attempt != f->at.attempt;
    const char *data = (const char *)r->data.data, *end = data + r->data.len;
    if (f->at.attempt && r->attempt != f->at.attempt) put_rest(f);
    if (f->tail_bytes && is_first) data = first_whole(r);
    TD_TRY(take(f, stream, data, (size_t)(end - data)));
    fflush(stdout);
    return td_log_positions_note(&f->at, r);
}

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct td_follow_logs *f = arg;
    const Traind__V1__ReadLogsResponse *r = (const Traind__V1__ReadLogsResponse *)message;
    if (!r->data.len) return;
    td_status failed = show(f, r);
    if (!failed) return;
    td_print(stderr, "trainctl: what ranks print is not shown any more: %s\n",
             td_status_message(failed));
    td_status_free(failed);
    f->over = true;
    td_rpc_stream_cancel(stream);
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct td_follow_logs *f = arg;
    const enum td_code code = td_status_code(take_status);
    f->idle = true;
    f->over |= code != TD_UNAVAILABLE && code != TD_CANCELLED; // else the daemon went away
    if (f->over && take_status && code != TD_CANCELLED) {
        td_print(stderr, "trainctl: what ranks print is not shown any more: %s\n",
                 td_status_message(take_status));
    }
    td_status_free(take_status);
}

static td_status open_stream(struct td_follow_logs *f, const Traind__V1__Job *job) {
    static const struct td_rpc_stream_ops ops = {.on_message = on_message, .on_done = on_done};
    TD_TRY(td_rpc_stream_open(f->session->channel, "/traind.v1.LogService/ReadLogs",
                              &traind__v1__read_logs_response__descriptor, 0, &ops, f, &f->stream));
    f->idle = false;
    if (!f->tail_bytes && !f->at.attempt) f->at.attempt = 1; // not the newest that there is by now
    Traind__V1__ReadLogsRequest request = TRAIND__V1__READ_LOGS_REQUEST__INIT;
    request.job = job->id;
    request.rank = f->rank;
    request.follow = request.later = true;
    request.tail_bytes = f->at.n_streams ? 0 : f->tail_bytes;
    td_status s = td_log_positions_send(&f->at, &request, f->stream);
    if (s) td_rpc_stream_cancel(f->stream);
    return s;
}

// Before the first attempt there are no ranks to read of.
void td_follow_logs_see(struct td_follow_logs *f, const Traind__V1__Job *job) {
    if (f->rank == TD_FOLLOW_LOGS_NONE || !f->idle || f->over || !f->session->channel) return;
    if (job->attempt) td_status_free(open_stream(f, job)); // the next change tries again
}

void td_follow_logs_wait(struct td_follow_logs *f, const Traind__V1__Job *job) {
    if (td_job_state_terminal(job->state)) {
        td_follow_logs_see(f, job);
        td_status_free(f->idle ? TD_OK
                               : td_session_run_until(f->session, &f->idle, WAIT_S * TD_NS_PER_S));
    }
    put_rest(f);
}
