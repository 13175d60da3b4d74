#ifndef TRAIND_LIB_ATTEMPT_EVENTS_H
#define TRAIND_LIB_ATTEMPT_EVENTS_H

// Events: what events.def lists, as kinds, structs and one parser (event_writer.h writes them).
//
// A line is parsed once; its fields are then members of a struct, found by the row and never by a
// key that a reader spells. A line that does not fit its row is refused and the field is named: one
// that is REQUIRED is missing, or one has another type. Fields that the row does not have are
// ignored, and so is an event that no row has (TD_EVENT_UNKNOWN): a newer build wrote it. Who only
// looks for one kind in a file asks td_event_line_is, which compares the first bytes.
//
// A field that is absent reads as 0, false, "" or NULL; `has` says which. Texts and trees belong to
// the arena of the parsed line. Numbers are as they came, also below zero: who stores them bounds
// them. Thread: any; the tables are const. Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED without
// memory. Rejected: a handler that reads its keys itself; writer and reader then agree by luck.

#include "lib/base/json.h"

enum td_event_kind {
    TD_EVENT_UNKNOWN,
#define TD_EVENT(kind, event, prose) TD_EVENT_##kind,
#include "lib/attempt/events.def"
    TD_EVENT_COUNT,
};

// The same by the event's own name: TD_EVENT_OF(end) is TD_EVENT_END.
#define TD_EVENT_OF(event) td_event_kind_##event
enum td_event_kind_by_name {
#define TD_EVENT(kind, event, prose) TD_EVENT_OF(event) = TD_EVENT_##kind,
#include "lib/attempt/events.def"
};

// Where each field is in td_event_fields.
#define TD_EVENT_AT(event, field) td_event_at_##event##_##field
enum td_event_at {
#define TD_EVENT(kind, event, prose)                                                               \
    td_event_first_##event, td_event_before_##event = td_event_first_##event - 1,
#define TD_FIELD(event, field, type, need, prose) TD_EVENT_AT(event, field),
#define TD_EVENT_DONE(event)                                                                       \
    td_event_past_##event, td_event_last_##event = td_event_past_##event - 1,
#include "lib/attempt/events.def"
    TD_EVENT_FIELDS,
};

enum td_event_party {
    TD_PARTY_RANK,
    TD_PARTY_LAUNCHER,
    TD_PARTY_NODE,
    TD_PARTY_COORDINATOR,
    TD_PARTY_RUN,
    TD_PARTY_PEOPLE,
    TD_PARTY_COUNT,
};

enum td_event_type {
    TD_EVENT_INT,
    TD_EVENT_BOOL,
    TD_EVENT_TEXT,
    TD_EVENT_OBJECT,
    TD_EVENT_FILES,
    TD_EVENT_METRICS,
};

enum td_event_need { TD_EVENT_REQUIRED, TD_EVENT_WRITTEN, TD_EVENT_OPTIONAL };

// ---- one struct an event ------------------------------------------------------------------------
#define TD_EVENT_C_INT     int64_t
#define TD_EVENT_C_BOOL    bool
#define TD_EVENT_C_TEXT    const char *
#define TD_EVENT_C_OBJECT  const struct td_json *
#define TD_EVENT_C_FILES   const struct td_json * // items: td_event_file_of
#define TD_EVENT_C_METRICS const struct td_json *

// has: bit i is set if the i-th field of the row is there (TD_EVENT_HAS).
#define TD_EVENT(kind, event, prose)                                                               \
    struct td_event_##event {                                                                      \
        uint64_t has;
#define TD_FIELD(event, field, type, need, prose) TD_EVENT_C_##type field;
#define TD_EVENT_DONE(event)                                                                       \
    }                                                                                              \
    ;
#include "lib/attempt/events.def"

#define TD_EVENT_HAS(e, event, field)                                                              \
    (((e)->has >> (TD_EVENT_AT(event, field) - td_event_first_##event)) & 1)

struct td_event {
    enum td_event_kind kind;
    int64_t rank;    // -1: none
    int64_t real_ns; // 0: none
    union {
        uint64_t has; // the first member of each of the following
#define TD_EVENT(kind, event, prose) struct td_event_##event event;
#include "lib/attempt/events.def"
    };
};

// ---- the table ----------------------------------------------------------------------------------
struct td_event_field {
    const char *name, *head; // step; ,"step":
    size_t head_bytes;
    enum td_event_type type;
    enum td_event_need need;
    size_t offset; // in the event's struct
    const char *prose;
};
extern const struct td_event_field td_event_fields[TD_EVENT_FIELDS];

struct td_event_row {
    const char *name, *head; // end; {"event":"end"
    size_t head_bytes;
    enum td_event_at first, past; // its fields
    uint32_t writers, readers;    // bit enum td_event_party
    const char *prose;
};
extern const struct td_event_row td_event_rows[TD_EVENT_COUNT]; // that of TD_EVENT_UNKNOWN is empty

// ---- readers ------------------------------------------------------------------------------------
// The event of a line, or of a tree that was parsed already. On an error *out_event is unchanged.
TD_MUST_USE td_status td_event_parse(struct td_arena *a, const char *line, size_t bytes,
                                     struct td_event *out_event);
TD_MUST_USE td_status td_event_read(const struct td_json *line, struct td_event *out_event);
// The kind alone.
TD_MUST_USE td_status td_event_kind_of(const struct td_json *line, enum td_event_kind *out_kind);
enum td_event_kind td_event_kind_parse(const char *name, size_t bytes);
bool td_event_is_written_by(enum td_event_kind kind, enum td_event_party party);

// True of a line of that kind as a writer of traind begins it. The line has no NUL of its own.
bool td_event_line_is(const char *line, size_t bytes, enum td_event_kind kind);

// An item of FILES; what is absent or has another type is "" or -1.
struct td_event_file {
    const char *name, *digest;
    int64_t bytes;
};
struct td_event_file td_event_file_of(const struct td_json *item);

// The page of all events as Markdown (`traind --dump-events`, docs/events.md).
TD_MUST_USE td_status td_events_page(struct td_buf *out);

#endif
