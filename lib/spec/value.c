// One value against one row of the knob tables.
//
// Every refusal reads "expected X, found Y", X being the row in words (td_knob_expects), so a type
// error and a range error teach the same thing. Comparisons are written so that NaN fails them.
// What comes back is canonical: numbers of the row's own kind, aliases by their real name.

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "lib/job/labels.h"
#include "lib/job/limits.h"
#include "lib/spec/check.h"
#include "lib/spec/hints.h"
#include "lib/spec/place.h"

// What is being checked, handed down whole.
struct subject {
    struct td_check *c;
    const struct td_knob *k;
    const char *path;
    bool is_item; // of a list
};

static struct td_json *refuse(const struct subject *s, const struct td_json *v, const char *hint) {
    if (!td_check_wants_text(s->c)) {
        s->c->n_violations++;
        return NULL;
    }
    struct td_arena *a = s->c->arena;
    const char *expects = s->is_item ? td_knob_expects_item(a, s->k) : td_knob_expects(a, s->k);
    if (td_check_oom(s->c, expects)) return NULL;
    td_check_violation(s->c, s->path, v->line, "expected %s, found %s%s%s", expects,
                       td_check_describe(a, v), hint ? ": " : "", hint ? hint : "");
    return NULL;
}

static struct td_json *fresh(const struct subject *s, struct td_json *made) {
    td_check_oom(s->c, made);
    return made;
}

static bool is_in_range(const struct td_knob *k, double v) {
    return v >= k->min && (td_knob_max_exclusive(k) ? v < k->max : v <= k->max);
}

static bool is_text(const struct td_json *v, const char *text) {
    return v->kind == TD_JSON_STRING && strcmp(v->u.string.data, text) == 0;
}

// ---- numbers ------------------------------------------------------------------------------------
// "4GiB", "1.5 GB": bytes; -1: it is no such text. Units without an i are powers of 1000.
static int64_t bytes_of(const struct td_json *v) {
    static const struct {
        char name[4];
        double bytes;
    } units[] = {
        {"B", 1},     {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
        {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    const char *text = v->kind == TD_JSON_STRING ? v->u.string.data : "";
    const size_t digits = strspn(text, "0123456789.");
    char *end;
    if (!isdigit((unsigned char)text[0])) return -1;
    const double number = strtod(text, &end);
    if (end != text + digits) return -1;
    end += strspn(end, " ");
    for (size_t i = 0; i < TD_COUNTOF(units); i++) {
        const double bytes = number * units[i].bytes;
        if (strcmp(end, units[i].name) == 0) return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
    }
    return -1;
}

static struct td_json *check_int(const struct subject *s, const struct td_json *v) {
    const int64_t bytes = td_knob_is_bytes(s->k) ? bytes_of(v) : -1;
    if (bytes >= 0 && is_in_range(s->k, (double)bytes)) {
        return fresh(s, td_json_new_int(s->c->arena, bytes));
    }
    bool is_int = v->kind == TD_JSON_INT;
    if (!is_int || !is_in_range(s->k, (double)v->u.integer)) {
        bool is_above = is_int && (double)v->u.integer > s->k->max;
        return refuse(s, v, is_above && s->k->type == TD_KNOB_INT ? s->k->values : NULL);
    }
    return fresh(s, td_json_new_int(s->c->arena, v->u.integer));
}

static struct td_json *check_int_or_auto(const struct subject *s, const struct td_json *v) {
    if (is_text(v, "auto")) return fresh(s, td_json_new_string(s->c->arena, "auto"));
    return check_int(s, v);
}

static struct td_json *check_int_or_bool(const struct subject *s, const struct td_json *v) {
    if (v->kind == TD_JSON_BOOL) return fresh(s, td_json_new_int(s->c->arena, v->u.boolean));
    return check_int(s, v);
}

// An epoch as a key of a map: its digits, without zeros in front; -1: it is none.
static int64_t epoch_of(const char *key) {
    size_t len = strlen(key);
    bool plain =
        len > 0 && len < 11 && strspn(key, "0123456789") == len && (*key != '0' || !key[1]);
    int64_t epoch = plain ? strtoll(key, NULL, 10) : -1;
    return epoch <= INT32_MAX ? epoch : -1;
}

// The next member of a map by its epoch; NULL: there is none after it.
static const struct td_json *next_epoch(const struct td_json *map, int64_t after) {
    const struct td_json *next = NULL;
    for (const struct td_json *v = map->first; v; v = v->next) {
        int64_t epoch = epoch_of(v->key);
        if (epoch > after && (!next || epoch < epoch_of(next->key))) next = v;
    }
    return next;
}

static struct td_json *add_member(const struct subject *s, struct td_json *map, const char *key,
                                  struct td_json *v) {
    return fresh(s, v && td_json_set(s->c->arena, map, key, v) ? map : NULL);
}

// Canonical: by ascending epoch from 0 on; before the first that is given it is the knob's least.
static struct td_json *check_int_by_epoch(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_OBJECT) return check_int(s, v);
    for (const struct td_json *m = v->first; m; m = m->next) {
        if (epoch_of(m->key) < 0) return refuse(s, v, "its keys are epochs, from 0 on");
    }
    const struct td_json *m = next_epoch(v, -1);
    bool from_start = m && epoch_of(m->key) == 0;
    if (!m || v->n_children + !from_start > TD_LIMITS_WINDOWS) return refuse(s, v, NULL);
    struct td_json *map = fresh(s, td_json_new(s->c->arena, TD_JSON_OBJECT));
    if (map && !from_start) {
        map = add_member(s, map, "0", td_json_new_int(s->c->arena, (int64_t)s->k->min));
    }
    for (; map && m; m = next_epoch(v, epoch_of(m->key))) {
        struct subject one = {s->c, s->k, td_check_path(s->c, s->path, m->key), true};
        struct td_json *made = check_int(&one, m);
        if (!made) return NULL;
        made->line = m->line;
        map = add_member(s, map, m->key, made);
    }
    return map;
}

static struct td_json *check_real(const struct subject *s, const struct td_json *v) {
    bool is_number = v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL;
    double real = td_json_real(v, 0);
    if (!is_number || !is_in_range(s->k, real)) return refuse(s, v, NULL);
    return fresh(s, td_json_new_real(s->c->arena, real));
}

static struct td_json *check_amount(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_REAL) return check_int(s, v);
    if (!(v->u.real >= 0 && v->u.real <= 1)) return refuse(s, v, NULL);
    return fresh(s, td_json_new_real(s->c->arena, v->u.real));
}

static struct td_json *check_duration(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_STRING) return check_int(s, v);
    int field[4], end = 0;
    const char *text = v->u.string.data;
    bool is_plain = strspn(text, "0123456789:") == v->u.string.len;
    bool ok = is_plain && sscanf(text, "%3d:%2d:%2d:%2d%n", &field[0], &field[1], &field[2],
                                 &field[3], &end) == 4;
    if (!ok || text[end] || field[1] > 23 || field[2] > 59 || field[3] > 59) {
        return refuse(s, v, NULL);
    }
    int64_t seconds = ((field[0] * INT64_C(24) + field[1]) * 60 + field[2]) * 60 + field[3];
    if (!is_in_range(s->k, (double)seconds)) return refuse(s, v, NULL);
    return fresh(s, td_json_new_int(s->c->arena, seconds));
}

// ---- names and texts -------------------------------------------------------------------------
static bool str_is(struct td_str name, const char *text) {
    return name.len > 0 && strlen(text) == name.len && memcmp(name.data, text, name.len) == 0;
}

static const char *did_you_mean(const struct subject *s, const char *text) {
    struct td_nearest near;
    td_nearest_init(&near, td_hint_bare(text));
    struct td_knob_choice choice;
    for (const char *at = s->k->values; (at = td_knob_next_choice(at, &choice));) {
        if (choice.is_later) continue;
        const char *name = td_arena_strndup(s->c->arena, choice.name.data, choice.name.len);
        if (name) td_nearest_offer(&near, name);
    }
    const char *hint = near.distance > 0 ? td_hint_name(s->k->key, text) : NULL, // a word of others
        *meant = hint ? hint : near.best;
    return meant ? td_arena_printf(s->c->arena, "did you mean %s?", meant) : NULL;
}

static const char *why_later(const struct subject *s, const struct td_knob_choice *choice) {
    const char *why = td_arena_strndup(s->c->arena, choice->instead.data, choice->instead.len);
    return why && *why ? why : "known, but not in this release";
}

static struct td_json *check_enum(const struct subject *s, const struct td_json *v) {
    const char *text = td_json_string(td_check_as_text(s->c, v), "");
    struct td_knob_choice choice;
    for (const char *at = s->k->values; (at = td_knob_next_choice(at, &choice));) {
        if (!str_is(choice.name, text) && !str_is(choice.alias, text)) continue;
        if (choice.is_later) return refuse(s, v, why_later(s, &choice));
        const char *name = td_arena_strndup(s->c->arena, choice.name.data, choice.name.len);
        return fresh(s, td_json_new_string(s->c->arena, name));
    }
    return refuse(s, v, v->kind == TD_JSON_STRING ? did_you_mean(s, text) : NULL);
}

// A plugin's is a map; a map with nothing but another name is that name.
static struct td_json *check_enum_or_plugin(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_OBJECT) return check_enum(s, v);
    const struct td_json *name = td_json_get(v, "name");
    if (v->n_children == 1 && name && !is_text(name, "plugin")) return check_enum(s, name);
    return td_check_choice(s->c, s->k->key, s->path, v);
}

static bool has_control(const char *text) {
    for (; *text; text++) {
        unsigned char ch = (unsigned char)*text;
        if (ch < 0x20 || ch == 0x7f) return true;
    }
    return false;
}

static bool is_name(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        bool is_alnum = isascii((unsigned char)text[i]) && isalnum((unsigned char)text[i]);
        if (!is_alnum && (i == 0 || !strchr("._-", text[i]))) return false;
    }
    return true;
}

// As the registry takes it; auto is a choice of traind's own wherever a plugin may be named.
static bool is_plugin(const char *text) {
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return !text[len] && strcmp(text, "auto") != 0;
}

// Whether it begins where the job is: what is there of it the node knows.
static bool is_of_job(const struct td_knob *k, const char *text) {
    return k->is_of_job && *text != '/' && *text != '~';
}

static bool is_path(const struct td_knob *k, const char *text) {
    if (*text != '/' && !is_of_job(k, text)) return false;
    for (const char *part = text; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return false;
    }
    return true;
}

static bool is_path_knob(const struct td_knob *k) {
    return k->type == TD_KNOB_PATH || k->type == TD_KNOB_PATHS;
}

// A word that a PATH knows besides paths.
static bool is_word(const struct td_knob *k, const char *text) {
    struct td_knob_choice choice;
    const char *at = k->type == TD_KNOB_PATH ? k->values : NULL;
    while (at && (at = td_knob_next_choice(at, &choice))) {
        if (str_is(choice.name, text)) return true;
    }
    return false;
}

static struct td_json *check_text(const struct subject *s, const struct td_json *given) {
    const struct td_json *v = td_check_as_text(s->c, given);
    if (!v) return refuse(s, given, td_check_text_hint(given));
    const char *text = v->u.string.data;
    size_t len = v->u.string.len;
    const bool is_place =
        is_path_knob(s->k) && !is_word(s->k, text) && !is_of_job(s->k, text) && strlen(text) == len;
    if (is_place && !has_control(text)) {
        text = td_place_path(s->c, s->k, s->path, v->line, text);
        if (!text) return NULL;
        len = strlen(text);
    }
    bool ok = is_in_range(s->k, (double)len) && strlen(text) == len && !has_control(text);
    ok = ok && (s->k->type != TD_KNOB_NAME || is_name(text, len));
    ok = ok && (s->k->type != TD_KNOB_PLUGIN || is_plugin(text));
    ok = ok && (!is_path_knob(s->k) || is_path(s->k, text) || is_word(s->k, text) ||
                td_place_is_checkpoint(s->c, text));
    return ok ? fresh(s, td_json_new_string(s->c->arena, text)) : refuse(s, v, NULL);
}

// ---- lists ------------------------------------------------------------------------------------
typedef struct td_json *check_fn(const struct subject *s, const struct td_json *v);

static struct td_json *check_list(const struct subject *s, const struct td_json *v, check_fn *item,
                                  size_t min, size_t max) {
    if (v->kind != TD_JSON_ARRAY || v->n_children < min || v->n_children > max) {
        return refuse(s, v, NULL);
    }
    struct td_json *list = fresh(s, td_json_new(s->c->arena, TD_JSON_ARRAY));
    bool ok = list;
    size_t i = 0;
    for (const struct td_json *child = v->first; child && list; child = child->next, i++) {
        const char *path = td_arena_printf(s->c->arena, "%s[%zu]", s->path, i);
        struct subject one = {s->c, s->k, path ? path : s->path, true};
        struct td_json *made = item(&one, child);
        if (made) made->line = child->line;
        ok &= td_json_push(list, made);
    }
    return ok ? list : NULL;
}

static struct td_json *check_names(const struct subject *s, const struct td_json *v) {
    const bool may_be_none = s->k->fallback && strcmp(s->k->fallback, "[]") == 0;
    struct td_json *list = check_list(s, v, check_enum, may_be_none ? 0 : 1, 16);
    for (const struct td_json *a = list ? list->first : NULL; a; a = a->next) {
        for (const struct td_json *b = a->next; b; b = b->next) {
            if (!is_text(b, a->u.string.data)) continue;
            td_check_violation(s->c, s->path, b->line, "'%s' is there twice", a->u.string.data);
            return NULL;
        }
    }
    return list;
}

// A layer, or a logger: a map with a name, or the bare name.
static struct td_json *check_item(const struct subject *s, const struct td_json *v) {
    return td_check_choice(s->c, td_knob_entry_section(s->k), s->path, v);
}

static struct td_json *check_map(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_OBJECT) return refuse(s, v, NULL);
    return td_check_entry(s->c, td_knob_entry_section(s->k), s->path, v);
}

// Kept as it is. Which of a plugin's knobs are paths is known on the node alone.
static struct td_json *check_object(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_OBJECT) return refuse(s, v, NULL);
    const bool is_of_plugin = strcmp(s->k->key, "knobs") == 0;
    for (const struct td_json *m = v->first; m && is_of_plugin; m = m->next) {
        const char first = td_json_string(m, "")[0];
        s->c->has_loose_texts |= first && first != '/';
    }
    return fresh(s, td_json_copy(s->c->arena, v));
}

// ---- labels ------------------------------------------------------------------------------------
// The next member of a map by its key; NULL: there is none after it.
static const struct td_json *next_key(const struct td_json *map, const char *after) {
    const struct td_json *next = NULL;
    for (const struct td_json *v = map->first; v; v = v->next) {
        const bool is_later = !after || strcmp(v->key, after) > 0;
        if (is_later && (!next || strcmp(v->key, next->key) < 0)) next = v;
    }
    return next;
}

// NULL after noting what is wrong. `--set labels.a.b=c` made a map of a.
static struct td_json *check_label(const struct subject *s, const struct td_json *v) {
    const char *path = td_check_path(s->c, s->path, v->key);
    if (!td_label_key_ok(v->key, strlen(v->key))) {
        td_check_violation(s->c, path, v->line, "the key is no label's: " TD_LABEL_RULE);
        return NULL;
    }
    const struct td_json *text = td_check_as_text(s->c, v);
    if (text && td_label_value_ok(text->u.string.data, text->u.string.len)) {
        struct td_json *made = fresh(s, td_json_new_string(s->c->arena, text->u.string.data));
        if (made) made->line = v->line;
        return made;
    }
    const char *hint = v->kind == TD_JSON_OBJECT
                           ? "; a key with '.' is set as --set 'labels={a.b: c}'"
                       : v->kind == TD_JSON_NULL ? "; \"\" is an empty one"
                                                 : "";
    td_check_violation(s->c, path, v->line,
                       "expected a label's text, found %s: " TD_LABEL_RULE "%s",
                       td_check_describe(s->c->arena, v), hint);
    return NULL;
}

// Canonical: by key, so that the same labels are the same text in whatever order they were given.
static struct td_json *check_labels(const struct subject *s, const struct td_json *v) {
    if (v->kind != TD_JSON_OBJECT) return refuse(s, v, NULL);
    if (v->n_children > TD_LABELS_MAX) {
        td_check_violation(s->c, s->path, v->line, "has %zu labels, at most %d are taken",
                           v->n_children, TD_LABELS_MAX);
        return NULL;
    }
    struct td_json *map = fresh(s, td_json_new(s->c->arena, TD_JSON_OBJECT));
    bool ok = true;
    for (const struct td_json *m = next_key(v, NULL); map && m; m = next_key(v, m->key)) {
        struct td_json *made = check_label(s, m);
        ok &= made != NULL;
        if (made) map = add_member(s, map, m->key, made);
    }
    return ok ? map : NULL;
}

// ---- the row ----------------------------------------------------------------------------------
static struct td_json *check_kind(const struct subject *s, const struct td_json *v) {
    size_t min, max;
    switch (s->k->type) {
    case TD_KNOB_BOOL:
        if (v->kind != TD_JSON_BOOL) return refuse(s, v, NULL);
        return fresh(s, td_json_new_bool(s->c->arena, v->u.boolean));
    case TD_KNOB_INT:
        return check_int(s, v);
    case TD_KNOB_INT_OR_AUTO:
        return check_int_or_auto(s, v);
    case TD_KNOB_INT_OR_BOOL:
        return check_int_or_bool(s, v);
    case TD_KNOB_INT_BY_EPOCH:
        return check_int_by_epoch(s, v);
    case TD_KNOB_REAL:
        return check_real(s, v);
    case TD_KNOB_AMOUNT:
        return check_amount(s, v);
    case TD_KNOB_DURATION:
        return check_duration(s, v);
    case TD_KNOB_ENUM:
        return check_enum(s, v);
    case TD_KNOB_ENUM_OR_PLUGIN:
        return check_enum_or_plugin(s, v);
    case TD_KNOB_NAME:
    case TD_KNOB_PLUGIN:
    case TD_KNOB_TEXT:
    case TD_KNOB_PATH:
        return check_text(s, v);
    case TD_KNOB_ENUMS:
        return check_names(s, v);
    case TD_KNOB_INTS:
    case TD_KNOB_REALS:
        td_knob_items(s->k, &min, &max);
        return check_list(s, v, s->k->type == TD_KNOB_INTS ? check_int : check_real, min, max);
    case TD_KNOB_PATHS:
    case TD_KNOB_TEXTS:
        td_knob_items(s->k, &min, &max);
        return check_list(s, v, check_text, min, max);
    case TD_KNOB_CHOICE:
        return td_check_choice(s->c, s->k->values, s->path, v);
    case TD_KNOB_CHOICES:
        td_knob_items(s->k, &min, &max);
        return check_list(s, v, check_item, min, max);
    case TD_KNOB_MAPS:
        td_knob_items(s->k, &min, &max);
        return check_list(s, v, check_map, min, max);
    case TD_KNOB_MAP:
        return check_map(s, v);
    case TD_KNOB_OBJECT:
        return check_object(s, v);
    case TD_KNOB_LABELS:
        return check_labels(s, v);
    case TD_KNOB_TYPE_COUNT:
        break;
    }
    TD_CHECK(false && "a knob has no type");
    return NULL;
}

struct td_json *td_check_value(struct td_check *c, const struct td_knob *k, const char *path,
                               const struct td_json *v) {
    struct subject s = {c, k, path, false};
    bool is_null = v->kind == TD_JSON_NULL && td_knob_nullable(k);
    struct td_json *made =
        is_null ? fresh(&s, td_json_new(c->arena, TD_JSON_NULL)) : check_kind(&s, v);
    if (made) made->line = v->line;
    return made;
}

// "[1, 5, 25]", "{}" or one scalar; the tables hold nothing else.
struct td_json *td_check_default(struct td_check *c, const struct td_knob *k) {
    struct td_json *v = NULL;
    if (*k->fallback == '[') {
        v = td_json_new(c->arena, TD_JSON_ARRAY);
        for (const char *at = k->fallback + 1; v && *at && *at != ']';) {
            size_t len = strcspn(at, ",]");
            if (!td_json_push(v, td_scalar_resolve(c->arena, at, len))) v = NULL;
            at += len;
            at += strspn(at, ", ");
        }
    } else if (*k->fallback == '{') {
        v = td_json_new(c->arena, TD_JSON_OBJECT);
    } else {
        v = td_scalar_resolve(c->arena, k->fallback, strlen(k->fallback));
    }
    return td_check_oom(c, v) ? NULL : td_check_value(c, k, k->key, v);
}
