// Read the tables from `environment` on first: they are the order in which a rank comes to be. Each
// step either finishes or leaves what destroy can take down.

#include "engine/train/build.h"

#include <stdio.h>
#include <string.h>

#include "engine/train/plan/choices.h"
#include "engine/train/plan/plan.h"
#include "engine/train/plan/sizes.h"
#include "engine/train/rank/group/comm_hook.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/group/join.h"
#include "engine/train/rank/group/replicas.h"
#include "engine/train/rank/group/sums.h"
#include "engine/train/rank/plugins.h"
#include "engine/train/rank/state/own_state.h"
#include "engine/train/rank/state/state.h"
#include "engine/train/rank/state/writers.h"
#include "engine/train/rank/step.h"

enum { ARENA_BYTES = 128 << 20 };

// ---- programs -----------------------------------------------------------------------------------

// What may surprise somebody.
static void note_programs(const struct td_rank *r) {
    char names[256], slow[TD_SIZES_SLOW];
    uint32_t n = td_programs_slow(r->programs, names, sizeof names);
    td_sizes_say_slow(r, n, names, slow);
    if (n) td_events_note(r->events, "%s", slow);
    n = td_programs_unreached(r->programs, names, sizeof names);
    if (n) {
        td_events_note(r->events, "%u parameter%s not trained, as no training step uses %s: %s", n,
                       n == 1 ? " is" : "s are", n == 1 ? "it" : "them", names);
    }
}

static td_status bind_programs(struct td_rank *r) {
    struct td_bindings b = {
        .struct_bytes = sizeof b,
        .scalars = r->scalars,
        .random = r->random,
        .outputs = r->outputs,
        .control = r->control.flags,
        .control_offset = td_state_control_offset(r->state),
    };
    td_rank_bind_sums(r, &b);
    memcpy(b.region, r->memory.region, sizeof b.region);
    r->scalars[TD_SCALAR_LOSS_SCALE] = 1;
    r->scalars[TD_SCALAR_WINDOW] = r->scalars[TD_SCALAR_DIVISOR] = 1;
    r->scalars[TD_SCALAR_RANK] = r->facts.global_rank;
    TD_TRY(td_choices_bind(r, &b));
    TD_TRY(td_rank_prepare(r));
    note_programs(r);
    return TD_OK;
}

// ---- what leaves the rank -----------------------------------------------------------------------

static void print_metrics(void *arg) {
    struct td_rank *r = arg;
    (void)td_metrics_print(&r->metrics);
}

static td_status start_background(struct td_rank *r) {
    r->metrics.ring = r->io->ring;
    r->metrics.launcher = r->io->print_metrics ? NULL : r->io->page;
    td_control_init(&r->control, r->io->page, r->facts.is_global_zero, r->config->limits.max_time_s,
                    r->start.elapsed_ns);
    TD_TRY(td_background_create(r->io->print_metrics ? print_metrics : NULL, r, &r->background));
    struct td_checkpointer_options options = {
        .config = &r->config->checkpoint,
        .state = r->state,
        .accel_ops = r->accel_ops,
        .accel = r->accel,
        .roles = td_rank_writes(r) ? r->writers.roles : 0,
        .whole_roles = r->writers.apart,
        .shadows =
            td_sizes_shadows(r) && !r->writers.sends, // what comes from others is on the host
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
    return td_checkpointer_create(&options, &r->checkpointer);
}

// ---- building -----------------------------------------------------------------------------------

typedef td_status (*build_step)(struct td_rank *r);

static td_status open_timeline(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (!c->trace_dir) return TD_OK;
    return td_timeline_create(c->trace_dir, c->attempt, c->rank, &r->timeline);
}

static td_status announce(struct td_rank *r) {
    return td_sizes_announce(r);
}

// clang-format off
static const build_step environment[] = {
    open_timeline, td_rank_open_accelerator, td_rank_find_group, td_rank_join_group,
    td_rank_open_precision, td_rank_open_strategy, td_rank_open_hook,
    td_rank_check_precision, td_rank_check_hook,
};
static const build_step connect[] = {
    td_rank_open_data, td_rank_open_module, td_rank_choose_start, td_rank_list_plugins,
    td_plan_programs, td_rank_check_sums, td_rank_compare,
};
static const build_step setup[] = {
    td_rank_lay_state, td_rank_lay_sums, td_rank_lay_hook,
    td_rank_initialize_state, td_rank_restore_state, td_rank_set_up_strategy,
};
static const build_step pre_dispatch[] = {
    td_rank_create_late, td_rank_load_own_state,
    bind_programs, start_background, td_choices_freeze, announce,
};

// Of a plan.
static const build_step planning[] = {
    td_rank_open_accelerator, td_rank_find_group,
    td_rank_open_precision, td_rank_open_strategy, td_rank_open_hook,
    td_rank_check_precision, td_rank_check_hook,
    td_rank_open_data, td_rank_open_module, td_plan_programs, td_rank_check_sums,
};
// The same under another precision, with data and module open.
static const build_step replanning[] = {
    td_rank_open_named_precision, td_rank_open_strategy, td_rank_open_hook,
    td_rank_check_precision, td_rank_check_hook,
    td_rank_divide_data, td_rank_connect_module, td_plan_programs, td_rank_check_sums,
};
// clang-format on

#define STAGE(steps)                                                                               \
    { "td_rank_" #steps, steps, TD_COUNTOF(steps) }
static const struct {
    const char *name;
    const build_step *steps;
    size_t n;
} building[] = {
    [TD_RANK_BEGUN] = {"td_rank_setup_environment", environment, TD_COUNTOF(environment)},
    [TD_RANK_HAS_ENVIRONMENT] = STAGE(connect),
    [TD_RANK_CONNECTED] = STAGE(setup),
    [TD_RANK_SET_UP] = STAGE(pre_dispatch),
};

// What a rank is at from this step on.
static const struct {
    build_step step;
    enum td_rank_phase phase;
} loading[] = {
    {td_rank_open_accelerator, TD_PHASE_LOADING_DEVICES},
    {td_rank_open_data, TD_PHASE_LOADING_DATA},
    {td_rank_choose_start, TD_PHASE_LOADING_CHECKPOINT},
    {td_plan_programs, TD_PHASE_LOADING_MODEL},
    {td_rank_lay_state, TD_PHASE_LOADING_WEIGHTS},
    {bind_programs, TD_PHASE_LOADING_KERNELS},
};

static void say_phase(const struct td_rank *r, build_step step) {
    for (size_t i = 0; i < TD_COUNTOF(loading) && !r->plans; i++) {
        if (loading[i].step != step) continue;
        td_control_phase(&(struct td_control){.page = r->io->page}, loading[i].phase);
    }
}

static td_status take(struct td_rank *r, const build_step *steps, size_t n) {
    for (size_t i = 0; i < n; i++) {
        say_phase(r, steps[i]);
        td_status s = td_rank_classify(steps[i](r));
        if (!s) continue;
        r->stage = TD_RANK_FAILED;
        td_rank_fail(r, s);
        return s;
    }
    return TD_OK;
}

static td_status advance(struct td_rank *r, enum td_rank_stage from) {
    if (r->stage != from) {
        const bool goes_on = r->stage < TD_COUNTOF(building) && !r->plans;
        return td_fail(TD_FAILED_PRECONDITION, "%s out of turn: %s%s", building[from].name,
                       goes_on ? "next is " : "nothing is left to build",
                       goes_on ? building[r->stage].name : "");
    }
    TD_TRY(take(r, building[from].steps, building[from].n));
    r->stage++;
    return TD_OK;
}

td_status td_rank_begin(const struct td_train_config *config, struct td_train_io *io,
                        struct td_events *events, struct td_rank **out_rank) {
    TD_AUTO(td_rank) *r = td_calloc(1, sizeof *r);
    if (!r) return td_fail_oom();
    r->config = config;
    r->io = io;
    r->events = events;
    td_plugin_state_init(&r->own);
    TD_TRY(td_arena_create(ARENA_BYTES, &r->arena));
    *out_rank = td_steal(r);
    return TD_OK;
}

td_status td_rank_setup_environment(struct td_rank *r) {
    return advance(r, TD_RANK_BEGUN);
}

td_status td_rank_connect(struct td_rank *r) {
    return advance(r, TD_RANK_HAS_ENVIRONMENT);
}

td_status td_rank_setup(struct td_rank *r) {
    return advance(r, TD_RANK_CONNECTED);
}

td_status td_rank_pre_dispatch(struct td_rank *r) {
    return advance(r, TD_RANK_SET_UP);
}

td_status td_rank_create(const struct td_train_config *config, struct td_train_io *io,
                         struct td_events *events, struct td_rank **out_rank) {
    TD_AUTO(td_rank) *r = NULL;
    TD_TRY(td_rank_begin(config, io, events, &r));
    TD_TRY(td_rank_setup_environment(r));
    TD_TRY(td_rank_connect(r));
    TD_TRY(td_rank_setup(r));
    TD_TRY(td_rank_pre_dispatch(r));
    *out_rank = td_steal(r);
    return TD_OK;
}

td_status td_rank_create_plan(const struct td_train_config *config, struct td_train_io *io,
                              struct td_events *events, struct td_rank **out_rank) {
    TD_AUTO(td_rank) *r = NULL;
    TD_TRY(td_rank_begin(config, io, events, &r));
    r->plans = true;
    TD_TRY(take(r, planning, TD_COUNTOF(planning)));
    *out_rank = td_steal(r);
    return TD_OK;
}

td_status td_rank_replan(struct td_rank *r, const char *precision) {
    TD_CHECK(r->plans);
    td_programs_destroy(td_steal(r->programs));
    td_state_table_destroy(td_steal(r->state));
    td_rank_close_hook(r);
    if (r->strategy_ops) r->strategy_ops->close(td_steal(r->strategy));
    if (r->precision_ops) r->precision_ops->close(td_steal(r->precision));
    r->precision_name = precision;
    for (size_t i = 0; i < TD_COUNTOF(replanning); i++) {
        TD_TRY(td_rank_classify(replanning[i](r)));
    }
    return TD_OK;
}
