// The record of one checking run, and the words its messages are made of.
//
// Violations beyond those a status can carry are counted, not formatted, so that a hostile
// document costs no more than an honest one. What is quoted from the document is cut short and
// stripped of control characters: it ends on terminals and in logs.

#include "lib/spec/check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/clip.h"

enum { TEXT_MAX = 1024, KEY_SHOWN = 64, VALUE_SHOWN = 48 };

void td_check_init(struct td_check *c, struct td_arena *a, int flags) {
    memset(c, 0, sizeof *c);
    c->arena = a;
    c->flags = flags;
    c->what = flags & TD_SPEC_PLAN ? "plan" : "job spec";
}

bool td_check_oom(struct td_check *c, const void *allocated) {
    c->is_oom |= !allocated;
    return !allocated;
}

static const char *where(const struct td_check *c, const char *path, int line) {
    struct td_arena *a = c->arena;
    if (line == 0) return path;
    if (line < 0 && c->said_by) {
        const char *name = c->said_by[-line - 1];
        return *path ? td_arena_printf(a, "%s (%s)", path, name) : name;
    }
    const char *word = line > 0 ? "line" : "override";
    if (!*path) return td_arena_printf(a, "%s %d", word, abs(line));
    return td_arena_printf(a, "%s (%s %d)", path, word, abs(line));
}

void td_check_violation(struct td_check *c, const char *path, int line, const char *fmt, ...) {
    size_t i = c->n_violations++;
    if (i >= TD_CHECK_SHOWN) return;
    char text[TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    struct td_violation *v = &c->shown[i];
    v->where = where(c, path, line);
    v->text = td_arena_strdup(c->arena, text);
    if (td_check_oom(c, v->where) || td_check_oom(c, v->text)) {
        *v = (struct td_violation){path, "out of memory"};
    }
}

td_status td_check_result(struct td_check *c) {
    if (c->is_oom) return td_fail_oom();
    if (c->n_violations == 0) return TD_OK;
    const struct td_violation *first = &c->shown[0];
    const char *colon = *first->where ? ": " : "";
    td_status s;
    if (c->n_violations == 1) {
        s = td_fail(TD_INVALID_ARGUMENT, "the %s has an error: %s%s%s", c->what, first->where,
                    colon, first->text);
    } else {
        s = td_fail(TD_INVALID_ARGUMENT, "the %s has %zu errors; the first: %s%s%s", c->what,
                    c->n_violations, first->where, colon, first->text);
    }
    s = td_status_with_class(td_status_with_reason(s, "SPEC_INVALID"), TD_CLASS_BAD_SPEC);
    for (size_t i = 0; i < c->n_violations; i++) {
        const struct td_violation *v = &c->shown[TD_MIN(i, TD_CHECK_SHOWN - 1)];
        s = td_status_with_field(s, v->where, "%s", v->text); // past its limit a status counts
    }
    return s;
}

// ---- words ------------------------------------------------------------------------------------
const char *td_check_show(struct td_arena *a, const char *text, size_t len, size_t max_bytes) {
    bool is_cut = len > max_bytes;
    if (is_cut) {
        len = max_bytes;
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) { // not inside a character
            len--;
        }
    }
    char *copy = td_arena_strndup(a, text, len);
    if (!copy) return "?";
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)copy[i];
        bool is_c1 = i + 1 < len && ch == 0xc2 && ((unsigned char)copy[i + 1] & 0xe0) == 0x80;
        if (ch < 0x20 || ch == 0x7f) copy[i] = '?';
        if (is_c1) copy[i] = copy[i + 1] = '?';
    }
    const char *cut = is_cut ? td_arena_printf(a, "%s...", copy) : NULL;
    return cut ? cut : copy;
}

static const char *describe_real(struct td_arena *a, double v) {
    if (isnan(v)) return ".nan (not a number)";
    if (isinf(v)) return v > 0 ? ".inf" : "-.inf";
    char text[32];
    snprintf(text, sizeof text, "%.15g", v);
    return td_arena_printf(a, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static const char *describe(struct td_arena *a, const struct td_json *v) {
    switch (v->kind) {
    case TD_JSON_NULL:
        return "nothing (null)";
    case TD_JSON_BOOL:
        return v->u.boolean ? "true" : "false";
    case TD_JSON_INT:
        return td_arena_printf(a, "%lld", (long long)v->u.integer);
    case TD_JSON_REAL:
        return describe_real(a, v->u.real);
    case TD_JSON_STRING:
        return td_arena_printf(a, "text '%s'",
                               td_check_show(a, v->u.string.data, v->u.string.len, VALUE_SHOWN));
    case TD_JSON_ARRAY:
        return td_arena_printf(a, "a list of %zu", v->n_children);
    case TD_JSON_OBJECT:
        return "a map";
    }
    return NULL;
}

const char *td_check_describe(struct td_arena *a, const struct td_json *v) {
    const char *text = describe(a, v);
    return text ? text : "?";
}

const char *td_check_path(struct td_check *c, const char *section, const char *key) {
    const char *shown = td_check_show(c->arena, key, strlen(key), KEY_SHOWN);
    if (!*section) return shown;
    size_t section_len = strlen(section), len = strlen(shown);
    char *path = td_arena_alloc(c->arena, section_len + 1 + len + 1);
    if (td_check_oom(c, path)) return section;
    memcpy(path, section, section_len);
    path[section_len] = '.';
    memcpy(path + section_len + 1, shown, len);
    return path;
}
