// All trees are walked together. The depth is that of the specs, which the parser bounds.

#include "client/jobs/spec_diff.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 512 };

struct walk {
    struct td_arena *arena;
    size_t n; // of the trees, and of each array of values
    struct td_spec_difference *first, **end;
};

static td_status walk(struct walk *w, const char *key, const struct td_json **value);

static td_status differ(struct walk *w, const char *key, const struct td_json **value) {
    struct td_spec_difference *d = td_arena_alloc(w->arena, sizeof *d);
    const char *name = td_arena_strdup(w->arena, key);
    if (!d || !name) return td_fail_oom();
    *d = (struct td_spec_difference){.key = name, .value = value};
    *w->end = d;
    w->end = &d->next;
    return TD_OK;
}

static td_status is_equal(const struct td_json *left, const struct td_json *right, bool *out) {
    TD_AUTO_BUF a, b;
    td_buf_init(&a, (size_t)8 << 20);
    td_buf_init(&b, (size_t)8 << 20);
    TD_TRY(td_json_print(left, false, &a));
    TD_TRY(td_json_print(right, false, &b));
    *out = a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
    return TD_OK;
}

static bool all_are(const struct walk *w, enum td_json_kind kind, const struct td_json **value) {
    for (size_t i = 0; i < w->n; i++) {
        if (!value[i] || value[i]->kind != kind) return false;
    }
    return true;
}

static bool have_maps(const struct walk *w, const struct td_json **list) {
    for (size_t i = 0; i < w->n; i++) {
        if (list[i]->first && list[i]->first->kind == TD_JSON_OBJECT) return true;
    }
    return false;
}

static bool has_before(const struct td_json **map, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++) {
        if (td_json_get(map[i], key)) return true;
    }
    return false;
}

static td_status walk_member(struct walk *w, const char *key, const struct td_json **map,
                             const char *member) {
    char below[KEY_BYTES];
    const struct td_json **value = td_arena_array(w->arena, w->n, sizeof *value);
    if (!value) return td_fail_oom();
    for (size_t i = 0; i < w->n; i++) {
        value[i] = td_json_get(map[i], member);
    }
    snprintf(below, sizeof below, "%s%s%s", key, *key ? "." : "", member);
    return walk(w, below, value);
}

static td_status walk_map(struct walk *w, const char *key, const struct td_json **map) {
    for (size_t i = 0; i < w->n; i++) {
        for (const struct td_json *c = map[i]->first; c; c = c->next) {
            if (!has_before(map, i, c->key)) TD_TRY(walk_member(w, key, map, c->key));
        }
    }
    return TD_OK;
}

static const struct td_json *item(const struct td_json *list, int at) {
    const struct td_json *v = list->first;
    while (v && at-- > 0) {
        v = v->next;
    }
    return v;
}

static td_status walk_list(struct walk *w, const char *key, const struct td_json **list) {
    char below[KEY_BYTES];
    for (int at = 0;; at++) {
        const struct td_json **value = td_arena_array(w->arena, w->n, sizeof *value);
        bool any = false;
        if (!value) return td_fail_oom();
        for (size_t i = 0; i < w->n; i++) {
            value[i] = item(list[i], at);
            any |= value[i] != NULL;
        }
        if (!any) return TD_OK;
        snprintf(below, sizeof below, "%s[%d]", key, at);
        TD_TRY(walk(w, below, value));
    }
}

static td_status walk(struct walk *w, const char *key, const struct td_json **value) {
    if (all_are(w, TD_JSON_OBJECT, value)) return walk_map(w, key, value);
    if (all_are(w, TD_JSON_ARRAY, value) && have_maps(w, value)) return walk_list(w, key, value);
    bool equal = value[0] != NULL;
    for (size_t i = 1; i < w->n && equal; i++) {
        equal = value[i] != NULL;
        if (equal) TD_TRY(is_equal(value[0], value[i], &equal));
    }
    return equal ? TD_OK : differ(w, key, value);
}

td_status td_spec_diff(struct td_arena *arena, const struct td_json *const *spec, size_t n,
                       struct td_spec_difference **out_first) {
    struct walk w = {.arena = arena, .n = n};
    const struct td_json **root = td_arena_array(arena, n, sizeof *root);
    if (!root) return td_fail_oom();
    memcpy(root, spec, n * sizeof *root);
    w.end = &w.first;
    TD_TRY(walk(&w, "", root));
    *out_first = w.first;
    return TD_OK;
}
