// The catalog's rows and the events that change them. See catalog.h for the rule.

#include "daemon/coordinator/core/catalog/catalog.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/coordinator/core/catalog/boundaries.h"
#include "daemon/coordinator/core/model/changes.h"
#include "daemon/coordinator/core/model/checkpoint.h"
#include "daemon/coordinator/core/model/effects.h"
#include "daemon/coordinator/core/model/hosts.h"
#include "daemon/coordinator/core/model/job.h"
#include "daemon/coordinator/core/model/model.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/events.h"
#include "lib/base/buf.h"
#include "lib/base/clip.h"
#include "lib/base/utf8.h"

enum { ROW_MAX_BYTES = 1 << 20, METRICS_MAX_BYTES = 16 << 10 };
static const char manifest[] = "manifest.json";

// ---- rows ---------------------------------------------------------------------------------------
struct td_checkpoint *td_catalog_find(const struct td_job *j, const char *path) {
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        struct td_checkpoint *c = j->checkpoints[i];
        bool whole = c->committed && !c->damage;
        if (path && path[0] ? strcmp(c->path, path) == 0 : whole) return c;
    }
    return NULL;
}

bool td_catalog_reachable(const struct td_checkpoint *c, const char *node) {
    return c->streamed || strcmp(c->node, node) == 0;
}

bool td_catalog_pending(const struct td_job *j) {
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        if (!j->checkpoints[i]->committed) return true;
    }
    return false;
}

static void key_of(const struct td_job *j, const char *path, char out[96]) {
    snprintf(out, 96, "%s/%s", j->id, path);
}

static td_status encode(const struct td_checkpoint *c, struct td_buf *out) {
    TD_TRY(td_buf_printf(out, "{\"attempt\":%u,\"step\":%u,\"epoch\":%u", c->attempt, c->step,
                         c->epoch));
    TD_TRY(td_buf_printf(out, ",\"committed\":%d,\"streamed\":%d,\"time_ns\":%" PRId64,
                         c->committed, c->streamed, c->time_ns));
    TD_TRY(td_buf_str(out, ",\"node\":"));
    TD_TRY(td_json_print_string(c->node, strlen(c->node), out));
    TD_TRY(td_buf_str(out, ",\"directory\":"));
    TD_TRY(td_json_print_string(c->directory, strlen(c->directory), out));
    if (c->boundary) TD_TRY(td_buf_printf(out, ",\"boundary\":%u", c->boundary));
    if (c->leaving) TD_TRY(td_buf_str(out, ",\"leaving\":1"));
    if (c->missing) TD_TRY(td_buf_str(out, ",\"missing\":1"));
    if (c->registered) TD_TRY(td_buf_str(out, ",\"registered\":1"));
    if (c->damage) {
        TD_TRY(td_buf_str(out, ",\"damage\":"));
        TD_TRY(td_json_print_string(c->damage, strlen(c->damage), out));
    }
    if (c->metrics_json) TD_TRY(td_buf_printf(out, ",\"metrics\":%s", c->metrics_json));
    TD_TRY(td_buf_str(out, ",\"files\":["));
    for (uint32_t i = 0; i < c->n_files; i++) {
        const struct td_checkpoint_file *f = &c->files[i];
        TD_TRY(td_buf_printf(out, "%s{\"name\":\"%s\",\"bytes\":%" PRIu64, i ? "," : "", f->name,
                             f->bytes));
        TD_TRY(td_buf_printf(out, ",\"digest\":\"%s\",\"here\":%d}", f->digest, f->here));
    }
    return td_buf_str(out, "]}");
}

static void save(struct td_core *core, const struct td_job *j, const struct td_checkpoint *c) {
    TD_AUTO_BUF body;
    td_buf_init(&body, ROW_MAX_BYTES);
    TD_CHECK(!encode(c, &body));
    char key[96];
    key_of(j, c->path, key);
    td_core_record(core, TD_RECORD_CHECKPOINT, key, td_buf_cstr(&body));
}

static bool digest_ok(const char *d) {
    return strlen(d) == 32 && strspn(d, "0123456789abcdef") == 32;
}

static bool add_file(struct td_checkpoint *c, const char *name, uint64_t bytes, const char *digest,
                     bool here) {
    if (!td_checkpoint_file_ok(name) || !digest_ok(digest)) return false;
    for (uint32_t i = 0; i < c->n_files; i++) {
        if (strcmp(c->files[i].name, name) == 0) return true;
    }
    struct td_checkpoint_file *f = &c->files[c->n_files++];
    f->name = td_core_dup(name);
    f->bytes = bytes;
    f->here = here;
    snprintf(f->digest, sizeof f->digest, "%s", digest);
    return true;
}

static uint64_t u64(const struct td_json *v, const char *key) {
    int64_t n = td_json_int(td_json_get(v, key), 0);
    return n < 0 ? 0 : (uint64_t)n;
}

// From an event, or from a stored row as one, which has the manifest among its files and says which
// of them are here. NULL: not a checkpoint.
static struct td_checkpoint *read_row(const struct td_event_checkpoint *e, size_t max_files) {
    size_t n = e->files ? e->files->n_children : 0;
    if (!td_checkpoint_path_ok(e->path) || n > max_files) return NULL;
    TD_AUTO(td_checkpoint) *c = td_core_must(td_calloc(1, sizeof *c));
    snprintf(c->path, sizeof c->path, "%s", e->path);
    c->step = (uint32_t)TD_MAX(e->step, 0);
    c->epoch = (uint32_t)TD_MAX(e->epoch, 0);
    c->files = td_core_must(td_calloc(n + 1, sizeof *c->files)); // and the manifest
    c->directory = td_core_dup(e->directory);
    for (const struct td_json *v = e->files ? e->files->first : NULL; v; v = v->next) {
        struct td_event_file f = td_event_file_of(v);
        if (!add_file(c, f.name, (uint64_t)TD_MAX(f.bytes, 0), f.digest, u64(v, "here") != 0)) {
            return NULL;
        }
    }
    if (e->metrics && e->metrics->kind == TD_JSON_OBJECT) {
        TD_AUTO_BUF text;
        td_buf_init(&text, METRICS_MAX_BYTES);
        td_status s = td_json_print(e->metrics, false, &text);
        if (!s) c->metrics_json = td_core_dup(td_buf_cstr(&text));
        td_status_free(s);
    }
    return td_steal(c);
}

static void drop_row(struct td_core *core, struct td_job *j, uint32_t at) {
    struct td_checkpoint *c = j->checkpoints[at];
    char key[96];
    key_of(j, c->path, key);
    td_core_record(core, TD_RECORD_CHECKPOINT, key, NULL);
    td_checkpoint_destroy(c);
    memmove(j->checkpoints + at, j->checkpoints + at + 1,
            (j->n_checkpoints - at - 1) * sizeof(struct td_checkpoint *));
    j->n_checkpoints--;
}

void td_catalog_remove(struct td_core *core, struct td_job *j, uint32_t at) {
    const struct td_checkpoint *c = j->checkpoints[at];
    if (c->streamed) {
        struct td_action *a = td_core_act(core, TD_ACTION_REMOVE);
        memcpy(a->job, j->id, sizeof a->job);
        a->text = td_core_dup(c->path);
    }
    drop_row(core, j, at);
}

// save_top_k asked to keep more than the catalog holds: the oldest is not listed any more, and its
// files stay.
static void unlist_oldest(struct td_core *core, struct td_job *j) {
    td_job_note(
        j,
        "`trainctl checkpoint list` shows the newest %d checkpoints; files of older ones stay "
        "on disk",
        TD_CORE_MAX_CHECKPOINTS);
    j->unlisted = true;
    drop_row(core, j, 0);
    td_core_touch(core, j);
}

static void add_row(struct td_core *core, struct td_job *j, struct td_checkpoint *take) {
    for (uint32_t i = 0; i < j->n_checkpoints; i++) { // the same place, written again
        if (strcmp(j->checkpoints[i]->path, take->path) != 0) continue;
        td_checkpoint_destroy(j->checkpoints[i]);
        memmove(j->checkpoints + i, j->checkpoints + i + 1,
                (j->n_checkpoints - i - 1) * sizeof(struct td_checkpoint *));
        j->n_checkpoints--;
        break;
    }
    if (j->n_checkpoints == TD_CORE_MAX_CHECKPOINTS) unlist_oldest(core, j);
    if ((j->n_checkpoints & (j->n_checkpoints - 1)) == 0) { // grows at powers of two
        size_t n = j->n_checkpoints ? 2 * (size_t)j->n_checkpoints : 1;
        j->checkpoints =
            td_core_must(td_realloc(j->checkpoints, n * sizeof(struct td_checkpoint *)));
    }
    uint32_t at = j->n_checkpoints++; // by (attempt, step)
    while (at > 0 && (j->checkpoints[at - 1]->attempt > take->attempt ||
                      (j->checkpoints[at - 1]->attempt == take->attempt &&
                       j->checkpoints[at - 1]->step > take->step))) {
        j->checkpoints[at] = j->checkpoints[at - 1];
        at--;
    }
    j->checkpoints[at] = take;
}

// ---- shards -------------------------------------------------------------------------------------
static void shard_key(const struct td_job *j, const char *path, const char *file, char out[320]) {
    snprintf(out, 320, "%s/%s/%s", j->id, path, file);
}

static void drop_shard(struct td_core *core, const char *key) {
    struct td_checkpoint_file *f = td_map_remove(core->shards, key);
    if (!f) return;
    td_core_record(core, TD_RECORD_SHARD, key, NULL);
    free(f->name);
    free(f);
}

static bool complete(const struct td_checkpoint *c) {
    for (uint32_t i = 0; i < c->n_files; i++) {
        if (!c->files[i].here) return false;
    }
    return true;
}

static bool is_whole(const struct td_checkpoint *c) {
    return !c->streamed || complete(c);
}

static void commit(struct td_core *core, struct td_job *j, struct td_checkpoint *c) {
    c->committed = true;
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        if (j->checkpoints[i]->leaving && j->checkpoints[i] != c) td_catalog_remove(core, j, i);
    }
    td_core_touch(core, j); // watchers see the newest checkpoint
    core->queue_dirty = true;
}

static enum td_kept kept_of(const struct td_attempt *a, const struct td_checkpoint *c,
                            const struct td_attempt_part **out_part) {
    return c->streamed ? td_boundaries_kept(a, c->boundary, out_part) : TD_KEPT;
}

// Row `at` goes: points of that part are lost.
static void make_void(struct td_core *core, struct td_job *j, const struct td_attempt_part *part,
                      uint32_t at) {
    const struct td_checkpoint *c = j->checkpoints[at];
    const struct td_host *n = td_nodes_find(core, part->node);
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s/%s/", j->id, c->path);
    td_job_note(
        j,
        "checkpoint %s is not used: metrics of node %s up to step %u are lost; the job goes "
        "on from the checkpoint before it and measures them again",
        c->path, n ? n->name : part->node, c->step);
    td_catalog_remove(core, j, at);
    td_catalog_drop_shards(core, prefix);
    td_core_touch(core, j);
    core->queue_dirty = true; // it may have been waited for
}

bool td_catalog_settle(struct td_core *core, struct td_job *j, struct td_attempt *a) {
    bool committed = false;
    td_boundaries_look(a);
    for (uint32_t i = j->n_checkpoints; i-- > 0;) {
        struct td_checkpoint *c = j->checkpoints[i];
        const struct td_attempt_part *part = NULL;
        if (c->committed || c->attempt != a->number) continue;
        enum td_kept kept = kept_of(a, c, &part);
        if (kept == TD_KEPT_NEVER) make_void(core, j, part, i);
        if (kept != TD_KEPT || !is_whole(c)) continue;
        commit(core, j, c);
        save(core, j, c);
        committed = true;
        i = TD_MIN(i, j->n_checkpoints); // older ones may have left
    }
    return committed;
}

// Files that came before the event are found among the shards.
static void bind_shards(struct td_core *core, struct td_job *j, struct td_checkpoint *c) {
    for (uint32_t i = 0; i < c->n_files; i++) {
        char key[320];
        shard_key(j, c->path, c->files[i].name, key);
        const struct td_checkpoint_file *f = td_map_get(core->shards, key);
        if (!f) continue;
        c->files[i].here = strcmp(f->digest, c->files[i].digest) == 0;
        if (!c->files[i].bytes) c->files[i].bytes = f->bytes;
        drop_shard(core, key);
    }
}

td_status td_catalog_on_shard(struct td_core *core, struct td_job *j, const char *path,
                              const char *file, uint64_t bytes, const char *digest,
                              bool *out_committed) {
    struct td_checkpoint *c = td_catalog_find(j, path);
    *out_committed = false;
    for (uint32_t i = 0; c && i < c->n_files; i++) {
        struct td_checkpoint_file *f = &c->files[i];
        if (strcmp(f->name, file) != 0) continue;
        if (strcmp(f->digest, digest) != 0) {
            return td_status_with_reason(
                td_fail(TD_DATA_LOSS, "%s/%s: the rank wrote digest %s, the node sent %s", path,
                        file, f->digest, digest),
                "HASH_MISMATCH");
        }
        f->here = true;
        f->bytes = bytes;
        save(core, j, c);
        struct td_attempt *a = td_job_attempt(j, c->attempt);
        *out_committed = !c->committed && a && td_catalog_settle(core, j, a);
        return TD_OK;
    }
    char key[320], body[160];
    shard_key(j, path, file, key);
    snprintf(body, sizeof body, "{\"bytes\":%" PRIu64 ",\"digest\":\"%s\"}", bytes, digest);
    TD_TRY(td_catalog_load_shard(core, key, body));
    td_core_record(core, TD_RECORD_SHARD, key, body);
    return TD_OK;
}

// ---- events -------------------------------------------------------------------------------------
// The line says what all files have together; the manifest is what the shards leave.
static uint64_t manifest_bytes(int64_t bytes, const struct td_checkpoint *c) {
    uint64_t all = (uint64_t)TD_MAX(bytes, 0), shards = td_checkpoint_bytes(c);
    return all > shards ? all - shards : 0;
}

bool td_catalog_on_checkpoint(struct td_core *core, struct td_job *j, struct td_attempt *a,
                              const struct td_attempt_part *part,
                              const struct td_event_checkpoint *e) {
    struct td_checkpoint *c = read_row(e, TD_CHECKPOINT_MAX_FILES);
    if (c && digest_ok(e->manifest)) {
        (void)add_file(c, manifest, manifest_bytes(e->bytes, c), e->manifest, false);
    }
    if (!c || !c->n_files) {
        td_checkpoint_destroy(c);
        core->counters[TD_COUNT_BAD_LINES]++;
        return false;
    }
    c->attempt = a->number;
    c->time_ns = core->now.real.ns;
    c->streamed = a->stream;
    c->boundary = e->boundary < 0 || e->boundary > UINT32_MAX ? 0 : (uint32_t)e->boundary;
    snprintf(c->node, sizeof c->node, "%s", part->node);
    add_row(core, j, c);
    if (c->streamed) bind_shards(core, j, c);
    save(core, j, c);
    return td_catalog_settle(core, j, a);
}

void td_catalog_on_registered(struct td_core *core, struct td_job *j, struct td_attempt *a,
                              const struct td_attempt_part *part,
                              const struct td_event_registered *e) {
    const struct td_checkpoint_name path = td_checkpoint_path_of(a->number, TD_MAX(e->step, 0));
    const struct td_event_checkpoint row = {.path = path.text,
                                            .step = e->step,
                                            .epoch = e->epoch,
                                            .directory = e->directory,
                                            .metrics = e->metrics};
    struct td_checkpoint *c = e->directory[0] == '/' ? read_row(&row, 0) : NULL;
    if (!c) {
        core->counters[TD_COUNT_BAD_LINES]++;
        return;
    }
    c->attempt = a->number;
    c->time_ns = core->now.real.ns;
    c->registered = true;
    snprintf(c->node, sizeof c->node, "%s", part->node);
    add_row(core, j, c);
    commit(core, j, c);
    save(core, j, c);
}

// ---- damage -------------------------------------------------------------------------------------
// A checkpoint is in ".../<job>/<path>", on whatever machine.
static bool is_in(const struct td_job *j, const struct td_checkpoint *c, const char *directory) {
    char end[TD_JOB_ID_MAX + TD_JOB_PATH_MAX + 2];
    snprintf(end, sizeof end, "/%s/%s", j->id, c->path);
    size_t len = strlen(end), n = strlen(directory);
    return n >= len && strcmp(directory + n - len, end) == 0;
}

void td_catalog_on_damaged(struct td_core *core, struct td_job *j, const char *path,
                           const char *why) {
    struct td_checkpoint *c = td_catalog_find(j, path);
    if (!c || !c->committed || c->damage) return;
    char text[256];
    (void)td_clip(text, sizeof text, "%s", why);
    td_utf8_scrub(text);
    c->damage = td_core_dup(text);
    save(core, j, c);
    td_core_touch(core, j); // its newest checkpoint may be another one now
}

void td_catalog_on_missing(struct td_core *core, struct td_job *j, struct td_checkpoint *c,
                           const char *where, const char *why) {
    if (!c->committed || (why ? c->damage != NULL : !c->missing)) return;
    char text[256];
    (void)td_clip(text, sizeof text, "%s: %s", where, why ? why : "its files are back");
    td_utf8_scrub(text);
    free(c->damage);
    c->damage = why ? td_core_dup(text) : NULL;
    c->missing = why != NULL;
    if (why) {
        td_job_note(j, "checkpoint %s on %s cannot be used: %s", c->path, where, why);
    } else {
        td_job_note(j, "checkpoint %s on %s can be used: its files are back", c->path, where);
    }
    td_core_log(core, "checkpoint %s job=%s path=%s why=\"%s\"",
                why ? "is missing" : "is whole again", j->id, c->path, text);
    save(core, j, c);
    td_core_touch(core, j);
    core->queue_dirty = true; // another one may be the newest now
}

void td_catalog_on_skipped(struct td_core *core, struct td_job *j, const char *directory,
                           const char *why) {
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        struct td_checkpoint *c = j->checkpoints[i];
        if (!is_in(j, c, directory)) continue;
        td_job_note(j, "checkpoint %s was skipped: %s", c->path, why);
        if (!c->streamed) {
            td_catalog_on_damaged(core, j, c->path, why);
            return;
        }
        struct td_action *a = td_core_act(core, TD_ACTION_VERIFY);
        memcpy(a->job, j->id, sizeof a->job);
        a->text = td_core_dup(c->path);
        return;
    }
    td_job_note(j, "checkpoint %s was skipped: %s", directory, why); // of ckpt_path
}

// It waits for points alone, and none before it does.
static bool waits_first(const struct td_job *j, const struct td_checkpoint *c) {
    if (c->committed || !c->streamed || !complete(c)) return false;
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        const struct td_checkpoint *other = j->checkpoints[i];
        if (other->leaving && !other->committed) return other == c;
    }
    return true;
}

// Nothing else could be resumed from, and something newer is on its way.
static bool is_needed(const struct td_job *j, const struct td_checkpoint *c) {
    if (waits_first(j, c)) return true;
    if (!c->streamed || !c->committed || c->damage || !td_catalog_pending(j)) return false;
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        const struct td_checkpoint *other = j->checkpoints[i];
        if (other != c && other->committed && !other->damage) return false;
    }
    return true;
}

void td_catalog_on_removed(struct td_core *core, struct td_job *j, const char *path) {
    for (uint32_t i = 0; i < j->n_checkpoints; i++) {
        struct td_checkpoint *c = j->checkpoints[i];
        if (strcmp(c->path, path) != 0) continue;
        if (is_needed(j, c)) {
            c->leaving = true;
            save(core, j, c);
            return;
        }
        td_catalog_remove(core, j, i);
        td_core_touch(core, j);
        return;
    }
}

void td_catalog_drop_shards(struct td_core *core, const char *prefix) {
    size_t cursor = 0;
    const char *key;
    void *value;
    while (td_map_next(core->shards, &cursor, &key, &value)) {
        if (strncmp(key, prefix, strlen(prefix)) != 0) continue;
        char copy[320];
        snprintf(copy, sizeof copy, "%s", key);
        drop_shard(core, copy);
    }
}

void td_catalog_forget(struct td_core *core, struct td_job *j) {
    while (j->n_checkpoints) {
        drop_row(core, j, j->n_checkpoints - 1);
    }
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/", j->id);
    td_catalog_drop_shards(core, prefix);
}

// ---- loading ------------------------------------------------------------------------------------
td_status td_catalog_load(struct td_core *core, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *v = NULL;
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, checkpoint '%s'", key);
    char id[TD_JOB_ID_MAX];
    size_t len = strcspn(key, "/");
    snprintf(id, sizeof id, "%.*s", (int)len, key);
    struct td_job *j = td_core_job(core, id);
    if (!j) return TD_OK; // of a job that was forgotten
    const struct td_event_checkpoint row = {
        .path = key[len] ? key + len + 1 : "",
        .step = td_json_int(td_json_get(v, "step"), 0),
        .epoch = td_json_int(td_json_get(v, "epoch"), 0),
        .directory = td_json_string(td_json_get(v, "directory"), ""),
        .files = td_json_get(v, "files"),
        .metrics = td_json_get(v, "metrics"),
    };
    struct td_checkpoint *c = read_row(&row, TD_CHECKPOINT_MAX_FILES + 1);
    if (!c) return td_fail(TD_DATA_LOSS, "state.db, checkpoint '%s' cannot be read", key);
    c->attempt = (uint32_t)u64(v, "attempt");
    c->committed = u64(v, "committed") != 0;
    c->streamed = u64(v, "streamed") != 0;
    c->leaving = u64(v, "leaving") != 0;
    c->boundary = (uint32_t)u64(v, "boundary");
    c->missing = u64(v, "missing") != 0;
    c->registered = u64(v, "registered") != 0;
    c->time_ns = (int64_t)u64(v, "time_ns");
    const char *damage = td_json_string(td_json_get(v, "damage"), "");
    if (damage[0]) c->damage = td_core_dup(damage);
    snprintf(c->node, sizeof c->node, "%s", td_json_string(td_json_get(v, "node"), ""));
    add_row(core, j, c);
    return TD_OK;
}

td_status td_catalog_load_shard(struct td_core *core, const char *key, const char *body) {
    TD_AUTO(td_arena) *arena = NULL;
    TD_TRY(td_arena_create(TD_SPEC_ARENA_BYTES, &arena));
    struct td_json *v = NULL;
    TD_TRY_CTX(td_json_parse(arena, body, strlen(body), &v), "state.db, shard '%s'", key);
    struct td_checkpoint_file *f = td_calloc(1, sizeof *f);
    if (!f) return td_fail_oom();
    f->bytes = u64(v, "bytes");
    f->here = true;
    snprintf(f->digest, sizeof f->digest, "%s", td_json_string(td_json_get(v, "digest"), ""));
    void *old = NULL;
    td_status s = td_map_put(core->shards, key, f, &old);
    if (s) {
        free(f);
        return s;
    }
    free(old);
    return TD_OK;
}
