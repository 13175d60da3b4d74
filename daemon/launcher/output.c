// See the header.

#include "daemon/launcher/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/attempt/segments.h"

enum { MARK_BYTES = 128 };

// ---- the cap ------------------------------------------------------------------------------------
static uint64_t room_of(const struct td_launch_stream *s, const struct td_launch_stream *other) {
    const uint64_t tails = 2 * (uint64_t)(TD_OUTPUT_TAIL + MARK_BYTES);
    const uint64_t taken = TD_MAX(other->file_bytes, (uint64_t)TD_OUTPUT_OWN) + tails;
    const uint64_t most = TD_SEGMENT_LOG_MAX - TD_MIN(taken, (uint64_t)TD_SEGMENT_LOG_MAX);
    return most - TD_MIN(s->file_bytes, most);
}

static void keep_in_tail(struct td_launch_stream *s, const char *data, size_t n) {
    if (!s->tail) s->tail = td_calloc(1, TD_OUTPUT_TAIL);
    const uint64_t before = s->tail_bytes;
    s->tail_bytes += n;
    if (!s->tail) {
        s->dropped_bytes += n;
        return;
    }
    const uint64_t lost = s->tail_bytes - TD_MIN(s->tail_bytes, (uint64_t)TD_OUTPUT_TAIL);
    s->dropped_bytes += lost - (before - TD_MIN(before, (uint64_t)TD_OUTPUT_TAIL));
    const size_t skip = n > TD_OUTPUT_TAIL ? n - TD_OUTPUT_TAIL : 0;
    for (size_t i = skip; i < n; i++) {
        s->tail[(before + i) % TD_OUTPUT_TAIL] = data[i];
    }
}

static void keep(struct td_launch_stream *s, const struct td_launch_stream *other, const char *data,
                 size_t n) {
    const size_t fits = s->tail_bytes ? 0 : (size_t)TD_MIN((uint64_t)n, room_of(s, other));
    if (fits && !td_launch_file_append(s->file_fd, &s->file_bytes, data, fits)) {
        s->dropped_bytes += fits;
    }
    if (fits) s->line.open = data[fits - 1] != '\n';
    if (n > fits) keep_in_tail(s, data + fits, n - fits);
}

// The end of what is past the cap, from the beginning of a line.
static void write_tail(struct td_launch_stream *s) {
    static char text[MARK_BYTES + TD_OUTPUT_TAIL]; // one thread
    const size_t n = (size_t)TD_MIN(s->tail_bytes, (uint64_t)TD_OUTPUT_TAIL);
    const uint64_t from = s->tail_bytes - n;
    if (!s->tail || n == 0) return;
    char *at = text + MARK_BYTES, *end = at + n;
    for (size_t i = 0; i < n; i++) {
        at[i] = s->tail[(from + i) % TD_OUTPUT_TAIL];
    }
    const char *line = from ? memchr(at, '\n', n) : NULL;
    if (line && line + 1 < end) {
        s->dropped_bytes += (uint64_t)(line + 1 - at);
        at += line + 1 - at;
    }
    char mark[MARK_BYTES];
    const int len = snprintf(mark, sizeof mark,
                             "%s[traind: %llu bytes past the log cap are left "
                             "out here]\n",
                             s->line.open ? "\n" : "", (unsigned long long)s->dropped_bytes);
    if (s->dropped_bytes) at = memcpy(at - len, mark, (size_t)len);
    if (!td_launch_file_append(s->file_fd, &s->file_bytes, at, (size_t)(end - at))) {
        s->dropped_bytes += (uint64_t)(end - at);
    }
}

// ---- lines that are written over ----------------------------------------------------------------
static bool is_blank(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && text[i] == ' ') {
        i++;
    }
    return i == n;
}

// As a line. The buffer has room for its end.
static void put_line(struct td_launch_stream *s, const struct td_launch_stream *other, char *text,
                     size_t n) {
    text[n] = '\n';
    keep(s, other, text, n + 1);
    s->line.written = td_mono_now();
    s->line.n_kept = 0;
}

static bool is_due(const struct td_output_line *l, struct td_mono now) {
    return l->written.ns == 0 || now.ns - l->written.ns >= TD_OUTPUT_SHOW_S * TD_NS_PER_S;
}

// A version is whole, and another one begins.
static void next_version(struct td_launch_stream *s, const struct td_launch_stream *other) {
    struct td_output_line *l = &s->line;
    if (!l->shown && !is_blank(l->text, l->n)) {
        if (is_due(l, td_mono_now())) {
            put_line(s, other, l->text, l->n);
        } else {
            memcpy(l->kept, l->text, l->n);
            l->n_kept = l->n;
        }
    }
    l->n = 0;
    l->shown = false;
}

// No other version comes. What a bar leaves blank is gone from a terminal, too.
static void end_line(struct td_launch_stream *s, const struct td_launch_stream *other) {
    struct td_output_line *l = &s->line;
    if (l->n == 0 && l->n_kept) {
        put_line(s, other, l->kept, l->n_kept);
    } else if (!l->shown && !is_blank(l->text, l->n)) {
        put_line(s, other, l->text, l->n);
    }
    l->is = l->cr = l->goes_up = l->below = l->shown = false;
    l->n = l->n_kept = 0;
}

static void begin_line(struct td_launch_stream *s, const struct td_launch_stream *other) {
    if (s->line.open) { // the first version: it was written as it came
        keep(s, other, "\n", 1);
        s->line.written = td_mono_now();
    }
    s->line.is = true;
    s->line.cr = s->line.shown = false;
    s->line.n = s->line.n_kept = 0;
}

// Longer than a bar: text, from its beginning on.
static void give_up(struct td_launch_stream *s, const struct td_launch_stream *other) {
    keep(s, other, s->line.text, s->line.n);
    s->line.n = s->line.n_kept = 0;
    end_line(s, other);
}

static void add(struct td_launch_stream *s, const struct td_launch_stream *other, char c) {
    struct td_output_line *l = &s->line;
    l->shown = false;
    l->text[l->n++] = c;
    if (l->n >= 3 && memcmp(l->text + l->n - 3, "\x1b[A", 3) == 0) {
        l->n -= 3;
        l->goes_up = true;
    }
    if (l->n == TD_OUTPUT_VERSION) give_up(s, other);
}

// A byte of a line that is written over. False: it is of another line.
static bool take_byte(struct td_launch_stream *s, const struct td_launch_stream *other, char c) {
    struct td_output_line *l = &s->line;
    if (l->below && c != '\r') {
        end_line(s, other);
        return false;
    }
    l->below = false;
    if (c == '\r') {
        l->cr = true;
    } else if (c == '\n' && l->goes_up) {
        next_version(s, other);
        l->below = true;
        l->cr = false;
    } else if (c == '\n') {
        end_line(s, other);
    } else {
        if (l->cr) next_version(s, other);
        l->cr = false;
        add(s, other, c);
    }
    return true;
}

// The first carriage return that no newline follows; the last byte of all may be one.
static const char *find_return(const char *data, size_t n) {
    const char *end = data + n, *at = data;
    while ((at = memchr(at, '\r', (size_t)(end - at))) && at + 1 < end && at[1] == '\n') {
        at++;
    }
    return at;
}

void td_output_take(struct td_launch_stream *s, const struct td_launch_stream *other,
                    const char *data, size_t n) {
    struct td_output_line *l = &s->line;
    const char *end = data + n;
    while (data < end) {
        if (l->is) {
            if (take_byte(s, other, *data)) data++;
        } else if (l->cr && *data == '\n') {
            l->cr = false;
            keep(s, other, "\r", 1);
        } else if (l->cr) {
            begin_line(s, other);
        } else {
            const char *at = find_return(data, (size_t)(end - data));
            if (at != data) keep(s, other, data, (size_t)((at ? at : end) - data));
            l->cr = at;
            data = at ? at + 1 : end;
        }
    }
    if (l->is) l->moved = td_mono_now();
}

void td_output_look(struct td_launch_stream *s, const struct td_launch_stream *other,
                    struct td_mono now) {
    struct td_output_line *l = &s->line;
    const bool still = l->is && now.ns - l->moved.ns >= TD_NS_PER_S / 2;
    if (!still || !is_due(l, now)) return;
    if (!l->shown && !is_blank(l->text, l->n)) {
        put_line(s, other, l->text, l->n);
        l->shown = true;
    } else if (l->n_kept) {
        put_line(s, other, l->kept, l->n_kept);
    }
}

void td_output_end(struct td_launch_stream *s, const struct td_launch_stream *other) {
    if (s->line.is) end_line(s, other);
    s->line.cr = false;
    write_tail(s);
    td_output_finish(s);
}

void td_output_finish(struct td_launch_stream *s) {
    free(s->tail);
    s->tail = NULL;
    s->tail_bytes = 0;
}
