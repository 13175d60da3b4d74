// See the header. A field's key is in the table as it is written, so that it is copied and never
// formatted. Nor are numbers formatted, which saves most of the time of a short line.

#include "lib/attempt/event_writer.h"

#include <string.h>

#include "lib/attempt/segments.h"
#include "lib/base/clip.h"

static void keep(struct td_event_writer *w, td_status take_status) {
    if (w->failed) {
        td_status_free(take_status);
    } else {
        w->failed = take_status;
    }
}

static void append(struct td_event_writer *w, const char *text, size_t bytes) {
    if (!w->failed) w->failed = td_buf_append(w->out, text, bytes);
}

static void append_int(struct td_event_writer *w, int64_t value) {
    char digits[20]; // of any int64_t with its sign
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (value < 0) digits[--at] = '-';
    append(w, digits + at, sizeof digits - at);
}

static void append_text(struct td_event_writer *w, const char *text) {
    char cut[TD_EVENT_TEXT_BYTES];
    size_t bytes = strnlen(text, sizeof cut);
    if (bytes == sizeof cut) {
        (void)td_clip(cut, sizeof cut, "%s", text);
        text = cut;
        bytes = strlen(cut);
    }
    if (!w->failed) w->failed = td_json_print_string(text, bytes, w->out);
}

void td_event_open(struct td_event_writer *w, enum td_event_kind kind, struct td_buf *out) {
    TD_CHECK(kind > TD_EVENT_UNKNOWN && kind < TD_EVENT_COUNT);
    *w = (struct td_event_writer){.out = out, .row = &td_event_rows[kind]};
    append(w, w->row->head, w->row->head_bytes);
}

td_status td_event_close(struct td_event_writer *w) {
    TD_CHECK(w->row && !w->list && "a list is open, or the event was closed");
    for (size_t i = w->row->first; i < (size_t)w->row->past; i++) {
        bool there = (w->has >> (i - w->row->first)) & 1;
        TD_CHECK((there || td_event_fields[i].need == TD_EVENT_OPTIONAL) && "a field is missing");
    }
    append(w, "}", 1);
    w->row = NULL;
    return td_steal(w->failed);
}

void td_event_rank(struct td_event_writer *w, int64_t rank) {
    append(w, ",\"rank\":", 8);
    append_int(w, rank);
}

void td_event_real_ns(struct td_event_writer *w, int64_t real_ns) {
    append(w, ",\"real_ns\":", 11);
    append_int(w, real_ns);
}

// ---- fields -------------------------------------------------------------------------------------
static void put_key(struct td_event_writer *w, enum td_event_at at, enum td_event_type type) {
    const struct td_event_field *f = &td_event_fields[at];
    TD_CHECK(w->row && at >= w->row->first && at < w->row->past && "a field of another event");
    uint64_t bit = UINT64_C(1) << (at - w->row->first);
    TD_CHECK(f->type == type && !(w->has & bit) && !w->list);
    w->has |= bit;
    append(w, f->head, f->head_bytes);
}

void td_event_put_int(struct td_event_writer *w, enum td_event_at at, int64_t value) {
    put_key(w, at, TD_EVENT_INT);
    append_int(w, value);
}

void td_event_put_bool(struct td_event_writer *w, enum td_event_at at, bool value) {
    put_key(w, at, TD_EVENT_BOOL);
    append(w, value ? "true" : "false", value ? 4 : 5);
}

void td_event_put_text(struct td_event_writer *w, enum td_event_at at, const char *value) {
    put_key(w, at, TD_EVENT_TEXT);
    append_text(w, value);
}

void td_event_put_object(struct td_event_writer *w, enum td_event_at at, const struct td_json *v) {
    put_key(w, at, TD_EVENT_OBJECT);
    keep(w, td_json_print(v, false, w->out));
}

// ---- lists --------------------------------------------------------------------------------------
void td_event_put_list(struct td_event_writer *w, enum td_event_at at, enum td_event_type type) {
    TD_CHECK(type == TD_EVENT_FILES || type == TD_EVENT_METRICS);
    put_key(w, at, type);
    append(w, type == TD_EVENT_FILES ? "[" : "{", 1);
    w->list = type == TD_EVENT_FILES ? ']' : '}';
    w->list_begun = false;
}

static void next_item(struct td_event_writer *w, char list) {
    TD_CHECK(w->list == list && "an item outside of its list");
    if (w->list_begun) append(w, ",", 1);
    w->list_begun = true;
}

void td_event_add_file(struct td_event_writer *w, const char *name, uint64_t bytes,
                       const char *digest) {
    next_item(w, ']');
    append(w, "{\"name\":", 8);
    append_text(w, name);
    append(w, ",\"bytes\":", 9);
    append_int(w, (int64_t)bytes);
    append(w, ",\"digest\":", 10);
    append_text(w, digest);
    append(w, "}", 1);
}

void td_event_add_metric(struct td_event_writer *w, const char *name, double value) {
    next_item(w, '}');
    append_text(w, name);
    append(w, ":", 1);
    if (!w->failed) w->failed = td_json_print_value(value, w->out);
}

void td_event_end_list(struct td_event_writer *w) {
    TD_CHECK(w->list && "no list is open");
    append(w, &w->list, 1);
    w->list = 0;
}
