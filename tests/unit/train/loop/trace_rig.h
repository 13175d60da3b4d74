#ifndef TRAIND_TESTS_UNIT_TRAIN_LOOP_TRACE_RIG_H
#define TRAIND_TESTS_UNIT_TRAIN_LOOP_TRACE_RIG_H

// Plugins that write down each call of a slot, and hand it on to a real one of their kind. All
// write into one buffer, so that it shows in which order a rank calls them. In a registry their
// name is "traced". A slot that the real one lacks is absent here, too. The strategy's are in
// trace_strategy.h, where trace.all_slots adds those that it lacks.
//
// A line is "<kind>.<slot>" and what is the same in each run of it. Left out are calls that say
// nothing of the order: memory (but where optimizers are late), copies, facts that are asked again,
// and calls of other threads. What the thread that writes checkpoints asks comes last.

#include <pthread.h>
#include <stdatomic.h>

#include "comm_hooks/comm_hooks.h"
#include "tests/unit/train/rank/ranks_rig.h"
#include "traind/steps.h"

enum { TRACE_TICKETS = 4096 };

static struct {
    struct td_buf text, beside; // beside: of the thread that writes checkpoints
    pthread_t thread;           // whose calls are written down: the training thread of rank 0
    atomic_bool is_known;       // that there is one: other ranks call, too
    const struct td_accelerator_ops *accelerator;
    const struct td_strategy_ops *strategy;
    const struct td_precision_ops *precision;
    const struct td_collective_ops *collective;
    const struct td_comm_hook_ops *hook;
    struct td_accelerator *device;
    bool prompted;      // gpt continues tokens; else mlp learns the synthetic data
    bool host_code;     // the module has a training_step
    int host_window;    // whose updates come after so many batches; 0: one
    int host_fails_at;  // and whose batch n fails, from 1; 0: none does
    double loss_scale;  // of the precision, to begin with; 0: its own
    bool all_slots;     // of the strategy
    bool late;          // its late_optimizers
    bool loaders;       // the split to validate on has two
    int n_steps;        // training steps of the module
    int runs, fails_at; // run n fails, from 1; 0: none does
    int gathers, gather_fails_at;
    td_ticket ticket[TRACE_TICKETS]; // of run i + 1
} trace;

TD_PRINTF(1, 2) static void trace_line(const char *format, ...) {
    if (!trace.is_known || !pthread_equal(pthread_self(), trace.thread)) return;
    char line[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof line);
    td_status s = td_buf_printf(&trace.text, "%s\n", line);
    td_status_free(s); // a full buffer differs from every golden file
}

// Hands a slot on.
#define TRACE_SLOT(type, slot, kind, args, params, pass)                                           \
    static td_status trace_##kind##_##slot params {                                                \
        trace_line args;                                                                           \
        return trace.kind->slot pass;                                                              \
    }

// ---- accelerator --------------------------------------------------------------------------------
static td_status trace_accel_open(const struct td_accel_config *config,
                                  struct td_accelerator **out) {
    trace.thread = pthread_self();
    trace.is_known = true;
    trace_line("accelerator.open");
    TD_TRY(trace.accelerator->open(config, out));
    trace.device = *out;
    return TD_OK;
}

static void trace_accel_close(struct td_accelerator *a) {
    trace_line("accelerator.close");
    trace.accelerator->close(a);
    trace.is_known = false;
}

static td_status trace_accel_state_alloc(struct td_accelerator *a, const struct td_state_table *t,
                                         enum td_role role, struct td_buffer *out) {
    if (trace.late) trace_line("accelerator.state_alloc %s", td_role_name(role));
    return trace.accelerator->state_alloc(a, t, role, out);
}

static const char *trace_segments(uint32_t segments, char text[64]) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < TD_SEG_COUNT; i++) {
        if (!(segments >> i & 1)) continue;
        n += (size_t)snprintf(text + n, 64 - n, " %s", td_segment_name((enum td_segment)i));
    }
    return text;
}

static td_status trace_accel_compile(struct td_accelerator *a, const struct td_program *p,
                                     const struct td_bindings *b, struct td_executable **out) {
    const struct td_program_key *k = &p->key;
    trace_line("accelerator.compile %s %s batch=%lld%s%s%s", k->step, td_mode_name(k->mode),
               (long long)k->batch, k->accumulate ? " accumulate" : "", k->sync ? " sync" : "",
               k->apply ? " apply" : "");
    return trace.accelerator->compile(a, p, b, out);
}

static td_status trace_accel_run(struct td_executable *e, uint32_t segments,
                                 const struct td_buffer *inputs, td_ticket *out_ticket) {
    char text[64];
    const int run = ++trace.runs;
    trace_line("accelerator.run #%d%s%s", run, trace_segments(segments, text),
               segments & TD_RUN_STEADY ? " steady" : "");
    if (run == trace.fails_at) return td_fail(TD_INTERNAL, "run %d of the test", run);
    TD_TRY(trace.accelerator->run(e, segments, inputs, out_ticket));
    assert_true(run <= TRACE_TICKETS);
    trace.ticket[run - 1] = *out_ticket;
    return TD_OK;
}

static td_status trace_accel_wait(struct td_accelerator *a, td_ticket ticket, int64_t timeout_ns) {
    td_status s = trace.accelerator->wait(a, ticket, timeout_ns);
    for (int i = 0; ticket && !s && i < trace.runs; i++) {
        if (trace.ticket[i] == ticket) trace_line("accelerator.wait #%d", i + 1);
    }
    return s;
}

// ---- precision ----------------------------------------------------------------------------------
#define TRACE_PRECISION(slot, args, params, pass) TRACE_SLOT(, slot, precision, args, params, pass)
static td_status trace_precision_open(const struct td_precision_config *config,
                                      struct td_precision **out) {
    const struct td_precision_state state = {.loss_scale = trace.loss_scale};
    trace_line("precision.open");
    TD_TRY(trace.precision->open(config, out));
    return trace.loss_scale > 0 ? trace.precision->state_load(*out, &state) : TD_OK;
}
static void trace_precision_close(struct td_precision *p) {
    trace_line("precision.close");
    trace.precision->close(p);
}
TRACE_PRECISION(rewrite,
                ("precision.rewrite %s %s%s", key->step, td_mode_name(key->mode),
                 key->sync ? " sync" : ""),
                (struct td_precision * p, struct td_graph *g, const struct td_program_key *key),
                (p, g, key))
static td_status trace_precision_pre_backward(struct td_precision *p, double *scalars) {
    TD_TRY(trace.precision->pre_backward(p, scalars));
    trace_line("precision.pre_backward scale=%.0f", scalars[TD_SCALAR_LOSS_SCALE]);
    return TD_OK;
}
TRACE_PRECISION(step_gate, ("precision.step_gate finite=%d", finite),
                (struct td_precision * p, bool finite, bool *out), (p, finite, out))
TRACE_PRECISION(state_save, ("precision.state_save"),
                (struct td_precision * p, struct td_precision_state *out), (p, out))
TRACE_PRECISION(state_load, ("precision.state_load"),
                (struct td_precision * p, const struct td_precision_state *state), (p, state))

// ---- collective ---------------------------------------------------------------------------------
#define TRACE_GROUP(slot, args, params, pass) TRACE_SLOT(, slot, collective, args, params, pass)
TRACE_GROUP(join, ("collective.join world=%d", config->world_size),
            (const struct td_collective_config *config, struct td_collective **out), (config, out))
static void trace_collective_leave(struct td_collective *c) {
    trace_line("collective.leave");
    trace.collective->leave(c);
}
static void trace_collective_abort(struct td_collective *c) {
    trace_line("collective.abort");
    trace.collective->abort(c);
}
TRACE_GROUP(all_reduce, ("collective.all_reduce n=%lld %s", (long long)n, td_dtype_name(dtype)),
            (struct td_collective * c, void *data, int64_t n, enum td_dtype dtype,
             enum td_reduce_op op),
            (c, data, n, dtype, op))
TRACE_GROUP(all_reduce_bucket,
            ("collective.all_reduce_bucket %u%s", b->index, b->has_control ? " control" : ""),
            (struct td_collective * c, const struct td_bucket *b), (c, b))
TRACE_GROUP(wait_buckets, ("collective.wait_buckets"), (struct td_collective * c), (c))
TRACE_GROUP(all_gather, ("collective.all_gather"),
            (struct td_collective * c, const void *in, size_t bytes, void *out),
            (c, in, bytes, out))
TRACE_GROUP(broadcast, ("collective.broadcast from %d", src),
            (struct td_collective * c, void *data, size_t bytes, int32_t src),
            (c, data, bytes, src))
TRACE_GROUP(barrier, ("collective.barrier %s", tag), (struct td_collective * c, const char *tag),
            (c, tag))

static void trace_collective_set_deadline(struct td_collective *c,
                                          const struct td_collective_deadline *deadline) {
    trace_line("collective.set_deadline %s", deadline->setting);
    trace.collective->set_deadline(c, deadline);
}

// ---- comm hook ----------------------------------------------------------------------------------
#define TRACE_HOOK(slot, args, params, pass) TRACE_SLOT(, slot, hook, args, params, pass)
TRACE_HOOK(open, ("comm_hook.open"),
           (const struct td_comm_hook_config *config, struct td_comm_hook **out), (config, out))
static void trace_hook_close(struct td_comm_hook *h) {
    trace_line("comm_hook.close");
    trace.hook->close(h);
}
TRACE_HOOK(place, ("comm_hook.place n=%zu", n),
           (struct td_comm_hook * h, const struct td_bucket *buckets, size_t n), (h, buckets, n))
TRACE_HOOK(reduce, ("comm_hook.reduce %u", bucket->index),
           (struct td_comm_hook * h, const struct td_bucket *bucket), (h, bucket))
static void trace_hook_end_step(struct td_comm_hook *h, bool taken) {
    trace_line("comm_hook.end_step %s", taken ? "taken" : "skipped");
    trace.hook->end_step(h, taken);
}
TRACE_HOOK(state_save, ("comm_hook.state_save"), (struct td_comm_hook * h, struct td_span *out),
           (h, out))
TRACE_HOOK(state_load, ("comm_hook.state_load"),
           (struct td_comm_hook * h, const void *data, size_t bytes), (h, data, bytes))

// ---- module and data ----------------------------------------------------------------------------
static const struct td_module_ops *trace_module(void) {
    return trace.prompted ? td_module_gpt.ops : td_module_mlp.ops;
}
static const struct td_dataset_ops *trace_dataset(void) {
    return trace.prompted ? td_dataset_tokens.ops : td_dataset_synthetic.ops;
}

static td_status trace_module_open(const struct td_json *values, const struct td_field *fields,
                                   size_t n, struct td_module **out) {
    trace_line("module.open");
    return trace_module()->open(values, fields, n, out);
}
static void trace_module_close(struct td_module *m) {
    trace_line("module.close");
    trace_module()->close(m);
}
static td_status trace_module_record(struct td_module *m, struct td_graph *g, int64_t batch) {
    trace_line("module.record %s %s batch=%lld", td_graph_step(g), td_mode_name(td_graph_mode(g)),
               (long long)batch);
    return trace_module()->record(m, g, batch);
}
static bool trace_module_step_at(struct td_module *m, uint32_t i, struct td_step_info *out_info) {
    static const char *const names[] = {"weights", "biases"}, *const trains[] = {"*.weight",
                                                                                 "*.bias"};
    (void)m;
    trace_line("module.step_at %u", i);
    if (i >= (uint32_t)trace.n_steps) return false;
    out_info->name = names[i];
    out_info->trains = trains[i];
    return true;
}

// What the loop of a job does, said by the module. Ranks agree on the end of a window.
static td_status trace_module_training_step(struct td_module *m, struct td_steps *s,
                                            int64_t batch_idx) {
    bool steps = true, stepped;
    double loss;
    (void)m;
    trace_line("module.training_step %lld", (long long)batch_idx);
    if (trace.host_window) {
        steps = (batch_idx + 1) % trace.host_window == 0;
        TD_TRY(td_steps_decide(s, steps, true, &steps));
        TD_TRY(td_steps_divide_loss(s, trace.host_window));
        TD_TRY(td_steps_no_backward_sync(s, !steps));
    }
    TD_TRY(td_steps_forward(s, NULL));
    TD_TRY(td_steps_backward(s));
    if (batch_idx % 2) TD_TRY(td_steps_value(s, "loss", &loss)); // parts the segments
    if (batch_idx + 1 == trace.host_fails_at) {
        return td_fail(TD_INTERNAL, "batch %lld of host code", (long long)batch_idx);
    }
    if (!steps) return TD_OK;
    TD_TRY(td_steps_optimizer_step(s, NULL, &stepped));
    trace_line("module.training_step %lld %s", (long long)batch_idx, stepped ? "steps" : "skips");
    return TD_OK;
}

static td_status trace_dataset_open(const struct td_dataset_config *config,
                                    struct td_dataset **out) {
    trace_line("dataset.open");
    return trace_dataset()->open(config, out);
}
static void trace_dataset_close(struct td_dataset *d) {
    trace_line("dataset.close");
    trace_dataset()->close(d);
}

// ---- in a registry ------------------------------------------------------------------------------
#define TRACE_TAKE(kind, slot)                                                                     \
    if (trace.kind->slot) trace_##kind##_ops.slot = trace_##kind##_##slot

static struct td_accelerator_ops trace_accelerator_ops;
static struct td_precision_ops trace_precision_ops;
static struct td_collective_ops trace_collective_ops;
static struct td_comm_hook_ops trace_hook_ops;
static struct td_module_ops trace_module_ops;
static struct td_dataset_ops trace_dataset_ops;
static struct td_plugin_desc trace_descs[TD_PLUGIN_KIND_COUNT];

static inline void trace_add(struct run *r, const struct td_plugin_desc *real, void *ops) {
    struct td_plugin_desc *d = &trace_descs[real->kind];
    *d = *real;
    d->name = "traced";
    d->ops = ops;
    assert_ok(td_registry_add(r->registry, d));
}

static inline void trace_add_accelerator(struct run *r, const struct td_plugin_desc *real) {
    trace.accelerator = real->ops;
    trace_accelerator_ops = *trace.accelerator;
    trace_accelerator_ops.open = trace_accel_open;
    trace_accelerator_ops.close = trace_accel_close;
    if (trace.accelerator->state_alloc) trace_accelerator_ops.state_alloc = trace_accel_state_alloc;
    trace_accelerator_ops.compile = trace_accel_compile;
    trace_accelerator_ops.run = trace_accel_run;
    trace_accelerator_ops.wait = trace_accel_wait;
    trace_add(r, real, &trace_accelerator_ops);
}

static inline void trace_add_precision(struct run *r, const struct td_plugin_desc *real) {
    trace.precision = real->ops;
    trace_precision_ops = *trace.precision;
    trace_precision_ops.open = trace_precision_open;
    trace_precision_ops.close = trace_precision_close;
    TRACE_TAKE(precision, rewrite);
    TRACE_TAKE(precision, pre_backward);
    TRACE_TAKE(precision, step_gate);
    TRACE_TAKE(precision, state_save);
    TRACE_TAKE(precision, state_load);
    trace_add(r, real, &trace_precision_ops);
}

static inline void trace_add_collective(struct run *r, const struct td_plugin_desc *real) {
    struct td_collective_ops *o = &trace_collective_ops;
    trace.collective = real->ops;
    *o = *trace.collective;
    o->join = trace_collective_join;
    o->leave = trace_collective_leave;
    o->abort = trace_collective_abort;
    o->all_reduce = trace_collective_all_reduce;
    o->all_reduce_bucket = trace_collective_all_reduce_bucket;
    TRACE_TAKE(collective, wait_buckets);
    o->all_gather = trace_collective_all_gather;
    o->broadcast = trace_collective_broadcast;
    o->barrier = trace_collective_barrier;
    TRACE_TAKE(collective, set_deadline);
    trace_add(r, real, o);
}

static inline void trace_add_hook(struct run *r, const struct td_plugin_desc *real) {
    trace.hook = real->ops;
    trace_hook_ops = *trace.hook;
    trace_hook_ops.open = trace_hook_open;
    trace_hook_ops.close = trace_hook_close;
    TRACE_TAKE(hook, place);
    trace_hook_ops.reduce = trace_hook_reduce;
    TRACE_TAKE(hook, end_step);
    TRACE_TAKE(hook, state_save);
    TRACE_TAKE(hook, state_load);
    trace_add(r, real, &trace_hook_ops);
}

static size_t trace_dataset_loaders(struct td_dataset *d, enum td_split split,
                                    int64_t out_samples[TD_LOADERS_MAX]) {
    out_samples[0] = 1;
    out_samples[1] = trace_dataset()->length(d, split) - 1;
    trace_line("dataset.loaders %s", td_split_name(split));
    return 2;
}

static td_status trace_dataset_gather(struct td_dataset *d, enum td_split split,
                                      const int64_t *index, int64_t n, void *const *out) {
    trace_line("dataset.gather %s %lld", td_split_name(split), (long long)n);
    if (++trace.gathers == trace.gather_fails_at) {
        return td_fail(TD_DATA_LOSS, "batch %d of the test", trace.gathers);
    }
    return trace_dataset()->gather(d, split, index, n, out);
}

static inline void trace_add_workload(struct run *r) {
    trace_module_ops = *trace_module();
    trace_module_ops.open = trace_module_open;
    trace_module_ops.close = trace_module_close;
    trace_module_ops.record = trace_module_record;
    if (trace.n_steps) trace_module_ops.step_at = trace_module_step_at;
    if (trace.host_code) trace_module_ops.training_step = trace_module_training_step;
    trace_add(r, trace.prompted ? &td_module_gpt : &td_module_mlp, &trace_module_ops);
    trace_dataset_ops = *trace_dataset();
    trace_dataset_ops.open = trace_dataset_open;
    trace_dataset_ops.close = trace_dataset_close;
    trace_dataset_ops.gather = trace_dataset_gather;
    if (trace.loaders) trace_dataset_ops.loaders = trace_dataset_loaders;
    trace_add(r, trace.prompted ? &td_dataset_tokens : &td_dataset_synthetic, &trace_dataset_ops);
}

#endif
