// See the header. The table, and the parser that reads it.
//
// Writers keep the order of a row, so the next member of a line is nearly always the next field: a
// line is read in one pass. A foreign order only costs comparisons.

#include "lib/attempt/events.h"

#include <string.h>

#include "lib/attempt/segments.h"

// ---- the table ----------------------------------------------------------------------------------
const struct td_event_field td_event_fields[TD_EVENT_FIELDS] = {
#define TD_FIELD(event, field, type, need, prose)                                                  \
    [TD_EVENT_AT(event, field)] = {#field,                                                         \
                                   ",\"" #field "\":",                                             \
                                   sizeof ",\"" #field "\":" - 1,                                  \
                                   TD_EVENT_##type,                                                \
                                   TD_EVENT_##need,                                                \
                                   offsetof(struct td_event_##event, field),                       \
                                   prose},
#include "lib/attempt/events.def"
};

enum td_event_writers {
#define TD_EVENT(kind, event, prose) writers_of_##event = 0
#define TD_WRITER(event, party)      | 1 << TD_PARTY_##party
#define TD_EVENT_DONE(event)         ,
#include "lib/attempt/events.def"
};
enum td_event_readers {
#define TD_EVENT(kind, event, prose) readers_of_##event = 0
#define TD_READER(event, party)      | 1 << TD_PARTY_##party
#define TD_EVENT_DONE(event)         ,
#include "lib/attempt/events.def"
};

const struct td_event_row td_event_rows[TD_EVENT_COUNT] = {
#define TD_EVENT(kind, event, prose)                                                               \
    [TD_EVENT_##kind] = {#event,                                                                   \
                         "{\"event\":\"" #event "\"",                                              \
                         sizeof "{\"event\":\"" #event "\"" - 1,                                   \
                         td_event_first_##event,                                                   \
                         td_event_past_##event,                                                    \
                         writers_of_##event,                                                       \
                         readers_of_##event,                                                       \
                         prose},
#include "lib/attempt/events.def"
};

#define TD_EVENT(kind, event, prose)                                                               \
    _Static_assert(td_event_past_##event - td_event_first_##event <= 64, "a bit of `has` a "       \
                                                                         "field");
#include "lib/attempt/events.def"

// ---- kinds --------------------------------------------------------------------------------------
enum td_event_kind td_event_kind_parse(const char *name, size_t bytes) {
    for (enum td_event_kind k = TD_EVENT_UNKNOWN + 1; k < TD_EVENT_COUNT; k++) {
        const char *row = td_event_rows[k].name;
        if (row[0] == name[0] && strncmp(row, name, bytes) == 0 && !row[bytes]) return k;
    }
    return TD_EVENT_UNKNOWN;
}

td_status td_event_kind_of(const struct td_json *line, enum td_event_kind *out_kind) {
    const struct td_json *name = td_json_get(line, "event");
    if (!name || name->kind != TD_JSON_STRING) {
        return td_fail(TD_INVALID_ARGUMENT, "not an object with \"event\"");
    }
    *out_kind = td_event_kind_parse(name->u.string.data, name->u.string.len);
    return TD_OK;
}

bool td_event_is_written_by(enum td_event_kind kind, enum td_event_party party) {
    return (td_event_rows[kind].writers >> party) & 1;
}

bool td_event_line_is(const char *line, size_t bytes, enum td_event_kind kind) {
    const struct td_event_row *row = &td_event_rows[kind];
    return bytes >= row->head_bytes && memcmp(line, row->head, row->head_bytes) == 0;
}

// ---- one line -----------------------------------------------------------------------------------
static const enum td_json_kind json_of[] = {
    [TD_EVENT_INT] = TD_JSON_INT,     [TD_EVENT_BOOL] = TD_JSON_BOOL,
    [TD_EVENT_TEXT] = TD_JSON_STRING, [TD_EVENT_OBJECT] = TD_JSON_OBJECT,
    [TD_EVENT_FILES] = TD_JSON_ARRAY, [TD_EVENT_METRICS] = TD_JSON_OBJECT,
};
static const char *const words_of[] = {
    [TD_JSON_NULL] = "null",        [TD_JSON_BOOL] = "a boolean", [TD_JSON_INT] = "an integer",
    [TD_JSON_REAL] = "a real",      [TD_JSON_STRING] = "a text",  [TD_JSON_ARRAY] = "an array",
    [TD_JSON_OBJECT] = "an object",
};

static td_status misfit(const char *event, const char *field, enum td_json_kind is,
                        enum td_json_kind wanted) {
    return td_fail(TD_INVALID_ARGUMENT, "event '%s': '%s' is %s where %s belongs", event, field,
                   words_of[is], words_of[wanted]);
}

// at: of the field that is likely next; it moves on. NULL: the row has no such field.
static const struct td_event_field *field_of(const struct td_event_row *row, const char *key,
                                             size_t *inout_at) {
    size_t n = (size_t)(row->past - row->first);
    for (size_t i = 0, at = *inout_at; i < n; i++, at++) {
        if (at >= n) at = 0;
        const struct td_event_field *f = &td_event_fields[row->first + at];
        if (f->name[0] != key[0] || strcmp(f->name, key) != 0) continue;
        *inout_at = at + 1;
        return f;
    }
    return NULL;
}

static void *member(struct td_event *e, const struct td_event_field *f) {
    return (char *)e + offsetof(struct td_event, has) + f->offset;
}

static void store(struct td_event *e, const struct td_event_field *f, const struct td_json *v) {
    switch (f->type) {
    case TD_EVENT_INT:
        *(int64_t *)member(e, f) = v->u.integer;
        break;
    case TD_EVENT_BOOL:
        *(bool *)member(e, f) = v->u.boolean;
        break;
    case TD_EVENT_TEXT:
        *(const char **)member(e, f) = v->u.string.data;
        break;
    case TD_EVENT_OBJECT:
    case TD_EVENT_FILES:
    case TD_EVENT_METRICS:
        *(const struct td_json **)member(e, f) = v;
        break;
    }
}

// "rank" and "real_ns", which any event may have.
static td_status store_common(struct td_event *e, const struct td_event_row *row,
                              const struct td_json *v) {
    int64_t *to = strcmp(v->key, "rank") == 0      ? &e->rank
                  : strcmp(v->key, "real_ns") == 0 ? &e->real_ns
                                                   : NULL;
    if (!to) return TD_OK;
    if (v->kind != TD_JSON_INT) return misfit(row->name, v->key, v->kind, TD_JSON_INT);
    *to = v->u.integer;
    return TD_OK;
}

static td_status require(const struct td_event *e, const struct td_event_row *row) {
    for (size_t i = row->first; i < (size_t)row->past; i++) {
        const struct td_event_field *f = &td_event_fields[i];
        bool there = (e->has >> (i - row->first)) & 1;
        if (there || f->need != TD_EVENT_REQUIRED) continue;
        return td_fail(TD_INVALID_ARGUMENT, "event '%s' has no '%s'", row->name, f->name);
    }
    return TD_OK;
}

td_status td_event_read(const struct td_json *line, struct td_event *out_event) {
    struct td_event e = {.rank = -1};
    TD_TRY(td_event_kind_of(line, &e.kind));
    const struct td_event_row *row = &td_event_rows[e.kind];
    for (size_t i = row->first; i < (size_t)row->past; i++) {
        const struct td_event_field *f = &td_event_fields[i];
        if (f->type == TD_EVENT_TEXT) *(const char **)member(&e, f) = "";
    }
    size_t at = 0;
    for (const struct td_json *v = line->first; v && e.kind; v = v->next) {
        const struct td_event_field *f = field_of(row, v->key, &at);
        if (!f) {
            TD_TRY(store_common(&e, row, v));
            continue;
        }
        if (v->kind != json_of[f->type]) {
            return misfit(row->name, v->key, v->kind, json_of[f->type]);
        }
        store(&e, f, v);
        e.has |= UINT64_C(1) << (f - &td_event_fields[row->first]);
    }
    TD_TRY(require(&e, row));
    *out_event = e;
    return TD_OK;
}

td_status td_event_parse(struct td_arena *a, const char *line, size_t bytes,
                         struct td_event *out_event) {
    if (bytes > TD_SEGMENT_LINE_MAX) {
        return td_fail(TD_INVALID_ARGUMENT, "a line of %zu bytes, at most %d are an event's", bytes,
                       TD_SEGMENT_LINE_MAX);
    }
    struct td_json *tree = NULL;
    TD_TRY(td_json_parse(a, line, bytes, &tree));
    return td_event_read(tree, out_event);
}

struct td_event_file td_event_file_of(const struct td_json *item) {
    return (struct td_event_file){.name = td_json_string(td_json_get(item, "name"), ""),
                                  .digest = td_json_string(td_json_get(item, "digest"), ""),
                                  .bytes = td_json_int(td_json_get(item, "bytes"), -1)};
}
