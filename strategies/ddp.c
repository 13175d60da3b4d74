// Strategy ddp: every rank holds all state; gradients are averaged over the world, bucket by
// bucket, while backward runs.
//
// Gradients are born inside the group's shared mapping where the collective has one, so reducing
// copies nothing. Buckets close in the order in which backward writes them, and the last one
// carries the control flags. They have torch's sizes on one node, smaller ones on several: what is
// sent last has nothing beside it. Only rank 0 reads a checkpoint, and at setup the others get what
// differs from its state. Buffers (batch norm's statistics) are each rank's own while it trains,
// because training does not read them; an evaluation begins with rank 0's, which are also what
// checkpoints hold. Rank 0 writes checkpoints; every other rank writes nothing. Source: torch
// DistributedDataParallel; Lightning's DDPStrategy.

#include "lib/base/base.h"
#include "strategies/strategies.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"

static const double nodes_cap_mb = 4; // of several nodes: see docs/measurements.md

struct td_strategy {
    struct td_strategy_config config;
    struct td_buffer gradients; // imported; bytes 0: the accelerator's own memory is used
    bool overlaps;
    const struct td_strategy_memory *memory;
};

// The spec refuses any other value of the knobs that are not read: they say what is the case. A
// size that the rank is given comes first.
static td_status read_knobs(struct td_strategy *s) {
    struct td_strategy_config *c = &s->config;
    const bool joins_nodes = c->collective_facts && c->collective_facts->joins_nodes;
    double mb = joins_nodes ? nodes_cap_mb : (double)(TD_BUCKET_CAP_BYTES >> 20);
    s->overlaps = true;
    if (td_knob_is_set(c->knobs, "bucket_cap_mb")) {
        TD_TRY(td_knob_real(c->knobs, "bucket_cap_mb", &mb));
    }
    if (c->knobs) TD_TRY(td_knob_bool(c->knobs, "overlap", &s->overlaps));
    if (!c->bucket_cap_bytes) c->bucket_cap_bytes = (size_t)(mb * (double)(1 << 20));
    if (!c->bucket_first_bytes) {
        c->bucket_first_bytes = TD_MIN(TD_BUCKET_FIRST_BYTES, c->bucket_cap_bytes);
    }
    return TD_OK;
}

static td_status ddp_open(const struct td_strategy_config *config,
                          struct td_strategy **out_strategy) {
    struct td_strategy *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    td_status bad = read_knobs(s);
    if (bad) {
        free(s);
        return bad;
    }
    *out_strategy = s;
    return TD_OK;
}

static void ddp_close(struct td_strategy *s) {
    if (!s) return;
    if (s->gradients.bytes) s->config.accel_ops->mem_free(s->config.accel, s->gradients);
    free(s);
}

static td_status ddp_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    const struct td_strategy_config *c = &s->config;
    *out_facts = (struct td_strategy_facts){
        .struct_bytes = sizeof *out_facts,
        .root_device = out_facts->root_device,
        .world_size = c->world_size,
        .global_rank = c->global_rank,
        .local_rank = c->local_rank,
        .node_rank = c->node_rank,
        .is_global_zero = c->global_rank == 0,
        .restore_optimizer = true,
        .resumes_exactly = true,
        .waits_for_buckets = !s->overlaps,
    };
    return TD_OK;
}

static td_status ddp_rewrite(struct td_strategy *s, struct td_graph *g,
                             const struct td_program_key *key) {
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    // Also in programs without sync: all variants of a step must agree about the buckets.
    TD_TRY(td_rewrite_assign_buckets(g, s->config.bucket_first_bytes, s->config.bucket_cap_bytes));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

static td_status ddp_place(struct td_strategy *s, const struct td_state_table *state,
                           struct td_strategy_memory *memory) {
    const struct td_strategy_config *c = &s->config;
    void *data = NULL;
    s->memory = memory;
    size_t bytes = 0, need = td_state_region_bytes(state, TD_ROLE_GRAD);
    TD_TRY(c->collective_ops->gradients(c->collective, &data, &bytes));
    if (!data || !c->accel_ops->mem_import) return TD_OK; // the collective copies
    if (bytes < need) {
        return td_fail(TD_FAILED_PRECONDITION,
                       "the group's mapping has %zu bytes for the gradients of a rank, but %zu are "
                       "needed; the launcher made it from another plan",
                       bytes, need);
    }
    TD_TRY(c->accel_ops->mem_import(c->accel, data, need, &s->gradients));
    memory->region[TD_ROLE_GRAD] = s->gradients;
    return TD_OK;
}

// Rank 0's bytes on every rank, through a piece of host memory: the region may be elsewhere.
static td_status broadcast(const struct td_strategy_config *c, struct td_buffer region) {
    enum { PIECE_BYTES = 8 << 20 };
    TD_AUTO_FREE char *piece = td_calloc(1, TD_MIN(region.bytes, (size_t)PIECE_BYTES));
    if (!piece) return td_fail_oom();
    for (size_t at = 0, n; at < region.bytes; at += n) {
        n = TD_MIN(region.bytes - at, (size_t)PIECE_BYTES);
        const struct td_buffer here = td_buffer_of_host(piece, n);
        TD_TRY(c->accel_ops->copy(c->accel, here, 0, region, at, n));
        TD_TRY(c->collective_ops->broadcast(c->collective, piece, n, 0));
        TD_TRY(c->accel_ops->copy(c->accel, region, at, here, 0, n));
    }
    return TD_OK;
}

static td_status ddp_hook(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch) {
    (void)batch;
    const struct td_buffer buffers = s->memory->region[TD_ROLE_BUFFER];
    if (hook != TD_HOOK_EVAL_START || !buffers.bytes) return TD_OK;
    return broadcast(&s->config, buffers);
}

static const struct td_strategy_ops ddp_ops = {
    .struct_bytes = sizeof ddp_ops,
    .open = ddp_open,
    .close = ddp_close,
    .environment = ddp_environment,
    .rewrite = ddp_rewrite,
    .place = ddp_place,
    .hook = ddp_hook,
};

const struct td_plugin_desc td_strategy_ddp = TD_PLUGIN_DESC(
    STRATEGY, "ddp", "replicated state, gradients averaged while backward runs", &ddp_ops);
