// Which programs a job has. Of each training step: one for every length of batch and window that
// an epoch comes to. Besides, of the first step: one to evaluate full and last batches, one to
// predict. Scores predict what is evaluated. Where those sum, also the sizes of other ranks
// (uneven.h).

#include "engine/train/rank/programs/record.h"

#include "engine/train/rank/data/data.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/programs/counted.h"
#include "engine/train/rank/programs/dump.h"
#include "engine/train/rank/programs/steps.h"
#include "engine/train/rank/programs/uneven.h"
#include "traind/op.h"

// Every variant of an epoch played from p on: windows repeat, so its two ends have them all.
static td_status add_train_programs(struct td_rank *r, const struct td_progress *p) {
    const struct td_train_config *c = r->config;
    struct td_epoch e = td_rank_epoch(r, p);
    int64_t ends = 2 * td_limits_accumulate(&c->limits, e.index) + 2;
    int64_t left = td_data_left(r->data, TD_SPLIT_TRAIN, 0, p->epoch_offset);
    for (int64_t b = e.first; b < e.n_batches; b++) {
        if (b - e.first > ends && e.n_batches - b > ends) b = e.n_batches - ends;
        int64_t n = TD_MIN(c->batch_size, left - (b - e.first) * c->batch_size);
        for (int step = 0; step < r->steps.n; step++) {
            struct td_program_key key = td_rank_train_key(r, step, &e, b, n);
            TD_TRY(td_programs_add(r->programs, &key));
        }
    }
    return TD_OK;
}

// Of a loop that somebody else owns: for each length of batch those that he may ask for. Whoever
// adds up micro-batches may leave out the reduction of some.
static td_status add_manual_programs(struct td_rank *r) {
    const struct td_train_config *c = r->config;
    const int64_t left = td_data_left(r->data, TD_SPLIT_TRAIN, 0, 0), batch = c->batch_size;
    // Where it goes on inside an epoch, what is left of that may end in another batch.
    const int64_t rest = td_data_left(r->data, TD_SPLIT_TRAIN, 0, r->start.epoch_offset);
    const int64_t sizes[] = {left >= batch ? batch : 0, c->drop_last ? 0 : left % batch,
                             c->drop_last ? 0 : rest % batch};
    const bool adds = td_rank_adds_up(r);
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        for (int variant = 0; variant < (adds ? 4 : 1) * r->steps.n && sizes[i]; variant++) {
            const int of = variant / r->steps.n;
            struct td_program_key key =
                td_rank_manual_key(r, variant % r->steps.n, of & 1, !(of & 2), sizes[i]);
            TD_TRY(td_programs_add(r->programs, &key));
        }
    }
    return TD_OK;
}

// Those of the epochs from which on windows have another length, too.
static td_status add_fit_programs(struct td_rank *r) {
    const struct td_limits *l = &r->config->limits;
    struct td_progress whole = {0};
    if (td_rank_is_manual(r)) return add_manual_programs(r);
    TD_TRY(add_train_programs(r, &whole));
    for (size_t i = 1; i < l->n_accumulate; i++) {
        whole.epoch = l->accumulate[i].epoch;
        if (td_limits_reached(l, whole.epoch, 0)) break;
        TD_TRY(add_train_programs(r, &whole));
    }
    return add_train_programs(r, &r->start);
}

static td_status add_loader_programs(struct td_rank *r, enum td_split split, int loader,
                                     bool predicts) {
    if (td_rank_loader_batches(r, split, loader) == 0) return TD_OK;
    int64_t left = td_data_left(r->data, split, loader, 0), batch = r->config->batch_size;
    // A rank without samples records the model all the same: all must know what it has.
    int64_t sizes[] = {left >= batch ? batch : 0, left ? left % batch : 1};
    for (size_t i = 0; i < TD_COUNTOF(sizes); i++) {
        if (sizes[i] == 0) continue;
        struct td_program_key key =
            predicts ? td_rank_predict_key(r, sizes[i]) : td_rank_eval_key(r, sizes[i]);
        TD_TRY(td_programs_add(r->programs, &key));
    }
    return TD_OK;
}

static td_status add_eval_programs(struct td_rank *r, enum td_split split) {
    const bool predicts = split == TD_SPLIT_PREDICT;
    for (int i = 0; i < td_data_n_loaders(r->data, split); i++) {
        TD_TRY(add_loader_programs(r, split, i, predicts));
        if (!predicts && td_rank_scores_predict(r)) TD_TRY(add_loader_programs(r, split, i, true));
    }
    return TD_OK;
}

static td_status add_other_programs(struct td_rank *r) {
    const struct td_program_key one = td_rank_predict_key(r, 1);
    for (int split = 0; split < TD_SPLIT_COUNT; split++) {
        if (!td_rank_evaluates(r, (enum td_split)split)) continue;
        TD_TRY(add_eval_programs(r, (enum td_split)split));
    }
    if (!(r->config->stages & TD_STAGE_PREDICT) || !td_rank_generates(r)) return TD_OK;
    return td_programs_add(r->programs, &one);
}

// A module may be a stranger's, and a program reads as much of a field as its input says.
static td_status check_input(const struct td_rank *r, const struct td_graph *g, uint32_t i,
                             int64_t batch) {
    size_t n_fields;
    const struct td_field *f = td_data_recorded(r->data, &n_fields);
    const struct td_value_info *in = td_graph_value(g, td_graph_input_at(g, i));
    const int64_t n = td_shape_elems(&in->shape);
    if (i >= n_fields) {
        return td_fail(TD_INVALID_ARGUMENT,
                       "model '%s' records %u inputs in step '%s', but a sample has %zu fields",
                       r->config->model.name, td_graph_n_inputs(g), td_graph_step(g), n_fields);
    }
    const int64_t there = batch * td_shape_elems(&f[i].sample_shape);
    if (n == there && in->dtype == f[i].dtype) return TD_OK;
    return td_fail(TD_INVALID_ARGUMENT,
                   "model '%s' records input %u of step '%s' with %lld elements of %s, but field "
                   "'%s' has %lld of %s; inputs are the fields in their order",
                   r->config->model.name, i, td_graph_step(g), (long long)n,
                   td_dtype_name(in->dtype), f[i].name, (long long)there,
                   td_dtype_name(f[i].dtype));
}

// The unbiased variance of one value does not exist; the kernels would move running_var towards 0.
static td_status check_norm(const struct td_rank *r, const struct td_graph *g,
                            const struct td_node_info *norm, int64_t batch) {
    const struct td_train_config *c = r->config;
    const struct td_shape *x = &td_graph_value(g, norm->inputs[0])->shape;
    const int64_t ranks = c->sync_batchnorm ? r->facts.world_size : 1;
    if (td_shape_elems(x) / TD_MAX(x->dim[1], 1) * ranks != 1) return TD_OK;
    const struct td_value_info *gamma = td_graph_value(g, norm->inputs[1]);
    const bool named = gamma->kind == TD_VALUE_STATE;
    return td_fail(TD_INVALID_ARGUMENT,
                   "batch norm of '%s' trains on 1 value per channel in %s of %lld sample, and 1 "
                   "value has no variance: set %s%s",
                   named ? td_state_at(r->state, gamma->index)->name : "a computed scale",
                   batch >= c->batch_size ? "batches"
                   : r->start.epoch_offset > 0
                       ? "the last batch of the epoch, or of its rest after the resume,"
                       : "the last batch of an epoch,",
                   (long long)batch,
                   batch < c->batch_size ? "data.drop_last: true, or another data.batch_size"
                                         : "data.batch_size to 2 or more",
                   r->facts.world_size > 1 ? ", or trainer.sync_batchnorm: true" : "");
}

static td_status check_norms(const struct td_rank *r, const struct td_graph *g, int64_t batch) {
    for (td_node n = 0; n < td_graph_n_nodes(g); n++) {
        const struct td_node_info *node = td_graph_node(g, n);
        if (node->op == TD_OP_BATCH_NORM) TD_TRY(check_norm(r, g, node, batch));
    }
    return TD_OK;
}

static td_status record_step(void *arg, struct td_graph *g, int64_t batch) {
    struct td_rank *r = arg;
    TD_TRY(r->module_ops->record(r->module, g, batch));
    TD_TRY(check_norms(r, g, batch));
    for (uint32_t i = 0; i < td_graph_n_inputs(g); i++) {
        td_status bad = check_input(r, g, i, batch);
        if (bad) return td_status_with_class(bad, TD_CLASS_USER_CODE);
    }
    return TD_OK;
}
static bool step_trains(const void *arg, const struct td_program_key *key, const char *param) {
    return td_rank_step_trains(arg, key, param);
}
static td_status rewrite_precision(void *arg, struct td_graph *g,
                                   const struct td_program_key *key) {
    struct td_rank *r = arg;
    return r->precision_ops->rewrite(r->precision, g, key);
}
static enum td_dtype input_type(const void *arg, uint32_t slot) {
    const struct td_rank *r = arg;
    size_t n_fields;
    return td_data_fields(r->data, &n_fields)[slot].dtype;
}
static td_status rewrite_strategy(void *arg, struct td_graph *g, const struct td_program_key *key) {
    struct td_rank *r = arg;
    return r->strategy_ops->rewrite ? r->strategy_ops->rewrite(r->strategy, g, key) : TD_OK;
}

static td_status rewrite_update(void *arg, struct td_graph *g, const struct td_program_key *key) {
    struct td_rank *r = arg;
    return r->strategy_ops->rewrite_update(r->strategy, g, key);
}

td_status td_rank_record(struct td_rank *r, enum td_recompute level) {
    const struct td_train_config *c = r->config;
    struct td_compile_options options = {
        .state = r->state,
        .world_size = r->facts.world_size,
        .windowed =
            td_rank_is_manual(r) ? td_rank_adds_up(r) : td_limits_ever_accumulates(&c->limits),
        .counted = td_rank_divides(r),
        .scales_loss = r->precision_facts.scales_loss,
        .record = record_step,
        .record_arg = r,
        .syncs_batch_norm = c->sync_batchnorm && r->facts.world_size > 1,
        .trains = step_trains,
        .trains_arg = r,
        .precision = r->precision_ops->rewrite ? rewrite_precision : NULL,
        .precision_arg = r,
        .input_type = input_type,
        .input_type_arg = r,
        .strategy = rewrite_strategy,
        .strategy_update = r->strategy_ops->rewrite_update ? rewrite_update : NULL,
        .strategy_arg = r,
        .optimizer = &r->optimizer,
        .recompute = level,
        .whole_logits_bytes = r->accel_facts.whole_logits_bytes,
        .elides = r->accel_ops->elides,
        .dump = c->dump ? td_dump_take : NULL,
        .dump_arg = c->dump,
    };
    td_programs_destroy(td_steal(r->programs));
    if (c->dump) td_dump_restart(c->dump);
    TD_TRY(td_programs_create(&options, td_rank_keeps_forwards(r), &r->programs));
    if (r->strategy_ops->build_begin) {
        TD_TRY(r->strategy_ops->build_begin(r->strategy, r->state));
    }
    if (c->stages & TD_STAGE_FIT) TD_TRY(add_fit_programs(r));
    TD_TRY(add_other_programs(r));
    TD_TRY(td_rank_add_uneven(r));
    td_state_set_rule(r->state, NULL, NULL);
    if (!r->strategy_ops->build_end) return TD_OK;
    return r->strategy_ops->build_end(r->strategy, r->state);
}
