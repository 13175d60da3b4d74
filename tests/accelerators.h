#ifndef TRAIND_TESTS_ACCELERATORS_H
#define TRAIND_TESTS_ACCELERATORS_H

// The accelerators that are here: those that tests link, the one that every build has, and whatever
// else is among the plugins of the build and finds a device. So a new one is in every suite.

#include "accelerators/far/far.h"
#include "accelerators/reference/reference.h"
#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/plugin/registry.h"
#include "traind/accelerator.h"

#include "tests/unit/test.h"

enum { ACCELERATORS = 8 };

// far with each tensor of state in a buffer of its own.
static struct td_accelerator_ops by_tensor_ops;
static const struct td_plugin_desc accelerator_by_tensor =
    TD_PLUGIN_DESC(ACCELERATOR, "far_by_tensor", "far, by tensor", &by_tensor_ops);

static inline td_status open_by_tensor(const struct td_accel_config *config,
                                       struct td_accelerator **out_accel) {
    static const char text[] =
        "{\"delay_us\":0,\"fail_at\":0,\"copy_delay_us\":0,\"by_tensor\":true}";
    struct td_accel_config with = *config;
    struct td_arena *arena;
    struct td_json *knobs;
    TD_TRY(td_arena_create(4096, &arena));
    td_status s = td_json_parse(arena, text, sizeof text - 1, &knobs);
    with.knobs = knobs;
    if (!s) s = ((const struct td_accelerator_ops *)td_accelerator_far.ops)->open(&with, out_accel);
    td_arena_destroy(arena);
    return s;
}

static const struct td_plugin_desc *const linked_accelerators[] = {
    &td_accelerator_reference, &td_accelerator_far, &accelerator_by_tensor};
#define BUILT_ACCELERATOR "cpu"

struct accelerator {
    const struct td_accelerator_ops *ops;
    char name[32];
    uint32_t dtypes;
};

struct accelerators {
    struct td_registry *registry; // owns what was loaded
    struct accelerator at[ACCELERATORS];
    size_t n;
};

static inline void close_accelerators(struct accelerators *all) {
    td_registry_destroy(all->registry);
}

static inline td_status take_accelerator(struct accelerators *all, const char *name) {
    const struct td_plugin_desc *desc;
    struct accelerator *a = &all->at[all->n];
    struct td_accel_facts facts = {.struct_bytes = sizeof facts};
    TD_CHECK(all->n < ACCELERATORS);
    TD_TRY(td_registry_find(all->registry, TD_PLUGIN_ACCELERATOR, name, &desc));
    a->ops = desc->ops;
    TD_TRY(a->ops->probe(&facts));
    if (facts.n_devices < 1) return td_fail(TD_NOT_FOUND, "it finds no device");
    snprintf(a->name, sizeof a->name, "%s", name);
    a->dtypes = facts.dtypes;
    all->n++;
    return TD_OK;
}

// The plugins of the build: build/tests/conform/conform_ops -> build/lib/traind.
static inline void plugins_beside(const char *program, char *dir, size_t bytes) {
    snprintf(dir, bytes, "%s", program);
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(dir, '/');
        if (slash) *slash = '\0';
    }
    strncat(dir, "/lib/traind", bytes - strlen(dir) - 1);
}

// program: argv[0]. False: one that has to be here is not, which was said.
static inline bool open_accelerators(const char *program, struct accelerators *all) {
    char dir[4096];
    bool complete = false;
    TD_AUTO_BUF names;
    td_buf_init(&names, 4096);
    *all = (struct accelerators){0};
    by_tensor_ops = *(const struct td_accelerator_ops *)td_accelerator_far.ops;
    by_tensor_ops.open = open_by_tensor;
    plugins_beside(program, dir, sizeof dir);
    td_status failed = td_registry_create(dir, &all->registry);
    for (size_t i = 0; !failed && i < TD_COUNTOF(linked_accelerators); i++) {
        failed = td_registry_add(all->registry, linked_accelerators[i]);
    }
    if (!failed) failed = td_registry_list(all->registry, TD_PLUGIN_ACCELERATOR, &names);
    char name[32];
    for (const char *at = failed ? "" : td_buf_cstr(&names); *at; at += strspn(at, ", ")) {
        const size_t len = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        at += len;
        td_status s = take_accelerator(all, name);
        if (s) print_message("# %s is not here: %s\n", name, td_status_message(s));
        if (!s && strcmp(name, BUILT_ACCELERATOR) == 0) complete = true;
        td_status_free(s);
    }
    if (failed) print_message("# %s\n", td_status_message(failed));
    if (!failed && !complete) print_message("# %s has to be here\n", BUILT_ACCELERATOR);
    td_status_free(failed);
    return complete;
}

#endif
