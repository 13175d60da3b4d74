// Parts are found by name, so a file says by itself whose they are and of how many ranks.

#include "engine/train/rank/state/own_state.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/group/group.h"
#include "engine/train/rank/state/writers.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"

static void name_whole(const struct td_rank *r, char out[TD_PLUGIN_STATE_NAME]) {
    snprintf(out, TD_PLUGIN_STATE_NAME, "strategy.%.31s.whole", r->strategy_name);
}

// Whoever keeps something of each rank.
struct owner {
    const char *kind, *name; // "strategy", "local_sgd"
};

static struct owner strategy_of(const struct td_rank *r) {
    return (struct owner){"strategy", r->strategy_name};
}

static struct owner hook_of(const struct td_rank *r) {
    return (struct owner){"comm_hook", r->config->comm_hook.name};
}

static bool hook_saves(const struct td_rank *r) {
    return r->hook && r->hooks[0].ops->state_save;
}

static void name_rank(struct owner o, int32_t rank, char out[TD_PLUGIN_STATE_NAME]) {
    snprintf(out, TD_PLUGIN_STATE_NAME, "%s.%.31s.rank-%d", o.kind, o.name, rank);
}

static void name_precision(const struct td_rank *r, char out[TD_PLUGIN_STATE_NAME]) {
    snprintf(out, TD_PLUGIN_STATE_NAME, "precision.%.31s", r->precision_name);
}

// ---- into a checkpoint --------------------------------------------------------------------------

static td_status too_large(const struct td_rank *r, struct owner o, size_t bytes) {
    return td_status_with_class(
        td_fail(TD_RESOURCE_EXHAUSTED,
                "%s '%s' keeps %zu bytes on a rank; %d ranks may keep %d bytes in all", o.kind,
                o.name, bytes, r->facts.world_size, (int)TD_PLUGIN_STATE_MAX_BYTES),
        TD_CLASS_USER_CODE);
}

// Of all ranks, on each: sizes first, then rows of the largest one.
static td_status gather_ranks(struct td_rank *r, struct owner o, struct td_span own, bool keeps) {
    const size_t world = (size_t)r->facts.world_size;
    uint64_t bytes = own.bytes;
    size_t row = 0;
    TD_AUTO_FREE uint64_t *sizes = td_calloc(world, sizeof *sizes);
    if (!sizes) return td_fail_oom();
    TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, &bytes, sizeof bytes, sizes));
    for (size_t i = 0; i < world; i++) {
        row = TD_MAX(row, (size_t)sizes[i]);
    }
    if (row > TD_PLUGIN_STATE_MAX_BYTES / world) return too_large(r, o, row);
    TD_AUTO_FREE char *mine = td_calloc(row + 1, 1), *all = td_calloc(world, row + 1);
    if (!mine || !all) return td_fail_oom();
    if (own.bytes) memcpy(mine, own.data, own.bytes);
    if (row) TD_TRY(td_rank_all_gather(r, TD_GROUP_WORLD, mine, row, all));
    for (size_t i = 0; i < world && keeps; i++) {
        char name[TD_PLUGIN_STATE_NAME];
        name_rank(o, (int32_t)i, name);
        TD_TRY(td_plugin_state_add(&r->own, name, all + i * row, (size_t)sizes[i]));
    }
    return TD_OK;
}

static td_status gather_strategy(struct td_rank *r, bool keeps) {
    struct td_span own = {NULL, 0};
    TD_TRY(r->strategy_ops->state_save(r->strategy, TD_STRATEGY_RANK, &own));
    return gather_ranks(r, strategy_of(r), own, keeps);
}

static td_status gather_hook(struct td_rank *r, bool keeps) {
    struct td_span own = {NULL, 0};
    TD_TRY(r->hooks[0].ops->state_save(r->hooks[0].hook, &own));
    return gather_ranks(r, hook_of(r), own, keeps);
}

static td_status keep(struct td_rank *r, const char *name, struct td_span part) {
    return td_status_with_class(td_plugin_state_add(&r->own, name, part.data, part.bytes),
                                TD_CLASS_USER_CODE);
}

td_status td_rank_collect_own_state(struct td_rank *r) {
    char name[TD_PLUGIN_STATE_NAME];
    struct td_span part = {NULL, 0};
    const bool writes = td_rank_writes(r);
    td_plugin_state_clear(&r->own);
    if (r->strategy_ops->state_save) {
        TD_TRY_CTX(gather_strategy(r, writes), "save the state of strategy '%s'", r->strategy_name);
    }
    if (hook_saves(r)) {
        TD_TRY_CTX(gather_hook(r, writes), "save the state of comm_hook '%s'",
                   r->config->comm_hook.name);
    }
    if (r->strategy_ops->state_save && writes) {
        TD_TRY_CTX(r->strategy_ops->state_save(r->strategy, TD_STRATEGY_WHOLE, &part),
                   "save the state of strategy '%s'", r->strategy_name);
        name_whole(r, name);
        TD_TRY(keep(r, name, part));
    }
    if (!r->precision_ops->own_save || !writes) return TD_OK;
    TD_TRY_CTX(r->precision_ops->own_save(r->precision, &part), "save the state of precision '%s'",
               r->precision_name);
    name_precision(r, name);
    return keep(r, name, part);
}

// ---- out of a checkpoint ------------------------------------------------------------------------

td_status td_rank_read_own_state(struct td_rank *r) {
    const struct td_manifest *m = &r->restored.manifest;
    char path[TD_FS_PATH_BYTES];
    for (size_t i = 0; i < m->n_files; i++) {
        if (strcmp(m->file[i].name, TD_PLUGIN_STATE_FILE) != 0) continue;
        TD_TRY(td_fs_path(path, "%s/%s", r->restored.path, TD_PLUGIN_STATE_FILE));
        return td_plugin_state_read(path, &r->own);
    }
    return TD_OK;
}

static td_status receive(struct td_rank *r, struct td_buf *b) {
    uint64_t bytes = b->len;
    TD_TRY(td_rank_broadcast(r, &bytes, sizeof bytes, 0));
    if (!r->facts.is_global_zero) {
        td_buf_clear(b);
        TD_TRY(td_buf_reserve(b, (size_t)bytes));
        b->len = (size_t)bytes;
    }
    return bytes ? td_rank_broadcast(r, b->data, (size_t)bytes, 0) : TD_OK;
}

// How many ranks kept something of it.
static int32_t saved_ranks(const struct td_rank *r, struct owner o) {
    char name[TD_PLUGIN_STATE_NAME];
    struct td_span part;
    int32_t n = 0;
    do {
        name_rank(o, n, name);
    } while (td_plugin_state_find(&r->own, name, &part) && ++n);
    return n;
}

// This rank's part; false: the parts are of another world size, or there are none.
static bool find_own_rank(const struct td_rank *r, struct owner o, struct td_span *out_part) {
    char name[TD_PLUGIN_STATE_NAME];
    if (saved_ranks(r, o) != r->facts.world_size) return false;
    name_rank(o, r->facts.global_rank, name);
    return td_plugin_state_find(&r->own, name, out_part);
}

static td_status load_strategy(struct td_rank *r) {
    const struct td_strategy_ops *o = r->strategy_ops;
    char name[TD_PLUGIN_STATE_NAME];
    struct td_span part;
    name_whole(r, name);
    if (td_plugin_state_find(&r->own, name, &part)) {
        TD_TRY(o->state_load(r->strategy, TD_STRATEGY_WHOLE, part.data, part.bytes));
    }
    if (!find_own_rank(r, strategy_of(r), &part)) return TD_OK;
    return o->state_load(r->strategy, TD_STRATEGY_RANK, part.data, part.bytes);
}

static td_status load_hook(struct td_rank *r) {
    struct td_span part;
    if (!find_own_rank(r, hook_of(r), &part)) return TD_OK;
    return r->hooks[0].ops->state_load(r->hooks[0].hook, part.data, part.bytes);
}

td_status td_rank_load_own_state(struct td_rank *r) {
    const struct td_precision_ops *p = r->precision_ops;
    if (!r->resumed || !(r->strategy_ops->state_load || p->own_load || hook_saves(r))) return TD_OK;
    TD_TRY_CTX(receive(r, &r->own.parts), "receive what plugins kept");
    TD_TRY_CTX(receive(r, &r->own.bytes), "receive what plugins kept");
    if (r->strategy_ops->state_load) {
        TD_TRY_CTX(load_strategy(r), "load the state of strategy '%s'", r->strategy_name);
    }
    if (hook_saves(r)) {
        TD_TRY_CTX(load_hook(r), "load the state of comm_hook '%s'", r->config->comm_hook.name);
    }
    if (p->own_load) {
        char name[TD_PLUGIN_STATE_NAME];
        struct td_span part;
        name_precision(r, name);
        if (td_plugin_state_find(&r->own, name, &part)) {
            TD_TRY_CTX(p->own_load(r->precision, part.data, part.bytes),
                       "load the state of precision '%s'", r->precision_name);
        }
    }
    td_plugin_state_clear(&r->own);
    return TD_OK;
}

// ---- what is not taken over ---------------------------------------------------------------------

// The owner of the first part of that kind that is not `name`'s: "local_sgd"; false: there is none.
static bool find_other(const struct td_rank *r, const char *kind, const char *name,
                       char out[TD_PLUGIN_STATE_NAME]) {
    const size_t before = strlen(kind), len = strlen(name);
    for (size_t i = 0; i < td_plugin_state_count(&r->own); i++) {
        struct td_plugin_part part = td_plugin_state_at(&r->own, i);
        const char *owner = part.name + before;
        if (strncmp(part.name, kind, before) != 0) continue;
        if (strncmp(owner, name, len) == 0 && (!owner[len] || owner[len] == '.')) continue;
        snprintf(out, TD_PLUGIN_STATE_NAME, "%.*s", (int)strcspn(owner, "."), owner);
        return true;
    }
    return false;
}

static void compare_strategy(const struct td_rank *r, char *out, size_t bytes) {
    char name[TD_PLUGIN_STATE_NAME], other[TD_PLUGIN_STATE_NAME];
    struct td_span part;
    const int32_t was = saved_ranks(r, strategy_of(r)), is = r->facts.world_size;
    name_whole(r, name);
    bool saved = td_plugin_state_find(&r->own, name, &part);
    if (find_other(r, "strategy.", r->strategy_name, other)) {
        (void)td_clip(out, bytes, "strategy %s -> %s: the state of %s is not taken over", other,
                      r->strategy_name, other);
    } else if (saved && !r->strategy_ops->state_load) {
        (void)td_clip(out, bytes, "strategy %s cannot load the state that it saved",
                      r->strategy_name);
    } else if (saved && was != is) {
        (void)td_clip(out, bytes,
                      "strategy %s: its state is not taken over, because it is of %d ranks and the "
                      "world size is now %d",
                      r->strategy_name, was, is);
    } else if (!saved && r->strategy_ops->state_load) {
        (void)td_clip(out, bytes,
                      "strategy %s begins as in a new run: the checkpoint has nothing of it",
                      r->strategy_name);
    } else if (!r->facts.resumes_exactly) {
        (void)td_clip(
            out, bytes,
            "strategy %s does not resume exactly: a checkpoint does not hold all that its "
            "steps depend on",
            r->strategy_name);
    }
}

void td_rank_compare_hook_state(const struct td_rank *r, char *out, size_t bytes) {
    char other[TD_PLUGIN_STATE_NAME];
    const char *name = hook_saves(r) ? r->config->comm_hook.name : "";
    const int32_t was = *name ? saved_ranks(r, hook_of(r)) : 0, is = r->facts.world_size;
    const char *before =
        td_json_string(td_json_get(r->restored.manifest.frozen, "comm_hook"), "none");
    *out = '\0';
    if (find_other(r, "comm_hook.", name, other)) {
        (void)td_clip(out, bytes, "comm_hook %s: its state is not taken over", other);
    } else if (*name && !was) {
        (void)td_clip(out, bytes,
                      "comm_hook %s begins as in a new run: the checkpoint has nothing of it",
                      name);
    } else if (*name && was != is) {
        (void)td_clip(
            out, bytes,
            "comm_hook %s: its state is not taken over, because it is of %d ranks and the "
            "world size is now %d",
            name, was, is);
    } else if (is > 1 && r->restored.manifest.key.world_size > 1 &&
               strcmp(before, r->hook_name) != 0) {
        (void)td_clip(out, bytes, "comm_hook %s -> %s", before, r->hook_name);
    }
}

void td_rank_compare_own_state(const struct td_rank *r, char *out_strategy, size_t strategy_bytes,
                               char *out_precision, size_t precision_bytes) {
    char name[TD_PLUGIN_STATE_NAME], other[TD_PLUGIN_STATE_NAME];
    struct td_span part;
    *out_strategy = *out_precision = '\0';
    compare_strategy(r, out_strategy, strategy_bytes);
    name_precision(r, name);
    bool saved = td_plugin_state_find(&r->own, name, &part), loads = r->precision_ops->own_load;
    if (find_other(r, "precision.", r->precision_name, other)) {
        (void)td_clip(out_precision, precision_bytes, "the state of precision %s is not taken over",
                      other);
    } else if (saved != loads) {
        (void)td_clip(out_precision, precision_bytes,
                      loads
                          ? "precision %s begins as in a new run: the checkpoint has nothing of it"
                          : "precision %s cannot load the state that it saved",
                      r->precision_name);
    }
}
