// Verify, choose, load. A digest is computed over the whole mapped file before a byte of it is
// used. Reading twice is cheap (the second time comes from the page cache), loading damage is not.

#include "engine/train/checkpoint/restore.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/base/floats/floats.h"

// What holds tensors; other files (config.json) are for other readers.
static bool is_shard(const struct td_manifest_file *f) {
    static const char end[] = ".safetensors";
    size_t n = strlen(f->name), k = sizeof end - 1;
    return n > k && strcmp(f->name + n - k, end) == 0;
}

static td_status digest_shard(const char *path, char out_digest[TD_DIGEST_HEX]) {
    TD_AUTO(td_safetensors) *file = NULL;
    TD_TRY(td_safetensors_open(path, &file));
    const void *data;
    size_t bytes;
    td_safetensors_bytes(file, &data, &bytes);
    td_xxh3_128_hex(data, bytes, out_digest);
    return TD_OK;
}

static td_status digest_text(const char *path, size_t bytes, char out_digest[TD_DIGEST_HEX]) {
    TD_AUTO_BUF text;
    td_buf_init(&text, bytes);
    TD_TRY(td_named_read(path, bytes, &text));
    td_xxh3_128_hex(text.data, text.len, out_digest);
    return TD_OK;
}

static td_status verify_file(const char *dir, const struct td_manifest_file *f, bool whole) {
    char path[TD_FS_PATH_BYTES], digest[TD_DIGEST_HEX];
    TD_TRY(td_fs_path(path, "%s/%s", dir, f->name));
    struct stat st;
    if (stat(path, &st) != 0) {
        return td_status_with_class(td_fail_errno(TD_DATA_LOSS, "file '%s'", path), TD_CLASS_DATA);
    }
    if ((uint64_t)st.st_size != f->bytes) {
        return td_status_with_class(td_fail(TD_DATA_LOSS, "file '%s' has %lld bytes, expected %llu",
                                            path, (long long)st.st_size,
                                            (unsigned long long)f->bytes),
                                    TD_CLASS_DATA);
    }
    if (!whole) return TD_OK;
    TD_TRY(is_shard(f) ? digest_shard(path, digest) : digest_text(path, f->bytes, digest));
    if (strcmp(digest, f->digest) != 0) {
        return td_status_with_class(td_fail(TD_DATA_LOSS,
                                            "file '%s' is damaged: its digest is %s, expected %s",
                                            path, digest, f->digest),
                                    TD_CLASS_DATA);
    }
    return TD_OK;
}

// whole: digests, too, beside the sizes.
static td_status verify(const char *dir, bool whole, struct td_arena *a,
                        struct td_manifest *out_manifest) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(td_fs_path(path, "%s/manifest.json", dir));
    struct td_manifest m;
    TD_TRY(td_manifest_read(a, path, &m));
    for (size_t i = 0; i < m.n_files; i++) {
        TD_TRY(verify_file(dir, &m.file[i], whole));
    }
    *out_manifest = m;
    return TD_OK;
}

// events: NULL where nobody reads them.
static td_status choose(const char *const *paths, size_t n_paths, bool whole,
                        struct td_events *events, struct td_arena *a,
                        struct td_restored *out_restored) {
    td_status last = TD_OK;
    for (size_t i = 0; i < n_paths; i++) {
        struct td_manifest m;
        td_status s = verify(paths[i], whole, a, &m);
        if (!s) {
            td_status_free(last);
            *out_restored = (struct td_restored){.path = paths[i], .manifest = m};
            return TD_OK;
        }
        if (events) td_events_skipped(events, paths[i], td_status_message(s));
        td_status_free(last);
        last = s;
    }
    td_status s =
        n_paths == 1
            ? td_fail(TD_DATA_LOSS, "checkpoint '%s' cannot be loaded: %s", paths[0],
                      td_status_message(last))
            : td_fail(TD_DATA_LOSS,
                      "none of the %zu checkpoints to resume from can be loaded; the last reason "
                      "was: %s",
                      n_paths, td_status_message(last));
    td_status_free(last);
    return td_status_with_reason(td_status_with_class(s, TD_CLASS_DATA), "NO_CHECKPOINT");
}

td_status td_restore_choose(const char *const *paths, size_t n_paths, struct td_events *events,
                            struct td_arena *a, struct td_restored *out_restored) {
    return choose(paths, n_paths, true, events, a, out_restored);
}

td_status td_restore_look(const char *const *paths, size_t n_paths, struct td_arena *a,
                          struct td_restored *out_restored) {
    return choose(paths, n_paths, false, NULL, a, out_restored);
}

td_status td_restore_tensor(const struct td_tensor *from, const struct td_state_info *t,
                            const struct td_restore_target *to) {
    TD_AUTO_FREE void *converted = NULL;
    const size_t bytes = td_state_whole_bytes(t);
    if (from->dtype != t->dtype) { // saved under another precision
        converted = td_calloc(TD_MAX(bytes, 1), 1);
        if (!converted) return td_fail_oom();
        td_float_convert(from->dtype, from->data, td_shape_elems(&t->shape), t->dtype, converted);
    }
    const struct td_buffer src = td_buffer_of_host(converted ? converted : from->data, bytes);
    return to->accel_ops->copy(to->accel, to->memory->region[t->role], t->offset, src, 0, bytes);
}

td_status td_restore_check(const struct td_tensor *from, const struct td_state_info *t) {
    if (!from) return td_fail(TD_DATA_LOSS, "tensor '%s' is missing", t->name);
    if (from->foreign) {
        return td_fail(TD_DATA_LOSS, "tensor '%s' is %s, here of %s", t->name, from->foreign,
                       td_dtype_name(t->dtype));
    }
    const bool converts = td_is_float(from->dtype) && td_is_float(t->dtype);
    if (from->dtype != t->dtype && !converts) {
        return td_fail(TD_DATA_LOSS,
                       "tensor '%s' has another shape or type: it is of %s, here of %s", t->name,
                       td_dtype_name(from->dtype), td_dtype_name(t->dtype));
    }
    if (td_shape_equal(&from->shape, &t->shape)) return TD_OK;
    char theirs[128], ours[128];
    td_shape_print(&from->shape, theirs, sizeof theirs);
    td_shape_print(&t->shape, ours, sizeof ours);
    return td_fail(TD_DATA_LOSS,
                   "tensor '%s' has another shape or type: its shape is %s, the model's is %s",
                   t->name, theirs, ours);
}

// Optimizer state that the checkpoint never had begins at zero: the run had another optimizer, or
// another momentum. resume.c says so. Weights that it lacks are of another model.
static bool wants(const struct td_manifest *m, const struct td_state_info *t, uint32_t roles) {
    if (!(roles & 1u << t->role)) return false;
    return t->role != TD_ROLE_OPTIM || td_manifest_lists(m, t->name);
}

// Of one file: all tensors are compared, and loaded where there is a target.
static td_status take_file(const struct td_manifest *m, const char *path, uint32_t roles,
                           const char *only_file, const struct td_state_table *state,
                           const struct td_restore_target *to) {
    TD_AUTO(td_safetensors) *file = NULL;
    TD_TRY(td_safetensors_open(path, &file));
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (strcmp(td_manifest_file_of(t->role), only_file) != 0 || !wants(m, t, roles)) continue;
        const struct td_tensor *from = td_safetensors_find(file, t->name);
        td_status s = td_restore_check(from, t);
        if (!s && to && !td_state_is_apart(t)) s = td_restore_tensor(from, t, to);
        if (s) return td_status_context(td_status_with_class(s, TD_CLASS_DATA), "load '%s'", path);
    }
    return TD_OK;
}

// A file that is not listed is not loaded, and what it holds would begin again in silence.
static td_status check_listed(const struct td_restored *r, const struct td_state_info *t) {
    const char *file = td_manifest_file_of(t->role);
    for (size_t i = 0; i < r->manifest.n_files; i++) {
        if (strcmp(r->manifest.file[i].name, file) == 0) return TD_OK;
    }
    return td_status_with_class(td_fail(TD_DATA_LOSS,
                                        "the manifest in '%s' lists no '%s', which has to hold "
                                        "'%s'",
                                        r->path, file, t->name),
                                TD_CLASS_DATA);
}

static td_status take(const struct td_restored *r, uint32_t roles,
                      const struct td_state_table *state, const struct td_restore_target *to) {
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (wants(&r->manifest, t, roles)) TD_TRY(check_listed(r, t));
    }
    for (size_t i = 0; i < r->manifest.n_files; i++) {
        char path[TD_FS_PATH_BYTES];
        if (!is_shard(&r->manifest.file[i])) continue;
        TD_TRY(td_fs_path(path, "%s/%s", r->path, r->manifest.file[i].name));
        TD_TRY(take_file(&r->manifest, path, roles, r->manifest.file[i].name, state, to));
    }
    return TD_OK;
}

td_status td_restore_load(const struct td_restored *r, uint32_t roles,
                          const struct td_restore_target *to) {
    return take(r, roles, to->state, to);
}

td_status td_restore_compare(const struct td_restored *r, uint32_t roles,
                             const struct td_state_table *state) {
    return take(r, roles, state, NULL);
}
