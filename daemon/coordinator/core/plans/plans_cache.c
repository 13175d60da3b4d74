// See the header.

#include "daemon/coordinator/core/plans/plans_cache.h"

#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/spec/spec.h"

void td_plans_key(const char *digest, const struct td_host *n, char out[]) {
    snprintf(out, TD_PLAN_KEY_BYTES, "%s/%s/%s", digest, n->cpu_level_held, n->plugins);
}

// The last part of a key. Keys of older builds have none.
static const char *plugins_of(const char *key) {
    const char *level = strchr(key, '/'), *plugins = level ? strchr(level + 1, '/') : NULL;
    return plugins ? plugins + 1 : "";
}

// plugins: NULL for any.
static const struct td_plan_entry *find_of_plugins(const struct td_core *core, const char *digest,
                                                   const char *plugins) {
    size_t cursor = 0, len = strlen(digest);
    const char *found;
    void *value;
    while (td_map_next(core->plans, &cursor, &found, &value)) {
        if (strncmp(found, digest, len) != 0) continue;
        if (!plugins || strcmp(plugins_of(found), plugins) == 0) return value;
    }
    return NULL;
}

const struct td_plan_entry *td_plans_find(const struct td_core *core, const char *digest,
                                          const struct td_host *n) {
    char key[TD_PLAN_KEY_BYTES];
    if (n) {
        td_plans_key(digest, n, key);
        return td_map_get(core->plans, key);
    }
    return find_of_plugins(core, digest, NULL);
}

const struct td_plan_entry *td_plans_find_near(const struct td_core *core, const char *digest,
                                               const struct td_host *n) {
    const struct td_plan_entry *e = n ? td_plans_find(core, digest, n) : NULL;
    if (!e && n) e = find_of_plugins(core, digest, n->plugins);
    return e ? e : td_plans_find(core, digest, NULL);
}

void td_plan_entry_destroy(struct td_plan_entry *e) {
    if (!e) return;
    free(e->json);
    free(e->read);
    free(e->slow);
    free(e);
}

// An older node names parts alone.
static void read_memory(struct td_plan_entry *e, const struct td_json *v) {
    static const char *const parts[] = {"state_bytes", "arena_bytes", "scratch_bytes",
                                        "snapshot_bytes"};
    int64_t all = td_json_int(td_json_get(v, "memory_bytes"), 0);
    for (size_t i = 0; i < TD_COUNTOF(parts); i++) {
        int64_t bytes = td_json_int(td_json_get(v, parts[i]), 0);
        if (bytes > 0) e->memory_bytes += (uint64_t)bytes;
    }
    if (all > 0) e->memory_bytes = (uint64_t)all;
    const int64_t order = td_json_int(td_json_get(v, "order_bytes"), 0);
    if (order > 0 && order <= all) e->order_bytes = (uint64_t)order;
}

static td_status read_files(struct td_plan_entry *e, const struct td_json *list) {
    TD_AUTO_BUF text;
    td_buf_init(&text, strlen(e->json) + 1);
    if (!list || list->kind != TD_JSON_ARRAY) return TD_OK;
    TD_TRY(td_json_print(list, false, &text));
    e->read = td_buf_take_cstr(&text);
    return e->read ? TD_OK : td_fail_oom();
}

td_status td_plans_read(const char *key, const char *json, struct td_plan_entry **out) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *v = NULL;
    TD_TRY_CTX(td_json_parse(arena, json, strlen(json), &v), "plan of a node");
    struct td_plan_entry *e = td_calloc(1, sizeof *e);
    if (!e || !(e->json = td_strdup(json))) {
        free(e);
        return td_fail_oom();
    }
    snprintf(e->key, sizeof e->key, "%s", key);
    td_status s = read_files(e, td_json_get(v, "read"));
    if (s) {
        td_plan_entry_destroy(e);
        return s;
    }
    const char *slow = td_json_string(td_json_get(v, "slow"), NULL);
    if (slow && !(e->slow = td_strdup(slow))) {
        td_plan_entry_destroy(e);
        return td_fail_oom();
    }
    read_memory(e, v);
    int64_t shared = td_json_int(td_json_get(v, "shared_bytes"), 0);
    int64_t steps = td_json_int(td_json_get(v, "total_steps"), 0);
    e->shared_bytes = shared > 0 ? (uint64_t)shared : 0;
    if (!td_json_get(v, "memory_bytes")) e->beside_bytes = e->shared_bytes;
    e->total_steps = steps > 0 && steps <= UINT32_MAX ? (uint32_t)steps : 0;
    e->recomputes_all = strcmp(td_json_string(td_json_get(v, "recompute"), ""), "full") == 0;
    const char *rates = td_json_string(td_json_get(v, "rates"), "");
    e->guesses = strcmp(rates, "none") == 0 || strcmp(rates, "near") == 0;
    e->step_seconds = td_json_real(td_json_get(v, "step_seconds"), 0);
    e->other_seconds = td_json_real(td_json_get(v, "other_step_seconds"), 0);
    snprintf(e->precision, sizeof e->precision, "%s",
             td_json_string(td_json_get(v, "precision"), ""));
    snprintf(e->other, sizeof e->other, "%s",
             td_json_string(td_json_get(v, "other_precision"), ""));
    *out = e;
    return TD_OK;
}

static struct td_plan_entry *find_own(struct td_core *core, const char *digest,
                                      const struct td_host *n) {
    char key[TD_PLAN_KEY_BYTES];
    td_plans_key(digest, n, key);
    return td_map_get(core->plans, key);
}

static void drop(struct td_core *core, struct td_plan_entry *e) {
    td_core_record(core, TD_RECORD_PLAN, e->key, NULL);
    td_map_remove(core->plans, e->key);
    td_plan_entry_destroy(e);
}

void td_plans_use(struct td_core *core, const char *digest, const struct td_host *n) {
    struct td_plan_entry *e = find_own(core, digest, n);
    if (e) e->used = core->next_use++;
}

// The one that was used longest ago.
static void make_room(struct td_core *core) {
    struct td_plan_entry *e;
    struct td_plan_entry *oldest = NULL;
    for (size_t cursor = 0; (e = td_map_each(core->plans, &cursor));) {
        if (!oldest || e->used < oldest->used) oldest = e;
    }
    drop(core, oldest);
}

void td_plans_keep(struct td_core *core, struct td_plan_entry *e) {
    bool known = td_map_get(core->plans, e->key) != NULL;
    if (!known && td_map_count(core->plans) >= TD_CORE_MAX_PLANS) make_room(core);
    e->used = core->next_use++;
    void *old = NULL;
    TD_CHECK(!td_map_put(core->plans, e->key, e, &old));
    td_plan_entry_destroy(old);
}

static bool is_held(const struct td_core *core, const char *plugins) {
    const struct td_host *n;
    for (size_t cursor = 0; (n = td_map_each(core->nodes, &cursor));) {
        if (strcmp(n->plugins, plugins) == 0) return true;
    }
    return false;
}

// ---- as good as its files -----------------------------------------------------------------------
// Of jobs that start one after the other, not each compares.
static const int64_t fresh_ns = 2 * TD_NS_PER_S;

bool td_plans_is_settled(const struct td_plan_entry *e) {
    return e->read && strcmp(e->read, "[]") == 0;
}

bool td_plans_holds(const struct td_plan_entry *e, const struct td_job *j) {
    if (!e) return false;
    return td_plans_is_settled(e) || (e->confirmed.ns && e->asked.ns >= j->waits_since.ns);
}

const struct td_plan_entry *td_plans_find_held(const struct td_core *core, const struct td_job *j) {
    size_t cursor = 0, len = strlen(td_job_plan_digest(j));
    const char *found;
    void *value;
    while (td_map_next(core->plans, &cursor, &found, &value)) {
        if (strncmp(found, td_job_plan_digest(j), len) == 0 && td_plans_holds(value, j)) {
            return value;
        }
    }
    return NULL;
}

bool td_plans_is_fresh(const struct td_core *core, const struct td_plan_entry *e,
                       const struct td_job *j, const struct td_host *n) {
    if (!td_plans_holds(e, j)) return false;
    return td_plans_is_settled(e) ||
           (strcmp(e->confirmed_by, n->id) == 0 && core->now.mono.ns - e->confirmed.ns <= fresh_ns);
}

bool td_plans_confirm(struct td_core *core, const char *digest, const struct td_host *n,
                      struct td_mono asked) {
    struct td_plan_entry *e = find_own(core, digest, n);
    if (!e) return false;
    e->asked = asked;
    e->confirmed = core->now.mono;
    snprintf(e->confirmed_by, sizeof e->confirmed_by, "%s", n->id);
    return true;
}

void td_plans_drop(struct td_core *core, const char *digest, const struct td_host *n) {
    struct td_plan_entry *e = find_own(core, digest, n);
    if (e) drop(core, e);
}

// The first plan that no node would give any more; NULL: none.
static struct td_plan_entry *find_stale(const struct td_core *core) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->plans, &cursor, &key, &value)) {
        if (!is_held(core, plugins_of(key))) return value;
    }
    return NULL;
}

void td_plans_drop_stale(struct td_core *core) {
    for (struct td_plan_entry *e; (e = find_stale(core));) {
        drop(core, e);
    }
}

td_status td_plans_load(struct td_core *core, const char *key, const char *body) {
    struct td_plan_entry *e = NULL;
    TD_TRY(td_plans_read(key, body, &e));
    td_plans_keep(core, e);
    return TD_OK;
}
