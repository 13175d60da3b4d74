// Two passes. The first drops what equals the default of its row, in maps of lists too. The second
// finds what rules resolved (max_epochs, where nothing else limits): it drops each key that is left
// and looks whether the spec stays what it was. So no list of such keys has to be kept. It is
// bounded by tries and by the size of the spec, because a coordinator does this while it answers.

#include "lib/spec/brief.h"

#include <string.h>

#include "lib/spec/check.h"
#include "lib/spec/place.h"
#include "lib/spec/spec.h"

enum {
    TRIES = 64,            // of the second pass
    WHOLE_BYTES = 1 << 16, // of canonical JSON: above it there is no second pass
    TEXT_BYTES = 8 << 20,
};

struct brief {
    struct td_check check; // of the first pass; its arena is that of the answer
    struct td_arena *scratch;
    struct td_buf canonical, text;
    struct td_json *root;
    int tries;
};

// ---- members ------------------------------------------------------------------------------------
static void take_out(struct td_json *map, struct td_json *before, struct td_json *v) {
    if (before) {
        before->next = v->next;
    } else {
        map->first = v->next;
    }
    if (map->last == v) map->last = before;
    map->n_children--;
}

static void put_back(struct td_json *map, struct td_json *before, struct td_json *v) {
    if (before) {
        before->next = v;
    } else {
        map->first = v;
    }
    if (!v->next) map->last = v;
    map->n_children++;
}

// ---- the first pass: rows -----------------------------------------------------------------------
static td_status prune(struct brief *b, struct td_json *map, const char *section);

// The rows of a map of one of several kinds are those of the kind that its name picks.
static const char *variant(struct brief *b, const char *choice, const struct td_json *map) {
    const char *name = td_json_string(td_json_get(map, "name"), "");
    return td_arena_printf(b->check.arena, "%s.%s", choice, name);
}

static td_status prune_items(struct brief *b, const struct td_knob *k, const struct td_json *list) {
    for (struct td_json *item = list->first; item; item = item->next) {
        const char *section = td_knob_entry_section(k);
        if (item->kind != TD_JSON_OBJECT) continue;
        if (k->type == TD_KNOB_CHOICES) section = variant(b, section, item);
        if (!section) return td_fail_oom();
        TD_TRY(prune(b, item, section));
    }
    return TD_OK;
}

static td_status is_default(struct brief *b, const struct td_knob *k, const struct td_json *v,
                            bool *out) {
    *out = false;
    if (!k->fallback) return TD_OK;
    const struct td_json *fallback = td_check_default(&b->check, k);
    if (!fallback) return td_fail_oom();
    *out = td_json_equal(v, fallback);
    return TD_OK;
}

static td_status prune(struct brief *b, struct td_json *map, const char *section) {
    struct td_json *before = NULL;
    for (struct td_json *v = map->first; v; v = v->next) {
        const struct td_knob *k = td_knob_find(section, v->key);
        bool drops = false;
        if (k) TD_TRY(is_default(b, k, v, &drops));
        if (drops) {
            take_out(map, before, v);
            continue;
        }
        const bool has_maps = k && (k->type == TD_KNOB_MAPS || k->type == TD_KNOB_CHOICES);
        if (has_maps && v->kind == TD_JSON_ARRAY) TD_TRY(prune_items(b, k, v));
        if (k && k->type == TD_KNOB_MAP && v->kind == TD_JSON_OBJECT) {
            TD_TRY(prune(b, v, td_knob_entry_section(k)));
        }
        before = v;
    }
    return TD_OK;
}

static td_status prune_sections(struct brief *b) {
    TD_TRY(prune(b, b->root, ""));
    struct td_json *before = NULL;
    for (struct td_json *v = b->root->first; v; v = v->next) {
        const struct td_section *s = td_section_find(v->key);
        const bool is_section = s && v->kind == TD_JSON_OBJECT;
        const bool is_choice = is_section && s->kind == TD_SECTION_CHOICE;
        const char *section = is_choice ? variant(b, v->key, v) : v->key;
        if (!section) return td_fail_oom();
        if (is_section) TD_TRY(prune(b, v, section));
        if (is_section && !v->n_children) {
            take_out(b->root, before, v);
        } else {
            before = v;
        }
    }
    return TD_OK;
}

// ---- the second pass: tries ---------------------------------------------------------------------
// What is no absolute path in a canonical spec is the name of a checkpoint.
static td_status keep_name(void *arg, struct td_arena *a, const char *text, const char **out_name) {
    (void)arg;
    (void)a;
    *out_name = text;
    return TD_OK;
}

td_status td_spec_fill(struct td_arena *a, const struct td_json *stored,
                       const struct td_json **out_spec) {
    struct td_spec_place place = {.checkpoint = keep_name};
    struct td_check c;
    td_check_init(&c, a, 0);
    c.place = &place;
    const struct td_json *made = td_check_document(&c, stored);
    td_status failed = td_check_result(&c);
    const bool is_refused = td_status_code(failed) == TD_INVALID_ARGUMENT;
    if (failed && !is_refused) return failed;
    td_status_free(failed);
    *out_spec = is_refused ? NULL : made;
    return TD_OK;
}

static bool is_same(struct brief *b) {
    const struct td_json *again = NULL;
    td_arena_reset(b->scratch);
    td_buf_clear(&b->text);
    td_status failed = td_spec_fill(b->scratch, b->root, &again);
    if (!failed && again) failed = td_json_print(again, false, &b->text);
    if (failed) {
        td_status_free(failed);
        return false;
    }
    return again && b->text.len == b->canonical.len &&
           memcmp(b->text.data, b->canonical.data, b->text.len) == 0;
}

// Whether it could be left out; then it is.
static bool tries_without(struct brief *b, struct td_json *map, struct td_json *before,
                          struct td_json *v) {
    if (b->tries == 0) return false;
    b->tries--;
    take_out(map, before, v);
    if (is_same(b)) return true;
    put_back(map, before, v);
    return false;
}

static void try_members(struct brief *b, struct td_json *map) {
    struct td_json *before = NULL;
    for (struct td_json *v = map->first; v; v = v->next) {
        if (tries_without(b, map, before, v)) continue;
        if (map == b->root && v->kind == TD_JSON_OBJECT) try_members(b, v);
        before = v;
    }
}

static td_status shorten(struct brief *b, const struct td_json *canonical) {
    const struct td_json *filled;
    b->root = td_json_copy(b->check.arena, canonical);
    if (!b->root) return td_fail_oom();
    TD_TRY(td_spec_fill(b->check.arena, canonical, &filled));
    if (!filled) return TD_OK;
    TD_TRY(td_json_print(filled, false, &b->canonical));
    TD_TRY(prune_sections(b));
    if (!is_same(b)) {
        b->root = td_json_copy(b->check.arena, canonical);
        return b->root ? TD_OK : td_fail_oom();
    }
    if (b->canonical.len <= WHOLE_BYTES) try_members(b, b->root);
    return TD_OK;
}

td_status td_spec_brief(struct td_arena *a, const struct td_json *canonical,
                        const struct td_json **out_brief) {
    TD_AUTO(td_arena) *scratch = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &scratch));
    struct brief b = {.scratch = scratch, .tries = TRIES};
    td_check_init(&b.check, a, 0);
    b.check.kind = td_job_kind_parse(td_json_string(td_json_get(canonical, "kind"), ""));
    td_buf_init(&b.canonical, TEXT_BYTES);
    td_buf_init(&b.text, TEXT_BYTES);
    td_status failed = shorten(&b, canonical);
    td_buf_finish(&b.canonical);
    td_buf_finish(&b.text);
    if (!failed) *out_brief = b.root;
    return failed;
}
