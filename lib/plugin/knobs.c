// Readers of a plugin's knobs, traind/knobs.h, over a tree of lib/base/json.h.
//
// What they are handed was checked and completed before (lib/spec/plugin_knobs.c), so whatever is
// wrong here is wrong in the plugin. It asks for a knob that it did not declare, or for another
// type. That is a failure with a name and not a zero, because a zero would train something else.

#include "traind/knobs.h"

#include "lib/base/base.h"
#include "lib/base/json.h"

const char *td_plugin_knob_type_name(enum td_plugin_knob_type type) {
    static const char *const names[] = {
        [TD_PLUGIN_KNOB_BOOL] = "bool",   [TD_PLUGIN_KNOB_INT] = "int",
        [TD_PLUGIN_KNOB_REAL] = "real",   [TD_PLUGIN_KNOB_TEXT] = "text",
        [TD_PLUGIN_KNOB_ENUM] = "enum",   [TD_PLUGIN_KNOB_INTS] = "ints",
        [TD_PLUGIN_KNOB_REALS] = "reals", [TD_PLUGIN_KNOB_PATH] = "path",
    };
    _Static_assert(TD_COUNTOF(names) == TD_PLUGIN_KNOB_TYPE_COUNT, "one name per type");
    return (size_t)type < TD_COUNTOF(names) ? names[type] : "unknown";
}

static td_status fail(const char *name, const char *what) {
    td_status s = td_fail(TD_FAILED_PRECONDITION,
                          "the plugin reads its knob '%s' as %s, which its table of knobs does not "
                          "say; correct the plugin",
                          name, what);
    return td_status_with_class(s, TD_CLASS_USER_CODE);
}

static bool is_number(const struct td_json *v) {
    return v->kind == TD_JSON_INT || v->kind == TD_JSON_REAL;
}

static bool is_null(const struct td_json *knobs, const char *name) {
    const struct td_json *v = td_json_get(knobs, name);
    return v && v->kind == TD_JSON_NULL;
}

bool td_knob_is_set(const struct td_json *knobs, const char *name) {
    const struct td_json *v = td_json_get(knobs, name);
    return v && v->kind != TD_JSON_NULL;
}

td_status td_knob_bool(const struct td_json *knobs, const char *name, bool *out_value) {
    const struct td_json *v = td_json_get(knobs, name);
    if (!v || v->kind != TD_JSON_BOOL) return fail(name, "a bool");
    *out_value = v->u.boolean;
    return TD_OK;
}

td_status td_knob_bool_or(const struct td_json *knobs, const char *name, bool if_null,
                          bool *out_value) {
    if (!is_null(knobs, name)) return td_knob_bool(knobs, name, out_value);
    *out_value = if_null;
    return TD_OK;
}

td_status td_knob_int(const struct td_json *knobs, const char *name, int64_t *out_value) {
    const struct td_json *v = td_json_get(knobs, name);
    if (!v || v->kind != TD_JSON_INT) return fail(name, "an int");
    *out_value = v->u.integer;
    return TD_OK;
}

td_status td_knob_int_or(const struct td_json *knobs, const char *name, int64_t if_null,
                         int64_t *out_value) {
    if (!is_null(knobs, name)) return td_knob_int(knobs, name, out_value);
    *out_value = if_null;
    return TD_OK;
}

td_status td_knob_real(const struct td_json *knobs, const char *name, double *out_value) {
    const struct td_json *v = td_json_get(knobs, name);
    if (!v || !is_number(v)) return fail(name, "a real");
    *out_value = td_json_real(v, 0);
    return TD_OK;
}

td_status td_knob_real_or(const struct td_json *knobs, const char *name, double if_null,
                          double *out_value) {
    if (!is_null(knobs, name)) return td_knob_real(knobs, name, out_value);
    *out_value = if_null;
    return TD_OK;
}

td_status td_knob_text(const struct td_json *knobs, const char *name, const char **out_text) {
    const struct td_json *v = td_json_get(knobs, name);
    if (!v || v->kind != TD_JSON_STRING) return fail(name, "a text");
    *out_text = v->u.string.data;
    return TD_OK;
}

td_status td_knob_text_or(const struct td_json *knobs, const char *name, const char *if_null,
                          const char **out_text) {
    if (!is_null(knobs, name)) return td_knob_text(knobs, name, out_text);
    *out_text = if_null;
    return TD_OK;
}

static td_status find_list(const struct td_json *knobs, const char *name, const char *what,
                           size_t most, const struct td_json **out_list) {
    const struct td_json *list = td_json_get(knobs, name);
    if (!list || list->kind != TD_JSON_ARRAY) return fail(name, what);
    if (list->n_children > most) {
        td_status s = td_fail(TD_FAILED_PRECONDITION,
                              "the plugin has room for %zu numbers of its knob '%s', which has "
                              "%zu; let its table of knobs say how many are taken",
                              most, name, list->n_children);
        return td_status_with_class(s, TD_CLASS_USER_CODE);
    }
    *out_list = list;
    return TD_OK;
}

td_status td_knob_ints(const struct td_json *knobs, const char *name, size_t most, int64_t *out,
                       size_t *out_n) {
    const struct td_json *list = NULL;
    TD_TRY(find_list(knobs, name, "a list of ints", most, &list));
    for (const struct td_json *v = list->first; v; v = v->next) {
        if (v->kind != TD_JSON_INT) return fail(name, "a list of ints");
    }
    for (const struct td_json *v = list->first; v; v = v->next) {
        *out++ = v->u.integer;
    }
    *out_n = list->n_children;
    return TD_OK;
}

td_status td_knob_reals(const struct td_json *knobs, const char *name, size_t most, double *out,
                        size_t *out_n) {
    const struct td_json *list = NULL;
    TD_TRY(find_list(knobs, name, "a list of reals", most, &list));
    for (const struct td_json *v = list->first; v; v = v->next) {
        if (!is_number(v)) return fail(name, "a list of reals");
    }
    for (const struct td_json *v = list->first; v; v = v->next) {
        *out++ = td_json_real(v, 0);
    }
    *out_n = list->n_children;
    return TD_OK;
}
