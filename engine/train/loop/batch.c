// Two positions: a batch that is queued takes its offset, step, rate and random key from the one,
// and moves the other when it is read. Where nothing runs ahead they are the same at each boundary.
// Where a module has several training steps, each is read before the next is queued, but the last.

#include "engine/train/loop/batch.h"

#include <math.h>
#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/config/schedule.h"
#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/programs/counted.h"
#include "traind/random.h"

// Optimizer steps that a training step has completed when the next is queued.
static int64_t updates_of(const struct td_train_loop *l, int step) {
    return l->at.n_counts ? l->at.count[step].updates : l->queued.step;
}

double td_batch_rate(const struct td_train_loop *l, int step) {
    const struct td_train_config *c = l->rank->config;
    const int i = l->rank->steps.step[step].optimizer;
    double base_lr = c->n_optimizers ? c->optimizers[i].optimizer.lr : c->optimizer.lr;
    if (l->schedule[i].kind == TD_SCHEDULE_REDUCE_ON_PLATEAU) base_lr *= l->at.plateau.lr_scale;
    return td_schedule_lr(&l->schedule[i], base_lr, updates_of(l, step));
}

// Precisions of 16 and 32 bits compute with what fp32 holds of the step scalars, whatever the
// accelerator.
static void round_scalars(struct td_rank *r) {
    for (int i = 0; i < TD_SCALAR_COUNT && r->precision_facts.param != TD_F64; i++) {
        r->scalars[i] = (double)(float)r->scalars[i];
    }
}

void td_batch_set_update(struct td_train_loop *l, int step, double rate) {
    l->rank->scalars[TD_SCALAR_LR] = rate;
    l->rank->scalars[TD_SCALAR_STEP] = (double)(updates_of(l, step) + 1);
    round_scalars(l->rank);
}

td_status td_batch_set_share(struct td_train_loop *l, double share) {
    struct td_rank *r = l->rank;
    r->scalars[TD_SCALAR_WINDOW] = share;
    if (r->precision_ops->pre_backward) {
        TD_TRY(r->precision_ops->pre_backward(r->precision, r->scalars));
    }
    round_scalars(r);
    return TD_OK;
}

// The step scalars of a window of so many micro-batches. A loss scale holds for all of it.
static td_status set_scalars(struct td_train_loop *l, int64_t window) {
    td_batch_set_update(l, 0, td_batch_rate(l, 0));
    if (!td_rank_divides(l->rank)) return td_batch_set_share(l, 1.0 / (double)window);
    memset(l->counted, 0, sizeof l->counted);
    l->count_scale = td_rank_count_scale(l->rank, window);
    return td_batch_set_share(l, l->count_scale);
}

static bool is_of_batch(td_status s) {
    const enum td_class class = td_status_class(s);
    return class == TD_CLASS_DATA || class == TD_CLASS_NUMERIC || class == TD_CLASS_DEVICE;
}

td_status td_batch_name(td_status s, const struct td_train_loop *l, const char *stage,
                        int64_t batch) {
    s = td_rank_classify(s);
    if (!is_of_batch(s)) return s;
    return td_status_context(s, "%s at step %lld (epoch %lld), batch %lld", stage,
                             (long long)l->at.step, (long long)l->at.epoch, (long long)batch + 1);
}

// Of a failure: the optimizer step that it was on the way to, after `done` of them.
static td_status name_step(td_status s, const struct td_train_loop *l, int64_t done) {
    if (!is_of_batch(s)) return s;
    return td_status_context(s, "step %lld (epoch %lld)", (long long)(done + 1),
                             (long long)l->at.epoch);
}

void td_batch_begin(struct td_train_loop *l) {
    TD_CHECK(!l->n_runs);
    l->queued = (struct td_position){.step = l->at.step,
                                     .epoch_offset = l->at.epoch_offset,
                                     .epoch_batches = l->at.epoch_batches,
                                     .windows = l->at.windows,
                                     .samples = l->at.samples};
}

// ---- the training steps of a micro-batch --------------------------------------------------------

// The update that a run ended in was queued: is one more completed, or does the precision skip it?
static void complete(struct td_train_loop *l, struct td_batch_run *b) {
    if (!b->steps || l->rank->skipped) return;
    b->after.step++;
    if (l->at.n_counts) l->at.count[b->step].updates++;
}

// All but the update, which reads what the window has counted by the end of this run.
static td_status queue_pass(struct td_rank *r, const struct td_program_key *key,
                            const struct td_buffer *inputs, struct td_batch_run *b) {
    TD_TRY(td_rank_move_batch(r, 0, inputs, b->inputs));
    return td_rank_queue_segments(r, TD_STEP_TRAIN, key, b->inputs, TD_SEGS_PASS, &b->run);
}

// The update after a pass that was read, where gradients are counted.
static td_status update_counted(struct td_train_loop *l, struct td_batch_run *b) {
    struct td_rank *r = l->rank;
    struct td_rank_run run;
    const struct td_program_key key =
        td_rank_train_key(r, b->step, &l->epoch, b->after.epoch_batches - 1, b->n_samples);
    l->counted[b->step] += td_tallies_counted(b->run.graph, r->outputs, b->n_samples);
    if (!b->steps) return TD_OK;
    TD_TRY(td_rank_divisor(r, l->counted[b->step], l->count_scale, &r->scalars[TD_SCALAR_DIVISOR]));
    round_scalars(r);
    TD_TRY(td_rank_queue_segments(r, TD_STEP_TRAIN, &key, b->inputs, TD_SEGS_UPDATE, &run));
    TD_TRY(td_rank_read(r, &run));
    complete(l, b);
    return TD_OK;
}

// Queues one of them. What it completes is added to b->after, unless the precision skips it, which
// is known by now. Where gradients are counted that follows when it is read.
static td_status queue_step(struct td_train_loop *l, const struct td_buffer *inputs, int64_t batch,
                            struct td_batch_run *b) {
    struct td_rank *r = l->rank;
    struct td_program_key key = td_rank_train_key(r, b->step, &l->epoch, batch, b->n_samples);
    if (l->at.n_counts) {
        td_batch_set_update(l, b->step, td_batch_rate(l, b->step));
    }
    b->lr[b->step] = r->scalars[TD_SCALAR_LR];
    b->done = b->after.step;
    td_rank_set_random(r, l->queued.step + b->step, l->queued.epoch_offset);
    if (key.sync) td_control_raise(&r->control, r->control.flags, true);
    const bool divides = td_rank_divides(r);
    td_status s = divides ? queue_pass(r, &key, inputs, b)
                          : td_rank_queue(r, TD_STEP_TRAIN, &key, 0, inputs, &b->run);
    TD_TRY(name_step(s, l, b->done));
    if (!divides) complete(l, b);
    return TD_OK;
}

double td_batch_norm(const struct td_graph *g, const double *outputs) {
    for (uint32_t i = 0; i < td_graph_n_outputs(g); i++) {
        enum td_output_kind kind;
        td_graph_output_at(g, i, NULL, NULL, &kind);
        if (kind == TD_OUTPUT_NORM) return sqrt(outputs[i]);
    }
    return (double)NAN;
}

// Waits for the one that was queued, and counts what it put out. Among several, one that was
// skipped counts nowhere; alone it is a window that nobody looks at.
static td_status read_step(struct td_train_loop *l, struct td_batch_run *b) {
    struct td_rank *r = l->rank;
    struct td_tallies own = {0};
    TD_TRY(name_step(td_rank_read(r, &b->run), l, b->done));
    if (b->begins && b->step == 0) l->window.n = 0;
    td_tallies_add(&own, b->run.graph, r->outputs, b->n_samples);
    if (td_rank_divides(r)) TD_TRY(name_step(update_counted(l, b), l, b->done));
    if (!l->at.n_counts || !r->skipped) td_tallies_merge(&l->window, &own);
    td_throughput_add(&l->throughput, b->run.graph, b->step == 0 ? b->n_samples : 0);
    l->grad_norm[b->step] = td_batch_norm(b->run.graph, r->outputs);
    return TD_OK;
}

td_status td_batch_queue(struct td_train_loop *l, int64_t batch) {
    struct td_rank *r = l->rank;
    const struct td_limits *limits = &r->config->limits;
    const int64_t offset = l->queued.epoch_offset;
    const struct td_sampler *sampler = td_data_sampler(r->data, TD_SPLIT_TRAIN);
    struct td_buffer inputs[TD_DATA_FIELDS];
    struct td_batch_run b = {.begins = td_limits_begins(limits, &l->epoch, batch),
                             .steps = td_limits_steps_after(limits, &l->epoch, batch),
                             .validates = td_limits_validates_after(limits, &l->epoch, batch)};
    TD_CHECK(l->n_runs <= TD_RUNS_AHEAD);
    const struct td_mono start = td_mono_now();
    TD_TRY(td_data_batch(r->data, TD_SPLIT_TRAIN, 0, offset, inputs, &b.n_samples));
    TD_TRY(td_timeline_add(r->timeline, "batch", NULL, start, NULL));
    if (b.begins) TD_TRY(set_scalars(l, td_limits_window(limits, &l->epoch, batch)));
    if (r->facts.hooks_batches) TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_BATCH_START, batch));
    const int64_t next = td_sampler_next(sampler, offset, r->config->batch_size);
    b.after = (struct td_position){.step = l->queued.step,
                                   .epoch_offset = next,
                                   .epoch_batches = batch + 1,
                                   .windows = l->queued.windows + b.steps,
                                   .samples = l->queued.samples + next - offset};
    TD_TRY(queue_step(l, inputs, batch, &b));
    while (b.step + 1 < r->steps.n) {
        TD_TRY(read_step(l, &b));
        b.step++;
        TD_TRY(queue_step(l, inputs, batch, &b));
    }
    l->queued = b.after;
    l->run[l->n_runs++] = b;
    return TD_OK;
}

td_status td_batch_read(struct td_train_loop *l, struct td_batch_run *out_run) {
    struct td_batch_run b = l->run[0];
    l->n_runs--;
    memmove(&l->run[0], &l->run[1], (size_t)l->n_runs * sizeof l->run[0]);
    TD_TRY(read_step(l, &b));
    l->queued.step = TD_MAX(l->queued.step, b.after.step);
    l->window_steps = b.after.step - l->at.step;
    memcpy(l->lr, b.lr, sizeof l->lr);
    l->own_samples += b.n_samples;
    l->at.step = b.after.step;
    l->at.epoch_offset = b.after.epoch_offset;
    l->at.epoch_batches = b.after.epoch_batches;
    l->at.windows = b.after.windows;
    l->at.samples = b.after.samples;
    *out_run = b;
    return TD_OK;
}
