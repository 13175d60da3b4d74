// The pipeline; contract in compile.h. Each pass is a row: its name is what dumps, golden files and
// errors call it, and the graph is verified after it. What a program does not need is skipped here,
// so that no pass has to know about modes and keys. Only the last row, the memory plan, adds to the
// program instead of rewriting its graph.

#include "engine/graph/compile.h"

#include <inttypes.h>
#include <string.h>

#include "engine/graph/edit.h"
#include "engine/graph/graph.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/verify.h"

static td_status run_record(struct td_compiled *c, const struct td_compile_options *o) {
    return o->record(o->record_arg, c->graph, o->key.batch);
}

static td_status run_sync_norm(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_sync_norm(c->graph);
}

static td_status run_sink(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_sink(c->graph);
}

static td_status run_autodiff(struct td_compiled *c, const struct td_compile_options *o) {
    struct td_autodiff_options a = {.accumulate = o->key.accumulate,
                                    .windowed = o->windowed || o->key.accumulate,
                                    .counted = o->counted,
                                    .scaled = o->scales_loss,
                                    .trains = o->trains,
                                    .trains_arg = o->trains_arg,
                                    .key = &o->key};
    return td_pass_autodiff(c->graph, &a);
}

static td_status run_precision(struct td_compiled *c, const struct td_compile_options *o) {
    TD_TRY(o->precision(o->precision_arg, c->graph, &o->key));
    for (uint32_t i = 0; i < td_graph_n_inputs(c->graph) && o->input_type; i++) {
        const enum td_dtype type = o->input_type(o->input_type_arg, i);
        TD_TRY(td_graph_retype_input(c->graph, i, type));
    }
    return TD_OK;
}

static td_status run_strategy(struct td_compiled *c, const struct td_compile_options *o) {
    return o->strategy(o->strategy_arg, c->graph, &o->key);
}

static td_status run_optimizer(struct td_compiled *c, const struct td_compile_options *o) {
    return td_pass_optimizer(c->graph, o->optimizer);
}

static td_status run_strategy_update(struct td_compiled *c, const struct td_compile_options *o) {
    return o->strategy_update(o->strategy_arg, c->graph, &o->key);
}

static td_status run_simplify(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_simplify(c->graph);
}

static td_status run_fuse(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_fuse(c->graph);
}

static td_status run_head(struct td_compiled *c, const struct td_compile_options *o) {
    return td_pass_head(c->graph, o->whole_logits_bytes);
}

static td_status run_dgrad(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_dgrad(c->graph);
}

static td_status run_recompute(struct td_compiled *c, const struct td_compile_options *o) {
    return td_pass_recompute(c->graph, o->recompute);
}

static td_status run_residual(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_residual(c->graph);
}

static td_status run_schedule(struct td_compiled *c, const struct td_compile_options *o) {
    (void)o;
    return td_pass_schedule(c->graph);
}

static td_status run_memory(struct td_compiled *c, const struct td_compile_options *o) {
    TD_TRY(td_pass_memory(c->graph, o->elides, &c->placement, &c->program.arena_bytes));
    c->program.placement = c->placement;
    return TD_OK;
}

static bool always(const struct td_compile_options *o) {
    (void)o;
    return true;
}

static bool trains(const struct td_compile_options *o) {
    return o->key.mode == TD_MODE_TRAIN;
}

static bool syncs_norm(const struct td_compile_options *o) {
    return trains(o) && o->syncs_batch_norm;
}

static bool has_precision(const struct td_compile_options *o) {
    return o->precision != NULL;
}

static bool has_strategy(const struct td_compile_options *o) {
    return o->strategy != NULL;
}

static bool recomputes(const struct td_compile_options *o) {
    return trains(o) && o->recompute != TD_RECOMPUTE_NONE;
}

static bool splits_head(const struct td_compile_options *o) {
    return o->whole_logits_bytes != 0;
}

static bool updates(const struct td_compile_options *o) {
    return trains(o) && o->key.apply && o->optimizer;
}

static bool gathers(const struct td_compile_options *o) {
    return updates(o) && o->strategy_update;
}

static const struct {
    const char *name;
    bool (*applies)(const struct td_compile_options *o);
    td_status (*run)(struct td_compiled *c, const struct td_compile_options *o);
} pipeline[] = {
    {"record", always, run_record},
    {"sync_norm", syncs_norm, run_sync_norm},
    {"sink", always, run_sink},
    {"autodiff", trains, run_autodiff},
    {"precision", has_precision, run_precision},
    {"strategy", has_strategy, run_strategy},
    {"optimizer", updates, run_optimizer},
    {"strategy_update", gathers, run_strategy_update},
    {"simplify", always, run_simplify},
    {"fuse", always, run_fuse},
    {"head", splits_head, run_head},
    {"dgrad", trains, run_dgrad},
    {"recompute", recomputes, run_recompute},
    {"residual", always, run_residual},
    {"schedule", always, run_schedule},
    {"memory", always, run_memory},
};

const char *td_compile_pass(size_t i) {
    return i < TD_COUNTOF(pipeline) ? pipeline[i].name : NULL;
}

static td_status run_pipeline(struct td_compiled *c, const struct td_compile_options *o) {
    for (size_t i = 0; i < TD_COUNTOF(pipeline); i++) {
        if (!pipeline[i].applies(o)) continue;
        td_status s = pipeline[i].run(c, o);
        if (!s) s = td_rewrite_insert_at(c->graph, TD_REWRITE_END);
        if (!s) s = td_graph_verify(c->graph);
        if (!s && o->dump) s = o->dump(o->dump_arg, pipeline[i].name, &c->program);
        if (s) {
            return td_status_context(s, "compile %s (%s, batch %" PRId64 "), pass %s", o->key.step,
                                     td_mode_name(o->key.mode), o->key.batch, pipeline[i].name);
        }
    }
    return TD_OK;
}

static td_status compile_once(const struct td_compile_options *options,
                              struct td_compiled **out_compiled) {
    TD_AUTO(td_compiled) *c = td_calloc(1, sizeof *c);
    if (!c) return td_fail_oom();
    TD_TRY(td_graph_create(options->key.step, options->key.mode, options->state, &c->graph));
    c->graph->world_size = options->world_size;
    c->program.key = options->key;
    c->program.graph = c->graph;
    TD_TRY(run_pipeline(c, options));
    *out_compiled = td_steal(c);
    return TD_OK;
}

// The lowest level up to the wished one that needs the least memory: where little is kept anyway,
// what is made again only adds to it.
static td_status settle_recompute(struct td_compile_options *o) {
    size_t best = SIZE_MAX;
    enum td_recompute wish = o->recompute, level = TD_RECOMPUTE_NONE;
    struct td_compile_options trial = *o;
    trial.dump = NULL;
    for (int i = TD_RECOMPUTE_NONE; recomputes(o) && i <= (int)wish; i++) {
        TD_AUTO(td_compiled) *c = NULL;
        trial.recompute = (enum td_recompute)i;
        TD_TRY(compile_once(&trial, &c));
        if (c->program.arena_bytes >= best) continue;
        best = c->program.arena_bytes;
        level = trial.recompute;
    }
    o->recompute = level;
    return TD_OK;
}

td_status td_compile(const struct td_compile_options *options, struct td_compiled **out_compiled) {
    struct td_compile_options o = *options;
    if (!memchr(options->key.step, '\0', sizeof options->key.step)) {
        return td_fail(TD_INVALID_ARGUMENT, "a step's name must be shorter than %zu bytes",
                       sizeof options->key.step);
    }
    TD_TRY(settle_recompute(&o));
    return compile_once(&o, out_compiled);
}

void td_compiled_destroy(struct td_compiled *c) {
    if (!c) return;
    free(c->placement);
    td_graph_destroy(c->graph);
    free(c);
}
