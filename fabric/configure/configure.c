// Plan -> td_train_config. Everything is resolved here, once: defaults of a run by hand, where
// checkpoints go, and which ones to resume from. So are the CPU level of the process, and the build
// that the resume key names.

#include "fabric/configure/configure.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/train/rank/scores/scores.h"
#include "fabric/build.h"
#include "fabric/configure/brought.h"
#include "fabric/configure/known_precision.h"
#include "fabric/configure/method.h"
#include "fabric/configure/user_plugins.h"
#include "fabric/plugins.h"
#include "lib/base/cpu_level.h"
#include "lib/base/digest.h"
#include "lib/base/files/files.h"
#include "lib/base/machine/proc.h"
#include "lib/spec/read.h"

enum { ARENA_BYTES = 2 * TD_SPEC_ARENA_BYTES, PATHS_MAX = 66 };

void td_rank_config_destroy(struct td_rank_config *c) {
    if (!c) return;
    td_registry_destroy(c->registry);
    td_arena_destroy(c->arena);
    free(c);
}

static const char *or_null(const char *text) {
    return text && *text ? text : NULL;
}

// ---- build -------------------------------------------------------------------------------------

static td_status name_build(struct td_rank_config *c) {
    char name[TD_BUILD_NAME];
    TD_TRY(td_build_name(name));
    c->train.build = td_arena_strdup(c->arena, name);
    return c->train.build ? TD_OK : td_fail_oom();
}

static td_status digest_spec(struct td_rank_config *c) {
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

static td_status place_checkpoints(struct td_rank_config *c, const struct td_rank_args *args) {
    const struct td_spec_checkpoint *from = &c->plan.spec.checkpoint;
    struct td_checkpoint_config *to = &c->train.checkpoint;
    *to = (struct td_checkpoint_config){
        .every_n_epochs = from->every_n_epochs,
        .every_n_train_steps = from->every_n_train_steps,
        .train_time_interval_s = from->train_time_interval_s,
        .save_top_k = from->save_top_k,
        .monitor = or_null(from->monitor),
        .monitor_max = strcmp(from->mode, "max") == 0,
        // Ranks that wait for this one wait for longer, and it says why they do.
        .patience_ns = c->plan.spec.trainer.save_timeout_s * TD_NS_PER_S / 4 * 3,
    };
    to->dir = or_null(c->plan.run.checkpoint_dir);
    const char *own = args->checkpoints_dir;
    if (!to->dir && *from->dir && (!own || strcmp(from->dir, own) != 0)) {
        const char *job = td_arena_printf(c->arena, "%s/%s", from->dir, c->plan.spec.name);
        if (!job) return td_fail_oom();
        if (!*c->plan.run.job) c->train.attempt = next_attempt(job);
        to->dir = td_arena_printf(c->arena, "%s/a%d", job, c->train.attempt);
        if (!to->dir) return td_fail_oom();
    }
    if (!to->dir) to->dir = own;
    to->label = td_arena_printf(c->arena, "a%d", c->train.attempt);
    return to->label ? TD_OK : td_fail_oom();
}

// A plan for a later attempt, whose own checkpoints the planner does not know, does not look for
// what the first one began with: it may be gone.
static td_status list_sources(struct td_rank_config *c, const struct td_rank_args *args) {
    const char **paths = td_arena_array(c->arena, PATHS_MAX, sizeof *paths);
    if (!paths) return td_fail_oom();
    size_t n = 0;
    bool begins = !args->whole_job || c->plan.run.attempt <= 1;
    const struct td_json *before = c->plan.run.resume_before;
    if (*c->plan.run.resume_from) {
        paths[n++] = c->plan.run.resume_from;
        for (const struct td_json *v = before ? before->first : NULL; v && n < PATHS_MAX;
             v = v->next) {
            paths[n++] = td_json_string(v, "");
        }
    } else if (begins && *c->plan.spec.ckpt_path) {
        paths[n++] = c->plan.spec.ckpt_path;
    }
    c->train.resume_from = paths;
    c->train.n_resume_from = n;
    c->train.init_from = begins ? or_null(c->plan.spec.init_from) : NULL;
    c->train.init_loosely = !c->plan.spec.strict;
    c->train.evaluate_from = or_null(c->plan.spec.evaluate_from);
    return TD_OK;
}

// ---- the parts of the spec ---------------------------------------------------------------------

static td_status take_predict(const struct td_spec *spec, struct td_predict_config *to) {
    static const char *const values[] = {
        [TD_PREDICT_USUAL] = "", [TD_PREDICT_CLASSES] = "classes", [TD_PREDICT_LOGITS] = "logits"};
    struct td_read k = td_read_begin(td_json_get(spec->tree, "predict"), "predict");
    const char *asked = td_read_text_or(&k, "values", "");
    *to = (struct td_predict_config){
        .output = td_read_text_or(&k, "output", NULL),
        .prompt = td_read_text_or(&k, "prompt", NULL),
        .prompt_tokens = td_read_list(&k, "prompt_tokens"),
        .max_new_tokens = td_read_int(&k, "max_new_tokens"),
        .temperature = td_read_real(&k, "temperature"),
        .top_k = td_read_int_or(&k, "top_k", 0),
        .seed = (uint64_t)td_read_int_or(&k, "seed", (int64_t)spec->seed),
    };
    for (unsigned i = 0; i < TD_COUNTOF(values); i++) {
        if (strcmp(asked, values[i]) == 0) to->values = (enum td_predict_values)i;
    }
    return td_read_end(&k);
}

static void take_early_stop(const struct td_spec_early_stopping *from,
                            struct td_early_stop_config *to) {
    *to = (struct td_early_stop_config){
        .monitor = or_null(from->monitor),
        .larger_is_better = strcmp(from->mode, "max") == 0,
        .check_finite = from->check_finite,
        .has_stopping = from->has_stopping,
        .has_divergence = from->has_divergence,
        .patience = from->patience,
        .min_delta = from->min_delta,
        .stopping_threshold = from->stopping_threshold,
        .divergence_threshold = from->divergence_threshold,
        .when = !from->says_when ? TD_EARLY_STOP_USUAL
                : from->at_epoch ? TD_EARLY_STOP_AT_EPOCH
                                 : TD_EARLY_STOP_AT_VALIDATION,
    };
}

static unsigned scores_of(const struct td_json *names) {
    unsigned scores = 0;
    for (const struct td_json *v = names ? names->first : NULL; v; v = v->next) {
        for (unsigned score = 1; score < TD_SCORE_CONFUSION; score <<= 1) {
            if (strcmp(td_json_string(v, ""), td_score_name(score)) == 0) scores |= score;
        }
        if (strcmp(td_json_string(v, ""), "confusion_matrix") == 0) scores |= TD_SCORE_CONFUSION;
    }
    return scores;
}

static td_status take_spec(struct td_rank_config *c) {
    const struct td_spec *spec = &c->plan.spec;
    struct td_train_config *t = &c->train;
    t->model = (struct td_part){spec->model.name, spec->model.knobs};
    t->data = (struct td_part){spec->data.name, spec->data.knobs};
    t->accelerator = spec->trainer.accelerator.name;
    t->accelerator_knobs = spec->trainer.accelerator.knobs;
    t->auto_accelerator = "cpu";
    t->strategy = spec->trainer.strategy.name;
    t->strategy_knobs = spec->trainer.strategy.knobs;
    t->precision_knobs = spec->trainer.precision.knobs;
    const struct td_json *hook = td_json_get(spec->tree, "comm_hook");
    t->comm_hook = (struct td_part){spec->comm_hook.name, spec->comm_hook.knobs};
    t->comm_hook_wrapper = td_json_string(td_json_get(hook, "wrapper"), "none");
    t->decorator = or_null(spec->trainer.collective.name); // an older plan has none
    if (t->decorator && strcmp(t->decorator, "auto") == 0) t->decorator = NULL;
    t->decorator_knobs = t->decorator ? spec->trainer.collective.knobs : NULL;
    t->seed = spec->seed;
    t->stages = spec->stages;
    t->scores = scores_of(spec->metrics);
    t->batch_size = spec->loader.batch_size;
    t->shuffle = spec->loader.shuffle;
    t->drop_last = spec->loader.drop_last;
    t->val_split = spec->loader.val_split;
    t->limits = spec->trainer.limits;
    t->counts_tokens = strcmp(spec->trainer.accumulate, "tokens") == 0;
    take_early_stop(&spec->early_stopping, &t->early_stop);
    TD_TRY(td_method_optimizer(spec, c->arena, &t->optimizer));
    TD_TRY(td_method_schedule(spec, &t->schedule));
    TD_TRY(td_method_optimizers(spec, c->arena, &t->optimizers, &t->n_optimizers));
    return take_predict(spec, &t->predict);
}

// ---- all of it ---------------------------------------------------------------------------------

static td_status read_plan(struct td_rank_config *c, const struct td_rank_args *args) {
    const char *path = args->plan_file;
    if (args->plan_text) {
        return td_plan_parse(c->arena, args->plan_text, strlen(args->plan_text), &c->plan);
    }
    TD_AUTO_BUF text;
    td_buf_init(&text, 2 * TD_SPEC_MAX_BYTES);
    td_status s = td_fs_read(path, TD_SPEC_MAX_BYTES, &text);
    if (s) return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    TD_TRY_CTX(td_plan_parse(c->arena, text.data, text.len, &c->plan), "plan '%s'", path);
    enum td_job_kind kind = c->plan.spec.kind;
    if (kind == TD_KIND_TRAIN) return TD_OK;
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "plan '%s' is of kind %s, which traind's launcher runs; "
                                        "traind-worker trains models alone",
                                        path, td_job_kind_name(kind)),
                                TD_CLASS_BAD_SPEC);
}

// The lower of what the plan asks for and the arguments allow. It comes right after the plan was
// read: whatever follows may ask for the level, and a process has one for good.
static td_status hold_level(struct td_rank_config *c, const struct td_rank_args *args) {
    enum td_cpu_level most = td_cpu_level_of_machine(NULL), allowed, asked;
    TD_TRY(td_cpu_level_read(args->cpu_level_from, args->cpu_level, most, &allowed));
    c->train.most_cpu_level = allowed;
    TD_TRY(td_cpu_level_read("trainer.cpu_level", c->plan.spec.trainer.cpu_level, most, &asked));
    enum td_cpu_level common = most;
    if (*c->plan.run.cpu_level) {
        TD_TRY(td_cpu_level_read("run.cpu_level", c->plan.run.cpu_level, most, &common));
    }
    return td_cpu_level_hold(TD_MIN(common, TD_MIN(allowed, asked)));
}

// Nodes have as many ranks each. By hand, with fewer than the plan asks for, all are on one.
static td_status take_nodes(struct td_rank_config *c) {
    struct td_train_config *t = &c->train;
    const bool all = t->world_size == td_spec_ranks(&c->plan.spec);
    t->n_nodes = all ? TD_MAX(c->plan.spec.trainer.num_nodes, 1) : 1;
    t->local_world_size = t->world_size / t->n_nodes;
    t->node_rank = t->rank / t->local_world_size;
    t->local_rank = t->rank % t->local_world_size;
    t->interface_address = c->plan.run.collective_address;
    t->collective = t->n_nodes > 1 ? "hierarchy" : t->world_size == 1 ? "local" : "shm";
    t->link_timeout_ns = c->plan.run.link_timeout_ms * TD_NS_PER_MS;
    const struct td_json *names = c->plan.run.nodes;
    if (!names || names->n_children != (size_t)t->n_nodes) return TD_OK;
    const char **list = td_arena_array(c->arena, names->n_children, sizeof *list);
    if (!list) return td_fail_oom();
    t->node_names = list;
    for (const struct td_json *v = names->first; v; v = v->next) {
        *list++ = td_json_string(v, "?");
    }
    return TD_OK;
}

static td_status take_world(struct td_rank_config *c, const struct td_rank_args *args) {
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
    TD_TRY(take_nodes(c));
    c->train.collective_timeout_ns = c->plan.spec.trainer.collective_timeout_s * TD_NS_PER_S;
    c->train.save_timeout_ns = c->plan.spec.trainer.save_timeout_s * TD_NS_PER_S;
    return TD_OK;
}

td_status td_rank_configure(const struct td_rank_args *args, struct td_rank_config **out_config) {
    TD_AUTO(td_rank_config) *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    TD_TRY(td_arena_create(ARENA_BYTES, &c->arena));
    TD_TRY(read_plan(c, args));
    TD_TRY(hold_level(c, args));
    TD_TRY(take_world(c, args));
    char plugin_dir[4096];
    TD_TRY(td_plugin_dir(plugin_dir, sizeof plugin_dir));
    TD_TRY(td_registry_create(plugin_dir, &c->registry));
    TD_TRY(td_built_in_plugins(c->registry));
    for (size_t i = 0; i < args->n_own_plugins; i++) {
        td_status s = td_registry_add(c->registry, args->own_plugins[i]);
        if (s) return td_status_with_class(s, TD_CLASS_BAD_SPEC);
    }
    TD_TRY(td_user_plugins_take(c->arena, c->registry, args->plugin_dirs, &c->plan.spec));
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
    t->find_unused_parameters = c->plan.spec.trainer.find_unused_parameters;
    t->whole_data = !c->plan.spec.trainer.use_distributed_sampler;
    t->keyed_order = strcmp(c->plan.spec.trainer.sampler, "keyed") == 0;
    t->sync_batchnorm = c->plan.spec.trainer.sync_batchnorm;
    t->profile_file = c->plan.spec.trainer.profile && args->rank == 0 && !args->whole_job;
    t->profile = args->profile || t->profile_file;
    t->trace_dir = args->whole_job ? NULL : or_null(c->plan.spec.trainer.trace_dir);
    t->recompute = c->plan.spec.trainer.recompute;
    t->memory_bytes = (size_t)c->plan.spec.resources.memory_bytes;
    t->plan = c->plan.tree;
    t->frozen = c->plan.run.frozen;
    t->n_threads = c->plan.run.threads_per_rank ? c->plan.run.threads_per_rank
                   : c->plan.spec.resources.threads
                       ? c->plan.spec.resources.threads
                       : TD_MAX(1, td_proc_n_cpus() / TD_MAX(1, args->n_sharing));
    TD_TRY(take_spec(c));
    TD_TRY(place_checkpoints(c, args));
    TD_TRY(list_sources(c, args));
    TD_TRY(td_bring_sizes(c->arena, &c->plan, &t->model.knobs));
    t->precision = td_known_precision(c->arena, &c->plan, t);
    TD_TRY(digest_spec(c));
    TD_TRY(name_build(c));
    *out_config = td_steal(c);
    return TD_OK;
}
