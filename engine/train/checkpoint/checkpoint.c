// The checkpointer. write_snapshot, at the end, is the story: everything above are its steps.

#include "engine/train/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/train/checkpoint/outputs.h"
#include "engine/train/checkpoint/plugin_state.h"
#include "engine/train/checkpoint/retention.h"
#include "engine/train/checkpoint/shard.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/attempt/event_writer.h"
#include "lib/base/clock.h"
#include "lib/base/files/files.h"
#include "lib/base/files/whole_file.h"
#include "lib/base/floats/floats.h"

enum { FILES = 2 };
// Files in the order in which they are written, by a role each holds.
static const enum td_role file_roles[FILES] = {TD_ROLE_PARAM, TD_ROLE_OPTIM};

struct td_checkpointer {
    struct td_checkpointer_options o;
    struct td_shard shard[FILES];
    size_t n_shards;
    char *snapshot; // images of the shards, one after the other
    size_t snapshot_bytes;
    struct td_buffer shadow; // the same bytes on the device; none: the state is copied at once
    td_ticket ticket;        // of the last copy into either; 0: they are done
    struct td_buf own;       // image of the plugins' file; empty: there is none
    bool asked;              // prepare was submitted
    atomic_bool prepared;    // the snapshot's pages are there
    struct td_plugin_file plugin[TD_REGISTRY_MAX];
    size_t n_plugins; // known once prepared
    struct td_manifest manifest;
    bool final;
    int64_t held_ns;   // how long the last save held the loop
    int64_t last_step; // that was handed to the writer; -1: none
    struct td_checkpointer_counts counts;
    _Atomic(td_status) failure;
    struct td_retention *retention; // of those on disk: the writer's
    struct td_retention *handed;    // of those handed to the writer: the training thread's
};

static bool is_owner(const struct td_checkpointer *c) {
    return c->o.config->dir && c->o.roles;
}

// What goes wrong with files of ours is the disk's fault, unless it was said whose.
static td_status as_disk(td_status s) {
    return td_status_class(s) == TD_CLASS_NONE ? td_status_with_class(s, TD_CLASS_DISK) : s;
}

// What an attempt that was killed while it wrote, removed or tried a place left in its directory.
static bool is_leftover(const char *name) {
    return td_checkpoint_name_step(name, TD_CHECKPOINT_HALF) >= 0 ||
           strncmp(name, TD_WHOLE_FILE_PREFIX, strlen(TD_WHOLE_FILE_PREFIX)) == 0;
}

static void remove_leftovers_in(const char *job_dir, const char *attempt) {
    char path[TD_FS_PATH_BYTES];
    DIR *dir = NULL;
    if (snprintf(path, sizeof path, "%s/%s", job_dir, attempt) < (int)sizeof path) {
        dir = opendir(path);
    }
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (is_leftover(e->d_name) && snprintf(path, sizeof path, "%s/%s/%s", job_dir, attempt,
                                               e->d_name) < (int)sizeof path) {
            td_status_free(td_fs_remove_tree(path));
        }
    }
    if (dir) closedir(dir);
}

// Of this job's earlier attempts too: they are over (an attempt is fenced before the next starts),
// and no loader would take what they left.
static void remove_leftovers(const char *attempt_dir) {
    char job_dir[TD_FS_PATH_BYTES];
    if (snprintf(job_dir, sizeof job_dir, "%s/..", attempt_dir) >= (int)sizeof job_dir) return;
    DIR *dir = opendir(job_dir);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int end = 0;
        if (sscanf(e->d_name, "a%*u%n", &end) == 0 && end && !e->d_name[end]) {
            remove_leftovers_in(job_dir, e->d_name);
        }
    }
    if (dir) closedir(dir);
}

// ---- what is best -------------------------------------------------------------------------------

// The value of the monitored metric; NaN: there is none.
static double monitored(const struct td_checkpointer *c, const struct td_manifest *m) {
    const char *name = c->o.config->monitor;
    return name ? td_manifest_metric(m, name) : (double)NAN;
}

// ---- shards and their memory -------------------------------------------------------------------

// The shards that hold `roles` of the state. A part that holds no tensor is no file, but for the
// weights'.
static td_status plan_shards(const struct td_state_table *state, uint32_t roles,
                             struct td_shard shard[FILES], size_t *out_n) {
    for (int i = 0; i < FILES; i++) {
        struct td_shard *s = &shard[*out_n];
        TD_TRY(td_shard_plan(state, roles, td_manifest_file_of(file_roles[i]), s));
        if (i == 0 || s->n_tensors) {
            ++*out_n;
        } else {
            td_shard_finish(s);
        }
    }
    return TD_OK;
}

static size_t room_of(const struct td_shard *shard, size_t n) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += td_shard_room(&shard[i]);
    }
    return bytes;
}

td_status td_checkpointer_room(const struct td_state_table *state, uint32_t roles,
                               size_t *out_bytes) {
    struct td_shard shard[FILES] = {0};
    size_t n = 0;
    td_status s = plan_shards(state, roles, shard, &n);
    if (!s) *out_bytes = room_of(shard, n);
    for (size_t i = 0; i < n; i++) {
        td_shard_finish(&shard[i]);
    }
    return s;
}

static void keep_failure(struct td_checkpointer *c, td_status s) {
    if (s) td_status_free(atomic_exchange(&c->failure, s));
}

// On the background thread: no save shall wait for pages, and no first step for the digests.
static void prepare(void *arg) {
    struct td_checkpointer *c = arg;
    if (c->o.registry) {
        keep_failure(c,
                     td_status_context(td_registry_files(c->o.registry, c->plugin, &c->n_plugins),
                                       "plugins of the resume key"));
    }
    madvise(c->snapshot, c->snapshot_bytes, MADV_HUGEPAGE);
    madvise(c->snapshot, c->snapshot_bytes, MADV_POPULATE_WRITE);
    char *at = c->snapshot;
    for (size_t i = 0; i < c->n_shards; at += td_shard_room(&c->shard[i++])) {
        td_shard_lay(&c->shard[i], at);
    }
    atomic_store(&c->prepared, true);
}

static td_status make_snapshot(struct td_checkpointer *c) {
    const struct td_accelerator_ops *o = c->o.accel_ops;
    void *p;
    TD_TRY(plan_shards(c->o.state, c->o.roles, c->shard, &c->n_shards));
    c->snapshot_bytes = room_of(c->shard, c->n_shards);
    if (c->o.shadows) {
        TD_TRY_CTX(o->mem_alloc(c->o.accel, c->snapshot_bytes, &c->shadow), "shadow of the state");
    }
    if (o->host_alloc) {
        TD_TRY(o->host_alloc(c->o.accel, c->snapshot_bytes, &p));
        c->snapshot = p;
        return TD_OK;
    }
    p = mmap(NULL, c->snapshot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return td_fail_errno(TD_RESOURCE_EXHAUSTED, "map %zu bytes for a snapshot of the state",
                             c->snapshot_bytes);
    }
    c->snapshot = p;
    return TD_OK;
}

void td_checkpointer_prepare(struct td_checkpointer *c) {
    if (!c->snapshot || c->asked) return;
    c->asked = true;
    TD_CHECK(td_background_submit(c->o.background, prepare, c)); // its first job
}

td_status td_checkpointer_create(const struct td_checkpointer_options *options,
                                 struct td_checkpointer **out_checkpointer) {
    TD_AUTO(td_checkpointer) *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    c->o = *options;
    c->last_step = c->o.resumed_step;
    td_buf_init(&c->own, TD_PLUGIN_STATE_MAX_BYTES + TD_SAFETENSORS_HEADER_MAX);
    if (is_owner(c)) {
        // Now, because a directory that cannot be made is better known before an hour of training.
        td_status s = td_fs_mkdirs(c->o.config->dir, 0777);
        if (s) return td_status_context(as_disk(s), "checkpoint directory");
        remove_leftovers(c->o.config->dir);
        TD_TRY(td_retention_create(c->o.config, c->o.resumed_from, &c->retention));
        TD_TRY(td_retention_create(c->o.config, c->o.resumed_from, &c->handed));
        TD_TRY(make_snapshot(c));
    }
    *out_checkpointer = td_steal(c);
    return TD_OK;
}

// Until the copies into the snapshot are done. Any thread; nothing is left to wait for after it.
static td_status await_copies(struct td_checkpointer *c) {
    if (!c->ticket) return TD_OK;
    td_status s = c->o.accel_ops->wait(c->o.accel, c->ticket, c->o.config->patience_ns);
    if (td_status_code(s) == TD_DEADLINE_EXCEEDED) return td_status_with_class(s, TD_CLASS_DEVICE);
    c->ticket = 0;
    return s;
}

static void free_snapshot(struct td_checkpointer *c) {
    const struct td_accelerator_ops *o = c->o.accel_ops;
    if (c->shadow.bytes) o->mem_free(c->o.accel, c->shadow);
    if (c->snapshot && o->host_alloc) {
        o->host_free(c->o.accel, c->snapshot, c->snapshot_bytes);
    } else if (c->snapshot) {
        munmap(c->snapshot, c->snapshot_bytes);
    }
}

void td_checkpointer_destroy(struct td_checkpointer *c) {
    if (!c) return;
    td_status_free(await_copies(c));  // of one that was not handed over
    if (!c->ticket) free_snapshot(c); // else a device that hangs may still write it
    for (size_t i = 0; i < c->n_shards; i++) {
        td_shard_finish(&c->shard[i]);
    }
    td_buf_finish(&c->own);
    td_status_free(atomic_load(&c->failure));
    td_retention_destroy(c->retention);
    td_retention_destroy(c->handed);
    free(c);
}

struct td_checkpointer_counts td_checkpointer_counts(const struct td_checkpointer *c) {
    return c->counts;
}

td_status td_checkpointer_poll(struct td_checkpointer *c) {
    if (!atomic_load_explicit(&c->failure, memory_order_relaxed)) return TD_OK;
    return atomic_exchange(&c->failure, TD_OK);
}

// ---- the writer, on the background thread ------------------------------------------------------

static td_status check_finite(const struct td_checkpointer *c) {
    const struct td_shard *s = &c->shard[0];
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct td_state_info *t = s->tensor[i].info;
        if (t->role != TD_ROLE_PARAM || !td_is_float(t->dtype)) continue;
        const char *values = s->image + s->tensor[i].at;
        int64_t n = td_shape_elems(&t->shape);
        if (td_float_all_finite(t->dtype, values, n)) continue;
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION,
                    "parameter '%s' is not finite after step %lld, so it is not saved; lower the "
                    "learning rate or clip the gradient",
                    t->name, (long long)c->manifest.progress.step),
            TD_CLASS_NUMERIC);
    }
    return TD_OK;
}

static td_status write_shard(struct td_checkpointer *c, const char *dir, const struct td_shard *s) {
    char path[TD_FS_PATH_BYTES];
    struct td_manifest_file *f = &c->manifest.file[c->manifest.n_files];
    snprintf(f->name, sizeof f->name, "%s", s->name);
    TD_TRY(td_fs_path(path, "%s/%s", dir, f->name));
    TD_TRY(td_shard_write(s, path, f->digest));
    f->bytes = s->bytes;
    c->manifest.n_files++;
    return TD_OK;
}

static td_status write_text(struct td_checkpointer *c, const char *dir, const char *name,
                            const char *data, size_t bytes) {
    char path[TD_FS_PATH_BYTES];
    struct td_manifest_file *f = &c->manifest.file[c->manifest.n_files++];
    *f = (struct td_manifest_file){.bytes = bytes};
    snprintf(f->name, sizeof f->name, "%s", name);
    td_xxh3_128_hex(data, bytes, f->digest);
    TD_TRY(td_fs_path(path, "%s/%s", dir, f->name));
    return td_fs_write(path, data, bytes, 0666, TD_FS_WRITE_DURABLE);
}

static td_status write_config(struct td_checkpointer *c, const char *dir) {
    const char *text = c->o.config_json;
    return text ? write_text(c, dir, "config.json", text, strlen(text)) : TD_OK;
}

static td_status write_files(struct td_checkpointer *c, const char *tmp, size_t *out_bytes,
                             char out_digest[TD_DIGEST_HEX]) {
    char path[TD_FS_PATH_BYTES];
    c->manifest.n_files = 0;
    // Not what is above it: where that is gone its file system may be, and this would be written
    // below the mount point.
    if (mkdir(tmp, 0777) != 0 && errno != EEXIST) return td_fs_fail("make directory", tmp);
    for (size_t i = 0; i < c->n_shards; i++) {
        TD_TRY(write_shard(c, tmp, &c->shard[i]));
    }
    if (c->own.len) TD_TRY(write_text(c, tmp, TD_PLUGIN_STATE_FILE, c->own.data, c->own.len));
    TD_TRY(write_config(c, tmp));
    TD_TRY(td_fs_path(path, "%s/manifest.json", tmp));
    size_t bytes;
    TD_TRY(td_manifest_write(path, &c->manifest, c->o.state, &bytes, out_digest));
    for (size_t i = 0; i < c->manifest.n_files; i++) {
        bytes += c->manifest.file[i].bytes;
    }
    *out_bytes = bytes;
    return td_fs_fsync_dir(tmp);
}

static td_status append_event(const struct td_checkpointer *c, const char *path, const char *label,
                              size_t bytes, const char *digest, struct td_buf *b) {
    const struct td_manifest *m = &c->manifest;
    struct td_event_writer w;
    td_event_open(&w, TD_EVENT_CHECKPOINT, b);
    td_event_checkpoint_step(&w, m->progress.step);
    td_event_checkpoint_epoch(&w, m->progress.epoch);
    td_event_checkpoint_held_ns(&w, c->held_ns);
    td_event_checkpoint_path(&w, label);
    td_event_checkpoint_directory(&w, path);
    td_event_checkpoint_bytes(&w, (int64_t)bytes);
    td_event_checkpoint_manifest(&w, digest);
    td_event_checkpoint_files(&w);
    for (size_t i = 0; i < m->n_files; i++) {
        td_event_add_file(&w, m->file[i].name, m->file[i].bytes, m->file[i].digest);
    }
    td_event_end_list(&w);
    td_event_checkpoint_metrics(&w);
    for (size_t i = 0; i < m->n_metrics; i++) {
        const struct td_manifest_metric *v = &m->metric[i];
        td_event_add_metric(&w, v->name, v->count > 0 ? v->sum / v->count : (double)NAN);
    }
    td_event_end_list(&w);
    td_event_checkpoint_final(&w, c->final);
    td_event_checkpoint_boundary(&w, m->boundary);
    return td_event_close(&w);
}

// Renamed first: one whose removal a kill cuts short is a leftover then, not a damaged checkpoint.
static td_status remove_old(struct td_checkpointer *c, int64_t step) {
    char path[TD_FS_PATH_BYTES], tmp[TD_FS_PATH_BYTES], label[TD_FS_PATH_BYTES];
    bool removes = true;
    TD_TRY(td_fs_path(path, "%s/%s", c->o.config->dir, td_checkpoint_name_of(step).text));
    TD_TRY(td_fs_path(label, "%s/%s", c->o.config->label, td_checkpoint_name_of(step).text));
    if (c->o.strategy_ops->remove_checkpoint) {
        const struct td_checkpoint_call call = {
            .struct_bytes = sizeof call, .roles = c->o.roles, .path = path};
        TD_TRY(c->o.strategy_ops->remove_checkpoint(c->o.strategy, &call, &removes));
    }
    if (!removes) return TD_OK;
    TD_TRY(td_fs_path(tmp, "%s" TD_CHECKPOINT_HALF, path));
    if (rename(path, tmp) != 0 && errno != ENOENT) return td_fs_fail("rename", path);
    TD_TRY(td_fs_remove_tree(tmp));
    td_events_removed(c->o.events, step, label);
    return TD_OK;
}

static void prune(struct td_checkpointer *c) {
    int64_t step;
    while (td_retention_victim(c->retention, &step)) {
        td_status s = remove_old(c, step);
        if (!s) continue;
        // A leftover costs disk, not correctness.
        td_events_note(c->o.events,
                       "an old checkpoint still takes disk space, as it cannot be removed: %s",
                       td_status_message(s));
        td_status_free(s);
    }
}

// Without an answer the launcher is stuck or stopped, and training goes on all the same.
static void await_points(struct td_checkpointer *c, uint32_t asked) {
    td_status s = td_metrics_await_drain(c->o.metrics, asked);
    if (!s) return;
    td_events_note(
        c->o.events,
        "the checkpoint of step %lld is saved before the metrics up to it are stored: %s; "
        "a job that resumes from it may lack some",
        (long long)c->manifest.progress.step, td_status_message(s));
    td_status_free(s);
}

static void list_plugins(struct td_checkpointer *c) {
    struct td_resume_key *k = &c->manifest.key;
    memcpy(k->plugin, c->plugin, sizeof k->plugin);
    k->n_plugins = (int)c->n_plugins;
}

static td_status write_snapshot(struct td_checkpointer *c) {
    char path[TD_FS_PATH_BYTES], tmp[TD_FS_PATH_BYTES], label[TD_FS_PATH_BYTES];
    char digest[TD_DIGEST_HEX];
    long long step = c->manifest.progress.step;
    TD_TRY_CTX(await_copies(c), "checkpoint of step %lld", step);
    uint32_t asked = td_metrics_ask_drain(c->o.metrics);
    TD_TRY(td_fs_path(path, "%s/%s", c->o.config->dir, td_checkpoint_name_of(step).text));
    TD_TRY(td_fs_path(tmp, "%s" TD_CHECKPOINT_HALF, path));
    TD_TRY(td_fs_path(label, "%s/%s", c->o.config->label, td_checkpoint_name_of(step).text));
    TD_TRY(check_finite(c));
    list_plugins(c);
    size_t bytes = 0;
    td_status s = td_fs_remove_tree(tmp);
    if (!s) s = write_files(c, tmp, &bytes, digest);
    if (!s) await_points(c, asked);
    if (!s) s = td_fs_rename(tmp, path);
    if (s) {
        td_status_free(td_fs_remove_tree(tmp));
        return td_status_context(as_disk(s), "save checkpoint of step %lld", step);
    }
    TD_AUTO_BUF event;
    td_buf_init(&event, TD_EVENT_MAX);
    TD_TRY(append_event(c, path, label, bytes, digest, &event));
    td_events_send(c->o.events, event.data, event.len);
    td_events_say(c->o.events, "checkpoint is saved path=%s bytes=%zu held_ms=%.3g", label, bytes,
                  (double)c->held_ns / (double)TD_NS_PER_MS);
    td_retention_add(c->retention, step, monitored(c, &c->manifest));
    prune(c);
    return TD_OK;
}

static void write_job(void *arg) {
    struct td_checkpointer *c = arg;
    keep_failure(c, write_snapshot(c));
}

// ---- the training thread -----------------------------------------------------------------------

td_status td_checkpointer_wait(struct td_checkpointer *c) {
    td_status s = td_background_wait(c->o.background, c->o.config->patience_ns);
    if (td_status_code(s) == TD_DEADLINE_EXCEEDED) {
        s = td_status_context(s, "three quarters of trainer.save_timeout are over");
    }
    return as_disk(s);
}

// Until the writer is idle. The loop waits, which is counted.
static td_status await_writer(struct td_checkpointer *c) {
    int64_t begin_ns = td_mono_now().ns;
    if (!td_background_busy(c->o.background)) return TD_OK;
    TD_TRY(td_checkpointer_wait(c));
    c->counts.waited++;
    c->counts.waited_ns += td_mono_now().ns - begin_ns;
    return TD_OK;
}

static void skip(struct td_checkpointer *c, int64_t step) {
    if (c->counts.skipped++) return; // the others are counted at the end
    td_events_note(c->o.events,
                   "the checkpoint of step %lld is skipped because the one before is still being "
                   "written; later ones may be, too, but never the last",
                   (long long)step);
}

// The state goes to the snapshot, or is queued to its shadow, which runs that come next wait for,
// and from there on, which they do not.
static td_status take_state(struct td_checkpointer *c, const struct td_strategy_memory *memory) {
    const struct td_accelerator_ops *o = c->o.accel_ops;
    const struct td_buffer host = td_buffer_of_host(c->snapshot, c->snapshot_bytes);
    const bool queued = c->shadow.bytes;
    c->ticket = 0;
    for (size_t i = 0; i < c->n_shards; i++) {
        const size_t at = (size_t)(c->shard[i].image - c->snapshot);
        TD_TRY(td_shard_take(&c->shard[i], o, c->o.accel, memory, c->o.whole_roles,
                             queued ? c->shadow : host, at, queued ? &c->ticket : NULL));
    }
    for (size_t i = 0; i < c->n_shards && queued; i++) {
        const struct td_shard *s = &c->shard[i];
        const size_t at = (size_t)(s->image - c->snapshot) + s->head.len;
        td_ticket ticket;
        TD_TRY(o->copy_begin(c->o.accel, host, at, c->shadow, at, s->bytes - s->head.len, &ticket));
        c->ticket = TD_MAX(c->ticket, ticket);
    }
    return TD_OK;
}

static td_status take_snapshot(struct td_checkpointer *c, const struct td_strategy_memory *memory,
                               const struct td_manifest *m) {
    TD_TRY(take_state(c, memory));
    c->manifest = *m;
    c->manifest.own = NULL;
    td_buf_clear(&c->own);
    if (!m->own || !td_plugin_state_count(m->own)) return TD_OK;
    return td_plugin_state_print(m->own, &c->own);
}

// What is handed over counts as kept, and what it pushes out does not.
static void hand_over(struct td_checkpointer *c, const struct td_manifest *m) {
    int64_t gone;
    TD_CHECK(td_background_submit(c->o.background, write_job, c)); // we are its only client
    c->last_step = m->progress.step;
    td_retention_add(c->handed, c->last_step, monitored(c, m));
    while (td_retention_victim(c->handed, &gone)) {}
}

td_status td_checkpointer_save(struct td_checkpointer *c, const struct td_strategy_memory *memory,
                               const struct td_manifest *m, int flags) {
    bool final = flags & TD_SAVE_FINAL;
    int64_t begin_ns = td_mono_now().ns;
    const uint32_t boundary = td_metrics_pass(c->o.metrics);
    if (!is_owner(c)) return TD_OK;
    td_checkpointer_prepare(c);
    if (m->progress.step == c->last_step && !final) return td_checkpointer_poll(c);
    bool waits = flags || td_retention_wants(c->handed, monitored(c, m));
    if (waits || !atomic_load(&c->prepared)) TD_TRY(await_writer(c));
    TD_TRY(td_checkpointer_poll(c));
    if (m->progress.step == c->last_step) return TD_OK;
    if (td_background_busy(c->o.background)) {
        skip(c, m->progress.step);
        return TD_OK;
    }
    TD_TRY_CTX(take_snapshot(c, memory, m), "checkpoint of step %lld", (long long)m->progress.step);
    c->manifest.boundary = boundary;
    c->final = final;
    c->held_ns = td_mono_now().ns - begin_ns;
    hand_over(c, m);
    if (!final) return TD_OK;
    TD_TRY(td_checkpointer_wait(c));
    return td_checkpointer_poll(c);
}

void td_checkpointer_restart(struct td_checkpointer *c) {
    c->last_step = -1;
}
