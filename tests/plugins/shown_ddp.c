// Strategy `shown_ddp`, for tests: ddp itself, and each rank's own parameters, buffers and
// optimizer state.
//
// A checkpoint of ddp has the weights of rank 0, and whoever reads them cannot see that another
// rank has parted. This one is ddp's source as it is. What it adds is a state for the checkpoint,
// the bytes of this rank's regions, which the engine gathers from all ranks beside the weights.

#include "strategies/ddp.c" // its functions are static, and nothing here may differ from them

#include "traind/plugin.h"

static const enum td_role shown[] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};
static const struct td_state_table *table; // of the one rank of this process
static char *bytes_of_rank;

// As the strategy `auto`, which gives ddp no knobs.
static td_status shown_open(const struct td_strategy_config *config,
                            struct td_strategy **out_strategy) {
    struct td_strategy_config plain = *config;
    plain.knobs = NULL;
    return ddp_open(&plain, out_strategy);
}

static td_status shown_place(struct td_strategy *s, const struct td_state_table *state,
                             struct td_strategy_memory *memory) {
    table = state;
    return ddp_place(s, state, memory);
}

static void shown_close(struct td_strategy *s) {
    free(bytes_of_rank);
    bytes_of_rank = NULL;
    ddp_close(s);
}

static td_status shown_state_save(struct td_strategy *s, enum td_strategy_state which,
                                  struct td_span *out_state) {
    const struct td_strategy_config *c = &s->config;
    size_t all = 0;
    *out_state = (struct td_span){0};
    if (which != TD_STRATEGY_RANK) return TD_OK;
    for (size_t i = 0; i < TD_COUNTOF(shown); i++) {
        all += td_state_region_bytes(table, shown[i]);
    }
    if (!bytes_of_rank) bytes_of_rank = td_calloc(1, all);
    if (!bytes_of_rank) return td_fail_oom();
    char *at = bytes_of_rank;
    for (size_t i = 0; i < TD_COUNTOF(shown); i++) {
        const size_t n = td_state_region_bytes(table, shown[i]);
        if (!n) continue;
        TD_TRY(c->accel_ops->copy(c->accel, td_buffer_of_host(at, n), 0,
                                  s->memory->region[shown[i]], 0, n));
        at += n;
    }
    *out_state = (struct td_span){.data = bytes_of_rank, .bytes = all};
    return TD_OK;
}

static td_status shown_state_load(struct td_strategy *s, enum td_strategy_state which,
                                  const void *data, size_t bytes) {
    (void)s, (void)which, (void)data, (void)bytes; // it is what rank 0 read, for all
    return TD_OK;
}

static const struct td_strategy_ops shown_ops = {
    .struct_bytes = sizeof shown_ops,
    .open = shown_open,
    .close = shown_close,
    .environment = ddp_environment,
    .rewrite = ddp_rewrite,
    .place = shown_place,
    .hook = ddp_hook,
    .state_save = shown_state_save,
    .state_load = shown_state_load,
};
TD_PLUGIN(STRATEGY, "shown_ddp", "ddp, and what each rank has", &shown_ops)
