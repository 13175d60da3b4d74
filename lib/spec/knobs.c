// The knob tables, expanded from knobs.def, and plain look-ups in them.
//
// The rows of a section follow its own row, so a section knows where they begin, and whoever reads
// a section looks at its few rows only. Rejected: a hash or a sorted table, a second order to be
// kept in step with the one in which people read.

#include "lib/spec/knobs.h"

#include <stdio.h>
#include <string.h>

#include "lib/job/labels.h"
#include "lib/job/limits.h"

#define TD_SECTION(...)
#define TD_LATER(...)
#define TD_KNOB(section_, key_, type_, ...)                                                        \
    {.section = section_, .key = key_, .type = TD_KNOB_##type_, __VA_ARGS__},
#define TD_PLAN_KNOB(section_, key_, type_, ...)                                                   \
    {.section = section_, .key = key_, .type = TD_KNOB_##type_, .is_plan_only = true, __VA_ARGS__},
const struct td_knob td_knobs[] = {
#include "lib/spec/knobs.def"
};
#undef TD_SECTION
#undef TD_KNOB
#undef TD_PLAN_KNOB
const size_t td_n_knobs = TD_COUNTOF(td_knobs);

// How many knobs are above each section's row, by its file and line: a knob counts on, a section
// does not.
#define TD_LATER(...)
#define TD_JOIN_NAMES(a, part, line) a##part##_##line
#define TD_JOIN(a, part, line)       TD_JOIN_NAMES(a, part, line)
#define TD_ABOVE(line)               TD_JOIN(knobs_above_, TD_KNOBS_PART, line)
#define TD_SAME(line)                TD_JOIN(no_knob_, TD_KNOBS_PART, line)
#define TD_COUNT(line)               TD_JOIN(knob_, TD_KNOBS_PART, line)
#define TD_SECTION(...)              TD_ABOVE(__LINE__), TD_SAME(__LINE__) = TD_ABOVE(__LINE__) - 1,
#define TD_KNOB(...)                 TD_COUNT(__LINE__),
#define TD_PLAN_KNOB(...)            TD_COUNT(__LINE__),
enum {
#include "lib/spec/knobs.def"
};
#undef TD_SECTION
#undef TD_KNOB
#undef TD_PLAN_KNOB

#define TD_KNOB(...)
#define TD_PLAN_KNOB(...)
#define TD_SECTION(path_, kind_, ...)                                                              \
    {.path = path_, .kind = TD_SECTION_##kind_, .first_knob = TD_ABOVE(__LINE__), __VA_ARGS__},
const struct td_section td_sections[] = {
#include "lib/spec/knobs.def"
};
#undef TD_SECTION
#undef TD_LATER
const size_t td_n_sections = TD_COUNTOF(td_sections);

#define TD_SECTION(...)
#define TD_LATER(section, key, what) {section, key, what},
const struct td_later td_laters[] = {
#include "lib/spec/knobs.def"
};
const size_t td_n_laters = TD_COUNTOF(td_laters);

const struct td_knob *td_section_knobs(const struct td_section *s, const struct td_knob **out_end) {
    bool is_last = s == &td_sections[td_n_sections - 1];
    *out_end = &td_knobs[is_last ? td_n_knobs : s[1].first_knob];
    return &td_knobs[s->first_knob];
}

const struct td_knob *td_section_knob(const struct td_section *s, const char *key) {
    const struct td_knob *end;
    for (const struct td_knob *k = td_section_knobs(s, &end); k < end; k++) {
        if (strcmp(k->key, key) == 0) return k;
    }
    return NULL;
}

const struct td_knob *td_knob_find(const char *section, const char *key) {
    const struct td_section *s = td_section_find(section);
    return s ? td_section_knob(s, key) : NULL;
}

const struct td_section *td_section_find(const char *path) {
    for (size_t i = 0; i < td_n_sections; i++) {
        if (strcmp(td_sections[i].path, path) == 0) return &td_sections[i];
    }
    return NULL;
}

bool td_knob_nullable(const struct td_knob *k) {
    return k->fallback && strcmp(k->fallback, "null") == 0;
}

const char *td_section_variant_of(const struct td_section *s, const char *choice) {
    size_t len = strlen(choice);
    bool belongs =
        s->kind == TD_SECTION_VARIANT && strncmp(s->path, choice, len) == 0 && s->path[len] == '.';
    return belongs ? s->path + len + 1 : NULL;
}

const char *td_knob_later(const char *section, const char *key) {
    for (size_t i = 0; i < td_n_laters; i++) {
        const struct td_later *l = &td_laters[i];
        if (strcmp(l->section, section) == 0 && strcmp(l->key, key) == 0) return l->what;
    }
    return NULL;
}

// ---- the `values` column --------------------------------------------------------------------
const char *td_knob_next_choice(const char *at, struct td_knob_choice *out_choice) {
    if (!at || !*at) return NULL;
    struct td_knob_choice c = {.is_later = *at == '!'};
    at += c.is_later;
    size_t len = strcspn(at, "|");
    const char *equals = memchr(at, '=', len);
    c.name = (struct td_str){at, equals ? (size_t)(equals - at) : len};
    if (equals) {
        struct td_str rest = {equals + 1, (size_t)(at + len - equals) - 1};
        *(c.is_later ? &c.instead : &c.alias) = rest;
    }
    *out_choice = c;
    at += len;
    return *at == '|' ? at + 1 : at;
}

void td_knob_items(const struct td_knob *k, size_t *out_min, size_t *out_max) {
    char *end;
    *out_min = strtoul(k->values, &end, 10);
    TD_CHECK(strncmp(end, "..", 2) == 0);
    *out_max = strtoul(end + 2, NULL, 10);
}

const char *td_knob_entry_section(const struct td_knob *k) {
    const char *space = strchr(k->values, ' ');
    if (k->type == TD_KNOB_MAP) return k->values;
    TD_CHECK(space);
    return space + 1;
}

bool td_knob_is_bytes(const struct td_knob *k) {
    const size_t len = strlen(k->key), end = strlen("_bytes");
    return (len > end && strcmp(k->key + len - end, "_bytes") == 0) ||
           strcmp(k->key, "memory") == 0;
}

bool td_knob_max_exclusive(const struct td_knob *k) {
    return k->type == TD_KNOB_REALS && strchr(k->values, '<');
}

// ---- what a row accepts, in words -----------------------------------------------------------
// "auto, cpu or reference"
static const char *join_choices(struct td_arena *a, const struct td_knob *k) {
    const char *text = NULL;
    const char *pending = NULL;
    struct td_knob_choice c;
    for (const char *at = k->values; (at = td_knob_next_choice(at, &c));) {
        if (c.is_later) continue;
        if (pending) text = text ? td_arena_printf(a, "%s, %s", text, pending) : pending;
        pending = td_arena_strndup(a, c.name.data, c.name.len);
    }
    return text ? td_arena_printf(a, "%s or %s", text, pending) : pending;
}

static const char *list_of(struct td_arena *a, const struct td_knob *k, const char *item) {
    size_t min, max;
    td_knob_items(k, &min, &max);
    if (min == max) return td_arena_printf(a, "a list of %zu %s", min, item);
    return td_arena_printf(a, "a list of %zu to %zu %s", min, max, item);
}

static void print_range(const struct td_knob *k, char *range, size_t bytes) {
    if (k->min >= k->max) {
        snprintf(range, bytes, "%.0f", k->min);
    } else if (k->max >= 1e300) {
        snprintf(range, bytes, "of at least %g", k->min);
    } else if (k->type == TD_KNOB_REAL || k->type == TD_KNOB_REALS) {
        snprintf(range, bytes, "from %g to %s%g", k->min, td_knob_max_exclusive(k) ? "below " : "",
                 k->max);
    } else {
        snprintf(range, bytes, "from %.0f to %.0f%s", k->min, k->max,
                 td_knob_is_bytes(k) ? ", or with a unit such as 4GiB or 500MB" : "");
    }
}

#define NAME_TEXT "text of 1 to %.0f letters, digits, '.', '_', '-', a letter or digit first"

// Some of its names have keys of their own: a VARIANT of its ITEM section besides that of plugins.
static bool has_own_keys(const struct td_knob *k) {
    for (size_t i = 0; i < td_n_sections; i++) {
        const char *name = td_section_variant_of(&td_sections[i], k->key);
        if (name && strcmp(name, "plugin") != 0) return true;
    }
    return false;
}

static const char *names_or_plugin(struct td_arena *a, const struct td_knob *k) {
    return td_arena_printf(a, "%s, or a map {name: plugin, %s: NAME, knobs: {...}}%s",
                           join_choices(a, k), k->key,
                           has_own_keys(k) ? ", or one of a name and its keys" : "");
}

// What may be in place of an integer.
static const char *word_beside(const struct td_knob *k) {
    return k->type == TD_KNOB_INT_OR_AUTO ? "or auto" : "true or false";
}

static const char *choice_of(struct td_arena *a, const struct td_knob *k) {
    return td_arena_printf(a, "a map with the name of %s %s, or a bare name",
                           strchr("aeiou", k->values[0]) ? "an" : "a", k->values);
}

static const char *map_of(struct td_arena *a, const struct td_knob *k) {
    if (k->type == TD_KNOB_MAP) return "a map of keys";
    if (k->type != TD_KNOB_LABELS) return "a map";
    return td_arena_printf(a, "a map of at most %d labels, KEY: VALUE", TD_LABELS_MAX);
}

static const char *path_of(struct td_arena *a, const struct td_knob *k) {
    return td_arena_printf(a, "%s%s%s path without '..' and control characters",
                           k->values ? join_choices(a, k) : "", k->values ? ", or " : "",
                           k->is_of_job ? "a" : "an absolute");
}

static const char *expects(struct td_arena *a, const struct td_knob *k) {
    char range[120];
    print_range(k, range, sizeof range);
    switch (k->type) {
    case TD_KNOB_BOOL:
        return "true or false";
    case TD_KNOB_INT:
        return td_arena_printf(a, "%s%s", k->min < k->max ? "an integer " : "", range);
    case TD_KNOB_INT_OR_AUTO:
    case TD_KNOB_INT_OR_BOOL:
        return td_arena_printf(a, "an integer %s, %s", range, word_beside(k));
    case TD_KNOB_INT_BY_EPOCH:
        return td_arena_printf(a, "an integer %s, or a map of up to %d epochs to such", range,
                               TD_LIMITS_WINDOWS);
    case TD_KNOB_REAL:
        return td_arena_printf(a, "a number %s", range);
    case TD_KNOB_AMOUNT:
        return td_arena_printf(a, "a count %s, or a fraction from 0.0 to 1.0", range);
    case TD_KNOB_DURATION:
        return td_arena_printf(a, "seconds %s, or \"DD:HH:MM:SS\"", range);
    case TD_KNOB_ENUM:
        return join_choices(a, k);
    case TD_KNOB_ENUM_OR_PLUGIN:
        return names_or_plugin(a, k);
    case TD_KNOB_NAME:
        return td_arena_printf(a, NAME_TEXT, k->max);
    case TD_KNOB_PLUGIN:
        return "a plugin's name: text of 1 to 31 letters a to z, digits and _, but not auto";
    case TD_KNOB_TEXT:
        return td_arena_printf(a, "text of %.0f to %.0f bytes without control characters", k->min,
                               k->max);
    case TD_KNOB_PATH:
        return path_of(a, k);
    case TD_KNOB_ENUMS:
        return td_arena_printf(a, "a list of different names, each %s", join_choices(a, k));
    case TD_KNOB_INTS:
        return list_of(a, k, td_arena_printf(a, "integers %s", range));
    case TD_KNOB_REALS:
        return list_of(a, k, td_arena_printf(a, "numbers %s", range));
    case TD_KNOB_PATHS:
        return list_of(a, k, "absolute paths without '..' and control characters");
    case TD_KNOB_TEXTS:
        return list_of(a, k, "texts without control characters");
    case TD_KNOB_CHOICE:
        return choice_of(a, k);
    case TD_KNOB_CHOICES:
        return list_of(a, k, td_arena_printf(a, "%ss", td_knob_entry_section(k)));
    case TD_KNOB_MAPS:
        return list_of(a, k, "maps of keys");
    case TD_KNOB_MAP:
    case TD_KNOB_OBJECT:
    case TD_KNOB_LABELS:
        return map_of(a, k);
    case TD_KNOB_TYPE_COUNT:
        break;
    }
    TD_CHECK(false && "a knob has no type");
    return NULL;
}

const char *td_knob_expects(struct td_arena *a, const struct td_knob *k) {
    const char *text = expects(a, k);
    return text && td_knob_nullable(k) ? td_arena_printf(a, "%s, or null", text) : text;
}

const char *td_knob_expects_item(struct td_arena *a, const struct td_knob *k) {
    struct td_knob item = *k;
    item.fallback = NULL;
    item.type = k->type == TD_KNOB_ENUMS ? TD_KNOB_ENUM : k->type;
    if (k->type == TD_KNOB_INTS || k->type == TD_KNOB_INT_BY_EPOCH) item.type = TD_KNOB_INT;
    if (k->type == TD_KNOB_PATHS) {
        item.type = TD_KNOB_PATH;
        item.values = NULL; // how many there may be; a path's are words
    }
    if (k->type == TD_KNOB_TEXTS) item.type = TD_KNOB_TEXT;
    if (k->type == TD_KNOB_MAPS) return "a map of keys";
    if (k->type != TD_KNOB_REALS) return expects(a, &item);
    char range[80];
    print_range(k, range, sizeof range);
    return td_arena_printf(a, "a number %s", range);
}
