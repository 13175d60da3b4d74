// Manifest <-> JSON. The tree is built in an arena and printed canonically, so equal manifests are
// equal bytes. 64-bit values that may exceed a double's integers (the seed does not) stay integers.

#include "engine/train/checkpoint/manifest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/checkpoint/early_stop_state.h"
#include "lib/attempt/checkpoint_name.h"
#include "lib/base/files/files.h"
#include "lib/base/files/named.h"

enum { ARENA_BYTES = 64 << 20 };

const char *td_manifest_file_of(enum td_role role) {
    return role == TD_ROLE_OPTIM ? "optimizer.safetensors" : "model.safetensors";
}

void td_manifest_add_metric(struct td_manifest *m, const char *name, double sum, double count) {
    if (m->n_metrics == TD_MANIFEST_MAX_METRICS) return;
    struct td_manifest_metric *v = &m->metric[m->n_metrics++];
    *v = (struct td_manifest_metric){.sum = sum, .count = count};
    snprintf(v->name, sizeof v->name, "%s", name);
}

bool td_manifest_lists(const struct td_manifest *m, const char *tensor) {
    if (!m->tensors) return true;
    for (const struct td_json *v = m->tensors->first; v; v = v->next) {
        if (strcmp(td_json_string(td_json_get(v, "name"), ""), tensor) == 0) return true;
    }
    return false;
}

double td_manifest_metric(const struct td_manifest *m, const char *monitor) {
    char of_epoch[80];
    snprintf(of_epoch, sizeof of_epoch, "%s_epoch", monitor);
    for (size_t i = 0; i < m->n_metrics; i++) {
        const struct td_manifest_metric *v = &m->metric[i];
        if (strcmp(v->name, monitor) != 0 && strcmp(v->name, of_epoch) != 0) continue;
        double value = v->count > 0 ? v->sum / v->count : (double)NAN;
        return isfinite(value) ? value : (double)NAN;
    }
    return (double)NAN;
}

// Finds the level among the parts of a key's `cpu`, and what is before and after it.
struct cpu_parts {
    enum td_cpu_level level;
    size_t before;    // bytes
    const char *rest; // of the level's name
};

static bool find_level(const char *cpu, struct cpu_parts *out) {
    for (const char *part = cpu;;) {
        char name[24];
        size_t len = strcspn(part, ",");
        snprintf(name, sizeof name, "%.*s", (int)TD_MIN(len, sizeof name - 1), part);
        if (td_cpu_level_parse(name, &out->level)) {
            out->before = (size_t)(part - cpu);
            out->rest = part + len;
            return true;
        }
        if (strncmp(part + len, ", ", 2) != 0) return false;
        part += len + 2;
    }
}

static void compare_cpu(const char *saved, const char *now, enum td_cpu_level most,
                        char *out_reason, size_t out_bytes) {
    struct cpu_parts a, b;
    bool level_alone = find_level(saved, &a) && find_level(now, &b) && a.level != b.level &&
                       a.before == b.before && strncmp(saved, now, a.before) == 0 &&
                       strcmp(a.rest, b.rest) == 0;
    if (!level_alone) {
        snprintf(out_reason, out_bytes, "hardware or its library %s -> %s", saved, now);
        return;
    }
    const char *was = td_cpu_level_name(a.level), *is = td_cpu_level_name(b.level);
    if (a.level <= most) {
        snprintf(out_reason, out_bytes,
                 "CPU level %s -> %s: bits may differ; trainer.cpu_level: %s keeps them", was, is,
                 was);
    } else {
        snprintf(
            out_reason, out_bytes,
            "CPU level %s -> %s: bits may differ, and %s cannot be had here; a job that begins "
            "with trainer.cpu_level: %s keeps them on both",
            was, is, was, is);
    }
}

// The world is the same. Ranks of a node are added up first, and then nodes.
static void compare_topology(const struct td_resume_key *saved, const struct td_resume_key *now,
                             char *out_reason, size_t out_bytes) {
    snprintf(out_reason, out_bytes,
             "nodes x ranks %d x %d -> %d x %d: sums may be added in another order", saved->nodes,
             saved->world_size / saved->nodes, now->nodes, now->world_size / now->nodes);
}

void td_resume_key_compare(const struct td_resume_key *saved, const struct td_resume_key *now,
                           enum td_cpu_level most, char *out_reason, size_t out_bytes) {
    out_reason[0] = '\0';
    if (saved->world_size != now->world_size) {
        snprintf(out_reason, out_bytes, "world size %d -> %d", saved->world_size, now->world_size);
    } else if (saved->nodes != now->nodes && saved->nodes > 0 && now->nodes > 0) {
        compare_topology(saved, now, out_reason, out_bytes);
    } else if (saved->threads != now->threads) {
        snprintf(out_reason, out_bytes, "threads per rank %d -> %d", saved->threads, now->threads);
    } else if (strcmp(saved->cpu, now->cpu) != 0) {
        compare_cpu(saved->cpu, now->cpu, most, out_reason, out_bytes);
    } else if (strcmp(saved->build, now->build) != 0) {
        snprintf(out_reason, out_bytes, "build of traind %s -> %s", saved->build, now->build);
    } else if (saved->precision[0] && strcmp(saved->precision, now->precision) != 0) {
        snprintf(out_reason, out_bytes, "precision %s -> %s", saved->precision, now->precision);
    }
}

// ---- writing -----------------------------------------------------------------------------------

static void set_int(struct td_arena *a, struct td_json *o, const char *key, int64_t v) {
    (void)td_json_set(a, o, key, td_json_new_int(a, v));
}
static void set_str(struct td_arena *a, struct td_json *o, const char *key, const char *v) {
    (void)td_json_set(a, o, key, td_json_new_string(a, v ? v : ""));
}
static struct td_json *set_new(struct td_arena *a, struct td_json *o, const char *key,
                               enum td_json_kind kind) {
    struct td_json *v = td_json_new(a, kind);
    return td_json_set(a, o, key, v) ? v : NULL;
}

static void put_plateau(struct td_arena *a, struct td_json *root, const struct td_plateau *p) {
    if (!*p->monitor) return;
    struct td_json *o = set_new(a, root, "plateau", TD_JSON_OBJECT);
    set_str(a, o, "monitor", p->monitor);
    if (p->has_best) (void)td_json_set(a, o, "best", td_json_new_real(a, p->best));
    (void)td_json_set(a, o, "lr_scale", td_json_new_real(a, p->lr_scale));
    set_int(a, o, "bad", p->bad);
    set_int(a, o, "cooldown", p->cooldown);
}

// {"discriminator": 12, "generator": 12}
static void put_counts(struct td_arena *a, struct td_json *root, const struct td_progress *p) {
    struct td_json *o = p->n_counts ? set_new(a, root, "steps", TD_JSON_OBJECT) : NULL;
    for (int i = 0; i < p->n_counts; i++) {
        set_int(a, o, p->count[i].name, p->count[i].updates);
    }
}

static void put_progress(struct td_arena *a, struct td_json *root, const struct td_progress *p) {
    set_int(a, root, "step", p->step);
    set_int(a, root, "epoch", p->epoch);
    struct td_json *o = set_new(a, root, "progress", TD_JSON_OBJECT);
    set_int(a, o, "epoch_offset", p->epoch_offset);
    set_int(a, o, "epoch_batches", p->epoch_batches);
    set_int(a, o, "windows", p->windows);
    set_int(a, o, "total_steps", p->total_steps);
    set_int(a, o, "samples", p->samples);
    set_int(a, o, "elapsed_ns", p->elapsed_ns);
    (void)td_json_set(a, o, "validation_pending", td_json_new_bool(a, p->validation_pending));
    put_plateau(a, root, &p->plateau);
    td_early_stop_put(a, root, &p->early_stop);
    put_counts(a, root, p);
    if (p->precision.loss_scale == 0) return;
    struct td_json *scaler = set_new(a, root, "loss_scaler", TD_JSON_OBJECT);
    (void)td_json_set(a, scaler, "scale", td_json_new_real(a, p->precision.loss_scale));
    set_int(a, scaler, "clean_steps", p->precision.clean_steps);
    set_int(a, scaler, "skipped_steps", p->precision.skipped_steps);
}

static void put_key(struct td_arena *a, struct td_json *root, const struct td_resume_key *k) {
    set_int(a, root, "world_size", k->world_size);
    struct td_json *o = set_new(a, root, "resume_key", TD_JSON_OBJECT);
    set_int(a, o, "world_size", k->world_size);
    set_int(a, o, "nodes", k->nodes);
    set_int(a, o, "threads", k->threads);
    set_str(a, o, "cpu", k->cpu);
    set_str(a, o, "build", k->build);
    set_str(a, o, "precision", k->precision);
    struct td_json *plugins = set_new(a, o, "plugins", TD_JSON_OBJECT);
    for (int i = 0; i < k->n_plugins; i++) {
        set_str(a, plugins, k->plugin[i].name, k->plugin[i].digest);
    }
}

static void put_files(struct td_arena *a, struct td_json *root, const struct td_manifest *m) {
    struct td_json *files = set_new(a, root, "files", TD_JSON_ARRAY);
    for (size_t i = 0; i < m->n_files; i++) {
        struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
        set_str(a, o, "name", m->file[i].name);
        set_int(a, o, "bytes", (int64_t)m->file[i].bytes);
        set_str(a, o, "xxh3_128", m->file[i].digest);
        (void)td_json_push(files, o);
    }
}

static void put_metrics(struct td_arena *a, struct td_json *root, const struct td_manifest *m) {
    struct td_json *metrics = set_new(a, root, "metrics", TD_JSON_OBJECT);
    for (size_t i = 0; i < m->n_metrics; i++) {
        struct td_json *o = set_new(a, metrics, m->metric[i].name, TD_JSON_OBJECT);
        (void)td_json_set(a, o, "sum", td_json_new_value(a, m->metric[i].sum));
        (void)td_json_set(a, o, "count", td_json_new_real(a, m->metric[i].count));
    }
}

// {"loss": [[sum, count] of rank 0, [sum, count] of rank 1]}
static void put_epoch_metrics(struct td_arena *a, struct td_json *root,
                              const struct td_manifest_epoch *e) {
    if (!e->known) return;
    struct td_json *o = set_new(a, root, "epoch_metrics", TD_JSON_OBJECT);
    for (size_t i = 0; i < e->n; i++) {
        struct td_json *ranks = set_new(a, o, e->name[i], TD_JSON_ARRAY);
        for (int32_t r = 0; r < e->n_ranks; r++) {
            const double *v = e->sums + ((size_t)r * TD_TALLIES + i) * 2;
            struct td_json *pair = td_json_new(a, TD_JSON_ARRAY);
            (void)td_json_push(pair, td_json_new_value(a, v[0]));
            (void)td_json_push(pair, td_json_new_real(a, v[1]));
            (void)td_json_push(ranks, pair);
        }
    }
}

static void put_best(struct td_arena *a, struct td_json *root, const struct td_best *b) {
    if (!b->known) return;
    struct td_json *o = set_new(a, root, "best", TD_JSON_OBJECT);
    set_str(a, o, "monitor", b->monitor);
    set_str(a, o, "mode", b->larger_is_better ? "max" : "min");
    (void)td_json_set(a, o, "value", td_json_new_real(a, b->value));
    set_int(a, o, "step", b->step);
    set_str(a, o, "path", b->path);
}

static void put_tensors(struct td_arena *a, struct td_json *root,
                        const struct td_state_table *state) {
    struct td_json *tensors = set_new(a, root, "tensors", TD_JSON_ARRAY);
    for (uint32_t i = 0; i < td_state_count(state); i++) {
        const struct td_state_info *t = td_state_at(state, i);
        if (t->role == TD_ROLE_GRAD || t->role == TD_ROLE_RESULT) continue;
        struct td_json *o = td_json_new(a, TD_JSON_OBJECT);
        set_str(a, o, "name", t->name);
        set_str(a, o, "role", td_role_name(t->role));
        set_str(a, o, "dtype", td_dtype_name(t->dtype));
        struct td_json *shape = set_new(a, o, "shape", TD_JSON_ARRAY);
        for (int d = 0; d < t->shape.n_dims; d++) {
            (void)td_json_push(shape, td_json_new_int(a, t->shape.dim[d]));
        }
        set_str(a, o, "file", td_manifest_file_of(t->role));
        (void)td_json_push(tensors, o);
    }
}

static struct td_json *build(struct td_arena *a, const struct td_manifest *m,
                             const struct td_state_table *state) {
    struct td_json *root = td_json_new(a, TD_JSON_OBJECT);
    set_int(a, root, "format", TD_MANIFEST_FORMAT);
    set_str(a, root, "job", m->job);
    set_int(a, root, "attempt", m->attempt);
    if (m->boundary) set_int(a, root, "boundary", m->boundary);
    put_progress(a, root, &m->progress);
    put_key(a, root, &m->key);
    struct td_json *rng = set_new(a, root, "rng", TD_JSON_OBJECT);
    set_int(a, rng, "seed", (int64_t)m->seed);
    set_str(a, root, "optimizer", m->optimizer);
    set_str(a, root, "lr_scheduler", m->schedule);
    set_str(a, root, "spec_xxh3_128", m->spec_digest);
    put_metrics(a, root, m);
    put_epoch_metrics(a, root, &m->epoch_metrics);
    put_best(a, root, &m->best);
    put_files(a, root, m);
    put_tensors(a, root, state);
    struct td_json *frozen = m->frozen ? td_json_copy(a, m->frozen) : td_json_new(a, TD_JSON_NULL);
    (void)td_json_set(a, root, "frozen", frozen);
    struct td_json *plan = m->plan ? td_json_copy(a, m->plan) : td_json_new(a, TD_JSON_NULL);
    // The last member: if the arena ran out anywhere, this fails too.
    return td_json_set(a, root, "plan", plan) ? root : NULL;
}

td_status td_manifest_write(const char *path, const struct td_manifest *m,
                            const struct td_state_table *state, size_t *out_bytes,
                            char out_digest[TD_DIGEST_HEX]) {
    TD_AUTO(td_arena) *a = NULL;
    TD_TRY(td_arena_create(ARENA_BYTES, &a));
    struct td_json *root = build(a, m, state);
    if (!root) return td_fail_oom();
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_MANIFEST_MAX_BYTES);
    TD_TRY(td_json_print(root, true, &text));
    TD_TRY(td_buf_str(&text, "\n"));
    TD_TRY(td_fs_write(path, text.data, text.len, 0666, TD_FS_WRITE_DURABLE));
    td_xxh3_128_hex(text.data, text.len, out_digest);
    *out_bytes = text.len;
    return TD_OK;
}

// ---- reading -----------------------------------------------------------------------------------

static td_status damaged(const char *path, const char *what) {
    return td_status_with_class(td_fail(TD_DATA_LOSS, "manifest '%s': %s", path, what),
                                TD_CLASS_DATA);
}

static void get_progress(const struct td_json *root, struct td_progress *p) {
    const struct td_json *o = td_json_get(root, "progress");
    *p = (struct td_progress){
        .step = td_json_int(td_json_get(root, "step"), -1),
        .epoch = td_json_int(td_json_get(root, "epoch"), -1),
        .epoch_offset = td_json_int(td_json_get(o, "epoch_offset"), -1),
        .epoch_batches = td_json_int(td_json_get(o, "epoch_batches"), -1),
        .windows = td_json_int(td_json_get(o, "windows"), 0),
        .total_steps = td_json_int(td_json_get(o, "total_steps"), 0),
        .samples = td_json_int(td_json_get(o, "samples"), -1),
        .elapsed_ns = td_json_int(td_json_get(o, "elapsed_ns"), 0),
        .validation_pending = td_json_bool(td_json_get(o, "validation_pending"), false),
        .precision.loss_scale = td_json_real(td_json_path(root, "loss_scaler.scale"), 0),
        .precision.clean_steps = td_json_int(td_json_path(root, "loss_scaler.clean_steps"), 0),
        .precision.skipped_steps = td_json_int(td_json_path(root, "loss_scaler.skipped_steps"), 0),
    };
}

static bool copy_text(char *out, size_t bytes, const struct td_json *v) {
    const char *s = td_json_string(v, NULL);
    return s && (size_t)snprintf(out, bytes, "%s", s) < bytes;
}

// False: what is there cannot be.
static bool get_counts(const struct td_json *o, struct td_progress *p) {
    if (o && o->kind != TD_JSON_OBJECT) return false;
    for (const struct td_json *v = o ? o->first : NULL; v; v = v->next) {
        if (p->n_counts == TD_STEPS_MAX) return false;
        struct td_step_count *to = &p->count[p->n_counts++];
        const int length = snprintf(to->name, sizeof to->name, "%s", v->key);
        to->updates = td_json_int(v, -1);
        if (length >= (int)sizeof to->name || to->updates < 0) return false;
    }
    return true;
}

// False: what is there cannot be.
static bool get_plateau(const struct td_json *o, struct td_plateau *p) {
    if (!o) return true; // another schedule
    const struct td_json *best = td_json_get(o, "best");
    p->has_best = best != NULL;
    p->best = td_json_real(best, 0);
    p->lr_scale = td_json_real(td_json_get(o, "lr_scale"), -1);
    p->bad = td_json_int(td_json_get(o, "bad"), -1);
    p->cooldown = td_json_int(td_json_get(o, "cooldown"), -1);
    return copy_text(p->monitor, sizeof p->monitor, td_json_get(o, "monitor")) && *p->monitor &&
           p->lr_scale >= 0 && p->lr_scale <= 1 && p->bad >= 0 && p->cooldown >= 0;
}

// A name of a file is one path component: a manifest must not lead outside its directory.
static bool is_plain_name(const char *name) {
    return *name && *name != '.' && !strchr(name, '/');
}

static const char *get_files(const struct td_json *root, struct td_manifest *m) {
    const struct td_json *files = td_json_get(root, "files");
    if (!files || files->kind != TD_JSON_ARRAY || files->n_children > TD_MANIFEST_MAX_FILES) {
        return "its list of files is malformed";
    }
    for (const struct td_json *v = files->first; v; v = v->next) {
        struct td_manifest_file *f = &m->file[m->n_files++];
        int64_t bytes = td_json_int(td_json_get(v, "bytes"), -1);
        if (bytes < 0 || !copy_text(f->name, sizeof f->name, td_json_get(v, "name")) ||
            !is_plain_name(f->name) ||
            !copy_text(f->digest, sizeof f->digest, td_json_get(v, "xxh3_128"))) {
            return "an entry of its list of files is malformed";
        }
        f->bytes = (uint64_t)bytes;
    }
    return NULL;
}

static bool get_plugins(const struct td_json *plugins, struct td_resume_key *k) {
    k->n_plugins = plugins ? 0 : -1;
    if (!plugins) return true;
    if (plugins->kind != TD_JSON_OBJECT || plugins->n_children > TD_REGISTRY_MAX) return false;
    for (const struct td_json *v = plugins->first; v; v = v->next) {
        struct td_plugin_file *f = &k->plugin[k->n_plugins++];
        snprintf(f->name, sizeof f->name, "%s", v->key ? v->key : "");
        if (!copy_text(f->digest, sizeof f->digest, v)) return false;
    }
    return true;
}

// False: what is there cannot be.
static bool get_ranks(const struct td_json *ranks, size_t n_ranks, double *out) {
    if (ranks->kind != TD_JSON_ARRAY || ranks->n_children != n_ranks) return false;
    for (const struct td_json *v = ranks->first; v; v = v->next, out += 2 * (size_t)TD_TALLIES) {
        if (v->kind != TD_JSON_ARRAY || v->n_children != 2) return false;
        if (!td_json_value(v->first, &out[0])) return false;
        out[1] = td_json_real(v->last, 0);
    }
    return true;
}

static bool get_epoch_metrics(struct td_arena *a, const struct td_json *o,
                              struct td_manifest_epoch *e) {
    if (!o) return true; // an older one
    if (o->kind != TD_JSON_OBJECT || o->n_children > TD_TALLIES) return false;
    size_t n_ranks = o->first ? o->first->n_children : 0;
    if (n_ranks > TD_MANIFEST_MAX_RANKS) return false;
    double *sums = td_arena_array(a, n_ranks * TD_TALLIES * 2 + 1, sizeof *sums);
    if (!sums) return false;
    e->known = true;
    e->n_ranks = (int32_t)n_ranks;
    e->sums = sums;
    for (const struct td_json *v = o->first; v; v = v->next, e->n++) {
        int len = snprintf(e->name[e->n], sizeof e->name[0], "%s", v->key);
        if (len >= (int)sizeof e->name[0] || !get_ranks(v, n_ranks, sums + 2 * e->n)) return false;
    }
    return true;
}

// Its path is two plain names: it must not lead elsewhere.
static bool get_best(const struct td_json *o, struct td_best *b) {
    char dir[TD_BEST_PATH_BYTES];
    if (!o) return true; // nothing is monitored
    const char *mode = td_json_string(td_json_get(o, "mode"), "");
    b->known = true;
    b->larger_is_better = strcmp(mode, "max") == 0;
    b->value = td_json_real(td_json_get(o, "value"), (double)NAN);
    b->step = td_json_int(td_json_get(o, "step"), -1);
    if (!copy_text(b->monitor, sizeof b->monitor, td_json_get(o, "monitor")) ||
        !copy_text(b->path, sizeof b->path, td_json_get(o, "path"))) {
        return false;
    }
    size_t n = strcspn(b->path, "/");
    snprintf(dir, sizeof dir, "%.*s", (int)n, b->path);
    bool plain = is_plain_name(dir) && b->path[n] == '/' &&
                 strcmp(b->path + n + 1, td_checkpoint_name_of(b->step).text) == 0;
    return plain && !isnan(b->value) && (b->larger_is_better || strcmp(mode, "min") == 0);
}

static const char *get_all(struct td_arena *a, const struct td_json *root, struct td_manifest *m) {
    if (root->kind != TD_JSON_OBJECT) return "not an object";
    if (td_json_int(td_json_get(root, "format"), 0) != TD_MANIFEST_FORMAT) {
        return "its format is not 1; a newer traind wrote it";
    }
    m->job = td_json_string(td_json_get(root, "job"), "");
    m->attempt = (int32_t)td_json_int(td_json_get(root, "attempt"), 0);
    get_progress(root, &m->progress);
    const struct td_progress *p = &m->progress;
    if (p->step < 0 || p->epoch < 0 || p->epoch_offset < 0 || p->epoch_batches < 0 ||
        p->samples < 0 || p->windows < 0 || p->total_steps < 0) {
        return "its progress is incomplete";
    }
    if (!get_plateau(td_json_get(root, "plateau"), &m->progress.plateau)) {
        return "its state of reduce_on_plateau is malformed";
    }
    if (!td_early_stop_get(root, &m->progress.early_stop)) {
        return "its state of early_stopping is malformed";
    }
    if (!get_counts(td_json_get(root, "steps"), &m->progress)) {
        return "its counts of training steps are malformed";
    }
    if (!get_epoch_metrics(a, td_json_get(root, "epoch_metrics"), &m->epoch_metrics)) {
        return "its sums of the epoch are malformed";
    }
    if (!get_best(td_json_get(root, "best"), &m->best)) return "its best checkpoint is malformed";
    const struct td_json *key = td_json_get(root, "resume_key");
    m->key.world_size = (int32_t)td_json_int(td_json_get(key, "world_size"), 0);
    m->key.threads = (int32_t)td_json_int(td_json_get(key, "threads"), 0);
    m->key.nodes = (int32_t)td_json_int(td_json_get(key, "nodes"), 0);
    if (!copy_text(m->key.cpu, sizeof m->key.cpu, td_json_get(key, "cpu")) ||
        !copy_text(m->key.build, sizeof m->key.build, td_json_get(key, "build"))) {
        return "its resume key is incomplete";
    }
    // Absent from manifests of the first release, which knew one precision.
    (void)copy_text(m->key.precision, sizeof m->key.precision, td_json_get(key, "precision"));
    if (!get_plugins(td_json_get(key, "plugins"), &m->key)) {
        return "its list of plugins is malformed";
    }
    m->seed = (uint64_t)td_json_int(td_json_path(root, "rng.seed"), 0);
    m->optimizer = td_json_string(td_json_get(root, "optimizer"), "");
    m->schedule = td_json_string(td_json_get(root, "lr_scheduler"), "");
    m->spec_digest = td_json_string(td_json_get(root, "spec_xxh3_128"), "");
    m->plan = td_json_get(root, "plan");
    m->frozen = td_json_get(root, "frozen");
    const struct td_json *tensors = td_json_get(root, "tensors");
    m->tensors = tensors && tensors->kind == TD_JSON_ARRAY ? tensors : NULL;
    const struct td_json *metrics = td_json_get(root, "metrics");
    for (const struct td_json *v = metrics ? metrics->first : NULL; v; v = v->next) {
        double sum = (double)NAN;
        (void)td_json_value(td_json_get(v, "sum"), &sum);
        td_manifest_add_metric(m, v->key ? v->key : "", sum,
                               td_json_real(td_json_get(v, "count"), 0));
    }
    return get_files(root, m);
}

td_status td_manifest_read(struct td_arena *a, const char *path, struct td_manifest *out_manifest) {
    TD_AUTO_BUF text;
    td_buf_init(&text, TD_MANIFEST_MAX_BYTES);
    td_status s = td_named_read(path, TD_MANIFEST_MAX_BYTES, &text);
    struct td_json *root = NULL;
    if (!s) s = td_json_parse(a, text.data, text.len, &root);
    if (td_status_code(s) == TD_RESOURCE_EXHAUSTED || td_path_rules_refused(s)) return s;
    if (s) {
        td_status bad = damaged(path, td_status_message(s));
        td_status_free(s);
        return bad;
    }
    struct td_manifest m = {0};
    const char *why = get_all(a, root, &m);
    if (why) return damaged(path, why);
    *out_manifest = m;
    return TD_OK;
}
