// One rule shapes it: things happen at *boundaries*, the moments right after an optimizer step,
// when all ranks hold the same agreement. There a rank may stop, save, validate or end; nowhere
// else. What is due at a boundary is done in this order: agreed stop, validation, checkpoint,
// limits. A validation that an agreed stop interrupts is saved as pending and done again by the
// attempt that resumes, before its first batch. One in the middle of an accumulation window runs to
// its end, because there is no state between two micro-batches to resume from.
//
// An accelerator may run ahead: then a batch is read when the next one is queued, so that it never
// waits for the host. What needs the state of a boundary is known when its last batch is queued,
// and nothing is queued after that one. What ranks agree on is known when it is read; they obey at
// the next boundary, all at the same.

#include "engine/train/loop/fit.h"

#include <string.h>

#include "engine/train/config/limits.h"
#include "engine/train/loop/batch.h"
#include "engine/train/loop/boundary.h"
#include "engine/train/loop/early_stopping.h"
#include "engine/train/loop/evaluate.h"
#include "engine/train/loop/host_step.h"
#include "engine/train/loop/narrate.h"
#include "engine/train/rank/group/comm_hook.h"
#include "engine/train/rank/programs/batches.h"
#include "engine/train/rank/step.h"

// ---- small steps -------------------------------------------------------------------------------

// Did the last window pass a multiple of n steps?
static bool passes(const struct td_train_loop *l, int64_t n) {
    return l->at.step / n > (l->at.step - l->window_steps) / n;
}

// Every so many steps, at the end of an epoch, and the last of all.
static bool logs_step(const struct td_train_loop *l) {
    return l->window_steps && (passes(l, l->rank->config->limits.log_every_n_steps) ||
                               l->at.epoch_batches == l->epoch.n_batches || l->fit_is_over);
}

// ---- validation and checkpoints ----------------------------------------------------------------

// The sums are those of all ranks, so all ranks lower the rate or none does.
static void take_validation(struct td_train_loop *l) {
    struct td_rank *r = l->rank;
    const struct td_plateau_config *c = &l->schedule[0].plateau;
    if (l->schedule[0].kind != TD_SCHEDULE_REDUCE_ON_PLATEAU) return;
    const struct td_tally *t = td_validated_find(&l->validated, c->monitor);
    TD_CHECK(t); // td_monitor_check
    // All labels are ignored: nothing was measured.
    if (t->count == 0) return;
    double value = t->sum / t->count;
    if (td_plateau_receive(&l->at.plateau, c, r->config->optimizer.lr, value) &&
        r->facts.is_global_zero) {
        td_events_note(
            r->events,
            "%s is on a plateau (%g, best %g): the learning rate is now %g, at step %lld "
            "(epoch %lld)",
            c->monitor, value, l->at.plateau.best, td_batch_rate(l, 0), (long long)l->at.step,
            (long long)l->at.epoch);
    }
}

static td_status validate(struct td_train_loop *l, bool *out_interrupted) {
    struct td_rank *r = l->rank;
    TD_TRY(td_train_loop_evaluate(l, TD_SPLIT_VAL, "val", INT64_MAX, out_interrupted));
    if (!*out_interrupted) {
        take_validation(l);
        TD_TRY(td_early_stopping_validated(l));
    }
    td_control_phase(&r->control, TD_PHASE_TRAINING);
    td_throughput_begin(&l->throughput, l->at.step);
    return TD_OK;
}

// Does a window that comes to so many steps, and ends after this one, end in a save?
static bool saves_after(const struct td_train_loop *l, int64_t step, int64_t window_steps) {
    const struct td_checkpoint_config *c = &l->rank->config->checkpoint;
    const int64_t n = c->every_n_train_steps;
    return c->save_top_k != 0 && n > 0 && step / n > (step - window_steps) / n;
}

static bool saves_by_epoch(const struct td_train_loop *l) {
    const struct td_checkpoint_config *c = &l->rank->config->checkpoint;
    return c->save_top_k != 0 && c->every_n_epochs > 0 &&
           (l->at.epoch + 1) % c->every_n_epochs == 0;
}

// ---- fit ---------------------------------------------------------------------------------------

// The epoch's metrics are the last of its points: a reader that has them has its validation's, too.
// One that a later attempt still validates ends there.
static td_status end_epoch(struct td_train_loop *l) {
    if (l->at.epoch_batches != l->epoch.n_batches && !l->fit_is_over) return TD_OK;
    TD_TRY(td_rank_hook(l->rank, TD_HOOK_TRAIN_EPOCH_END, l->at.epoch_batches));
    td_epoch_metrics_log(&l->played, l->at.step, l->at.epoch);
    td_narrate_epoch_end(l);
    return td_early_stopping_epoch_ended(l);
}

// One that was done when the run was resumed has had its end.
static td_status begin_epoch(struct td_train_loop *l) {
    struct td_rank *r = l->rank;
    TD_TRY(td_sampler_set_epoch(td_data_sampler(r->data, TD_SPLIT_TRAIN), l->at.epoch));
    l->epoch = td_rank_epoch(r, &l->at);
    td_batch_begin(l);
    if (l->epoch.first >= l->epoch.n_batches) return TD_OK;
    td_narrate_epoch_begin(l);
    return td_rank_hook(r, TD_HOOK_TRAIN_EPOCH_START, l->epoch.first);
}

// An agreed stop, with the validation that it found due.
static td_status stop_here(struct td_train_loop *l, bool saves, bool pending,
                           enum td_train_loop_end *out_end) {
    td_narrate_stop(l, saves);
    if (!saves || !pending) TD_TRY(end_epoch(l));
    l->at.validation_pending = pending;
    if (saves) TD_TRY(td_boundary_save(l, TD_SAVE_FINAL));
    *out_end = TD_LOOP_STOPPED;
    return TD_OK;
}

// What is due once an optimizer step is done. *out_leave: fit is over, out_end says how. Where a
// batch is queued already, nothing of it is due (see drains), and an agreement waits for the next.
static td_status at_boundary(struct td_train_loop *l, bool validates, bool *out_leave,
                             enum td_train_loop_end *out_end) {
    const struct td_limits *limits = &l->rank->config->limits;
    if (l->n_runs) return logs_step(l) ? td_boundary_log(l) : TD_OK;
    const struct td_agreement agreed = td_control_take(&l->rank->control);
    bool epoch_ends = l->at.epoch_batches == l->epoch.n_batches;
    int64_t epochs_done = l->at.epoch + epoch_ends;
    const bool ends_early = td_early_stopping_ends(l, epochs_done, l->at.step);
    l->fit_is_over = td_limits_reached(limits, epochs_done, l->at.step) || ends_early ||
                     (agreed.timer && td_limits_may_stop_early(limits, epochs_done, l->at.step));
    const bool logs = logs_step(l);
    if (logs) TD_TRY(td_boundary_log(l));
    // After the last step there is nothing left to stop: let the job end, unless it is cancelled.
    if (agreed.stop && (agreed.now || !l->fit_is_over)) {
        *out_leave = true;
        return stop_here(l, agreed.save, validates, out_end);
    }
    if (validates || td_early_stopping_validates(l)) {
        bool interrupted;
        TD_TRY(validate(l, &interrupted));
        if (interrupted) {
            *out_leave = true;
            return stop_here(l, l->stop_saves, true, out_end);
        }
        l->fit_is_over |= td_early_stopping_ends(l, epochs_done, l->at.step);
    }
    TD_TRY(end_epoch(l));
    l->fit_is_over |= td_early_stopping_ends(l, epochs_done, l->at.step);
    // Only now is it known that this step is the last.
    if (l->fit_is_over && !logs && l->window_steps) TD_TRY(td_boundary_log(l));
    *out_leave = l->fit_is_over;
    if (l->fit_is_over) return TD_OK; // fit saves once more, and waits for it
    if (agreed.save) return td_boundary_save(l, TD_SAVE_ASKED);
    bool is_due = agreed.due || saves_after(l, l->at.step, l->window_steps) ||
                  (epoch_ends && saves_by_epoch(l));
    return is_due ? td_boundary_save(l, 0) : TD_OK;
}

// Must what was queued last be done before anything else is? What comes after it needs the state
// that it leaves, or is not to be run at all.
static bool drains(const struct td_train_loop *l) {
    const struct td_batch_run *last = &l->run[l->n_runs - 1];
    const bool epoch_ends = last->after.epoch_batches == l->epoch.n_batches;
    const bool ends_fit =
        td_limits_reached(&l->rank->config->limits, l->at.epoch, last->after.step);
    const bool ends_early = td_early_stopping_ends(l, l->at.epoch, last->after.step);
    const bool is_due =
        last->steps && (saves_after(l, last->after.step, last->steps) || ends_fit || ends_early);
    return is_due || epoch_ends || last->validates || td_control_is_pending(&l->rank->control);
}

static td_status validate_in_window(struct td_train_loop *l) {
    bool interrupted; // never: see the head of this file
    l->mid_window = true;
    TD_TRY(validate(l, &interrupted));
    l->mid_window = false;
    return TD_OK;
}

// Reads the batch that was queued first, and does what is due after it.
static td_status read_batch(struct td_train_loop *l, bool *out_leave,
                            enum td_train_loop_end *out_end) {
    struct td_batch_run b;
    TD_TRY(td_batch_read(l, &b));
    if (b.steps) {
        TD_TRY(td_boundary_end_step(l));
        return at_boundary(l, b.validates, out_leave, out_end);
    }
    return b.validates ? validate_in_window(l) : TD_OK;
}

// The same of a batch that the module plays itself. Each of its updates was counted already.
static td_status play_batch(struct td_train_loop *l, struct td_steps *steps, int64_t batch,
                            bool *out_leave, enum td_train_loop_end *out_end) {
    const bool validates = td_limits_validates_after(&l->rank->config->limits, &l->epoch, batch);
    bool boundary;
    TD_TRY(td_host_step(steps, batch, &boundary));
    if (boundary) {
        TD_TRY(td_manual_agree(&steps->manual));
        return at_boundary(l, validates, out_leave, out_end);
    }
    return validates ? validate_in_window(l) : TD_OK;
}

// Before the first batch, where the attempt before may have ended an epoch.
static int64_t epochs_done(const struct td_train_loop *l) {
    const struct td_epoch e = td_rank_epoch(l->rank, &l->at);
    return l->at.epoch + (l->at.epoch_offset > 0 && l->at.epoch_batches == e.n_batches);
}

// Did fit end there? Then it stays in that epoch.
static bool was_over(const struct td_train_loop *l) {
    return td_limits_reached(&l->rank->config->limits, epochs_done(l), l->at.step) ||
           td_early_stopping_ends(l, epochs_done(l), l->at.step);
}

// Who resumes a run that was over may have wanted it to go on.
static void note_over(const struct td_train_loop *l) {
    const struct td_rank *r = l->rank;
    const struct td_limits *limits = &r->config->limits;
    const char *knob = NULL;
    int32_t limit = 0;
    if (!r->resumed || !r->facts.is_global_zero) return;
    if (td_limits_reached(limits, 0, l->at.step)) {
        knob = "max_steps";
        limit = limits->max_steps;
    } else if (td_limits_reached(limits, epochs_done(l), 0)) {
        knob = "max_epochs";
        limit = limits->max_epochs;
    }
    if (knob) {
        td_events_note(r->events,
                       "nothing is left to train: the checkpoint is of step %lld, with %lld "
                       "epoch%s done, and %s is %d; raise trainer.%s to go on",
                       (long long)l->at.step, (long long)epochs_done(l),
                       epochs_done(l) == 1 ? "" : "s", knob, limit, knob);
    } else if (r->start.early_stop.decided) {
        td_events_note(r->events,
                       "nothing is left to train: early stopping had ended it at step %lld; a job "
                       "that begins at this checkpoint (ckpt_path) trains on",
                       (long long)l->at.step);
    }
}

static td_status begin(struct td_train_loop *l, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    const struct td_limits *limits = &r->config->limits;
    TD_TRY(td_train_loop_settle(l));
    td_narrate_plan(l);
    TD_TRY(td_epoch_metrics_begin(&l->played, r));
    TD_TRY(td_rank_hook(r, TD_HOOK_TRAIN_START, 0));
    bool interrupted = false;
    if (l->at.validation_pending) {
        l->epoch = td_rank_epoch(r, &l->at);
        TD_TRY(validate(l, &interrupted));
        l->fit_is_over = !interrupted && was_over(l);
        if (!interrupted) TD_TRY(end_epoch(l));
        // Nothing was trained, so the checkpoint that was resumed from is still the newest.
        if (interrupted) *out_end = TD_LOOP_STOPPED;
        l->at.validation_pending = false;
    } else if (!r->resumed && limits->sanity_batches != 0) {
        const int64_t most = limits->sanity_batches > 0 ? limits->sanity_batches : INT64_MAX;
        TD_TRY(td_train_loop_evaluate(l, TD_SPLIT_VAL, "", most, &interrupted));
    }
    td_control_phase(&r->control, TD_PHASE_TRAINING);
    td_throughput_begin(&l->throughput, l->at.step);
    const struct td_checkpoint_config *c = &r->config->checkpoint;
    td_control_save_every(&r->control, c->save_top_k != 0 ? c->train_time_interval_s : 0);
    l->runs_ahead = td_rank_runs_ahead(r) ? TD_RUNS_AHEAD : 0;
    return TD_OK;
}

static td_status play_epochs(struct td_train_loop *l, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    const struct td_limits *limits = &r->config->limits;
    struct td_steps own;
    td_host_step_init(&own, l);
    bool leave = was_over(l);
    if (leave) note_over(l);
    for (; !leave && !td_limits_reached(limits, l->at.epoch, l->at.step); l->at.epoch++) {
        TD_TRY(begin_epoch(l));
        for (int64_t b = l->epoch.first; b < l->epoch.n_batches && !leave; b++) {
            if (r->module_ops->training_step) {
                TD_TRY(play_batch(l, &own, b, &leave, out_end));
                continue;
            }
            TD_TRY(td_batch_queue(l, b));
            while (l->n_runs && (l->n_runs > l->runs_ahead || drains(l)) && !leave) {
                TD_TRY(read_batch(l, &leave, out_end));
            }
        }
        if (leave) break;
        l->at.epoch_offset = 0;
        l->at.epoch_batches = 0;
        td_epoch_metrics_next(&l->played);
    }
    l->fit_is_over = true;
    return TD_OK;
}

td_status td_train_loop_fit(struct td_train_loop *l, enum td_train_loop_end *out_end) {
    struct td_rank *r = l->rank;
    *out_end = TD_LOOP_DONE;
    TD_TRY(begin(l, out_end));
    if (*out_end == TD_LOOP_DONE) TD_TRY(play_epochs(l, out_end));
    if (*out_end == TD_LOOP_DONE) {
        td_rank_note_hook(r);
        if (r->config->checkpoint.save_top_k != 0 && l->stepped) {
            TD_TRY(td_boundary_save(l, TD_SAVE_FINAL));
        }
    }
    return td_rank_hook(r, TD_HOOK_TRAIN_END, 0);
}
