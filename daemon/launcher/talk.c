// See the header.

#include "daemon/launcher/talk.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fit.h"
#include "lib/base/json.h"
#include "lib/base/log.h"

enum { MESSAGES_A_DRAIN = 64, ARENA_BYTES = 4 << 20, PATH_TEXT = 4096 };

static void note(struct td_launcher *l, struct td_launch_rank *r, const char *text) {
    if (r->n_notes == TD_TALK_NOTES) return;
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_NOTE, &line);
    td_event_rank(&line, r->rank);
    char last[128];
    snprintf(last, sizeof last,
             "rank %d has written %d notes, the most of one rank: more are dropped", r->rank,
             TD_TALK_NOTES);
    td_event_note_text(&line, ++r->n_notes == TD_TALK_NOTES ? last : text);
    td_journal_append(&l->journal, &line);
}

static void refuse(struct td_launcher *l, struct td_launch_rank *r, const char *fmt, ...)
    TD_PRINTF(3, 4);
static void refuse(struct td_launcher *l, struct td_launch_rank *r, const char *fmt, ...) {
    char text[512], whole[640];
    va_list ap;
    va_start(ap, fmt);
    (void)td_fit_v(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)td_fit(whole, sizeof whole, "rank %d wrote to TRAIND_FD what traind does not take: %s",
                 r->rank, text);
    note(l, r, whole);
}

// ---- metrics ------------------------------------------------------------------------------------
static void push(struct td_launch_rank *r, const struct td_metric_record *m) {
    if (td_ring_push(&r->ring, m)) return;
    td_launch_rank_drain_metrics(r); // this thread is also the reader: no point is lost to pace
    (void)td_ring_push(&r->ring, m);
}

static void take_metrics(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v) {
    struct td_metric_record m = {.step = (int32_t)atomic_load(&r->page->step),
                                 .epoch = atomic_load(&r->page->epoch),
                                 .count = 1,
                                 .real_ns = td_real_now().ns,
                                 .flags = TD_METRIC_SUM_COUNT};
    for (v = v->first; v; v = v->next) {
        size_t len = strlen(v->key);
        bool is_number = v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL ||
                         v->kind == TD_JSON_NULL; // null: not a number
        if (len == 0 || len >= sizeof m.name || !is_number) {
            refuse(l, r, "metric '%s': a name has 1 to %zu bytes, a value is a number or null",
                   v->key, sizeof m.name - 1);
            continue;
        }
        memset(m.name, 0, sizeof m.name);
        memcpy(m.name, v->key, len);
        m.sum = td_json_real(v, (double)NAN);
        push(r, &m);
        if (strcmp(m.name, "loss") != 0 && strcmp(m.name, "train_loss") != 0) continue;
        float loss = (float)m.sum;
        uint32_t bits;
        memcpy(&bits, &loss, sizeof bits);
        atomic_store(&r->page->last_loss_bits, bits);
    }
}

// ---- progress -----------------------------------------------------------------------------------
// A number from 0 that fits; false: absent, or refused.
static bool number(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                   const char *key, int64_t *out_value) {
    const struct td_json *n = td_json_get(v, key);
    if (!n) return false;
    if (n->kind != TD_JSON_INT || n->u.integer < 0 || n->u.integer > INT32_MAX) {
        refuse(l, r, "'%s' is an integer from 0 to %d", key, INT32_MAX);
        return false;
    }
    *out_value = n->u.integer;
    return true;
}

static void take_progress(struct td_launcher *l, struct td_launch_rank *r,
                          const struct td_json *v) {
    int64_t n;
    if (number(l, r, v, "epoch", &n)) atomic_store(&r->page->epoch, (int32_t)n);
    if (number(l, r, v, "total_steps", &n)) atomic_store(&r->page->total_steps, n);
    if (number(l, r, v, "samples", &n)) atomic_store(&r->page->samples, n);
    if (!number(l, r, v, "step", &n)) return;
    atomic_store(&r->page->step, n);
    if (r->stepped || n == 0) return;
    r->stepped = true;
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_STEP1, &line);
    td_event_rank(&line, r->rank);
    td_event_step1_step(&line, n);
    td_journal_append(&l->journal, &line);
}

// ---- checkpoints --------------------------------------------------------------------------------
static void take_checkpoint(struct td_launcher *l, struct td_launch_rank *r,
                            const struct td_json *v) {
    const char *path = td_json_string(td_json_get(v, "path"), "");
    int64_t step = atomic_load(&r->page->step), epoch = atomic_load(&r->page->epoch);
    if (path[0] != '/' || strlen(path) >= PATH_TEXT) {
        refuse(l, r, "a checkpoint's path is absolute, and shorter than %d bytes", PATH_TEXT);
        return;
    }
    if (access(path, F_OK) != 0) {
        refuse(l, r, "checkpoint '%.256s': %s", path, strerror(errno));
        return;
    }
    (void)number(l, r, v, "step", &step);
    (void)number(l, r, v, "epoch", &epoch);
    td_launch_rank_drain_metrics(r); // the points before it are in the files first
    struct td_event_writer line;
    td_journal_begin(&l->journal, TD_EVENT_REGISTERED, &line);
    td_event_rank(&line, r->rank);
    td_event_registered_step(&line, step);
    td_event_registered_epoch(&line, epoch);
    td_event_registered_directory(&line, path);
    const struct td_json *metrics = td_json_get(v, "metrics");
    td_event_registered_metrics(&line);
    bool ok = metrics && metrics->kind == TD_JSON_OBJECT;
    for (const struct td_json *m = ok ? metrics->first : NULL; m; m = m->next) {
        td_event_add_metric(&line, m->key, td_json_real(m, (double)NAN));
    }
    td_event_end_list(&line);
    td_journal_append(&l->journal, &line);
    td_status_log(TD_LOG_ERROR, td_journal_sync(&l->journal),
                  "a registered checkpoint, continuing");
}

// ---- messages -----------------------------------------------------------------------------------
static void take_line(struct td_launcher *l, struct td_launch_rank *r, const char *text,
                      size_t bytes) {
    struct td_json *v = NULL;
    td_arena_reset(l->arena);
    td_status s = td_json_parse(l->arena, text, bytes, &v);
    if (s || v->kind != TD_JSON_OBJECT) {
        refuse(l, r, "%s: '%.*s'", s ? td_status_message(s) : "a line is a JSON object",
               (int)TD_MIN(bytes, (size_t)80), text);
        td_status_free(s);
        return;
    }
    take_progress(l, r, v);
    const struct td_json *metrics = td_json_get(v, "metrics"), *c = td_json_get(v, "checkpoint");
    if (metrics && metrics->kind == TD_JSON_OBJECT) take_metrics(l, r, metrics);
    if (c && c->kind == TD_JSON_OBJECT) take_checkpoint(l, r, c);
    const char *words = td_json_string(td_json_get(v, "note"), "");
    if (!words[0]) return;
    char shown[512];
    (void)td_fit(shown, sizeof shown, "%s", words);
    note(l, r, shown);
}

static void take_message(struct td_launcher *l, struct td_launch_rank *r, char *text,
                         size_t bytes) {
    r->speaks = true;
    atomic_store(&r->page->heartbeat_ns, td_mono_now().ns);
    if (!atomic_load(&r->page->samples)) atomic_store(&r->page->samples, 1); // beats are due now
    for (char *at = text, *end = text + bytes; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) : (size_t)(end - at);
        if (n > 0) take_line(l, r, at, n);
        at += n + 1;
    }
}

void td_talk_drain(struct td_launcher *l, struct td_launch_rank *r) {
    static char text[TD_EVENT_MAX + 1];
    for (int i = 0; i < MESSAGES_A_DRAIN && r->events_fd >= 0; i++) {
        ssize_t n = recv(r->events_fd, text, sizeof text, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) { // it closed it, or is gone
            close(r->events_fd);
            r->events_fd = -1;
        } else if (n > TD_EVENT_MAX) {
            refuse(l, r, "a message over %d bytes", TD_EVENT_MAX);
        } else {
            take_message(l, r, text, (size_t)n);
        }
    }
}

static void tell(const struct td_launch_rank *r, const char *line) {
    if (r->events_fd < 0 || !td_launch_rank_runs(r)) return;
    (void)send(r->events_fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void td_talk_stop(struct td_launcher *l, int mode) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        tell(&l->ranks[i],
             mode == TD_STOP_CHECKPOINT ? "{\"stop\":\"checkpoint\"}\n" : "{\"stop\":\"now\"}\n");
    }
}

void td_talk_save(struct td_launcher *l) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        tell(&l->ranks[i], "{\"save\":true}\n");
    }
}

void td_talk_answer(struct td_launcher *l, struct td_launch_rank *r) {
    unsigned char byte = 0;
    if (r->answer_fd < 0) return;
    ssize_t n = read(r->answer_fd, &byte, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close(r->answer_fd);
    r->answer_fd = -1;
    if (n == 1) {
        r->exec_errno = byte;
        return;
    }
    if (r->exited) return;
    struct td_event_writer line;
    if (td_launcher_talks(l)) atomic_store(&r->page->phase, TD_PHASE_TRAINING);
    td_journal_begin(&l->journal, TD_EVENT_READY, &line);
    td_event_rank(&line, r->rank);
    td_event_ready_pid(&line, r->proc.pid);
    td_journal_append(&l->journal, &line);
}
