// logs: what the ranks printed, in the order it arrived. With several ranks each line is preceded
// by its rank; bytes past the cap are counted and said at the end, never lost in silence. --follow
// stays until the job has ended: when the daemon is restarted it comes back to the byte of each
// stream where it was cut off. It asks for the job first, to distinguish a daemon that went away
// from one that never was there: ranks that are well print a line or two in hours.
//
// To a file or a pipe the bytes are the ranks' own. A line that has no end gets one before that of
// another stream; one stream of one rank is left as it is. On a terminal characters that would act
// on it are shown as \xNN; a character that is cut between two answers is held until its rest has
// come.
//
// --tail asks for some bytes at the end of each stream, and for eight times as many while one has
// too few lines in them. --follow then goes on from there.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/logs/log_positions.h"
#include "client/logs/logs.h"
#include "client/screen/print.h"
#include "client/screen/tail.h"
#include "client/session/session.h"
#include "lib/base/files/files.h"
#include "lib/base/printable.h"
#include "traind/v1/job.pb-c.h"
#include "traind/v1/log.pb-c.h"

struct logs {
    struct td_session *session;
    td_status failed; // here
    td_status ended;  // as the daemon ended the stream
    uint64_t dropped_bytes;
    bool any, received;
    size_t n_awaited; // nodes that have yet to send some
    size_t open;      // the stream whose line is open
    bool prefix, line_open, over;
    bool one;                    // stream only: its bytes are shown as they are
    bool escape;                 // stdout is a terminal
    char held[TD_PRINTABLE_MAX]; // of a character that is not whole
    size_t n_held, held_stream;
    struct td_log_positions at;
    struct td_tail tail;
    uint64_t tail_bytes; // that are asked for; 0: everything is shown as it comes
};

static td_status write_escaped(const char *data, size_t n) {
    TD_AUTO_BUF out;
    td_buf_init(&out, ((size_t)64 << 20) + 4 * n);
    TD_TRY(td_printable_add(&out, data, n, "\n\t"));
    return td_fs_write_stdout(out.data, out.len);
}

static td_status flush_held(struct logs *l) {
    size_t n = l->n_held;
    l->n_held = 0;
    return n ? write_escaped(l->held, n) : TD_OK;
}

static td_status put(struct logs *l, size_t stream, const char *data, size_t n) {
    if (!l->escape) return td_fs_write_stdout(data, n);
    if (stream != l->held_stream) TD_TRY(flush_held(l));
    l->held_stream = stream;
    while (l->n_held > 0 && n > 0) { // the rest of that character
        l->held[l->n_held++] = *data++;
        n--;
        if (!td_printable_is_begun(l->held, l->n_held)) TD_TRY(flush_held(l));
    }
    size_t whole = n;
    for (size_t cut = 1; cut < TD_PRINTABLE_MAX && cut <= n; cut++) {
        if (td_printable_is_begun(data + n - cut, cut)) whole = n - cut;
    }
    TD_TRY(write_escaped(data, whole));
    if (n > whole) {
        l->n_held = n - whole;
        memcpy(l->held, data + whole, l->n_held);
    }
    return TD_OK;
}

// What a stream prints does not go on in a line that another left open.
static td_status leave_line(struct logs *l, size_t stream) {
    if (!l->line_open || l->open == stream) return TD_OK;
    TD_TRY(flush_held(l)); // of that line
    l->line_open = false;
    return td_fs_write_stdout("\n", 1);
}

static td_status write_plain(struct logs *l, const Traind__V1__ReadLogsResponse *r) {
    const size_t stream = td_log_stream_of(r);
    if (!r->data.len) return TD_OK;
    if (!l->one) TD_TRY(leave_line(l, stream));
    l->line_open = r->data.data[r->data.len - 1] != '\n' && (!l->one || l->escape);
    l->open = stream;
    return put(l, stream, (const char *)r->data.data, r->data.len);
}

static td_status write_prefixed(struct logs *l, const Traind__V1__ReadLogsResponse *r) {
    const char *at = (const char *)r->data.data, *end = at + r->data.len;
    while (at < end) {
        TD_TRY(leave_line(l, td_log_stream_of(r)));
        if (!l->line_open) {
            char head[32];
            int n = snprintf(head, sizeof head, "[rank %" PRIu32 "] ", r->rank);
            TD_TRY(td_fs_write_stdout(head, (size_t)n));
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline + 1 : end;
        TD_TRY(put(l, td_log_stream_of(r), at, (size_t)(stop - at)));
        l->line_open = !newline;
        l->open = td_log_stream_of(r);
        at = stop;
    }
    return TD_OK;
}

// What is shown is not all that the ranks printed.
static void say_awaited(const Traind__V1__LogAwaited *x) {
    char bytes[48] = "the rest of its logs";
    if (x->bytes) snprintf(bytes, sizeof bytes, "%" PRIu64 " bytes of its logs", x->bytes);
    td_print(stderr, "trainctl: node %s has yet to send %s%s\n", x->node, bytes,
             x->away ? "; it is not connected" : "");
}

static td_status show(struct logs *l, const Traind__V1__ReadLogsResponse *r) {
    td_status s;
    l->any |= r->data.len > 0;
    l->dropped_bytes = TD_MAX(l->dropped_bytes, r->dropped_bytes);
    if (td_output_is_json(l->session->flags->output)) {
        s = td_session_print_json(l->session, &r->base);
    } else if (l->prefix) {
        s = write_prefixed(l, r);
    } else {
        s = write_plain(l, r);
    }
    if (s) l->line_open = false; // and cannot be ended
    return s ? s : td_log_positions_note(&l->at, r);
}

static void on_message(struct td_rpc_stream *stream, const ProtobufCMessage *message, void *arg) {
    struct logs *l = arg;
    const Traind__V1__ReadLogsResponse *r = (const Traind__V1__ReadLogsResponse *)message;
    if (l->failed) return;
    l->received = true;
    td_session_is_back(l->session);
    if (r->n_awaited && l->n_awaited) return; // of a tail that was asked for before
    if (r->n_awaited) {                       // the last one, without data
        l->n_awaited = r->n_awaited;
        for (size_t i = 0; i < r->n_awaited; i++) {
            say_awaited(r->awaited[i]);
        }
        if (td_output_is_json(l->session->flags->output)) {
            l->failed = td_session_print_json(l->session, &r->base);
        }
        return;
    }
    l->failed = td_log_check(r);
    if (!l->failed && l->tail_bytes) {
        l->failed =
            td_tail_add(&l->tail, td_log_stream_of(r), r->offset, r->data.data, r->data.len);
        l->at.attempt = r->attempt;
        l->dropped_bytes = TD_MAX(l->dropped_bytes, r->dropped_bytes);
    } else if (!l->failed) {
        l->failed = show(l, r);
    }
    if (l->failed) td_rpc_stream_cancel(stream);
}

static void on_done(struct td_rpc_stream *stream, td_status take_status, void *arg) {
    (void)stream;
    struct logs *l = arg;
    l->over = true;
    l->ended = take_status;
}

// ---- rounds -------------------------------------------------------------------------------------
static td_status send_request(struct logs *l, struct td_rpc_stream *stream) {
    const struct td_flags *f = l->session->flags;
    Traind__V1__ReadLogsRequest request = TRAIND__V1__READ_LOGS_REQUEST__INIT;
    request.job = td_unconst(f->args[0]);
    request.later = f->attempt == 0;
    request.rank = f->rank;
    request.offset = l->at.n_streams ? 0 : f->offset;
    request.follow = f->follow && !l->tail_bytes;
    request.tail_bytes = l->tail_bytes;
    request.out_only = f->out_only;
    request.err_only = f->err_only;
    return td_log_positions_send(&l->at, &request, stream);
}

// One stream, to its end.
static td_status one_round(struct logs *l, int64_t left_ns) {
    static const struct td_rpc_stream_ops ops = {.on_message = on_message, .on_done = on_done};
    struct td_rpc_stream *stream;
    l->over = false;
    TD_TRY(td_session_open(l->session));
    TD_TRY(td_rpc_stream_open(l->session->channel, "/traind.v1.LogService/ReadLogs",
                              &traind__v1__read_logs_response__descriptor, left_ns, &ops, l,
                              &stream));
    td_status s = send_request(l, stream);
    if (s) td_rpc_stream_cancel(stream);
    td_status waited = td_session_run_until(l->session, &l->over, INT64_MAX);
    if (!s) s = td_steal(l->failed);
    if (!s) s = waited ? td_steal(waited) : td_steal(l->ended);
    td_status_free(waited);
    td_status_free(td_steal(l->ended));
    return s;
}

// A follower begins with the newest attempt that there is now. By the time that it asks again there
// may be others, and what was printed in between is not passed over.
static td_status ask_for_job(struct logs *l, uint32_t at_most) {
    TD_AUTO(td_rpc_message) *answer = NULL;
    TD_TRY(td_session_get_job(l->session, &answer));
    const Traind__V1__Job *job = (const Traind__V1__Job *)td_rpc_message_get(answer);
    if (!l->at.attempt) l->at.attempt = TD_MIN(job->attempt, at_most);
    return TD_OK;
}

// ---- the tail -----------------------------------------------------------------------------------
static td_status show_tail(struct logs *l) {
    for (size_t i = 0; i < l->tail.n_streams; i++) {
        struct td_tail_stream *s = &l->tail.stream[i];
        Traind__V1__ReadLogsResponse r = TRAIND__V1__READ_LOGS_RESPONSE__INIT;
        r.attempt = l->at.attempt;
        r.rank = (uint32_t)(i / 2);
        r.err = i % 2;
        r.offset = s->offset;
        r.data.data = (uint8_t *)s->text.data;
        r.data.len = s->text.len;
        if (r.data.len) {
            TD_TRY(show(l, &r));
        } else {
            TD_TRY(td_log_positions_note(&l->at, &r)); // where a follower goes on
        }
    }
    return TD_OK;
}

// The first guess is right for lines of 128 bytes.
static td_status read_tail(struct logs *l) {
    const int64_t n_lines = l->tail.n_lines;
    td_status failed;
    bool enough;
    l->tail_bytes = TD_MAX((uint64_t)n_lines, (uint64_t)64) * 128;
    do {
        td_tail_clear(&l->tail);
        failed = one_round(l, l->session->flags->timeout_ns);
        enough = td_tail_cut(&l->tail) || l->tail_bytes >= TD_TAIL_BYTES_MAX;
        l->tail_bytes = TD_MIN(8 * l->tail_bytes, (uint64_t)TD_TAIL_BYTES_MAX);
    } while (!failed && !enough);
    l->tail_bytes = 0;
    l->any |= !failed && l->at.attempt && l->tail.n_streams;
    if (!failed) failed = show_tail(l);
    td_tail_clear(&l->tail);
    return failed;
}

// ---- all ----------------------------------------------------------------------------------------
// The daemon did, not only the disk under it.
static bool went_away(td_status s) {
    const char *reason = td_status_reason(s);
    return strcmp(reason, "UNREACHABLE") == 0 || strcmp(reason, "DRAINING") == 0;
}

// Each round begins when the daemon has answered, so it was there until the round broke, however
// silent the ranks were meanwhile.
static td_status read_all(struct logs *l, int64_t timeout_ns) {
    struct td_mono start = td_mono_now(), last = start;
    if (l->tail.n_lines >= 0) {
        TD_TRY(read_tail(l));
        if (!l->session->flags->follow) return TD_OK;
    }
    for (bool there = true;;) {
        int64_t left_ns = timeout_ns ? timeout_ns - (td_mono_now().ns - start.ns) : 0;
        if (left_ns < 0) return td_fail(TD_DEADLINE_EXCEEDED, "no time is left");
        td_status s = there ? TD_OK : ask_for_job(l, 1); // none before: its first
        there = !s;
        if (there) td_session_is_back(l->session);
        if (there) s = one_round(l, left_ns);
        if (td_status_code(s) != TD_UNAVAILABLE || !l->session->flags->follow) return s;
        if (l->received || (there && went_away(s))) last = td_mono_now();
        l->received = there = false;
        TD_TRY(td_session_reconnect(l->session, s, last));
    }
}

// Ranks that have not begun print nothing, and who asks may wonder.
static void say_nothing(const struct td_flags *f) {
    if (f->rank >= 0 || f->out_only || f->err_only) return;
    td_print(stderr, "trainctl: the ranks of %s have printed nothing%s\n", f->args[0],
             f->attempt ? " in that attempt" : " in the newest attempt; --attempt N shows another");
}

td_status td_cmd_logs(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    if (f->out_only && f->err_only) {
        return td_fail(TD_INVALID_ARGUMENT, "--out-only and --err-only exclude each other");
    }
    if (f->offset && (f->rank < 0 || !(f->out_only || f->err_only))) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "--offset counts in one stream: name it with --rank and --out-only or "
                       "--err-only");
    }
    struct logs l = {.session = s,
                     .prefix = f->rank < 0,
                     .one = f->rank >= 0 && (f->out_only || f->err_only),
                     .at.attempt = f->attempt,
                     .tail = {.n_lines = f->tail_lines},
                     .escape = isatty(STDOUT_FILENO) == 1};
    if (f->offset && f->tail_lines >= 0) {
        return td_fail(TD_INVALID_ARGUMENT, "--offset and --tail exclude each other");
    }
    if (f->follow) TD_TRY(ask_for_job(&l, UINT32_MAX));
    td_status failed = read_all(&l, f->timeout_ns);
    td_log_positions_finish(&l.at);
    td_status cut = flush_held(&l);
    if (!failed) failed = td_steal(cut);
    td_status_free(cut);
    bool late = f->timeout_ns && td_status_code(failed) == TD_DEADLINE_EXCEEDED;
    td_status unended = l.line_open ? td_fs_write_stdout("\n", 1) : TD_OK;
    if (!failed) failed = td_steal(unended);
    td_status_free(unended);
    if (l.dropped_bytes) {
        td_print(stderr, "trainctl: %" PRIu64 " bytes past the log cap were dropped\n",
                 l.dropped_bytes);
    }
    if (!failed && !l.any && !l.n_awaited) say_nothing(f);
    if (!late) return failed;
    td_status_free(failed);
    return td_fail(TD_DEADLINE_EXCEEDED, "the output of %s had not ended within --timeout (%.9g s)",
                   f->args[0], (double)f->timeout_ns / TD_NS_PER_S);
}
