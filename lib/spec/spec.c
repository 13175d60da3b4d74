// The job spec, from tree to plain C.
//
// Readers below ask for keys that a canonical tree always has; on any other tree they fall back to
// zero and never fail.

#include "lib/spec/spec.h"

#include <string.h>

#include "lib/spec/check.h"

td_status td_spec_validate(struct td_arena *a, const struct td_json *tree, int flags,
                           struct td_json **out_tree) {
    struct td_check c;
    td_check_init(&c, a, flags);
    struct td_json *canonical = td_check_document(&c, tree);
    TD_TRY(td_check_result(&c));
    *out_tree = canonical;
    return TD_OK;
}

// ---- the view -----------------------------------------------------------------------------------
static const char *text(const struct td_json *section, const char *key) {
    return td_json_string(td_json_get(section, key), "");
}

static int64_t int_of(const struct td_json *section, const char *key) {
    return td_json_int(td_json_get(section, key), 0); // "auto" and null are 0
}

static int32_t i32(const struct td_json *section, const char *key) {
    return (int32_t)int_of(section, key);
}

static bool flag(const struct td_json *section, const char *key) {
    return td_json_bool(td_json_get(section, key), false);
}

static struct td_amount amount(const struct td_json *section, const char *key) {
    const struct td_json *v = td_json_get(section, key);
    if (v && v->kind == TD_JSON_REAL) {
        return (struct td_amount){.is_fraction = true, .fraction = v->u.real};
    }
    return (struct td_amount){.batches = td_json_int(v, 0)};
}

// A number, or a map from epochs to numbers.
static void read_accumulation(const struct td_json *v, struct td_limits *out) {
    if (!v || v->kind != TD_JSON_OBJECT) {
        out->accumulate[out->n_accumulate++].batches = (int32_t)td_json_int(v, 0);
        return;
    }
    for (v = v->first; v && out->n_accumulate < TD_LIMITS_WINDOWS; v = v->next) {
        out->accumulate[out->n_accumulate++] = (struct td_accumulation){
            .epoch = (int32_t)strtol(v->key, NULL, 10), .batches = (int32_t)td_json_int(v, 0)};
    }
}

// As in Lightning: who names steps alone means them within whole epochs, at least one.
static int32_t least_epochs(const struct td_json *trainer) {
    const struct td_json *steps = td_json_get(trainer, "min_steps");
    const struct td_json *epochs = td_json_get(trainer, "min_epochs");
    const bool has_steps = steps && steps->kind != TD_JSON_NULL;
    const bool has_epochs = epochs && epochs->kind != TD_JSON_NULL;
    return has_steps && !has_epochs ? 1 : i32(trainer, "min_epochs");
}

static void read_limits(const struct td_json *trainer, struct td_limits *out) {
    *out = (struct td_limits){
        .max_epochs = i32(trainer, "max_epochs"),
        .max_steps = i32(trainer, "max_steps"),
        .min_epochs = least_epochs(trainer),
        .min_steps = i32(trainer, "min_steps"),
        .max_time_s = int_of(trainer, "max_time"),
        .train_batches = amount(trainer, "limit_train_batches"),
        .val_batches = amount(trainer, "limit_val_batches"),
        .test_batches = amount(trainer, "limit_test_batches"),
        .predict_batches = amount(trainer, "limit_predict_batches"),
        .val_check_interval = amount(trainer, "val_check_interval"),
        .check_val_every_n_epoch = i32(trainer, "check_val_every_n_epoch"),
        .log_every_n_steps = i32(trainer, "log_every_n_steps"),
        .sanity_batches = i32(trainer, "num_sanity_val_steps"),
    };
    read_accumulation(td_json_get(trainer, "accumulate_grad_batches"), out);
}

// `key` is where a plugin is named, beside `name: plugin`.
static struct td_spec_part part(const struct td_json *tree, const char *section, const char *key) {
    const struct td_json *knobs = td_json_get(tree, section);
    const char *name = td_json_string(knobs, text(knobs, "name")); // or a bare name
    if (strcmp(name, "plugin") == 0) {
        return (struct td_spec_part){text(knobs, key), td_json_get(knobs, "knobs"), true};
    }
    bool is_map = knobs && knobs->kind == TD_JSON_OBJECT;
    return (struct td_spec_part){name, is_map ? knobs : NULL, false};
}

static unsigned stages_of(const struct td_json *tree) {
    static const char *const names[] = {"fit", "validate", "test", "predict"};
    unsigned bits = 0;
    const struct td_json *list = td_json_get(tree, "stages");
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next) {
        for (unsigned i = 0; i < TD_COUNTOF(names); i++) {
            bits |= strcmp(td_json_string(v, ""), names[i]) == 0 ? 1U << i : 0;
        }
    }
    return bits;
}

static void read_trainer(const struct td_json *s, struct td_spec_trainer *out) {
    *out = (struct td_spec_trainer){
        .accelerator = part(s, "accelerator", "accelerator"),
        .cpu_level = text(s, "cpu_level"),
        .strategy = part(s, "strategy", "strategy"),
        .precision = part(s, "precision", "precision"),
        .collective = part(s, "collective", "collective"),
        .stochastic_rounding = td_json_bool(td_json_get(s, "stochastic_rounding"), false),
        .devices = i32(s, "devices"),
        .num_nodes = i32(s, "num_nodes"),
        .collective_timeout_s = int_of(s, "collective_timeout"),
        .save_timeout_s = int_of(s, "save_timeout"),
        .gradient_clip_val = td_json_real(td_json_get(s, "gradient_clip_val"), 0),
        .accumulate = text(s, "accumulate"),
        .recompute = text(s, "recompute"),
        .gradient_clip_algorithm = text(s, "gradient_clip_algorithm"),
        .log_grad_norm = flag(s, "log_grad_norm"),
        .find_unused_parameters = flag(s, "find_unused_parameters"),
        .sync_batchnorm = flag(s, "sync_batchnorm"),
        .use_distributed_sampler = flag(s, "use_distributed_sampler"),
        .sampler = text(s, "sampler"),
        .deterministic = flag(s, "deterministic"),
        .detect_anomaly = flag(s, "detect_anomaly"),
        .profile = flag(s, "profile"),
        .trace_dir = text(s, "trace_dir"),
    };
    read_limits(s, &out->limits);
}

static void read_checkpoint(const struct td_json *s, struct td_spec_checkpoint *out) {
    *out = (struct td_spec_checkpoint){
        .every_n_epochs = i32(s, "every_n_epochs"),
        .every_n_train_steps = i32(s, "every_n_train_steps"),
        .train_time_interval_s = int_of(s, "train_time_interval"),
        .save_top_k = i32(s, "save_top_k"),
        .monitor = text(s, "monitor"),
        .mode = text(s, "mode"),
        .store = text(s, "store"),
        .dir = text(s, "dir"),
    };
}

static bool real_of(const struct td_json *section, const char *key, double *out) {
    const struct td_json *v = td_json_get(section, key);
    *out = td_json_real(v, 0);
    return v && v->kind != TD_JSON_NULL;
}

static void read_early_stopping(const struct td_json *s, struct td_spec_early_stopping *out) {
    const struct td_json *when = td_json_get(s, "check_on_train_epoch_end");
    *out = (struct td_spec_early_stopping){
        .monitor = text(s, "monitor"),
        .mode = text(s, "mode"),
        .patience = int_of(s, "patience"),
        .min_delta = td_json_real(td_json_get(s, "min_delta"), 0),
        .check_finite = flag(s, "check_finite"),
        .says_when = when && when->kind == TD_JSON_BOOL,
        .at_epoch = td_json_bool(when, false),
    };
    out->has_stopping = real_of(s, "stopping_threshold", &out->stopping_threshold);
    out->has_divergence = real_of(s, "divergence_threshold", &out->divergence_threshold);
}

static void read_restart(const struct td_json *s, struct td_spec_restart *out) {
    *out = (struct td_spec_restart){.max = i32(s, "max"),
                                    .stuck_timeout_s = int_of(s, "stuck_timeout")};
    const struct td_json *list = td_json_get(s, "backoff");
    for (const struct td_json *v = list ? list->first : NULL; v; v = v->next) {
        if (out->n_backoff == TD_SPEC_MAX_BACKOFF) break;
        out->backoff_s[out->n_backoff++] = (int32_t)td_json_int(v, 0);
    }
}

// ---- knobs that stand for several others --------------------------------------------------------
// One epoch of n batches, and n batches of each other stage.
static void run_fast(struct td_spec *s, int32_t n) {
    const struct td_amount batches = {.batches = n}, whole = {.is_fraction = true, .fraction = 1};
    struct td_limits *l = &s->trainer.limits;
    l->train_batches = l->val_batches = l->test_batches = l->predict_batches = batches;
    l->max_epochs = 1;
    l->max_steps = n;
    l->sanity_batches = 0;
    l->val_check_interval = whole;
    l->check_val_every_n_epoch = 1;
    s->checkpoint.every_n_epochs = s->checkpoint.every_n_train_steps = 0;
    s->checkpoint.train_time_interval_s = 0;
    s->checkpoint.save_top_k = 0;
    s->checkpoint.monitor = "";
    s->early_stopping.monitor = "";
    if (strcmp(s->evaluate_from, "best") == 0) s->evaluate_from = "last";
}

static bool is_zero(struct td_amount a) {
    return a.is_fraction ? a.fraction <= 0 : a.batches == 0;
}

// As in Lightning, overfit_batches says how many batches fit has, also of a fast run. The tree
// stays as it was written.
static void read_debug_run(const struct td_json *trainer, struct td_spec *s) {
    const struct td_amount overfit = amount(trainer, "overfit_batches");
    const int32_t fast = i32(trainer, "fast_dev_run");
    if (fast > 0) run_fast(s, fast);
    if (is_zero(overfit)) return;
    s->trainer.limits.train_batches = s->trainer.limits.val_batches = overfit;
    s->loader.shuffle = false;
}

static void read_gpus(const struct td_json *resources, struct td_spec_resources *out) {
    const struct td_json *gpu = td_json_get(resources, "gpu");
    out->gpus_per_rank = i32(resources, "gpus_per_rank");
    out->gpu_model = text(gpu, "model");
    out->gpu_memory_bytes = int_of(gpu, "memory");
    out->isolate_gpus = flag(resources, "isolate_gpus");
    out->gpu_indexes = strcmp(text(resources, "gpu_names"), "index") == 0;
    out->unmanaged_gpus = flag(resources, "unmanaged_gpus");
}

void td_spec_read(const struct td_json *tree, struct td_spec *out_spec) {
    struct td_spec s = {
        .tree = tree,
        .name = text(tree, "name"),
        .kind = td_job_kind_parse(text(tree, "kind")),
        .seed = (uint64_t)int_of(tree, "seed_everything"),
        .stages = stages_of(tree),
        .metrics = td_json_get(tree, "metrics"),
        .model = part(tree, "model", "module"),
        .data = part(tree, "data", "dataset"),
        .optimizer = part(tree, "optimizer", ""),
        .lr_scheduler = part(tree, "lr_scheduler", ""),
        .comm_hook = part(tree, "comm_hook", "comm_hook"),
        .optimizers = td_json_get(tree, "optimizers"),
        .ckpt_path = text(tree, "ckpt_path"),
        .init_from = text(tree, "init_from"),
        .evaluate_from = text(tree, "evaluate_from"),
        .strict = flag(tree, "strict"),
        .plugins = td_json_get(tree, "plugins"),
        .paths_from = td_json_get(tree, "paths_from"),
        .labels = td_json_get(tree, "labels"),
    };
    const struct td_json *data = td_json_get(tree, "data");
    s.loader = (struct td_spec_loader){
        .batch_size = int_of(data, "batch_size"),
        .shuffle = flag(data, "shuffle"),
        .drop_last = flag(data, "drop_last"),
        .val_split =
            is_zero(amount(data, "val_split")) ? (struct td_amount){0} : amount(data, "val_split"),
    };
    read_trainer(td_json_get(tree, "trainer"), &s.trainer);
    read_checkpoint(td_json_get(tree, "checkpoint"), &s.checkpoint);
    read_early_stopping(td_json_get(tree, "early_stopping"), &s.early_stopping);
    read_restart(td_json_get(tree, "restart"), &s.restart);
    const struct td_json *resources = td_json_get(tree, "resources");
    s.node_labels = td_json_get(resources, "labels");
    s.resources.threads = i32(resources, "threads");
    s.resources.memory_bytes = int_of(resources, "memory_bytes");
    s.resources.processes = i32(resources, "processes");
    s.resources.open_files = i32(resources, "open_files");
    read_gpus(resources, &s.resources);
    if (s.kind != TD_KIND_TRAIN) {
        s.trainer.cpu_level = "auto";
        s.checkpoint.save_top_k = -1; // they say themselves what goes
    }
    read_debug_run(td_json_get(tree, "trainer"), &s);
    *out_spec = s;
}

// ---- arithmetic ---------------------------------------------------------------------------------
int32_t td_spec_node_ranks(const struct td_spec *s) {
    return TD_MAX(s->trainer.devices, 1);
}

int32_t td_spec_ranks(const struct td_spec *s) {
    return td_spec_node_ranks(s) * TD_MAX(s->trainer.num_nodes, 1);
}

static int32_t threads_per_slot(int32_t cores, int32_t slots) {
    return TD_MAX(TD_MAX(cores, 1) / TD_MAX(slots, 1), 1);
}

int32_t td_spec_slots(const struct td_spec_resources *r, int32_t cores, int32_t slots) {
    int32_t per_slot = threads_per_slot(cores, slots);
    return TD_MAX((r->threads + per_slot - 1) / per_slot, 1);
}

int32_t td_spec_threads(const struct td_spec_resources *r, int32_t cores, int32_t slots) {
    return r->threads > 0 ? r->threads : threads_per_slot(cores, slots);
}
