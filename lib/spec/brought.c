// See the header.

#include "lib/spec/brought.h"

#include <string.h>

#include "lib/spec/check.h"

static bool is_null(const struct td_json *v) {
    return !v || v->kind == TD_JSON_NULL;
}

static bool is_open(const struct td_knob *k, const struct td_json *knobs) {
    static const bool brought[TD_KNOB_TYPE_COUNT] = {[TD_KNOB_INT] = true,
                                                     [TD_KNOB_REAL] = true,
                                                     [TD_KNOB_BOOL] = true,
                                                     [TD_KNOB_OBJECT] = true};
    return brought[k->type] && td_knob_nullable(k) && is_null(td_json_get(knobs, k->key));
}

// transformers has all of the angles among rope_parameters since 5.0; some files have the base in
// rope_scaling.
static const struct td_json *find(const struct td_json *config, const char *key) {
    const struct td_json *v = td_json_get(config, key);
    const struct td_json *angles = td_json_get(config, "rope_parameters");
    if (!is_null(v)) return v;
    if (strcmp(key, "rope_scaling") == 0) return angles;
    if (strcmp(key, "rope_theta") != 0) return v;
    v = td_json_get(angles, key);
    return is_null(v) ? td_json_get(td_json_get(config, "rope_scaling"), key) : v;
}

td_status td_spec_bring_sizes(struct td_arena *a, const struct td_json *knobs,
                              const struct td_json *config, const char *from,
                              const struct td_json **out_knobs) {
    const char *name = td_json_string(td_json_get(knobs, "name"), "");
    const char *path = td_arena_printf(a, "model.%s", name);
    if (!path) return td_fail_oom();
    const struct td_section *s = td_section_find(path);
    if (!s || !is_null(td_json_get(knobs, "preset"))) return TD_OK;
    struct td_json *copy = td_json_copy(a, knobs);
    struct td_check c;
    td_check_init(&c, a, 0);
    c.what = from;
    const struct td_knob *end;
    for (const struct td_knob *k = td_section_knobs(s, &end); copy && k < end; k++) {
        const struct td_json *found = find(config, k->key);
        if (!is_open(k, knobs) || is_null(found)) continue;
        struct td_json *taken = td_check_value(&c, k, k->key, found);
        if (taken && !td_json_set(a, copy, k->key, taken)) copy = NULL;
    }
    TD_TRY(td_check_result(&c));
    if (!copy) return td_fail_oom();
    *out_knobs = copy;
    return TD_OK;
}
