// Strategy `zero1`, as a user might write it: each rank keeps and updates one piece of the
// optimizer's state. Gradients are reduced in pieces (reduce_scatter), parameters are gathered
// after the update (all_gather). docs/extending.md goes through it. It includes installed headers
// alone.

#include <stdlib.h>
#include <string.h>

#include "traind/plugin.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"

struct td_strategy {
    struct td_strategy_config config;
};

static td_status zero1_open(const struct td_strategy_config *config,
                            struct td_strategy **out_strategy) {
    struct td_strategy *s = calloc(1, sizeof *s);
    if (!s) return td_fail(TD_RESOURCE_EXHAUSTED, "no memory for strategy 'zero1'");
    s->config = *config;
    if (!s->config.bucket_first_bytes) s->config.bucket_first_bytes = TD_BUCKET_FIRST_BYTES;
    if (!s->config.bucket_cap_bytes) s->config.bucket_cap_bytes = TD_BUCKET_CAP_BYTES;
    *out_strategy = s;
    return TD_OK;
}

static void zero1_close(struct td_strategy *s) {
    free(s);
}

static td_status zero1_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    const struct td_strategy_config *c = &s->config;
    struct td_strategy_facts f;
    memset(&f, 0, sizeof f);
    f.struct_bytes = sizeof f;
    f.root_device = out_facts->root_device;
    f.world_size = c->world_size;
    f.global_rank = c->global_rank;
    f.local_rank = c->local_rank;
    f.node_rank = c->node_rank;
    f.is_global_zero = c->global_rank == 0;
    f.restore_optimizer = true;
    f.resumes_exactly = true;
    *out_facts = f;
    return TD_OK;
}

// All programs of a step have the same buckets and the same pieces. Those that end a window reduce.
static td_status zero1_rewrite(struct td_strategy *s, struct td_graph *g,
                               const struct td_program_key *key) {
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, s->config.bucket_first_bytes, s->config.bucket_cap_bytes));
    TD_TRY(td_rewrite_split_gradients(g));
    return key->sync ? td_rewrite_reduce_scatter(g) : TD_OK;
}

// The optimizer pass has put the update of each piece there.
static td_status zero1_rewrite_update(struct td_strategy *s, struct td_graph *g,
                                      const struct td_program_key *key) {
    (void)s, (void)key;
    return td_rewrite_all_gather(g);
}

static const struct td_strategy_ops zero1_ops = {
    .struct_bytes = sizeof zero1_ops,
    .open = zero1_open,
    .close = zero1_close,
    .environment = zero1_environment,
    .rewrite = zero1_rewrite,
    .rewrite_update = zero1_rewrite_update,
};
TD_PLUGIN(STRATEGY, "zero1", "optimizer state in pieces, a rank each", &zero1_ops)
