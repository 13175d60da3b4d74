// See the header.

#include "engine/train/rank/programs/counted.h"

#include <math.h>

#include "traind/op.h"
#include "engine/train/config/limits.h"
#include "engine/train/rank/group/group.h"
#include "engine/train/rank/programs/steps.h"

bool td_rank_divides(const struct td_rank *r) {
    const struct td_train_config *c = r->config;
    return c->counts_tokens && (c->stages & TD_STAGE_FIT) &&
           (r->facts.world_size > 1 || td_limits_ever_accumulates(&c->limits));
}

static td_status check_group(const struct td_rank *r) {
    if (r->hook) {
        return td_bad_spec("trainer.accumulate: tokens beside comm_hook '%s': what it sends need "
                           "not be the sum of gradients; leave one of the two out",
                           r->config->comm_hook.name);
    }
    if (!td_programs_have(r->programs, TD_MODE_TRAIN, TD_OP_ALL_REDUCE) ||
        r->strategy_ops->reduce_gradients) {
        return td_bad_spec("trainer.accumulate: tokens with strategy '%s', which does not average "
                           "the gradients of ranks as they are; use ddp, or leave accumulate out",
                           r->strategy_name);
    }
    return TD_OK;
}

td_status td_rank_check_counted(const struct td_rank *r) {
    if (!r->config->counts_tokens) return TD_OK;
    if (td_rank_is_manual(r)) {
        return td_bad_spec("trainer.accumulate: tokens with module '%s', whose training_step adds "
                           "up gradients itself; leave it out",
                           r->config->model.name);
    }
    if (r->facts.handles_gradient_accumulation) {
        return td_bad_spec("trainer.accumulate: tokens with strategy '%s', which accumulates "
                           "gradients itself; leave it out",
                           r->strategy_name);
    }
    if (r->strategy_ops->step_end) {
        return td_bad_spec(
            "trainer.accumulate: tokens with strategy '%s', whose step_end may change "
            "what a step has counted; leave it out",
            r->strategy_name);
    }
    return r->facts.world_size > 1 ? check_group(r) : TD_OK;
}

// The labels of a batch, or its samples.
static int64_t most_counted(const struct td_compiled *c) {
    const struct td_graph *g = c->graph;
    td_value v = 0, loss = td_graph_loss_value(g);
    enum td_output_kind kind = TD_OUTPUT_MEAN;
    for (uint32_t i = 1; i < td_graph_n_outputs(g) && kind != TD_OUTPUT_WEIGHT; i++) {
        td_value before;
        td_graph_output_at(g, i - 1, NULL, &before, NULL);
        if (before == loss) td_graph_output_at(g, i, NULL, &v, &kind);
    }
    const struct td_value_info *info =
        kind == TD_OUTPUT_WEIGHT ? td_graph_value(g, v) : td_graph_value(g, loss);
    if (info->kind != TD_VALUE_NODE) return c->program.key.batch;
    const struct td_node_info *node = td_graph_node(g, info->node);
    if (node->op != TD_OP_COUNT_LABELS) return c->program.key.batch;
    return td_shape_elems(&td_graph_value(g, node->inputs[0])->shape);
}

double td_rank_count_scale(const struct td_rank *r, int64_t window) {
    double of_sample = 1;
    int exponent;
    for (size_t i = 0; i < td_programs_count(r->programs); i++) {
        const struct td_compiled *c = td_programs_at(r->programs, i);
        if (c->program.key.mode != TD_MODE_TRAIN) continue;
        of_sample = (double)most_counted(c) / (double)c->program.key.batch;
        break;
    }
    (void)frexp(of_sample * (double)r->config->batch_size * (double)window, &exponent);
    return ldexp(1, -exponent);
}

// Ranks average, so a gradient is one over their number times the sum.
td_status td_rank_divisor(struct td_rank *r, double counted, double scale, double *out_divisor) {
    const double ranks = r->facts.world_size;
    if (ranks > 1) TD_TRY(td_rank_reduce(r, TD_GROUP_WORLD, &counted, 1, TD_F64, TD_REDUCE_SUM));
    *out_divisor = counted > 0 ? counted * scale / ranks : 1;
    return TD_OK;
}
