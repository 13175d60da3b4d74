// See the header.

#include "engine/train/plan/plan.h"

#include "traind/op.h"
#include "engine/train/config/schedule.h"
#include "engine/train/plan/amounts.h"
#include "engine/train/plan/monitor.h"
#include "engine/train/plan/sizes.h"
#include "engine/train/rank/programs/counted.h"
#include "engine/train/rank/programs/optimizer.h"
#include "engine/train/rank/programs/record.h"
#include "engine/train/rank/programs/steps.h"
#include "engine/train/rank/programs/uneven.h"
#include "engine/train/rank/scores/scores.h"

static td_status settle_state(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    TD_TRY(td_scores_check(r));
    TD_TRY(td_amounts_check(r));
    if (c->stages & TD_STAGE_FIT) {
        TD_TRY(td_optimizers_check(c, r->state));
        TD_TRY(td_rank_check_steps(r));
        TD_TRY(td_rank_check_counted(r));
        TD_TRY(td_monitor_check(r));
    }
    TD_TRY(td_state_layout(r->state));
    return td_rank_check_uneven(r);
}

// What a checkpoint calls the way in which weights move: "adam", or "disc: adam, gen: sgd".
static td_status name_method(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const struct td_schedule_config *s = &c->schedule;
    r->optimizer_name = td_op_name(r->optimizer.op);
    r->schedule_name = td_schedule_name(s->kind);
    for (int i = 0; i < c->n_optimizers; i++) {
        const struct td_named_optimizer *o = &c->optimizers[i];
        struct td_optimizer_options options;
        td_optimizer_options(&o->optimizer, &options);
        const char *sep = i ? ", " : "";
        r->optimizer_name = td_arena_printf(r->arena, "%s%s%s: %s", i ? r->optimizer_name : "", sep,
                                            o->name, td_op_name(options.op));
        r->schedule_name = td_arena_printf(r->arena, "%s%s%s: %s", i ? r->schedule_name : "", sep,
                                           o->name, td_schedule_name(o->schedule.kind));
        if (!r->optimizer_name || !r->schedule_name) return td_fail_oom();
    }
    return TD_OK;
}

td_status td_plan_programs(struct td_rank *r) {
    td_optimizers_options(r->config, &r->optimizer);
    TD_TRY(name_method(r));
    r->optimizer.unscale = r->precision_facts.scales_loss;
    r->optimizer.divides = td_rank_divides(r);
    r->optimizer.wide = r->precision_facts.moments != r->precision_facts.param;
    TD_TRY(td_state_table_create(&r->state));
    td_state_set_rank(r->state, r->facts.global_rank, r->facts.world_size);
    enum td_recompute first, last;
    TD_TRY(td_sizes_levels(r, &first, &last));
    for (r->recompute = first;; r->recompute++) {
        bool fits;
        TD_TRY(td_rank_record(r, r->recompute));
        if (r->recompute == first) TD_TRY(settle_state(r));
        TD_TRY(td_sizes_fit(r, &fits));
        if (fits) return TD_OK;
        if (r->recompute < last) continue;
        // What the machine has is the scheduler's to judge; a rank only keeps less because of it.
        bool refuses = r->config->memory_bytes || r->accel_facts.own_memory;
        return refuses ? td_sizes_refuse(r) : TD_OK;
    }
}
