// See the header.

#include "lib/attempt/metric_names.h"

#include <stddef.h>
#include <string.h>

#include "lib/base/utf8.h"

enum {
    MARK_AT = offsetof(struct td_metric_record, flags), // of the byte that says what a record is
    TAIL_BYTES = sizeof(struct td_metric_record) - MARK_AT - 1,
};
_Static_assert(MARK_AT + TAIL_BYTES == TD_METRIC_NAME_BYTES - 1, "a record holds the longest name");

void td_metric_names_finish(struct td_metric_names *t) {
    free(t->text);
    *t = (struct td_metric_names){0};
}

bool td_metric_names_add(struct td_metric_names *t, const char *name) {
    if (t->n == t->cap && !t->full) {
        uint32_t cap = t->cap ? 2 * t->cap : 16;
        void *grown =
            cap <= TD_METRIC_LONG_NAMES ? td_realloc(t->text, cap * sizeof *t->text) : NULL;
        t->full = !grown;
        if (grown) t->text = grown;
        if (grown) t->cap = cap;
    }
    if (t->full) return false;
    memset(t->text[t->n], 0, sizeof *t->text);
    memcpy(t->text[t->n++], name, strnlen(name, sizeof *t->text - 1));
    return true;
}

bool td_metric_name_fits(const char *name) {
    size_t n = strnlen(name, TD_METRIC_NAME_BYTES);
    return n > 0 && n < TD_METRIC_NAME_BYTES && td_utf8_valid(name, n);
}

// ---- writing ------------------------------------------------------------------------------------
void td_metric_names_define(const char *name, struct td_metric_record *out) {
    char text[TD_METRIC_NAME_BYTES] = {0}, bytes[sizeof *out];
    memcpy(text, name, strnlen(name, sizeof text - 1));
    memcpy(bytes, text, MARK_AT);
    bytes[MARK_AT] = (char)TD_METRIC_NAMES;
    memcpy(bytes + MARK_AT + 1, text + MARK_AT, TAIL_BYTES);
    memcpy(out, bytes, sizeof bytes);
}

// n: it is not there.
static uint32_t find(struct td_metric_names *t, const char *name) {
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t at = (t->last + 1 + i) % t->n;
        if (strcmp(t->text[at], name) != 0) continue;
        return t->last = at;
    }
    return t->n;
}

static bool define(struct td_metric_names *t, struct td_ring *ring, const char *name) {
    struct td_metric_record r;
    if (!td_metric_names_add(t, name)) {
        td_ring_drop(ring);
        return false;
    }
    td_metric_names_define(name, &r);
    if (td_ring_push(ring, &r)) return true;
    t->n--;
    return false;
}

bool td_metric_names_push(struct td_metric_names *t, struct td_ring *ring,
                          const struct td_metric_point *p) {
    struct td_metric_record r = {.step = p->step,
                                 .epoch = p->epoch,
                                 .sum = p->sum,
                                 .count = p->count,
                                 .real_ns = p->real_ns,
                                 .flags = p->flags};
    size_t len = strnlen(p->name, sizeof p->name);
    if (len < sizeof r.name) {
        memcpy(r.name, p->name, len);
        return td_ring_push(ring, &r);
    }
    r.number = find(t, p->name);
    if (r.number == t->n && !define(t, ring, p->name)) return false;
    r.flags |= TD_METRIC_NUMBERED;
    return td_ring_push(ring, &r);
}

// ---- reading ------------------------------------------------------------------------------------
// Of a definition; a text that is none takes its number, too.
static enum td_metric_kind take_name(struct td_metric_names *t, const struct td_metric_record *r) {
    char bytes[sizeof *r], text[TD_METRIC_NAME_BYTES] = {0};
    memcpy(bytes, r, sizeof bytes);
    memcpy(text, bytes, MARK_AT);
    memcpy(text + MARK_AT, bytes + MARK_AT + 1, TAIL_BYTES);
    (void)td_metric_names_add(t, td_metric_name_fits(text) ? text : "");
    return TD_METRIC_IS_NAME;
}

enum td_metric_kind td_metric_names_take(struct td_metric_names *t,
                                         const struct td_metric_record *r,
                                         struct td_metric_point *out_point) {
    char name[TD_METRIC_NAME_BYTES] = {0};
    if (td_metric_is_name(r)) return take_name(t, r);
    const bool numbered = r->flags & TD_METRIC_NUMBERED;
    if (numbered && r->number < t->n) memcpy(name, t->text[r->number], sizeof name);
    if (!numbered) memcpy(name, r->name, sizeof r->name);
    const bool ends = numbered || strnlen(r->name, sizeof r->name) < sizeof r->name;
    if (!ends || !td_metric_name_fits(name) || r->step < 0 || r->epoch < 0) {
        return TD_METRIC_IS_BAD;
    }
    *out_point =
        (struct td_metric_point){.step = r->step,
                                 .epoch = r->epoch,
                                 .sum = r->sum,
                                 .count = r->count,
                                 .real_ns = r->real_ns,
                                 .flags = r->flags & (TD_METRIC_SUM_COUNT | TD_METRIC_DEVICE)};
    memcpy(out_point->name, name, sizeof name);
    return TD_METRIC_IS_POINT;
}
