// From what a person hands in, text and overrides, to the canonical spec.
//
// Overrides are applied to the tree before it is checked, so they obey the same tables and get the
// same answers; "(override 2)" takes the place of the line. An override that meets a section which
// is absent makes it. Kept apart from document.c because only this file pulls libyaml in.

#include <ctype.h>
#include <string.h>

#include "lib/spec/spec.h"
#include "lib/spec/text.h"

enum { PATH_PARTS_MAX = 8, PATH_BYTES_MAX = 256 };

// The length of the path before '='; 0 after noting what is wrong with it.
static size_t path_length(struct td_check *c, const char *text, int line) {
    size_t len = strcspn(text, "=");
    size_t n_dots = 0;
    bool ok = len > 0 && len < PATH_BYTES_MAX && text[len] == '=' && text[len - 1] != '.';
    for (size_t i = 0; ok && i < len; i++) {
        unsigned char ch = (unsigned char)text[i];
        bool is_dot = ch == '.' && i > 0 && text[i - 1] != '.';
        n_dots += is_dot;
        ok = is_dot || ch == '_' || ch == '-' || (ch < 0x80 && isalnum(ch));
    }
    if (ok && n_dots < PATH_PARTS_MAX) return len;
    td_check_violation(c, "", line, "'%s' is not PATH=VALUE, such as trainer.devices=4",
                       td_check_show(c->arena, text, TD_MIN(strlen(text), 80), 64));
    return 0;
}

// `optimizer: adam` is a name alone: as a map, in which more can be set.
static struct td_json *map_of_name(struct td_check *c, struct td_json *parent, const char *key,
                                   const struct td_json *name) {
    struct td_json *map = td_json_new(c->arena, TD_JSON_OBJECT);
    if (!map) return NULL;
    map->line = name->line;
    const bool done = td_json_set(c->arena, map, "name", td_json_copy(c->arena, name)) &&
                      td_json_set(c->arena, parent, key, map);
    return done ? map : NULL;
}

// Sets value at the path below root, making maps on the way.
static void set_at(struct td_check *c, struct td_json *root, char *path, struct td_json *value) {
    struct td_json *map = root;
    for (char *part = path;;) {
        char *dot = strchr(part, '.');
        if (!dot) {
            td_check_oom(c, td_json_set(c->arena, map, part, value) ? value : NULL);
            return;
        }
        *dot = '\0';
        struct td_json *child = td_json_get(map, part);
        if (!child) {
            child = td_json_new(c->arena, TD_JSON_OBJECT);
            if (child) child->line = value->line;
            if (td_check_oom(c, td_json_set(c->arena, map, part, child) ? child : NULL)) return;
        }
        if (child->kind == TD_JSON_STRING) {
            child = map_of_name(c, map, part, child);
            if (td_check_oom(c, child)) return;
        }
        if (child->kind != TD_JSON_OBJECT) {
            td_check_violation(c, path, value->line, "is %s, not a map: nothing can be set in it",
                               td_check_describe(c->arena, child));
            return;
        }
        *dot = '.';
        part = dot + 1;
        map = child;
    }
}

static void apply_override(struct td_check *c, struct td_json *root, const char *text, int idx,
                           size_t *io_nodes) {
    int line = -(idx + 1);
    size_t path_len = path_length(c, text, line);
    if (path_len == 0) return;
    const char *value_text = text + path_len + 1;
    char *path = td_arena_strndup(c->arena, text, path_len);
    if (td_check_oom(c, path)) return;
    struct td_json *value = td_text_read(c, value_text, strlen(value_text), idx, io_nodes);
    if (!value) {
        if (!c->n_violations) c->is_oom = true;
        return;
    }
    value->line = line;
    set_at(c, root, path, value);
}

static td_status too_large(const char *what, size_t is, size_t most) {
    td_status s = td_fail(TD_RESOURCE_EXHAUSTED, "the job spec has %zu %s, at most %zu are taken",
                          is, what, most);
    return td_status_with_class(td_status_with_reason(s, "SPEC_TOO_LARGE"), TD_CLASS_BAD_SPEC);
}

static td_status check_sizes(size_t len, const char *const *overrides, size_t n_overrides) {
    if (n_overrides > TD_SPEC_MAX_OVERRIDES) {
        return too_large("overrides", n_overrides, TD_SPEC_MAX_OVERRIDES);
    }
    size_t total = len;
    for (size_t i = 0; i < n_overrides && total <= TD_SPEC_MAX_BYTES; i++) {
        total += strnlen(overrides[i], TD_SPEC_MAX_BYTES + 1);
    }
    return total > TD_SPEC_MAX_BYTES ? too_large("bytes", total, TD_SPEC_MAX_BYTES) : TD_OK;
}

static td_status parse(struct td_arena *a, const char *text, size_t len,
                       const char *const *overrides, const char *const *said_by, size_t n_overrides,
                       struct td_spec_place *place, struct td_json **out_tree) {
    TD_TRY(check_sizes(len, overrides, n_overrides));
    struct td_check c;
    td_check_init(&c, a, 0);
    c.said_by = said_by;
    c.place = place;
    size_t n_nodes = 0;
    struct td_json *root = td_text_read(&c, text, len, -1, &n_nodes);
    struct td_json *canonical = NULL;
    if (root) {
        bool is_map = root->kind == TD_JSON_OBJECT;
        for (size_t i = 0; is_map && i < n_overrides; i++) {
            apply_override(&c, root, overrides[i], (int)i, &n_nodes);
        }
        canonical = td_check_document(&c, root);
    }
    TD_TRY(td_check_result(&c));
    TD_CHECK(canonical);
    *out_tree = canonical;
    return TD_OK;
}

td_status td_spec_parse(struct td_arena *a, const char *text, size_t len,
                        const char *const *overrides, size_t n_overrides,
                        struct td_json **out_tree) {
    return td_spec_parse_said(a, text, len, overrides, NULL, n_overrides, out_tree);
}

td_status td_spec_parse_said(struct td_arena *a, const char *text, size_t len,
                             const char *const *overrides, const char *const *said_by,
                             size_t n_overrides, struct td_json **out_tree) {
    return parse(a, text, len, overrides, said_by, n_overrides, NULL, out_tree);
}

td_status td_spec_parse_at(struct td_arena *a, const char *text, size_t len,
                           const char *const *overrides, size_t n_overrides,
                           struct td_spec_place *place, struct td_json **out_tree) {
    return parse(a, text, len, overrides, NULL, n_overrides, place, out_tree);
}
