// See the header. Order: traind's own as they are linked, then files by name, so that two nodes of
// one installation print the same. Knobs of traind's own are rows of the spec's tables; an
// accelerator, strategy or precision of its own has none, but keys of the section trainer.

#include "daemon/worker/probe_plugins.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "fabric/plugins.h"
#include "fabric/configure/devices.h"
#include "lib/base/files/files.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/utf8.h"
#include "lib/spec/rows.h"

enum { LINE_MAX_BYTES = 256 << 10 };

static const enum td_plugin_kind kinds[] = {
    TD_PLUGIN_MODULE,    TD_PLUGIN_DATASET,   TD_PLUGIN_ACCELERATOR, TD_PLUGIN_STRATEGY,
    TD_PLUGIN_PRECISION, TD_PLUGIN_COMM_HOOK, TD_PLUGIN_COLLECTIVE};

static td_status print_text(struct td_buf *b, const char *key, const char *text) {
    char cut[TD_PROBE_TEXT + 1];
    snprintf(cut, sizeof cut, "%s", text);
    td_utf8_scrub(cut); // it may be cut in the middle of a character, or be no text at all
    TD_TRY(td_buf_printf(b, ",\"%s\":", key));
    return td_json_print_string(cut, strlen(cut), b);
}

static td_status print_knob(struct td_buf *b, const struct td_spec_row *k) {
    TD_TRY(td_buf_printf(b, "{\"name\":\"%s\",\"type\":\"%s\",\"min\":", k->name, k->type));
    TD_TRY(td_json_print_double(k->min, b));
    TD_TRY(td_buf_str(b, ",\"max\":"));
    TD_TRY(td_json_print_double(k->max, b));
    if (k->unit) TD_TRY(print_text(b, "unit", k->unit));
    if (k->fallback) TD_TRY(print_text(b, "fallback", k->fallback));
    if (k->values) TD_TRY(print_text(b, "values", k->values));
    TD_TRY(print_text(b, "prose", k->prose));
    return td_buf_str(b, "}");
}

// Row i of the descriptor's table or, for a part of traind, of the spec's.
static bool row_at(const struct td_plugin_desc *desc, bool is_own, size_t i,
                   struct td_spec_row *out_row) {
    const char *choice = desc->kind == TD_PLUGIN_MODULE       ? "model"
                         : desc->kind == TD_PLUGIN_DATASET    ? "data"
                         : desc->kind == TD_PLUGIN_COMM_HOOK  ? "comm_hook"
                         : desc->kind == TD_PLUGIN_COLLECTIVE ? "collective"
                                                              : "";
    if (is_own) return td_spec_row_at(choice, desc->name, i, out_row);
    if (i >= desc->n_knobs) return false;
    const struct td_plugin_knob *k = &desc->knobs[i];
    *out_row = (struct td_spec_row){.name = k->name,
                                    .type = td_plugin_knob_type_name(k->type),
                                    .min = k->min,
                                    .max = k->max,
                                    .unit = k->unit,
                                    .fallback = k->fallback,
                                    .values = k->values,
                                    .prose = k->prose};
    return true;
}

// Which devices it has here: none, where it does not say.
static td_status print_devices(struct td_buf *b, const struct td_plugin_desc *desc) {
    const struct td_accelerator_ops *ops = desc->ops;
    struct td_accel_facts facts = {.struct_bytes = sizeof facts};
    TD_AUTO_BUF list;
    td_buf_init(&list, LINE_MAX_BYTES / 2);
    td_status s = ops->probe(&facts);
    if (!s) s = td_devices_print(desc->name, ops, &facts, &list);
    td_status_log(TD_LOG_WARN, s, "devices not listed, continuing");
    return td_buf_printf(b, ",\"devices\":%s", s ? "[]" : td_buf_cstr(&list));
}

static td_status print_knobs(struct td_buf *b, const struct td_plugin_desc *desc, bool is_own) {
    struct td_spec_row row;
    TD_TRY(print_text(b, "summary", desc->summary));
    TD_TRY(td_buf_str(b, ",\"knobs\":["));
    for (size_t i = 0; row_at(desc, is_own, i, &row); i++) {
        if (i) TD_TRY(td_buf_str(b, ","));
        TD_TRY(print_knob(b, &row));
    }
    TD_TRY(td_buf_str(b, "]"));
    return desc->kind == TD_PLUGIN_ACCELERATOR ? print_devices(b, desc) : TD_OK;
}

// One line: of desc, or of why there is none.
static td_status print_line(enum td_plugin_kind kind, const char *name, const char *file,
                            const struct td_plugin_desc *desc, td_status borrow_why) {
    TD_AUTO_BUF b;
    td_buf_init(&b, LINE_MAX_BYTES);
    TD_TRY(td_buf_printf(&b, "{\"kind\":\"%s\"", td_plugin_kind_name(kind)));
    TD_TRY(print_text(&b, "name", name));
    if (*file) TD_TRY(print_text(&b, "file", file));
    TD_TRY(desc ? print_knobs(&b, desc, !*file)
                : print_text(&b, "error", td_status_message(borrow_why)));
    if (!desc && kind == TD_PLUGIN_ACCELERATOR) TD_TRY(td_buf_str(&b, ",\"devices\":[]"));
    TD_TRY(td_buf_str(&b, "}\n"));
    return td_fs_write_stdout(b.data, b.len);
}

static td_status print_file(struct td_registry *r, enum td_plugin_kind kind, const char *file) {
    char name[32];
    const char *prefix = td_plugin_kind_name(kind);
    size_t before = strlen(prefix) + 1, len = strlen(file);
    bool is_of_kind = strncmp(file, prefix, before - 1) == 0 && file[before - 1] == '-';
    if (!is_of_kind || len <= before + 3 || strcmp(file + len - 3, ".so") != 0) return TD_OK;
    if (len - before - 3 >= sizeof name) return TD_OK; // no plugin has such a name
    snprintf(name, sizeof name, "%.*s", (int)(len - before - 3), file + before);
    const struct td_plugin_desc *desc = NULL;
    TD_AUTO_STATUS td_status why = td_registry_find(r, kind, name, &desc);
    return print_line(kind, name, file, why ? NULL : desc, why);
}

static bool is_probed(enum td_plugin_kind kind) {
    for (size_t i = 0; i < TD_COUNTOF(kinds); i++) {
        if (kinds[i] == kind) return true;
    }
    return false;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

td_status td_probe_plugins(struct td_registry *r, const char *plugin_dir) {
    const struct td_plugin_desc *desc;
    for (size_t i = 0; (desc = td_built_in_plugin_at(i)); i++) {
        if (is_probed(desc->kind)) TD_TRY(print_line(desc->kind, desc->name, "", desc, TD_OK));
    }
    struct dirent **files = NULL;
    int n = scandir(plugin_dir, &files, NULL, by_name);
    td_status s = TD_OK;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; !s && k < TD_COUNTOF(kinds); k++) {
            s = print_file(r, kinds[k], files[i]->d_name);
        }
        free(files[i]);
    }
    free(files);
    return s;
}
