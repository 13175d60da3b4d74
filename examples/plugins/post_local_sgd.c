// Strategy `post_local_sgd`: ranks average gradients in the beginning, and parameters later.
//
//   cc -shared -fPIC -o strategy-post_local_sgd.so post_local_sgd.c $(pkg-config --cflags --libs
//   traind)
//
// For the first `start_step` optimizer steps it is ddp. Then each rank steps by its own gradients,
// and every `period` steps the ranks take the mean of their parameters. Exchanging nothing in
// between is the gain; that ranks drift apart meanwhile is the price. The optimizer's state is each
// rank's own from start_step on, as in torch.
//
// Where ranks differ, a checkpoint holds the weights of rank 0. So each rank keeps its parameters
// and its optimizer's state beside it, whenever the job saves. A run that is resumed at the same
// world size gives the same bits. Under a precision that skips steps (16-mixed) ranks would skip
// different ones: such a job is refused at its first step after start_step.
// Source: Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD".

#include <stdlib.h>
#include <string.h>

#include "traind/plugin.h"
#include "traind/rewrite.h"
#include "traind/strategy.h"

#define TIMEOUT_NS (INT64_C(60) * 1000000000) // of a run

static const struct td_plugin_knob knobs[] = {
    {"start_step", TD_PLUGIN_KNOB_INT, 0, 1e9, "optimizer steps", "100", NULL,
     "steps in which gradients are averaged, before ranks part"},
    {"period", TD_PLUGIN_KNOB_INT, 1, 1e9, "optimizer steps", NULL, NULL,
     "steps of each rank between two means of the parameters"},
};

struct td_strategy {
    struct td_strategy_config config;
    const struct td_state_table *state;
    const struct td_strategy_memory *memory;
    int64_t start_step, period;
    int64_t steps; // optimizer steps of this job
    bool wrote;    // parameters, since the last run
    char *kept;    // what state_save gave last
    char *here;    // parameters on the host, while the mean is taken
};

// ---- life cycle ---------------------------------------------------------------------------------
static td_status local_open(const struct td_strategy_config *config,
                            struct td_strategy **out_strategy) {
    int64_t start_step, period;
    TD_TRY(td_knob_int(config->knobs, "start_step", &start_step));
    TD_TRY(td_knob_int(config->knobs, "period", &period));
    struct td_strategy *s = (struct td_strategy *)calloc(1, sizeof *s);
    if (!s) return td_fail_oom();
    s->config = *config; // the struct dies when open returns, what it points to lives on
    s->start_step = start_step;
    s->period = period;
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

static td_status local_rewrite(struct td_strategy *s, struct td_graph *g,
                               const struct td_program_key *key) {
    (void)s;
    if (key->mode != TD_MODE_TRAIN) return TD_OK;
    TD_TRY(td_rewrite_assign_buckets(g, TD_BUCKET_FIRST_BYTES, TD_BUCKET_CAP_BYTES));
    return key->sync ? td_rewrite_all_reduce(g) : TD_OK;
}

// ---- the step -----------------------------------------------------------------------------------
// The control flags of the last bucket are summed in any case: ranks agree to stop by them.
static td_status local_reduce_gradients(struct td_strategy *s, const struct td_bucket *bucket) {
    const struct td_collective_ops *group = s->config.collective_ops;
    if (s->steps < s->start_step) return group->all_reduce_bucket(s->config.collective, bucket);
    if (!bucket->has_control) return TD_OK;
    struct td_bucket flags = *bucket; // a bucket of nothing but them
    flags.offset += bucket->control_offset;
    flags.control_offset = 0;
    flags.n = 0;
    flags.tensors = NULL;
    flags.n_tensors = 0;
    return group->all_reduce_bucket(s->config.collective, &flags);
}

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
    s->wrote = true;
    return write_region(s, TD_ROLE_PARAM, s->here);
}

static td_status local_step(struct td_strategy *s, enum td_strategy_step kind,
                            struct td_executable *exe, uint32_t segments,
                            const struct td_buffer *inputs, td_ticket *out_ticket) {
    if (s->wrote) segments &= ~(uint32_t)TD_RUN_STEADY;
    s->wrote = false;
    // Apply comes alone where a gate was asked between finish and it.
    if ((segments & TD_SEGS_ALL) == 1u << TD_SEG_APPLY && s->steps >= s->start_step) {
        return td_bad_spec("post_local_sgd under a precision that skips steps: from step %lld on "
                           "ranks have gradients of their own, and would skip different ones",
                           (long long)s->start_step + 1);
    }
    TD_TRY(s->config.accel_ops->run(exe, segments, inputs, out_ticket));
    if (kind != TD_STEP_TRAIN || !(segments & 1u << TD_SEG_APPLY)) return TD_OK;
    const int64_t apart = ++s->steps - s->start_step;
    return apart > 0 && apart % s->period == 0 ? take_mean(s, *out_ticket) : TD_OK;
}

// ---- checkpoints --------------------------------------------------------------------------------
static const enum td_role own[] = {TD_ROLE_PARAM, TD_ROLE_OPTIM};
enum { N_OWN = sizeof own / sizeof own[0] };

static size_t kept_bytes(const struct td_strategy *s) {
    size_t bytes = sizeof s->steps;
    for (size_t i = 0; i < N_OWN; i++) {
        bytes += td_state_region_bytes(s->state, own[i]);
    }
    return bytes;
}

static td_status local_state_save(struct td_strategy *s, enum td_strategy_state which,
                                  struct td_span *out_state) {
    if (which != TD_STRATEGY_RANK) return TD_OK;
    const size_t bytes = kept_bytes(s);
    if (!s->kept) s->kept = (char *)malloc(bytes);
    if (!s->kept) return td_fail_oom();
    memcpy(s->kept, &s->steps, sizeof s->steps);
    char *at = s->kept + sizeof s->steps;
    for (size_t i = 0; i < N_OWN; i++) {
        TD_TRY(read_region(s, own[i], at));
        at += td_state_region_bytes(s->state, own[i]);
    }
    out_state->data = s->kept;
    out_state->bytes = bytes;
    return TD_OK;
}

static td_status local_state_load(struct td_strategy *s, enum td_strategy_state which,
                                  const void *data, size_t bytes) {
    if (which != TD_STRATEGY_RANK) return TD_OK; // nothing is kept of the job
    if (bytes != kept_bytes(s)) {
        return td_fail(TD_DATA_LOSS, "post_local_sgd kept %zu bytes of this rank, %zu are expected",
                       bytes, kept_bytes(s));
    }
    const char *at = (const char *)data;
    memcpy(&s->steps, at, sizeof s->steps);
    at += sizeof s->steps;
    for (size_t i = 0; i < N_OWN; i++) {
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
    .rewrite = local_rewrite,
    .place = local_place,
    .step = local_step,
    .reduce_gradients = local_reduce_gradients,
    .state_save = local_state_save,
    .state_load = local_state_load,
};
TD_PLUGIN_WITH_KNOBS(STRATEGY, "post_local_sgd", "gradients averaged first, parameters later", &ops,
                     knobs)
