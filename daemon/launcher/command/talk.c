// See the header.

#include "daemon/launcher/command/talk.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clip.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"

enum {
    MESSAGES_A_DRAIN = 64,
    DRAINS_AT_END = 64, // more than a socket holds
    PATH_TEXT = 4096,
};
#define SAMPLES_MOST (INT64_C(1) << 53)

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
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)td_clip(whole, sizeof whole,
                  "rank %d wrote to TRAIND_FD what traind does not take, and nothing of that line "
                  "counts: %s",
                  r->rank, text);
    note(l, r, whole);
}

// ---- reading ------------------------------------------------------------------------------------
// What a line says, once all of it can be taken: a line of which a part is refused changes nothing.
struct line {
    int64_t step, epoch, total_steps, samples; // -1: absent
    const struct td_json *metrics;             // NULL: absent, as the next
    const char *note;
    const char *checkpoint; // its path; NULL: absent
    int64_t checkpoint_step, checkpoint_epoch;
    const struct td_json *checkpoint_metrics;
};

// A number from 0 that fits; -1: absent. False: refused.
static bool number(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                   const char *key, int64_t most, int64_t *out_value) {
    const struct td_json *n = td_json_get(v, key);
    *out_value = n ? td_json_int(n, -1) : -1;
    if (!n || (*out_value >= 0 && *out_value <= most)) return true;
    refuse(l, r, "'%s' is an integer from 0 to %lld", key, (long long)most);
    return false;
}

// NULL: absent. False: refused.
static bool metrics(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                    const struct td_json **out_metrics) {
    const struct td_json *list = td_json_get(v, "metrics");
    bool fit = !list || list->kind == TD_JSON_OBJECT;
    double ignored;
    *out_metrics = list;
    if (!fit) refuse(l, r, "'metrics' is an object of numbers by name");
    for (const struct td_json *m = list && fit ? list->first : NULL; m; m = m->next) {
        if (td_metric_name_fits(m->key) && td_json_value(m, &ignored)) continue;
        refuse(l, r,
               "metric '%s': a name has 1 to %d bytes, a value is a number, \"nan\", \"inf\" or "
               "\"-inf\"",
               m->key, TD_METRIC_NAME_BYTES - 1);
        fit = false;
    }
    return fit;
}

static bool checkpoint(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                       struct line *out) {
    out->checkpoint = td_json_string(td_json_get(v, "path"), "");
    if (out->checkpoint[0] != '/' || strlen(out->checkpoint) >= PATH_TEXT) {
        refuse(l, r, "a checkpoint's path is absolute, and shorter than %d bytes", PATH_TEXT);
        return false;
    }
    if (access(out->checkpoint, F_OK) != 0) {
        refuse(l, r, "checkpoint '%.256s': %s", out->checkpoint, strerror(errno));
        return false;
    }
    bool fits = number(l, r, v, "step", INT32_MAX, &out->checkpoint_step);
    fits &= number(l, r, v, "epoch", INT32_MAX, &out->checkpoint_epoch);
    fits &= metrics(l, r, v, &out->checkpoint_metrics);
    return fits;
}

// False: refused, and everything that is wrong with it is noted.
static bool read_line(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                      struct line *out) {
    const struct td_json *note = td_json_get(v, "note"), *c = td_json_get(v, "checkpoint");
    *out = (struct line){.note = td_json_string(note, "")};
    bool fits = number(l, r, v, "step", INT32_MAX, &out->step);
    fits &= number(l, r, v, "epoch", INT32_MAX, &out->epoch);
    fits &= number(l, r, v, "total_steps", INT32_MAX, &out->total_steps);
    fits &= number(l, r, v, "samples", SAMPLES_MOST, &out->samples);
    fits &= metrics(l, r, v, &out->metrics);
    if (note && note->kind != TD_JSON_STRING) {
        refuse(l, r, "'note' is a text");
        fits = false;
    }
    if (c && c->kind != TD_JSON_OBJECT) {
        refuse(l, r, "'checkpoint' is an object");
        fits = false;
    } else if (c) {
        fits &= checkpoint(l, r, c, out);
    }
    return fits;
}

// ---- taking -------------------------------------------------------------------------------------
static void push(struct td_launch_rank *r, const struct td_metric_point *p) {
    // This thread is also the reader: no point is lost to pace. A new name is two records.
    if (td_ring_room(&r->ring) < 2) td_launch_rank_drain_metrics(r);
    (void)td_metric_names_push(&r->said_names, &r->ring, p);
}

static void push_closed(struct td_launch_rank *r, bool all) {
    struct td_metric_point p;
    while (td_talk_values_take(&r->values, td_mono_now(), all, &p)) {
        push(r, &p);
    }
}

static void note_drop(struct td_launcher *l, struct td_launch_rank *r,
                      const struct td_metric_point *p, enum td_talk_said said) {
    char text[512];
    if (r->noted[said]) return; // the first one of a kind is named, all are counted
    r->noted[said] = true;
    (void)td_clip(text, sizeof text,
                  said == TD_TALK_REPEATED
                      ? "rank %d logged '%s' at step %d again, after that value was closed; such "
                        "repeats are dropped, and counted as dropped points"
                      : "rank %d logged '%s' at step %d, past the bound of names; such "
                        "values are dropped, and counted as dropped points",
                  r->rank, p->name, p->step);
    note(l, r, text);
}

static void take_metrics(struct td_launcher *l, struct td_launch_rank *r, const struct td_json *v,
                         int64_t open_ns) {
    struct td_metric_point p = {.step = r->said_step,
                                .epoch = td_rank_page_progress(r->page).epoch,
                                .count = 1,
                                .real_ns = td_real_now().ns,
                                .flags = TD_METRIC_SUM_COUNT};
    for (v = v->first; v; v = v->next) {
        snprintf(p.name, sizeof p.name, "%s", v->key);
        (void)td_json_value(v, &p.sum);
        enum td_talk_said said = td_talk_values_say(&r->values, &p, td_mono_now(), open_ns);
        if (said != TD_TALK_TAKEN) {
            note_drop(l, r, &p, said);
            continue;
        }
        if (p.step < td_rank_page_progress(r->page).step) continue; // late: a newer loss is shown
        if (strcmp(p.name, "loss") != 0 && strcmp(p.name, "train_loss") != 0) continue;
        float loss = (float)p.sum;
        uint32_t bits;
        memcpy(&bits, &loss, sizeof bits);
        atomic_store(&r->page->last_loss_bits, bits);
    }
    push_closed(r, false);
}

// A line belongs to the step that it names, else to the last one that was named. A rank that never
// named one counts its lines with metrics, from 0.
static void take_step(struct td_launch_rank *r, const struct line *line) {
    if (line->step >= 0) {
        r->gives_steps = true;
        r->said_step = (int32_t)line->step;
    } else if (!r->gives_steps && line->metrics && line->metrics->first) {
        r->said_step = r->n_counted;
        if (r->n_counted < INT32_MAX) r->n_counted++;
    }
}

static void take_progress(struct td_launcher *l, struct td_launch_rank *r,
                          const struct line *line) {
    struct td_rank_page *p = r->page;
    take_step(r, line);
    if (line->epoch >= 0) atomic_store(&p->epoch, (int32_t)line->epoch);
    if (line->total_steps >= 0) atomic_store(&p->total_steps, line->total_steps);
    if (line->samples >= 0) atomic_store(&p->samples, line->samples);
    // A value that comes late, at a lower step, takes back no progress.
    if (r->said_step > td_rank_page_progress(p).step) atomic_store(&p->step, r->said_step);
    if (r->stepped || r->said_step == 0) return;
    r->stepped = true;
    struct td_event_writer event;
    td_journal_begin(&l->journal, TD_EVENT_STEP1, &event);
    td_event_rank(&event, r->rank);
    td_event_step1_step(&event, r->said_step);
    td_journal_append(&l->journal, &event);
}

static void take_checkpoint(struct td_launcher *l, struct td_launch_rank *r,
                            const struct line *line) {
    const struct td_rank_progress progress = td_rank_page_progress(r->page);
    int64_t step = progress.step, epoch = progress.epoch;
    if (line->checkpoint_step >= 0) step = line->checkpoint_step;
    if (line->checkpoint_epoch >= 0) epoch = line->checkpoint_epoch;
    push_closed(r, true);
    td_launch_rank_drain_metrics(r); // the points before it are in the files first
    struct td_event_writer event;
    td_journal_begin(&l->journal, TD_EVENT_REGISTERED, &event);
    td_event_rank(&event, r->rank);
    td_event_registered_step(&event, step);
    td_event_registered_epoch(&event, epoch);
    td_event_registered_directory(&event, line->checkpoint);
    td_event_registered_metrics(&event);
    const struct td_json *list = line->checkpoint_metrics;
    for (const struct td_json *m = list ? list->first : NULL; m; m = m->next) {
        double value = (double)NAN;
        (void)td_json_value(m, &value);
        td_event_add_metric(&event, m->key, value);
    }
    td_event_end_list(&event);
    td_journal_append(&l->journal, &event);
    td_status_log(TD_LOG_ERROR, td_journal_sync(&l->journal),
                  "a registered checkpoint, continuing");
}

// ---- messages -----------------------------------------------------------------------------------
static void take_line(struct td_launcher *l, struct td_launch_rank *r, const char *text,
                      size_t bytes) {
    struct td_json *v = NULL;
    struct line line;
    td_arena_reset(l->arena);
    td_status s = td_json_parse(l->arena, text, bytes, &v);
    if (s || v->kind != TD_JSON_OBJECT) {
        refuse(l, r, "%s: '%.*s'", s ? td_status_message(s) : "a line is a JSON object",
               (int)TD_MIN(bytes, (size_t)80), text);
        td_status_free(s);
        return;
    }
    if (!read_line(l, r, v, &line)) return;
    take_progress(l, r, &line);
    if (line.metrics) take_metrics(l, r, line.metrics, TD_TALK_OPEN_NS);
    if (line.checkpoint) take_checkpoint(l, r, &line);
    if (!line.note[0]) return;
    char shown[512];
    (void)td_clip(shown, sizeof shown, "%s", line.note);
    note(l, r, shown);
}

// The rank itself said nothing: it cannot be silent by that, and its own last step stays.
void td_talk_report(struct td_launcher *l, const struct td_json *v) {
    const int64_t at = td_json_int(td_json_get(v, "rank"), -1) - l->o.first_rank;
    if (at < 0 || at >= l->o.n_ranks) return;
    struct td_launch_rank *r = &l->ranks[at];
    const int32_t said_step = r->said_step;
    const bool gives_steps = r->gives_steps;
    const bool is_aside = td_json_bool(td_json_get(v, "aside"), false);
    struct line line;
    if (!read_line(l, r, v, &line)) return;
    r->has_steps |= !is_aside && line.step >= 0;
    if (line.step < 0) line.step = td_rank_page_progress(r->page).step;
    if (is_aside && (gives_steps || r->has_steps)) {
        r->said_step = (int32_t)line.step; // of its values alone
    } else {
        take_progress(l, r, &line);
    }
    if (line.metrics) take_metrics(l, r, line.metrics, TD_TALK_REPORT_OPEN_NS);
    r->said_step = said_step;
    r->gives_steps = gives_steps;
}

static void take_message(struct td_launcher *l, struct td_launch_rank *r, char *text,
                         size_t bytes) {
    r->speaks = true;
    atomic_store(&r->page->heartbeat_ns, td_mono_now().ns);
    const bool is_first = td_rank_page_progress(r->page).samples == 0;
    if (is_first) atomic_store(&r->page->samples, 1); // beats are due now
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
        if (n == 0 && !td_fd_has_ended(r->events_fd)) continue;
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

void td_talk_end(struct td_launcher *l, struct td_launch_rank *r) {
    for (int i = 0; i < DRAINS_AT_END && r->events_fd >= 0; i++) {
        td_talk_drain(l, r);
    }
    push_closed(r, true);
}

void td_talk_look(struct td_launcher *l) {
    for (int32_t i = 0; i < l->o.n_ranks; i++) {
        push_closed(&l->ranks[i], false);
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
