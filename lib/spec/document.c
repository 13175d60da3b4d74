// A whole document against the tables: which sections and keys there are, which are missing, and
// what each unknown one was probably meant to be. The canonical tree is built beside the one that
// is read, section by section in the order of the tables, and is complete if nothing was wrong.
//
// Unknown keys are looked up three times. One is among the neighbours by spelling. One is in the
// other sections by name (`devices` at the top level is trainer.devices). One is among keys that
// Lightning has and traind answers differently. A value that is refused is left out, and reading
// goes on.

#include <string.h>

#include "lib/spec/check.h"
#include "lib/spec/hints.h"
#include "lib/spec/place.h"

// A map being read: the path people see, the section whose rows hold, and the choice it belongs to.
struct map {
    const char *path;
    const struct td_section *table;
    const char *choice; // "model" for table "model.mlp", else NULL
    const struct td_json *node;
    int line; // where to point when something is missing
};

static bool takes(const struct td_check *c, bool is_plan_only) {
    return !is_plan_only || c->flags & TD_SPEC_PLAN;
}

static bool of_kind(const struct td_knob *k, enum td_job_kind kind) {
    enum {
        TRAIN = 1 << TD_KIND_TRAIN,
        COMMAND = 1 << TD_KIND_COMMAND,
        PROGRAM = 1 << TD_KIND_PROGRAM
    };
    static const unsigned kinds[] = {[TD_KNOB_OF_TRAIN] = TRAIN,
                                     [TD_KNOB_OF_ALL] = TRAIN | COMMAND | PROGRAM,
                                     [TD_KNOB_OF_OWN] = COMMAND | PROGRAM,
                                     [TD_KNOB_OF_COMMAND] = COMMAND,
                                     [TD_KNOB_OF_SAVED] = TRAIN | PROGRAM};
    return td_job_kind_is_in(kinds[k->of], kind);
}

// The kind of this job has the key.
static bool serves(const struct td_check *c, const struct td_knob *k) {
    return of_kind(k, c->kind);
}

static bool has(const struct td_check *c, const struct td_knob *k) {
    return takes(c, k->is_plan_only) && serves(c, k);
}

// A kind has the sections with a key of its own. A training has those, too, whose keys are all
// beside a name.
static bool section_of_kind(const struct td_section *s, enum td_job_kind kind) {
    const struct td_knob *end, *first = td_section_knobs(s, &end), *k = first;
    while (k < end && !of_kind(k, kind)) {
        k++;
    }
    return k < end || (kind == TD_KIND_TRAIN && first == end);
}

static bool section_serves(const struct td_check *c, const struct td_section *s) {
    return section_of_kind(s, c->kind);
}

static bool section_is_taken(const struct td_check *c, const struct td_section *s) {
    return s->kind != TD_SECTION_ROOT && s->kind != TD_SECTION_VARIANT &&
           s->kind != TD_SECTION_ITEM && s->kind != TD_SECTION_ENTRY && section_serves(c, s) &&
           takes(c, s->kind == TD_SECTION_PLAN);
}

static bool is_root(const struct map *m) {
    return m->table->kind == TD_SECTION_ROOT;
}

// ---- unknown keys -----------------------------------------------------------------------------
static void offer_keys(const struct td_check *c, const struct map *m, struct td_nearest *near) {
    const struct td_knob *end;
    for (const struct td_knob *k = td_section_knobs(m->table, &end); k < end; k++) {
        if (has(c, k)) td_nearest_offer(near, k->key);
    }
    if (m->choice) td_nearest_offer(near, "name");
    for (size_t i = 0; is_root(m) && i < td_n_sections; i++) {
        if (section_is_taken(c, &td_sections[i])) td_nearest_offer(near, td_sections[i].path);
    }
}

// The same key at its right place: `devices` at the top level is trainer.devices.
static const char *elsewhere(struct td_check *c, const struct map *m, const char *key) {
    const char *found = NULL;
    for (size_t i = 0; i < td_n_knobs; i++) {
        const struct td_knob *k = &td_knobs[i];
        bool is_fixed = !strchr(k->section, '.');
        if (!is_fixed || strcmp(k->key, key) != 0) continue;
        if (strcmp(k->section, m->table->path) == 0) continue;
        if (!has(c, k) || strcmp(k->section, "run") == 0) continue;
        found = td_check_path(c, k->section, key);
    }
    return found;
}

// A key of the section, or of a name that the section may have; the section itself, with "".
static bool section_has(const struct td_check *c, const struct td_section *s, const char *key) {
    if (!section_is_taken(c, s)) return false;
    const struct td_knob *k = td_section_knob(s, key);
    if (!*key || (k && has(c, k))) return true;
    for (size_t i = 0; i < td_n_sections; i++) {
        const bool is_of_it = td_section_variant_of(&td_sections[i], s->path);
        if (is_of_it && td_section_knob(&td_sections[i], key)) return true;
    }
    return false;
}

// A path of hints.def is one that this job may have.
static bool is_path_of(const struct td_check *c, const char *path) {
    const struct td_knob *k = td_knob_find("", path);
    const char *dot = strchr(path, '.');
    for (size_t i = 0; !k && i < td_n_sections; i++) {
        const struct td_section *s = &td_sections[i];
        const size_t len = dot ? (size_t)(dot - path) : strlen(path);
        if (strlen(s->path) != len || strncmp(s->path, path, len) != 0) continue;
        return section_has(c, s, dot ? dot + 1 : "");
    }
    return k && has(c, k);
}

// What other systems call so, by its path, or by its key where that is one of this map.
static const char *other_word(const struct td_check *c, const struct map *m, const char *key) {
    const char *path;
    for (size_t at = 0; (path = td_hint_key(key, &at));) {
        const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
        const struct td_knob *k = td_section_knob(m->table, last);
        if (k && has(c, k) && *m->table->path) return last;
        const bool is_of_this = m->choice && dot && strlen(m->choice) == (size_t)(dot - path) &&
                                strncmp(path, m->choice, (size_t)(dot - path)) == 0;
        if (!is_of_this && is_path_of(c, path)) return path; // else another name has it
    }
    return NULL;
}

static const char *known_keys(struct td_check *c, const struct map *m) {
    const char *text = m->choice ? "name" : NULL;
    const struct td_knob *end;
    for (const struct td_knob *k = td_section_knobs(m->table, &end); k < end; k++) {
        if (!has(c, k)) continue;
        text = text ? td_arena_printf(c->arena, "%s, %s", text, k->key) : k->key;
    }
    for (size_t i = 0; is_root(m) && text && i < td_n_sections; i++) {
        const struct td_section *s = &td_sections[i];
        if (section_is_taken(c, s)) text = td_arena_printf(c->arena, "%s, %s", text, s->path);
    }
    return text ? text : "nothing";
}

// It is there, for jobs of other kinds: these, "kinds command and program have". NULL: it is not.
static const char *other_kinds(struct td_check *c, const struct map *m, const char *key) {
    const struct td_knob *k = td_section_knob(m->table, key);
    const struct td_section *s = !k && is_root(m) ? td_section_find(key) : NULL;
    const char *names = NULL;
    bool several = false;
    if (k ? !takes(c, k->is_plan_only) : !s || strchr(key, '.')) return NULL;
    for (int i = 0; i < (int)TD_KIND_COUNT; i++) {
        enum td_job_kind kind = (enum td_job_kind)i;
        if (!(k ? of_kind(k, kind) : section_of_kind(s, kind))) continue;
        if (kind == c->kind) return NULL;
        several = names != NULL;
        const char *name = td_job_kind_name(kind);
        names = names ? td_arena_printf(c->arena, "%s and %s", names, name) : name;
    }
    return names ? td_arena_printf(c->arena, "kind%s %s %s", several ? "s" : "", names,
                                   several ? "have" : "has")
                 : NULL;
}

static void unknown(struct td_check *c, const struct map *m, const struct td_json *member) {
    if (!td_check_wants_text(c)) {
        c->n_violations++;
        return;
    }
    const char *key = member->key;
    const char *path = td_check_path(c, m->path, key);
    const char *others = other_kinds(c, m, key);
    if (others) {
        td_check_violation(c, path, member->line, "a job of kind %s has no such key, %s",
                           td_job_kind_name(c->kind), others);
        return;
    }
    const char *what = td_knob_later(m->choice ? m->choice : m->table->path, key);
    struct td_nearest near;
    td_nearest_init(&near, key);
    offer_keys(c, m, &near);
    const char *word = near.distance > 0 ? other_word(c, m, key) : NULL;
    const char *other = near.best ? NULL : elsewhere(c, m, key);
    if (what) {
        td_check_violation(c, path, member->line, "no such key here: %s", what);
    } else if (word) {
        td_check_violation(c, path, member->line, "unknown key%s, did you mean %s?",
                           strcmp(word, key) == 0 || strchr(word, '.') ? " here" : "", word);
    } else if (near.best) {
        td_check_violation(c, path, member->line, "unknown key, did you mean %s?", near.best);
    } else if (other) {
        td_check_violation(c, path, member->line, "unknown key here, did you mean %s?", other);
    } else {
        td_check_violation(c, path, member->line, "unknown key; known here: %s", known_keys(c, m));
    }
}

// ---- the knobs of a map -------------------------------------------------------------------------
static bool is_known(const struct td_check *c, const struct map *m, const char *key) {
    const struct td_knob *k = td_section_knob(m->table, key);
    if (k) return has(c, k);
    if (m->choice) return strcmp(key, "name") == 0;
    const struct td_section *s = is_root(m) ? td_section_find(key) : NULL;
    return s && !strchr(key, '.') && section_is_taken(c, s);
}

static void read_knobs(struct td_check *c, const struct map *m, struct td_json *out) {
    for (const struct td_json *v = m->node ? m->node->first : NULL; v; v = v->next) {
        if (!is_known(c, m, v->key)) unknown(c, m, v);
    }
    const struct td_knob *end;
    for (const struct td_knob *k = td_section_knobs(m->table, &end); k < end && !c->is_oom; k++) {
        if (!has(c, k)) continue;
        const struct td_json *v = td_json_get(m->node, k->key);
        struct td_json *made = NULL;
        if (v) {
            made = td_check_value(c, k, td_check_path(c, m->path, k->key), v);
        } else if (k->fallback) {
            made = td_check_default(c, k);
        } else {
            const char *expects = td_knob_expects(c->arena, k);
            if (td_check_oom(c, expects)) return;
            td_check_violation(c, td_check_path(c, m->path, k->key), m->line, "required: %s",
                               expects);
        }
        if (!made) continue;
        made->key = k->key; // a constant; each is once in its section
        TD_CHECK(td_json_push(out, made));
    }
}

struct td_json *td_check_entry(struct td_check *c, const char *section, const char *path,
                               const struct td_json *v) {
    const struct td_section *table = td_section_find(section);
    TD_CHECK(table);
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return NULL;
    read_knobs(c, &(struct map){path, table, NULL, v, v->line}, out);
    return out;
}

// ---- choices ------------------------------------------------------------------------------------
static const char *known_variants(struct td_check *c, const char *choice, struct td_nearest *near) {
    const char *text = NULL;
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *name = td_section_variant_of(&td_sections[i], choice);
        if (!name) continue;
        if (near) td_nearest_offer(near, name);
        text = text ? td_arena_printf(c->arena, "%s, %s", text, name) : name;
    }
    return text ? text : "none";
}

// The section's row of the named variant; NULL after noting why not.
static const struct td_section *find_variant(struct td_check *c, const struct map *m,
                                             const struct td_json *name) {
    const char *choice = m->table->path;
    if (!name || name->kind != TD_JSON_STRING) {
        td_check_violation(c, td_check_path(c, m->path, "name"), name ? name->line : m->line,
                           "required: one of %s%s%s", known_variants(c, choice, NULL),
                           name ? ", found " : "", name ? td_check_describe(c->arena, name) : "");
        return NULL;
    }
    const char *wanted = name->u.string.data;
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *variant = td_section_variant_of(&td_sections[i], choice);
        if (variant && strcmp(variant, wanted) == 0) return &td_sections[i];
    }
    struct td_nearest near;
    td_nearest_init(&near, td_hint_bare(wanted));
    const char *known = known_variants(c, choice, &near);
    const char *hint = near.distance > 0 ? td_hint_name(choice, wanted) : NULL;
    const char *meant = hint ? hint : near.best;
    td_check_violation(c, td_check_path(c, m->path, "name"), name->line,
                       "unknown %s, found %s; known: %s%s%s%s", choice,
                       td_check_describe(c->arena, name), known, meant ? "; did you mean " : "",
                       meant ? meant : "", meant ? "?" : "");
    return NULL;
}

static bool stages_include_fit(const struct td_json *canonical) {
    const struct td_json *stages = td_json_get(canonical, "stages");
    for (const struct td_json *v = stages ? stages->first : NULL; v; v = v->next) {
        if (strcmp(td_json_string(v, ""), "fit") == 0) return true;
    }
    return !stages;
}

// The chosen variant's name and knobs; m->table is the choice's until it is known.
static void read_variant(struct td_check *c, struct map *m, const struct td_json *name,
                         struct td_json *out) {
    const struct td_section *variant = find_variant(c, m, name);
    if (!variant) return;
    struct td_json *copy = td_json_copy(c->arena, name);
    if (td_check_oom(c, td_json_set(c->arena, out, "name", copy) ? out : NULL)) return;
    m->choice = m->table->path;
    m->table = variant;
    read_knobs(c, m, out);
}

// bare: the name instead of a map; NULL: there is a map, or nothing.
static void read_choice(struct td_check *c, const struct td_section *s, struct map *m,
                        const struct td_json *bare, const struct td_json *canonical,
                        struct td_json *out) {
    const char *fallback = s->fallback;
    // A job that only evaluates needs no optimizer, nor does one that has a list of them; the plan
    // still names one.
    const struct td_json *several = td_json_get(canonical, "optimizers");
    bool is_optimizer = strcmp(s->path, "optimizer") == 0;
    bool is_idle = !stages_include_fit(canonical) || (several && several->n_children);
    if (is_optimizer && is_idle) fallback = TD_CHECK_IDLE_OPTIMIZER;
    const struct td_json *name = bare ? bare : td_json_get(m->node, "name");
    if (!m->node && !bare && fallback) {
        name = td_json_new_string(c->arena, fallback);
        if (td_check_oom(c, name)) return;
    } else if (!m->node && !bare) {
        td_check_violation(c, s->path, m->line, "required: a map with a name, one of %s",
                           known_variants(c, s->path, NULL));
        return;
    }
    read_variant(c, m, name, out);
}

struct td_json *td_check_choice(struct td_check *c, const char *choice, const char *path,
                                const struct td_json *v) {
    bool is_name = v->kind == TD_JSON_STRING;
    if (!is_name && v->kind != TD_JSON_OBJECT) {
        td_check_violation(c, path, v->line, "expected a map with a name, or a name, found %s",
                           td_check_describe(c->arena, v));
        return NULL;
    }
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return NULL;
    const struct td_section *table = td_section_find(choice);
    TD_CHECK(table);
    struct map m = {path, table, NULL, is_name ? NULL : v, v->line};
    read_variant(c, &m, is_name ? v : td_json_get(v, "name"), out);
    return out;
}

// ---- the document -------------------------------------------------------------------------------
static void read_section(struct td_check *c, const struct td_section *s, const struct td_json *root,
                         struct td_json *canonical) {
    const struct td_json *node = td_json_get(root, s->path);
    const bool is_choice = s->kind == TD_SECTION_CHOICE;
    const bool is_bare = is_choice && node && node->kind == TD_JSON_STRING;
    if (node && node->kind != TD_JSON_OBJECT && !is_bare) {
        td_check_violation(c, s->path, node->line, "expected a map of keys%s, found %s",
                           is_choice ? " with a name, or a name" : "",
                           td_check_describe(c->arena, node));
        return;
    }
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return;
    struct map m = {s->path, s, NULL, is_bare ? NULL : node, node ? node->line : 0};
    out->line = m.line;
    if (is_choice) {
        read_choice(c, s, &m, is_bare ? node : NULL, canonical, out);
    } else {
        read_knobs(c, &m, out);
    }
    td_check_oom(c, td_json_set(c->arena, canonical, s->path, out) ? out : NULL);
}

struct td_json *td_check_document(struct td_check *c, const struct td_json *root) {
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return NULL;
    if (root->kind == TD_JSON_NULL) {
        td_check_violation(c, "", root->line, "the %s is empty", c->what);
        return NULL;
    }
    if (root->kind != TD_JSON_OBJECT) {
        td_check_violation(c, "", root->line, "a %s is a map of keys, found %s", c->what,
                           td_check_describe(c->arena, root));
        return NULL;
    }
    c->kind = td_job_kind_parse(td_json_string(td_json_get(root, "kind"), ""));
    read_knobs(c, &(struct map){"", td_section_find(""), NULL, root, 0}, out);
    for (size_t i = 0; i < td_n_sections && !c->is_oom; i++) {
        if (section_is_taken(c, &td_sections[i])) read_section(c, &td_sections[i], root, out);
    }
    if (c->has_loose_texts) td_place_keep(c, td_json_get(out, "paths_from"));
    if (!c->is_oom) td_check_rules(c, out);
    return out;
}
