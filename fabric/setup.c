// Setup: from what the program said to a rank that can step. Its sections become a spec, checked by
// the tables that check a job's; the spec becomes a plan, the engine's configuration, and the rank.
// So defaults, messages and bits are those of a job.

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/train/build.h"
#include "engine/train/plan/sizes.h"
#include "fabric/configure/devices.h"
#include "fabric/configure/user_plugins.h"
#include "fabric/fabric.h"
#include "fabric/group_memory.h"
#include "lib/base/machine/machine.h"

enum { OVERRIDES = 16 };

// ---- the spec -----------------------------------------------------------------------------------
// Keys and values as a person would put them on a command line (lib/spec). What is wrong with one
// is said of the call or the option that it came by.
struct overrides {
    struct td_arena *arena;
    const char *at[OVERRIDES], *said_by[OVERRIDES];
    size_t n;
    bool full;
};

static void put(struct overrides *v, const char *said_by, const char *key, const char *value) {
    if (!value) return;
    TD_CHECK(v->n < OVERRIDES);
    v->said_by[v->n] = said_by;
    v->at[v->n] = td_arena_printf(v->arena, "%s=%s", key, value);
    v->full |= !v->at[v->n++];
}

static void put_number(struct overrides *v, const char *said_by, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put(v, said_by, key, text);
}

// Texts that may hold anything are quoted.
static td_status quote(struct td_fabric *f, const char *const *texts, size_t n, bool is_list,
                       const char **out) {
    TD_AUTO_BUF b;
    td_buf_init(&b, TD_SPEC_MAX_BYTES);
    if (is_list) TD_TRY(td_buf_str(&b, "["));
    for (size_t i = 0; i < n; i++) {
        if (i) TD_TRY(td_buf_str(&b, ", "));
        TD_TRY(td_json_print_string(texts[i], strlen(texts[i]), &b));
    }
    if (is_list) TD_TRY(td_buf_str(&b, "]"));
    *out = td_arena_printf(f->arena, "%.*s", (int)b.len, (const char *)b.data);
    return *out ? TD_OK : td_fail_oom();
}

static td_status spec_of(struct td_fabric *f, struct td_json **out_tree) {
    struct overrides v = {.arena = f->arena};
    const char *plugins = NULL, *path, *base = "name: fabric\n";
    const char *optimizer = f->optimizer ? f->optimizer : "{name: sgd, lr: 0.1}"; // nothing trains
    if (f->o.n_plugins) TD_TRY(quote(f, f->o.plugins, f->o.n_plugins, true, &plugins));
    const bool several = optimizer[strspn(optimizer, " \n")] == '[';
    const char *const optimizers = "td_fabric_setup_optimizers";
    put(&v, "td_fabric_setup_module", "model", f->model);
    put(&v, "td_fabric_setup_dataloaders", "data", f->data);
    put(&v, optimizers, several ? "optimizers" : "optimizer", optimizer);
    put(&v, optimizers, "lr_scheduler", f->schedule);
    put(&v, "options.trainer", "trainer", f->o.trainer);
    put(&v, "options.accelerator", "trainer.accelerator", f->o.accelerator);
    put(&v, "options.strategy", "trainer.strategy", f->o.strategy);
    put(&v, "options.precision", "trainer.precision", f->o.precision ? f->o.precision : "32-true");
    const int32_t n_nodes = td_fabric_n_nodes(f);
    put_number(&v, "options.devices", "trainer.devices",
               (f->env ? f->env->world_size : 1) / n_nodes);
    if (n_nodes > 1) put_number(&v, "options.num_nodes", "trainer.num_nodes", n_nodes);
    put(&v, "options.plugins", "plugins", plugins);
    put(&v, "options.comm_hook", "comm_hook", f->o.comm_hook);
    if (f->job && *f->job->spec.ckpt_path) {
        TD_TRY(quote(f, &f->job->spec.ckpt_path, 1, false, &path));
        put(&v, "the job", "ckpt_path", path);
    }
    if (f->seeded) {
        put_number(&v, "td_fabric_seed_everything", "seed_everything", (int64_t)f->seed);
    }
    if (f->o.threads) put_number(&v, "options.threads", "resources.threads", f->o.threads);
    if (v.full) return td_fail_oom();
    return td_status_context(
        td_spec_parse_said(f->arena, base, strlen(base), v.at, v.said_by, v.n, out_tree),
        "td_fabric_setup");
}

// What options.trainer may not say, because nobody would act on it: the struct has it, or the loop.
static const char *const not_in_trainer[] = {
    "accelerator",
    "strategy",
    "precision",
    "devices",
    "num_nodes",
    "accumulate_grad_batches",
    "accumulate",
    "limit_val_batches",
    "limit_test_batches",
    "limit_predict_batches",
    "val_check_interval",
    "min_steps",
    "check_val_every_n_epoch",
    "num_sanity_val_steps",
    "min_epochs",
    "log_every_n_steps",
    "fast_dev_run",
    "overfit_batches",
};
enum { OF_THE_STRUCT = 5 }; // the first of them

static td_status print_knob(const struct td_json *tree, const char *key, struct td_buf *out) {
    const struct td_json *v = td_json_get(td_json_get(tree, "trainer"), key);
    return v ? td_json_print(v, false, out) : TD_OK;
}

// A key that has its default says nothing.
static td_status check_trainer(struct td_fabric *f) {
    const char *text = "name: fabric\nmodel: {name: mlp, layers: [2, 2]}\n"
                       "data: {name: synthetic, batch_size: 1}\noptimizer: {name: sgd, lr: 1}\n";
    struct td_json *with, *without;
    if (!f->o.trainer) return TD_OK;
    const char *own = td_arena_printf(f->arena, "trainer=%s", f->o.trainer);
    const char *const said_by = "options.trainer";
    if (!own) return td_fail_oom();
    TD_TRY(td_spec_parse_said(f->arena, text, strlen(text), &own, &said_by, 1, &with));
    TD_TRY(td_spec_parse(f->arena, text, strlen(text), NULL, 0, &without));
    for (size_t i = 0; i < TD_COUNTOF(not_in_trainer); i++) {
        TD_AUTO_BUF a;
        TD_AUTO_BUF b;
        td_buf_init(&a, TD_SPEC_MAX_BYTES);
        td_buf_init(&b, TD_SPEC_MAX_BYTES);
        TD_TRY(print_knob(with, not_in_trainer[i], &a));
        TD_TRY(print_knob(without, not_in_trainer[i], &b));
        if (a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0)) continue;
        return td_bad_spec("options.trainer has %s, %s", not_in_trainer[i],
                           i < OF_THE_STRUCT
                               ? "which the options say themselves"
                               : "on which nobody would act: the loop is the program's");
    }
    return TD_OK;
}

static td_status plan_of(struct td_fabric *f, struct td_buf *out) {
    struct td_json *tree;
    struct td_plan plan;
    struct td_plan_run run = f->job ? f->job->run : (struct td_plan_run){0};
    if (!f->job) run.checkpoint_dir = f->o.checkpoint_dir;
    if (!f->job) run.cache_dir = f->o.cache_dir;
    run.world_size = f->env ? f->env->world_size : 1;
    TD_TRY(check_trainer(f));
    TD_TRY(spec_of(f, &tree));
    TD_TRY(td_plan_build(f->arena, tree, &run, &plan));
    return td_plan_print(&plan, out);
}

static td_status configure(struct td_fabric *f) {
    TD_AUTO_BUF plan;
    td_buf_init(&plan, 4 * TD_SPEC_MAX_BYTES);
    TD_TRY(plan_of(f, &plan));
    TD_TRY(td_buf_append(&plan, "", 1));
    const struct td_rank_args args = {
        .plan_text = plan.data,
        .own_plugins = f->o.own_plugins,
        .n_own_plugins = f->o.n_own_plugins,
        .cpu_level = td_fabric_cpu_level(),
        .cpu_level_from = TD_CPU_LEVEL_ENV,
        .plugin_dirs = TD_USER_PLUGINS_ANY, // who runs a program permits its plugins
        .rank = f->env ? f->env->rank : 0,
        .world_size = f->env ? f->env->world_size : 1,
        .n_sharing = f->env && !f->in_job ? f->env->world_size : 1, // td_spawn pins nobody
    };
    TD_TRY(td_rank_configure(&args, &f->config));
    struct td_train_config *t = &f->config->train;
    t->manual = true;
    if (f->in_job && f->job) t->memory_bytes = (size_t)f->job->spec.resources.memory_bytes;
    t->manual_accumulates = f->o.accumulates;
    t->manual_keeps_forwards = f->o.keeps_forwards;
    t->stages = (f->optimizer ? TD_STAGE_FIT : 0) | TD_STAGE_VALIDATE | TD_STAGE_TEST;
    if (t->schedule.kind == TD_SCHEDULE_REDUCE_ON_PLATEAU) {
        return td_bad_spec(
            "reduce_on_plateau follows the validations of a job's loop; say the rate "
            "with td_fabric_set_lr");
    }
    t->checkpoint.save_top_k = -1; // whoever saves says how many there are
    t->checkpoint.every_n_epochs = t->checkpoint.every_n_train_steps = 0;
    t->checkpoint.monitor = NULL;
    return td_devices_choose(t, NULL, &t->device);
}

// ---- the rank -----------------------------------------------------------------------------------
// How much the ranks share is known from the recorded programs: they are recorded once for that.
static td_status share_memory(struct td_fabric *f) {
    const struct td_train_config *t = &f->config->train;
    if (t->local_world_size == 1) return TD_OK;
    struct td_sizes sizes;
    TD_AUTO(td_rank) *planned = NULL;
    TD_TRY(td_rank_create_plan(&f->config->train, &f->io.train, &f->events, &planned));
    TD_TRY(td_sizes_measure(planned, &sizes));
    const struct td_group_memory m = {.env = f->env,
                                      .page = f->io.train.page,
                                      .is_first = t->local_rank == 0,
                                      .bytes = sizes.shared_bytes,
                                      .timeout_ns = t->save_timeout_ns};
    TD_TRY(td_group_memory_map(&m, &f->io.train.group));
    f->io.train.group_bytes = sizes.shared_bytes;
    if (!t->memory_bytes) return TD_OK;
    return td_group_memory_charge(sizes.shared_bytes / (size_t)t->local_world_size);
}

static td_status begin_loop(struct td_fabric *f) {
    td_train_loop_init(&f->loop, f->rank);
    td_manual_init(&f->manual, &f->loop);
    if (!f->optimizer) return TD_OK;
    TD_TRY(td_train_loop_settle(&f->loop));
    TD_TRY(td_epoch_metrics_begin(&f->loop.played, f->rank));
    td_control_progress(&f->rank->control, &f->loop.at, 0, 0);
    if (f->rank->facts.is_global_zero) td_events_stage_start(&f->events, "fit");
    return td_rank_hook(f->rank, TD_HOOK_TRAIN_START, 0);
}

static td_status set_up(struct td_fabric *f) {
    td_control_phase(&(struct td_control){.page = f->io.train.page}, TD_PHASE_LOADING);
    TD_TRY(configure(f));
    td_denormals_flush(); // of this thread; accelerators do the same in their own
    TD_TRY(share_memory(f));
    td_events_ready(&f->events);
    TD_TRY(td_rank_create(&f->config->train, &f->io.train, &f->events, &f->rank));
    return begin_loop(f);
}

td_status td_fabric_setup(struct td_fabric *f) {
    TD_CHECK(f->magic == TD_FABRIC_MAGIC);
    if (f->ended) return td_fabric_misuse("td_fabric_setup after td_fabric_finish");
    if (f->config) return td_fabric_misuse("td_fabric_setup was called already");
    if (!f->model) return td_fabric_misuse("td_fabric_setup without td_fabric_setup_module");
    if (!f->data) return td_fabric_misuse("td_fabric_setup without td_fabric_setup_dataloaders");
    return td_fabric_failed(f, set_up(f));
}

// ---- facts --------------------------------------------------------------------------------------
void td_fabric_get_facts(const struct td_fabric *f, struct td_fabric_facts *out_facts) {
    const struct td_rank *r = f->rank;
    const int32_t rank = f->env ? f->env->rank : 0, world = f->env ? f->env->world_size : 1;
    const int32_t on_node = world / td_fabric_n_nodes(f);
    struct td_fabric_facts facts = {
        .struct_bytes = out_facts->struct_bytes,
        .world_size = world,
        .global_rank = rank,
        .local_rank = rank % on_node,
        .node_rank = rank / on_node,
        .is_global_zero = rank == 0,
        .is_set_up = r,
        .device = -1,
    };
    if (r) {
        facts.world_size = r->facts.world_size;
        facts.global_rank = r->facts.global_rank;
        facts.local_rank = r->facts.local_rank;
        facts.node_rank = r->facts.node_rank;
        facts.is_global_zero = r->facts.is_global_zero;
        facts.device = r->facts.root_device;
        facts.accelerator = r->accel_name;
        facts.strategy = r->strategy_name;
        facts.precision = r->precision_name;
        facts.collective = r->group_name;
        facts.global_step = f->loop.queued.step;
        facts.epoch = f->loop.at.epoch;
        facts.resumed = r->resumed;
        facts.can_save = f->optimizer && f->config->train.checkpoint.dir;
    }
    memcpy(out_facts, &facts, TD_MIN(out_facts->struct_bytes, sizeof facts));
}
