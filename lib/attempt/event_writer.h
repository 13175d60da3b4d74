#ifndef TRAIND_LIB_ATTEMPT_EVENT_WRITER_H
#define TRAIND_LIB_ATTEMPT_EVENT_WRITER_H

// Event writer: one line of events.def into a buffer, field by field, without a tree between.
//
//   td_event_open(&w, TD_EVENT_REMOVED, &out);
//   td_event_removed_step(&w, 5);                  // one such function a field:
//   td_event_<event>_<field> td_event_removed_path(&w, "a1/step-5"); TD_TRY(td_event_close(&w)); //
//   {"event":"removed","step":5,"path":"a1/step-5"}
//
// The line has the fields in the order of the calls. A field of another event, one that is written
// twice and one that is missing at the end (REQUIRED or WRITTEN) are mistakes of the caller and
// checked. Texts of TD_EVENT_TEXT_BYTES or more end in "...", so that an event fits its datagram;
// bytes that are not UTF-8 become U+FFFD. Nothing here allocates but the buffer. Errors are kept:
// close returns the first one, and the buffer then holds a part of the line, which is the caller's
// to cut. Thread: the buffer's.

#include "lib/attempt/events.h"

struct td_event_writer {
    struct td_buf *out;
    const struct td_event_row *row;
    uint64_t has;
    char list;        // the bracket that ends the open list; 0: none is open
    bool list_begun;  // it has an item
    td_status failed; // the first error
};

void td_event_open(struct td_event_writer *w, enum td_event_kind kind, struct td_buf *out);
TD_MUST_USE td_status td_event_close(struct td_event_writer *w); // without a newline

// Of any event.
void td_event_rank(struct td_event_writer *w, int64_t rank);
void td_event_real_ns(struct td_event_writer *w, int64_t real_ns);

// Items of FILES and METRICS, whose own functions open the list.
void td_event_add_file(struct td_event_writer *w, const char *name, uint64_t bytes,
                       const char *digest);
void td_event_add_metric(struct td_event_writer *w, const char *name, double value);
void td_event_end_list(struct td_event_writer *w);

// By the place of a field; its type is checked.
void td_event_put_int(struct td_event_writer *w, enum td_event_at at, int64_t value);
void td_event_put_bool(struct td_event_writer *w, enum td_event_at at, bool value);
void td_event_put_text(struct td_event_writer *w, enum td_event_at at, const char *value);
void td_event_put_object(struct td_event_writer *w, enum td_event_at at, const struct td_json *v);
void td_event_put_list(struct td_event_writer *w, enum td_event_at at, enum td_event_type type);

// ---- by name ------------------------------------------------------------------------------------
#define TD_EVENT_PUT_INT(event, field)                                                             \
    static inline void td_event_##event##_##field(struct td_event_writer *w, int64_t value) {      \
        td_event_put_int(w, TD_EVENT_AT(event, field), value);                                     \
    }
#define TD_EVENT_PUT_BOOL(event, field)                                                            \
    static inline void td_event_##event##_##field(struct td_event_writer *w, bool value) {         \
        td_event_put_bool(w, TD_EVENT_AT(event, field), value);                                    \
    }
#define TD_EVENT_PUT_TEXT(event, field)                                                            \
    static inline void td_event_##event##_##field(struct td_event_writer *w, const char *value) {  \
        td_event_put_text(w, TD_EVENT_AT(event, field), value);                                    \
    }
#define TD_EVENT_PUT_OBJECT(event, field)                                                          \
    static inline void td_event_##event##_##field(struct td_event_writer *w,                       \
                                                  const struct td_json *value) {                   \
        td_event_put_object(w, TD_EVENT_AT(event, field), value);                                  \
    }
#define TD_EVENT_PUT_FILES(event, field)                                                           \
    static inline void td_event_##event##_##field(struct td_event_writer *w) {                     \
        td_event_put_list(w, TD_EVENT_AT(event, field), TD_EVENT_FILES);                           \
    }
#define TD_EVENT_PUT_METRICS(event, field)                                                         \
    static inline void td_event_##event##_##field(struct td_event_writer *w) {                     \
        td_event_put_list(w, TD_EVENT_AT(event, field), TD_EVENT_METRICS);                         \
    }
#define TD_FIELD(event, field, type, need, prose) TD_EVENT_PUT_##type(event, field)
#include "lib/attempt/events.def"

#endif
