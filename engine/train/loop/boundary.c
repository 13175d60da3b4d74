// See the header.

#include "engine/train/loop/boundary.h"

#include <math.h>
#include <stdio.h>

#include "engine/train/rank/group/group.h"
#include "engine/train/rank/state/own_state.h"
#include "engine/train/rank/state/writers.h"
#include "engine/train/rank/step.h"
#include "lib/base/clock.h"

static td_status check_loss(struct td_train_loop *l, const struct td_tally *loss) {
    const double mean = loss->sum / loss->count;
    if (loss->count == 0) return TD_OK; // every label of the window was to be ignored
    if (loss == td_train_loop_loss(l, &l->window, 0)) l->last_loss = (float)mean;
    if (isfinite(mean)) return TD_OK;
    return td_status_with_class(td_fail(TD_FAILED_PRECONDITION,
                                        "the %s is %f at step %lld (epoch %lld); lower the "
                                        "learning rate or clip the gradient; detect_anomaly "
                                        "finds the op it begins with",
                                        loss->name, isnan(mean) ? (double)NAN : mean,
                                        (long long)l->at.step, (long long)l->at.epoch),
                                TD_CLASS_NUMERIC);
}

static td_status check_losses(struct td_train_loop *l) {
    const struct td_tally *loss;
    for (size_t i = 0; (loss = td_train_loop_loss(l, &l->window, i)); i++) {
        TD_TRY(check_loss(l, loss));
    }
    return TD_OK;
}

// One optimizer has "lr", several have "lr_<name>": of the first step that each moves.
static void log_rates(struct td_train_loop *l) {
    const struct td_rank *r = l->rank;
    const struct td_train_config *c = r->config;
    char name[TD_METRIC_NAME_BYTES];
    if (!c->n_optimizers && isfinite(l->lr[0])) {
        td_metrics_value(&l->rank->metrics, "lr", l->at.step, l->at.epoch, l->lr[0]);
    }
    for (int i = 0; i < c->n_optimizers; i++) {
        int step = 0;
        while (step < r->steps.n && r->steps.step[step].optimizer != i) {
            step++;
        }
        if (step == r->steps.n) continue;     // all that it has is frozen, or unused
        if (!isfinite(l->lr[step])) continue; // it has not moved yet
        snprintf(name, sizeof name, "lr_%s", c->optimizers[i].name);
        td_metrics_value(&l->rank->metrics, name, l->at.step, l->at.epoch, l->lr[step]);
    }
}

static void log_norms(struct td_train_loop *l) {
    const struct td_rank_steps *steps = &l->rank->steps;
    char name[TD_METRIC_NAME_BYTES];
    for (int i = 0; i < steps->n; i++) {
        if (!isfinite(l->grad_norm[i])) continue;
        snprintf(name, sizeof name, "grad_norm%s%s", steps->n > 1 ? "_" : "",
                 steps->n > 1 ? steps->step[i].name : "");
        td_metrics_value(&l->rank->metrics, name, l->at.step, l->at.epoch, l->grad_norm[i]);
    }
}

td_status td_boundary_log(struct td_train_loop *l) {
    struct td_rank *r = l->rank;
    struct td_metrics *m = &r->metrics;
    char name[TD_METRIC_NAME_BYTES];
    for (size_t i = 0; i < l->window.n; i++) {
        const struct td_tally *t = &l->window.item[i];
        snprintf(name, sizeof name, "train_%s_step", t->name);
        td_metrics_mean(m, name, l->at.step, l->at.epoch, t->sum, t->count);
    }
    log_rates(l);
    log_norms(l);
    if (r->precision_facts.scales_loss) {
        struct td_precision_state s = {0};
        TD_TRY(r->precision_ops->state_save(r->precision, &s));
        td_metrics_value(m, "loss_scale", l->at.step, l->at.epoch, s.loss_scale);
        td_metrics_value(m, "skipped_steps", l->at.step, l->at.epoch, (double)s.skipped_steps);
    }
    return td_throughput_log(&l->throughput, r, l->at.step, l->at.epoch);
}

td_status td_boundary_end_step(struct td_train_loop *l) {
    struct td_rank *r = l->rank;
    td_rank_expect(r, TD_RANK_TRAINS); // the control flags went to all
    if (l->window_steps) {
        TD_TRY(check_losses(l));
        td_epoch_metrics_add(&l->played, &l->window);
    }
    td_control_progress(&r->control, &l->at, l->own_samples, l->last_loss);
    TD_TRY(td_control_check_abort(&r->control));
    TD_TRY(td_checkpointer_poll(r->checkpointer));
    if (!l->window_steps) return TD_OK;
    if (!l->stepped) {
        td_events_step1(r->events, l->at.step);
        td_checkpointer_prepare(r->checkpointer);
    }
    l->stepped = true;
    return TD_OK;
}

// The manifest's metrics are global (validation's already are).
static td_status collect_metrics(struct td_train_loop *l, struct td_manifest *m) {
    TD_TRY(td_epoch_metrics_describe(&l->played, &l->window, m));
    td_validated_describe(&l->validated, m);
    return TD_OK;
}

// The checkpointer took the manifest, which it may still be writing: what follows builds on it.
static void keep_taken(struct td_train_loop *l, const struct td_manifest *m) {
    bool is_new = m->best.known && m->best.step == m->progress.step;
    if (is_new) td_best_parent(l->rank->config->checkpoint.dir, l->best_dir);
    l->saved_step = m->progress.step;
    l->best = m->best;
    td_epoch_metrics_taken(&l->played);
}

td_status td_boundary_save(struct td_train_loop *l, int flags) {
    struct td_rank *r = l->rank;
    const struct td_train_config *c = r->config;
    if (!c->checkpoint.dir) return TD_OK;
    td_rank_expect(r, TD_RANK_SAVES); // who writes may wait for the disk
    if (r->precision_ops->state_save) {
        TD_TRY(r->precision_ops->state_save(r->precision, &l->at.precision));
    }
    td_control_saved(&r->control);
    l->at.elapsed_ns = r->start.elapsed_ns + td_mono_now().ns - l->began_ns;
    struct td_manifest m = {
        .job = c->job,
        .attempt = c->attempt,
        .seed = c->seed,
        .progress = l->at,
        .key = r->key,
        .optimizer = r->optimizer_name,
        .schedule = r->schedule_name,
        .spec_digest = c->spec_digest,
        .plan = c->plan,
        .frozen = r->frozen,
        .best = l->best,
        .own = &r->own,
    };
    TD_TRY(collect_metrics(l, &m));
    TD_TRY(td_rank_optimizer_state(r, r->writers.roles));
    TD_TRY(td_rank_collect_own_state(r));
    if (c->checkpoint.monitor) {
        td_best_offer(&m.best, &c->checkpoint, m.progress.step,
                      td_manifest_metric(&m, c->checkpoint.monitor));
    }
    if (flags & TD_SAVE_FINAL) td_control_phase(&r->control, TD_PHASE_SAVING);
    const uint64_t skipped = td_checkpointer_counts(r->checkpointer).skipped;
    const struct td_mono start = td_mono_now();
    struct td_strategy_memory memory;
    TD_TRY(td_rank_bring_state(r, &memory));
    TD_TRY(td_checkpointer_save(r->checkpointer, &memory, &m, flags));
    TD_TRY(td_timeline_add(r->timeline, "save", NULL, start, NULL));
    if (l->at.step != l->saved_step && td_checkpointer_counts(r->checkpointer).skipped == skipped) {
        keep_taken(l, &m);
    }
    td_control_phase(&r->control, TD_PHASE_TRAINING);
    return TD_OK;
}
