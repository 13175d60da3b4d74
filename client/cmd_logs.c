// logs: what the ranks printed, in the order it arrived. With several ranks each line is preceded
// by its rank; bytes past the cap are counted and said at the end, never lost in silence. --follow
// stays until the job has ended.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/session.h"
#include "lib/base/fsio.h"
#include "traind/v1/log.pb-c.h"

struct logs {
    struct td_session *session;
    td_status failed;
    uint64_t dropped_bytes;
    bool any;
    uint32_t rank; // whose line is open
    bool prefix, line_open, over;
};

static td_status write_prefixed(struct logs *l, const Traind__V1__ReadLogsResponse *r) {
    const char *at = (const char *)r->data.data, *end = at + r->data.len;
    while (at < end) {
        if (l->line_open && l->rank != r->rank) {
            TD_TRY(td_fd_write_all(STDOUT_FILENO, "\n", 1, "stdout"));
            l->line_open = false;
        }
        if (!l->line_open) {
            char head[32];
            int n = snprintf(head, sizeof head, "[rank %" PRIu32 "] ", r->rank);
            TD_TRY(td_fd_write_all(STDOUT_FILENO, head, (size_t)n, "stdout"));
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline + 1 : end;
        TD_TRY(td_fd_write_all(STDOUT_FILENO, at, (size_t)(stop - at), "stdout"));
        l->line_open = !newline;
        l->rank = r->rank;
        at = stop;
    }
    return TD_OK;
}

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct logs *l = arg;
    const Traind__V1__ReadLogsResponse *r = (const Traind__V1__ReadLogsResponse *)message;
    if (l->failed) return;
    l->any |= r->data.len > 0;
    l->dropped_bytes = TD_MAX(l->dropped_bytes, r->dropped_bytes);
    if (l->session->flags->output == TD_OUTPUT_JSON ||
        l->session->flags->output == TD_OUTPUT_JSONL) {
        l->failed = td_session_print_json(l->session, &r->base);
    } else if (l->prefix) {
        l->failed = write_prefixed(l, r);
    } else {
        l->failed = td_fd_write_all(STDOUT_FILENO, r->data.data, r->data.len, "stdout");
    }
    if (l->failed) td_rpc_stream_cancel(stream);
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct logs *l = arg;
    l->over = true;
    if (l->failed) {
        td_status_free(take_status);
    } else {
        l->failed = take_status;
    }
}

// Ranks that are well print nothing, and who asks may wonder.
static void say_nothing(const struct td_flags *f) {
    if (f->rank >= 0 || f->out_only || f->err_only) return;
    fprintf(stderr, "trainctl: the ranks of %s have printed nothing%s\n", f->args[0],
            f->attempt ? " in that attempt" : " in the newest attempt; --attempt N shows another");
}

td_status td_cmd_logs(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    static const struct td_rpc_stream_ops ops = {.on_message = on_message, .on_done = on_done};
    if (f->out_only && f->err_only) {
        return td_fail(TD_INVALID_ARGUMENT, "--out-only and --err-only exclude each other");
    }
    if (f->offset && (f->rank < 0 || !(f->out_only || f->err_only))) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--offset counts in one stream: name it with --rank and --out-only or "
                       "--err-only");
    }
    TD_TRY(td_session_open(s));
    struct logs l = {.session = s, .prefix = f->rank < 0};
    struct td_rpc_stream *stream;
    TD_TRY(td_rpc_stream_open(s->channel, "/traind.v1.LogService/ReadLogs",
                              &traind__v1__read_logs_response__descriptor, f->timeout_ns, &ops, &l,
                              &stream));
    Traind__V1__ReadLogsRequest request = TRAIND__V1__READ_LOGS_REQUEST__INIT;
    request.job = (char *)(uintptr_t)f->args[0];
    request.attempt = f->attempt;
    request.rank = f->rank;
    request.offset = f->offset;
    request.follow = f->follow;
    request.out_only = f->out_only;
    request.err_only = f->err_only;
    td_rpc_stream_send(stream, &request.base);
    td_rpc_stream_half_close(stream);
    td_status waited = td_session_run_until(s, &l.over, INT64_MAX);
    if (waited) {
        td_status_free(l.failed);
        return waited;
    }
    bool late = f->timeout_ns && td_status_code(l.failed) == TD_DEADLINE_EXCEEDED;
    if (l.line_open) TD_TRY(td_fd_write_all(STDOUT_FILENO, "\n", 1, "stdout"));
    if (l.dropped_bytes) {
        fprintf(stderr, "trainctl: %" PRIu64 " bytes past the log cap were dropped\n",
                l.dropped_bytes);
    }
    if (!l.failed && !l.any) say_nothing(f);
    if (!late) return l.failed;
    td_status_free(l.failed);
    return td_fail(TD_DEADLINE_EXCEEDED, "the output of %s had not ended within --timeout (%.9g s)",
                   f->args[0], (double)f->timeout_ns / TD_NS_PER_S);
}
