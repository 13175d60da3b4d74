// A plugin's row becomes a row of the spec's own tables, so that there is one set of checks. A
// default that its own row refuses is the plugin's mistake, and is said to be.

#include "lib/spec/plugin_knobs.h"

#include <string.h>

#include "lib/spec/check.h"
#include "lib/spec/place.h"

#define ANY_INT  9007199254740992.0 // 2^53: as far as a double counts
#define ANY_REAL 1e299              // below what a range calls "no end"
enum { ANY_BYTES = 4095 };

static struct td_knob row_of(const struct td_plugin_knob *k) {
    static const enum td_knob_type types[] = {
        [TD_PLUGIN_KNOB_BOOL] = TD_KNOB_BOOL,   [TD_PLUGIN_KNOB_INT] = TD_KNOB_INT,
        [TD_PLUGIN_KNOB_REAL] = TD_KNOB_REAL,   [TD_PLUGIN_KNOB_TEXT] = TD_KNOB_TEXT,
        [TD_PLUGIN_KNOB_ENUM] = TD_KNOB_ENUM,   [TD_PLUGIN_KNOB_INTS] = TD_KNOB_INTS,
        [TD_PLUGIN_KNOB_REALS] = TD_KNOB_REALS, [TD_PLUGIN_KNOB_PATH] = TD_KNOB_PATH,
    };
    _Static_assert(TD_COUNTOF(types) == TD_PLUGIN_KNOB_TYPE_COUNT, "one type per type");
    struct td_knob row = {.section = "",
                          .key = k->name,
                          .type = types[k->type],
                          .fallback = k->fallback,
                          .min = k->min,
                          .max = k->max,
                          .unit = k->unit,
                          .values = k->values,
                          .prose = k->prose};
    bool is_any = k->min == 0 && k->max == 0;
    bool is_int = row.type == TD_KNOB_INT || row.type == TD_KNOB_INTS;
    bool is_text = row.type == TD_KNOB_TEXT || row.type == TD_KNOB_PATH;
    bool is_list = row.type == TD_KNOB_INTS || row.type == TD_KNOB_REALS;
    if (is_any) row.min = is_int ? -ANY_INT : -ANY_REAL;
    if (is_any) row.max = is_int ? ANY_INT : ANY_REAL;
    if (is_text) row.min = 1;
    if (is_text && is_any) row.max = ANY_BYTES;
    if (is_list && !row.values) row.values = "0..4096";
    return row;
}

static const char *known_names(struct td_check *c, const struct td_plugin_knob *knobs, size_t n) {
    const char *text = n ? knobs[0].name : "nothing";
    for (size_t i = 1; i < n && text; i++) {
        text = td_arena_printf(c->arena, "%s, %s", text, knobs[i].name);
    }
    return text ? text : "?";
}

static void check_known(struct td_check *c, const char *path, const struct td_plugin_knob *knobs,
                        size_t n, const struct td_json *member) {
    struct td_nearest near;
    td_nearest_init(&near, member->key);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(knobs[i].name, member->key) == 0) return;
        td_nearest_offer(&near, knobs[i].name);
    }
    const char *at = td_check_path(c, path, member->key);
    if (near.best) {
        td_check_violation(c, at, member->line, "unknown key, did you mean %s?", near.best);
    } else {
        td_check_violation(c, at, member->line, "unknown key; known here: %s",
                           td_check_wants_text(c) ? known_names(c, knobs, n) : "");
    }
}

static struct td_json *take_default(struct td_check *c, const char *path,
                                    const struct td_knob *row) {
    struct td_check own;
    td_check_init(&own, c->arena, c->flags);
    struct td_json *made = td_check_default(&own, row);
    if (own.n_violations) {
        td_check_violation(c, path, 0, "the plugin's own default, %s, does not fit: %s",
                           row->fallback, own.shown[0].text);
        return NULL;
    }
    return td_check_oom(c, made) ? NULL : made;
}

// What a plugin's knob is was not known when the spec was read, and the text of a number is gone.
static bool has_lost_text(const struct td_knob *row, const struct td_json *v) {
    const bool is_text = row->type == TD_KNOB_TEXT || row->type == TD_KNOB_PATH;
    return is_text && td_check_text_hint(v);
}

static struct td_json *take_knob(struct td_check *c, const char *path, const struct td_knob *row,
                                 const struct td_json *given, int line) {
    if (given && !has_lost_text(row, given)) return td_check_value(c, row, path, given);
    if (!given && row->fallback) return take_default(c, path, row);
    const char *expects = td_knob_expects(c->arena, row);
    if (td_check_oom(c, expects)) return NULL;
    if (given) {
        td_check_violation(c, path, given->line, "expected %s, found %s: %s", expects,
                           td_check_describe(c->arena, given), td_check_text_hint(given));
    } else {
        td_check_violation(c, path, line, "required: %s", expects);
    }
    return NULL;
}

struct td_json *td_check_plugin_knobs(struct td_check *c, const char *path,
                                      const struct td_plugin_knob *knobs, size_t n_knobs,
                                      const struct td_json *given) {
    if (given && given->kind == TD_JSON_NULL) given = NULL;
    if (given && given->kind != TD_JSON_OBJECT) {
        td_check_violation(c, path, given->line, "expected a map of keys, found %s",
                           td_check_describe(c->arena, given));
        return NULL;
    }
    struct td_json *out = td_json_new(c->arena, TD_JSON_OBJECT);
    if (td_check_oom(c, out)) return NULL;
    out->line = given ? given->line : 0;
    for (const struct td_json *v = given ? given->first : NULL; v; v = v->next) {
        check_known(c, path, knobs, n_knobs, v);
    }
    for (size_t i = 0; i < n_knobs && !c->is_oom; i++) {
        const struct td_knob row = row_of(&knobs[i]);
        const struct td_json *v = td_json_get(given, row.key);
        struct td_json *made = take_knob(c, td_check_path(c, path, row.key), &row, v, out->line);
        if (made) td_check_oom(c, td_json_set(c->arena, out, row.key, made) ? out : NULL);
    }
    return out;
}

td_status td_spec_plugin_knobs(struct td_arena *a, const char *path,
                               const struct td_plugin_knob *knobs, size_t n_knobs,
                               const struct td_json *given, const struct td_json *paths_from,
                               struct td_json **out_knobs) {
    struct td_spec_place place = td_place_kept(paths_from);
    struct td_check c;
    td_check_init(&c, a, 0);
    if (paths_from) c.place = &place;
    struct td_json *made = td_check_plugin_knobs(&c, path, knobs, n_knobs, given);
    TD_TRY(td_check_result(&c));
    *out_knobs = made;
    return TD_OK;
}
