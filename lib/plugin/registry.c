// Plugin registry: the checks a descriptor must pass, and where descriptors come from.
//
// One table row per kind says how large its ops table is in this build and which slots it must
// have. The slots' names come from the same macro, so that the error can name what is missing. A
// plugin of an older minor version has a shorter ops table. It is copied into a zeroed one of full
// size, and nobody else ever has to ask what a plugin's struct_bytes was.
//
// Shared objects are loaded by a name made of checked characters, so a spec cannot reach outside
// the plugin directory, and never closed. Code that has run may have left pointers anywhere. One
// thread owns a registry. Failure: status, with what dlopen said; nothing half-added stays.

#include "lib/plugin/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "traind/accelerator.h"
#include "traind/collective.h"
#include "traind/comm_hook.h"
#include "traind/dataset.h"
#include "traind/layout.h"
#include "traind/module.h"
#include "traind/precision.h"
#include "traind/strategy.h"

#include "lib/base/buf.h"
#include "lib/base/files/files.h"

enum { NAME_MAX_BYTES = 31, KNOWN_MAX_BYTES = 1024 };
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// ---- what each kind requires --------------------------------------------------------------------
struct slot {
    const char *name;
    size_t offset;
};
#define SLOT(type, member)                                                                         \
    { #member, offsetof(struct type, member) }

static const struct slot accelerator_slots[] = {
    SLOT(td_accelerator_ops, probe),    SLOT(td_accelerator_ops, open),
    SLOT(td_accelerator_ops, close),    SLOT(td_accelerator_ops, mem_alloc),
    SLOT(td_accelerator_ops, mem_free), SLOT(td_accelerator_ops, copy),
    SLOT(td_accelerator_ops, compile),  SLOT(td_accelerator_ops, run),
    SLOT(td_accelerator_ops, wait),     SLOT(td_accelerator_ops, release),
};
static const struct slot collective_slots[] = {
    SLOT(td_collective_ops, facts),
    SLOT(td_collective_ops, shared_bytes),
    SLOT(td_collective_ops, join),
    SLOT(td_collective_ops, leave),
    SLOT(td_collective_ops, gradients),
    SLOT(td_collective_ops, all_reduce),
    SLOT(td_collective_ops, all_reduce_bucket),
    SLOT(td_collective_ops, all_gather),
    SLOT(td_collective_ops, broadcast),
    SLOT(td_collective_ops, barrier),
    SLOT(td_collective_ops, abort),
};
static const struct slot module_slots[] = {
    SLOT(td_module_ops, open),
    SLOT(td_module_ops, close),
    SLOT(td_module_ops, record),
};
static const struct slot dataset_slots[] = {
    SLOT(td_dataset_ops, open),   SLOT(td_dataset_ops, close),  SLOT(td_dataset_ops, fields),
    SLOT(td_dataset_ops, length), SLOT(td_dataset_ops, gather),
};

static const struct slot precision_slots[] = {
    SLOT(td_precision_ops, open),
    SLOT(td_precision_ops, close),
    SLOT(td_precision_ops, facts),
};
static const struct slot comm_hook_slots[] = {
    SLOT(td_comm_hook_ops, open),
    SLOT(td_comm_hook_ops, close),
    SLOT(td_comm_hook_ops, reduce),
};
static const struct slot strategy_slots[] = {
    SLOT(td_strategy_ops, open),
    SLOT(td_strategy_ops, close),
    SLOT(td_strategy_ops, environment),
};

// Optional slots of which one without the other is a mistake.
static const struct pair {
    enum td_plugin_kind kind;
    struct slot slot[2];
} pairs[] = {
#define PAIR(kind, type, one, other)                                                               \
    {                                                                                              \
        TD_PLUGIN_##kind, {                                                                        \
            SLOT(type, one), SLOT(type, other)                                                     \
        }                                                                                          \
    }
    PAIR(ACCELERATOR, td_accelerator_ops, host_alloc, host_free),
    PAIR(ACCELERATOR, td_accelerator_ops, choices, adopt_choices),
    PAIR(STRATEGY, td_strategy_ops, build_begin, build_end),
    PAIR(STRATEGY, td_strategy_ops, state_save, state_load),
    PAIR(PRECISION, td_precision_ops, state_save, state_load),
    PAIR(PRECISION, td_precision_ops, own_save, own_load),
    PAIR(COMM_HOOK, td_comm_hook_ops, state_save, state_load),
};

#define KIND(name, type, slots)                                                                    \
    { name, sizeof(struct type), slots, TD_COUNTOF(slots) }
static const struct kind {
    const char *name;
    size_t ops_bytes;
    const struct slot *slots;
    size_t n_slots;
} kinds[] = {
    [TD_PLUGIN_ACCELERATOR] = KIND("accelerator", td_accelerator_ops, accelerator_slots),
    [TD_PLUGIN_COLLECTIVE] = KIND("collective", td_collective_ops, collective_slots),
    [TD_PLUGIN_PRECISION] = KIND("precision", td_precision_ops, precision_slots),
    [TD_PLUGIN_STRATEGY] = KIND("strategy", td_strategy_ops, strategy_slots),
    [TD_PLUGIN_MODULE] = KIND("module", td_module_ops, module_slots),
    [TD_PLUGIN_DATASET] = KIND("dataset", td_dataset_ops, dataset_slots),
    [TD_PLUGIN_COMM_HOOK] = KIND("comm_hook", td_comm_hook_ops, comm_hook_slots),
};
_Static_assert(TD_COUNTOF(kinds) == TD_PLUGIN_KIND_COUNT, "one row per kind");

const char *td_plugin_kind_name(enum td_plugin_kind kind) {
    return (size_t)kind < TD_COUNTOF(kinds) ? kinds[kind].name : "unknown";
}

// ---- checks -------------------------------------------------------------------------------------
static td_status refuse(const char *origin, const char *fmt, ...) TD_PRINTF(2, 3);
static td_status refuse(const char *origin, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    td_status s = td_vfail(TD_FAILED_PRECONDITION, fmt, ap);
    va_end(ap);
    s = td_status_with_class(td_status_context(s, "plugin %s", origin), TD_CLASS_BAD_SPEC);
    return td_status_with_reason(s, "PLUGIN_REFUSED");
}

static bool name_is_valid(const char *name) {
    size_t len = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return len > 0 && len <= NAME_MAX_BYTES && name[len] == '\0';
}

// A table that is too short for a slot does not have it.
static bool has_slot(const struct td_plugin_desc *desc, const struct slot *slot) {
    const uint32_t ops_bytes = *(const uint32_t *)desc->ops;
    void *function = NULL;
    if (slot->offset + sizeof function <= ops_bytes) {
        memcpy(&function, (const char *)desc->ops + slot->offset, sizeof function);
    }
    return function != NULL;
}

static td_status check_slots(const struct td_plugin_desc *desc, const char *origin) {
    const struct kind *kind = &kinds[desc->kind];
    for (size_t i = 0; i < kind->n_slots; i++) {
        if (has_slot(desc, &kind->slots[i])) continue;
        return refuse(origin, "%s '%s' lacks the required slot '%s'", kind->name, desc->name,
                      kind->slots[i].name);
    }
    for (size_t i = 0; i < TD_COUNTOF(pairs); i++) {
        const struct pair *p = &pairs[i];
        if (p->kind != desc->kind) continue;
        const bool has[2] = {has_slot(desc, &p->slot[0]), has_slot(desc, &p->slot[1])};
        if (has[0] == has[1]) continue;
        return refuse(origin, "%s '%s' has the slot '%s' but lacks '%s'; it needs both or none",
                      kind->name, desc->name, p->slot[has[1]].name, p->slot[has[0]].name);
    }
    return TD_OK;
}

static bool knob_name_is_valid(const char *name) {
    size_t len = name ? strspn(name, LETTERS "0123456789_") : 0;
    return len > 0 && len <= NAME_MAX_BYTES && !name[len] && strspn(name, LETTERS);
}

// "relu|gelu"
static bool are_choices(const char *values) {
    for (const char *at = values; at; at = strchr(at, '|')) {
        at += at > values;
        size_t len = strspn(at, LETTERS "0123456789_.+-");
        if (!len || (at[len] && at[len] != '|')) return false;
    }
    return values != NULL;
}

// "2..64"
static bool is_item_range(const char *values) {
    unsigned least, most;
    int end = 0;
    bool is_pair = sscanf(values, "%6u..%6u%n", &least, &most, &end) == 2;
    return is_pair && !values[end] && least <= most;
}

static const char *wrong_with_values(const struct td_plugin_knob *k) {
    bool is_list = k->type == TD_PLUGIN_KNOB_INTS || k->type == TD_PLUGIN_KNOB_REALS;
    if (k->type == TD_PLUGIN_KNOB_ENUM) {
        return are_choices(k->values) ? NULL : "values must be names, as in \"relu|gelu\"";
    }
    if (!k->values) return NULL;
    if (!is_list) return "values must be NULL but of an enum and a list";
    return is_item_range(k->values) ? NULL : "values must say how many, as in \"2..64\"";
}

static const char *wrong_with_knob(const struct td_plugin_knob *k) {
    if ((size_t)k->type >= TD_PLUGIN_KNOB_TYPE_COUNT) {
        return "its type is not one of traind/knobs.h";
    }
    if (!(k->min <= k->max)) return "min must not be above max";
    if (!k->prose || !*k->prose) return "it has no prose";
    if (k->fallback && !*k->fallback) return "its fallback is empty; NULL makes it required";
    return wrong_with_values(k);
}

static td_status check_knobs(const struct td_plugin_desc *desc, const char *origin) {
    if (desc->n_knobs > TD_PLUGIN_KNOBS_MAX || (desc->n_knobs && !desc->knobs)) {
        return refuse(origin, "'%s' says it has %zu knobs%s; at most %d are taken", desc->name,
                      desc->n_knobs, desc->knobs ? "" : " and has no table of them",
                      (int)TD_PLUGIN_KNOBS_MAX);
    }
    for (size_t i = 0; i < desc->n_knobs; i++) {
        const struct td_plugin_knob *k = &desc->knobs[i];
        if (!knob_name_is_valid(k->name)) {
            return refuse(origin,
                          "the name of knob %zu of '%s' must be a letter, then letters, digits "
                          "and _, at most %d",
                          i, desc->name, (int)NAME_MAX_BYTES);
        }
        const char *wrong = wrong_with_knob(k);
        for (size_t before = 0; before < i && !wrong; before++) {
            if (strcmp(desc->knobs[before].name, k->name) == 0) wrong = "it is there twice";
        }
        if (wrong) {
            return refuse(origin, "knob '%s' (%s) of '%s': %s", k->name,
                          td_plugin_knob_type_name(k->type), desc->name, wrong);
        }
    }
    return TD_OK;
}

td_status td_plugin_check(const struct td_plugin_desc *desc, const char *origin) {
    if (!desc) return refuse(origin, "it has no descriptor");
    if (desc->struct_bytes < sizeof *desc) {
        return refuse(origin, "its descriptor has %u bytes, at least %zu are expected",
                      desc->struct_bytes, sizeof *desc);
    }
    if (desc->abi_major != TD_ABI_MAJOR || desc->abi_minor > TD_ABI_MINOR) {
        return refuse(origin,
                      "it was built for plugin ABI %d.%d, this traind has %d.%d: rebuild it",
                      desc->abi_major, desc->abi_minor, (int)TD_ABI_MAJOR, (int)TD_ABI_MINOR);
    }
    if ((size_t)desc->kind >= TD_COUNTOF(kinds)) {
        return refuse(origin, "its kind is %d, known are 0 to %d", (int)desc->kind,
                      (int)TD_PLUGIN_KIND_COUNT - 1);
    }
    if (!name_is_valid(desc->name)) {
        return refuse(origin, "its name must be 1 to %d of a-z, 0-9 and _", (int)NAME_MAX_BYTES);
    }
    if (!desc->summary) return refuse(origin, "'%s' has no summary", desc->name);
    if (!desc->ops) return refuse(origin, "'%s' has no ops table", desc->name);
    TD_TRY(check_knobs(desc, origin));
    return check_slots(desc, origin);
}

// ---- what it was compiled against ---------------------------------------------------------------
// Two lists of words: the number of the first that differs, and both words. -1: `theirs` is ours,
// or ends before it does.
static int first_difference(const char *theirs, const char *ours, struct td_str *out_theirs,
                            struct td_str *out_ours) {
    for (int i = 0; *theirs; i++) {
        *out_theirs = (struct td_str){theirs, strcspn(theirs, " ")};
        *out_ours = (struct td_str){ours, strcspn(ours, " ")};
        if (out_theirs->len != out_ours->len || memcmp(theirs, ours, out_ours->len) != 0) return i;
        theirs += out_theirs->len + (theirs[out_theirs->len] == ' ');
        ours += out_ours->len + (ours[out_ours->len] == ' ');
    }
    return -1;
}

static td_status check_words(const char *what, const char *theirs, const char *ours,
                             const char *origin) {
    struct td_str a, b;
    int at = first_difference(theirs, ours, &a, &b);
    if (at < 0) return TD_OK;
    return refuse(origin, "it was built when %s %d was '%.*s', here that is '%.*s': rebuild it",
                  what, at, (int)a.len, a.data, (int)b.len, b.len ? b.data : "");
}

td_status td_plugin_check_layout(enum td_plugin_kind kind, const struct td_layout *layout,
                                 const char *origin) {
    const struct td_layout *ours = td_layout_here();
    if (!layout || layout->struct_bytes != sizeof *layout) {
        return refuse(origin, "it does not say which ops it was built for: rebuild it");
    }
    TD_TRY(check_words("op", layout->ops, ours->ops, origin));
    TD_TRY(check_words("element type", layout->dtypes, ours->dtypes, origin));
    if (kind == TD_PLUGIN_ACCELERATOR && strcmp(layout->ops, ours->ops) != 0) {
        return refuse(origin, "it was built before the ops '%s' came: rebuild it",
                      ours->ops + strlen(layout->ops));
    }
    const uint32_t config_bytes = kind == TD_PLUGIN_COLLECTIVE
                                      ? layout->collective_config_bytes
                                      : ours->collective_config_bytes; // others have none
    const struct {
        const char *name;
        uint32_t theirs, ours;
    } sizes[] = {
        {"td_attrs", layout->attrs_bytes, ours->attrs_bytes},
        {"td_node_info", layout->node_bytes, ours->node_bytes},
        {"td_value_info", layout->value_bytes, ours->value_bytes},
        {"td_state_info", layout->state_bytes, ours->state_bytes},
        {"td_program", layout->program_bytes, ours->program_bytes},
        {"td_field", layout->field_bytes, ours->field_bytes},
        {"td_bindings.scalars", layout->scalars_bytes, ours->scalars_bytes},
        {"td_bindings.random", layout->random_bytes, ours->random_bytes},
        {"td_plugin_knob", layout->knob_bytes, ours->knob_bytes},
        {"td_bindings.region", layout->region_bytes, ours->region_bytes},
        {"td_bucket_tensor", layout->bucket_tensor_bytes, ours->bucket_tensor_bytes},
        {"td_sum_range", layout->sum_range_bytes, ours->sum_range_bytes},
        {"td_collective_config", config_bytes, ours->collective_config_bytes},
    };
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        if (sizes[i].theirs == sizes[i].ours) continue;
        if (!sizes[i].theirs) { // its layout ends before
            return refuse(origin, "it was built before struct %s was compared: rebuild it",
                          sizes[i].name);
        }
        return refuse(origin,
                      "it was built when struct %s had %u bytes, here it has %u: rebuild it",
                      sizes[i].name, sizes[i].theirs, sizes[i].ours);
    }
    return TD_OK;
}

// ---- the registry -------------------------------------------------------------------------------
struct plugin {
    const struct td_plugin_desc *origin; // as the plugin gave it
    struct td_plugin_desc desc;          // as we hand it out
    char digest[TD_DIGEST_HEX];          // of its file; "": it has none, or was not asked for yet
    int fd;                              // the file that was loaded, until it is read; -1: none
    _Alignas(max_align_t) char ops[];
};

struct td_registry {
    char *plugin_dir; // NULL: none
    struct plugin *plugins[TD_REGISTRY_MAX];
    size_t n_plugins;
};

td_status td_registry_create(const char *plugin_dir, struct td_registry **out_registry) {
    TD_AUTO(td_registry) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->plugin_dir = plugin_dir ? td_strdup(plugin_dir) : NULL;
    if (plugin_dir && !r->plugin_dir) return td_fail_oom();
    *out_registry = td_steal(r);
    return TD_OK;
}

void td_registry_destroy(struct td_registry *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_plugins; i++) {
        if (r->plugins[i]->fd >= 0) close(r->plugins[i]->fd);
        free(r->plugins[i]);
    }
    free(r->plugin_dir);
    free(r);
}

static struct plugin *lookup(const struct td_registry *r, enum td_plugin_kind kind,
                             const char *name) {
    for (size_t i = 0; i < r->n_plugins; i++) {
        struct plugin *p = r->plugins[i];
        if (p->desc.kind == kind && strcmp(p->desc.name, name) == 0) return p;
    }
    return NULL;
}

bool td_registry_has(const struct td_registry *r, enum td_plugin_kind kind, const char *name) {
    return lookup(r, kind, name) != NULL;
}

// *take_fd, the file that it was loaded from or -1, is kept where the plugin is new.
static td_status add(struct td_registry *r, const struct td_plugin_desc *desc, const char *origin,
                     int *take_fd, const struct td_plugin_desc **out_desc) {
    TD_TRY(td_plugin_check(desc, origin));
    struct plugin *known = lookup(r, desc->kind, desc->name);
    if (known && known->origin != desc) {
        td_status s = td_fail(TD_ALREADY_EXISTS, "plugin %s: there is a %s named '%s' already",
                              origin, td_plugin_kind_name(desc->kind), desc->name);
        return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    }
    if (known) {
        *out_desc = &known->desc;
        return TD_OK;
    }
    if (r->n_plugins == TD_REGISTRY_MAX) {
        return td_fail(TD_RESOURCE_EXHAUSTED, "plugin %s: at most %d can be loaded", origin,
                       (int)TD_REGISTRY_MAX);
    }
    uint32_t theirs = *(const uint32_t *)desc->ops, ours = (uint32_t)kinds[desc->kind].ops_bytes;
    struct plugin *p = td_calloc(1, sizeof *p + ours);
    if (!p) return td_fail_oom();
    p->origin = desc;
    p->fd = *take_fd;
    *take_fd = -1;
    p->desc = *desc;
    p->desc.struct_bytes = sizeof p->desc;
    p->desc.ops = p->ops;
    memcpy(p->ops, desc->ops, TD_MIN(theirs, ours));
    memcpy(p->ops, &ours, sizeof ours);
    r->plugins[r->n_plugins++] = p;
    *out_desc = &p->desc;
    return TD_OK;
}

td_status td_registry_add(struct td_registry *r, const struct td_plugin_desc *desc) {
    const struct td_plugin_desc *added;
    const char *name = desc && desc->name ? desc->name : "without a name";
    return add(r, desc, name, &(int){-1}, &added);
}

// ---- shared objects -----------------------------------------------------------------------------
static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Loads a file and keeps it open, so that its digest is that of the bytes that were loaded. A file
// that cannot be opened (-1) is dlopen's to refuse: *out_object is NULL then, and dlerror has the
// reason.
static td_status open_object(const char *path, int *out_fd, void **out_object) {
    struct stat before, after;
    TD_AUTO_CLOSE int fd = -1;
    TD_AUTO_STATUS td_status s = td_fs_open(path, &fd, &before);
    if (td_status_code(s) == TD_FAILED_PRECONDITION) return td_steal(s); // dlopen would wait
    bool readable = !s;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object && readable && (stat(path, &after) != 0 || !is_same_file(&before, &after))) {
        return td_fail(TD_UNAVAILABLE, "plugin %s: its file was replaced while it was loaded",
                       path);
    }
    *out_object = object;
    *out_fd = readable ? fd : -1;
    if (readable) fd = -1;
    return TD_OK;
}

td_status td_registry_load(struct td_registry *r, const char *path,
                           const struct td_plugin_desc **out_desc) {
    if (!strchr(path, '/')) {
        return td_fail(TD_INVALID_ARGUMENT, "plugin '%s': give its path, with a '/'", path);
    }
    TD_AUTO_CLOSE int fd = -1;
    void *object;
    TD_TRY(open_object(path, &fd, &object));
    if (!object) {
        const char *why = dlerror();
        return refuse(path, "it does not load here: %s", why ? why : "unknown reason");
    }
    const struct td_plugin_desc *(*entry)(void);
    const struct td_layout *(*layout)(void);
    void *entry_symbol = dlsym(object, "td_plugin_entry");
    void *layout_symbol = dlsym(object, "td_plugin_layout");
    if (!entry_symbol) {
        return refuse(path, "it has no td_plugin_entry; is it a plugin of traind?");
    }
    memcpy(&entry, &entry_symbol, sizeof entry); // ISO C has no cast from object to function
    memcpy(&layout, &layout_symbol, sizeof layout);
    const struct td_plugin_desc *desc = entry();
    TD_TRY(td_plugin_check(desc, path));
    TD_TRY(td_plugin_check_layout(desc->kind, layout_symbol ? layout() : NULL, path));
    return add(r, desc, path, &fd, out_desc);
}

td_status td_registry_list_files(const struct td_registry *r, enum td_plugin_kind kind,
                                 const char *path, struct td_buf *out) {
    DIR *dir = opendir(path);
    td_status s = TD_OK;
    for (struct dirent *e; dir && !s && (e = readdir(dir));) {
        size_t prefix = strlen(kinds[kind].name), len = strlen(e->d_name);
        if (strncmp(e->d_name, kinds[kind].name, prefix) != 0 || e->d_name[prefix] != '-') continue;
        if (len < prefix + 5 || strcmp(e->d_name + len - 3, ".so") != 0) continue;
        e->d_name[len - 3] = '\0';
        const char *name = e->d_name + prefix + 1;
        if (name_is_valid(name) && !lookup(r, kind, name)) {
            s = td_buf_printf(out, "%s%s", out->len ? ", " : "", name);
        }
    }
    if (dir) closedir(dir);
    return s;
}

td_status td_registry_list(const struct td_registry *r, enum td_plugin_kind kind,
                           struct td_buf *out) {
    for (size_t i = 0; i < r->n_plugins; i++) {
        if (r->plugins[i]->desc.kind != kind) continue;
        TD_TRY(td_buf_printf(out, "%s%s", out->len ? ", " : "", r->plugins[i]->desc.name));
    }
    return r->plugin_dir ? td_registry_list_files(r, kind, r->plugin_dir, out) : TD_OK;
}

static td_status not_found(const struct td_registry *r, enum td_plugin_kind kind,
                           const char *name) {
    TD_AUTO_BUF known;
    td_buf_init(&known, KNOWN_MAX_BYTES);
    td_status_free(td_registry_list(r, kind, &known)); // a list that is too long is cut
    td_status s =
        td_fail(TD_NOT_FOUND, "there is no %s '%.64s'; known are: %s", td_plugin_kind_name(kind),
                name, known.len ? td_buf_cstr(&known) : "none");
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_BAD_SPEC), "PLUGIN_UNKNOWN");
}

td_status td_registry_find(struct td_registry *r, enum td_plugin_kind kind, const char *name,
                           const struct td_plugin_desc **out_desc) {
    TD_CHECK((size_t)kind < TD_COUNTOF(kinds));
    char lower[NAME_MAX_BYTES + 1] = "";
    for (size_t i = 0; i < NAME_MAX_BYTES && name[i]; i++) {
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    }
    if (strlen(name) > NAME_MAX_BYTES || !name_is_valid(lower)) return not_found(r, kind, name);
    struct plugin *p = lookup(r, kind, lower);
    if (p) {
        *out_desc = &p->desc;
        return TD_OK;
    }
    if (!r->plugin_dir) return not_found(r, kind, name);
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s-%s.so", r->plugin_dir, kinds[kind].name, lower);
    if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0) {
        return not_found(r, kind, name);
    }
    const struct td_plugin_desc *desc;
    TD_TRY(td_registry_load(r, path, &desc));
    if (desc->kind != kind || strcmp(desc->name, lower) != 0) {
        return refuse(path, "it holds the %s '%s' instead of what its name says",
                      td_plugin_kind_name(desc->kind), desc->name);
    }
    *out_desc = desc;
    return TD_OK;
}

td_status td_registry_files(struct td_registry *r, struct td_plugin_file out[TD_REGISTRY_MAX],
                            size_t *out_n) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_plugins; i++) {
        struct plugin *p = r->plugins[i];
        if (p->fd >= 0) {
            TD_TRY(td_digest_fd(p->fd, p->desc.name, p->digest));
            close(p->fd);
            p->fd = -1;
        }
        if (!p->digest[0]) continue;
        struct td_plugin_file *f = &out[n++];
        snprintf(f->name, sizeof f->name, "%s-%s", kinds[p->desc.kind].name, p->desc.name);
        memcpy(f->digest, p->digest, sizeof f->digest);
    }
    *out_n = n;
    return TD_OK;
}
