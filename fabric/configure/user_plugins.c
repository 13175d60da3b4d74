// Two passes: files that the plan lists are loaded as they are, then directories that it lists are
// looked through for what it names. What is checked is the file at the end of all links. It is
// loaded by that path, so a link cannot lead out of the directories that are permitted. Whoever may
// write a directory above the file could put another in its place, so those are checked as well.
// Rejected: copying a file before it is loaded; debuggers and profilers would not find its source.

#include "fabric/configure/user_plugins.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fabric/plugins.h"
#include "fabric/signals/fatal.h"
#include "lib/base/files/files.h"
#include "lib/spec/plugin_knobs.h"

// A part of the spec that may be a plugin.
struct wanted {
    enum td_plugin_kind kind;
    struct td_spec_part *part;
    const char *path; // of its knobs in the spec
};
enum { N_PARTS = 7, NAMES_MAX = 1024, KNOWN_MAX = 4096 };

static td_status forbid(const char *fmt, ...) TD_PRINTF(1, 2);
static td_status forbid(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    td_status s = td_vfail(TD_PERMISSION_DENIED, fmt, ap);
    va_end(ap);
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_BAD_SPEC), "PLUGIN_FORBIDDEN");
}

// ---- may it be loaded? --------------------------------------------------------------------------
// Nobody but root and this user can change what is at `path`.
static td_status check_owned(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return td_fs_fail("look at", path);
    bool is_sticky_dir = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX);
    if (st.st_uid != 0 && st.st_uid != geteuid()) {
        return forbid("'%s' belongs to user %u, and would run as user %u: plugins are loaded only "
                      "where all of their path belongs to that user or to root",
                      path, (unsigned)st.st_uid, (unsigned)geteuid());
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !is_sticky_dir) {
        return forbid("others may write '%s' (mode %04o), and so change what is loaded; "
                      "`chmod go-w` it",
                      path, (unsigned)(st.st_mode & 07777));
    }
    return TD_OK;
}

// The file or directory, and all that are above it.
static td_status check_trusted(const char *real) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", real);
    for (;;) {
        TD_TRY(check_owned(path));
        char *slash = strrchr(path, '/');
        if (slash == path && !path[1]) return TD_OK;
        slash[slash == path] = '\0'; // the root keeps its slash
    }
}

static bool is_listed(const char *permitted, const char *real_dir) {
    for (const char *p = permitted; *p;) {
        char dir[PATH_MAX], real[PATH_MAX];
        size_t len = strcspn(p, ":");
        bool fits = len < sizeof dir;
        if (fits) snprintf(dir, sizeof dir, "%.*s", (int)len, p);
        if (fits && realpath(dir, real) && strcmp(real, real_dir) == 0) return true;
        p += len;
        p += *p == ':';
    }
    return false;
}

static td_status check_permitted(const char *permitted, const char *real, bool is_dir) {
    char dir[PATH_MAX];
    if (strcmp(permitted, TD_USER_PLUGINS_ANY) == 0) return TD_OK;
    snprintf(dir, sizeof dir, "%s", real);
    char *slash = strrchr(dir, '/');
    if (!is_dir) slash[slash == dir] = '\0';
    if (is_listed(permitted, dir)) return TD_OK;
    return forbid("this node loads no plugins from '%s': %s%s; start its traind with --plugin-dirs "
                  "(TRAIND_PLUGIN_DIRS) that names the directory",
                  dir, *permitted ? "it has --plugin-dirs " : "it has no --plugin-dirs", permitted);
}

// The path without links, of something that may be loaded.
static td_status find_real(const char *permitted, const char *path, char out_real[PATH_MAX],
                           bool *out_is_dir) {
    struct stat st;
    if (!realpath(path, out_real) || stat(out_real, &st) != 0) {
        td_status s = td_fail_errno(TD_NOT_FOUND, "'%s' (a path of the node that trains)", path);
        return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    }
    *out_is_dir = S_ISDIR(st.st_mode);
    if (!*out_is_dir && !S_ISREG(st.st_mode)) {
        return td_bad_spec("'%s' is neither a file nor a directory", path);
    }
    size_t len = strlen(out_real);
    if (!*out_is_dir && (len < 4 || strcmp(out_real + len - 3, ".so") != 0)) {
        return td_bad_spec("the name of '%s' does not end in .so", out_real);
    }
    TD_TRY(check_permitted(permitted, out_real, *out_is_dir));
    return check_trusted(out_real);
}

// ---- loading ------------------------------------------------------------------------------------
static td_status load(struct td_registry *r, const char *real,
                      const struct td_plugin_desc **out_desc) {
    const struct td_plugin_desc *desc;
    TD_TRY(td_registry_load(r, real, &desc));
    if (desc->kind != TD_PLUGIN_MODULE && desc->kind != TD_PLUGIN_DATASET &&
        desc->kind != TD_PLUGIN_STRATEGY && desc->kind != TD_PLUGIN_PRECISION &&
        desc->kind != TD_PLUGIN_ACCELERATOR && desc->kind != TD_PLUGIN_COLLECTIVE &&
        desc->kind != TD_PLUGIN_COMM_HOOK) {
        return td_bad_spec("'%s' holds the %s '%s', which a spec cannot bring: install it", real,
                           td_plugin_kind_name(desc->kind), desc->name);
    }
    char what[128];
    snprintf(what, sizeof what, "%s '%s'", td_plugin_kind_name(desc->kind), desc->name);
    td_fatal_note_plugin(real, what);
    *out_desc = desc;
    return TD_OK;
}

static td_status load_from(struct td_registry *r, const char *permitted, const char *dir,
                           const struct wanted *w) {
    char path[TD_FS_PATH_BYTES], real[PATH_MAX];
    const struct td_plugin_desc *desc;
    const char *kind = td_plugin_kind_name(w->kind);
    bool is_dir;
    TD_TRY(td_fs_path(path, "%s/%s-%s.so", dir, kind, w->part->name));
    if (access(path, F_OK) != 0) return TD_OK; // in another place, or nowhere: find says so
    TD_TRY(find_real(permitted, path, real, &is_dir));
    TD_TRY(load(r, real, &desc));
    if (desc->kind == w->kind && strcmp(desc->name, w->part->name) == 0) return TD_OK;
    return td_bad_spec("'%s' holds the %s '%s' instead of what its name says", path,
                       td_plugin_kind_name(desc->kind), desc->name);
}

// An item of `plugins`. Directories wait for the second pass, so that a listed file wins.
static td_status load_listed(struct td_registry *r, const char *permitted, const char *path,
                             const struct wanted parts[N_PARTS], bool wants_dirs) {
    char real[PATH_MAX];
    const struct td_plugin_desc *desc;
    bool is_dir;
    TD_TRY(find_real(permitted, path, real, &is_dir));
    if (is_dir != wants_dirs) return TD_OK;
    if (!is_dir) return load(r, real, &desc);
    for (int i = 0; i < N_PARTS; i++) {
        const struct wanted *w = &parts[i];
        if (!w->part->is_plugin || td_registry_has(r, w->kind, w->part->name)) continue;
        TD_TRY(load_from(r, permitted, real, w));
    }
    return TD_OK;
}

// ---- a name that nothing has --------------------------------------------------------------------
// Every name of "a, b, c".
static void offer_names(struct td_arena *a, const char *names, struct td_nearest *io_near) {
    for (size_t len; *names; names += len, names += strspn(names, ", ")) {
        len = strcspn(names, ",");
        const char *name = td_arena_strndup(a, names, len);
        if (name) td_nearest_offer(io_near, name);
    }
}

// What the directories of `plugins` have of that kind is known, too; a text that is too long is
// cut.
static td_status fail_unknown(struct td_arena *a, const struct td_registry *r,
                              const struct wanted *w, const struct td_json *list) {
    TD_AUTO_BUF known, names;
    struct td_nearest near;
    td_buf_init(&known, KNOWN_MAX);
    td_buf_init(&names, NAMES_MAX);
    td_nearest_init(&near, w->part->name);
    td_status_free(td_registry_list(r, w->kind, &names));
    offer_names(a, td_buf_cstr(&names), &near);
    td_status_free(td_buf_str(&known, names.len ? td_buf_cstr(&names) : "none"));
    for (const struct td_json *v = list; v; v = v->next) {
        const char *path = td_json_string(v, "");
        td_buf_clear(&names);
        td_status_free(td_registry_list_files(r, w->kind, path, &names));
        if (!names.len) continue;
        offer_names(a, td_buf_cstr(&names), &near);
        td_status_free(td_buf_printf(&known, "; in '%s': %s", path, td_buf_cstr(&names)));
    }
    td_status s =
        td_fail(TD_NOT_FOUND, "there is no %s '%s'%s%s%s; known are: %s",
                td_plugin_kind_name(w->kind), w->part->name, near.best ? " (did you mean " : "",
                near.best ? near.best : "", near.best ? "?)" : "", td_buf_cstr(&known));
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_BAD_SPEC), "PLUGIN_UNKNOWN");
}

static td_status find(struct td_arena *a, struct td_registry *r, const struct wanted *w,
                      const struct td_json *list, const struct td_plugin_desc **out_desc) {
    td_status s = td_registry_find(r, w->kind, w->part->name, out_desc);
    if (!s || strcmp(td_status_reason(s), "PLUGIN_UNKNOWN") != 0) return s;
    td_status_free(s);
    return fail_unknown(a, r, w, list);
}

// ---- the parts ----------------------------------------------------------------------------------
static td_status take_part(struct td_arena *a, struct td_registry *r, const struct wanted *w,
                           const struct td_spec *spec) {
    const struct td_plugin_desc *desc;
    struct td_json *knobs;
    if (td_has_built_in_plugin(w->kind, w->part->name)) {
        return td_bad_spec("%s '%s' is traind's own, not a plugin: name it without `name: plugin`, "
                           "as docs/job-spec.md has it",
                           td_plugin_kind_name(w->kind), w->part->name);
    }
    TD_TRY(find(a, r, w, spec->plugins ? spec->plugins->first : NULL, &desc));
    TD_TRY_CTX(td_spec_plugin_knobs(a, w->path, desc->knobs, desc->n_knobs, w->part->knobs,
                                    spec->paths_from, &knobs),
               "%s '%s'", td_plugin_kind_name(w->kind), desc->name);
    w->part->name = desc->name; // lives as long as the registry
    w->part->knobs = knobs;
    return TD_OK;
}

// Both in one message, so that a person mends both at once; the rest is the first one's.
static td_status join(td_status take_first, td_status take_other) {
    if (!take_first) return take_other;
    if (!take_other) return take_first;
    td_status s = td_fail(td_status_code(take_first), "%s; and %s", td_status_message(take_first),
                          td_status_message(take_other));
    s = td_status_with_class(s, td_status_class(take_first));
    s = td_status_with_reason(s, td_status_reason(take_first));
    td_status_free(take_first);
    td_status_free(take_other);
    return s;
}

td_status td_user_plugins_take(struct td_arena *a, struct td_registry *registry,
                               const char *permitted, struct td_spec *io_spec) {
    const struct wanted parts[N_PARTS] = {
        {TD_PLUGIN_MODULE, &io_spec->model, "model.knobs"},
        {TD_PLUGIN_DATASET, &io_spec->data, "data.knobs"},
        {TD_PLUGIN_ACCELERATOR, &io_spec->trainer.accelerator, "trainer.accelerator.knobs"},
        {TD_PLUGIN_STRATEGY, &io_spec->trainer.strategy, "trainer.strategy.knobs"},
        {TD_PLUGIN_PRECISION, &io_spec->trainer.precision, "trainer.precision.knobs"},
        {TD_PLUGIN_COMM_HOOK, &io_spec->comm_hook, "comm_hook.knobs"},
        {TD_PLUGIN_COLLECTIVE, &io_spec->trainer.collective, "trainer.collective.knobs"},
    };
    const struct td_json *list = io_spec->plugins ? io_spec->plugins->first : NULL;
    for (int pass = 0; pass < 2; pass++) {
        size_t i = 0;
        for (const struct td_json *v = list; v; v = v->next, i++) {
            TD_TRY_CTX(load_listed(registry, permitted, td_json_string(v, ""), parts, pass == 1),
                       "plugins[%zu]", i);
        }
    }
    td_status failed = TD_OK;
    for (int i = 0; i < N_PARTS; i++) {
        if (!parts[i].part->is_plugin) continue;
        failed = join(failed, take_part(a, registry, &parts[i], io_spec));
    }
    return failed;
}
