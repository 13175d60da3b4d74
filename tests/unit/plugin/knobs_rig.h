#ifndef TRAIND_TESTS_UNIT_PLUGIN_KNOBS_RIG_H
#define TRAIND_TESTS_UNIT_PLUGIN_KNOBS_RIG_H

// Knobs of a module or dataset of the tree, as a plan has them. Tests, benches and fuzz entries
// write the few that matter to them as JSON; all others get the defaults of the spec's tables, so
// that no default is written twice. What is given is not checked: tests of refusals need it bad.
//
// Errors: INVALID_ARGUMENT the text is no JSON; RESOURCE_EXHAUSTED the arena is full.

#include <stdio.h>
#include <string.h>

#include "lib/spec/check.h"
#include "traind/plugin.h"

static inline td_status knobs_fill(struct td_arena *a, const char *path, struct td_json *io_map);

// A map with the name of a variant of `choice`, or the bare name, which becomes a map.
static inline td_status knobs_fill_choice(struct td_arena *a, const char *choice,
                                          struct td_json *io_value) {
    char path[96];
    if (io_value->kind == TD_JSON_STRING) {
        struct td_json *name = td_json_copy(a, io_value);
        io_value->kind = TD_JSON_OBJECT;
        if (!td_json_set(a, io_value, "name", name)) return td_fail_oom();
    }
    const char *name = td_json_string(td_json_get(io_value, "name"), "");
    snprintf(path, sizeof path, "%s.%s", choice, name);
    return knobs_fill(a, path, io_value);
}

static inline td_status knobs_fill_one(struct td_arena *a, const struct td_knob *k,
                                       struct td_json *io_map) {
    struct td_json *v = td_json_get(io_map, k->key);
    if (!v && k->fallback) {
        struct td_check c;
        td_check_init(&c, a, 0);
        return td_json_set(a, io_map, k->key, td_check_default(&c, k)) ? TD_OK : td_fail_oom();
    }
    if (v && k->type == TD_KNOB_CHOICE) return knobs_fill_choice(a, k->values, v);
    if (!v || k->type != TD_KNOB_CHOICES) return TD_OK;
    for (struct td_json *item = v->first; item; item = item->next) {
        TD_TRY(knobs_fill_choice(a, td_knob_entry_section(k), item));
    }
    return TD_OK;
}

// The rows of a section; an unknown one has none.
static inline td_status knobs_fill(struct td_arena *a, const char *path, struct td_json *io_map) {
    const struct td_section *section = td_section_find(path);
    const struct td_knob *end = NULL;
    const struct td_knob *k = section ? td_section_knobs(section, &end) : NULL;
    for (; k != end; k++) {
        TD_TRY(knobs_fill_one(a, k, io_map));
    }
    return TD_OK;
}

// text: the knobs that are given, a JSON object. Everything lives in the arena.
static inline td_status knobs_of(struct td_arena *a, const struct td_plugin_desc *desc,
                                 const char *text, struct td_json **out_knobs) {
    char path[96];
    struct td_json *knobs = NULL;
    snprintf(path, sizeof path, "%s.%s", desc->kind == TD_PLUGIN_DATASET ? "data" : "model",
             desc->name);
    TD_TRY(td_json_parse(a, text, strlen(text), &knobs));
    TD_TRY(knobs_fill(a, path, knobs));
    *out_knobs = knobs;
    return TD_OK;
}

#endif
