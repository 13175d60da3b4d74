// What a node says it has is input: rows of knobs that the registry would not have taken are passed
// over, with the plugin that they belong to.

#include "daemon/coordinator/core/plans/offers_check.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/plans/offers.h"
#include "lib/spec/plugin_knobs.h"
#include "lib/spec/spec.h"

enum { ARENA_BYTES = 64 << 20 };

static bool find_type(const char *name, enum td_plugin_knob_type *out_type) {
    for (int t = 0; t < TD_PLUGIN_KNOB_TYPE_COUNT; t++) {
        *out_type = (enum td_plugin_knob_type)t;
        if (strcmp(td_plugin_knob_type_name(*out_type), name) == 0) return true;
    }
    return false;
}

// "2..64"
static bool is_item_range(const char *values) {
    unsigned least, most;
    int end = 0;
    return sscanf(values, "%6u..%6u%n", &least, &most, &end) == 2 && !values[end] && least <= most;
}

// "relu|gelu"
static bool are_choices(const char *values) {
    size_t len = strlen(values);
    return len > 0 && values[0] != '|' && values[len - 1] != '|' && !strstr(values, "||") &&
           strcspn(values, "!=") == len;
}

static bool take_knob(const Traind__V1__PluginKnob *from, struct td_plugin_knob *to) {
    *to = (struct td_plugin_knob){.name = from->name,
                                  .min = from->min,
                                  .max = from->max,
                                  .unit = from->unit[0] ? from->unit : NULL,
                                  .fallback = from->required ? NULL : from->fallback,
                                  .values = from->values[0] ? from->values : NULL,
                                  .prose = from->prose};
    bool is_sound = find_type(from->type, &to->type) && from->name[0] && from->min <= from->max &&
                    (from->required || from->fallback[0]);
    if (!is_sound) return false;
    if (to->type == TD_PLUGIN_KNOB_ENUM) return to->values && are_choices(to->values);
    bool is_list = to->type == TD_PLUGIN_KNOB_INTS || to->type == TD_PLUGIN_KNOB_REALS;
    return !to->values || (is_list && is_item_range(to->values));
}

// The row of that name that loads, if there is one only; else NULL.
static const Traind__V1__Plugin *find_only(const Traind__V1__ListPluginsResponse *m,
                                           const char *kind, const char *name) {
    const Traind__V1__Plugin *found = NULL;
    for (size_t i = 0; i < m->n_plugins; i++) {
        const Traind__V1__Plugin *p = m->plugins[i]->plugin;
        if (p->error[0] || strcmp(p->kind, kind) != 0 || strcmp(p->name, name) != 0) continue;
        if (found) return NULL;
        found = p;
    }
    return found;
}

static td_status check_part(struct td_arena *a, const Traind__V1__ListPluginsResponse *m,
                            const char *kind, const struct td_spec_part *part, const char *path,
                            const struct td_json *from) {
    struct td_plugin_knob knobs[TD_PLUGIN_KNOBS_MAX];
    struct td_json *checked;
    const Traind__V1__Plugin *p = part->is_plugin ? find_only(m, kind, part->name) : NULL;
    // What has no file is traind's own: the plan says how it is named.
    if (!p || !p->file[0] || p->n_knobs > TD_COUNTOF(knobs)) return TD_OK;
    for (size_t i = 0; i < p->n_knobs; i++) {
        if (!take_knob(p->knobs[i], &knobs[i])) return TD_OK;
    }
    return td_spec_plugin_knobs(a, path, knobs, p->n_knobs, part->knobs, from, &checked);
}

td_status td_offers_check(const struct td_core *core, const struct td_json *tree) {
    TD_AUTO(td_arena) *arena = NULL;
    struct td_spec s;
    td_spec_read(tree, &s);
    bool names_plugins = s.model.is_plugin || s.data.is_plugin || s.trainer.accelerator.is_plugin ||
                         s.trainer.strategy.is_plugin || s.trainer.precision.is_plugin ||
                         s.trainer.collective.is_plugin || s.comm_hook.is_plugin;
    if (!names_plugins || (s.plugins && s.plugins->first)) return TD_OK;
    TD_TRY(td_arena_create(ARENA_BYTES, &arena));
    const Traind__V1__ListPluginsResponse *m = td_view_plugins(arena, core);
    if (!m) return td_fail_oom();
    const struct td_json *from = s.paths_from;
    TD_TRY(check_part(arena, m, "module", &s.model, "model.knobs", from));
    TD_TRY(check_part(arena, m, "dataset", &s.data, "data.knobs", from));
    TD_TRY(check_part(arena, m, "accelerator", &s.trainer.accelerator, "trainer.accelerator.knobs",
                      from));
    TD_TRY(check_part(arena, m, "strategy", &s.trainer.strategy, "trainer.strategy.knobs", from));
    TD_TRY(check_part(arena, m, "collective", &s.trainer.collective, "trainer.collective.knobs",
                      from));
    TD_TRY(
        check_part(arena, m, "precision", &s.trainer.precision, "trainer.precision.knobs", from));
    return check_part(arena, m, "comm_hook", &s.comm_hook, "comm_hook.knobs", from);
}
