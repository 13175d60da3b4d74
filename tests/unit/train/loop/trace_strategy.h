#ifndef TRAIND_TESTS_UNIT_TRAIN_LOOP_TRACE_STRATEGY_H
#define TRAIND_TESTS_UNIT_TRAIN_LOOP_TRACE_STRATEGY_H

// The traced strategy (trace_rig.h). With trace.all_slots it has each slot of traind/strategy.h.
// One that the real strategy lacks does here what the rank does where it is absent, by the calls
// that the header names there. So the line of a slot is followed by those of the work that it took
// over.
//
// Some slots are left out where they would not do the work of a rank without them:
//
//   rewrite, place, reduce_gradients   of one rank, which reduces nothing
//   optimizer_step                     with a precision that skips steps: its gate is not asked
//   teardown                           of several ranks: it would take the place of their barrier
//
// Two slots make calls of the group that a rank without them does not make: setup, which sends the
// state of rank 0 without comparing it before, and state_save. So the other ranks have these, too:
// trace_peer, in place of their "ddp".

#include "tests/unit/train/loop/trace_rig.h"

// Each rank's own, by the thread that opens its strategy.
static _Thread_local struct td_strategy_config trace_rank;

#define TRACE_STRATEGY(slot, args, params, pass) TRACE_SLOT(, slot, strategy, args, params, pass)

// A slot that answers OK where the real strategy lacks it.
#define TRACE_STRATEGY_POINT(slot, args, params, pass)                                             \
    static td_status trace_strategy_##slot params {                                                \
        trace_line args;                                                                           \
        return trace.strategy->slot ? trace.strategy->slot pass : TD_OK;                           \
    }

// ---- life cycle ---------------------------------------------------------------------------------
static td_status trace_strategy_open(const struct td_strategy_config *config,
                                     struct td_strategy **out) {
    trace_line("strategy.open");
    trace_rank = *config;
    return trace.strategy->open(config, out);
}
static void trace_strategy_close(struct td_strategy *s) {
    trace_line("strategy.close");
    trace.strategy->close(s);
}
static td_status trace_strategy_environment(struct td_strategy *s, struct td_strategy_facts *f) {
    trace_line("strategy.environment");
    TD_TRY(trace.strategy->environment(s, f));
    f->hooks_batches = trace.all_slots;
    f->late_optimizers = trace.late;
    return TD_OK;
}
TRACE_STRATEGY_POINT(connect, ("strategy.connect"),
                     (struct td_strategy * s, const struct td_module_ops *ops, struct td_module *m),
                     (s, ops, m))
TRACE_STRATEGY_POINT(build_begin, ("strategy.build_begin"),
                     (struct td_strategy * s, struct td_state_table *state), (s, state))
TRACE_STRATEGY_POINT(build_end, ("strategy.build_end"),
                     (struct td_strategy * s, const struct td_state_table *state), (s, state))
TRACE_STRATEGY(rewrite,
               ("strategy.rewrite %s %s%s", key->step, td_mode_name(key->mode),
                key->sync ? " sync" : ""),
               (struct td_strategy * s, struct td_graph *g, const struct td_program_key *key),
               (s, g, key))
TRACE_STRATEGY(place, ("strategy.place"),
               (struct td_strategy * s, const struct td_state_table *t,
                struct td_strategy_memory *m),
               (s, t, m))

static td_status trace_strategy_setup(struct td_strategy *s, const struct td_state_table *t,
                                      const struct td_strategy_memory *m) {
    static const enum td_role roles[] = {TD_ROLE_PARAM, TD_ROLE_BUFFER, TD_ROLE_OPTIM};
    const bool has_optimizers = m->region[TD_ROLE_OPTIM].bytes > 0;
    (void)s, (void)t;
    trace_line("strategy.setup %s", has_optimizers ? "with optimizers" : "without optimizers");
    for (size_t i = 0; i < TD_COUNTOF(roles) && trace_rank.world_size > 1; i++) {
        const struct td_buffer b = m->region[roles[i]];
        if (!b.bytes) continue;
        TD_TRY(trace_rank.collective_ops->broadcast(trace_rank.collective, td_buffer_host(b),
                                                    b.bytes, 0));
    }
    return TD_OK;
}
static void trace_strategy_on_exception(struct td_strategy *s, enum td_code code) {
    (void)s;
    trace_line("strategy.on_exception %s", td_code_name(code));
    if (trace_rank.world_size > 1) trace_rank.collective_ops->abort(trace_rank.collective);
}
TRACE_STRATEGY_POINT(teardown, ("strategy.teardown"), (struct td_strategy * s), (s))

// ---- data ---------------------------------------------------------------------------------------
static td_status trace_strategy_process_dataloader(struct td_strategy *s, enum td_split split,
                                                   struct td_strategy_shard *out) {
    (void)s;
    trace_line("strategy.process_dataloader %s", td_split_name(split));
    *out = (struct td_strategy_shard){.n_replicas = trace_rank.world_size,
                                      .rank = trace_rank.global_rank};
    return TD_OK;
}

struct trace_loader {
    enum td_split split;
    const struct td_loader *inner;
};

static td_status trace_loader_batch(void *self, int32_t loader, int64_t offset,
                                    struct td_buffer *out_fields, int64_t *out_n) {
    const struct trace_loader *l = self;
    trace_line("loader.batch %s %d from %lld", td_split_name(l->split), loader, (long long)offset);
    return l->inner->batch(l->inner->self, loader, offset, out_fields, out_n);
}

static td_status trace_strategy_wrap_loader(struct td_strategy *s, enum td_split split,
                                            const struct td_loader *inner, struct td_loader *out) {
    static struct trace_loader loaders[TD_SPLIT_COUNT];
    (void)s;
    trace_line("strategy.wrap_loader %s", td_split_name(split));
    loaders[split] = (struct trace_loader){split, inner};
    out->self = &loaders[split];
    out->batch = trace_loader_batch;
    return TD_OK;
}
static td_status trace_strategy_batch_to_device(struct td_strategy *s, int32_t loader,
                                                const struct td_buffer *fields, size_t n_fields,
                                                struct td_buffer *out_inputs) {
    (void)s, (void)loader;
    trace_line("strategy.batch_to_device n=%zu", n_fields);
    memcpy(out_inputs, fields, n_fields * sizeof *fields);
    return TD_OK;
}

// ---- the step -----------------------------------------------------------------------------------
static const char *const trace_kinds[] = {"train", "validate", "test", "predict"};

static td_status trace_strategy_step(struct td_strategy *s, enum td_strategy_step kind,
                                     struct td_executable *exe, uint32_t segments,
                                     const struct td_buffer *inputs, td_ticket *out_ticket) {
    char text[64];
    (void)s;
    trace_line("strategy.step %s%s", trace_kinds[kind], trace_segments(segments, text));
    return trace_rank.accel_ops->run(exe, segments, inputs, out_ticket);
}
TRACE_STRATEGY_POINT(pre_backward, ("strategy.pre_backward"), (struct td_strategy * s), (s))
static td_status trace_strategy_backward(struct td_strategy *s, struct td_executable *exe,
                                         const struct td_buffer *inputs, td_ticket *out_ticket) {
    (void)s;
    trace_line("strategy.backward");
    return trace_rank.accel_ops->run(exe, 1u << TD_SEG_BACKWARD, inputs, out_ticket);
}
TRACE_STRATEGY_POINT(post_backward, ("strategy.post_backward"), (struct td_strategy * s), (s))
static td_status trace_strategy_optimizer_step(struct td_strategy *s, struct td_executable *exe,
                                               uint32_t segments, const struct td_buffer *inputs,
                                               bool *out_stepped, td_ticket *out_ticket) {
    (void)s;
    assert_true(*out_stepped);
    trace_line("strategy.optimizer_step");
    return trace_rank.accel_ops->run(exe, segments, inputs, out_ticket);
}
static td_status trace_strategy_reduce_gradients(struct td_strategy *s, const struct td_bucket *b) {
    (void)s;
    trace_line("strategy.reduce_gradients %u%s", b->index, b->has_control ? " control" : "");
    return trace_rank.collective_ops->all_reduce_bucket(trace_rank.collective, b);
}
TRACE_STRATEGY_POINT(step_end,
                     ("strategy.step_end %s %s n=%lld outputs=%u", trace_kinds[kind],
                      td_graph_step(g), (long long)n, td_graph_n_outputs(g)),
                     (struct td_strategy * s, enum td_strategy_step kind, const struct td_graph *g,
                      int64_t n, double *outputs),
                     (s, kind, g, n, outputs))

static td_status trace_strategy_hook(struct td_strategy *s, enum td_strategy_hook hook,
                                     int64_t batch) {
    static const char *const names[] = {
        "train_start",  "train_batch_start", "train_end",       "eval_start",
        "eval_end",     "train_epoch_start", "train_epoch_end", "validate_start",
        "validate_end", "test_start",        "test_end",        "predict_start",
        "predict_end",  "eval_loader_start",
    };
    assert_true((size_t)hook < TD_COUNTOF(names));
    if (hook == TD_HOOK_TRAIN_BATCH_START || hook >= TD_HOOK_TRAIN_EPOCH_START) {
        trace_line("strategy.hook %s %lld", names[hook], (long long)batch);
    } else {
        trace_line("strategy.hook %s", names[hook]);
    }
    return trace.strategy->hook ? trace.strategy->hook(s, hook, batch) : TD_OK;
}

// ---- the group ----------------------------------------------------------------------------------
static struct td_collective *trace_world(int32_t group) {
    assert_int_equal(group, TD_GROUP_WORLD);
    return trace_rank.collective;
}

#define TRACE_STRATEGY_GROUP(slot, call, args, params, pass)                                       \
    static td_status trace_strategy_##slot params {                                                \
        (void)s;                                                                                   \
        trace_line args;                                                                           \
        return trace_rank.collective_ops->call pass;                                               \
    }
TRACE_STRATEGY_GROUP(reduce, all_reduce,
                     ("strategy.reduce n=%lld %s", (long long)n, td_dtype_name(dtype)),
                     (struct td_strategy * s, int32_t group, void *data, int64_t n,
                      enum td_dtype dtype, enum td_reduce_op op),
                     (trace_world(group), data, n, dtype, op))
TRACE_STRATEGY_GROUP(all_gather, all_gather, ("strategy.all_gather"),
                     (struct td_strategy * s, int32_t group, const void *in, size_t bytes,
                      void *out),
                     (trace_world(group), in, bytes, out))
TRACE_STRATEGY_GROUP(broadcast, broadcast, ("strategy.broadcast from %d", src),
                     (struct td_strategy * s, void *data, size_t bytes, int32_t src),
                     (trace_rank.collective, data, bytes, src))
TRACE_STRATEGY_GROUP(barrier, barrier, ("strategy.barrier %s", tag),
                     (struct td_strategy * s, const char *tag), (trace_rank.collective, tag))

static td_status trace_strategy_reduce_boolean_decision(struct td_strategy *s, bool decision,
                                                        bool all, bool *out_decision) {
    int32_t votes = decision;
    trace_line("strategy.reduce_boolean_decision %s", all ? "all" : "any");
    TD_TRY(trace_strategy_reduce(s, TD_GROUP_WORLD, &votes, 1, TD_I32, TD_REDUCE_SUM));
    *out_decision = all ? votes == trace_rank.world_size : votes > 0;
    return TD_OK;
}

// ---- checkpoints --------------------------------------------------------------------------------
enum { TRACE_SAVED = 1 << TD_ROLE_PARAM | 1 << TD_ROLE_BUFFER | 1 << TD_ROLE_OPTIM };

static td_status trace_strategy_save_checkpoint(struct td_strategy *s,
                                                struct td_checkpoint_call *io_call) {
    (void)s;
    trace_line("strategy.save_checkpoint");
    io_call->roles = TRACE_SAVED;
    return TD_OK;
}
static td_status trace_strategy_load_checkpoint(struct td_strategy *s,
                                                struct td_checkpoint_call *io_call) {
    (void)s;
    trace_line("strategy.load_checkpoint");
    io_call->roles = TRACE_SAVED;
    return TD_OK;
}
static td_status trace_strategy_remove_checkpoint(struct td_strategy *s,
                                                  const struct td_checkpoint_call *call,
                                                  bool *out_removes) {
    const bool is_beside = !pthread_equal(pthread_self(), trace.thread);
    (void)s;
    *out_removes = true;
    return td_buf_printf(&trace.beside, "%sstrategy.remove_checkpoint %s\n",
                         is_beside ? "beside steps: " : "", strrchr(call->path, '/') + 1);
}
static td_status trace_strategy_optimizer_state(struct td_strategy *s, uint32_t roles,
                                                const struct td_state_table *t,
                                                struct td_strategy_memory *m) {
    const struct td_strategy_ops *o = trace.strategy;
    assert_int_equal(roles, TRACE_SAVED);
    trace_line("strategy.optimizer_state");
    return o->optimizer_state ? o->optimizer_state(s, roles, t, m) : TD_OK;
}
static td_status trace_strategy_state_save(struct td_strategy *s, enum td_strategy_state which,
                                           struct td_span *out) {
    static char kept[] = "kept";
    trace_line("strategy.state_save %s", which == TD_STRATEGY_WHOLE ? "whole" : "rank");
    if (trace.strategy->state_save) return trace.strategy->state_save(s, which, out);
    *out = (struct td_span){.data = kept, .bytes = sizeof kept};
    return TD_OK;
}
TRACE_STRATEGY_POINT(state_load,
                     ("strategy.state_load %s", which == TD_STRATEGY_WHOLE ? "whole" : "rank"),
                     (struct td_strategy * s, enum td_strategy_state which, const void *data,
                      size_t bytes),
                     (s, which, data, bytes))

// ---- in a registry ------------------------------------------------------------------------------
static struct td_strategy_ops trace_strategy_ops, trace_peer_ops;
static struct td_plugin_desc trace_peer;

static inline void trace_take_all(struct td_strategy_ops *o, bool several) {
#define TRACE_ALL(slot) o->slot = trace_strategy_##slot
    TRACE_ALL(setup), TRACE_ALL(on_exception);
    if (!several) TRACE_ALL(teardown);
    TRACE_ALL(process_dataloader), TRACE_ALL(wrap_loader), TRACE_ALL(batch_to_device);
    TRACE_ALL(step), TRACE_ALL(step_end);
    TRACE_ALL(pre_backward), TRACE_ALL(backward), TRACE_ALL(post_backward);
    if (!trace.precision->step_gate) TRACE_ALL(optimizer_step);
    if (several) TRACE_ALL(reduce_gradients);
    TRACE_ALL(reduce), TRACE_ALL(all_gather), TRACE_ALL(broadcast), TRACE_ALL(barrier);
    TRACE_ALL(reduce_boolean_decision);
    TRACE_ALL(save_checkpoint), TRACE_ALL(load_checkpoint), TRACE_ALL(remove_checkpoint);
    TRACE_ALL(state_save), TRACE_ALL(state_load);
#undef TRACE_ALL
}

// After the precision. several: ranks.
static inline void trace_add_strategy(struct run *r, const struct td_plugin_desc *real,
                                      bool several) {
    struct td_strategy_ops *o = &trace_strategy_ops;
    trace.strategy = real->ops;
    *o = *trace.strategy;
    o->open = trace_strategy_open;
    o->close = trace_strategy_close;
    o->environment = trace_strategy_environment;
    TRACE_TAKE(strategy, rewrite);
    TRACE_TAKE(strategy, place);
    o->connect = trace_strategy_connect;
    o->build_begin = trace_strategy_build_begin;
    o->build_end = trace_strategy_build_end;
    o->hook = trace_strategy_hook;
    o->optimizer_state = trace_strategy_optimizer_state;
    if (trace.all_slots) trace_take_all(o, several);
    if (trace.late) o->setup = trace_strategy_setup;
    trace_add(r, real, o);
}

// What the other ranks have in place of the real strategy, with all_slots.
static inline const struct td_plugin_desc *trace_peer_of(const struct td_plugin_desc *real) {
    trace_peer_ops = *(const struct td_strategy_ops *)real->ops;
    trace_peer_ops.open = trace_strategy_open;
    trace_peer_ops.setup = trace_strategy_setup;
    trace_peer_ops.state_save = trace_strategy_state_save;
    trace_peer_ops.state_load = trace_strategy_state_load;
    trace_peer = *real;
    trace_peer.ops = &trace_peer_ops;
    return &trace_peer;
}

#endif
