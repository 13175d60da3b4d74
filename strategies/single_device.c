// Strategy single_device: one rank, all state on its own accelerator, nothing to exchange.
//
// It is what a strategy without slots does, in a world of one: the defaults of traind/strategy.h
// over the collective `local`, whose calls are identities.

#include "lib/base/base.h"
#include "strategies/strategies.h"
#include "traind/strategy.h"

struct td_strategy {
    struct td_strategy_config config;
};

static td_status single_open(const struct td_strategy_config *config,
                             struct td_strategy **out_strategy) {
    struct td_strategy *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    *out_strategy = s;
    return TD_OK;
}

static void single_close(struct td_strategy *s) {
    free(s);
}

static td_status single_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    if (s->config.world_size != 1) {
        return td_bad_spec("strategy single_device serves one rank, but the job has %d; use `ddp`",
                           s->config.world_size);
    }
    *out_facts = (struct td_strategy_facts){
        .struct_bytes = sizeof *out_facts,
        .root_device = out_facts->root_device,
        .world_size = 1,
        .is_global_zero = true,
        .restore_optimizer = true,
        .resumes_exactly = true,
    };
    return TD_OK;
}

static const struct td_strategy_ops single_ops = {
    .struct_bytes = sizeof single_ops,
    .open = single_open,
    .close = single_close,
    .environment = single_environment,
};

const struct td_plugin_desc td_strategy_single_device =
    TD_PLUGIN_DESC(STRATEGY, "single_device", "one rank, nothing to exchange", &single_ops);
