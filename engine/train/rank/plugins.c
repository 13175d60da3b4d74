// The plugins of a rank, in the order of build.c. Each function finds one in the
// registry and opens it, or refuses what does not go together.

#include "engine/train/rank/plugins.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/group/buckets.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/steps.h"
#include "lib/plugin/registry.h"

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
    return settle(c, c->accelerator, "accelerator", c->auto_accelerator);
}

td_status td_rank_open_accelerator(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *ops;
    r->accel_name = td_rank_accelerator_name(c);
    TD_TRY(find(r, TD_PLUGIN_ACCELERATOR, r->accel_name, &ops));
    r->accel_ops = ops;
    r->accel_facts.struct_bytes = sizeof r->accel_facts;
    TD_TRY(r->accel_ops->probe(&r->accel_facts));
    if (r->accel_facts.n_devices < 1) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "accelerator '%s' finds no device here", r->accel_name),
            TD_CLASS_DEVICE);
    }
    struct td_accel_config config = {
        .struct_bytes = sizeof config,
        .device = c->device,
        .n_threads = c->n_threads,
        .cache_dir = c->choices_dir ? c->choices_dir : c->cache_dir,
        .deterministic = c->deterministic,
        .detect_anomaly = c->detect_anomaly,
        .profile = c->profile,
        .plans = r->plans,
        .knobs = c->accelerator_knobs,
    };
    if (c->detect_anomaly && !r->accel_facts.detects_anomaly) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "accelerator '%s' cannot look for anomalies; leave detect_anomaly out, or "
                       "name another",
                       r->accel_name);
    }
    TD_TRY_CTX(r->accel_ops->open(&config, &r->accel), "open accelerator '%s'", r->accel_name);
    if (r->accel_ops->facts) TD_TRY(r->accel_ops->facts(r->accel, &r->accel_facts));
    r->key.world_size = c->world_size;
    r->key.threads = c->n_threads;
    r->key.nodes = TD_MAX(c->n_nodes, 1);
    snprintf(r->key.cpu, sizeof r->key.cpu, "%s", r->accel_facts.build);
    snprintf(r->key.build, sizeof r->key.build, "%s", c->build ? c->build : "");
    snprintf(r->key.precision, sizeof r->key.precision, "%s", c->precision);
    return TD_OK;
}

// What the group serves is then what both can.
static td_status wrap_group(struct td_rank *r) {
    const char *name = r->config->decorator;
    const void *ops;
    struct td_collective_facts facts = {.struct_bytes = sizeof facts};
    TD_TRY(find(r, TD_PLUGIN_COLLECTIVE, name, &ops));
    r->group_ops = ops;
    TD_TRY(r->group_ops->facts(&facts));
    if (!facts.wraps) {
        return td_bad_spec(
            "collective '%s' wraps no other; trainer.collective takes one that does, "
            "around '%s', in which these ranks meet",
            name, r->group_name);
    }
    TD_TRY(td_collective_check_calls(&facts, r->group_ops, name));
    if (!r->group_ops->wait_buckets) {
        return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                            "collective '%s' wraps others, but its table has no "
                                            "slot wait_buckets",
                                            name),
                                    TD_CLASS_USER_CODE);
    }
    r->group_facts.calls &= facts.calls;
    r->group_facts.joins_again &= facts.joins_again;
    r->group_facts.recordable = false;
    return TD_OK;
}

// One that joins the ranks of a node does not reach those of others.
static td_status check_nodes(const struct td_rank *r) {
    if (r->config->n_nodes < 2 || r->group_facts.joins_nodes) return TD_OK;
    return td_bad_spec("collective '%s' joins the ranks of one node, this attempt has %d nodes; "
                       "leave trainer.collective to traind, or name one that joins nodes",
                       r->group_name, r->config->n_nodes);
}

td_status td_rank_find_group(struct td_rank *r) {
    const void *ops = NULL;
    r->group_name = r->config->collective;
    td_status s = find(r, TD_PLUGIN_COLLECTIVE, r->group_name, &ops);
    if (r->config->n_nodes > 1) {
        s = td_status_context(s, "ranks of several nodes need a plugin that is built where "
                                 "libgloo-dev is installed (`make deps`)");
    }
    TD_TRY(s);
    r->group_ops = r->base_ops = ops;
    r->group_facts.struct_bytes = sizeof r->group_facts;
    TD_TRY(r->group_ops->facts(&r->group_facts));
    TD_TRY(td_collective_check_calls(&r->group_facts, r->group_ops, r->group_name));
    TD_TRY(check_nodes(r));
    TD_TRY(td_rank_check_group(r));
    return r->config->decorator ? wrap_group(r) : TD_OK;
}

// Precision flags of the job spec -> plugins.
static const struct {
    const char *flag, *plugin;
} precisions[] = {
    {"32-true", "fp32"},      {"64-true", "fp64"},          {"bf16-true", "bf16_true"},
    {"16-true", "fp16_true"}, {"bf16-mixed", "bf16_mixed"}, {"16-mixed", "fp16_mixed"},
};

td_status td_rank_open_named_precision(struct td_rank *r) {
    const char *plugin = r->precision_name;
    for (size_t i = 0; i < TD_COUNTOF(precisions); i++) {
        if (strcmp(precisions[i].flag, plugin) == 0) plugin = precisions[i].plugin;
    }
    const void *ops;
    TD_TRY(find(r, TD_PLUGIN_PRECISION, plugin, &ops));
    r->precision_ops = ops;
    struct td_precision_config config = {
        .struct_bytes = sizeof config,
        .knobs = r->config->precision_knobs,
    };
    TD_TRY_CTX(r->precision_ops->open(&config, &r->precision), "open precision '%s'",
               r->precision_name);
    struct td_precision_facts *facts = &r->precision_facts;
    facts->struct_bytes = sizeof *facts;
    TD_TRY(r->precision_ops->facts(r->precision, facts));
    if (!(r->accel_facts.dtypes & 1u << facts->compute)) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "precision '%s' computes in %s, which accelerator '%s' does "
                       "not do here",
                       r->precision_name, td_dtype_name(facts->compute), r->accel_name);
    }
    if (facts->scales_loss && !(r->precision_ops->pre_backward && r->precision_ops->step_gate)) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "precision '%s' scales the loss but lacks pre_backward or step_gate",
                       r->config->precision);
    }
    if (r->config->optimizer.stochastic && facts->param != TD_BF16) {
        return td_bad_spec(
            "stochastic_rounding rounds bf16 weights, but precision '%s' stores them as "
            "%s; use `precision: bf16-true`",
            r->precision_name, td_dtype_name(facts->param));
    }
    return TD_OK;
}

td_status td_rank_open_precision(struct td_rank *r) {
    r->precision_name = r->config->precision;
    return td_rank_open_named_precision(r);
}

// A strategy may see its place otherwise than the launcher did, but then ranks would not meet.
static td_status check_facts(const struct td_rank *r, const struct td_strategy_config *c) {
    const struct td_strategy_facts *f = &r->facts;
    bool agrees = f->world_size == c->world_size && f->global_rank == c->global_rank &&
                  f->local_rank == c->local_rank && f->node_rank == c->node_rank &&
                  f->is_global_zero == (c->global_rank == 0) && f->root_device == r->config->device;
    if (f->handles_gradient_accumulation) {
        return td_fail(TD_UNIMPLEMENTED,
                       "strategy '%s' wants to accumulate gradients itself, which this traind does "
                       "not serve; leave handles_gradient_accumulation false",
                       r->strategy_name);
    }
    if (agrees) return TD_OK;
    return td_status_with_class(
        td_fail(TD_FAILED_PRECONDITION,
                "strategy '%s' takes itself for rank %d of %d (local %d, node %d) on device %d; "
                "it is rank %d of %d (local %d, node %d) on device %d of '%s'",
                r->strategy_name, f->global_rank, f->world_size, f->local_rank, f->node_rank,
                f->root_device, c->global_rank, c->world_size, c->local_rank, c->node_rank,
                r->config->device, r->accel_name),
        TD_CLASS_USER_CODE);
}

td_status td_rank_open_strategy(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *ops;
    r->strategy_name =
        settle(c, c->strategy, "strategy", c->world_size == 1 ? "single_device" : "ddp");
    TD_TRY(find(r, TD_PLUGIN_STRATEGY, r->strategy_name, &ops));
    r->strategy_ops = ops;
    struct td_strategy_config config = {
        .struct_bytes = sizeof config,
        .global_rank = c->rank,
        .local_rank = c->n_nodes > 1 ? c->local_rank : c->rank,
        .node_rank = c->node_rank,
        .world_size = c->world_size,
        .collective_ops = r->group_ops,
        .collective_facts = &r->group_facts,
        .collective_name = r->group_name,
        .collective = r->group,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
        .bucket_first_bytes = (size_t)td_json_int(td_json_get(c->frozen, "bucket_first_bytes"), 0),
        .bucket_cap_bytes = (size_t)td_json_int(td_json_get(c->frozen, "bucket_cap_bytes"), 0),
        .knobs = c->strategy_knobs,
        .precision_ops = r->precision_ops,
        .precision = r->precision,
        .precision_name = r->precision_name,
    };
    TD_TRY_CTX(r->strategy_ops->open(&config, &r->strategy), "open strategy '%s'",
               r->strategy_name);
    r->facts = (struct td_strategy_facts){
        .struct_bytes = sizeof r->facts,
        .root_device = c->device,
        .global_rank = config.global_rank,
        .local_rank = config.local_rank,
        .node_rank = config.node_rank,
        .world_size = config.world_size,
        .is_global_zero = config.global_rank == 0,
        .restore_optimizer = true,
    };
    TD_TRY_CTX(r->strategy_ops->environment(r->strategy, &r->facts), "strategy '%s'",
               r->strategy_name);
    return check_facts(r, &config);
}

td_status td_rank_check_precision(struct td_rank *r) {
    if (r->precision_ops->step_gate && r->strategy_ops->optimizer_step) {
        return td_bad_spec("strategy '%s' has an optimizer_step of its own, and precision '%s' may "
                           "skip steps; use another precision, such as bf16-mixed",
                           r->strategy_name, r->precision_name);
    }
    return TD_OK;
}

static td_status wrap_loader(struct td_rank *r, enum td_split split) {
    struct td_loader wrapper = {.struct_bytes = sizeof wrapper};
    if (!r->strategy_ops->wrap_loader) return TD_OK;
    TD_TRY(r->strategy_ops->wrap_loader(r->strategy, split, td_data_inner_loader(r->data, split),
                                        &wrapper));
    if (wrapper.batch) {
        td_data_wrap(r->data, split, &wrapper);
        return TD_OK;
    }
    return td_status_with_class(td_fail(TD_INVALID_ARGUMENT,
                                        "strategy '%s' wraps the loader of split %s, but gives no "
                                        "loader back",
                                        r->strategy_name, td_split_name(split)),
                                TD_CLASS_USER_CODE);
}

static td_status divide(struct td_rank *r, enum td_split split, bool training) {
    const struct td_train_config *c = r->config;
    TD_TRY(td_rank_take_share(r, split));
    struct td_sampler_config config = {
        .n_samples = td_data_length(r->data, split),
        .world_size = r->share[split].n_replicas,
        .seed = c->seed,
        .shuffle = training && c->shuffle,
        .ends = !training      ? TD_SAMPLER_UNPADDED
                : c->drop_last ? TD_SAMPLER_DROP_LAST
                               : TD_SAMPLER_PAD,
        .keyed = c->keyed_order,
        .plans = r->plans,
    };
    TD_TRY(td_data_divide(r->data, split, r->share[split].rank, &config));
    return td_data_n_loaders(r->data, split) ? wrap_loader(r, split) : TD_OK;
}

td_status td_rank_divide_data(struct td_rank *r) {
    TD_TRY(divide(r, TD_SPLIT_TRAIN, true));
    TD_TRY(divide(r, TD_SPLIT_VAL, false));
    TD_TRY(divide(r, TD_SPLIT_TEST, false));
    return r->config->stages & TD_STAGE_PREDICT ? divide(r, TD_SPLIT_PREDICT, false) : TD_OK;
}

// What the module takes as targets is asked before the dataset is opened, which checks its own.
static td_status find_module(struct td_rank *r) {
    const struct td_part *model = &r->config->model;
    const void *ops;
    TD_TRY(find(r, TD_PLUGIN_MODULE, model->name, &ops));
    r->module_ops = ops;
    r->targets.struct_bytes = sizeof r->targets;
    if (!r->module_ops->targets) return TD_OK;
    TD_TRY_CTX(r->module_ops->targets(model->knobs, &r->targets), "open model '%s'", model->name);
    return TD_OK;
}

td_status td_rank_open_data(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const void *found;
    TD_TRY(find(r, TD_PLUGIN_DATASET, c->data.name, &found));
    TD_TRY(find_module(r));
    const struct td_dataset_ops *ops = found;
    const bool wide = ops->takes_floats && r->precision_facts.compute == TD_F64 &&
                      r->precision_ops->rewrite; // which makes the programs read it
    struct td_dataset_config config = {
        .struct_bytes = sizeof config,
        .knobs = c->data.knobs,
        .cache_dir = c->cache_dir,
        .targets = &r->targets,
        .floats = wide ? TD_F64 : TD_F32,
    };
    td_status s = td_data_open(r->accel_ops, r->accel, ops, &config, c->batch_size, &r->data);
    const enum td_code code = td_status_code(s);
    const char *advice = code == TD_NOT_FOUND   ? " (paths are those of this node)"
                         : code == TD_DATA_LOSS ? " (mend the file, or copy it again)"
                                                : "";
    if (s) return td_status_context(s, "open dataset '%s'%s", c->data.name, advice);
    if (c->whole_data && (c->stages & TD_STAGE_PREDICT) && r->facts.world_size > 1) {
        return td_bad_spec("trainer.use_distributed_sampler: false would predict each sample on "
                           "each of %d ranks; predict on 1, or leave it true",
                           r->facts.world_size);
    }
    if (c->val_split.is_fraction || c->val_split.batches) {
        const struct td_holdout_config holdout = {c->val_split, c->seed, c->keyed_order, r->plans};
        TD_TRY(td_data_hold_out(r->data, &holdout));
    }
    TD_TRY(td_rank_divide_data(r));
    if ((c->stages & TD_STAGE_FIT) && td_data_length(r->data, TD_SPLIT_TRAIN) == 0) {
        return td_status_with_class(
            td_fail(TD_FAILED_PRECONDITION, "dataset '%s' has no training samples", c->data.name),
            TD_CLASS_DATA);
    }
    return TD_OK;
}

td_status td_rank_open_module(struct td_rank *r) {
    size_t n_fields;
    const struct td_field *fields = td_data_recorded(r->data, &n_fields);
    TD_TRY_CTX(r->module_ops->open(r->config->model.knobs, fields, n_fields, &r->module),
               "open model '%s'", r->config->model.name);
    TD_TRY(td_rank_list_steps(r));
    return td_rank_connect_module(r);
}

td_status td_rank_connect_module(struct td_rank *r) {
    if (!r->strategy_ops->connect) return TD_OK;
    return r->strategy_ops->connect(r->strategy, r->module_ops, r->module);
}

// Which builds of plugins this rank runs is part of what its bits depend on. A rank that resumes
// compares them before it trains; the others' are for the manifest alone, and the checkpointer's.
td_status td_rank_list_plugins(struct td_rank *r) {
    struct td_resume_key *k = &r->key;
    size_t n;
    if (!r->resumed) return TD_OK;
    TD_TRY(td_registry_files(r->config->registry, k->plugin, &n));
    k->n_plugins = (int)n;
    return TD_OK;
}
