// Strategy single_device: one rank, all state on its own accelerator, nothing to exchange. The base
// case of every other strategy: collectives are the identity, but for all_gather, which still adds
// its leading dimension of size 1 (the bytes are the same).

#include <string.h>

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
        .world_size = 1,
        .is_global_zero = true,
        .restore_optimizer = true,
    };
    return TD_OK;
}

static td_status single_rewrite(struct td_strategy *s, struct td_graph *g,
                                const struct td_program_key *key) {
    (void)s, (void)g, (void)key;
    return TD_OK;
}

static td_status single_process_dataloader(struct td_strategy *s, enum td_split split,
                                           struct td_strategy_shard *out_shard) {
    (void)s, (void)split;
    *out_shard = (struct td_strategy_shard){.n_replicas = 1, .rank = 0};
    return TD_OK;
}

static td_status single_setup(struct td_strategy *s, const struct td_state_table *state,
                              const struct td_strategy_memory *memory) {
    (void)s, (void)state, (void)memory;
    return TD_OK;
}

static td_status single_reduce_gradients(struct td_strategy *s, void *data, int64_t n,
                                         enum td_dtype dtype, int64_t n_tail) {
    (void)s, (void)data, (void)n, (void)dtype, (void)n_tail;
    return TD_OK;
}

static td_status single_reduce(struct td_strategy *s, void *data, int64_t n, enum td_dtype dtype,
                               enum td_reduce_op op) {
    (void)s, (void)data, (void)n, (void)dtype, (void)op;
    return TD_OK;
}

static td_status single_all_gather(struct td_strategy *s, const void *in, size_t bytes, void *out) {
    (void)s;
    if (bytes) memmove(out, in, bytes);
    return TD_OK;
}

static td_status single_broadcast(struct td_strategy *s, void *data, size_t bytes, int32_t src) {
    (void)s, (void)data, (void)bytes;
    if (src != 0) return td_fail(TD_INVALID_ARGUMENT, "broadcast from rank %d of world 1", src);
    return TD_OK;
}

static td_status single_barrier(struct td_strategy *s, const char *tag) {
    (void)s, (void)tag;
    return TD_OK;
}

static td_status single_decision(struct td_strategy *s, bool decision, bool all,
                                 bool *out_decision) {
    (void)s, (void)all;
    *out_decision = decision;
    return TD_OK;
}

static td_status single_checkpoint(struct td_strategy *s, uint32_t *out_roles) {
    (void)s;
    *out_roles = 1u << TD_ROLE_PARAM | 1u << TD_ROLE_BUFFER | 1u << TD_ROLE_OPTIM;
    return TD_OK;
}

static const struct td_strategy_ops single_ops = {
    .struct_bytes = sizeof single_ops,
    .open = single_open,
    .close = single_close,
    .environment = single_environment,
    .rewrite = single_rewrite,
    .process_dataloader = single_process_dataloader,
    .setup = single_setup,
    .reduce_gradients = single_reduce_gradients,
    .reduce = single_reduce,
    .all_gather = single_all_gather,
    .broadcast = single_broadcast,
    .barrier = single_barrier,
    .reduce_boolean_decision = single_decision,
    .save_checkpoint = single_checkpoint,
    .load_checkpoint = single_checkpoint,
};

const struct td_plugin_desc td_strategy_single_device =
    TD_PLUGIN_DESC(STRATEGY, "single_device", "one rank, nothing to exchange", &single_ops);
