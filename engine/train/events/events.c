// Building and sending events. An event is best effort by design, so nothing here returns a status:
// what could not be sent is counted, and the loop goes on.

#include "engine/train/events/events.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"
#include "lib/base/fit.h"
#include "lib/base/fsio.h"

void td_events_init(struct td_events *e, int fd) {
    *e = (struct td_events){.fd = fd};
    TD_CHECK(pthread_mutex_init(&e->lock, NULL) == 0);
}

void td_events_finish(struct td_events *e) {
    pthread_mutex_destroy(&e->lock);
}

// One datagram, waiting a bounded time for room.
static bool send_datagram(int fd, const char *json, size_t len) {
    struct td_mono deadline = td_mono_add(td_mono_now(), TD_EVENTS_PATIENCE_NS);
    for (;;) {
        if (send(fd, json, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len) return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
        int64_t left_ns = deadline.ns - td_mono_now().ns;
        if (left_ns <= 0) return false;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        (void)poll(&p, 1, (int)(left_ns / TD_NS_PER_MS) + 1);
    }
}

static bool print_line(const char *json, size_t len) {
    struct td_buf line;
    td_buf_init(&line, TD_EVENT_MAX + 2);
    td_status s = td_buf_append(&line, json, len);
    if (!s) s = td_buf_str(&line, "\n");
    if (!s) s = td_fd_write_all(STDOUT_FILENO, line.data, line.len, "stdout");
    td_buf_finish(&line);
    bool ok = !s;
    td_status_free(s);
    return ok;
}

void td_events_send(struct td_events *e, const char *json, size_t len) {
    pthread_mutex_lock(&e->lock);
    bool ok = len <= TD_EVENT_MAX &&
              (e->fd >= 0 ? send_datagram(e->fd, json, len) : print_line(json, len));
    pthread_mutex_unlock(&e->lock);
    if (!ok) atomic_fetch_add(&e->drops, 1);
}

td_status td_events_text(struct td_buf *b, const char *key, const char *text) {
    char shown[TD_EVENT_TEXT_BYTES];
    (void)td_fit(shown, sizeof shown, "%s", text);
    TD_TRY(td_buf_printf(b, ",\"%s\":", key));
    return td_json_print_string(shown, strlen(shown), b);
}

// Closes the object and sends it; a building error counts as a drop.
static void close_and_send(struct td_events *e, struct td_buf *b, td_status s) {
    if (!s) s = td_buf_str(b, "}");
    if (s) {
        atomic_fetch_add(&e->drops, 1);
    } else {
        td_events_send(e, b->data, b->len);
    }
    td_status_free(s);
    td_buf_finish(b);
}

void td_events_ready(struct td_events *e) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    close_and_send(e, &b, td_buf_printf(&b, "{\"event\":\"ready\",\"pid\":%d", (int)getpid()));
}

void td_events_step1(struct td_events *e, int64_t step) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    close_and_send(e, &b, td_buf_printf(&b, "{\"event\":\"step1\",\"step\":%lld", (long long)step));
}

void td_events_resumed(struct td_events *e, int64_t step, const char *inexact_reason) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_printf(&b, "{\"event\":\"resumed\",\"step\":%lld,\"exact\":%s",
                                (long long)step, *inexact_reason ? "false" : "true");
    if (!s) s = td_events_text(&b, "reason", inexact_reason);
    close_and_send(e, &b, s);
}

void td_events_skipped(struct td_events *e, const char *path, const char *reason) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_str(&b, "{\"event\":\"skipped_checkpoint\"");
    if (!s) s = td_events_text(&b, "path", path);
    if (!s) s = td_events_text(&b, "reason", reason);
    close_and_send(e, &b, s);
}

void td_events_removed(struct td_events *e, int64_t step, const char *path) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_printf(&b, "{\"event\":\"removed\",\"step\":%lld", (long long)step);
    if (!s) s = td_events_text(&b, "path", path);
    close_and_send(e, &b, s);
}

void td_events_stage(struct td_events *e, const char *stage, const char *state) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    close_and_send(
        e, &b,
        td_buf_printf(&b, "{\"event\":\"stage\",\"stage\":\"%s\",\"state\":\"%s\"", stage, state));
}

void td_events_weights(struct td_events *e, const char *text) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_str(&b, "{\"event\":\"weights\"");
    if (!s) s = td_events_text(&b, "text", text);
    close_and_send(e, &b, s);
}

void td_events_frozen(struct td_events *e, const struct td_json *plan) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_str(&b, "{\"event\":\"frozen\",\"plan\":");
    if (!s) s = td_json_print(plan, false, &b);
    close_and_send(e, &b, s);
}

void td_events_memory(struct td_events *e, size_t state_bytes, size_t arena_bytes,
                      size_t scratch_bytes, const char *recompute) {
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    close_and_send(e, &b,
                   td_buf_printf(&b,
                                 "{\"event\":\"memory\",\"state_bytes\":%zu,\"arena_bytes\":%zu,"
                                 "\"scratch_bytes\":%zu,\"recompute\":\"%s\"",
                                 state_bytes, arena_bytes, scratch_bytes, recompute));
}

void td_events_note(struct td_events *e, const char *fmt, ...) {
    char text[TD_EVENT_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)td_fit_v(text, sizeof text, fmt, ap);
    va_end(ap);
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_str(&b, "{\"event\":\"note\"");
    if (!s) s = td_events_text(&b, "text", text);
    close_and_send(e, &b, s);
}

void td_events_end(struct td_events *e, const char *outcome, td_status failure, int64_t step) {
    if (atomic_exchange(&e->ended, true)) return;
    struct td_buf b;
    td_buf_init(&b, TD_EVENT_MAX);
    td_status s = td_buf_printf(&b, "{\"event\":\"end\",\"outcome\":\"%s\"", outcome);
    if (!s && failure) {
        s = td_buf_printf(&b, ",\"class\":\"%s\",\"code\":\"%s\"",
                          td_class_name(td_status_class(failure)),
                          td_code_name(td_status_code(failure)));
        if (!s) s = td_events_text(&b, "message", td_status_message(failure));
    }
    if (!s) s = td_buf_printf(&b, ",\"step\":%lld", (long long)step);
    close_and_send(e, &b, s);
}
