// plugins: what a job spec can name on the nodes, from module to accelerator, and what a person may
// set of them. With a name: the knobs of what bears it, one a line, as a job spec takes them. What
// nodes have of one name in different builds are different rows. Those of traind's own parts are
// keys of the job spec; the list only counts them. A part that reports none has its keys in the
// reference.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/nodes/nodes.h"
#include "client/screen/print.h"
#include "client/screen/table.h"
#include "client/session/pages.h"
#include "client/session/session.h"
#include "lib/base/buf.h"
#include "traind/v1/admin.pb-c.h"

static td_status add_names(struct td_table *t, const Traind__V1__Plugin *p) {
    if (!p->file[0] && p->n_knobs) return td_table_add(t, "%zu keys", p->n_knobs);
    TD_AUTO_BUF names;
    td_buf_init(&names, 1 << 16);
    for (size_t i = 0; i < p->n_knobs; i++) {
        TD_TRY(td_buf_printf(&names, "%s%s", i ? "," : "", p->knobs[i]->name));
    }
    return td_table_add(t, "%s", names.len ? td_buf_cstr(&names) : "-");
}

static td_status show_plugins(const Traind__V1__ListPluginsResponse *r, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)64 << 20, &arena));
    static const struct td_column columns[] = {{"KIND", 0},
                                               {"NAME", TD_COLUMN_TEXT},
                                               {"FILE", TD_COLUMN_TEXT | TD_COLUMN_MINOR},
                                               {"NODES", TD_COLUMN_MINOR},
                                               {"KNOBS", TD_COLUMN_TEXT | TD_COLUMN_MINOR},
                                               {"SUMMARY", TD_COLUMN_TEXT | TD_COLUMN_SPARE}};
    struct td_table t;
    td_table_init(&t, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < r->n_plugins; i++) {
        const Traind__V1__Plugin *p = r->plugins[i]->plugin;
        if (!p) continue;
        TD_TRY(td_table_add(&t, "%s", p->kind));
        TD_TRY(td_table_add(&t, "%s", p->name));
        TD_TRY(td_table_add(&t, "%s", p->file[0] ? p->file : "-"));
        TD_TRY(td_table_add(&t, "%" PRIu32 "/%" PRIu32, r->plugins[i]->nodes, r->nodes));
        TD_TRY(add_names(&t, p));
        TD_TRY(p->error[0] ? td_table_add(&t, "does not load: %s", p->error)
                           : td_table_add(&t, "%s", p->summary));
    }
    return td_table_print(&t, wide);
}

// "int 1..64 pixels", "relu|gelu", "path"
static td_status add_takes(struct td_table *t, const Traind__V1__PluginKnob *k) {
    char range[80] = "";
    bool is_enum = strcmp(k->type, "enum") == 0 || strcmp(k->type, "choice") == 0;
    bool is_text = strcmp(k->type, "text") == 0 || strncmp(k->type, "path", 4) == 0;
    bool is_bounded = k->min != 0 || k->max != 0;
    if (is_bounded) snprintf(range, sizeof range, " %.12g..%.12g", k->min, k->max);
    if (is_bounded && is_text) snprintf(range, sizeof range, " up to %.12g bytes", k->max);
    return td_table_add(t, "%s%s%s%s%s%s", is_enum ? k->values : k->type, range,
                        k->unit[0] ? " " : "", k->unit, !is_enum && k->values[0] ? ", of " : "",
                        is_enum ? "" : k->values);
}

static td_status show_knobs(const Traind__V1__Plugin *p, bool wide) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)16 << 20, &arena));
    static const struct td_column columns[] = {{"KNOB", 0},
                                               {"TAKES", TD_COLUMN_TEXT},
                                               {"DEFAULT", TD_COLUMN_TEXT},
                                               {"MEANING", TD_COLUMN_TEXT}};
    struct td_table t;
    td_table_init(&t, arena, TD_COUNTOF(columns), columns);
    for (size_t i = 0; i < p->n_knobs; i++) {
        const Traind__V1__PluginKnob *k = p->knobs[i];
        TD_TRY(td_table_add(&t, "%s", k->name));
        TD_TRY(add_takes(&t, k));
        TD_TRY(td_table_add(&t, "%s", k->required ? "required" : k->fallback));
        TD_TRY(td_table_add(&t, "%s", k->prose));
    }
    if (!p->n_knobs && !p->file[0]) td_print(stdout, "its keys: docs/job-spec.md\n");
    return p->n_knobs ? td_table_print(&t, wide) : TD_OK;
}

static void show_head(const Traind__V1__Plugin *p, uint32_t nodes, uint32_t of) {
    td_print(stdout, "%s %s: %s (%s, on %" PRIu32 " of %" PRIu32 " nodes)\n", p->kind, p->name,
             p->error[0] ? p->error : p->summary, p->file[0] ? p->file : "a part of traind", nodes,
             of);
}

// The rows of one name alone; the arena has the new list.
static td_status keep_named(struct td_arena *a, const char *name,
                            Traind__V1__ListPluginsResponse *r) {
    Traind__V1__ListedPlugin **kept = td_arena_array(a, r->n_plugins + 1, sizeof *kept);
    size_t n = 0;
    if (!kept) return td_fail_oom();
    for (size_t i = 0; i < r->n_plugins; i++) {
        const Traind__V1__Plugin *p = r->plugins[i]->plugin;
        if (p && strcmp(p->name, name) == 0) kept[n++] = r->plugins[i];
    }
    r->plugins = kept;
    r->n_plugins = n;
    if (n) return TD_OK;
    return td_fail(TD_NOT_FOUND,
                   "no node has installed a plugin '%s'; those of --plugin-dirs are not listed",
                   name);
}

static td_status show(struct td_session *s, const struct td_flags *f,
                      const Traind__V1__ListPluginsResponse *r) {
    if (f->output == TD_OUTPUT_JSON) return td_session_print_json(s, &r->base);
    if (f->output == TD_OUTPUT_TABLE && !f->n_args) return show_plugins(r, f->wide);
    for (size_t i = 0; i < r->n_plugins; i++) {
        const Traind__V1__ListedPlugin *one = r->plugins[i];
        if (f->output == TD_OUTPUT_JSONL) {
            TD_TRY(td_session_print_json(s, &one->base));
        } else if (f->output == TD_OUTPUT_NAME && one->plugin) {
            td_print(stdout, "%s-%s\n", one->plugin->kind, one->plugin->name);
        } else if (one->plugin) {
            show_head(one->plugin, one->nodes, r->nodes);
            TD_TRY(show_knobs(one->plugin, f->wide));
        }
    }
    return TD_OK;
}

td_status td_cmd_plugins(struct td_session *s, const struct td_flags *f, int *out_exit) {
    (void)out_exit;
    Traind__V1__ListPluginsRequest request = TRAIND__V1__LIST_PLUGINS_REQUEST__INIT;
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create((size_t)16 << 20, &arena));
    struct td_pages pages = {0};
    td_status failed =
        td_pages_read(s, "/traind.v1.NodeAdminService/ListPlugins", &request.base,
                      &traind__v1__list_plugins_response__descriptor, "plugins", &pages);
    if (!failed) {
        Traind__V1__ListPluginsResponse r =
            *(const Traind__V1__ListPluginsResponse *)td_rpc_message_get(pages.page[0]);
        td_pages_fill(&pages, &r.base, "plugins");
        if (f->n_args) failed = keep_named(arena, f->args[0], &r);
        if (!failed) failed = show(s, f, &r);
    }
    td_pages_finish(&pages);
    return failed;
}
