// Strategy ddp: every rank holds all state; gradients are averaged over the world, bucket by
// bucket, while backward runs.
//
// Gradients are born inside the group's shared mapping where the collective has one, so reducing
// copies nothing. Buckets close in the order in which backward writes them, with torch's sizes, and
// the last one carries the control flags. At setup rank 0's parameters, buffers and optimizer state
// are broadcast where their digests differ. Only rank 0 reads a checkpoint, and a rank that
// initialized differently is corrected rather than believed. At a fresh start nothing differs, and
// to compare 8 MB takes a third of the time of sending them. Buffers (batch norm's statistics) are
// each rank's own while it trains, because training does not read them; an evaluation begins with
// rank 0's, which are also what checkpoints hold. Rank 0 writes checkpoints; every other rank
// writes nothing.
// Source: torch DistributedDataParallel; Lightning's DDPStrategy.

#include "lib/base/base.h"
#include "lib/base/digest.h"
#include "strategies/strategies.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"

struct td_strategy {
    struct td_strategy_config config;
    struct td_buffer gradients; // imported; bytes 0: the accelerator's own memory is used
    struct td_span buffers;     // of this rank, in host memory
};

static td_status ddp_open(const struct td_strategy_config *config,
                          struct td_strategy **out_strategy) {
    struct td_strategy *s = td_calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config;
    if (!s->config.bucket_first_bytes) s->config.bucket_first_bytes = TD_BUCKET_FIRST_BYTES;
    if (!s->config.bucket_cap_bytes) s->config.bucket_cap_bytes = TD_BUCKET_CAP_BYTES;
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
        .root_device = 0,
        .world_size = c->world_size,
        .global_rank = c->global_rank,
        .local_rank = c->local_rank,
        .node_rank = c->node_rank,
        .is_global_zero = c->global_rank == 0,
        .restore_optimizer = true,
        .resumes_exactly = true,
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

enum { N_REPLICATED = 3 };
static const enum td_role replicated[N_REPLICATED] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};

static td_status find_replicas(const struct td_state_table *state,
                               const struct td_strategy_memory *memory,
                               struct td_span out_spans[N_REPLICATED]) {
    for (size_t i = 0; i < N_REPLICATED; i++) {
        size_t bytes = td_state_region_bytes(state, replicated[i]);
        void *host = bytes ? td_buffer_host(memory->region[replicated[i]]) : NULL;
        if (bytes && !host) {
            return td_fail(TD_UNIMPLEMENTED,
                           "ddp broadcasts state in host memory only; region '%s' "
                           "is on a device",
                           td_role_name(replicated[i]));
        }
        out_spans[i] = (struct td_span){host, bytes};
    }
    return TD_OK;
}

// Has every rank the same bytes in each region?
static td_status compare_replicas(struct td_strategy *s, const struct td_span spans[N_REPLICATED],
                                  bool out_same[N_REPLICATED]) {
    const struct td_strategy_config *c = &s->config;
    uint64_t own[N_REPLICATED];
    TD_AUTO_FREE uint64_t *all = td_calloc((size_t)c->world_size, sizeof own);
    if (!all) return td_fail_oom();
    for (size_t i = 0; i < N_REPLICATED; i++) {
        own[i] = td_xxh3_64(spans[i].data, spans[i].bytes);
        out_same[i] = true;
    }
    TD_TRY(c->collective_ops->all_gather(c->collective, own, sizeof own, all));
    for (size_t i = 0; i < (size_t)c->world_size * N_REPLICATED; i++) {
        out_same[i % N_REPLICATED] &= all[i] == all[i % N_REPLICATED];
    }
    return TD_OK;
}

static td_status ddp_setup(struct td_strategy *s, const struct td_state_table *state,
                           const struct td_strategy_memory *memory) {
    const struct td_strategy_config *c = &s->config;
    struct td_span spans[N_REPLICATED];
    bool same[N_REPLICATED];
    TD_TRY(find_replicas(state, memory, spans));
    TD_TRY_CTX(compare_replicas(s, spans, same), "compare the state of ranks");
    for (size_t i = 0; i < N_REPLICATED; i++) {
        if (replicated[i] == TD_ROLE_BUFFER) s->buffers = spans[i];
        if (same[i]) continue;
        TD_TRY_CTX(c->collective_ops->broadcast(c->collective, spans[i].data, spans[i].bytes, 0),
                   "broadcast the %s state of rank 0", td_role_name(replicated[i]));
    }
    return TD_OK;
}

static td_status ddp_hook(struct td_strategy *s, enum td_strategy_hook hook, int64_t batch) {
    (void)batch;
    if (hook != TD_HOOK_EVAL_START || !s->buffers.bytes) return TD_OK;
    return s->config.collective_ops->broadcast(s->config.collective, s->buffers.data,
                                               s->buffers.bytes, 0);
}

static const struct td_strategy_ops ddp_ops = {
    .struct_bytes = sizeof ddp_ops,
    .open = ddp_open,
    .close = ddp_close,
    .environment = ddp_environment,
    .rewrite = ddp_rewrite,
    .place = ddp_place,
    .setup = ddp_setup,
    .hook = ddp_hook,
};

const struct td_plugin_desc td_strategy_ddp = TD_PLUGIN_DESC(
    STRATEGY, "ddp", "replicated state, gradients averaged while backward runs", &ddp_ops);
