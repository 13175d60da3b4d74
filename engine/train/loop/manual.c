// See the header.

#include "engine/train/loop/manual.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/train/loop/batch.h"
#include "engine/train/loop/boundary.h"
#include "engine/train/rank/data/shares.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/programs/steps.h"
#include "engine/train/rank/state/tensor.h"
#include "lib/base/buf.h"
#include "traind/random.h"

enum {
    FORWARD = 1 << TD_SEG_FORWARD,
    BACKWARD = 1 << TD_SEG_BACKWARD,
    FINISH = 1 << TD_SEG_FINISH,
    APPLY = 1 << TD_SEG_APPLY,
    NAMES_BYTES = 512,
};

// By the reason it differs from failures of the same class, which end a run.
#define misuse(...)                                                                                \
    td_status_with_reason(                                                                         \
        td_status_with_class(td_fail(TD_FAILED_PRECONDITION, __VA_ARGS__), TD_CLASS_USER_CODE),    \
        TD_MANUAL_MISUSE)

void td_manual_init(struct td_manual *m, struct td_train_loop *l) {
    *m = (struct td_manual){.l = l, .syncs = true, .last = -1};
    for (int i = 0; i < TD_STEPS_MAX; i++) {
        m->of[i].lr = (double)NAN;
    }
    l->runs_ahead = td_rank_runs_ahead(l->rank) ? TD_RUNS_AHEAD : 0;
    td_batch_begin(l);
}

static const char *name_of(const struct td_manual *m, int step) {
    return m->l->rank->steps.step[step].name;
}

// ---- reading ------------------------------------------------------------------------------------

// Counts what the oldest run put out.
static void count(struct td_manual *m, const struct td_manual_run *b) {
    struct td_train_loop *l = m->l;
    struct td_rank *r = l->rank;
    if (b->segments & FORWARD) {
        m->values.n = 0;
        td_tallies_add(&m->values, b->run.graph, r->outputs, b->n_samples);
        if (b->begins) m->of[b->step].window.n = 0;
        td_tallies_merge(&m->of[b->step].window, &m->values);
        m->of[b->step].passed = m->values;
        const bool is_first = b->step == 0;
        td_throughput_add(&l->throughput, b->run.graph, is_first ? b->n_samples : 0);
        l->own_samples += is_first ? b->n_samples : 0;
    }
    if (b->segments & FINISH) l->grad_norm[b->step] = td_batch_norm(b->run.graph, r->outputs);
}

// What is logged at a step is of all training steps that the batch went through.
static void show(struct td_manual *m) {
    m->l->window.n = 0;
    for (int i = 0; i < m->l->rank->steps.n; i++) {
        td_tallies_merge(&m->l->window, &m->of[i].window);
    }
}

static td_status read_oldest(struct td_manual *m) {
    struct td_train_loop *l = m->l;
    const struct td_manual_run b = m->run[0];
    m->n_runs--;
    memmove(&m->run[0], &m->run[1], (size_t)m->n_runs * sizeof m->run[0]);
    TD_TRY(td_rank_read(l->rank, &b.run));
    count(m, &b);
    if (!b.is_update) return td_control_check_abort(&l->rank->control);
    l->window_steps = b.updated;
    l->lr[b.step] = b.lr;
    l->at.step += b.updated;
    if (b.epoch == l->at.epoch) { // else the epoch is over, and the position in another
        l->at.epoch_offset = b.after.epoch_offset;
        l->at.epoch_batches = b.after.epoch_batches;
        l->at.windows = b.after.windows;
        l->at.samples = b.after.samples;
    }
    l->window = m->of[b.step].window;
    TD_TRY(td_boundary_end_step(l));
    show(m);
    return TD_OK;
}

static td_status read_down_to(struct td_manual *m, int n) {
    while (m->n_runs > n) {
        TD_TRY(read_oldest(m));
    }
    return TD_OK;
}

// ---- queueing -----------------------------------------------------------------------------------

static double rate_of(const struct td_manual *m, int step) {
    return isfinite(m->of[step].lr) ? m->of[step].lr : td_batch_rate(m->l, step);
}

// A loss scale holds for all gradients of an update, though updates of other steps may have moved
// the precision's in between.
static td_status prepare_pass(struct td_manual *m, int step, uint32_t segments) {
    const struct td_manual_pass *p = &m->of[step].pass;
    struct td_rank *r = m->l->rank;
    TD_TRY(td_batch_set_share(m->l, p->share));
    if (p->begins && (segments & FORWARD)) {
        m->of[step].loss_scale = r->scalars[TD_SCALAR_LOSS_SCALE];
    }
    td_rank_set_random(r, m->began + step, m->offset);
    if ((segments & BACKWARD) && p->key.sync) {
        td_control_raise(&r->control, r->control.flags, true);
    }
    return TD_OK;
}

static td_status prepare(struct td_manual *m, int step, uint32_t segments) {
    struct td_rank *r = m->l->rank;
    if (segments & TD_SEGS_PASS) TD_TRY(prepare_pass(m, step, segments));
    if (segments & TD_SEGS_UPDATE) td_batch_set_update(m->l, step, rate_of(m, step));
    r->scalars[TD_SCALAR_LOSS_SCALE] = m->of[step].loss_scale;
    return TD_OK;
}

// The first arena is that of evaluations, too.
static int arena_of(const struct td_manual *m, int step) {
    return td_rank_keeps_forwards(m->l->rank) ? step : 0;
}

static void note_use(struct td_manual *m, int step, uint32_t segments) {
    uint64_t *ran = &m->ran[arena_of(m, step)];
    *ran += segments & FORWARD ? 1 : 0;
    if (segments & BACKWARD) m->of[step].ran = *ran;
}

// Queues segments of a program.
static td_status queue(struct td_manual *m, int step, const struct td_program_key *key,
                       uint32_t segments) {
    struct td_train_loop *l = m->l;
    TD_CHECK(m->n_runs <= TD_RUNS_AHEAD);
    struct td_manual_run b = {.segments = segments,
                              .step = step,
                              .n_samples = m->n_samples,
                              .begins = m->of[step].pass.begins,
                              .is_update = segments & APPLY,
                              .gather = m->gather,
                              .epoch = m->epoch,
                              .after = m->pass_over};
    TD_TRY(prepare(m, step, segments));
    b.lr = l->rank->scalars[TD_SCALAR_LR];
    td_status s = td_rank_queue_segments(l->rank, TD_STEP_TRAIN, key, m->inputs, segments, &b.run);
    TD_TRY(td_batch_name(s, l, "training", l->at.epoch_batches));
    note_use(m, step, segments);
    b.updated = b.is_update && !l->rank->skipped;
    if (b.updated) {
        l->queued.step++;
        if (l->at.n_counts) l->at.count[step].updates++;
    }
    m->run[m->n_runs++] = b;
    return read_down_to(m, l->runs_ahead);
}

// Queues what was asked for and is not queued.
static td_status flush(struct td_manual *m) {
    struct td_manual_pass *p = &m->of[m->asking].pass;
    const uint32_t segments = p->asked & ~p->queued;
    if (!segments) return TD_OK;
    p->queued = p->asked;
    return queue(m, m->asking, &p->key, segments);
}

td_status td_manual_drain(struct td_manual *m) {
    TD_TRY(flush(m));
    return read_down_to(m, 0);
}

// ---- what ends a pass ---------------------------------------------------------------------------

static void end_pass(struct td_manual *m, int step, enum td_manual_end end) {
    struct td_manual_pass *p = &m->of[step].pass;
    if (!p->is_open) return;
    p->is_open = false;
    p->ended = p->asked & BACKWARD ? TD_MANUAL_ENDED_NOT : end;
}

// Those of an arena; -1: of all.
static void end_passes(struct td_manual *m, int arena, enum td_manual_end end) {
    for (int i = 0; i < m->l->rank->steps.n; i++) {
        if (arena < 0 || arena_of(m, i) == arena) end_pass(m, i, end);
    }
}

static td_status refuse_backward(const struct td_manual *m, int step) {
    static const char *const ends[TD_MANUAL_ENDS] = {
        [TD_MANUAL_ENDED_BATCH] = "another batch was taken: call backward before the next batch",
        [TD_MANUAL_ENDED_FORWARD] =
            "the forward of another step took its memory: set keeps_forwards to have several open",
        [TD_MANUAL_ENDED_UPDATE] =
            "an optimizer step has moved what its forward read: call forward after it",
        [TD_MANUAL_ENDED_NORM] = "gradients were clipped in its memory: clip after its backward",
        [TD_MANUAL_ENDED_EVALUATION] = "an evaluation took its memory: evaluate after its backward",
    };
    const enum td_manual_end end = step < 0 ? TD_MANUAL_ENDED_NOT : m->of[step].pass.ended;
    if (end == TD_MANUAL_ENDED_NOT) return misuse("backward without a forward before it");
    return misuse("backward of step '%s' after its forward was ended: %s", name_of(m, step),
                  ends[end]);
}

// Between the two halves of an update nothing runs: what the first left is in the arena and in the
// outputs. step: whose update may go on.
static td_status check_settled(const struct td_manual *m, int step, const char *what) {
    for (int i = 0; i < m->l->rank->steps.n; i++) {
        if (!m->of[i].settled || i == step) continue;
        return misuse("%s after the gradients of step '%s' were clipped: the optimizer step comes "
                      "first",
                      what, name_of(m, i));
    }
    return TD_OK;
}

// ---- batches ------------------------------------------------------------------------------------

static td_status begin_epoch(struct td_manual *m) {
    struct td_train_loop *l = m->l;
    struct td_rank *r = l->rank;
    TD_TRY(td_sampler_set_epoch(td_data_sampler(r->data, TD_SPLIT_TRAIN), l->at.epoch));
    l->epoch = td_rank_epoch(r, &l->at);
    td_batch_begin(l);
    m->in_epoch = true;
    td_control_phase(&r->control, TD_PHASE_TRAINING);
    td_throughput_begin(&l->throughput, l->at.step);
    return td_rank_hook(r, TD_HOOK_TRAIN_EPOCH_START, l->epoch.first);
}

static td_status end_epoch(struct td_manual *m) {
    struct td_train_loop *l = m->l;
    TD_TRY(td_manual_drain(m));
    TD_TRY(td_rank_hook(l->rank, TD_HOOK_TRAIN_EPOCH_END, l->queued.epoch_batches));
    l->at.epoch++;
    l->at.epoch_offset = 0;
    l->at.epoch_batches = 0;
    l->at.windows = l->queued.windows;
    l->at.samples = l->queued.samples;
    td_epoch_metrics_next(&l->played);
    m->in_epoch = false;
    end_passes(m, -1, TD_MANUAL_ENDED_BATCH);
    m->n_samples = 0;
    return TD_OK;
}

td_status td_manual_before_gather(struct td_manual *m) {
    TD_TRY(flush(m)); // it reads the batch before
    m->gathers++;
    while (m->n_runs && m->run[0].gather + 2 <= m->gathers) { // there are two buffers
        TD_TRY(read_oldest(m));
    }
    return TD_OK;
}

// Its buffer has another batch in it.
static bool is_gone(const struct td_manual *m) {
    return m->gather + 2 <= m->gathers;
}

td_status td_manual_take(struct td_manual *m) {
    struct td_train_loop *l = m->l;
    struct td_rank *r = l->rank;
    const struct td_sampler *sampler = td_data_sampler(r->data, TD_SPLIT_TRAIN);
    TD_TRY(td_manual_before_gather(m));
    end_passes(m, -1, TD_MANUAL_ENDED_BATCH);
    for (int i = 0; r->steps.n > 1 && i < r->steps.n; i++) {
        if (!m->of[i].any) m->of[i].window.n = 0;
    }
    m->offset = l->queued.epoch_offset;
    m->began = l->queued.step;
    m->gather = m->gathers;
    TD_TRY(td_data_batch(r->data, TD_SPLIT_TRAIN, 0, m->offset, m->batch, &m->n_samples));
    if (r->facts.hooks_batches) {
        TD_TRY(td_manual_drain(m));
        TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_BATCH_START, l->queued.epoch_batches));
    }
    TD_TRY(td_rank_move_batch(r, 0, m->batch, m->inputs));
    const int64_t next = td_sampler_next(sampler, m->offset, r->config->batch_size);
    l->queued.epoch_offset = next;
    l->queued.epoch_batches++;
    l->queued.windows++; // of one batch each, whatever the loop makes of them
    l->queued.samples += next - m->offset;
    m->after = l->queued;
    return TD_OK;
}

void td_manual_pass(struct td_manual *m) {
    struct td_train_loop *l = m->l;
    TD_CHECK(!m->n_runs);
    l->at.epoch_offset = l->queued.epoch_offset;
    l->at.epoch_batches = l->queued.epoch_batches;
    l->at.windows = l->queued.windows;
    l->at.samples = l->queued.samples;
}

td_status td_manual_next(struct td_manual *m, int64_t *out_n) {
    struct td_train_loop *l = m->l;
    TD_TRY(flush(m));
    end_passes(m, -1, TD_MANUAL_ENDED_BATCH);
    if (!m->in_epoch) TD_TRY(begin_epoch(m));
    *out_n = 0;
    if (l->queued.epoch_batches >= l->epoch.n_batches) return end_epoch(m);
    TD_TRY(td_manual_take(m));
    *out_n = m->n_samples;
    return TD_OK;
}

// ---- a pass -------------------------------------------------------------------------------------

td_status td_manual_forward(struct td_manual *m, int step, double share) {
    if (m->n_samples == 0) return misuse("forward without a batch: take the next one before");
    if (is_gone(m)) {
        return misuse("forward over a batch that is gone: two others were taken after it");
    }
    if (m->of[step].any && !td_rank_adds_up(m->l->rank)) {
        return misuse(
            "forward of step '%s' while it has gradients that no optimizer step has used, "
            "in a loop that said that it does not accumulate",
            name_of(m, step));
    }
    const int arena = arena_of(m, step);
    TD_TRY(check_settled(m, -1, "forward"));
    TD_TRY(flush(m));
    end_passes(m, arena, TD_MANUAL_ENDED_FORWARD);
    m->last = m->asking = step;
    m->epoch = m->l->at.epoch;
    m->n_passed = m->n_samples;
    m->pass_over = m->after;
    m->of[step].pass = (struct td_manual_pass){
        .is_open = true,
        .share = share,
        .begins = !m->of[step].any,
        .asked = FORWARD,
        .key = td_rank_manual_key(m->l->rank, step, m->of[step].any, m->syncs, m->n_samples),
    };
    return TD_OK;
}

// Gradients were forgotten after the forward, which belongs to a program that adds to them. It is
// not run again, because it may have moved buffers: its program adds to zeros.
static td_status begin_again(struct td_manual *m, int step) {
    struct td_manual_pass *p = &m->of[step].pass;
    TD_TRY(td_manual_drain(m));
    TD_TRY(td_rank_clear_gradients(m->l->rank, &p->key));
    m->of[step].window = m->of[step].passed;
    p->begins = true;
    return TD_OK;
}

td_status td_manual_backward(struct td_manual *m, int step) {
    if (step < 0) step = m->last;
    struct td_manual_pass *p = step < 0 ? NULL : &m->of[step].pass;
    if (!p || !p->is_open) return refuse_backward(m, step);
    if (p->asked & BACKWARD) return misuse("a second backward of the same forward");
    if (is_gone(m)) {
        return misuse("backward over a batch that is gone: two others were taken after it");
    }
    if (m->asking != step) TD_TRY(flush(m));
    m->asking = step;
    if (p->key.accumulate && !m->of[step].any) TD_TRY(begin_again(m, step));
    p->asked |= BACKWARD;
    m->of[step].key = p->key;
    m->of[step].any = true;
    m->of[step].synced = p->key.sync;
    return TD_OK;
}

// What an update and a norm need.
static td_status check_gradients(const struct td_manual *m, int step, const char *what) {
    if (!m->of[step].any) {
        return misuse("%s of step '%s' without a backward of it before", what, name_of(m, step));
    }
    if (!m->of[step].synced) {
        return misuse("%s of step '%s' after a backward without sync: ranks would move apart; the "
                      "last backward of a window has to sync",
                      what, name_of(m, step));
    }
    return TD_OK;
}

// May the end of the program that gave the step its gradients run now?
static td_status check_alone(const struct td_manual *m, int step) {
    struct td_runnable p;
    if (m->of[step].ran == m->ran[arena_of(m, step)]) return TD_OK;
    TD_TRY(td_programs_find(m->l->rank->programs, &m->of[step].key, &p));
    if (p.updates_alone) return TD_OK;
    return misuse("the optimizer step of '%s' has to come right after its backward, before another "
                  "forward: its update reads what the backward computed besides gradients",
                  name_of(m, step));
}

// Queues segments of an update after what was asked for. Where its backward is not queued yet, all
// is one run.
static td_status end_window(struct td_manual *m, int step, uint32_t segments) {
    struct td_manual_pass *p = &m->of[step].pass;
    TD_TRY(check_settled(m, step, segments & APPLY ? "another optimizer step" : "another norm"));
    if (m->asking == step && (p->asked & ~p->queued & BACKWARD)) {
        p->asked |= segments;
        return flush(m);
    }
    TD_TRY(flush(m));
    TD_TRY(check_alone(m, step));
    return queue(m, step, &m->of[step].key, segments);
}

td_status td_manual_optimizer_step(struct td_manual *m, int step, bool *out_stepped) {
    TD_TRY(check_gradients(m, step, "an optimizer step"));
    TD_TRY(end_window(m, step, m->of[step].settled ? APPLY : TD_SEGS_UPDATE));
    *out_stepped = !m->l->rank->skipped;
    m->of[step].any = m->of[step].settled = false;
    end_passes(m, -1, TD_MANUAL_ENDED_UPDATE);
    return TD_OK;
}

td_status td_manual_zero_grad(struct td_manual *m, int step) {
    TD_TRY(flush(m));
    m->of[step].any = m->of[step].settled = false;
    return TD_OK;
}

// Does the program that gave the step its gradients put out a norm?
static td_status check_norm(const struct td_manual *m, int step) {
    struct td_runnable p;
    TD_TRY(td_programs_find(m->l->rank->programs, &m->of[step].key, &p));
    for (uint32_t i = 0; i < td_graph_n_outputs(p.graph); i++) {
        enum td_output_kind kind;
        td_graph_output_at(p.graph, i, NULL, NULL, &kind);
        if (kind == TD_OUTPUT_NORM) return TD_OK;
    }
    return misuse("no norm of gradients is computed: set trainer.gradient_clip_val or "
                  "trainer.log_grad_norm");
}

td_status td_manual_find(const struct td_manual *m, const char *name, int *out_step) {
    const struct td_rank_steps *steps = &m->l->rank->steps;
    char names[TD_STEPS_MAX * (TD_STEP_NAME + 2)] = "";
    for (int i = 0; i < steps->n; i++) {
        if (!name || strcmp(steps->step[i].name, name) == 0) {
            *out_step = i;
            return TD_OK;
        }
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", steps->step[i].name);
    }
    td_status none =
        td_fail(TD_NOT_FOUND, "the module has no training step '%s'; it has: %s", name, names);
    return td_status_with_reason(td_status_with_class(none, TD_CLASS_USER_CODE), TD_MANUAL_MISUSE);
}

td_status td_manual_norm(struct td_manual *m, int step, double *out_norm) {
    TD_TRY(check_gradients(m, step, "the norm of the gradients"));
    TD_TRY(check_norm(m, step));
    if (!m->of[step].settled) TD_TRY(end_window(m, step, FINISH));
    TD_TRY(td_manual_drain(m));
    end_passes(m, arena_of(m, step), TD_MANUAL_ENDED_NORM);
    m->of[step].settled = true;
    *out_norm = m->l->grad_norm[step];
    return TD_OK;
}

td_status td_manual_evaluate(struct td_manual *m, enum td_strategy_step kind, int loader,
                             const struct td_buffer *inputs, int64_t n) {
    struct td_rank *r = m->l->rank;
    const struct td_graph *g;
    TD_TRY(check_settled(m, -1, "an evaluation"));
    TD_TRY(td_manual_drain(m));
    end_passes(m, 0, TD_MANUAL_ENDED_EVALUATION);
    m->ran[0]++;
    td_control_beat(&r->control);
    TD_TRY(td_control_check_abort(&r->control));
    m->values.n = 0;
    m->n_passed = n;
    if (n == 0) return td_rank_step_idle(r, kind, loader);
    const struct td_program_key key =
        kind == TD_STEP_PREDICT ? td_rank_predict_key(r, n) : td_rank_eval_key(r, n);
    TD_TRY(td_rank_step(r, kind, &key, loader, inputs, &g));
    td_tallies_add(&m->values, g, r->outputs, n);
    return TD_OK;
}

// ---- values -------------------------------------------------------------------------------------

static td_status no_value(const struct td_manual *m, const char *name) {
    char names[NAMES_BYTES] = "";
    for (size_t i = 0, n = 0; i < m->values.n; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              m->values.item[i].name);
    }
    td_status none = td_fail(TD_NOT_FOUND, "the last pass put out no '%s'; it has: %s", name,
                             *names ? names : "nothing");
    return td_status_with_reason(td_status_with_class(none, TD_CLASS_USER_CODE), TD_MANUAL_MISUSE);
}

td_status td_manual_value(struct td_manual *m, const char *name, double *out_value) {
    TD_TRY(td_manual_drain(m));
    const struct td_tally *t = td_tallies_find(&m->values, name);
    if (!t) return no_value(m, name);
    *out_value = t->count == 0 ? (double)NAN : t->sum / t->count;
    return TD_OK;
}

// A name or a size that is wrong, which changes nothing.
static td_status as_misuse(td_status s) {
    const bool is_misuse = s && td_status_class(s) == TD_CLASS_USER_CODE;
    return is_misuse ? td_status_with_reason(s, TD_MANUAL_MISUSE) : s;
}

td_status td_manual_tensor(struct td_manual *m, const char *name, float *out, int64_t n) {
    TD_TRY(td_manual_drain(m));
    return as_misuse(td_rank_read_tensor(m->l->rank, name, out, n));
}

td_status td_manual_result(struct td_manual *m, const char *name, float *out, int64_t n) {
    if (!m->n_passed) return misuse("result '%s' before any forward", name);
    TD_TRY(td_manual_drain(m));
    return as_misuse(td_rank_read_result(m->l->rank, name, m->n_passed, out, n));
}

bool td_manual_has_gradients(const struct td_manual *m) {
    for (int i = 0; i < m->l->rank->steps.n; i++) {
        if (m->of[i].any) return true;
    }
    return false;
}

td_status td_manual_agree(struct td_manual *m) {
    struct td_rank *r = m->l->rank;
    for (int i = 0; i < m->n_runs; i++) {
        if (m->run[i].run.agrees) return TD_OK;
    }
    if (td_control_has_agreed(&r->control)) return TD_OK;
    TD_TRY(td_manual_drain(m));
    if (td_control_has_agreed(&r->control)) return TD_OK;
    return td_rank_agree(r, !td_manual_has_gradients(m));
}
