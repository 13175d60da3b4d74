// Knobs by key; see read.h. Each function names the kinds that it takes, as bits.

#include "lib/spec/read.h"

#include <string.h>

enum {
    BOOL = 1 << TD_JSON_BOOL,
    INT = 1 << TD_JSON_INT,
    REAL = 1 << TD_JSON_REAL,
    TEXT = 1 << TD_JSON_STRING,
    LIST = 1 << TD_JSON_ARRAY,
    OPEN = 1 << TD_JSON_NULL,
};

struct td_read td_read_begin(const struct td_json *section, const char *path) {
    return (struct td_read){.section = section, .path = path};
}

td_status td_read_end(struct td_read *r) {
    td_status s = r->status;
    r->status = NULL;
    return s;
}

static void fail(struct td_read *r, const char *key, const char *what) {
    if (r->status) return;
    r->status = td_fail(TD_INTERNAL,
                        "%s.%s %s, though the spec was checked and completed; report this as a bug "
                        "of traind",
                        r->path, key, what);
}

// NULL: it is not there, or of none of these kinds, which is noted; or something was before.
static const struct td_json *find(struct td_read *r, const char *key, unsigned kinds,
                                  const char *expected) {
    if (r->status) return NULL;
    const struct td_json *v = td_json_get(r->section, key);
    if (v && kinds & 1u << v->kind) return v;
    fail(r, key, v ? expected : "is missing");
    return NULL;
}

double td_read_real(struct td_read *r, const char *key) {
    return td_json_real(find(r, key, REAL | INT, "is not a number"), 0);
}

double td_read_real_or(struct td_read *r, const char *key, double open) {
    const struct td_json *v = find(r, key, REAL | INT | OPEN, "is neither a number nor null");
    return td_json_real(v, v ? open : 0);
}

int64_t td_read_int(struct td_read *r, const char *key) {
    return td_json_int(find(r, key, INT, "is not an integer"), 0);
}

int64_t td_read_int_or(struct td_read *r, const char *key, int64_t open) {
    const char *expected = "is not an integer, auto or null";
    const struct td_json *v = find(r, key, INT | OPEN | TEXT, expected);
    if (v && strcmp(td_json_string(v, "auto"), "auto") != 0) fail(r, key, expected);
    return r->status ? 0 : td_json_int(v, open);
}

bool td_read_bool(struct td_read *r, const char *key) {
    return td_json_bool(find(r, key, BOOL, "is neither true nor false"), false);
}

const char *td_read_text(struct td_read *r, const char *key) {
    return td_json_string(find(r, key, TEXT, "is not a text"), "");
}

const char *td_read_text_or(struct td_read *r, const char *key, const char *open) {
    const struct td_json *v = find(r, key, TEXT | OPEN, "is neither a text nor null");
    return td_json_string(v, v ? open : "");
}

const struct td_json *td_read_list(struct td_read *r, const char *key) {
    return find(r, key, LIST, "is not a list");
}

void td_read_reals(struct td_read *r, const char *key, double *out, size_t n) {
    const struct td_json *list = td_read_list(r, key);
    if (list && list->n_children != n) fail(r, key, "has not as many numbers as its row says");
    const struct td_json *v = r->status ? NULL : list->first;
    for (size_t i = 0; i < n; i++, v = v ? v->next : NULL) {
        out[i] = td_json_real(v, 0);
    }
}

int td_read_choice(struct td_read *r, const char *key, const char *const *names, int n) {
    const char *text = td_read_text(r, key);
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) return i;
    }
    fail(r, key, "is a name that its reader does not know");
    return 0;
}
