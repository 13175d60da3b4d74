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

#include "lib/attempt/event_writer.h"
#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"

void td_events_init(struct td_events *e, int fd) {
    *e = (struct td_events){.fd = fd, .lines_fd = STDOUT_FILENO};
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

static bool print_line(int fd, const char *json, size_t len) {
    if (fd < 0) return true;
    struct td_buf line;
    td_buf_init(&line, TD_EVENT_MAX + 2);
    td_status s = td_buf_append(&line, json, len);
    if (!s) s = td_buf_str(&line, "\n");
    if (!s) s = td_fd_write_all(fd, line.data, line.len, "the standard stream of events");
    td_buf_finish(&line);
    bool ok = !s;
    td_status_free(s);
    return ok;
}

void td_events_send(struct td_events *e, const char *json, size_t len) {
    pthread_mutex_lock(&e->lock);
    bool ok = len <= TD_EVENT_MAX &&
              (e->fd >= 0 ? send_datagram(e->fd, json, len) : print_line(e->lines_fd, json, len));
    pthread_mutex_unlock(&e->lock);
    if (!ok) atomic_fetch_add(&e->drops, 1);
}

// ---- one event ----------------------------------------------------------------------------------
struct line {
    struct td_buf text;
    struct td_event_writer event;
};

static void begin(struct line *l, enum td_event_kind kind) {
    td_buf_init(&l->text, TD_EVENT_MAX);
    td_event_open(&l->event, kind, &l->text);
}

// Closes the line and sends it; a building error counts as a drop.
static void send_line(struct td_events *e, struct line *l) {
    td_status s = td_event_close(&l->event);
    if (s) {
        atomic_fetch_add(&e->drops, 1);
    } else {
        td_events_send(e, l->text.data, l->text.len);
    }
    td_status_free(s);
    td_buf_finish(&l->text);
}

void td_events_ready(struct td_events *e) {
    struct line l;
    begin(&l, TD_EVENT_READY);
    td_event_ready_pid(&l.event, getpid());
    send_line(e, &l);
}

void td_events_step1(struct td_events *e, int64_t step) {
    struct line l;
    begin(&l, TD_EVENT_STEP1);
    td_event_step1_step(&l.event, step);
    send_line(e, &l);
}

void td_events_resumed(struct td_events *e, int64_t step, const char *inexact_reason) {
    struct line l;
    begin(&l, TD_EVENT_RESUMED);
    td_event_resumed_step(&l.event, step);
    td_event_resumed_exact(&l.event, !*inexact_reason);
    td_event_resumed_reason(&l.event, inexact_reason);
    send_line(e, &l);
}

void td_events_skipped(struct td_events *e, const char *path, const char *reason) {
    struct line l;
    begin(&l, TD_EVENT_SKIPPED_CHECKPOINT);
    td_event_skipped_checkpoint_path(&l.event, path);
    td_event_skipped_checkpoint_reason(&l.event, reason);
    send_line(e, &l);
}

void td_events_removed(struct td_events *e, int64_t step, const char *path) {
    struct line l;
    begin(&l, TD_EVENT_REMOVED);
    td_event_removed_step(&l.event, step);
    td_event_removed_path(&l.event, path);
    send_line(e, &l);
}

static void send_stage(struct td_events *e, const char *stage, const char *state) {
    struct line l;
    begin(&l, TD_EVENT_STAGE);
    td_event_stage_stage(&l.event, stage);
    td_event_stage_state(&l.event, state);
    send_line(e, &l);
}

void td_events_stage_start(struct td_events *e, const char *stage) {
    send_stage(e, stage, "start");
}

void td_events_stage_end(struct td_events *e, const char *stage, enum td_outcome outcome) {
    send_stage(e, stage, td_outcome_name(outcome));
}

void td_events_weights(struct td_events *e, const char *text) {
    struct line l;
    begin(&l, TD_EVENT_WEIGHTS);
    td_event_weights_text(&l.event, text);
    send_line(e, &l);
}

void td_events_frozen(struct td_events *e, const struct td_json *plan) {
    struct line l;
    begin(&l, TD_EVENT_FROZEN);
    td_event_frozen_plan(&l.event, plan);
    send_line(e, &l);
}

void td_events_memory(struct td_events *e, size_t state_bytes, size_t arena_bytes,
                      size_t scratch_bytes, const char *recompute) {
    struct line l;
    begin(&l, TD_EVENT_MEMORY);
    td_event_memory_state_bytes(&l.event, (int64_t)state_bytes);
    td_event_memory_arena_bytes(&l.event, (int64_t)arena_bytes);
    td_event_memory_scratch_bytes(&l.event, (int64_t)scratch_bytes);
    td_event_memory_recompute(&l.event, recompute);
    send_line(e, &l);
}

void td_events_note(struct td_events *e, const char *fmt, ...) {
    char text[TD_EVENT_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    struct line l;
    begin(&l, TD_EVENT_NOTE);
    td_event_note_text(&l.event, text);
    send_line(e, &l);
}

void td_events_say(struct td_events *e, const char *fmt, ...) {
    char text[TD_EVENT_TEXT_BYTES];
    va_list ap;
    if (!e->say) return;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    e->say(text);
}

void td_events_end(struct td_events *e, enum td_outcome outcome, td_status failure, int64_t step) {
    if (atomic_exchange(&e->ended, true)) return;
    struct line l;
    begin(&l, TD_EVENT_END);
    td_event_end_outcome(&l.event, td_outcome_name(outcome));
    if (failure) {
        td_event_end_class(&l.event, td_class_name(td_status_class(failure)));
        td_event_end_code(&l.event, td_code_name(td_status_code(failure)));
        td_event_end_message(&l.event, td_status_message(failure));
    }
    td_event_end_step(&l.event, step);
    send_line(e, &l);
}
