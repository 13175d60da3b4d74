// Rows for clients; see rows.h. One word per type: the words of types that plugins have are those
// of td_plugin_knob_type_name, which a test holds them to.

#include "lib/spec/rows.h"

#include <stdio.h>
#include <string.h>

#include "lib/spec/knobs.h"

static const char *const words[] = {
    [TD_KNOB_BOOL] = "bool",
    [TD_KNOB_INT] = "int",
    [TD_KNOB_INT_OR_AUTO] = "int or auto",
    [TD_KNOB_INT_OR_BOOL] = "int or bool",
    [TD_KNOB_INT_BY_EPOCH] = "int by epoch",
    [TD_KNOB_REAL] = "real",
    [TD_KNOB_AMOUNT] = "count or fraction",
    [TD_KNOB_DURATION] = "duration",
    [TD_KNOB_ENUM] = "enum",
    [TD_KNOB_ENUM_OR_PLUGIN] = "enum or plugin",
    [TD_KNOB_NAME] = "text",
    [TD_KNOB_PLUGIN] = "text",
    [TD_KNOB_TEXT] = "text",
    [TD_KNOB_PATH] = "path",
    [TD_KNOB_ENUMS] = "enums",
    [TD_KNOB_INTS] = "ints",
    [TD_KNOB_REALS] = "reals",
    [TD_KNOB_PATHS] = "paths",
    [TD_KNOB_TEXTS] = "texts",
    [TD_KNOB_CHOICE] = "choice",
    [TD_KNOB_CHOICES] = "choices",
    [TD_KNOB_MAPS] = "maps",
    [TD_KNOB_MAP] = "map",
    [TD_KNOB_OBJECT] = "map",
    [TD_KNOB_LABELS] = "labels",
};
_Static_assert(TD_COUNTOF(words) == TD_KNOB_TYPE_COUNT, "one word per type");

// "cross_entropy|mse|bce", all of them.
static void join_variants(const char *choice, char *out, size_t bytes) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < td_n_sections && len < bytes; i++) {
        const char *name = td_section_variant_of(&td_sections[i], choice);
        if (name) len += (size_t)snprintf(out + len, bytes - len, "%s%s", len ? "|" : "", name);
    }
    TD_CHECK(len < bytes);
}

bool td_spec_row_at(const char *choice, const char *name, size_t i, struct td_spec_row *out_row) {
    char path[96];
    const struct td_knob *end;
    snprintf(path, sizeof path, "%s.%s", choice, name);
    const struct td_section *section = td_section_find(path);
    const struct td_knob *k = section ? td_section_knobs(section, &end) : NULL;
    if (!k || i >= (size_t)(end - k)) return false;
    k += i;
    *out_row = (struct td_spec_row){.name = k->key,
                                    .type = words[k->type],
                                    .min = k->min,
                                    .max = k->max,
                                    .unit = k->unit,
                                    .fallback = k->fallback,
                                    .values = k->values,
                                    .prose = k->prose};
    if (k->type != TD_KNOB_CHOICE) return true;
    join_variants(k->values, out_row->choices, sizeof out_row->choices);
    out_row->values = out_row->choices;
    return true;
}
