// Foreign weights: gather all tensors of all files by name, find each of the model's among them,
// list what does not fit, and copy only then.

#include "engine/train/checkpoint/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/checkpoint/safetensors.h"
#include "lib/base/clip.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named.h"
#include "lib/base/floats/floats.h"
#include "lib/base/map.h"

enum { INDEX_MAX = 16 << 20, LIST_MAX = 8 << 20, LIST_SHOWN = 1400 };
enum { MISFIT_BYTES = 768, NOTE_BYTES = 900 }; // of one misfit; of those in one note
static const char single_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";

struct entry {
    const struct td_tensor *tensor;
    bool used;
};

struct weights {
    const struct td_weights_options *o;
    const struct td_restore_target *to;
    char dir[TD_FS_PATH_BYTES]; // "": a single file
    struct td_arena *arena;
    struct td_safetensors *shard[TD_WEIGHTS_SHARDS];
    const char *shard_name[TD_WEIGHTS_SHARDS];
    size_t n_shards;
    struct td_map *by_name;           // of struct entry
    const struct td_tensor **matched; // by index of the state table
    td_status differs;                // what the module says of config.json
    struct td_buf misfits;            // "'a' is missing; 'b' ..."
    size_t n_misfits;
};

static void weights_destroy(struct weights *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_shards; i++) {
        td_safetensors_close(w->shard[i]);
    }
    td_map_destroy(w->by_name);
    td_arena_destroy(w->arena);
    td_buf_finish(&w->misfits);
    td_status_free(w->differs);
    free(w->matched);
    free(w);
}
TD_DEFINE_AUTO(weights, weights_destroy);

static td_status damaged(const char *path, const char *what, const char *name) {
    return td_status_with_class(td_fail(TD_DATA_LOSS, "'%s': %s '%.200s'", path, what, name),
                                TD_CLASS_DATA);
}

// ---- the files ----------------------------------------------------------------------------------
static td_status add_shard(struct weights *w, const char *path, const char *name) {
    struct td_safetensors **f = &w->shard[w->n_shards];
    TD_TRY(w->o->data ? td_safetensors_open_bytes(path, w->o->data, w->o->data_bytes, f)
                      : td_safetensors_open(path, f));
    w->shard_name[w->n_shards++] = name;
    for (size_t i = 0; i < td_safetensors_count(*f); i++) {
        struct entry *e = td_arena_array(w->arena, 1, sizeof *e);
        if (!e) return td_fail_oom();
        *e = (struct entry){.tensor = td_safetensors_at(*f, i)};
        void *other;
        TD_TRY(td_map_put(w->by_name, e->tensor->name, e, &other));
        if (other) return damaged(path, "another file has it too: tensor", e->tensor->name);
    }
    return TD_OK;
}

static bool is_file_name(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < 200 && name[0] != '.' && !strchr(name, '/');
}

static td_status open_named(struct weights *w, const char *index_path, const char *name,
                            const char *tensor) {
    char path[TD_FS_PATH_BYTES];
    for (size_t i = 0; i < w->n_shards; i++) {
        if (strcmp(w->shard_name[i], name) == 0) return TD_OK;
    }
    if (!is_file_name(name)) {
        return damaged(index_path, "not the name of a file, for tensor", tensor);
    }
    if (w->n_shards == TD_WEIGHTS_SHARDS) {
        return damaged(index_path, "more files than are taken (256), with", name);
    }
    TD_TRY(td_fs_path(path, "%s/%s", w->dir, name));
    return add_shard(w, path, name);
}

static td_status read_json(struct weights *w, const char *path, struct td_json **out_root) {
    TD_AUTO_BUF text;
    td_buf_init(&text, INDEX_MAX);
    td_status s = td_named_read(path, INDEX_MAX, &text);
    if (td_path_rules_refused(s)) return s;
    if (!s) s = td_json_parse(w->arena, text.data ? text.data : "", text.len, out_root);
    if (!s && (*out_root)->kind != TD_JSON_OBJECT) s = td_fail(TD_DATA_LOSS, "it is no object");
    if (!s) return TD_OK;
    td_status why = td_fail(TD_DATA_LOSS, "'%s': %s", path, td_status_message(s));
    td_status_free(s);
    return td_status_with_class(why, TD_CLASS_DATA);
}

static td_status open_index(struct weights *w, const char *path) {
    struct td_json *root;
    TD_TRY(read_json(w, path, &root));
    const struct td_json *map = td_json_get(root, "weight_map");
    if (!map || map->kind != TD_JSON_OBJECT) return damaged(path, "there is no", "weight_map");
    for (const struct td_json *v = map->first; v; v = v->next) {
        TD_TRY(open_named(w, path, td_json_string(v, ""), v->key));
    }
    for (const struct td_json *v = map->first; v; v = v->next) {
        if (!td_map_get(w->by_name, v->key)) {
            return damaged(path, "no file has the tensor that it lists,", v->key);
        }
    }
    return TD_OK;
}

// What differs is kept, to be said with the tensors that do not fit.
static td_status check_config(struct weights *w) {
    char path[TD_FS_PATH_BYTES];
    struct td_json *config;
    TD_TRY(td_fs_path(path, "%s/config.json", w->dir));
    if (!w->o->module_ops->check_config || !td_fs_exists(path)) return TD_OK;
    TD_TRY(read_json(w, path, &config));
    w->differs =
        td_status_context(w->o->module_ops->check_config(w->o->module, config), "'%s'", path);
    return TD_OK;
}

static td_status open_directory(struct weights *w) {
    char path[TD_FS_PATH_BYTES];
    TD_TRY(check_config(w));
    TD_TRY(td_fs_path(path, "%s/%s", w->dir, single_file));
    if (td_fs_exists(path)) return add_shard(w, path, single_file);
    TD_TRY(td_fs_path(path, "%s/%s", w->dir, index_file));
    if (td_fs_exists(path)) return open_index(w, path);
    return td_status_with_class(
        td_fail(TD_NOT_FOUND, "'%s' has neither %s nor %s", w->dir, single_file, index_file),
        TD_CLASS_BAD_SPEC);
}

static td_status open_files(struct weights *w) {
    struct stat st;
    if (w->o->data) return add_shard(w, w->o->path, w->o->path);
    TD_TRY(td_status_with_class(td_named_stat(w->o->path, &st), TD_CLASS_BAD_SPEC));
    if (!S_ISDIR(st.st_mode)) return add_shard(w, w->o->path, w->o->path);
    TD_TRY(td_fs_path(w->dir, "%s", w->o->path));
    return open_directory(w);
}

// ---- matching -----------------------------------------------------------------------------------
static td_status misfit(struct weights *w, const char *fmt, ...) TD_PRINTF(2, 3);
static td_status misfit(struct weights *w, const char *fmt, ...) {
    char text[MISFIT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)td_clip_v(text, sizeof text, fmt, ap);
    va_end(ap);
    return td_buf_printf(&w->misfits, "%s%s", w->n_misfits++ ? "; " : "", text);
}

static struct entry *find(struct weights *w, const char *name) {
    const struct td_module_ops *ops = w->o->module_ops;
    struct entry *e = td_map_get(w->by_name, name);
    const char *other = !e && ops->other_name ? ops->other_name(w->o->module, name) : NULL;
    return other ? td_map_get(w->by_name, other) : e;
}

static bool takes(const struct weights *w, const char *name) {
    return !w->o->filter || w->o->filter(w->o->filter_arg, name);
}

static td_status match(struct weights *w, uint32_t index) {
    const struct td_state_info *t = td_state_at(w->to->state, index);
    struct entry *e = find(w, t->name);
    if (!takes(w, t->name)) {
        if (e) e->used = true; // the file may have it all the same
        return TD_OK;
    }
    if (!e) return misfit(w, "'%s' is missing", t->name);
    e->used = true;
    const struct td_tensor *from = e->tensor;
    if (from->foreign) {
        return misfit(w, "'%s' is %s, the model's of type %s", from->name, from->foreign,
                      td_dtype_name(t->dtype));
    }
    if (!td_shape_equal(&from->shape, &t->shape)) {
        char theirs[128], ours[128];
        td_shape_print(&from->shape, theirs, sizeof theirs);
        td_shape_print(&t->shape, ours, sizeof ours);
        return misfit(w, "'%s' has shape %s, the model's is %s", from->name, theirs, ours);
    }
    if (from->dtype != t->dtype && !(td_is_float(from->dtype) && td_is_float(t->dtype))) {
        return misfit(w, "'%s' is of type %s, the model's of %s", from->name,
                      td_dtype_name(from->dtype), td_dtype_name(t->dtype));
    }
    w->matched[index] = from;
    return TD_OK;
}

static bool is_weight(const struct td_state_info *t) {
    return t->role == TD_ROLE_PARAM || t->role == TD_ROLE_BUFFER;
}

static td_status match_all(struct weights *w) {
    const struct td_module_ops *ops = w->o->module_ops;
    const char *name;
    void *value;
    for (uint32_t i = 0; i < td_state_count(w->to->state); i++) {
        if (is_weight(td_state_at(w->to->state, i))) TD_TRY(match(w, i));
    }
    for (size_t at = 0; td_map_next(w->by_name, &at, &name, &value);) {
        const struct entry *e = value;
        if (e->used || (ops->spares && ops->spares(w->o->module, name))) continue;
        if (!takes(w, name)) continue;
        TD_TRY(misfit(w, "'%s' is no tensor of the model", name));
    }
    return TD_OK;
}

// Length of the first misfits of the list: as many as NOTE_BYTES hold, at least one.
static size_t some_misfits(const char *list) {
    size_t len = 0;
    for (;;) {
        const char *next = strstr(list + len + (len ? 2 : 0), "; ");
        size_t more = next ? (size_t)(next - list) : strlen(list);
        if (len && more > NOTE_BYTES) return len;
        len = more;
        if (!list[len]) return len;
    }
}

// Every name, in notes of a readable length.
static void note_misfits(struct weights *w) {
    for (const char *at = td_buf_cstr(&w->misfits); w->o->events && *at; at += *at ? 2 : 0) {
        size_t len = some_misfits(at);
        td_events_note(w->o->events, "%s: %.*s", w->o->knob, (int)len, at);
        at += len;
    }
}

// All that is wrong, in one message.
static td_status refuse(struct weights *w, bool some_fit) {
    const bool long_list = w->misfits.len > LIST_SHOWN;
    td_status differs = td_steal(w->differs);
    if (differs && !w->n_misfits) return differs;
    if (long_list) note_misfits(w);
    td_status s =
        td_fail(TD_INVALID_ARGUMENT, "%s%s'%s' does not fit the model in %zu tensor%s: %.*s%s%s",
                differs ? td_status_message(differs) : "", differs ? "; and " : "", w->o->path,
                w->n_misfits, w->n_misfits == 1 ? "" : "s", LIST_SHOWN, td_buf_cstr(&w->misfits),
                !long_list     ? ""
                : w->o->events ? "... (the notes have all)"
                               : "...",
                some_fit && !differs ? ". With strict: false the rest is loaded" : "");
    td_status_free(differs);
    return td_status_with_class(s, TD_CLASS_BAD_SPEC);
}

static td_status judge(struct weights *w, size_t n_matched) {
    if (w->differs) return refuse(w, false); // another network is none, strict or not
    if (w->n_misfits == 0 && (n_matched > 0 || !w->o->filter)) return TD_OK;
    if (w->n_misfits == 0) {
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT, "the filter takes no tensor of the model"),
            TD_CLASS_BAD_SPEC);
    }
    if (w->o->strict || n_matched == 0) return refuse(w, n_matched > 0);
    if (w->o->events) {
        td_events_note(w->o->events, "%s: %zu tensors loaded, %zu skipped because strict is false",
                       w->o->knob, n_matched, w->n_misfits);
    }
    note_misfits(w);
    return TD_OK;
}

// ---- loading ------------------------------------------------------------------------------------
static td_status choose(struct weights *w) {
    uint32_t n = td_state_count(w->to->state);
    size_t n_matched = 0;
    TD_TRY(td_arena_create(128 << 20, &w->arena));
    TD_TRY(td_map_create(TD_SAFETENSORS_MAX, &w->by_name));
    w->matched = td_calloc((size_t)n + 1, sizeof *w->matched);
    if (!w->matched) return td_fail_oom();
    TD_TRY(open_files(w));
    TD_TRY(match_all(w));
    for (uint32_t i = 0; i < n; i++) {
        n_matched += w->matched[i] != NULL;
    }
    return judge(w, n_matched);
}

// The first element that is NaN; -1: none is.
static int64_t find_nan(const struct td_tensor *t) {
    const int64_t n = td_shape_elems(&t->shape);
    if (!td_is_float(t->dtype) || td_float_all_finite(t->dtype, t->data, n)) return -1;
    for (int64_t i = 0; i < n; i++) {
        double v;
        const char *at = (const char *)t->data + (size_t)i * td_dtype_bytes(t->dtype);
        td_float_convert(t->dtype, at, 1, TD_F64, &v);
        if (isnan(v)) return i;
    }
    return -1;
}

// A loss would be no number, and the spec be blamed.
static td_status check_tensor(const struct weights *w, const struct td_tensor *t) {
    const int64_t element = find_nan(t);
    if (element < 0) return TD_OK;
    for (size_t i = 0; i < w->n_shards; i++) {
        const void *file;
        size_t bytes;
        td_safetensors_bytes(w->shard[i], &file, &bytes);
        const uintptr_t offset = (uintptr_t)t->data - (uintptr_t)file;
        if (offset >= bytes) continue;
        return td_status_with_class(
            td_fail(TD_DATA_LOSS, "'%s%s%s' offset %zu: element %lld of tensor '%.200s' is nan",
                    w->dir, w->dir[0] ? "/" : "", w->shard_name[i],
                    (size_t)offset + (size_t)element * td_dtype_bytes(t->dtype), (long long)element,
                    t->name),
            TD_CLASS_DATA);
    }
    return td_fail(TD_INTERNAL, "tensor '%.200s' is of no file", t->name);
}

static td_status copy(struct weights *w) {
    const uint32_t n = td_state_count(w->to->state);
    for (uint32_t i = 0; i < n; i++) {
        if (w->matched[i]) TD_TRY(check_tensor(w, w->matched[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (w->matched[i]) {
            TD_TRY(td_restore_tensor(w->matched[i], td_state_at(w->to->state, i), w->to));
        }
    }
    return TD_OK;
}

static td_status use(const struct td_weights_options *o, const struct td_restore_target *to,
                     bool loads) {
    TD_AUTO(weights) *w = td_calloc(1, sizeof *w);
    if (!w) return td_fail_oom();
    w->o = o;
    w->to = to;
    td_buf_init(&w->misfits, LIST_MAX);
    td_status s = choose(w);
    if (!s && loads) s = copy(w);
    const bool of_file = td_status_code(s) == TD_DATA_LOSS && !o->data;
    return td_status_context(s, "%s%s", o->knob, of_file ? " (copy its files again)" : "");
}

td_status td_weights_load(const struct td_weights_options *o, const struct td_restore_target *to) {
    return use(o, to, true);
}

td_status td_weights_check(const struct td_weights_options *o, const struct td_state_table *state) {
    const struct td_restore_target to = {.state = state};
    return use(o, &to, false);
}
