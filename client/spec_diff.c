// Two trees are walked together. The depth is that of the specs, which the parser bounds.

#include "client/spec_diff.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 512 };

struct walk {
    struct td_arena *arena;
    struct td_spec_difference *first, **end;
};

static td_status walk(struct walk *w, const char *key, const struct td_json *left,
                      const struct td_json *right);

static td_status differ(struct walk *w, const char *key, const struct td_json *left,
                        const struct td_json *right) {
    struct td_spec_difference *d = td_arena_alloc(w->arena, sizeof *d);
    const char *name = td_arena_strdup(w->arena, key);
    if (!d || !name) return td_fail_oom();
    *d = (struct td_spec_difference){.key = name, .left = left, .right = right};
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

static bool both_are(enum td_json_kind kind, const struct td_json *a, const struct td_json *b) {
    return a && b && a->kind == kind && b->kind == kind;
}

static bool has_maps(const struct td_json *list) {
    return list->first && list->first->kind == TD_JSON_OBJECT;
}

static td_status walk_map(struct walk *w, const char *key, const struct td_json *left,
                          const struct td_json *right) {
    char below[KEY_BYTES];
    const char *dot = *key ? "." : "";
    for (const struct td_json *c = left->first; c; c = c->next) {
        snprintf(below, sizeof below, "%s%s%s", key, dot, c->key);
        TD_TRY(walk(w, below, c, td_json_get(right, c->key)));
    }
    for (const struct td_json *c = right->first; c; c = c->next) {
        if (td_json_get(left, c->key)) continue;
        snprintf(below, sizeof below, "%s%s%s", key, dot, c->key);
        TD_TRY(differ(w, below, NULL, c));
    }
    return TD_OK;
}

static td_status walk_list(struct walk *w, const char *key, const struct td_json *left,
                           const struct td_json *right) {
    char below[KEY_BYTES];
    const struct td_json *a = left->first, *b = right->first;
    for (int i = 0; a || b; i++) {
        snprintf(below, sizeof below, "%s[%d]", key, i);
        TD_TRY(walk(w, below, a, b));
        a = a ? a->next : NULL;
        b = b ? b->next : NULL;
    }
    return TD_OK;
}

static td_status walk(struct walk *w, const char *key, const struct td_json *left,
                      const struct td_json *right) {
    if (both_are(TD_JSON_OBJECT, left, right)) return walk_map(w, key, left, right);
    if (both_are(TD_JSON_ARRAY, left, right) && (has_maps(left) || has_maps(right))) {
        return walk_list(w, key, left, right);
    }
    bool equal = false;
    if (left && right) TD_TRY(is_equal(left, right, &equal));
    return equal ? TD_OK : differ(w, key, left, right);
}

td_status td_spec_diff(struct td_arena *arena, const struct td_json *left,
                       const struct td_json *right, struct td_spec_difference **out_first) {
    struct walk w = {.arena = arena};
    w.end = &w.first;
    TD_TRY(walk(&w, "", left, right));
    *out_first = w.first;
    return TD_OK;
}
