#ifndef TRAIND_TESTS_EVENT_LINES_H
#define TRAIND_TESTS_EVENT_LINES_H

// An event written from its table alone, and two events compared by it: what holds for every row.

#include <string.h>

#include "lib/attempt/event_writer.h"
#include "lib/attempt/segments.h"

static inline const void *event_member(const struct td_event *e, const struct td_event_field *f) {
    return (const char *)e + offsetof(struct td_event, has) + f->offset;
}

static inline bool event_has(const struct td_event *e, size_t at) {
    return (e->has >> (at - td_event_rows[e->kind].first)) & 1;
}

static inline void event_write_list(struct td_event_writer *w, enum td_event_at at,
                                    const struct td_json *list) {
    enum td_event_type type = td_event_fields[at].type;
    td_event_put_list(w, at, type);
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next) {
        struct td_event_file f = td_event_file_of(v);
        if (type == TD_EVENT_FILES) td_event_add_file(w, f.name, (uint64_t)f.bytes, f.digest);
        if (type == TD_EVENT_METRICS) td_event_add_metric(w, v->key, td_json_real(v, 0));
    }
    td_event_end_list(w);
}

// Every field but optional ones that are absent.
static inline td_status event_write(const struct td_event *e, struct td_buf *out) {
    const struct td_event_row *row = &td_event_rows[e->kind];
    struct td_event_writer w;
    td_event_open(&w, e->kind, out);
    for (enum td_event_at at = row->first; at < row->past; at++) {
        const struct td_event_field *f = &td_event_fields[at];
        const void *p = event_member(e, f);
        if (f->need == TD_EVENT_OPTIONAL && !event_has(e, at)) continue;
        switch (f->type) {
        case TD_EVENT_INT:
            td_event_put_int(&w, at, *(const int64_t *)p);
            break;
        case TD_EVENT_BOOL:
            td_event_put_bool(&w, at, *(const bool *)p);
            break;
        case TD_EVENT_TEXT:
            td_event_put_text(&w, at, *(const char *const *)p);
            break;
        case TD_EVENT_OBJECT:
            td_event_put_object(&w, at, *(const struct td_json *const *)p);
            break;
        case TD_EVENT_FILES:
        case TD_EVENT_METRICS:
            event_write_list(&w, at, *(const struct td_json *const *)p);
            break;
        }
    }
    td_event_rank(&w, e->rank);
    td_event_real_ns(&w, e->real_ns);
    return td_event_close(&w);
}

static inline bool event_same_text(const char *a, const char *b) {
    size_t n = strlen(a);
    if (n < TD_EVENT_TEXT_BYTES) return strcmp(a, b) == 0;
    n = strlen(b); // it was cut
    return n < TD_EVENT_TEXT_BYTES && n > 3 && strcmp(b + n - 3, "...") == 0;
}

static inline bool event_same_tree(const struct td_json *a, const struct td_json *b) {
    size_t n = a ? a->n_children : 0;
    return n == (b ? b->n_children : 0);
}

// b was written from a.
static inline bool event_same(const struct td_event *a, const struct td_event *b) {
    const struct td_event_row *row = &td_event_rows[a->kind];
    bool same = a->kind == b->kind && a->rank == b->rank && a->real_ns == b->real_ns;
    for (size_t at = row->first; same && at < (size_t)row->past; at++) {
        const struct td_event_field *f = &td_event_fields[at];
        const void *p = event_member(a, f), *q = event_member(b, f);
        switch (f->type) {
        case TD_EVENT_INT:
            same = *(const int64_t *)p == *(const int64_t *)q;
            break;
        case TD_EVENT_BOOL:
            same = *(const bool *)p == *(const bool *)q;
            break;
        case TD_EVENT_TEXT:
            same = event_same_text(*(const char *const *)p, *(const char *const *)q);
            break;
        case TD_EVENT_OBJECT:
        case TD_EVENT_FILES:
        case TD_EVENT_METRICS:
            same = event_same_tree(*(const struct td_json *const *)p,
                                   *(const struct td_json *const *)q);
            break;
        }
    }
    return same;
}

#endif
