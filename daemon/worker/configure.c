// Plan -> td_train_config. Everything is resolved here, once: defaults of a run by hand, where
// checkpoints go, which ones to resume from, the CPU level of the process, and the build that the
// resume key names.

#include "daemon/worker/configure.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/worker/build.h"
#include "daemon/worker/known_precision.h"
#include "daemon/worker/plugins.h"
#include "engine/train/config/schedule.h"
#include "lib/base/cpu_level.h"
#include "lib/base/digest.h"
#include "lib/base/fsio.h"
#include "lib/base/proc.h"

enum { ARENA_BYTES = 2 * TD_SPEC_ARENA_BYTES, PATHS_MAX = 66 };

void td_worker_config_destroy(struct td_worker_config *c) {
    if (!c) return;
    td_registry_destroy(c->registry);
    td_arena_destroy(c->arena);
    free(c);
}

static const char *or_null(const char *text) {
    return text && *text ? text : NULL;
}

// ---- build -------------------------------------------------------------------------------------

static td_status name_build(struct td_worker_config *c) {
    char name[TD_BUILD_NAME];
    TD_TRY(td_build_name(name));
    c->train.build = td_arena_strdup(c->arena, name);
    return c->train.build ? TD_OK : td_fail_oom();
}

static td_status digest_spec(struct td_worker_config *c) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 4 * TD_SPEC_MAX_BYTES);
    // The spec is the plan without the facts of one attempt.
    struct td_json *tree = td_json_new(c->arena, TD_JSON_OBJECT);
    for (const struct td_json *v = c->plan.tree->first; v; v = v->next) {
        if (strcmp(v->key, "run") != 0 && strcmp(v->key, "format") != 0 &&
            !td_json_set(c->arena, tree, v->key, td_json_copy(c->arena, v))) {
            return td_fail_oom();
        }
    }
    TD_TRY(td_json_print(tree, false, &text));
    char *hex = td_arena_alloc(c->arena, TD_DIGEST_HEX);
    if (!hex) return td_fail_oom();
    td_xxh3_128_hex(text.data, text.len, hex);
    c->train.spec_digest = hex;
    return TD_OK;
}

// ---- checkpoints -------------------------------------------------------------------------------

// By hand there is no daemon to number attempts: the first number without a directory is taken, so
// that no checkpoint is ever written over.
static int32_t next_attempt(const char *job_dir) {
    int32_t next = 1;
    DIR *d = opendir(job_dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int n, end = 0;
        if (sscanf(e->d_name, "a%9d%n", &n, &end) == 1 && !e->d_name[end] && n >= next) {
            next = n + 1;
        }
    }
    if (d) closedir(d);
    return next;
}

static td_status place_checkpoints(struct td_worker_config *c) {
    const struct td_spec_checkpoint *from = &c->plan.spec.checkpoint;
    struct td_checkpoint_config *to = &c->train.checkpoint;
    *to = (struct td_checkpoint_config){
        .every_n_epochs = from->every_n_epochs,
        .every_n_train_steps = from->every_n_train_steps,
        .save_top_k = from->save_top_k,
        .monitor = or_null(from->monitor),
        .monitor_max = strcmp(from->mode, "max") == 0,
    };
    to->dir = or_null(c->plan.run.checkpoint_dir);
    if (!to->dir && *from->dir) {
        const char *job = td_arena_printf(c->arena, "%s/%s", from->dir, c->plan.spec.name);
        if (!job) return td_fail_oom();
        if (!*c->plan.run.job) c->train.attempt = next_attempt(job);
        to->dir = td_arena_printf(c->arena, "%s/a%d", job, c->train.attempt);
        if (!to->dir) return td_fail_oom();
    }
    to->label = td_arena_printf(c->arena, "a%d", c->train.attempt);
    return to->label ? TD_OK : td_fail_oom();
}

static td_status list_resume_paths(struct td_worker_config *c) {
    const char **paths = td_arena_array(c->arena, PATHS_MAX, sizeof *paths);
    if (!paths) return td_fail_oom();
    size_t n = 0;
    const struct td_json *before = c->plan.run.resume_before;
    if (*c->plan.run.resume_from) {
        paths[n++] = c->plan.run.resume_from;
        for (const struct td_json *v = before ? before->first : NULL; v && n < PATHS_MAX;
             v = v->next) {
            paths[n++] = td_json_string(v, "");
        }
    } else if (*c->plan.spec.ckpt_path) {
        paths[n++] = c->plan.spec.ckpt_path;
    }
    c->train.resume_from = paths;
    c->train.n_resume_from = n;
    c->train.init_from = or_null(c->plan.spec.init_from);
    c->train.init_loosely = !c->plan.spec.strict;
    c->train.evaluate_from = or_null(c->plan.spec.evaluate_from);
    return TD_OK;
}

// ---- the parts of the spec ---------------------------------------------------------------------

static struct td_amount amount_of(struct td_spec_amount a) {
    return (struct td_amount){
        .is_fraction = a.is_fraction,
        .fraction = a.fraction,
        .batches = a.batches,
    };
}

static td_status take_accumulation(struct td_worker_config *c) {
    const struct td_spec_by_epoch *from = &c->plan.spec.trainer.accumulate_grad_batches;
    struct td_limits *to = &c->train.limits;
    to->accumulate = from->change[0].value;
    to->n_later = from->n_changes - 1;
    struct td_accumulation *later = td_arena_array(c->arena, from->n_changes, sizeof *later);
    if (!later) return td_fail_oom();
    for (size_t i = 0; i < to->n_later; i++) {
        later[i] = (struct td_accumulation){from->change[i + 1].epoch, from->change[i + 1].value};
    }
    to->later = later;
    return TD_OK;
}

static void take_limits(const struct td_spec_trainer *from, struct td_limits *to) {
    *to = (struct td_limits){
        .max_epochs = from->max_epochs,
        .max_steps = from->max_steps,
        .min_epochs = from->min_epochs,
        .min_steps = from->min_steps,
        .max_time_s = from->max_time_s,
        .train_batches = amount_of(from->limit_train_batches),
        .val_batches = amount_of(from->limit_val_batches),
        .test_batches = amount_of(from->limit_test_batches),
        .predict_batches = amount_of(from->limit_predict_batches),
        .val_check_interval = amount_of(from->val_check_interval),
        .check_val_every_n_epoch = from->check_val_every_n_epoch,
        .log_every_n_steps = from->log_every_n_steps,
        .sanity_batches = from->num_sanity_val_steps,
    };
}

static double real_of(const struct td_json *knobs, const char *key, double fallback) {
    return td_json_real(td_json_get(knobs, key), fallback);
}

static void take_betas(const struct td_json *betas, struct td_optim_attrs *to) {
    to->beta1 = td_json_real(betas ? betas->first : NULL, 0.9);
    to->beta2 = td_json_real(betas ? betas->last : NULL, 0.999);
}

static int index_of(const char *name, const char *const *names, int n) {
    int i = 0;
    while (i < n - 1 && strcmp(name, names[i]) != 0) {
        i++;
    }
    return i;
}

static void take_muon(const struct td_json *k, double lr, struct td_muon_config *to) {
    static const char *const scales[] = {"original", "match_rms_adamw", "spectral_unclamped"};
    const struct td_json *v = td_json_get(k, "ns_coefficients");
    for (v = v ? v->first : NULL; v; v = v->next) {
        to->ns_coefficients[v->next ? v->next->next ? 0 : 1 : 2] = td_json_real(v, 0);
    }
    to->ns_steps = (int)td_json_int(td_json_get(k, "ns_steps"), 5);
    to->scale = (enum td_muon_scale)index_of(
        td_json_string(td_json_get(k, "adjust_lr_fn"), "original"), scales, TD_COUNTOF(scales));
    to->adamw_lr = td_json_real(td_json_get(k, "adamw_lr"), lr);
    take_betas(td_json_get(k, "adamw_betas"), &to->adamw);
    to->adamw.eps = real_of(k, "adamw_eps", 1e-8);
    to->adamw.weight_decay = real_of(k, "adamw_weight_decay", 0);
}

// A kind of optimizer has some of these knobs; those of the others are absent and read as nothing.
static void take_optimizer(const struct td_spec *spec, struct td_optimizer_config *to) {
    static const char *const kinds[] = {
        [TD_OPTIMIZER_SGD] = "sgd",     [TD_OPTIMIZER_ADAM] = "adam",
        [TD_OPTIMIZER_ADAMW] = "adamw", [TD_OPTIMIZER_LION] = "lion",
        [TD_OPTIMIZER_MUON] = "muon",   [TD_OPTIMIZER_ADAFACTOR] = "adafactor",
    };
    const struct td_json *k = spec->optimizer.knobs;
    bool by_value = strcmp(spec->trainer.gradient_clip_algorithm, "value") == 0;
    *to = (struct td_optimizer_config){
        .kind = (enum td_optimizer_kind)index_of(spec->optimizer.name, kinds, TD_COUNTOF(kinds)),
        .lr = td_json_real(td_json_get(k, "lr"), 0.001),
        .max_norm = by_value ? 0 : spec->trainer.gradient_clip_val,
        .max_value = by_value ? spec->trainer.gradient_clip_val : 0,
        .stochastic = spec->trainer.stochastic_rounding,
        .log_norm = spec->trainer.log_grad_norm,
        .attrs =
            {
                .eps = real_of(k, td_json_get(k, "eps") ? "eps" : "eps1", 0),
                .eps2 = real_of(k, "eps2", 0),
                .weight_decay = real_of(k, "weight_decay", 0),
                .momentum = real_of(k, "momentum", 0),
                .dampening = real_of(k, "dampening", 0),
                .nesterov = td_json_bool(td_json_get(k, "nesterov"), false),
                .beta2_decay = real_of(k, "beta2_decay", 0),
                .threshold = real_of(k, "d", 1),
                .fixed_step = !td_json_bool(td_json_get(k, "relative_step"), true),
                .unscaled = !td_json_bool(td_json_get(k, "scale_parameter"), true),
            },
    };
    take_betas(td_json_get(k, "betas"), &to->attrs);
    take_muon(k, to->lr, &to->muon);
}

static td_status take_groups(struct td_worker_config *c) {
    const struct td_json *list = td_json_get(c->plan.spec.optimizer.knobs, "groups");
    if (!list || !list->n_children) return TD_OK;
    struct td_optimizer_group *group = td_arena_array(c->arena, list->n_children, sizeof *group);
    if (!group) return td_fail_oom();
    c->train.optimizer.groups = group;
    c->train.optimizer.n_groups = list->n_children;
    for (const struct td_json *v = list->first; v; v = v->next) {
        const struct td_json *decay = td_json_get(v, "weight_decay");
        *group++ = (struct td_optimizer_group){
            .match = td_json_string(td_json_get(v, "match"), ""),
            .lr_scale = td_json_real(td_json_get(v, "lr_scale"), 1),
            .has_weight_decay = decay && decay->kind != TD_JSON_NULL,
            .weight_decay = td_json_real(decay, 0),
        };
    }
    return TD_OK;
}

static enum td_schedule_curve curve_of(const struct td_json *knob) {
    const char *name = td_json_string(knob, "cosine");
    return strcmp(name, "1-sqrt") == 0   ? TD_CURVE_ONE_MINUS_SQRT
           : strcmp(name, "linear") == 0 ? TD_CURVE_LINEAR
                                         : TD_CURVE_COSINE;
}

static void take_plateau(const struct td_json *k, struct td_plateau_config *to) {
    *to = (struct td_plateau_config){
        .monitor = td_json_string(td_json_get(k, "monitor"), "val_loss"),
        .larger_is_better = strcmp(td_json_string(td_json_get(k, "mode"), ""), "max") == 0,
        .factor = td_json_real(td_json_get(k, "factor"), 0.1),
        .patience = td_json_int(td_json_get(k, "patience"), 10),
        .threshold = td_json_real(td_json_get(k, "threshold"), 1e-4),
        .threshold_is_absolute =
            strcmp(td_json_string(td_json_get(k, "threshold_mode"), ""), "abs") == 0,
        .cooldown = td_json_int(td_json_get(k, "cooldown"), 0),
        .min_lr = td_json_real(td_json_get(k, "min_lr"), 0),
        .eps = td_json_real(td_json_get(k, "eps"), 1e-8),
    };
}

// A kind of schedule has some of these knobs; those of the others are absent and read as nothing.
static void take_schedule(const struct td_spec *spec, struct td_schedule_config *to) {
    const struct td_json *k = spec->lr_scheduler.knobs;
    *to = (struct td_schedule_config){
        .decay_steps = td_json_int(td_json_get(k, "num_decay_steps"), 0),
        .period_steps = td_json_int(td_json_get(k, "step_size"), 1),
        .start_factor = td_json_real(td_json_get(k, "start_factor"), 1),
        .gamma = td_json_real(td_json_get(k, "gamma"), 1),
        .power = td_json_real(td_json_get(k, "power"), 1),
        .pct_start = td_json_real(td_json_get(k, "pct_start"), 0.3),
        .div_factor = td_json_real(td_json_get(k, "div_factor"), 25),
        .final_div_factor = td_json_real(td_json_get(k, "final_div_factor"), 1e4),
        .three_phase = td_json_bool(td_json_get(k, "three_phase"), false),
        .warmup_curve = curve_of(td_json_get(k, "warmup_type")),
    };
    bool known = td_schedule_find(spec->lr_scheduler.name, &to->kind);
    TD_CHECK(known); // the spec was checked, and a test holds its names against the engine's
    take_plateau(k, &to->plateau);
    const char *end = td_schedule_end_knob(to->kind);
    if (end) to->total_steps = td_json_int(td_json_get(k, end), 0); // "auto" reads as 0
    bool hugging_face = td_json_get(k, "num_warmup_steps") != NULL;
    to->warmup_steps =
        td_json_int(td_json_get(k, hugging_face ? "num_warmup_steps" : "warmup_steps"), 0);
    to->timescale = td_json_int(td_json_get(k, "timescale"), 0);
    if (!to->timescale) to->timescale = to->warmup_steps ? to->warmup_steps : 10000;
    const struct td_json *eta_min = td_json_get(k, "eta_min");
    to->min_lr = td_json_real(eta_min ? eta_min : td_json_get(k, "min_lr"), 0);
    const struct td_json *ratio = td_json_get(k, "min_lr_ratio");
    to->end_factor = td_json_real(ratio ? ratio : td_json_get(k, "end_factor"), 1);
    const struct td_json *anneal = td_json_get(k, "anneal_strategy");
    to->decay_curve = curve_of(anneal ? anneal : td_json_get(k, "decay_type"));
    const struct td_json *milestones = td_json_get(k, "milestones");
    for (const struct td_json *v = milestones ? milestones->first : NULL;
         v && to->n_milestones < TD_SCHEDULE_MILESTONES; v = v->next) {
        to->milestone[to->n_milestones++] = td_json_int(v, 0);
    }
}

static unsigned take_stages(unsigned stages) {
    return (stages & TD_STAGE_FIT ? TD_TRAIN_FIT : 0u) |
           (stages & TD_STAGE_VALIDATE ? TD_TRAIN_VALIDATE : 0u) |
           (stages & TD_STAGE_TEST ? TD_TRAIN_TEST : 0u) |
           (stages & TD_STAGE_PREDICT ? TD_TRAIN_PREDICT : 0u);
}

static void take_predict(const struct td_spec *spec, struct td_predict_config *to) {
    const struct td_json *k = td_json_get(spec->tree, "predict");
    const struct td_json *seed = td_json_get(k, "seed");
    const char *loss =
        td_json_string(td_json_path(spec->model.knobs, "loss.name"), "cross_entropy");
    const char *usual = strcmp(loss, "cross_entropy") == 0 ? "classes" : "logits";
    const char *values = td_json_string(td_json_get(k, "values"), usual);
    *to = (struct td_predict_config){
        .output = td_json_string(td_json_get(k, "output"), NULL),
        .logits = strcmp(values, "logits") == 0,
        .sides = strcmp(loss, "bce") == 0,
        .prompt = td_json_string(td_json_get(k, "prompt"), NULL),
        .prompt_tokens = td_json_get(k, "prompt_tokens"),
        .max_new_tokens = td_json_int(td_json_get(k, "max_new_tokens"), 256),
        .temperature = td_json_real(td_json_get(k, "temperature"), 1),
        .top_k = td_json_int(td_json_get(k, "top_k"), 0),
        .seed = (uint64_t)td_json_int(seed, (int64_t)spec->seed),
    };
}

static void take_spec(struct td_worker_config *c) {
    const struct td_spec *spec = &c->plan.spec;
    struct td_train_config *t = &c->train;
    t->model = (struct td_part){spec->model.name, spec->model.knobs};
    t->data = (struct td_part){spec->data.name, spec->data.knobs};
    t->accelerator = spec->trainer.accelerator;
    t->strategy = spec->trainer.strategy;
    t->seed = spec->seed;
    t->stages = take_stages(spec->stages);
    t->batch_size = spec->loader.batch_size;
    t->shuffle = spec->loader.shuffle;
    t->drop_last = spec->loader.drop_last;
    take_limits(&spec->trainer, &t->limits);
    take_optimizer(spec, &t->optimizer);
    take_schedule(spec, &t->schedule);
    take_predict(spec, &t->predict);
}

// ---- all of it ---------------------------------------------------------------------------------

static td_status read_plan(struct td_worker_config *c, const char *path) {
    TD_AUTO_BUF text;
    td_buf_init(&text, 2 * TD_SPEC_MAX_BYTES);
    td_status s = td_fs_read(path, TD_SPEC_MAX_BYTES, &text);
    if (s) return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    TD_TRY_CTX(td_plan_parse(c->arena, text.data, text.len, &c->plan), "plan '%s'", path);
    return TD_OK;
}

// The lower of what the plan asks for and the arguments allow. It comes right after the plan was
// read: whatever follows may ask for the level, and a process has one for good.
static td_status hold_level(struct td_worker_config *c, const struct td_worker_args *args) {
    enum td_cpu_level most = td_cpu_level_of_machine(NULL), allowed, asked;
    TD_TRY(td_cpu_level_read(args->cpu_level_from, args->cpu_level, most, &allowed));
    c->train.most_cpu_level = allowed;
    TD_TRY(td_cpu_level_read("trainer.cpu_level", c->plan.spec.trainer.cpu_level, most, &asked));
    return td_cpu_level_hold(TD_MIN(allowed, asked));
}

static td_status take_world(struct td_worker_config *c, const struct td_worker_args *args) {
    int32_t planned = c->plan.run.world_size;
    int32_t by_hand = args->whole_job ? td_spec_ranks(&c->plan.spec) : 1;
    int32_t world = args->world_size ? args->world_size : planned ? planned : by_hand;
    if (planned && world != planned) {
        return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                            "the plan is for %d ranks, but --world-size says %d",
                                            planned, world),
                                    TD_CLASS_BAD_SPEC);
    }
    if (args->rank < 0 || args->rank >= world) {
        return td_status_with_class(
            td_fail(TD_INVALID_ARGUMENT, "rank %d of world size %d", args->rank, world),
            TD_CLASS_BAD_SPEC);
    }
    c->train.rank = args->rank;
    c->train.world_size = world;
    return TD_OK;
}

td_status td_worker_configure(const struct td_worker_args *args,
                              struct td_worker_config **out_config) {
    TD_AUTO(td_worker_config) *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    TD_TRY(td_arena_create(ARENA_BYTES, &c->arena));
    TD_TRY(read_plan(c, args->plan_file));
    TD_TRY(hold_level(c, args));
    TD_TRY(take_world(c, args));
    char plugin_dir[4096];
    TD_TRY(td_worker_plugin_dir(plugin_dir, sizeof plugin_dir));
    TD_TRY(td_registry_create(plugin_dir, &c->registry));
    TD_TRY(td_worker_plugins(c->registry));
    struct td_train_config *t = &c->train;
    t->registry = c->registry;
    t->job = c->plan.run.job;
    t->attempt = c->plan.run.attempt;
    t->cache_dir = or_null(c->plan.run.cache_dir);
    if (!t->cache_dir && args->whole_job) t->cache_dir = args->choices_dir; // a plan's data
    t->choices_dir = args->choices_dir;
    t->busy = args->busy || (args->dump_graph && !args->json); // text has no times
    t->deterministic = c->plan.spec.trainer.deterministic;
    t->detect_anomaly = c->plan.spec.trainer.detect_anomaly;
    t->profile = args->profile;
    t->recompute = c->plan.spec.trainer.recompute;
    t->memory_bytes = (size_t)c->plan.spec.resources.memory_bytes;
    t->plan = c->plan.tree;
    t->frozen = c->plan.run.frozen;
    t->n_threads = c->plan.run.threads_per_rank     ? c->plan.run.threads_per_rank
                   : c->plan.spec.resources.threads ? c->plan.spec.resources.threads
                                                    : td_proc_n_cpus();
    take_spec(c);
    TD_TRY(take_accumulation(c));
    TD_TRY(take_groups(c));
    TD_TRY(place_checkpoints(c));
    TD_TRY(list_resume_paths(c));
    t->precision = td_worker_known_precision(c->arena, &c->plan, t);
    TD_TRY(digest_spec(c));
    TD_TRY(name_build(c));
    *out_config = td_steal(c);
    return TD_OK;
}
