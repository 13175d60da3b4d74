// Strategy `local_sgd`: each rank trains by itself, and every `every` steps the ranks take the mean
// of their parameters.
//
//   cc -shared -fPIC -o strategy-local_sgd.so local_sgd.c $(pkg-config --cflags --libs traind)
//
// It rewrites no program, so gradients are never reduced: the least that ranks can send. Between
// two means they have different weights, and a checkpoint holds those of rank 0. So each rank keeps
// its own parameters and optimizer state beside it, and the job keeps how many means were taken. A
// run that is resumed gives the same bits. post_local_sgd.c begins with averaged gradients. Source:
// Stich 2018, "Local SGD Converges Fast and Communicates Little".

#include <stdlib.h>
#include <string.h>

#include "traind/knobs.h"
#include "traind/plugin.h"
#include "traind/strategy.h"

#define TIMEOUT_NS (60 * TD_NS_PER_S) // of a run

struct td_strategy {
    struct td_strategy_config config;
    const struct td_state_table *state;
    const struct td_strategy_memory *memory;
    int64_t every, means;
    int64_t steps; // of this rank, since the last mean
    bool wrote;    // parameters, since the last run
    char *kept;    // what state_save gave last
    char *here;    // parameters on the host, while the mean is taken
};

static td_status local_open(const struct td_strategy_config *config,
                            struct td_strategy **out_strategy) {
    int64_t every;
    TD_TRY(td_knob_int(config->knobs, "every", &every));
    struct td_strategy *s = (struct td_strategy *)calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config; // the struct dies when open returns, what it points to lives on
    s->every = every;
    *out_strategy = s;
    return TD_OK;
}

static void local_close(struct td_strategy *s) {
    if (!s) return;
    free(s->kept);
    free(s->here);
    free(s);
}

static td_status local_environment(struct td_strategy *s, struct td_strategy_facts *out_facts) {
    (void)s;
    out_facts->resumes_exactly = true;
    return TD_OK;
}

// It brings no memory: it wants to know where that of the rank will be.
static td_status local_place(struct td_strategy *s, const struct td_state_table *state,
                             struct td_strategy_memory *memory) {
    s->state = state;
    s->memory = memory;
    return TD_OK;
}

// ---- the step -----------------------------------------------------------------------------------
// Between the host and a role's region, wherever that is. copy waits for what is queued.
static td_status read_region(struct td_strategy *s, enum td_role role, char *out) {
    const struct td_strategy_config *c = &s->config;
    const size_t bytes = td_state_region_bytes(s->state, role);
    if (!bytes) return TD_OK;
    return c->accel_ops->copy(c->accel, td_buffer_of_host(out, bytes), 0, s->memory->region[role],
                              0, bytes);
}

static td_status write_region(struct td_strategy *s, enum td_role role, const char *in) {
    const struct td_strategy_config *c = &s->config;
    const size_t bytes = td_state_region_bytes(s->state, role);
    if (!bytes) return TD_OK;
    return c->accel_ops->copy(c->accel, s->memory->region[role], 0, td_buffer_of_host(in, bytes), 0,
                              bytes);
}

static td_status take_mean(struct td_strategy *s, td_ticket ticket) {
    const struct td_strategy_config *c = &s->config;
    if (!s->here) s->here = (char *)malloc(td_state_region_bytes(s->state, TD_ROLE_PARAM));
    if (!s->here) return td_fail_oom();
    TD_TRY(c->accel_ops->wait(c->accel, ticket, TIMEOUT_NS));
    TD_TRY(read_region(s, TD_ROLE_PARAM, s->here));
    for (uint32_t i = 0; i < td_state_count(s->state); i++) {
        const struct td_state_info *t = td_state_at(s->state, i);
        if (t->role != TD_ROLE_PARAM) continue;
        TD_TRY(c->collective_ops->all_reduce(c->collective, s->here + t->offset,
                                             td_shape_elems(&t->shape), t->dtype, TD_REDUCE_MEAN));
    }
    TD_TRY(write_region(s, TD_ROLE_PARAM, s->here));
    s->wrote = true;
    s->steps = 0;
    s->means++;
    return TD_OK;
}

static td_status local_step(struct td_strategy *s, enum td_strategy_step kind,
                            struct td_executable *exe, uint32_t segments,
                            const struct td_buffer *inputs, td_ticket *out_ticket) {
    if (s->wrote) segments &= ~(uint32_t)TD_RUN_STEADY;
    s->wrote = false;
    TD_TRY(s->config.accel_ops->run(exe, segments, inputs, out_ticket));
    bool applied = kind == TD_STEP_TRAIN && (segments & 1u << TD_SEG_APPLY);
    return applied && ++s->steps == s->every ? take_mean(s, *out_ticket) : TD_OK;
}

// ---- checkpoints --------------------------------------------------------------------------------
static const enum td_role own[] = {TD_ROLE_PARAM, TD_ROLE_OPTIM};

static size_t kept_bytes(const struct td_strategy *s) {
    return sizeof s->steps + td_state_region_bytes(s->state, TD_ROLE_PARAM) +
           td_state_region_bytes(s->state, TD_ROLE_OPTIM);
}

static td_status local_state_save(struct td_strategy *s, enum td_strategy_state which,
                                  struct td_span *out_state) {
    if (which == TD_STRATEGY_WHOLE) {
        out_state->data = &s->means;
        out_state->bytes = sizeof s->means;
        return TD_OK;
    }
    const size_t bytes = kept_bytes(s);
    if (!s->kept) s->kept = (char *)malloc(bytes);
    if (!s->kept) return td_fail_oom();
    memcpy(s->kept, &s->steps, sizeof s->steps);
    char *at = s->kept + sizeof s->steps;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        TD_TRY(read_region(s, own[i], at));
        at += td_state_region_bytes(s->state, own[i]);
    }
    out_state->data = s->kept;
    out_state->bytes = bytes;
    return TD_OK;
}

static td_status local_state_load(struct td_strategy *s, enum td_strategy_state which,
                                  const void *data, size_t bytes) {
    const size_t expected = which == TD_STRATEGY_WHOLE ? sizeof s->means : kept_bytes(s);
    if (bytes != expected) {
        return td_fail(TD_DATA_LOSS, "local_sgd kept %zu bytes, %zu are expected", bytes, expected);
    }
    if (which == TD_STRATEGY_WHOLE) {
        memcpy(&s->means, data, sizeof s->means);
        return TD_OK;
    }
    memcpy(&s->steps, data, sizeof s->steps);
    const char *at = (const char *)data + sizeof s->steps;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        TD_TRY(write_region(s, own[i], at));
        at += td_state_region_bytes(s->state, own[i]);
    }
    s->wrote = true;
    return TD_OK;
}

static const struct td_strategy_ops ops = {
    .struct_bytes = sizeof ops,
    .open = local_open,
    .close = local_close,
    .environment = local_environment,
    .place = local_place,
    .step = local_step,
    .state_save = local_state_save,
    .state_load = local_state_load,
};

static const struct td_plugin_knob knobs[] = {
    {
        .name = "every",
        .type = TD_PLUGIN_KNOB_INT,
        .min = 1,
        .max = 1e6,
        .unit = "optimizer steps",
        .fallback = "3",
        .prose = "steps of each rank between two means",
    },
};
TD_PLUGIN_WITH_KNOBS(STRATEGY, "local_sgd", "each rank by itself, means of the parameters", &ops,
                     knobs)
