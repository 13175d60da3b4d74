// See the header.

#include "engine/train/plan/plan.h"

#include "engine/train/plan/monitor.h"
#include "engine/train/plan/sizes.h"
#include "engine/train/rank/optimizer.h"
#include "engine/train/rank/record.h"
#include "engine/train/rank/steps.h"

static td_status settle_state(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    if (c->stages & TD_STAGE_FIT) {
        TD_TRY(td_optimizer_check(&c->optimizer, r->state));
        TD_TRY(td_rank_check_steps(r));
        TD_TRY(td_monitor_check(r));
    }
    return td_state_layout(r->state);
}

td_status td_plan_programs(struct td_rank *r) {
    td_optimizer_options(&r->config->optimizer, &r->optimizer);
    r->optimizer.unscale = r->precision_facts.scales_loss;
    r->optimizer.wide = r->precision_facts.moments != r->precision_facts.param;
    TD_TRY(td_state_table_create(&r->state));
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
