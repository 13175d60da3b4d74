// The rank context. Read `building` first: it is the order in which a rank comes to be. Each step
// either finishes or leaves what destroy can take down.

#include "engine/train/rank/rank.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/config/schedule.h"
#include "engine/train/plan/choices.h"
#include "engine/train/plan/dump.h"
#include "engine/train/plan/monitor.h"
#include "engine/train/plan/sizes.h"
#include "engine/train/rank/optimizer.h"
#include "lib/base/registry.h"

// Longer than a final checkpoint may take, because the ranks that do not write wait for it.
#define COLLECTIVE_TIMEOUT_NS (TD_CHECKPOINT_PATIENCE_NS + 300 * TD_NS_PER_S)
enum { ARENA_BYTES = 128 << 20, WHOLE_LOGITS_BYTES = 32 << 20 };

// ---- plugins -----------------------------------------------------------------------------------

static td_status find(const struct td_rank *r, enum td_plugin_kind kind, const char *name,
                      const void **out_ops) {
    const struct td_plugin_desc *desc;
    TD_TRY(td_registry_find(r->config->registry, kind, name, &desc));
    *out_ops = desc->ops;
    return TD_OK;
}

// The name that the job's first start settled for `auto`, else the one given here.
static const char *settle(const struct td_train_config *c, const char *asked, const char *key,
                          const char *automatic) {
    if (strcmp(asked, "auto") != 0) return asked;
    return td_json_string(td_json_get(c->frozen, key), automatic);
}

const char *td_rank_accelerator_name(const struct td_train_config *c) {
    return settle(c, c->accelerator, "accelerator", "cpu");
}

static td_status open_accelerator(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *ops;
    r->accel_name = td_rank_accelerator_name(c);
    TD_TRY(find(r, TD_PLUGIN_ACCELERATOR, r->accel_name, &ops));
    r->accel_ops = ops;
    r->accel_facts.struct_bytes = sizeof r->accel_facts;
    TD_TRY(r->accel_ops->probe(&r->accel_facts));
    if (r->accel_facts.n_devices < 1)
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "accelerator '%s' finds no device here", r->accel_name),
            TD_CLASS_DEVICE);
    struct td_accel_config config = {
        .struct_bytes = sizeof config,
        .device = 0,
        .n_threads = c->n_threads,
        .cache_dir = c->choices_dir ? c->choices_dir : c->cache_dir,
        .deterministic = c->deterministic,
        .detect_anomaly = c->detect_anomaly,
    };
    if (c->detect_anomaly && !r->accel_facts.detects_anomaly)
        return td_fail(TD_INVALID_ARGUMENT,
                       "accelerator '%s' cannot look for anomalies; leave detect_anomaly out, or "
                       "use cpu or reference",
                       r->accel_name);
    TD_TRY_CTX(r->accel_ops->open(&config, &r->accel), "open accelerator '%s'", r->accel_name);
    r->key.world_size = c->world_size;
    r->key.threads = c->n_threads;
    snprintf(r->key.cpu, sizeof r->key.cpu, "%s", r->accel_facts.build);
    snprintf(r->key.build, sizeof r->key.build, "%s", c->build ? c->build : "");
    snprintf(r->key.precision, sizeof r->key.precision, "%s", c->precision);
    return TD_OK;
}

static _Bool attempt_is_over(void *arg) {
    const struct td_rank_page *page = arg;
    return atomic_load_explicit(&page->abort, memory_order_relaxed) != 0;
}

static td_status find_group(struct td_rank *r) {
    const void *ops;
    r->group_name = r->config->world_size == 1 ? "local" : "shm";
    TD_TRY(find(r, TD_PLUGIN_COLLECTIVE, r->group_name, &ops));
    r->group_ops = ops;
    return TD_OK;
}

static td_status join_group(struct td_rank *r) {
    struct td_collective_config config = {
        .struct_bytes = sizeof config,
        .rank = r->config->rank,
        .world_size = r->config->world_size,
        .timeout_ns = COLLECTIVE_TIMEOUT_NS,
        .shared = r->io->group,
        .shared_bytes = r->io->group_bytes,
        .aborted = attempt_is_over,
        .aborted_arg = r->io->page,
    };
    TD_TRY_CTX(r->group_ops->join(&config, &r->group), "join the group of ranks");
    return TD_OK;
}

// A strategy may see its place otherwise than the launcher did, but then ranks would not meet.
static td_status check_facts(const struct td_rank *r, const struct td_strategy_config *c) {
    const struct td_strategy_facts *f = &r->facts;
    bool agrees = f->world_size == c->world_size && f->global_rank == c->global_rank &&
                  f->local_rank == c->local_rank && f->node_rank == c->node_rank &&
                  f->is_global_zero == (c->global_rank == 0);
    bool has_device = f->root_device >= 0 && f->root_device < r->accel_facts.n_devices;
    if (agrees && has_device) return TD_OK;
    return td_fail(TD_FAILED_PRECONDITION,
                   "strategy '%s' takes itself for rank %d of %d (local %d, node %d) on device %d; "
                   "it is rank %d of %d (local %d, node %d), and '%s' has %d devices",
                   r->strategy_name, f->global_rank, f->world_size, f->local_rank, f->node_rank,
                   f->root_device, c->global_rank, c->world_size, c->local_rank, c->node_rank,
                   r->accel_name, r->accel_facts.n_devices);
}

static td_status open_strategy(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *ops;
    r->strategy_name =
        settle(c, c->strategy, "strategy", c->world_size == 1 ? "single_device" : "ddp");
    TD_TRY(find(r, TD_PLUGIN_STRATEGY, r->strategy_name, &ops));
    r->strategy_ops = ops;
    struct td_strategy_config config = {
        .struct_bytes = sizeof config,
        .global_rank = c->rank,
        .local_rank = c->rank,
        .node_rank = 0,
        .world_size = c->world_size,
        .collective_ops = r->group_ops,
        .collective = r->group,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
        .bucket_first_bytes = (size_t)td_json_int(td_json_get(c->frozen, "bucket_first_bytes"), 0),
        .bucket_cap_bytes = (size_t)td_json_int(td_json_get(c->frozen, "bucket_cap_bytes"), 0),
    };
    TD_TRY(r->strategy_ops->open(&config, &r->strategy));
    r->facts.struct_bytes = sizeof r->facts;
    TD_TRY(r->strategy_ops->environment(r->strategy, &r->facts));
    return check_facts(r, &config);
}

// Precision flags of the job spec -> plugins.
static const struct {
    const char *flag, *plugin;
} precisions[] = {
    {"32-true", "fp32"},      {"64-true", "fp64"},          {"bf16-true", "bf16_true"},
    {"16-true", "fp16_true"}, {"bf16-mixed", "bf16_mixed"}, {"16-mixed", "fp16_mixed"},
};

static td_status open_named_precision(struct td_rank *r) {
    const char *plugin = r->precision_name;
    for (size_t i = 0; i < TD_COUNTOF(precisions); i++)
        if (strcmp(precisions[i].flag, plugin) == 0) plugin = precisions[i].plugin;
    const void *ops;
    TD_TRY(find(r, TD_PLUGIN_PRECISION, plugin, &ops));
    r->precision_ops = ops;
    TD_TRY(r->precision_ops->open(&r->precision));
    struct td_precision_facts *facts = &r->precision_facts;
    facts->struct_bytes = sizeof *facts;
    TD_TRY(r->precision_ops->facts(r->precision, facts));
    if (!(r->accel_facts.dtypes & 1u << facts->compute))
        return td_fail(TD_INVALID_ARGUMENT,
                       "precision '%s' computes in %s, which accelerator '%s' does "
                       "not do here",
                       r->precision_name, td_dtype_name(facts->compute), r->accel_name);
    if (facts->scales_loss && !(r->precision_ops->pre_backward && r->precision_ops->step_gate))
        return td_fail(TD_FAILED_PRECONDITION,
                       "precision '%s' scales the loss but lacks pre_backward or step_gate",
                       r->config->precision);
    if (r->config->optimizer.stochastic && facts->param != TD_BF16)
        return td_bad_spec(
            "stochastic_rounding rounds bf16 weights, but precision '%s' stores them as "
            "%s; use `precision: bf16-true`",
            r->precision_name, td_dtype_name(facts->param));
    return TD_OK;
}

static td_status open_precision(struct td_rank *r) {
    r->precision_name = r->config->precision;
    return open_named_precision(r);
}

static td_status divide_data(struct td_rank *r, enum td_split split, bool training) {
    const struct td_train_config *c = r->config;
    struct td_strategy_shard shard;
    TD_TRY(r->strategy_ops->process_dataloader(r->strategy, split, &shard));
    struct td_sampler_config config = {
        .n_samples = td_data_length(r->data, split),
        .world_size = shard.n_replicas,
        .seed = c->seed,
        .shuffle = training && c->shuffle,
        .ends = !training      ? TD_SAMPLER_UNPADDED
                : c->drop_last ? TD_SAMPLER_DROP_LAST
                               : TD_SAMPLER_PAD,
    };
    return td_data_divide(r->data, split, shard.rank, &config);
}

static td_status open_data(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *ops;
    TD_TRY(find(r, TD_PLUGIN_DATASET, c->data.name, &ops));
    struct td_dataset_config config = {
        .struct_bytes = sizeof config,
        .knobs = c->data.knobs,
        .cache_dir = c->cache_dir,
    };
    const struct td_json *ignored = td_json_path(c->model.knobs, "loss.ignore_index");
    config.ignores = ignored && ignored->kind == TD_JSON_INT;
    if (config.ignores) config.ignore_index = (int32_t)td_json_int(ignored, 0);
    const char *loss = td_json_string(td_json_path(c->model.knobs, "loss.name"), "");
    config.binary = strcmp(loss, "bce") == 0;
    td_status s = td_data_open(ops, &config, c->batch_size, &r->data);
    const char *where = td_status_code(s) == TD_NOT_FOUND ? " (paths are those of this node)" : "";
    if (s) return td_status_context(s, "open dataset '%s'%s", c->data.name, where);
    TD_TRY(divide_data(r, TD_SPLIT_TRAIN, true));
    TD_TRY(divide_data(r, TD_SPLIT_VAL, false));
    TD_TRY(divide_data(r, TD_SPLIT_TEST, false));
    if (c->stages & TD_TRAIN_PREDICT) TD_TRY(divide_data(r, TD_SPLIT_PREDICT, false));
    if ((c->stages & TD_TRAIN_FIT) && td_data_length(r->data, TD_SPLIT_TRAIN) == 0)
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "dataset '%s' has no training samples", c->data.name),
            TD_CLASS_DATA);
    return TD_OK;
}

static td_status open_module(struct td_rank *r) {
    const void *ops;
    size_t n_fields;
    const struct td_field *fields = td_data_fields(r->data, &n_fields);
    TD_TRY(find(r, TD_PLUGIN_MODULE, r->config->model.name, &ops));
    r->module_ops = ops;
    TD_TRY_CTX(r->module_ops->open(r->config->model.knobs, fields, n_fields, &r->module),
               "open model '%s'", r->config->model.name);
    if (!r->strategy_ops->connect) return TD_OK;
    return r->strategy_ops->connect(r->strategy, r->module_ops, r->module);
}

// Which builds of plugins this rank runs is part of what its bits depend on. A rank that resumes
// compares them before it trains; the others' are for the manifest alone, and the checkpointer's.
static td_status list_plugins(struct td_rank *r) {
    struct td_resume_key *k = &r->key;
    size_t n;
    if (!r->resumed) return TD_OK;
    TD_TRY(td_registry_files(r->config->registry, k->plugin, TD_COUNTOF(k->plugin), &n));
    k->n_plugins = (int)n;
    return TD_OK;
}

// ---- where to start ----------------------------------------------------------------------------

// The rank that reads chooses; what all need to know is broadcast.
static td_status choose_start(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (c->n_resume_from == 0) return TD_OK;
    uint32_t reads;
    TD_TRY(r->strategy_ops->load_checkpoint(r->strategy, &reads));
    if (reads) {
        TD_TRY(
            td_restore_choose(c->resume_from, c->n_resume_from, r->events, r->arena, &r->restored));
        r->start = r->restored.manifest.progress;
    }
    TD_TRY(r->strategy_ops->broadcast(r->strategy, &r->start, sizeof r->start, 0));
    r->resumed = true;
    if (r->precision_ops->state_load)
        TD_TRY(r->precision_ops->state_load(r->precision, &r->start.precision));
    // Batches that are done, as this world counts them; the offset is what the samplers go by.
    if (r->start.epoch_offset)
        r->start.epoch_batches = (r->start.epoch_offset + c->batch_size * c->world_size - 1) /
                                 (c->batch_size * c->world_size);
    return TD_OK;
}

// ---- programs ----------------------------------------------------------------------------------

struct td_epoch td_rank_epoch(const struct td_rank *r, const struct td_progress *p) {
    const struct td_train_config *c = r->config;
    const struct td_sampler *s = td_data_sampler(r->data, TD_SPLIT_TRAIN);
    struct td_epoch e = {.index = p->epoch, .first = p->epoch_batches};
    if (!s) return e;
    static const struct td_amount all = {.is_fraction = true, .fraction = 1.0};
    e.n_batches = td_limits_batches(td_sampler_left(s, 0, c->rank), c->batch_size, c->drop_last,
                                    c->limits.train_batches);
    if (p->epoch_offset == 0) return e;
    int64_t left = td_limits_batches(td_sampler_left(s, p->epoch_offset, c->rank), c->batch_size,
                                     c->drop_last, all);
    // Another world or batch may need one more for what is left; only a limit leaves it out.
    struct td_amount limit = c->limits.train_batches;
    bool plays_all = limit.is_fraction && limit.fraction >= 1;
    e.n_batches = TD_MAX(e.n_batches, p->epoch_batches);
    if (plays_all || e.n_batches > p->epoch_batches + left) e.n_batches = p->epoch_batches + left;
    return e;
}

int64_t td_rank_epoch_batches(const struct td_rank *r) {
    struct td_progress whole = {0};
    return td_rank_epoch(r, &whole).n_batches;
}

int64_t td_rank_eval_batches(const struct td_rank *r, enum td_split split) {
    const struct td_sampler *s = td_data_sampler(r->data, split);
    if (!s) return 0;
    const struct td_limits *l = &r->config->limits;
    struct td_amount limit = split == TD_SPLIT_TEST      ? l->test_batches
                             : split == TD_SPLIT_PREDICT ? l->predict_batches
                                                         : l->val_batches;
    return td_amount_of(limit, td_sampler_batches(s, 0, r->config->batch_size));
}

struct td_program_key td_rank_train_key(const struct td_rank *r, const struct td_epoch *e,
                                        int64_t batch, int64_t n) {
    const struct td_limits *l = &r->config->limits;
    bool steps = td_limits_steps_after(l, e, batch) || r->facts.handles_gradient_accumulation;
    return (struct td_program_key){
        .step = "train",
        .mode = TD_MODE_TRAIN,
        .batch = n,
        .accumulate = !td_limits_begins(l, e, batch),
        .sync = steps,
        .apply = steps,
    };
}

struct td_program_key td_rank_eval_key(int64_t n) {
    return (struct td_program_key){.step = "train", .mode = TD_MODE_EVAL, .batch = n};
}

struct td_program_key td_rank_predict_key(int64_t n) {
    return (struct td_program_key){.step = "train", .mode = TD_MODE_PREDICT, .batch = n};
}

bool td_rank_generates(const struct td_rank *r) {
    const struct td_predict_config *p = &r->config->predict;
    return p->prompt || (p->prompt_tokens && p->prompt_tokens->n_children > 0);
}

// Every variant of an epoch played from p on: windows repeat, so its two ends have them all.
static td_status add_train_programs(struct td_rank *r, const struct td_progress *p) {
    const struct td_train_config *c = r->config;
    const struct td_sampler *s = td_data_sampler(r->data, TD_SPLIT_TRAIN);
    struct td_epoch e = td_rank_epoch(r, p);
    int64_t ends = 2 * td_limits_accumulate(&c->limits, e.index) + 2;
    int64_t left = td_sampler_left(s, p->epoch_offset, c->rank);
    for (int64_t b = e.first; b < e.n_batches; b++) {
        if (b - e.first > ends && e.n_batches - b > ends) b = e.n_batches - ends;
        int64_t n = TD_MIN(c->batch_size, left - (b - e.first) * c->batch_size);
        struct td_program_key key = td_rank_train_key(r, &e, b, n);
        TD_TRY(td_programs_add(r->programs, &key));
    }
    return TD_OK;
}

// Those of the epochs from which on windows have another length, too.
static td_status add_fit_programs(struct td_rank *r) {
    const struct td_limits *l = &r->config->limits;
    struct td_progress whole = {0};
    TD_TRY(add_train_programs(r, &whole));
    for (size_t i = 0; i < l->n_later && !td_limits_reached(l, l->later[i].epoch, 0); i++) {
        whole.epoch = l->later[i].epoch;
        TD_TRY(add_train_programs(r, &whole));
    }
    return add_train_programs(r, &r->start);
}

static td_status add_eval_programs(struct td_rank *r, enum td_split split) {
    const struct td_sampler *s = td_data_sampler(r->data, split);
    if (!s || td_rank_eval_batches(r, split) == 0) return TD_OK;
    int64_t left = td_sampler_left(s, 0, r->config->rank), batch = r->config->batch_size;
    // A rank without samples records the model all the same: all must know what it has.
    int64_t sizes[] = {left >= batch ? batch : 0, left ? left % batch : 1};
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        if (sizes[i] == 0) continue;
        bool predicts = split == TD_SPLIT_PREDICT;
        struct td_program_key key =
            predicts ? td_rank_predict_key(sizes[i]) : td_rank_eval_key(sizes[i]);
        TD_TRY(td_programs_add(r->programs, &key));
    }
    return TD_OK;
}

static td_status add_predict_programs(struct td_rank *r) {
    struct td_program_key one = td_rank_predict_key(1);
    return td_rank_generates(r) ? td_programs_add(r->programs, &one)
                                : add_eval_programs(r, TD_SPLIT_PREDICT);
}

static td_status record_step(void *arg, struct td_graph *g, int64_t batch) {
    struct td_rank *r = arg;
    return r->module_ops->record(r->module, g, batch);
}
static td_status rewrite_precision(void *arg, struct td_graph *g,
                                   const struct td_program_key *key) {
    struct td_rank *r = arg;
    return r->precision_ops->rewrite(r->precision, g, key);
}
static td_status rewrite_strategy(void *arg, struct td_graph *g, const struct td_program_key *key) {
    struct td_rank *r = arg;
    return r->strategy_ops->rewrite(r->strategy, g, key);
}

// All programs of the job. A second call, with another level, takes the place of the first: names
// and buckets of the state are there already and stay.
static td_status compile_programs(struct td_rank *r, enum td_recompute level) {
    const struct td_train_config *c = r->config;
    struct td_compile_options options = {
        .state = r->state,
        .windowed = td_limits_ever_accumulates(&c->limits),
        .scales_loss = r->precision_facts.scales_loss,
        .record = record_step,
        .record_arg = r,
        .precision = r->precision_ops->rewrite ? rewrite_precision : NULL,
        .precision_arg = r,
        .strategy = rewrite_strategy,
        .strategy_arg = r,
        .optimizer = &r->optimizer,
        .recompute = level,
        .whole_logits_bytes = WHOLE_LOGITS_BYTES,
        .skips = r->accel_ops->skips,
        .dump = c->dump ? td_dump_take : NULL,
        .dump_arg = c->dump,
    };
    td_programs_destroy(td_steal(r->programs));
    if (c->dump) td_dump_restart(c->dump);
    TD_TRY(td_programs_create(&options, &r->programs));
    if (r->strategy_ops->build_begin) TD_TRY(r->strategy_ops->build_begin(r->strategy));
    if (c->stages & TD_TRAIN_FIT) TD_TRY(add_fit_programs(r));
    if (c->stages & (TD_TRAIN_FIT | TD_TRAIN_VALIDATE)) TD_TRY(add_eval_programs(r, TD_SPLIT_VAL));
    if (c->stages & TD_TRAIN_TEST) TD_TRY(add_eval_programs(r, TD_SPLIT_TEST));
    if (c->stages & TD_TRAIN_PREDICT) TD_TRY(add_predict_programs(r));
    return r->strategy_ops->build_end ? r->strategy_ops->build_end(r->strategy) : TD_OK;
}

static td_status settle_state(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (c->stages & TD_TRAIN_FIT) {
        TD_TRY(td_optimizer_check(&c->optimizer, r->state));
        TD_TRY(td_monitor_check(r));
    }
    return td_state_layout(r->state);
}

// Keeps as much of the forward pass as the memory allows.
static td_status record_programs(struct td_rank *r) {
    td_optimizer_options(&r->config->optimizer, &r->optimizer);
    r->optimizer.unscale = r->precision_facts.scales_loss;
    r->optimizer.wide = r->precision_facts.moments != r->precision_facts.param;
    TD_TRY(td_state_table_create(&r->state));
    enum td_recompute first, last;
    TD_TRY(td_sizes_levels(r, &first, &last));
    for (r->recompute = first;; r->recompute++) {
        bool fits;
        TD_TRY(compile_programs(r, r->recompute));
        if (r->recompute == first) TD_TRY(settle_state(r));
        TD_TRY(td_sizes_fit(r, &fits));
        if (fits) return TD_OK;
        if (r->recompute < last) continue;
        // What the machine has is the scheduler's to judge; a rank only keeps less because of it.
        return r->config->memory_bytes ? td_sizes_refuse(r) : TD_OK;
    }
}

// Called by the accelerator where an all_reduce node is.
static td_status reduce_bucket(void *arg, uint32_t bucket) {
    struct td_rank *r = arg;
    size_t offset, bytes;
    enum td_dtype dtype;
    td_state_bucket(r->state, bucket, &offset, &bytes, &dtype);
    bool last = bucket + 1 == td_state_n_buckets(r->state);
    char *base = td_buffer_host(r->memory.region[TD_ROLE_GRAD]);
    atomic_fetch_add_explicit(&r->io->page->collective_seq, 1, memory_order_relaxed);
    return r->strategy_ops->reduce_gradients(r->strategy, base + offset,
                                             (int64_t)(bytes / td_dtype_bytes(dtype)), dtype,
                                             last ? TD_CONTROL_FLAGS : 0);
}

// What may surprise somebody.
static void note_programs(const struct td_rank *r) {
    char names[256], slow[TD_SIZES_SLOW];
    uint32_t n = td_programs_slow(r->programs, names, sizeof names);
    td_sizes_say_slow(r, n, names, slow);
    if (n) td_events_note(r->events, "%s", slow);
    n = td_programs_unreached(r->programs, names, sizeof names);
    if (n)
        td_events_note(r->events, "nothing trains %u parameter%s that the loss does not reach: %s",
                       n, n == 1 ? "" : "s", names);
}

static td_status bind_programs(struct td_rank *r) {
    struct td_bindings b = {
        .struct_bytes = sizeof b,
        .arena = r->arena_memory,
        .scalars = r->scalars,
        .random = r->random,
        .outputs = r->outputs,
        .all_reduce = reduce_bucket,
        .all_reduce_arg = r,
    };
    memcpy(b.region, r->memory.region, sizeof b.region);
    r->scalars[TD_SCALAR_LOSS_SCALE] = 1;
    r->scalars[TD_SCALAR_WINDOW] = 1;
    TD_TRY(td_choices_bind(r, &b));
    note_programs(r);
    return TD_OK;
}

// ---- what leaves the rank ----------------------------------------------------------------------

static void print_metrics(void *arg) {
    struct td_rank *r = arg;
    (void)td_metrics_print(&r->io->ring);
}

static td_status start_background(struct td_rank *r) {
    r->metrics.ring = r->io->ring;
    r->metrics.launcher = r->io->print_metrics ? NULL : r->io->page;
    td_control_init(&r->control, r->io->page, r->facts.is_global_zero, r->config->limits.max_time_s,
                    r->start.elapsed_ns);
    char *grad = td_buffer_host(r->memory.region[TD_ROLE_GRAD]);
    if (grad) r->control.tail = (float *)(void *)(grad + td_state_control_offset(r->state));
    TD_TRY(td_background_create(r->io->print_metrics ? print_metrics : NULL, r, &r->background));
    struct td_checkpointer_options options = {
        .config = &r->config->checkpoint,
        .state = r->state,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
        .strategy_ops = r->strategy_ops,
        .strategy = r->strategy,
        .background = r->background,
        .events = r->events,
        .metrics = &r->metrics,
        .registry = r->config->registry,
        .config_json = r->module_ops->config ? r->module_ops->config(r->module) : NULL,
        .resumed_from = r->resumed ? r->restored.path : NULL,
        .resumed_step = r->resumed ? r->start.step : -1,
    };
    TD_TRY(r->strategy_ops->save_checkpoint(r->strategy, &options.roles));
    return td_checkpointer_create(&options, &r->checkpointer);
}

td_status td_rank_classify(td_status s) {
    static const enum td_class of_code[] = {
        [TD_INVALID_ARGUMENT] = TD_CLASS_BAD_SPEC,
        [TD_NOT_FOUND] = TD_CLASS_BAD_SPEC,
        [TD_UNIMPLEMENTED] = TD_CLASS_BAD_SPEC,
        [TD_RESOURCE_EXHAUSTED] = TD_CLASS_OUT_OF_MEMORY,
        [TD_ABORTED] = TD_CLASS_COLLECTIVE,
        [TD_DEADLINE_EXCEEDED] = TD_CLASS_COLLECTIVE,
        [TD_DATA_LOSS] = TD_CLASS_DATA,
        [TD_UNAUTHENTICATED] = TD_CLASS_NONE,
    };
    if (!s || td_status_class(s) != TD_CLASS_NONE) return s;
    enum td_class cls = of_code[td_status_code(s)];
    return td_status_with_class(s, cls == TD_CLASS_NONE ? TD_CLASS_INTERNAL : cls);
}

// ---- building and taking down ------------------------------------------------------------------

typedef td_status (*build_step)(struct td_rank *r);

static td_status announce(struct td_rank *r) {
    return td_sizes_announce(r);
}

// clang-format off
static const build_step building[] = {
    open_accelerator, find_group, join_group, open_strategy, open_precision, open_data, open_module,
    choose_start, list_plugins, record_programs, td_rank_compare,
    td_rank_place_state, td_rank_initialize_state, td_rank_restore_state, td_rank_set_up_strategy,
    bind_programs, start_background, td_choices_freeze, announce,
};

static const build_step planning[] = {
    open_accelerator, find_group, open_strategy, open_precision, open_data, open_module,
    record_programs,
};
// clang-format on

static td_status build(const struct td_train_config *config, struct td_train_io *io,
                       struct td_events *events, const build_step *steps, size_t n_steps,
                       struct td_rank **out_rank) {
    TD_AUTO(td_rank) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->config = config;
    r->io = io;
    r->events = events;
    TD_TRY(td_arena_create(ARENA_BYTES, &r->arena));
    for (size_t i = 0; i < n_steps; i++) {
        td_status s = td_rank_classify(steps[i](r));
        if (!s) continue;
        td_rank_fail(r, s);
        return s;
    }
    *out_rank = td_steal(r);
    return TD_OK;
}

td_status td_rank_create(const struct td_train_config *config, struct td_train_io *io,
                         struct td_events *events, struct td_rank **out_rank) {
    return build(config, io, events, building, TD_COUNTOF(building), out_rank);
}

td_status td_rank_create_plan(const struct td_train_config *config, struct td_train_io *io,
                              struct td_events *events, struct td_rank **out_rank) {
    return build(config, io, events, planning, TD_COUNTOF(planning), out_rank);
}

td_status td_rank_replan(struct td_rank *r, const char *precision) {
    TD_CHECK(!r->memory.region[TD_ROLE_PARAM].bytes); // else it is more than a plan
    td_programs_destroy(td_steal(r->programs));
    td_state_table_destroy(td_steal(r->state));
    if (r->precision_ops) r->precision_ops->close(td_steal(r->precision));
    r->precision_name = precision;
    TD_TRY(td_rank_classify(open_named_precision(r)));
    return td_rank_classify(record_programs(r));
}

td_status td_rank_finish(struct td_rank *r) {
    if (!r->strategy_ops->teardown) return TD_OK;
    return r->strategy_ops->teardown(r->strategy);
}

void td_rank_fail(struct td_rank *r, td_status why) {
    if (!r->group || r->config->world_size == 1) return;
    int64_t step = atomic_load_explicit(&r->io->page->step, memory_order_relaxed);
    td_events_end(r->events, "failed", why, step);
    if (r->strategy && r->strategy_ops->on_exception)
        r->strategy_ops->on_exception(r->strategy, td_status_code(why));
}

void td_rank_destroy(struct td_rank *r) {
    if (!r) return;
    td_background_destroy(r->background); // it may be writing the checkpointer's snapshot
    td_checkpointer_destroy(r->checkpointer);
    td_programs_destroy(r->programs);
    if (r->arena_memory.bytes) r->accel_ops->mem_free(r->accel, r->arena_memory);
    for (int role = 0; role < TD_ROLE_COUNT; role++)
        if (r->owned[role]) r->accel_ops->mem_free(r->accel, r->memory.region[role]);
    td_state_table_destroy(r->state);
    if (r->module_ops) r->module_ops->close(r->module);
    td_data_close(r->data);
    if (r->precision_ops) r->precision_ops->close(r->precision);
    if (r->strategy_ops) r->strategy_ops->close(r->strategy);
    if (r->group) r->group_ops->leave(r->group);
    if (r->accel_ops) r->accel_ops->close(r->accel);
    td_arena_destroy(r->arena);
    free(r);
}
